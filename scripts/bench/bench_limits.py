"""What a step could save: its own limit (own_limit.py explains it), and where the rest of its time
goes.

python scripts/bench/bench_limits.py   # five training steps, two of GPT-2: minutes
python scripts/bench/bench_limits.py --lines tiny,base --rounds 9
python scripts/bench/bench_limits.py --quick
python scripts/bench/bench_limits.py --language-model SmolLM2.gguf  # as in bench_pretrained.py

The rest is divided by the times of ``npformer.explain()`` and by the processor time of the process:

- Products: how much longer they take as the step divides them, in shards or by themselves, than in
  the fastest way.
- Beside products: what else the same operations do, bias, activation, dropout and sums, above the
  limit of its bytes.
- Of another operation, what it takes above its own limit. Two threads that compute a shard each
  count half.
- Python: the processor time outside of operations, on the threads that compute. NumPy between the
  operations is in it, such as the sum of the gradients of shards.
- Waiting: while shards are computed side by side, the time in which a core has nothing to do.

A step that is not divided into shards has one thread outside of its products: there, all that is
outside of operations is Python.
"""

import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

from npformer.commands.command import command  # needs pip install -e .
from npformer.commands.output import write_json
from scripts.bench import bench_gpt, bench_pretrained
from scripts.bench.contenders import build_all, started
from scripts.bench.limits import alternate_with, limits_contender, measure_own_limit, print_limits
from scripts.bench.machine import machine, physical_cores, print_machine
from scripts.bench.options import add_some, parsed, parser_of
from scripts.bench.report import percent, print_table, short
from scripts.bench.steps import SIZES, build_npformer

import npformer as nf

GPT_LENGTHS = 64, 512
LINES = [*SIZES, *(f"gpt{T}" for T in GPT_LENGTHS)]
KINDS = {  # operation -> what the rest of its time is called beside that of slower products
    "linear": "beside products",
    "linear_backward": "beside products",
    "linear_activation_dropout": "beside products",
    "linear_activation_dropout_backward": "beside products",
    "linear_dropout_residual": "beside products",
    "linear_dropout_residual_backward": "beside products",
    "linear_cross_entropy": "loss",
    "self_attention": "attention",
    "self_attention_backward": "attention",
    "cross_attention": "attention",
    "cross_attention_backward": "attention",
    "stack_step": "decoder",
    "adam_update": "update",
    "global_norm": "update",
}
RESTS = (
    "products",
    "beside products",
    "loss",
    "attention",
    "update",
    "decoder",
    "elementwise",
    "Python",
    "waiting",
)
LARGEST = 3  # rests of a step that are named


@command
def main(argv=None):
    parser = parser_of(
        __doc__,
        rounds=7,
        seconds=2.0,
        quick_seconds=0.1,
        quick="tiny and a small GPT, 3 short rounds",
    )
    add_some(parser, "--lines", LINES, help=f"some of {','.join(LINES)} (default: all)")
    parser.add_argument(
        "--language-model", type=Path, metavar="FILE", help="a GGUF file or a folder with a Llama"
    )
    options = parsed(parser, argv)
    lines = options.lines or (["tiny", "gpt64"] if options.quick else LINES)
    facts, results = print_machine(machine()), {}
    with tempfile.TemporaryDirectory() as folder, limits_contender(options.sgemm_sizes) as limits:
        builds = {name: build_of(name, options.quick) for name in lines}
        if options.language_model:
            work = bench_pretrained.prepared(options.language_model, Path(folder) / "model", {})
            for kind in (
                "first",
                "generate",
            ):  # a long prompt has blocks side by side, which cannot be told from one
                name = f"{options.language_model.stem}: {bench_pretrained.WORK[kind]}"
                builds[name] = partial(bench_pretrained.build_npformer, work, kind, "cpu")
        for name, build in builds.items():
            results[name] = measured(build, limits, options)
            print_line(name, results[name])
    print()
    print_shares(results)
    print_rests(results)
    print_limits(list(results.values()))
    write_json(options.json, {"machine": facts, "lines": results})


def build_of(name, quick):
    """A function that builds the step of a line, without arguments."""
    if name in SIZES:
        return partial(build_npformer, SIZES[name], "cpu")
    shape = bench_gpt.SMALL if quick else bench_gpt.GPT2
    return partial(bench_gpt.build_npformer, shape, "step", int(name.removeprefix("gpt")), "cpu")


