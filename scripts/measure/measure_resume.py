"""Kill a training again and again at random moments of every phase, and check that this does not
change its result.

python scripts/measure/measure_resume.py --data data/multi30k
python scripts/measure/measure_resume.py --data data/multi30k --kills 5 --steps 60
python scripts/measure/measure_resume.py --data data/multi30k --ranks 1,2,3

Runs two trainings with the same settings, with dropout: one is not interrupted, the other is killed
and resumed. It is killed by the operating system, as by ``kill -9``, at a random moment of a phase:
of a step, of writing to the log, of saving, of a validation, of resuming, and of averaging at the
end. At the end the checkpoints of both (parameters, Adam's state, validations), their results and
their logs have to be equal, bit for bit. The exit code is 1 if they are not. Needs Linux or macOS.

With --ranks the killed training continues each time on another number of ranks of MPI, and one of
them is killed: the others have to end within ten seconds. The undisturbed training runs in one
process, with as many shards.
"""

import collections
import math
import random
import runpy
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from json import dumps, loads
from pathlib import Path

from npformer.commands.shared import (  # needs pip install -e .
    JsonFile,
    Positive,
    command_line,
    rank,
    write_json,
)
from scripts.bench.options import Natural, Positives
from scripts.bench.workers import mpiexec

from npformer.files.checkpoint import LAST, RESULT
from npformer.text import TranslationRun
from npformer.training import JsonLog, Trainer, load_checkpoint
from npformer.training.loop import LOG

