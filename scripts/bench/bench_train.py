"""Time one training step of npformer, PyTorch and JAX, each in a process of its own, in turns.

python scripts/bench/bench_train.py           # the steps of five Transformers, all contenders
python scripts/bench/bench_train.py --quick   # tiny and copy, without torch.compile
python scripts/bench/bench_train.py --steps base --without compile,jax --rounds 9
python scripts/bench/bench_train.py --steps gru,gru-dot,lstm --without compile,jax

A Transformer is an encoder-decoder, pre-norm, with label smoothing 0.1. A recurrent model has one
layer, bidirectional in the encoder, and is not in JAX. All have dropout 0.1, Adam(0.9, 0.98),
float32, and random tokens without padding. All contenders start with the same parameters (the
models are in peers/) and use all cores; contenders that do not start with the same loss are left
out. FLOP/s count the arithmetic that the step needs, not what a library actually computes. A step's
own limit is explained in own_limit.py: "of own limit" is the share of the median, and "fastest"
that of the fastest round, which noise changes less, as the limit is made of best times, too.
"""

import sys
from functools import partial

from scripts.bench.benchmark import benchmark  # needs pip install -e .
from scripts.bench.contenders import of_backends, started
from scripts.bench.limits import Limits, print_results
from scripts.bench.options import Backends, left_out, some, usually
from scripts.bench.report import short
from scripts.bench.steps import (
    LABEL_SMOOTHING,
    LEARNING_RATE,
    RECURRENT,
    SIZES,
    batch_of,
    build_npformer,
    build_pytorch,
    loss_differs,
    model_of,
    size_of,
    training_flops,
)
from scripts.bench.turns import Workload, measured

import npformer as nf

STEPS = {**SIZES, **RECURRENT}


def build_jax(size):
    """``step`` of peers/jax_model.py."""
    from scripts.bench.peers.jax_model import training_step

    return training_step(model_of(size), *batch_of(size), LEARNING_RATE, LABEL_SMOOTHING)


PEERS = {  # option -> (name, libraries, build)
    "pytorch": ("PyTorch", ("torch",), build_pytorch),
    "fused": ("PyTorch, fused Adam", ("torch",), partial(build_pytorch, fused=True)),
    "compile": ("PyTorch, compiled", ("torch",), partial(build_pytorch, fused=True, compiled=True)),
    "jax": ("JAX", ("jax",), build_jax),
}
TIMES = ["ms", "spread", "× first", "min"]
RATES = ["GFLOP/s", "of sgemm", "of own limit", "fastest"]
OTHERS = ["first loss", "libraries MB", "training MB"]


@benchmark()
def main(
    turns: usually(rounds=7, seconds=0.7, quick_seconds=0.3),
    *,
    steps: some(STEPS, f"some of {{}} (default: {','.join(SIZES)})") = None,
    backends: Backends = "cpu",
    without: left_out(PEERS) = (),
):
    """Time training steps.

    Parameters
    ----------
    quick
        tiny and copy, no compilation, 3 short rounds: under a minute
    """
    if turns.quick:
        without = [*without, "compile"]
    steps = steps or (["tiny", "copy"] if turns.quick else SIZES)
    peers = {key: peer for key, peer in PEERS.items() if key not in without}
    with Limits(turns.sgemm_sizes) as limits:
        results = {name: report_step(name, backends, peers, turns, limits) for name in steps}
    return {"steps": results}


def report_step(name, backends, peers, turns, limits):
    """Measure a step with all contenders, and print their figures."""
    step = STEPS[name]
    size = size_of(step)
    n_parameters = nf.tree.count(model_of(step).shapes())
    print(f"{name}: {step} B={size.B} S={size.S} T={size.T}, {n_parameters:,} parameters", end="")
    columns = [*TIMES, *OTHERS]
    workload = Workload((step,), differs=loss_differs)
    entries = of_backends(backends, build_npformer)
    if name in SIZES:
        columns = [*TIMES, *RATES, *OTHERS]
        own_limit_of = partial(build_npformer, size, backends[0])
        workload = workload._replace(flops=training_flops(size), own_limit_of=own_limit_of)
        print(f", {short(workload.flops / 1e9)} GFLOP a step", end="")
    print(flush=True)
    entries += [peer for key, peer in peers.items() if name in SIZES or key != "jax"]
    with started(entries) as contenders:
        result = measured(contenders, workload, turns, limits)
    if not result["contenders"]:
        sys.exit(f"{name}: no contender is left")
    print_results([{"what": name} | result], columns)
    print_best_of_pytorch(result["contenders"])
    return {"size": size._asdict(), "flops": workload.flops} | result


def print_best_of_pytorch(figures):
    names = [name for name in figures if name.startswith("PyTorch")]
    if names:
        best = min(names, key=lambda name: figures[name]["seconds"]["median"])
        ours = next(iter(figures))
        ratio = figures[best]["times_as_long"]
        print(f"PyTorch's best of these is {best!r}: {ratio:.2f} times as long as {ours}")
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
