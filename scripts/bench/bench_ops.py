"""Time single operations: npformer's kernels, its reference and PyTorch, in turns, each in its own process.

python scripts/bench/bench_ops.py  # everything
python scripts/bench/bench_ops.py --quick
python scripts/bench/bench_ops.py --ops layer_norm,adam_update --backends cpu --rounds 9

float32, at the sizes of the step "base" of bench_train.py: 32 sequences of 30 tokens, D=512, F=2048, V=16,000; 16M
parameters for the optimizer; 4 causal sequences of 512 tokens for flash_attention. Dropout 0.1. "MB" is the memory that
has to be read and written at least, each array once; arrays that fit into the processor's cache can be faster than the
measured copy. PyTorch's backward passes are those of autograd, of the same function; cross_entropy is the loss with its
gradient.
"""

import statistics
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from scripts.arguments import some_of  # needs pip install -e .
from scripts.bench.contenders import alternate, build_all, of_backends, started
from scripts.bench.limits import best_limits, best_of_all, limits_contender, print_limits
from scripts.bench.machine import machine, physical_cores, print_machine
from scripts.bench.options import add_backends, parsed, parser_of
from scripts.bench.report import milliseconds, percent, print_table, short, timing
from scripts.command import command
from scripts.output import write_json

import npformer as nf
from npformer.reference.settings import AttentionSettings

B, T, D, H, F, V = 32, 30, 512, 8, 2048, 16_000
R, K = B * T, D // H  # number of rows (tokens), width of a head
LONG = (4, 4, 512, 64)  # (B, H, T, K) of the step "long"
N_PARAMETERS = 2**24
DROPOUT = {"dropout_rate": 0.1, "dropout_key": 1}
SETTINGS = AttentionSettings(H, dropout_rate=0.1)
RATE_AND_KEY = 0.1, 1
ADAM = {"lr": 1e-4, "eps": 1e-9}


@command
def main(argv=None):
    options = parse_arguments(argv)
    facts = print_machine(machine())
    with limits_contender() as limits, started(wanted(options)) as contenders:
        limits.build(options.sgemm_sizes[:3])
        names = [contender.name for contender in contenders]
        results = {name: measure(name, contenders, options, limits) for name in options.ops}
    best = best_of_all(results.values())
    if options.json:
        write_json(options.json, {"machine": facts, "limits": best._asdict(), "operations": results})
    print_results(results, names, best)


# -- the operations -----------------------------------------------------------------------------------------------


class Operation(NamedTuple):
    """An operation: its arrays, the least work that it has to do, and how each library calls it."""

    shapes: dict  # name -> shape; "ids" and "targets" are integers below V, the others normal float32
    n_moved: int  # numbers read and written
    flops: int  # of matrix products
    npformer: Any  # (ops, arrays) -> result
    pytorch: Any = None  # (torch, tensors) -> result; if None, the backward pass is that of autograd
    saved: Any = None  # (ops, arrays) -> what npformer's forward pass saves for this backward pass


def scaled_dot_product(torch, a, causal=False, rate=DROPOUT["dropout_rate"]):
    return torch.nn.functional.scaled_dot_product_attention(a.q, a.k, a.v, dropout_p=rate, is_causal=causal)


def packed_self_attention(torch, a):
    q, k, v = a.qkv.view(B, T, 3, H, K).permute(2, 0, 3, 1, 4).unbind(0)
    return scaled_dot_product(torch, SimpleNamespace(q=q, k=k, v=v)).transpose(1, 2).reshape(B, T, D)


def embed_tokens(torch, a):
    return torch.dropout(torch.nn.functional.embedding(a.ids, a.table) * D**0.5 + a.positions, 0.1, True)


def loss_and_gradient(torch, logits, targets):
    logits = logits.detach().requires_grad_()
    loss = torch.nn.functional.cross_entropy(logits, targets, label_smoothing=0.1)
    return torch.autograd.grad(loss, logits)


def fused_adam(torch, a):
    """One step of the optimizer, which is constructed at the first call."""
    if not hasattr(a, "optimizer"):
        param = torch.nn.Parameter(a.param)
        param.grad = a.grad
        a.optimizer = torch.optim.Adam([param], betas=(0.9, 0.98), fused=True, **ADAM)
    a.optimizer.step()


def adam_state(ops, a):
    return {"m": np.zeros_like(a.param), "v": np.zeros_like(a.param)}


