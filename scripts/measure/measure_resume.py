"""Kill a training again and again at random moments of every phase, and check that this does not change its result.

python scripts/measure/measure_resume.py --data data/multi30k
python scripts/measure/measure_resume.py --data data/multi30k --kills 5 --steps 60
python scripts/measure/measure_resume.py --data data/multi30k --ranks 1,2,3

Runs two trainings with the same settings, with dropout: one is not interrupted, the other is killed and resumed. It is
killed by the operating system, as by ``kill -9``, at a random moment of a phase: of a step, of writing to the log, of
saving, of a validation, of resuming, and of averaging at the end. At the end the checkpoints of both (parameters,
Adam's state, validations), their results and their logs have to be equal, bit for bit. The exit code is 1 if they are
not. Needs Linux or macOS.

With --ranks the killed training continues each time on another number of ranks of MPI, and one of them is killed: the
others have to end within ten seconds. The undisturbed training runs in one process, with as many shards.
"""

import collections
import json
import math
import random
import runpy
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from npformer.commands.arguments import natural, new_parser, positive  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.on_ranks import rank
from npformer.commands.output import add_json, write_json
from scripts.bench.options import positives
from scripts.bench.workers import mpiexec

from npformer.training import JsonLog, Trainer, load_checkpoint
from npformer.training.loop import LAST, LOG
from npformer.translation import TranslationRun
from npformer.translation.run import RESULT

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


@command
def main(argv=None):
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--data", required=True, metavar="DIR", help="folder with the aligned files")
    add("--src", default="en", help="(default: en)")
    add("--tgt", default="fr", help="(default: fr)")
    add("--ranks", type=positives, default=[1], metavar="N,M", help="numbers of ranks to draw from (default: 1)")
    add("--kills", type=positive, default=20, help="(default: 20)")
    add("--steps", type=positive, default=400, help="of the training (default: 400)")
    add("--seed", type=natural, default=0, help="seed of the moments (default: 0)")
    add_json(parser)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        undisturbed, killed = Path(folder) / "undisturbed", Path(folder) / "killed"
        run(undisturbed, options, times=Path(folder) / "seconds.json")
        seconds = json.loads((Path(folder) / "seconds.json").read_text())
        kills, draw = [], random.Random(options.seed)
        for phase in phases(options.kills, draw):
            moment = draw.random() * seconds.get(phase, seconds["saving"])
            n = draw.choice(options.ranks)
            victim = 0 if phase == "logging" else draw.randrange(n)  # only rank 0 writes a log
            while not (end := run(killed, options, [victim, phase, draw.randint(1, CALLS.get(phase, 1)), moment], n)):
                if phase != "averaging":  # which may have been quicker, and can be repeated
                    raise SystemExit(f"the training ended after {len(kills)} kills: more --steps")
                moment /= 2
            step = last_step(killed)
            kills.append({"phase": phase, "rank": victim, "ranks": n, "step": step, "moment": moment, "end": end})
            kills[-1]["lost"] = lost = max(0, step - saved_step(killed))
            on = f"rank {victim} of {n}, " if n > 1 else ""
            print(f"kill {len(kills)}: {on}{phase}, after step {step}; {lost} lost, end in {end:.1f} s", flush=True)
            if lost > SAVE_EVERY or end > PATIENCE or still_running(killed):
                raise SystemExit(f"{lost} steps are lost, or not all has ended after {PATIENCE:g} s")
        run(killed, options)
        different = compare(undisturbed, killed, options)
    for what in "phase", "ranks", "rank":
        counts = collections.Counter(kill[what] for kill in kills)
        print(f"{len(kills)} kills by {what}: " + ", ".join(f"{value}: {n}" for value, n in sorted(counts.items())))
    print(f"the last process ended {max(kill['end'] for kill in kills):.1f} s after a kill, at most")
    print(f"steps lost, at most: {max(kill['lost'] for kill in kills)}; saved every {SAVE_EVERY}")
    print("different: " + (", ".join(different) or "nothing"))
    write_json(options.json, {"kills": kills, "steps": options.steps, "different": different})
    return int(bool(different))


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
        arguments += ["--data", options.data, "--src", options.src, "--tgt", options.tgt, "--steps", options.steps]
        arguments += ["--max-tokens", 1024, "--vocab-size", 2000, "--warmup", 50]
        arguments += ["--validate-every", 50, "--save-every", SAVE_EVERY]
        if max(options.ranks) > 1:
            arguments += ["--n-shards", math.lcm(*options.ranks)]
    note = out.with_name("killed at")
    given = json.dumps([arguments, moment, times, note], default=str)
    command = [*mpiexec(n), sys.executable, __file__, "--train", given]
    code = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE if n > 1 else None).returncode
    end = time.time()
    # mpiexec returns the bitwise or of the signals: that which killed one rank, and perhaps that which ended the others
    expected = [signal.SIGALRM, signal.SIGALRM | signal.SIGKILL] if n > 1 else [-signal.SIGALRM]
    if code not in (0, *expected):
        raise SystemExit(f"the training failed with exit code {code}")
    return max(0.0, end - float(note.read_text())) if code else None


