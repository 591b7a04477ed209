"""The table of cases: the options with which each operation is checked, and the tolerances for
kernels.

``npformer gradcheck``, the tests of gradients, parity, dtypes, poison and bad input, the fuzzing
and the mutations all read it. Arguments are drawn from the contracts, so one line in the table adds
an operation to all of these tests.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np

from npformer import reference
from npformer.operations.settings import Llama3Scaling
from npformer.operations.shapes import match, shape_of
from npformer.reference.math.activations import ACTIVATIONS, INPUTS

# Letters that occur together mostly have different primes as sizes, so that mistaking one axis for
# another is noticed.
SIZES = {
    "...": (2, 3),
    "B": 2,
    "H": 3,
    "G": 3,
    "T": 5,
    "S": 7,
    "K": 11,
    "Kv": 13,
    "Kq": 11,
    "Kk": 13,
    "D": 17,
    "F": 19,
    "E": 19,
    "V": 23,
    "W": 3,
    "A": 17,
    "P": 29,
    "R": 31,
    "n": 37,
    "m": 5,
    "p": 7,
}
BACKWARD = {
    backward.record.forward.record.name: backward
    for backward in (getattr(reference.ops, name) for name in reference.Ops.names())
    if backward.record.forward
}


class Case(NamedTuple):
    """An operation with some of its options.

    A bound is the largest allowed error of a kernel: the largest difference divided by the largest
    entry of the result, in units of the dtype's rounding error. 0 means bitwise equality. Sums of n
    terms in another order differ by about √n units.
    """

    operation: str
    # Arguments of both passes that are not drawn from the contract: values, or a ``Drawn``.
    given: dict
    sizes: dict  # of letters that differ from ``SIZES``
    bound: float
    backward_bound: float

    def __str__(self) -> str:
        options = {name: value for name, value in self.given.items() if name not in DRAWN_ALIKE}
        told = [
            name
            if value is True
            else f"{name}{value.axes if isinstance(value, Drawn) else f'={value}'}"
            for name, value in options.items()
        ]
        told += [f"{letter}={size}" for letter, size in self.sizes.items() if letter != "..."]
        return self.operation + f" ({', '.join(told)})" * bool(told)

    @property
    def forward(self) -> Any:
        """The operation of the reference."""
        return getattr(reference, self.operation)

    @property
    def backward(self) -> Any:
        """The operation of the reference that is its backward pass, or None."""
        return BACKWARD.get(self.operation)

    @property
    def is_differentiable(self) -> bool:
        """Whether there is a gradient to check."""
        returns_gradient = "loss" in [
            result.name for result in self.forward.record.contract.results
        ]
        return self.backward is not None or returns_gradient or self.operation in INVERSE

    @property
    def names(self) -> list[str]:
        """The names of the forward pass, and of the backward pass if there is one."""
        return [self.operation] + ([self.backward.record.name] if self.backward else [])

    def arguments_of(self, name: str, dtype: str = "float64", seed: int = 0) -> dict[str, Any]:
        """Valid arguments of the forward or the backward pass, whichever has this name."""
        return (self.arguments if name == self.operation else self.backward_arguments)(dtype, seed)

    def arguments(self, dtype: str = "float64", seed: int = 0, **others) -> dict[str, Any]:
        """Valid arguments of the forward pass; ``others`` are sizes of letters that replace those
        of the case.
        """
        rng, contract = np.random.default_rng(seed), self.forward.record.contract
        of_names = {
            x.letters[0]: x.table[self.given[name]] for name, x in contract.sizes.items() if x.table
        }
        sizes = {**SIZES, **self.sizes, **others, **of_names}
        drawn = {name: draw(argument, sizes, rng) for name, argument in contract.arrays.items()}
        told = {
            name.rpartition(".")[2]: sizes[x.letters[0]]
            for name, x in contract.sizes.items()
            if not x.table
        }
        given = {
            name: x.draw(rng, sizes) if isinstance(x, Drawn) else x
            for name, x in self.given.items()
        }
        known = {**drawn, **told, **given}
        for name, parameter in self.forward.record.parameters.items():
            if is_dataclass(
                parameter.annotation
            ):  # a record of settings, which are given by their own names
                names = {field.name for field in fields(parameter.annotation)} & known.keys()
                record: Any = parameter.annotation
                known[name] = record(**{field: known[field] for field in names})
        return cast(_taken_by(self.forward, known), dtype)

    def backward_arguments(self, dtype: str = "float64", seed: int = 0) -> dict[str, Any]:
        """Valid arguments of the backward pass: the arguments and results of the forward pass, and
        random gradients.
        """
        arguments = self.arguments(dtype, seed)
        return self._with_gradients(
            arguments, self.results(arguments), self.cotangents(arguments, dtype, seed)
        )

    def cotangents(self, arguments: dict, dtype: str = "float64", seed: int = 0) -> dict[str, Any]:
        """Random gradients of the results that the forward pass has for these arguments."""
        rng, contract = np.random.default_rng(seed + 1), self.forward.record.contract
        sizes = {**SIZES, **match(contract, arguments)}
        return {f"d{x.name}": cast(draw(x, sizes, rng), dtype) for x in contract.results}

    def _with_gradients(self, arguments, results, gradients):
        """The arguments of the backward pass, given those and the results of the forward pass."""
        shapes = {
            f"{name}_shape": x.shape for name, x in arguments.items() if isinstance(x, np.ndarray)
        }
        own = {name: value for name, value in self.given.items() if not isinstance(value, Drawn)}
        return _taken_by(self.backward, {**results, **gradients, **shapes, **own, **arguments})

    def results(self, arguments: dict) -> dict[str, Any]:
        """What the reference returns, by name."""
        results = self.forward(**arguments)
        results = results if isinstance(results, tuple) else (results,)
        described = self.forward.record.contract.results
        if len(results) < len(described):  # what is returned on request was not asked for
            described = tuple(result for result in described if not result.on_request)
        return dict(zip([result.name for result in described], results, strict=True))

    def derivative(self, seed: int = 0, **sizes) -> tuple[Callable, Callable, dict]:
        """The arguments of ``gradcheck``: a function, its backward pass, and the arrays to
        differentiate it by.

        ``sizes`` are those of ``arguments``.
        """
        arguments = self.arguments(seed=seed, **sizes)
        kinds = {
            name: argument.kind for name, argument in self.forward.record.contract.arrays.items()
        }
        arrays = {
            name: x for name, x in arguments.items() if kinds.get(name) == "float" and x is not None
        }
        arrays |= {f"params[{i}]": x for i, x in enumerate(arguments.get("params", ()))}

        def with_arrays(values):
            changed = {**arguments, **dict(zip(arrays, values, strict=True))}
            if "params" in changed:
                changed["params"] = tuple(
                    changed.pop(f"params[{i}]") for i in range(len(arguments["params"]))
                )
            return changed

        def f(*values):
            results = self.results(with_arrays(values))
            return np.concatenate([np.reshape(results[name], -1) for name in differentiated])

        def f_backward(dy, *values):
            changed = with_arrays(values)
            results = self.results(changed)
            parts = np.split(
                dy, np.cumsum([np.size(results[name]) for name in differentiated])[:-1]
            )
            shaped = zip(differentiated, parts, strict=True)
            cotangents = {
                f"d{name}": part.reshape(np.shape(results[name])) for name, part in shaped
            }
            if "loss" in results:
                _, gradient = results.values()
                return _backward_of_loss(cotangents["dloss"], gradient, changed)
            if self.operation in INVERSE:
                inverse = getattr(reference, INVERSE[self.operation])
                return inverse(**_taken_by(inverse, {"n_heads": SIZES["H"], "x": cotangents["dy"]}))
            gradients = self.backward(**self._with_gradients(changed, results, cotangents))
            gradients = gradients if isinstance(gradients, tuple) else (gradients,)
            return tuple(gradient for gradient in gradients if gradient is not None)[: len(arrays)]

        taken = self.backward.record.parameters if self.backward else {"dloss", "dy"}
        names = [result.name for result in self.forward.record.contract.results]
        differentiated = [
            name
            for name in names
            if f"d{name}" in taken and self.given.get(f"d{name}", 0) is not None
        ]
        return f, f_backward, arrays


INVERSE = {
    "split_heads": "merge_heads",
    "merge_heads": "split_heads",
}  # each is the backward pass of the other


def _backward_of_loss(dloss, gradient, arguments):
    """The gradients of a loss, from the gradient that it returns: of what it compares, and times
    ``loss_scale``.

    If the loss includes a linear map, the backward pass of the map is applied.
    """
    gradient = dloss * gradient / arguments.get("loss_scale", 1.0)
    if "weight" not in arguments:
        return gradient
    gradients = reference.linear_backward(
        gradient, arguments["x"], arguments["weight"], arguments["bias"]
    )
    return gradients[: 2 if arguments["bias"] is None else 3]


class Drawn(NamedTuple):
    """An argument that is not drawn from the contract, but by ``draw(rng, sizes)``; with axes, " (T
    S)", in a label.
    """

    draw: Callable
    axes: str = ""


def draw(argument, sizes, rng):
    """A random array for an argument or result of a contract."""
    shape = shape_of(argument.axes, sizes)
    if argument.kind == "ids":
        return (
            rng.integers(0, sizes[argument.below], shape)
            if argument.below
            else rng.integers(-99, 100, shape)
        )
    x = rng.standard_normal(shape)
    return x > -0.3 if argument.kind == "mask" else x


def cast(value, dtype):
    """A value in which all floating-point arrays are cast to a dtype."""
    if isinstance(value, dict):
        return {name: cast(x, dtype) for name, x in value.items()}
    if isinstance(value, tuple):
        return tuple(cast(x, dtype) for x in value)
    return (
        value.astype(dtype) if isinstance(value, np.ndarray) and value.dtype.kind in "fc" else value
    )


def _taken_by(operation, arguments):
    names = operation.record.parameters
    return {name: value for name, value in arguments.items() if name in names}


def _mask(axes, above=0.0):
    """A mask with these axes. If T is one of them, the second query may attend to nothing."""

    def draw(rng, sizes):
        keep_mask = rng.standard_normal(shape_of(axes.split(), sizes)) > above
        if axes.endswith(("T S", "T T", "T 1")):
            keep_mask[..., 1, :] = False
        return keep_mask

    return Drawn(draw, f" ({axes})")


def _words(axes):
    """Ids with these axes: the last two of a row are padding (0), and the second is the same as the
    first.
    """

    def draw(rng, sizes):
        ids = rng.integers(1, sizes["V"], shape_of(axes.split(), sizes))
        ids[..., -2:], ids[..., 1] = 0, ids[..., 0]
        return ids

    return Drawn(draw)


@Drawn
def _away_from_zero(rng, sizes):
    """Numbers that are not near 0, where relu has no derivative."""
    x = rng.standard_normal(sizes["..."])
    return x + 0.01 * np.where(x < 0, -1, 1)


@Drawn
def _rows(rng, sizes):
    """A mask of rows, which has 1 as its last size."""
    return rng.standard_normal((*sizes["..."][:-1], 1)) > -0.3


@Drawn
def _places(rng, sizes):
    """The positions of the tokens of each row in a cache, all different."""
    return rng.permutation(sizes["P"])[: sizes["B"] * sizes["T"]].reshape(sizes["B"], sizes["T"])


def _cases(names, *options, bound, backward_bound=None, **sizes) -> Iterator[Case]:
    """One case for each of these operations and each of these options."""
    sizes = {letter.replace("leading", "..."): size for letter, size in sizes.items()}
    for name in names.split():
        for given in options or ({},):
            yield Case(
                name, given, sizes, bound, bound if backward_bound is None else backward_bound
            )


def _biases(*axes):
    """Cases with a bias on the scores that has these axes."""
    drawn = lambda axes: lambda rng, sizes: rng.standard_normal(shape_of(axes.split(), sizes))
    biases = [Drawn(drawn(x), f" ({x})") for x in axes]
    return [
        {"bias": biases[0], "causal": True, **DROPOUT},
        *({"keep_mask": None, "bias": x} for x in biases[1:]),
    ]


def _attention(names, scores, *more, bound=16, backward_bound=32, **sizes):
    """Cases of attention operations, where ``scores`` are the axes of their scores."""
    *batch, T, S = scores.split()
    none, causal = {"keep_mask": None}, {"causal": True}
    masks = (*batch, T, S), (*batch, 1, S), (*batch, T, "1"), (S,)
    options = [none, *({"keep_mask": _mask(" ".join(map(str, axes)))} for axes in masks)]
    options += [
        {**none, **causal},
        {**none, **DROPOUT},
        {"keep_mask": _mask(scores), **causal, **DROPOUT},
        *more,
    ]
    options += [
        {**none, "softcap": 0.7},
        {"keep_mask": _mask(scores), **_biases(scores)[0], "softcap": 3.0},
    ]
    options[1:] = [{"bias": None, **given} for given in options[1:]]
    bounds = {"bound": bound, "backward_bound": backward_bound}
    yield from _cases(names, *options, **bounds, **sizes)
    if T != S:  # with a causal mask and more queries than keys, the first queries see no key
        yield from _cases(names, {**none, **causal, "bias": None}, **bounds, **{**sizes, "T": 9})


def _score_attention():
    masks = [{"keep_mask": None}, {"keep_mask": _mask("... T S"), "causal": True}]
    weights = {
        "dot": [],
        "scaled_dot": [],
        "cosine": [],
        "bilinear": ["Kq Kk"],
        "additive": ["Kq A", "Kk A", "A"],
    }
    for score, shapes in weights.items():

        @Drawn
        def params(rng, sizes, shapes=shapes):
            return tuple(
                0.3 * rng.standard_normal(shape_of(axes.split(), sizes)) for axes in shapes
            )

        options = [{"score": score, "params": params, **mask} for mask in masks]
        yield from _cases(
            "score_attention", *options, bound=32, **({} if shapes else {"Kk": SIZES["Kq"]})
        )


DROPOUT, NO_DROPOUT = (
    {"dropout_rate": 0.3, "dropout_key": 2024},
    {"dropout_rate": 0.0, "dropout_key": None},
)
LOSS: list[dict] = [{"ignore_id": None}, {"ignore_id": 0}, {"label_smoothing": 0.1}]
LOSS += [
    {"ignore_id": 0, "label_smoothing": 0.1, "n_tokens": 100},
    {"ignore_id": 0, "loss_scale": 8.0},
]
NUMBERS: list[dict] = [
    {"keep_mask": None},
    {},
    {"keep_mask": _rows, "n_tokens": 100},
    {"loss_scale": 8.0},
]
WORDS: dict = {"targets": _words("...")}
PAIRED: dict = {**WORDS, "consistency": 0.7}
TOKENS = {"ids": _words("... T"), "pad_id": 0}
LOOKUP = {"similarity": reference.exp_cosine, "similarity_backward": reference.exp_cosine_backward}
STEPS = {"keep_mask": _mask("B T", above=-0.5), "reverse": True}
TILES: dict = {"bound": 16, "backward_bound": 32, "leading": (), "T": 67, "S": 71, "K": 3, "Kv": 2}
ADAM: dict = {"lr": 0.1, "step": 3, "weight_decay": 0.01, "grad_scale": 0.7}
ADAM["v"] = Drawn(lambda rng, sizes: 0.1 + rng.random(sizes["n"]))
DRAWN_ALIKE = {
    "ids",
    "targets",
    "at",
    "params",
    "x",
    "v",
    *LOOKUP,
}  # the same in all cases of an operation

CASES: list[Case] = [
    *_cases("relu", {"x": _away_from_zero}, bound=0, leading=(2, 5, 17)),
    *_cases("tanh sigmoid", bound=0, leading=(2, 5, 17)),
    *_cases("gelu gelu_erf silu", bound=4, leading=(2, 5, 17)),
    *_cases("swiglu", bound=4),
    *_cases("dropout", *[{"dropout_rate": p, "dropout_key": 7} for p in (0.3, 0.0)], bound=0,
            leading=(2, 5, 17)),
    *_cases("softmax log_softmax", {}, {"axis": 0}, {"axis": 1}, bound=4, leading=(5, 7, 11)),
    *_cases("split_heads merge_heads", bound=0, leading=(2,)),
    *_cases("layer_norm rms_norm", {}, {"eps": 0.1}, bound=8),
    *_cases("product", bound=8),
    *_cases("linear", {}, {"bias": None}, bound=8),
    *_cases(
        "linear_activation_dropout",
        *({"activation": name, **NO_DROPOUT} for name in ACTIVATIONS if INPUTS[name] == 1),
        *({"activation": name, **DROPOUT} for name in ("gelu", "swiglu")),
        {"activation": "relu", "bias": None, **DROPOUT},
        bound=8,
        backward_bound=32,  # dh is rounded before two products
    ),
    *_cases("linear_dropout_residual", DROPOUT, {"bias": None}, bound=8),
    *_cases("conv1d", {}, {"bias": None}, {"causal": True}, {"dilation": 2}, {"dilation": 9,
            "causal": True}, bound=16),
    *_cases("conv1d", {"dilation": 4}, {"dilation": 2, "causal": True}, bound=16, W=5),
    *_cases("conv1d", {"causal": True}, bound=16, W=2),
    *_attention("attention flash_attention", "... T S", {"keep_mask": None, "scale": 0.7},
            *_biases("T S", "... 1 S")),
    *_attention("self_attention", "B H T T", *_biases("B H T T", "H 1 T")),
    *_attention("cross_attention", "B H T S", *_biases("B 1 1 S", "T S")),
    *_attention("self_attention", "B H T T", H=4, G=2),
    *_cases("cross_attention", {"bias": None}, *_biases("B H T S"), bound=16, backward_bound=32,
            H=4, G=1),
    *_cases("flash_attention", {"bias": None, "keep_mask": None}, *_biases("T S"), **TILES),
    *_cases("flash_attention", {**_biases("T S")[0], "softcap": 0.7}, **TILES),
    *_cases("flash_attention", {"bias": None, **DROPOUT, "return_peak": True}, {"causal": True,
            "return_peak": True},
            **TILES),
    *_cases("cached_attention", {}, {"bias": None}, {"keep_mask": None, "bias": None}, bound=16),
    *_cases("cached_attention", *_biases("H 1 S"), {"bias": None, "softcap": 0.7}, bound=16, H=4,
            G=2),
    *_cases("log_softmax_top_k", {"k": 4}, {"k": 1}, {"k": 100}, bound=4),
    *_cases("gru lstm", {"keep_mask": None}, {"reverse": True, "keep_mask": None}, STEPS, bound=16,
            D=7),
    *_cases("lstm", {"dcells": None}, bound=16, D=7),
    *_cases("dot_score scaled_dot_score cosine_score bilinear_score is_same exp_cosine", bound=8),
    *_cases("additive_score", bound=8, backward_bound=32),
    *_score_attention(),
    *_cases("soft_lookup", LOOKUP, bound=16),
    *_cases("embedding", TOKENS, bound=0, backward_bound=4, leading=(2,)),
    *_cases("embed_tokens", {**TOKENS, **DROPOUT}, {**TOKENS, **NO_DROPOUT}, bound=4, leading=(2,)),
    *_cases("embed_tokens", {**TOKENS, "positions": None}, {**TOKENS, "scaled": False,
            "pad_id": -1}, bound=4,
            leading=(2,)),
    *_cases("rotary", {}, {"base": 500.0, "scaling": 4.0, "pairs": "interleaved"}, bound=4, P=2,
            M=4),
    *_cases("rotary", {"llama3": Llama3Scaling(8.0, original_max_len=9)}, bound=4, P=2, M=4),
    *_cases("rotary", {"positions": Drawn(lambda rng, sizes: np.arange(sizes["T"]))}, bound=4, P=0,
            M=1),
    *_cases("cross_entropy linear_cross_entropy", *({**WORDS, **options} for options in LOSS),
            bound=8, leading=(2, 5)),
    *_cases("linear_cross_entropy", {**WORDS, "bias": None}, bound=8, leading=(2, 5)),
    *_cases("paired_cross_entropy linear_paired_cross_entropy", *({**PAIRED,
            **options} for options in LOSS), bound=16,
            leading=(5,)),
    *_cases("mse_loss", *NUMBERS, bound=4, leading=(2, 5, 17)),
    *_cases("huber_loss", *NUMBERS, {"delta": 0.4}, bound=4, leading=(2, 5, 17)),
    *_cases("global_norm", bound=4, leading=(1009,)),
    *_cases("norms_of_blocks", bound=4, n=10007),
    *_cases("sgd_update", {"lr": 0.1, "momentum": 0.9, "grad_scale": 0.7}, {"lr": 0.1,
            "velocity": None}, bound=4),
    *_cases("sgd_update", {"lr": 0.1, "momentum": 0.9, "nesterov": True}, bound=4),
    *_cases("adam_update", ADAM, bound=4),
    *_cases("lion_update", {"lr": 0.1, "weight_decay": 0.01, "grad_scale": 0.7}, bound=4),
]  # fmt: skip
