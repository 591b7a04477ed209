"""Time a whole training of the annotated copy preset in npformer and in PyTorch, on the same batches and schedule.

Each run is a new process, and its time includes everything in it, imports too. Before, two steps of each are run.

python scripts/bench/bench_copy.py  # 400 steps each, one after another: about nine minutes
python scripts/bench/bench_copy.py --steps 40
"""

import importlib.util
import multiprocessing
import sys
import time
from functools import partial

from npformer.commands.arguments import new_parser, positive  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.copy import PAD, PRESETS, training_batches
from npformer.commands.output import add_json, write_json
from scripts.bench.machine import machine, physical_cores, print_machine
from scripts.bench.report import print_table

import npformer as nf
from npformer.extras import pip_install

PRESET = PRESETS["annotated"]


@command
def main(argv=None):
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--steps", type=positive, default=PRESET["steps"], help="training steps (default: the preset's)")
    add_json(parser)
    options = parser.parse_args(argv)
    if importlib.util.find_spec("torch") is None:
        raise ImportError(f"this needs torch: {pip_install('bench')}")
    description = print_machine(machine())
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:  # a new process for each
        for run in RUNS.values():
            pool.apply(run, (2,))  # compiles kernels, and reads libraries from disk
        runs = {name: pool.apply(run, (options.steps,)) for name, run in RUNS.items()}
    write_json(options.json, {"machine": description, "steps": options.steps, "runs": runs})
    ours = runs["npformer"]["seconds"]
    print(f"\n{options.steps} steps of {PRESET['batch_size']} sequences\n")
    rows = [[name, f"{r['seconds']:.1f}", f"{ours / r['seconds']:.0%}", f"{r['loss']:.3f}"] for name, r in runs.items()]
    print_table(["", "seconds", "npformer's time is", "loss of the last step"], rows)


def batches(steps):
    """The preset's model, optimizer and batches."""
    task = nf.CopyTask(seed=0, **PRESET["task"])
    model = nf.Transformer(src_vocab=task.vocab, tgt_vocab=task.vocab, pad_id=PAD, **PRESET["model"])
    made = training_batches(task, PRESET["batch_size"], set())
    return model, PRESET["optimizer"](steps), [next(made) for _ in range(steps)]


def run_npformer(steps):
    """The seconds of a training, and the loss of its last step."""
    start = time.perf_counter()
    model, optimizer, made = batches(steps)
    trainer = nf.Trainer(model, optimizer, seed=0, backend="cpu")
    history = trainer.fit(made, progress=False)
    return {"seconds": time.perf_counter() - start, "loss": history[-1].loss}


def run_pytorch(steps, fused=False):
    """The same with PyTorch, including its import and the construction of the model."""
    start = time.perf_counter()
    from scripts.bench.peers.pytorch_model import training_step

    model, optimizer, made = batches(steps)
    step = training_step(model, *made[0], 0.0, 0.0, physical_cores(), fused=fused)
    for i, (src, tgt) in enumerate(made, start=1):
        loss = step(src, tgt, lr=optimizer.learning_rate(i))
    return {"seconds": time.perf_counter() - start, "loss": loss}


RUNS = {"npformer": run_npformer, "PyTorch": run_pytorch, "PyTorch, fused Adam": partial(run_pytorch, fused=True)}


if __name__ == "__main__":
    sys.exit(main())