def train(arguments, moment, times, note):
    """Run the script, be killed at a moment of a call of a phase, and write the median seconds of the phases."""
    seconds = {phase: [] for phase in PHASES}
    victim, of, *when = moment or (None, None)
    for phase, (owner, name) in PHASES.items():
        kill = [*when, note] if phase == of and victim == (rank() or 0) else None
        setattr(owner, name, watched(getattr(owner, name), seconds[phase], kill))
    sys.argv = [str(TRAIN), *map(str, arguments)]
    try:
        runpy.run_path(str(TRAIN), run_name="__main__")
    finally:
        if times:
            medians = {phase: statistics.median(values) for phase, values in seconds.items() if values}
            Path(times).write_text(json.dumps(medians))


def watched(function, seconds, moment):
    """Note the seconds of each call of a function; at a moment of one the operating system kills the process."""

    def call(*arguments, **options):
        start = time.perf_counter()
        if moment and len(seconds) + 1 == moment[0]:
            Path(moment[2]).write_text(str(time.time() + moment[1]))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it ends the process, whatever Python does
            signal.setitimer(signal.ITIMER_REAL, max(moment[1], 1e-6))
        result = function(*arguments, **options)
        seconds.append(time.perf_counter() - start)
        return result

    return call


def last_step(out):
    return max((record["step"] for record in JsonLog.read(out / LOG)), default=0) if (out / LOG).exists() else 0


def saved_step(out):
    return load_checkpoint(out / LAST)[1]["n_steps"] if (out / LAST).exists() else 0


def still_running(out):
    """Whether a process with this folder among its arguments is left."""
    return subprocess.run(["pgrep", "-f", "--", f"--train.*{out}"], stdout=subprocess.DEVNULL).returncode == 0


def compare(undisturbed, killed, options):
    """The bitwise differences between the checkpoints, the results and the logs of the two trainings."""
    different = []
    for name in (LAST, RESULT):
        (expected, info), (arrays, info_of_killed) = (load_checkpoint(run / name) for run in (undisturbed, killed))
        different += [f"{name}: {key}" for key in expected if arrays[key].tobytes() != expected[key].tobytes()]
        different += [f"{name}: {key}" for key in info if info_of_killed[key] != info[key]]
    logs = [list(JsonLog.read(run / LOG)) for run in (undisturbed, killed)]
    expected, records = ([record | {"seconds": None} for record in log] for log in logs)
    if max(options.ranks) > 1:  # which add the squares of the norm, in float64, in another order
        for record, of_record in zip(records, expected, strict=False):
            if "grad_norm" in record and math.isclose(record["grad_norm"], of_record["grad_norm"], rel_tol=1e-12):
                record["grad_norm"] = of_record["grad_norm"]
    different += [LOG] if records != expected else []
    steps = [record["step"] for record in records if "loss" in record]
    assert steps == list(range(1, options.steps + 1)), "a step is missing from the log, or in it twice"
    return different


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:  # in a process of its own, which ``run`` starts
        train(*json.loads(sys.argv[2]))
    else:
        sys.exit(main())
