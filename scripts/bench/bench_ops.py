"""Time single operations: npformer's kernels, its reference and PyTorch, in turns, each in its own
process.

python scripts/bench/bench_ops.py  # everything
python scripts/bench/bench_ops.py --quick
python scripts/bench/bench_ops.py --ops layer_norm,adam_update --backends cpu --rounds 9

float32, at the sizes of the step "base" of bench_train.py: 32 sequences of 30 tokens, D=512,
F=2048, V=16,000; 16M parameters for the optimizer; 4 sequences of 512 tokens for flash_attention.
Dropout 0.1. "GB/s" and "GFLOP/s" are of what npformer.explain() counts: each array once, of an
embedding all its table, and the products. Arrays that fit into the processor's cache can be faster
than the measured copy. PyTorch's backward passes are those of autograd, of the same function;
cross_entropy is the loss with its gradient.
"""

import statistics
import sys
from functools import partial
from typing import NamedTuple

import numpy as np

from scripts.bench.benchmark import benchmark  # needs pip install -e .
from scripts.bench.contenders import of_backends, started
from scripts.bench.limits import Limits, print_results
from scripts.bench.machine import physical_cores
from scripts.bench.options import Backends, left_out, some, usually
from scripts.bench.turns import Workload, add_rates, measured

import npformer as nf
from npformer.gradients.case import Case
from npformer.gradients.drawing import Drawn

B, T, D, H, F, V = 32, 30, 512, 8, 2048, 16_000
R, K = B * T, D // H  # number of rows (tokens), width of a head
N_PARAMETERS = 2**24


class Operation(NamedTuple):
    """The sizes of an operation's arrays, and its other arguments."""

    sizes: dict  # of the letters of its contract
    others: dict = {}


ROWS = {"...": (R,), "D": D, "F": F, "I": 1, "V": V}
FLAT = {"...": (R, F)}
SCORES = {"...": (B, H, T, T)}
HEADS = {"...": (B, H), "T": T, "S": T, "K": K, "Kv": K}
PACKED = {"B": B, "T": T, "H": H, "G": H, "K": K}
LONG = {"...": (4, 4), "T": 512, "S": 512, "K": 64, "Kv": 64}  # without PyTorch's slow dropout
TABLE = {"V": V, "D": D}
NUMBERS = {"n": N_PARAMETERS, "...": (N_PARAMETERS,)}

DROPOUT = {"dropout_rate": 0.1, "dropout_key": 1}
RELU = {"activation": "relu"} | DROPOUT
HIDDEN_TO_D = ROWS | {"D": F, "F": D}
LOSS = {"label_smoothing": 0.1}
ALL_KEYS = {"keep_mask": None, "bias": None}
ZEROS = Drawn(lambda rng, sizes: np.zeros(sizes["n"]))
ADAM = {"m": ZEROS, "v": ZEROS, "lr": 1e-4, "beta1": 0.9, "beta2": 0.98, "eps": 1e-9, "step": 10}

OPERATIONS = {
    "linear": Operation(ROWS),
    "linear_backward": Operation(ROWS),
    "linear_activation_dropout": Operation(ROWS, RELU),
    "linear_activation_dropout_backward": Operation(ROWS, RELU),
    "linear_dropout_residual": Operation(HIDDEN_TO_D, DROPOUT),
    "linear_dropout_residual_backward": Operation(HIDDEN_TO_D, DROPOUT),
    "linear_cross_entropy": Operation(ROWS, LOSS),
    "cross_entropy": Operation(ROWS, LOSS),
    "layer_norm": Operation(ROWS),
    "layer_norm_backward": Operation(ROWS),
    "softmax": Operation(SCORES),
    "softmax_backward": Operation(SCORES),
    "relu": Operation(FLAT),
    "gelu": Operation(FLAT),
    "gelu_backward": Operation(FLAT),
    "dropout": Operation(FLAT, DROPOUT),
    "embedding": Operation(TABLE | {"...": (B, T)}),
    "embedding_backward": Operation(TABLE | {"...": (B, T)}),
    "embed_tokens": Operation(TABLE | {"...": (B,), "T": T}, {"pad_id": 0} | DROPOUT),
    "attention": Operation(HEADS, ALL_KEYS | DROPOUT),
    "attention_backward": Operation(HEADS, ALL_KEYS | DROPOUT),
    "self_attention": Operation(PACKED, ALL_KEYS | DROPOUT),
    "self_attention_backward": Operation(PACKED, ALL_KEYS | DROPOUT),
    "flash_attention": Operation(LONG, ALL_KEYS),
    "flash_attention_backward": Operation(LONG, ALL_KEYS),
    "adam_update": Operation(NUMBERS, ADAM),
    "global_norm": Operation(NUMBERS),
}