NORM = {"x": (R, D), "gain": (D,), "bias": (D,)}
HIDDEN = {"x": (R, D), "weight": (D, F), "bias": (F,)}
LAST = {"x": (R, F), "weight": (F, D), "bias": (D,), "residual": (R, D)}
LOGITS = {"x": (R, D), "weight": (D, V), "bias": (V,), "targets": (R,)}
EMBEDDED = {"ids": (B, T), "table": (V, D)}
SCORES = {"x": (B, H, T, T)}
HEADS = {"q": (B, H, T, K), "k": (B, H, T, K), "v": (B, H, T, K)}
LONG_HEADS = {"q": LONG, "k": LONG, "v": LONG}
N_SCORES, ATTENTION_FLOPS = B * H * T * T, 4 * B * T * T * D
LONG_SIZE, LONG_FLOPS = 4 * 4 * 512 * 64, 4 * 4 * 4 * 512 * 512 * 64 // 2  # half: it is causal

OPERATIONS = {
    "linear": Operation(
        HIDDEN,
        R * D + D * F + R * F,
        2 * R * D * F,
        lambda ops, a: ops.linear(a.x, a.weight, a.bias),
        lambda torch, a: torch.addmm(a.bias, a.x, a.weight),
    ),
    "linear_backward": Operation(
        {"dy": (R, F), **HIDDEN},
        R * F + 2 * (R * D + D * F),
        4 * R * D * F,
        lambda ops, a: ops.linear_backward(a.dy, a.x, a.weight, a.bias),
    ),
    "linear_activation_dropout": Operation(
        HIDDEN,
        R * D + D * F + R * F,
        2 * R * D * F,
        lambda ops, a: ops.linear_activation_dropout(a.x, a.weight, a.bias, "relu", *RATE_AND_KEY),
        lambda torch, a: torch.dropout(torch.relu(torch.addmm(a.bias, a.x, a.weight)), 0.1, True),
    ),
    "linear_activation_dropout_backward": Operation(
        {"dy": (R, F), **HIDDEN},
        2 * R * F + 2 * (R * D + D * F),
        4 * R * D * F,
        lambda ops, a: ops.linear_activation_dropout_backward(a.dy, a.x, a.weight, a.bias, a.h, "relu", *RATE_AND_KEY),
        saved=lambda ops, a: {"h": ops.linear_activation_dropout(a.x, a.weight, a.bias, "relu", *RATE_AND_KEY)[1]},
    ),
    "linear_dropout_residual": Operation(
        LAST,
        R * F + D * F + 2 * R * D,
        2 * R * D * F,
        lambda ops, a: ops.linear_dropout_residual(a.x, a.weight, a.bias, a.residual, *RATE_AND_KEY),
        lambda torch, a: a.residual + torch.dropout(torch.addmm(a.bias, a.x, a.weight), 0.1, True),
    ),
    "linear_dropout_residual_backward": Operation(
        {"dy": (R, D), **LAST},
        R * D + 2 * (R * F + D * F),
        4 * R * D * F,
        lambda ops, a: ops.linear_dropout_residual_backward(a.dy, a.x, a.weight, a.bias, *RATE_AND_KEY),
    ),
    "linear_cross_entropy": Operation(
        LOGITS,
        R * D + D * V + R * V,
        2 * R * D * V,
        lambda ops, a: ops.linear_cross_entropy(a.x, a.weight, a.bias, a.targets, label_smoothing=0.1),
        lambda torch, a: loss_and_gradient(torch, torch.addmm(a.bias, a.x, a.weight), a.targets),
    ),
    "cross_entropy": Operation(
        {"logits": (R, V), "targets": (R,)},
        2 * R * V,
        0,
        lambda ops, a: ops.cross_entropy(a.logits, a.targets, label_smoothing=0.1),
        lambda torch, a: loss_and_gradient(torch, a.logits, a.targets),
    ),
    "layer_norm": Operation(
        NORM,
        2 * R * D,
        0,
        lambda ops, a: ops.layer_norm(a.x, a.gain, a.bias),
        lambda torch, a: torch.layer_norm(a.x, (D,), a.gain, a.bias),
    ),
    "layer_norm_backward": Operation(
        {"dy": (R, D), **NORM},
        3 * R * D,
        0,
        lambda ops, a: ops.layer_norm_backward(a.dy, a.x, a.gain, a.mean, a.rstd),
        saved=lambda ops, a: dict(zip(("mean", "rstd"), ops.layer_norm(a.x, a.gain, a.bias)[1:], strict=True)),
    ),
    "softmax": Operation(
        SCORES, 2 * N_SCORES, 0, lambda ops, a: ops.softmax(a.x), lambda torch, a: torch.softmax(a.x, -1)
    ),
    "softmax_backward": Operation(
        {"dy": (B, H, T, T), **SCORES},
        3 * N_SCORES,
        0,
        lambda ops, a: ops.softmax_backward(a.dy, a.y),
        saved=lambda ops, a: {"y": ops.softmax(a.x)},
    ),
    "relu": Operation({"x": (R, F)}, 2 * R * F, 0, lambda ops, a: ops.relu(a.x), lambda torch, a: torch.relu(a.x)),
    "gelu": Operation(
        {"x": (R, F)},
        2 * R * F,
        0,
        lambda ops, a: ops.gelu(a.x),
        lambda torch, a: torch.nn.functional.gelu(a.x, approximate="tanh"),
    ),
    "gelu_backward": Operation({"dy": (R, F), "x": (R, F)}, 3 * R * F, 0, lambda ops, a: ops.gelu_backward(a.dy, a.x)),
    "dropout": Operation(
        {"x": (R, F)},
        2 * R * F,
        0,
        lambda ops, a: ops.dropout(a.x, *RATE_AND_KEY),
        lambda torch, a: torch.dropout(a.x, 0.1, True),
    ),
    "embedding": Operation(
        EMBEDDED,
        2 * R * D,
        0,
        lambda ops, a: ops.embedding(a.ids, a.table),
        lambda torch, a: torch.nn.functional.embedding(a.ids, a.table),
    ),
    "embedding_backward": Operation(
        {"dy": (B, T, D), **EMBEDDED},
        R * D + V * D,
        0,
        lambda ops, a: ops.embedding_backward(a.dy, a.ids, a.table.shape),
    ),
    "embed_tokens": Operation(
        {"positions": (T, D), **EMBEDDED},
        2 * R * D,
        0,
        lambda ops, a: ops.embed_tokens(a.ids, a.table, a.positions, 0, *RATE_AND_KEY),
        embed_tokens,
    ),
    "attention": Operation(
        HEADS,
        4 * R * D + N_SCORES,
        ATTENTION_FLOPS,
        lambda ops, a: ops.attention(a.q, a.k, a.v, **DROPOUT),
        scaled_dot_product,
    ),
    "attention_backward": Operation(
        {"dy": (B, H, T, K), **HEADS},
        7 * R * D + N_SCORES,
        2 * ATTENTION_FLOPS,
        lambda ops, a: ops.attention_backward(a.dy, a.q, a.k, a.v, a.weights, **DROPOUT),
        saved=lambda ops, a: {"weights": ops.attention(a.q, a.k, a.v, **DROPOUT)[1]},
    ),
    "self_attention": Operation(
        {"qkv": (B, T, 3 * D)},
        4 * R * D,
        ATTENTION_FLOPS,
        lambda ops, a: ops.self_attention(a.qkv, SETTINGS, dropout_key=1),
        packed_self_attention,
    ),
    "self_attention_backward": Operation(
        {"dy": (B, T, D), "qkv": (B, T, 3 * D)},
        8 * R * D,
        2 * ATTENTION_FLOPS,
        lambda ops, a: ops.self_attention_backward(a.dy, a.qkv, a.out, a.logsumexp, SETTINGS, dropout_key=1),
        saved=lambda ops, a: dict(
            zip(("out", "logsumexp"), ops.self_attention(a.qkv, SETTINGS, dropout_key=1), strict=True)
        ),
    ),
    "flash_attention": Operation(
        LONG_HEADS,
        4 * LONG_SIZE,
        LONG_FLOPS,
        lambda ops, a: ops.flash_attention(a.q, a.k, a.v, causal=True),
        partial(scaled_dot_product, causal=True, rate=0.0),  # with dropout PyTorch does not use its tiled kernel
    ),
    "flash_attention_backward": Operation(
        {"dy": LONG, **LONG_HEADS},
        8 * LONG_SIZE,
        5 * LONG_FLOPS // 2,
        lambda ops, a: ops.flash_attention_backward(a.dy, a.q, a.k, a.v, *a.kept, causal=True),
        saved=lambda ops, a: {"kept": ops.flash_attention(a.q, a.k, a.v, causal=True)},
    ),
    "adam_update": Operation(
        {"param": (N_PARAMETERS,), "grad": (N_PARAMETERS,)},
        7 * N_PARAMETERS,
        0,
        lambda ops, a: ops.adam_update(a.param, a.grad, a.m, a.v, step=10, beta1=0.9, beta2=0.98, **ADAM),
        fused_adam,
        saved=adam_state,
    ),
    "global_norm": Operation(
        {"grad": (N_PARAMETERS,)},
        N_PARAMETERS,
        0,
        lambda ops, a: ops.global_norm(a.grad),
        lambda torch, a: torch.linalg.vector_norm(a.grad).item(),
    ),
}


