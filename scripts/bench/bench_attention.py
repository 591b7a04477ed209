"""Measure time and memory of attention: npformer's tiled attention and PyTorch's, in turns, each in
its own process.

python scripts/bench/bench_attention.py  # lengths 128 to 16,384: many minutes
python scripts/bench/bench_attention.py --quick
python scripts/bench/bench_attention.py --lengths 1024,4096 --rounds 7

B=1, H=8, K=64, float32; full and causal, without dropout and with rate 0.1; forward with backward,
and forward alone. Memory is the largest growth of the process during forward and backward pass,
without its inputs. FLOPs are 4·T²·K·H forward and 10·T²·K·H backward, half if causal.
"""

import itertools
import sys

import numpy as np

from scripts.bench.benchmark import benchmark  # needs pip install -e .
from scripts.bench.contenders import of_backends, started
from scripts.bench.limits import Limits, print_limits
from scripts.bench.machine import physical_cores
from scripts.bench.options import Backends, Positives, left_out, some, usually
from scripts.bench.report import print_figures
from scripts.bench.turns import Workload, measured

import npformer as nf

H, K = 8, 64
DROPOUT = 0.1
LENGTHS = [2**i for i in range(7, 15)]
PYTORCH_MOST_GIGABYTES = 8


@benchmark()
def main(
    turns: usually(rounds=5, seconds=0.7, quick_seconds=0.1),
    *,
    lengths: Positives | None = None,
    masks: some(["full", "causal"]) = "full,causal",
    backends: Backends = "cpu",
    without: left_out(["pytorch", "dropout"]) = (),
):
    """Measure attention.

    Parameters
    ----------
    quick
        lengths 128 to 1,024, 3 short rounds: about a minute
    lengths
        (default: 128,256,...,16384)
    """
    lengths = sorted(lengths or (LENGTHS[:4] if turns.quick else LENGTHS))
    rates = [0.0] if "dropout" in without else [0.0, DROPOUT]
    ours = of_backends(backends, build_npformer)
    results = []
    with Limits(turns.sgemm_sizes) as limits:
        for mask, rate in itertools.product(masks, rates):
            setting = []
            for T in lengths:
                entries = ours if "pytorch" in without else [*ours, *pytorch(T, rate)]
                setting.append(measure(T, mask == "causal", rate, entries, limits, turns))
            results += setting
            report_setting(f"{mask}, dropout {rate}", setting)
    return {"H": H, "K": K, "results": results}


def forward_flops(T, causal):
    """FLOPs of scores and weighted sum: 4·T²·K·H, half if causal. The backward pass needs 2.5 times
    as many.
    """
    return 4 * T * T * K * H / (2 if causal else 1)


def inputs(T):
    """q, k, v and the upstream gradient, each (1, H, T, K)."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((4, 1, H, T, K), dtype=np.float32)


def build_npformer(T, causal, rate, forward_only, backend):
    """``step`` of ``flash_attention`` and its backward, both compiled beforehand on a short
    sequence.
    """
    ops = nf.get_backend(backend)
    options = {"causal": causal, "dropout_rate": rate, "dropout_key": 1 if rate else None}

    def run(q, k, v, dout):
        saved = ops.flash_attention(q, k, v, **options)
        if not forward_only:
            ops.flash_attention_backward(dout, q, k, v, *saved, **options)

    run(*inputs(64))
    arrays = inputs(T)
    return lambda: run(*arrays)


def build_pytorch(T, causal, rate, forward_only):
    """``step`` of ``scaled_dot_product_attention`` and autograd, both called beforehand on a short
    sequence.
    """
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(physical_cores())

    def run(q, k, v, dout):
        with torch.set_grad_enabled(not forward_only):
            out = F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=causal)
        if not forward_only:
            torch.autograd.grad(out, (q, k, v), dout)

    def tensors(T):
        *qkv, dout = torch.from_numpy(inputs(T)).unbind()
        return *(x.requires_grad_() for x in qkv), dout

    run(*tensors(64))
    arrays = tensors(T)
    return lambda: run(*arrays)


def pytorch_bytes(T, rate):
    """The approximate memory of PyTorch: four (H, T, T) arrays with dropout, none without."""
    return 4.2 * H * T * T * 4 if rate else 0


def pytorch(T, rate):
    """(name, libraries, build) of PyTorch, unless it needs too much memory."""
    gigabytes = pytorch_bytes(T, rate) / 1e9
    if gigabytes > PYTORCH_MOST_GIGABYTES:
        needs = f"needs about {gigabytes:.0f} GB"
        print(f"left out: PyTorch, T={T:,} with dropout: {needs}")
        return []
    return [("PyTorch", ("torch",), build_pytorch)]


def measure(T, causal, rate, entries, limits, turns):
    """Measure forward with backward, then forward alone, in new processes."""
    result = {"what": f"{T:,}", "T": T, "causal": causal, "dropout": rate}
    flops = forward_flops(T, causal)
    with started(entries) as contenders:
        for part, forward_only, factor in (("both", False, 3.5), ("forward", True, 1)):
            workload = Workload((T, causal, rate, forward_only), factor * flops, warm_up=1)
            result[part] = measured(contenders, workload, turns, limits)
    return result


def report_setting(setting, results):
    """Print the results of all lengths."""
    columns = ["ms", "spread", "× first", "GFLOP/s", "of sgemm", "step MB"]
    for part, what in (("both", "forward and backward"), ("forward", "forward alone")):
        print(f"{setting}, {what}:")
        print_figures([{"what": result["what"]} | result[part] for result in results], columns)
    print_limits([result["both"] for result in results])
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
