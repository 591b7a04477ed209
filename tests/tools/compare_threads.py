"""Train random models on several numbers of threads.

The parameters have to be the same bits.

    python tests/tools/compare_threads.py
    python tests/tools/compare_threads.py --models 5 --threads 1,2,16

The models are Transformers, language models and encoders of random sizes and options; each makes
three steps of a training with 1 to 4 shards, and its gradient is computed as a whole. Each number
of threads has a process of its own, which may have more threads than there are cores.
"""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np

from scripts.bench.options import Positives

import npformer as nf
from npformer import tree
from tests.tools.tool import Natural, Seed, drawn, tool

V = 50
CHOICES = {
    "n_heads": [1, 2, 4],
    "n_layers": [1, 2],
    "d_ff": [24, 96, 300],
    "dropout": [0.0, 0.1],
    "norm": ["pre", "post"],
    "activation": ["relu", "gelu", "silu", "swiglu"],
    "norm_type": ["layer_norm", "rms_norm"],
    "positions": ["sinusoidal", "learned", "rotary"],
    "dtype": ["float32", "float64"],
    "window": [None, 5],
    "softcap": [None, 3.0],
}


@tool
def main(*, models: Natural = 40, threads: Positives = "1,2,3,4,16", seed: Seed = 0):
    """Compare numbers of threads.

    Parameters
    ----------
    models
        number of models
    threads
        numbers of them
    seed
        of the first model
    """
    chosen = range(seed, seed + models)
    hashes = [hashes_on(n, [*chosen]) for n in threads]
    print(f"{models} models on {', '.join(map(str, threads))} threads")
    return [
        f"model {i}: {model_and_batch(i)[0]} has other bits on some number of threads"
        for i, found in zip(chosen, zip(*hashes, strict=True), strict=True)
        if len({*found}) > 1
    ]


def hashes_on(n_threads, chosen):
    """The hash of each model's parameters after its training, in a process with this many
    threads.
    """
    variables = {"PYTHON_CPU_COUNT": str(n_threads), "OPENBLAS_NUM_THREADS": str(n_threads)}
    program = f"from tests.tools.compare_threads import print_hashes; print_hashes({chosen})"
    command = [sys.executable, "-c", program]
    options = {"env": os.environ | variables, "capture_output": True, "check": True}
    return json.loads(subprocess.run(command, **options).stdout)


def print_hashes(chosen):
    """Train the models, and print a list of hashes."""
    print(json.dumps([trained(*model_and_batch(i), n_shards=1 + i % 4) for i in chosen]))


def trained(model, batch, n_shards):
    """The hash of the parameters after three steps, and of the gradient of a whole batch."""
    trainer = nf.Trainer(model, nf.Adam(1e-3), clip_norm=1.0, n_shards=n_shards)
    for _ in range(3):
        trainer.step(*batch)
    _, grads, _ = model.loss_and_grad(trainer.params, *batch)
    arrays = [trainer.flat_params, *(gradient for _, gradient in tree.leaves(grads))]
    return hashlib.sha256(b"".join(x.tobytes() for x in arrays)).hexdigest()


def model_and_batch(i):
    """The i-th random model, and a batch for it."""
    rng = np.random.default_rng(i)
    settings = drawn(rng, CHOICES)
    settings["d_model"] = int(settings["n_heads"] * 2 * rng.integers(2, 40))
    B, T = int(rng.integers(1, 70)), int(rng.integers(2, 40))
    ids, targets = rng.integers(3, V, (B, T)), rng.integers(3, V, (B, T + 1))
    kind = i % 3
    if kind == 0:
        return nf.Transformer(V, V, **settings), (ids, targets)
    if kind == 1:
        return nf.LanguageModel(V, **settings), (targets,)
    return nf.Encoder(V, **settings, task="classes", n_outputs=4), (ids, rng.integers(0, 4, B))


if __name__ == "__main__":
    sys.exit(main())
