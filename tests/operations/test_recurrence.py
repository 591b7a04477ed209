"""GRU and LSTM along a sequence: against loops and PyTorch, and what padding may not do."""

import numpy as np
import oracles
import pytest
from oracles import assert_close
from tested import npf

from npformer import cpu

B, T, D, D_IN = 3, 7, 5, 2


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


GRU = {
    "x_gates": normal(B, T, 3 * D),
    "h0": normal(B, D),
    "weight": normal(D, 3 * D),
    "bias": normal(D),
}
LSTM = {
    "x_gates": normal(B, T, 4 * D),
    "h0": normal(B, D),
    "c0": normal(B, D, seed=1),
    "weight": normal(D, 4 * D),
}
KEPT = normal(B, T) > -0.5
PADDED = np.arange(T) < np.array([[7], [4], [1]])  # rows of different lengths
BOTH_WAYS = pytest.mark.parametrize("reverse", [False, True])


def order(reverse):
    return list(reversed(range(T))) if reverse else list(range(T))


@BOTH_WAYS
@pytest.mark.parametrize("keep_mask", [None, KEPT])
def test_against_loops(keep_mask, reverse):
    options = {"keep_mask": keep_mask, "reverse": reverse}
    kept = np.ones((B, T), bool) if keep_mask is None else keep_mask
    assert_close(npf.gru(**GRU, **options)[0], oracles.gru(*GRU.values(), kept, order(reverse)))
    for mine, theirs in zip(
        npf.lstm(**LSTM, **options)[:2],
        oracles.lstm(*LSTM.values(), kept, order(reverse)),
        strict=True,
    ):
        assert_close(mine, theirs)


def backward(operation, arguments, dstates, **options):
    """The states and the gradients of sum(dstates · states)."""
    saved = getattr(npf, operation)(**arguments, **options)
    first = [arguments[name] for name in ("h0", "c0") if name in arguments]
    more = [] if operation == "gru" else [None]
    gradients = getattr(npf, f"{operation}_backward")(
        dstates, *more, *first, arguments["weight"], *saved, **options
    )
    return saved[0], gradients