def case_of(name):
    """The arguments of an operation, the same for all contenders."""
    operation = OPERATIONS[name]
    return Case(
        name.removesuffix("_backward"), operation.others, operation.sizes, bound=0, backward_bound=0
    )


def build_npformer(name, backend):
    """``step`` that calls the operation of a backend. It returns None, so that no arrays are sent
    between processes.
    """
    operation = getattr(nf.get_backend(backend), name)
    arguments = case_of(name).arguments_of(name, "float32")

    def step():
        operation(**arguments)

    return step


def build_pytorch(name):
    """``step`` that calls the same operation in PyTorch; a backward pass is that of autograd, for
    all inputs.
    """
    import torch

    from scripts.bench.peers import pytorch_operations as peers

    torch.set_num_threads(physical_cores())
    case = case_of(name)
    arguments = case.arguments("float32")
    tensors = peers.tensors_of(arguments)
    if name == "adam_update":
        compute = adam_of_pytorch(**tensors)
    elif "cross_entropy" in name:
        compute = partial(loss_and_gradient_of_pytorch, tensors)
    elif name.endswith("_backward"):
        inputs = peers.leaves_of(tensors)
        y = peers.OPERATIONS[case.operation](**tensors)
        dy, *_ = case.cotangents(arguments, "float32").values()
        dy = torch.from_numpy(dy)
        compute = partial(torch.autograd.grad, y, inputs.values(), dy, retain_graph=True)
    else:
        compute = partial(peers.OPERATIONS[name], **tensors)

    def step():
        compute()

    return step


def adam_of_pytorch(param, grad, lr, beta1, beta2, eps, **_):
    """The step of PyTorch's fused Adam."""
    import torch

    param = torch.nn.Parameter(param)
    param.grad = grad
    return torch.optim.Adam([param], lr, (beta1, beta2), eps, fused=True).step


def loss_and_gradient_of_pytorch(tensors):
    """The gradient by the logits, which a linear map computes if its arrays are given."""
    import torch

    from scripts.bench.peers import pytorch_operations as peers

    tensors = dict(tensors)
    to_logits = {name: tensors.pop(name) for name in ("x", "weight", "bias") if name in tensors}
    logits = peers.linear(**to_logits) if to_logits else tensors["logits"]
    tensors["logits"] = logits.detach().requires_grad_()
    torch.autograd.grad(peers.cross_entropy(**tensors), tensors["logits"])


def measure(name, contenders, limits, turns):
    """The figures of an operation, of all contenders that have it."""
    step = build_npformer(name, "reference")
    with nf.explain() as calls:
        step()
    [call] = calls
    result = {"what": name, "shapes": call.shapes, "bytes": call.bytes, "flops": call.flops}
    result |= measured(contenders, Workload((name,)), turns) | {"limits": limits.run(1)[1]}
    for figures in result["contenders"].values():
        figures["gb_per_second"] = call.bytes / figures["seconds"]["median"] / 1e9
        add_rates(figures, call.flops, result)
    return result


@benchmark()
def main(
    turns: usually(rounds=5, seconds=0.2, quick_seconds=0.03),
    *,
    ops: some(OPERATIONS, "operations (default: all)") = None,
    backends: Backends = "cpu,reference",
    without: left_out(["pytorch"]) = (),
):
    """Time operations.

    Parameters
    ----------
    quick
        3 very short rounds: under a minute
    """
    entries = of_backends(backends, build_npformer)
    if "pytorch" not in without:
        entries.append(("PyTorch", ("torch",), build_pytorch))
    sizes = turns.sgemm_sizes[:3]  # measured with each operation
    with Limits(sizes) as limits, started(entries) as contenders:
        names = ops or OPERATIONS
        results = {name: measure(name, contenders, limits, turns) for name in names}
    columns = ["ms", "× first", "GB/s", "GFLOP/s", "of sgemm"]
    print_results(results.values(), columns, over=statistics.median)
    return {"operations": results}


if __name__ == "__main__":
    sys.exit(main())