def build_watched(build, seconds):
    """``step`` that makes steps for about so many seconds, and says where the time of one of them
    goes.
    """
    step = build()

    def watched():
        steps, end = [], time.perf_counter() + seconds
        while not steps or time.perf_counter() < end:
            begin, begin_of_processor = time.perf_counter(), time.process_time()
            step()
            wall, processor = time.perf_counter() - begin, time.process_time() - begin_of_processor
            with nf.explain() as calls:  # which takes a little time itself
                step()
            steps.append((wall, processor, calls))
        steps = steps[1:] or steps  # the first one after a pause is slow
        operations = defaultdict(float)
        for _, _, calls in steps:
            for call in calls:
                operations[call.operation] += call.seconds / len(steps)
        return {
            "wall": statistics.mean(wall for wall, *_ in steps),
            "processor": statistics.mean(processor for _, processor, _ in steps),
            "operations": dict(operations),
            "calls": dict(Counter(call.operation for call in calls)),
        }

    return watched


def measured(build, limits, options):
    """The time of a step, its own limit, and the parts of the rest, all in seconds."""
    with started(
        [("npformer", ("npformer.cpu",), partial(build_watched, build, options.seconds))]
    ) as contenders:
        able = build_all(contenders, warm_up=1)
        if not able:
            sys.exit("the step does not run")
        measure_own_limit(limits, options.sgemm_sizes, build)
        turns, facts = alternate_with(limits, able, options)
    watched = [value for _, value in turns["npformer"]]
    return {**facts, **divided(watched, facts["own_limit"], physical_cores())}


def divided(watched, own_limit, n_cores):
    """Divide the median time of a step: the seconds of its operations, its own limit, and the rests
    by kind.
    """
    wall = statistics.median(of["wall"] for of in watched)
    processor = statistics.median(of["processor"] / of["wall"] for of in watched) * wall
    operations, rests = {}, dict.fromkeys(RESTS, 0.0)
    n_shards = max(
        round(n / own_limit["operations"][name]["calls"]) for name, n in watched[0]["calls"].items()
    )
    for name, limit in own_limit["operations"].items():
        at_once = max(1, round(watched[0]["calls"].get(name, 1) / limit["calls"]))
        seconds = statistics.median(of["operations"].get(name, 0.0) for of in watched) / min(
            at_once, n_cores
        )
        best = limit["products"] + limit["bytes"]
        operations[name] = {"seconds": seconds, "own_limit": best}
        slower = (
            limit["products_in_shards" if at_once > 1 else "products_undivided"] - limit["products"]
        )
        rests["products"] += slower
        rests[KINDS.get(name, "elementwise")] += seconds - best - slower
    outside = wall - sum(of["seconds"] for of in operations.values())
    if n_shards > 1:
        rests["waiting"] = max(0.0, min(outside, wall - processor / n_cores))
    rests["Python"] = outside - rests["waiting"]
    return {"seconds": wall, "cores": processor / wall, "operations": operations, "rests": rests}


def print_line(name, result):
    """Print which rests of a step are the largest, as soon as it is measured."""
    wall, rests = result["seconds"], result["rests"]
    largest = sorted(rests, key=rests.__getitem__, reverse=True)[:LARGEST]
    text = ", ".join(
        f"{rest} {short(1e3 * rests[rest])} ms ({percent(rests[rest] / wall)})" for rest in largest
    )
    by = {name: of["seconds"] - of["own_limit"] for name, of in result["operations"].items()}
    worst = sorted(by, key=by.__getitem__, reverse=True)[:LARGEST]
    operations = ", ".join(f"{operation} {short(1e3 * by[operation])} ms" for operation in worst)
    print(f"{name}: above the limit {text}; by operation {operations}", flush=True)


def print_shares(results):
    """Print the limit of each step, and the share of it that is reached."""
    header = ["", "ms", "limit, ms", "of products", "of bytes", "of its limit", "of sgemm", "cores"]
    rows = []
    for name, result in results.items():
        seconds, of_operations = result["seconds"], result["own_limit"]["operations"].values()
        products, n_bytes = (
            sum(of[part] for of in of_operations) for part in ("products", "bytes")
        )
        flops = 2 * sum(of["multiplications"] for of in of_operations)
        share = percent(result["own_limit"]["seconds"] / seconds)
        of_sgemm = percent(flops / seconds / 1e9 / result["limits"]["sgemm"])
        times = [short(1e3 * x) for x in (seconds, products + n_bytes, products, n_bytes)]
        rows.append([name, *times, share, of_sgemm, f"{result['cores']:.2f}"])
    print_table(header, rows)
    print()


def print_rests(results):
    """Print the rests of each step in per cent of its time."""
    print("above the limit, in per cent of the step:")
    rows = [
        [name, *(percent(result["rests"][rest] / result["seconds"]) for rest in RESTS)]
        for name, result in results.items()
    ]
    print_table(["", *RESTS], rows)
    print()


if __name__ == "__main__":
    sys.exit(main())