# -- measuring ----------------------------------------------------------------------------------------------------


def wanted(options):
    """(name, libraries, build) of each contender."""
    found = of_backends(options.backends, build_npformer)
    return found if "pytorch" in options.without else [*found, ("PyTorch", ("torch",), build_pytorch)]


def arrays_of(operation):
    """The inputs by name, the same for all contenders."""
    rng = np.random.default_rng(0)
    return {
        name: rng.integers(1, V, shape) if name in ("ids", "targets") else rng.standard_normal(shape, dtype=np.float32)
        for name, shape in operation.shapes.items()
    }


def build_npformer(name, backend):
    """``step`` that calls the operation of a backend. It returns None, so that no arrays are sent between processes."""
    operation, ops = OPERATIONS[name], nf.get_backend(backend)
    arrays = SimpleNamespace(**arrays_of(operation))
    if operation.saved:
        vars(arrays).update(operation.saved(ops, arrays))

    def step():
        operation.npformer(ops, arrays)

    return step


def build_pytorch(name):
    """``step`` that calls the same operation in PyTorch."""
    import torch

    torch.set_num_threads(physical_cores())
    operation = OPERATIONS[name]
    tensors = SimpleNamespace(**{name: torch.from_numpy(array) for name, array in arrays_of(operation).items()})
    if operation.pytorch is None:
        return autograd_step(torch, OPERATIONS[name.removesuffix("_backward")], tensors)

    def step():
        operation.pytorch(torch, tensors)

    return step


