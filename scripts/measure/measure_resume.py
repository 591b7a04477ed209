"""Kill a training (kill -9) again and again at random moments, and check that this does not change its result.

python scripts/measure/measure_resume.py --data data/multi30k
python scripts/measure/measure_resume.py --data data/multi30k --kills 3 --steps 40

Runs two trainings with the same settings, with dropout: one is not interrupted, the other is killed and resumed. At the
end their checkpoints (parameters, Adam's state, validations), their results and their logs have to be equal, bit for
bit. The exit code is 1 if they are not.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where arguments.py is
from arguments import above_zero, natural, positive
from command import command
from output import output_file, write_json

from npformer.training import JsonLog, load_checkpoint

TRAIN = Path(__file__).resolve().parents[1] / "train_translation.py"


@command
def main(argv=None):
    options = parse_arguments(argv)
    moments = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        undisturbed, killed = Path(folder) / "undisturbed", Path(folder) / "killed"
        start = time.perf_counter()
        run_to_the_end(go_on(undisturbed, options))
        longest = options.longest or 1.5 * (time.perf_counter() - start) / options.kills
        kills = []
        while len(kills) < options.kills:
            process = go_on(killed, options)
            step = kill(process, killed, seconds=moments.uniform(0, longest))
            if process.returncode != -signal.SIGKILL:
                raise SystemExit(f"the training ended after {len(kills)} kills: more --steps, or a shorter --longest")
            kills.append(step)
            print(f"kill {len(kills)}: after step {step}", flush=True)
        run_to_the_end(go_on(killed, options))
        different = compare(undisturbed, killed, options.steps)
    print("different: " + (", ".join(different) or "nothing"))
    if options.json:
        write_json(options.json, {"kills": kills, "steps": options.steps, "different": different})
    return int(bool(different))


def go_on(out, options):
    """Start the training, or resume it if it has written a checkpoint."""
    arguments = ["--out", out, "--quiet"]
    if (out / "last.safetensors").exists():
        arguments.append("--resume")
    else:
        arguments += ["--data", options.data, "--src", options.src, "--tgt", options.tgt, "--steps", options.steps]
        arguments += ["--max-tokens", 1024, "--vocab-size", 2000, "--warmup", 50]
        arguments += ["--validate-every", 50, "--save-every", 7]
    return subprocess.Popen([sys.executable, TRAIN, *map(str, arguments)], stdout=subprocess.DEVNULL)


def run_to_the_end(process):
    if process.wait():
        raise SystemExit(f"the training failed with exit code {process.returncode}")


def kill(process, out, seconds):
    """Kill a training some time after it has opened its log. Returns the last step in the log."""
    log = out / "log.jsonl"
    before = log.stat().st_mtime_ns if log.exists() else 0
    while process.poll() is None and not (log.exists() and log.stat().st_mtime_ns > before):
        time.sleep(0.01)
    time.sleep(seconds)
    process.kill()
    process.wait()
    return max((record["step"] for record in JsonLog.read(log)), default=0)


def compare(undisturbed, killed, n_steps):
    """The bitwise differences between the checkpoints, the results and the logs of the two trainings."""
    different = []
    for name in ("last.safetensors", "model.safetensors"):
        (expected, info), (arrays, info_of_killed) = (load_checkpoint(run / name) for run in (undisturbed, killed))
        different += [f"{name}: {key}" for key in expected if arrays[key].tobytes() != expected[key].tobytes()]
        different += [f"{name}: {key}" for key in info if info_of_killed[key] != info[key]]
    expected, records = (
        [{k: v for k, v in r.items() if k != "seconds"} for r in JsonLog.read(run / "log.jsonl")]
        for run in (undisturbed, killed)
    )
    different += ["log.jsonl"] if records != expected else []
    steps = [record["step"] for record in records if "loss" in record]
    assert steps == list(range(1, n_steps + 1)), "a step is missing from the log, or in it twice"
    return different


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", required=True, metavar="DIR", help="folder with the aligned files")
    add("--src", default="en", help="(default: en)")
    add("--tgt", default="fr", help="(default: fr)")
    add("--kills", type=positive, default=20, help="(default: 20)")
    add("--steps", type=positive, default=400, help="steps of the training (default: 400)")
    add(
        "--longest",
        type=above_zero,
        metavar="S",
        help="most seconds from the opening of the log to a kill (default: chosen to spread the kills over the steps)",
    )
    add("--seed", type=natural, default=0, help="seed of the moments (default: 0)")
    add("--json", type=output_file, metavar="FILE", help="write the figures to FILE")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
