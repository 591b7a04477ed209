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

import itertools
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
    options = parse_arguments(argv)
    facts = print_machine(machine())
    builds = {name: build_of(name, options.quick) for name in options.lines}
    results = {}
    with tempfile.TemporaryDirectory() as folder, limits_contender(options.sgemm_sizes) as limits:
        if options.language_model:
            builds |= builds_of_file(options.language_model, Path(folder) / "model")
        for name, build in builds.items():
            results[name] = measured(build, limits, options)
            print_line(name, results[name])
    write_json(options.json, {"machine": facts, "lines": results})
    print()
    print_shares(results)
    print_rests(results)
    print_limits(list(results.values()))


def build_of(name, quick):
    """A function that builds the step of a line, without arguments."""
    if name in SIZES:
        return partial(build_npformer, SIZES[name], "cpu")
    shape = bench_gpt.SMALL if quick else bench_gpt.GPT2
    return partial(bench_gpt.build_npformer, shape, "step", int(name.removeprefix("gpt")), "cpu")


def builds_of_file(path, folder):
    """Functions that build the work with a model that exists.

    A long prompt is left out: it has blocks side by side, which cannot be told from one.
    """
    work = bench_pretrained.prepared(path, folder, [])
    return {
        f"{path.stem}: {bench_pretrained.WORK[kind]}": partial(
            bench_pretrained.build_npformer, work, kind, "cpu"
        )
        for kind in ("first", "generate")
    }


def build_watched(build, seconds):
    """``step`` that makes steps for about so many seconds, and says where the time of one of them
    goes.
    """
    step = build()

    def watched():
        walls, processors, calls = [], [], []
        end = time.perf_counter() + seconds
        while not walls or time.perf_counter() < end:
            start, start_of_processor = time.perf_counter(), time.process_time()
            step()
            walls.append(time.perf_counter() - start)
            processors.append(time.process_time() - start_of_processor)
            with nf.explain() as calls_of_step:  # which takes a little time itself
                step()
            calls.append(calls_of_step)
        if len(walls) > 1:  # the first step after a pause is slow
            walls, processors, calls = walls[1:], processors[1:], calls[1:]
        operations = defaultdict(float)
        for call in itertools.chain.from_iterable(calls):
            operations[call.operation] += call.seconds / len(calls)
        return {
            "wall": statistics.mean(walls),
            "processor": statistics.mean(processors),
            "operations": dict(operations),
            "calls": dict(Counter(call.operation for call in calls[-1])),
        }

    return watched


def measured(build, limits, options):
    """The time of a step, its own limit, and the parts of the rest, all in seconds."""
    watched = partial(build_watched, build, options.seconds)
    with started([("npformer", ("npformer.cpu",), watched)]) as contenders:
        able = build_all(contenders, warm_up=1)
        if not able:
            sys.exit("the step does not run")
        measure_own_limit(limits, options.sgemm_sizes, build)
        turns, facts = alternate_with(limits, able, options)
    values = [value for _, value in turns["npformer"]]
    return {**facts, **divided(values, facts["own_limit"], physical_cores())}


def divided(watched, own_limit, n_cores):
    """Divide the median time of a step: the seconds of its operations, its own limit, and the rests
    by kind.
    """
    wall = statistics.median(of["wall"] for of in watched)
    processor = statistics.median(of["processor"] / of["wall"] for of in watched) * wall
    calls = watched[0]["calls"]
    operations, rests = {}, dict.fromkeys(RESTS, 0.0)
    n_shards = 1
    for name, limit in own_limit["operations"].items():
        at_once = max(1, round(calls.get(name, 1) / limit["calls"]))
        n_shards = max(n_shards, at_once)
        seconds = statistics.median(of["operations"].get(name, 0.0) for of in watched)
        seconds /= min(at_once, n_cores)
        best = limit["products"] + limit["bytes"]
        operations[name] = {"seconds": seconds, "own_limit": best}
        way = "products_in_shards" if at_once > 1 else "products_undivided"
        slower = limit[way] - limit["products"]
        rests["products"] += slower
        rests[KINDS.get(name, "elementwise")] += seconds - best - slower
    outside = wall - sum(of["seconds"] for of in operations.values())
    if n_shards > 1:
        rests["waiting"] = max(0.0, min(outside, wall - processor / n_cores))
    rests["Python"] = outside - rests["waiting"]
    return {"seconds": wall, "cores": processor / wall, "operations": operations, "rests": rests}


def print_line(name, result):
    """Print which rests of a step are the largest, as soon as it is measured."""
    shown = lambda part, seconds: f"{part} {short(1e3 * seconds)} ms"
    of_step = lambda seconds: percent(seconds / result["seconds"])
    rests = [f"{shown(*rest)} ({of_step(rest[1])})" for rest in largest(result["rests"])]
    operations = result["operations"].items()
    above = {operation: of["seconds"] - of["own_limit"] for operation, of in operations}
    by_operation = ", ".join(shown(*part) for part in largest(above))
    limit = f"above the limit {', '.join(rests)}"
    print(f"{name}: {limit}; by operation {by_operation}", flush=True)


def largest(parts):
    """The largest of named seconds, with their names."""
    return sorted(parts.items(), key=lambda part: part[1], reverse=True)[:LARGEST]


def print_shares(results):
    """Print the limit of each step, and the share of it that is reached."""
    header = ["", "ms", "limit, ms", "of products", "of bytes", "of its limit", "of sgemm", "cores"]
    rows = []
    for name, result in results.items():
        seconds = result["seconds"]
        operations = result["own_limit"]["operations"].values()
        sum_of = lambda part, operations=operations: sum(of[part] for of in operations)
        products, moving = sum_of("products"), sum_of("bytes")
        row = [name, *(short(1e3 * x) for x in (seconds, products + moving, products, moving))]
        row.append(percent(result["own_limit"]["seconds"] / seconds))
        gflops = 2 * sum_of("multiplications") / seconds / 1e9
        row.append(percent(gflops / result["limits"]["sgemm"]))
        row.append(f"{result['cores']:.2f}")
        rows.append(row)
    print_table(header, rows)
    print()


def print_rests(results):
    """Print the rests of each step in per cent of its time."""
    print("above the limit, in per cent of the step:")
    rows = []
    for name, result in results.items():
        shares = (result["rests"][rest] / result["seconds"] for rest in RESTS)
        rows.append([name, *map(percent, shares)])
    print_table(["", *RESTS], rows)
    print()


def parse_arguments(argv):
    quick = "tiny and a small GPT, 3 short rounds"
    parser = parser_of(__doc__, rounds=7, seconds=2.0, quick_seconds=0.1, quick=quick)
    add_some(parser, "--lines", LINES, help=f"some of {','.join(LINES)} (default: all)")
    llama = "a GGUF file or a folder with a Llama"
    parser.add_argument("--language-model", type=Path, metavar="FILE", help=llama)
    options = parsed(parser, argv)
    options.lines = options.lines or (["tiny", "gpt64"] if options.quick else LINES)
    return options


if __name__ == "__main__":
    sys.exit(main())