def autograd_step(torch, forward, tensors):
    """``step`` that is only the backward pass of an operation, with the gradients of all inputs."""
    inputs = [vars(tensors)[name].requires_grad_() for name in forward.shapes if name not in ("ids", "targets")]
    y = forward.pytorch(torch, tensors)

    def step():
        torch.autograd.grad(y, inputs, tensors.dy, retain_graph=True)

    return step


def measure(name, contenders, options, limits):
    operation = OPERATIONS[name]
    able = build_all(contenders, name)
    turns, others = alternate(able, options.rounds, options.seconds)
    figures = {}
    for contender in turns:
        found = timing(turns, contender)
        median = found["seconds"]["median"]
        figures[contender] = found | {
            "gb_per_second": 4 * operation.n_moved / median / 1e9,
            "gflops": operation.flops / median / 1e9,
        }
    return {
        "shapes": operation.shapes,
        "bytes": 4 * operation.n_moved,
        "flops": operation.flops,
        "limits": best_limits([limits.run(1)])._asdict(),
        "other_programs_cores": others,
        "contenders": figures,
    }


def print_results(results, names, best):
    first, *others = names
    header = ["", "MB", f"{first} ms", "GB/s", "GFLOP/s", "of sgemm"]
    for name in others:
        header += [f"{name} ms", "× first"]
    rows = []
    for operation, result in results.items():
        figures = result["contenders"]
        if first in figures:
            ours = figures[first]
            row = [milliseconds(ours), short(ours["gb_per_second"]), *matrix_cells(ours["gflops"], best)]
        else:
            row = ["–"] * 4
        for name in others:
            theirs = figures.get(name)
            row += [milliseconds(theirs), f"{theirs['times_as_long']:.2f}"] if theirs else ["–"] * 2
        rows.append([operation, short(result["bytes"] / 1e6), *row])
    print_table(header, rows)
    print_limits(best, statistics.median(result["other_programs_cores"] for result in results.values()))


def matrix_cells(gflops, best):
    return [short(gflops), percent(gflops / best.sgemm)] if gflops else ["", ""]


# -- arguments ----------------------------------------------------------------------------------------------------


def parse_arguments(argv):
    quick = "3 very short rounds: under a minute"
    parser = parser_of(__doc__, rounds=5, seconds=0.2, quick_seconds=0.03, quick=quick)
    parser.add_argument(
        "--ops", type=some_of(list(OPERATIONS)), default=list(OPERATIONS), metavar="A,B", help="(default: all)"
    )
    add_backends(parser, default=["cpu", "reference"])
    parser.add_argument("--without", type=some_of(["pytorch"]), default=[], metavar="A", help="leave out pytorch")
    return parsed(parser, argv)


if __name__ == "__main__":
    sys.exit(main())
