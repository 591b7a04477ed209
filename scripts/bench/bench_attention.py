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
import math
import sys

import numpy as np

from npformer.commands.command import command  # needs pip install -e .
from npformer.commands.output import write_json
from scripts.bench.contenders import build_all, of_backends, started
from scripts.bench.limits import alternate_with, limits_contender, print_limits
from scripts.bench.machine import machine, physical_cores, print_machine
from scripts.bench.options import add_backends, add_some, add_without, parsed, parser_of, positives
from scripts.bench.report import fit_power, percent, print_table, rated, short, time_cells, timing

import npformer as nf

H, K = 8, 64
DROPOUT = 0.1
LENGTHS = [2**i for i in range(7, 15)]
PYTORCH_MOST_GIGABYTES = 8


@command
def main(argv=None):
    options = parse_arguments(argv)
    facts = print_machine(machine())
    results, fits = [], []
    with limits_contender(options.sgemm_sizes) as limits:
        for causal, rate in itertools.product(options.masks, options.rates):
            setting = [measure(T, causal, rate, options, limits) for T in options.lengths]
            results += setting
            fits += report_setting(setting_name(causal, rate), setting)
    write_json(options.json, {"machine": facts, "H": H, "K": K, "results": results, "fits": fits})


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
        out, logsumexp, peak = ops.flash_attention(q, k, v, **options, return_peak=True)
        if not forward_only:
            ops.flash_attention_backward(dout, q, k, v, out, logsumexp, **options, peak=peak)

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


def contenders_of(T, rate, options):
    """(name, libraries, build) of each contender; not PyTorch where it needs too much memory."""
    wanted = of_backends(options.backends, build_npformer)
    if "pytorch" in options.without:
        return wanted
    gigabytes = pytorch_bytes(T, rate) / 1e9
    if gigabytes > PYTORCH_MOST_GIGABYTES:
        needs = f"needs about {gigabytes:.0f} GB"
        print(f"left out: PyTorch, T={T:,} with dropout: {needs}")
        return wanted
    return [*wanted, ("PyTorch", ("torch",), build_pytorch)]


def measure(T, causal, rate, options, limits):
    """Measure forward with backward, then forward alone, in new processes."""
    figures = {}
    with started(contenders_of(T, rate, options)) as contenders:
        for part, forward_only in (("both", False), ("forward", True)):
            contenders = build_all(contenders, T, causal, rate, forward_only, warm_up=1)
            turns, facts = alternate_with(limits, contenders, options)
            contenders = [contender for contender in contenders if contender.name in turns]
            flops = forward_flops(T, causal) * (1 if forward_only else 3.5)
            for one in contenders:
                if part == "both":
                    memory = one.memory()
                    figures[one.name] = {"bytes": memory.running_peak - memory.built}
                figures[one.name][part] = rated(timing(turns, one.name), flops, facts)
    return {"T": T, "causal": causal, "dropout": rate, **facts, "contenders": figures}


def setting_name(causal, rate):
    return f"{'causal' if causal else 'full'}, dropout {rate}"


def report_setting(setting, results):
    """Print the results of all lengths, and return how time and memory grow with the length."""
    print(f"{setting}: forward with backward, then forward alone")
    header = ["T", "", "ms", "spread", "× first", "GFLOP/s", "of sgemm", "extra MB"]
    header += ["fwd ms", "× first", "GFLOP/s"]
    rows, points = [], {}
    for result in results:
        for name, figures in result["contenders"].items():
            if "forward" not in figures:  # it has failed meanwhile
                continue
            rows.append([f"{result['T']:,}", name, *cells(figures)])
            seconds = figures["both"]["seconds"]["median"]
            points.setdefault(name, []).append((result["T"], seconds, figures["bytes"]))
    print_table(header, rows)
    fits = [fit_of(f"{name}, {setting}", *zip(*of, strict=True)) for name, of in points.items()]
    for fit in fits:
        if not math.isnan(fit["time_exponent"]):  # of more than one length
            exponents = (
                f"time ~ T^{fit['time_exponent']:.2f}, memory ~ T^{fit['memory_exponent']:.2f}"
            )
            print(f"{fit['name']}: {exponents} (upper half)")
    print_limits(results)
    print(flush=True)
    return fits


def fit_of(name, lengths, seconds, memory):
    time_exponent, _ = fit_power(lengths, seconds)
    memory_exponent, _ = fit_power(lengths, memory)
    return {"name": name, "time_exponent": time_exponent, "memory_exponent": memory_exponent}


def cells(figures):
    both, forward = figures["both"], figures["forward"]
    row = [*time_cells(both), short(both["gflops"]), percent(both["share_of_sgemm"])]
    row.append(f"{figures['bytes'] / 1e6:,.1f}")
    median, _, ratio = time_cells(forward)
    return [*row, median, ratio, short(forward["gflops"])]


def parse_arguments(argv):
    quick = "lengths 128 to 1,024, 3 short rounds: about a minute"
    parser = parser_of(__doc__, rounds=5, seconds=0.7, quick_seconds=0.1, quick=quick)
    default = "(default: 128,256,...,16384)"
    parser.add_argument("--lengths", type=positives, metavar="T,T", help=default)
    add_some(parser, "--masks", ["full", "causal"], ["full", "causal"], help="(default: both)")
    add_backends(parser, default=["cpu"])
    add_without(parser, ["pytorch", "dropout"])
    options = parsed(parser, argv)
    usual = LENGTHS[:4] if options.quick else LENGTHS
    options.lengths = sorted(options.lengths or usual)
    options.masks = [mask == "causal" for mask in options.masks]
    options.rates = [0.0] if "dropout" in options.without else [0.0, DROPOUT]
    return options


if __name__ == "__main__":
    sys.exit(main())