PHASES = {
    "step": (Trainer, "step"),
    "logging": (JsonLog, "write"),
    "saving": (TranslationRun, "save"),
    "validation": (TranslationRun, "validate"),
    "resuming": (TranslationRun, "resume"),
    "averaging": (TranslationRun, "finish"),
}
SAVE_EVERY = 7
PATIENCE = 10.0  # seconds in which all ranks have to end
CALLS = {"step": 14, "logging": 14, "saving": 2}  # of a phase before its kill, at most; otherwise 1
TRAIN = Path(__file__).resolve().parents[1] / "train_translation.py"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is trained, and how it is killed.

    Parameters
    ----------
    data : DIR
        folder with the aligned files
    src
        language of the source
    tgt
        language of the target
    ranks
        numbers of ranks to draw from
    kills
        of the training
    steps
        of the training
    seed
        of the moments
    """

    data: str
    src: str = "en"
    tgt: str = "fr"
    ranks: Positives = "1"
    kills: Positive = 20
    steps: Positive = 400
    seed: Natural = 0


@command_line
def main(options: Options, *, json: JsonFile | None = None):
    """Kill a training, and compare it with another one."""
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = Path(folder) / "undisturbed"
        killed = Path(folder) / "killed"
        times = Path(folder) / "seconds.json"
        run(undisturbed, options, times=times)
        kills = kill_again_and_again(killed, loads(times.read_text()), options)
        run(killed, options)
        different = compare(undisturbed, killed, options)
    for what in ("phase", "ranks", "rank"):
        counts = collections.Counter(kill[what] for kill in kills)
        numbers = ", ".join(f"{value}: {n}" for value, n in sorted(counts.items()))
        print(f"{len(kills)} kills by {what}: {numbers}")
    latest = max(kill["end"] for kill in kills)
    lost = max(kill["lost"] for kill in kills)
    print(f"the last process ended {latest:.1f} s after a kill, at most")
    print(f"steps lost, at most: {lost}; saved every {SAVE_EVERY}")
    print("different: " + (", ".join(different) or "nothing"))
    write_json(json, {"kills": kills, "steps": options.steps, "different": different})
    return int(bool(different))


def kill_again_and_again(out, seconds, options):
    """Kill the training, each time after it was resumed; return what happened at each kill.

    ``seconds`` are the medians of the calls of the phases.
    """
    kills = []
    draw = random.Random(options.seed)
    for phase in phases(options.kills, draw):
        moment = draw.random() * seconds.get(phase, seconds["saving"])
        n = draw.choice(options.ranks)
        victim = 0 if phase == "logging" else draw.randrange(n)  # only rank 0 writes a log
        end = None
        while end is None:
            call = draw.randint(1, CALLS.get(phase, 1))
            end = run(out, options, [victim, phase, call, moment], n)
            if end is None and phase != "averaging":
                raise SystemExit(f"the training ended after {len(kills)} kills: more --steps")
            moment /= 2  # the averaging was quicker; it can be repeated
        step = last_step(out)
        lost = max(0, step - saved_step(out))
        kill = {"phase": phase, "rank": victim, "ranks": n, "step": step, "end": end, "lost": lost}
        kills.append(kill)
        on = f"rank {victim} of {n}, " if n > 1 else ""
        what = f"{on}{phase}, after step {step}; {lost} lost, end in {end:.1f} s"
        print(f"kill {len(kills)}: {what}", flush=True)
        if lost > SAVE_EVERY or end > PATIENCE or still_running(out):
            raise SystemExit(f"{lost} steps are lost, or not all has ended after {PATIENCE:g} s")
    return kills


def phases(n, draw):
    """Return a phase for each kill, in random order; the averaging comes last."""
    *earlier, last = PHASES
    chosen = [earlier[i % len(earlier)] for i in range(n - n // len(PHASES))]
    draw.shuffle(chosen)
    return [*chosen, *[last] * (n // len(PHASES))]


def run(out, options, moment=None, n=1, times=None):
    """Start the training, or resume it if it has written a checkpoint.

    Returns how many seconds after the kill everything had ended; None if nothing was killed.
    """
    arguments = ["--out", out, "--quiet"]
    if (out / LAST).exists():
        arguments.append("--resume")
    else:
        arguments += ["--data", options.data, "--src", options.src, "--tgt", options.tgt]
        arguments += ["--steps", options.steps, "--save-every", SAVE_EVERY]
        arguments += ["--max-tokens", 1024, "--vocab-size", 2000, "--warmup", 50]
        arguments += ["--validate-every", 50]
        if max(options.ranks) > 1:
            arguments += ["--n-shards", math.lcm(*options.ranks)]
    note = out.with_name("killed at")
    train_arguments = dumps([arguments, moment, times, note], default=str)
    training = [*mpiexec(n), sys.executable, __file__, "--train", train_arguments]
    errors = subprocess.PIPE if n > 1 else None
    code = subprocess.run(training, stdout=subprocess.DEVNULL, stderr=errors).returncode
    end = time.time()
    killed = [-signal.SIGALRM]
    if n > 1:
        # mpiexec returns the bitwise or of the signals: that which killed one rank, and perhaps
        # that which ended the others.
        killed = [signal.SIGALRM, signal.SIGALRM | signal.SIGKILL]
    if code == 0:
        return None
    if code not in killed:
        raise SystemExit(f"the training failed with exit code {code}")
    return max(0.0, end - float(note.read_text()))


def train(arguments, moment, times, note):
    """Run the script, be killed at a moment of a call of a phase, and write the median seconds of
    the phases.
    """
    seconds = {phase: [] for phase in PHASES}
    victim, phase_of_kill, *when = moment or (None, None)
    for phase, (owner, name) in PHASES.items():
        is_fatal = phase == phase_of_kill and victim == (rank() or 0)
        kill = [*when, note] if is_fatal else None
        setattr(owner, name, watched(getattr(owner, name), seconds[phase], kill))
    sys.argv = [str(TRAIN), *map(str, arguments)]
    try:
        runpy.run_path(str(TRAIN), run_name="__main__")
    finally:
        if times:
            medians = {phase: statistics.median(of) for phase, of in seconds.items() if of}
            Path(times).write_text(dumps(medians))


def watched(function, seconds, kill):
    """Note the seconds of each call of a function; the operating system kills the process at a
    moment of a call, if ``kill`` has the number of the call, the moment and a file to note it.
    """

    def call(*arguments, **options):
        start = time.perf_counter()
        if kill and len(seconds) + 1 == kill[0]:
            _, moment, note = kill
            Path(note).write_text(str(time.time() + moment))
            # The default action ends the process, whatever Python does.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, max(moment, 1e-6))
        result = function(*arguments, **options)
        seconds.append(time.perf_counter() - start)
        return result

    return call


def last_step(out):
    """The step of the latest record of the log."""
    if not (out / LOG).exists():
        return 0
    return max((record["step"] for record in JsonLog.read(out / LOG)), default=0)


def saved_step(out):
    """The step of the last checkpoint."""
    return load_checkpoint(out / LAST)[1]["n_steps"] if (out / LAST).exists() else 0


def still_running(out):
    """Whether a process with this folder among its arguments is left."""
    search = ["pgrep", "-f", "--", f"--train.*{out}"]
    return subprocess.run(search, stdout=subprocess.DEVNULL).returncode == 0


def compare(undisturbed, killed, options):
    """The bitwise differences between the checkpoints, the results and the logs of the two
    trainings.
    """
    different = []
    for name in (LAST, RESULT):
        arrays, info = load_checkpoint(undisturbed / name)
        others, other_info = load_checkpoint(killed / name)
        bits_differ = lambda key, x=arrays, y=others: x[key].tobytes() != y[key].tobytes()
        different += [f"{name}: {key}" for key in arrays if bits_differ(key)]
        different += [f"{name}: {key}" for key in info if other_info[key] != info[key]]
    expected, records = (log_of(out) for out in (undisturbed, killed))
    if max(options.ranks) > 1:
        # Ranks add the squares of the norm, in float64, in another order.
        for record, other in zip(records, expected, strict=False):
            norms = record.get("grad_norm"), other.get("grad_norm")
            if None not in norms and math.isclose(*norms, rel_tol=1e-12):
                record["grad_norm"] = other["grad_norm"]
    if records != expected:
        different.append(LOG)
    steps = [record["step"] for record in records if "loss" in record]
    if steps != list(range(1, options.steps + 1)):
        raise SystemExit("a step is missing from the log, or in it twice")
    return different


def log_of(out):
    """The records of a log, without their times."""
    return [record | {"seconds": None} for record in JsonLog.read(out / LOG)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:  # in a process of its own, which ``run`` starts
        train(*loads(sys.argv[2]))
    else:
        sys.exit(main())