@pytest.mark.parametrize("operation", ["gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_against_pytorch(operation, bidirectional):
    """Outputs and every gradient, through the projection of the inputs too,
    for rows of different lengths.
    """
    torch = pytest.importorskip("torch")
    lengths = PADDED.sum(axis=1)
    theirs = getattr(torch.nn, operation.upper())(
        D_IN, D, batch_first=True, bidirectional=bidirectional
    ).double()
    n_directions, n_gates = 1 + bidirectional, 3 if operation == "gru" else 4
    x = normal(B, T, D_IN)
    first = normal(n_directions, B, D, seed=3)
    dy = normal(B, T, n_directions * D)
    tensors = [torch.tensor(a, requires_grad=True) for a in (x, first)]
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        tensors[0], torch.tensor(lengths), batch_first=True
    )
    state = tensors[1] if operation == "gru" else (tensors[1], tensors[1])
    y, _ = torch.nn.utils.rnn.pad_packed_sequence(
        theirs(packed, state)[0], batch_first=True, total_length=T
    )
    y.backward(torch.tensor(dy))

    dx, dfirst = np.zeros_like(x), np.zeros_like(first)
    for direction, suffix in enumerate(["", "_reverse"][:n_directions]):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        tensor = {name: getattr(theirs, f"{name}_l0{suffix}") for name in names}
        weight_x, weight_h, bias_x, bias_h = (tensor[name].detach().numpy() for name in names)
        part = slice(direction * D, (direction + 1) * D)
        # only the third of its biases of h is one that the input's cannot stand for
        if operation == "gru":
            bias = bias_x + np.where(np.arange(3 * D) < 2 * D, bias_h, 0)
            arguments = {"h0": first[direction], "weight": weight_h.T, "bias": bias_h[2 * D :]}
        else:
            bias = bias_x + bias_h
            arguments = {"h0": first[direction], "c0": first[direction], "weight": weight_h.T}
        arguments["x_gates"] = npf.linear(x, weight_x.T, bias)
        dstates = np.where(PADDED[..., None], dy[..., part], 0)
        options = {"keep_mask": PADDED, "reverse": direction == 1}
        states, (dx_gates, *rest) = backward(operation, arguments, dstates, **options)
        assert_close(np.where(PADDED[..., None], states, 0), y.detach().numpy()[..., part], 1e-10)
        dx_part, dweight_x, dbias_x = npf.linear_backward(dx_gates, x, weight_x.T, bias)
        dx += dx_part
        dfirst[direction] = rest[0] if operation == "gru" else rest[0] + rest[1]
        assert_close(dweight_x.T, tensor["weight_ih"].grad.numpy(), 1e-10)
        assert_close(dbias_x, tensor["bias_ih"].grad.numpy(), 1e-10)
        dweight = rest[1] if operation == "gru" else rest[2]
        assert_close(dweight.T, tensor["weight_hh"].grad.numpy(), 1e-10)
        if operation == "gru":
            assert_close(rest[2], tensor["bias_hh"].grad.numpy()[n_gates * D - D :], 1e-10)
    assert_close(dx, tensors[0].grad.numpy(), 1e-10)
    assert_close(dfirst, tensors[1].grad.numpy(), 1e-10)


@BOTH_WAYS
@pytest.mark.parametrize("operation, arguments", [("gru", GRU), ("lstm", LSTM)])
@pytest.mark.parametrize("ops", [npf, cpu], ids=["reference", "cpu"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_left_out_never_matters(ops, operation, arguments, reverse, value):
    options = {"keep_mask": PADDED, "reverse": reverse}
    spoiled = arguments | {"x_gates": np.where(PADDED[..., None], arguments["x_gates"], value)}
    results = []
    for given in (arguments, spoiled):
        saved = getattr(ops, operation)(**given, **options)
        first = [given[name] for name in ("h0", "c0") if name in given]
        dstates = (
            [normal(B, T, D)] if operation == "gru" else [normal(B, T, D), normal(B, T, D, seed=2)]
        )
        gradients = getattr(ops, f"{operation}_backward")(
            *dstates, *first, given["weight"], *saved, **options
        )
        assert (gradients[0][~PADDED] == 0).all()
        results.append((*saved[:-1], *gradients))
    for clean, other in zip(*results, strict=True):
        assert_close(other, clean, 1e-14)


@pytest.mark.parametrize("operation, arguments", [("gru", GRU), ("lstm", LSTM)])
def test_a_step_that_is_left_out_keeps_the_state(operation, arguments):
    states = getattr(npf, operation)(**arguments, keep_mask=PADDED)[0]
    assert (states[2, 1:] == states[2, :1]).all()
    none_kept = getattr(npf, operation)(**arguments, keep_mask=np.zeros((B, T), bool))[0]
    assert (none_kept == arguments["h0"][:, None]).all()


@pytest.mark.parametrize("ops", [npf, cpu], ids=["reference", "cpu"])
def test_no_steps_give_no_states(ops):
    states, gates = ops.gru(**GRU | {"x_gates": normal(B, 0, 3 * D)})
    assert (states.shape, gates.shape) == ((B, 0, D), (B, 0, 4 * D))
    dx_gates, dh0, dweight, dbias = ops.gru_backward(
        states, GRU["h0"], GRU["weight"], states, gates
    )
    assert dx_gates.shape == (B, 0, 3 * D)
    assert not (dh0.any() or dweight.any() or dbias.any())


@pytest.mark.parametrize("ops", [npf, cpu], ids=["reference", "cpu"])
@pytest.mark.parametrize("operation, arguments", [("gru", GRU), ("lstm", LSTM)])
def test_no_sequences_give_no_gradients(ops, operation, arguments):
    rows = {name: x if name in ("weight", "bias") else x[:0] for name, x in arguments.items()}
    saved = getattr(ops, operation)(**rows)
    assert saved[0].shape == (0, T, D)
    dstates = [saved[0]] if operation == "gru" else [saved[0], None]
    first = [rows[name] for name in ("h0", "c0") if name in rows]
    _, *gradients = getattr(ops, f"{operation}_backward")(*dstates, *first, rows["weight"], *saved)
    assert not any(gradient.any() for gradient in gradients)
