"""Time training steps and decoding beside processes that keep the cores busy, as on a laptop or a
shared machine.

python scripts/bench/bench_busy.py                        # all work, beside 0, 1, 2, 8 and 32
python scripts/bench/bench_busy.py --work tiny,sentence --busy 0,1
python scripts/bench/bench_busy.py --session another      # to which Linux gives a share of its own

Each contender runs as it comes, and on one thread: npformer and PyTorch with that setting of their
own, JAX as it comes alone, as it has none. A busy process computes without end; all are started at
once, and stopped (SIGSTOP) while they are not to disturb. In each round all contenders have a turn
beside each number of busy processes.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from functools import partial
from typing import Literal

import numpy as np

from scripts.bench import bench_decode  # needs pip install -e .
from scripts.bench.bench_train import build_jax
from scripts.bench.benchmark import benchmark
from scripts.bench.contenders import build_all, started
from scripts.bench.machine import PAUSE
from scripts.bench.options import Naturals, left_out, some, usually
from scripts.bench.report import note, print_table, short, summary
from scripts.bench.steps import SIZES, Size, build_npformer, build_pytorch

from npformer import LanguageModel, greedy_decode
from npformer.runtime.blas_threads import limit_blas_threads

PAGE_0 = Size(V=29, N=1, D=64, H=4, F=256, B=64, S=10, T=11)  # about that of docs/start.md
DECODED = SIZES["base"]._replace(S=30, T=32)
# How many are decoded at once, greedily, by the model "base".
SENTENCES = {"sentence": 1, "sentences": 32}
CHAT = LanguageModel(
    8192,
    d_model=576,
    n_heads=9,
    n_kv_heads=3,
    n_layers=10,
    d_ff=1536,
    activation="swiglu",
    bias=False,
)
WORK = {"page0": PAGE_0, **SIZES, **SENTENCES, "chat": CHAT}  # chat: a third of SmolLM2's layers


@benchmark()
def main(
    turns: usually(rounds=7, seconds=2.0, quick_seconds=0.2),
    *,
    work: some(WORK) = None,
    busy: Naturals = "0,1,2,8,32",
    session: Literal["the same", "another"] = "the same",
    without: left_out(["npformer", "pytorch", "jax"]) = (),
):
    """Time work beside busy processes.

    Parameters
    ----------
    quick
        tiny and a sentence, 3 short turns
    busy
        numbers of busy processes
    session
        of the busy processes
    """
    report = {}
    for name in work or (["tiny", "sentence"] if turns.quick else WORK):
        entries = [one for key, *one in contenders_of(name) if key not in without]
        report[name] = figures = measure(name, entries, busy, session, turns)
        print_work(name, figures, busy, session)
    return {"session": session, "work": report}


def measure(name, entries, busy, session, turns):
    """Time a work beside each number of busy processes."""
    with started(entries) as contenders, busy_processes(max(busy), session) as beside:
        able = build_all(contenders, WORK[name])
        seconds = {one.name: {n: [] for n in busy} for one in able}
        for i in range(turns.rounds):
            for n, one in itertools.product(busy, able):
                note(f"{name}, round {i + 1} of {turns.rounds}, beside {n}: {one.name}")
                with beside(n):
                    seconds[one.name][n].append(one.run_for(turns.seconds)[0])
        note("")
    return {one: {n: summary(times) for n, times in of.items()} for one, of in seconds.items()}


def print_work(name, figures, busy, session):
    """Print a table of milliseconds a step: the median of the turns, and how many times as long as
    beside the first number.
    """
    rows = []
    for one, of in figures.items():
        idle = of[busy[0]]["median"]
        medians = [of[n]["median"] for n in busy]
        rows.append([one, *(f"{short(1e3 * x)} ({x / idle:.2f})" for x in medians)])
    ratio = f"times as long as beside {busy[0]}"
    print(f"\n{name}: ms ({ratio}), busy processes of {session} session")
    print_table(["", *(f"beside {n}" for n in busy)], rows)


def contenders_of(name):
    """(the option that leaves it out, name, libraries, build) of the contenders of a work."""
    builds = {"chat": build_chat} | dict.fromkeys(SENTENCES, build_sentences)
    build = builds.get(name, partial(build_npformer, backend="cpu"))
    on_one_thread = partial(limited, build)
    yield "npformer", "npformer", ("npformer.cpu",), build
    yield "npformer", "npformer, one thread", ("npformer.cpu",), on_one_thread
    if name not in builds:
        fused = partial(build_pytorch, fused=True)
        yield "pytorch", "PyTorch", ("torch",), fused
        yield "pytorch", "PyTorch, one thread", ("torch",), partial(fused, n_threads=1)
        yield "jax", "JAX", ("jax",), build_jax


def build_sentences(n):
    """``step``, which decodes n sentences."""
    return bench_decode.build_npformer(DECODED, n, beam=1, backend="cpu")


def build_chat(model):
    """``step``, which answers a prompt of 32 tokens with 32 tokens."""
    params = model.init(0)
    prompt = np.random.default_rng(0).integers(0, model.vocab, (1, 32))
    return partial(greedy_decode, model, params, prompt, eos_id=None, max_len=32)


def limited(build, case):
    """The same in npformer on one thread, until the process ends."""
    limit_blas_threads(1)
    return build(case)


@contextlib.contextmanager
def busy_processes(n, session):
    """Start n processes that are stopped; yields ``beside(m)``, a context manager in which m of
    them are busy.
    """
    command = [sys.executable, "-c", "while True: pass"]
    processes = [
        subprocess.Popen(command, start_new_session=session == "another") for _ in range(n)
    ]
    try:
        for process in processes:
            os.kill(process.pid, signal.SIGSTOP)
        yield partial(_beside, processes)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


@contextlib.contextmanager
def _beside(processes, m):
    for process in processes[:m]:
        os.kill(process.pid, signal.SIGCONT)
    try:
        time.sleep(PAUSE)
        yield
    finally:
        for process in processes[:m]:
            os.kill(process.pid, signal.SIGSTOP)


if __name__ == "__main__":
    sys.exit(main())
