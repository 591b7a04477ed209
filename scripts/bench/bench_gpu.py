"""Compare npformer with PyTorch on one NVIDIA GPU: training steps, attention, and the speed of a
large matrix product.

python scripts/bench/bench_gpu.py          # everything; twenty minutes, at a guess
python scripts/bench/bench_gpu.py --quick  # tiny and base, attention of 1,024 and 4,096 keys
python scripts/bench/bench_gpu.py --steps base --precisions tf32

The steps are those of bench_train.py, and "large", which is base on 16,384 tokens. PyTorch runs
eagerly, and compiled in two modes, always with fused Adam. All contenders start with the same
parameters and have to start with the same loss. Each has its own process, and they take turns.
Attention is forward and backward, without dropout, on 16,384 tokens with 8 heads of width 64;
PyTorch's is its fused attention.
"""

import itertools
import subprocess
import sys
from functools import partial

import numpy as np

from scripts.bench.benchmark import benchmark  # needs pip install -e .
from scripts.bench.contenders import started
from scripts.bench.options import some, usually
from scripts.bench.report import print_figures
from scripts.bench.steps import (
    SIZES,
    Size,
    build_npformer,
    build_pytorch,
    loss_differs,
    training_flops,
)
from scripts.bench.turns import Workload, add_rates, measured

from npformer.backends import why_no_gpu

STEPS = {**SIZES, "large": Size(V=16000, N=6, D=512, H=8, F=2048, B=512, S=32, T=32)}
PRECISIONS = ("tf32", "bfloat16")
LENGTHS = (1024, 2048, 4096, 8192)
TOKENS, HEADS, WIDTH = 16_384, 8, 64
WARM_UP = 4  # calls
LARGE = 8192  # the sides of the largest product


@benchmark()
def main(
    turns: usually(rounds=7, seconds=0.5, quick_seconds=0.5),
    *,
    steps: some(STEPS) = None,
    precisions: some(PRECISIONS) = "tf32,bfloat16",
):
    """Compare with PyTorch on a GPU.

    Parameters
    ----------
    quick
        tiny and base, eager PyTorch, 3 rounds
    """
    if missing := why_no_gpu():
        sys.exit(f"there is nothing to measure: {missing}")
    steps = steps or (["tiny", "base"] if turns.quick else STEPS)
    figures = {"gpu": gpu(), "product": {}, "steps": {}, "attention": {}}
    print(f"{figures['gpu']}\n")
    for precision in precisions:
        best = report_product(precision, turns)
        figures["product"][precision] = best
        of_steps = {name: report_step(name, precision, best, turns) for name in steps}
        figures["steps"][precision] = of_steps
        figures["attention"][precision] = report_attention(precision, best, turns)
    return figures


def gpu():
    """Name, driver and memory of the GPU, as reported by nvidia-smi."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()


def build_our_product(precision):
    """``step`` that multiplies two large random matrices with cuBLAS, as npformer does."""
    import cupy

    from npformer.gpu.blas import multiply, tf32

    a, b = ours(2, (LARGE, LARGE), precision)

    def step():
        with tf32():
            multiply(a, b)
        cupy.cuda.Device().synchronize()

    return step


def build_our_attention(T, causal, precision):
    """``step`` of attention in ``npformer.gpu``, forward and backward."""
    import cupy

    from npformer.gpu import flash_attention, flash_attention_backward

    q, k, v, dout = ours(4, (TOKENS // T, HEADS, T, WIDTH), precision)

    def step():
        saved = flash_attention(q, k, v, causal=causal)
        flash_attention_backward(dout, q, k, v, *saved, causal=causal)
        cupy.cuda.Device().synchronize()

    return step


def ours(n, shape, precision):
    """Random arrays on the GPU."""
    import cupy
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if precision == "bfloat16" else np.float32
    draw = cupy.random.standard_normal
    return [draw(shape, dtype=np.float32).astype(dtype, copy=False) for _ in range(n)]


def build_their_attention(T, causal, precision):
    """``step`` of PyTorch's ``scaled_dot_product_attention``, forward and backward."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    shape = TOKENS // T, HEADS, T, WIDTH
    q, k, v = (torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
    dout = torch.randn(shape, device="cuda", dtype=dtype)

    def step():
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        torch.autograd.grad(out, (q, k, v), dout)
        torch.cuda.synchronize()

    return step


def compare(entries, arguments, turns, differs=None):
    """The figures of contenders, in turns."""
    workload = Workload(arguments, differs=differs, warm_up=WARM_UP)
    with started(entries) as contenders:
        return measured(contenders, workload, turns)["contenders"]


def report_product(precision, turns):
    """Measure the GFLOP/s of a large product, which no step can exceed."""
    entry = "npformer", ("npformer.gpu",), build_our_product
    figures = compare([entry], (precision,), turns)
    best = 2 * LARGE**3 / figures["npformer"]["seconds"]["median"] / 1e9
    print(f"{precision}: a product of {LARGE} x {LARGE} matrices: {best / 1e3:.0f} TFLOP/s\n")
    return best


def report_step(name, precision, best, turns):
    """Measure one step, and print a table."""
    build = partial(build_npformer, backend="gpu", precision=precision)
    entries = [("npformer", ("npformer.gpu",), build)]
    modes = {"eager": False}
    if not turns.quick:
        modes |= {"compiled": "default", "compiled, graphs": "reduce-overhead"}
    variant = {"n_threads": 1, "fused": True, "device": "cuda", "precision": precision}
    for mode, compiled in modes.items():
        build = partial(build_pytorch, compiled=compiled, **variant)
        entries.append((f"PyTorch, {mode}", ("torch",), build))
    size = STEPS[name]
    figures = compare(entries, (size,), turns, differs=loss_differs)
    show(f"{name}, {precision}", figures, training_flops(size), best)
    return figures


def report_attention(precision, best, turns):
    """Measure attention, and print a table for each length, causal or not."""
    entries = [
        ("npformer", ("npformer.gpu",), build_our_attention),
        ("PyTorch", ("torch",), build_their_attention),
    ]
    lengths = LENGTHS[::2] if turns.quick else LENGTHS
    results = {}
    for T, causal in itertools.product(lengths, (False, True)):
        case = f"{T} causal" if causal else f"{T}"
        results[case] = figures = compare(entries, (T, causal, precision), turns)
        flops = 14 * TOKENS * T * HEADS * WIDTH / (2 if causal else 1)  # 4 forward, 10 backward
        show(f"attention of {case} keys, {precision}", figures, flops, best)
    return results


def show(what, figures, flops, best):
    """Print a line for each contender; the share is that of the large product."""
    for of_contender in figures.values():
        add_rates(of_contender, flops, {"limits": {"sgemm": best}})
    columns = ["ms", "spread", "× first", "GFLOP/s", "of sgemm"]
    print_figures([{"what": what, "contenders": figures}], columns)
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
