"""Time GPT-2 (124 million parameters): a training step and cached generation, npformer and
transformers in turns.

python scripts/bench/bench_gpt.py                    # minutes
python scripts/bench/bench_gpt.py --quick            # a small model
python scripts/bench/bench_gpt.py --lengths 64 --rounds 9

Both start with the same parameters, are in float32 and use every core; a step ends with AdamW and
clipping. Of one prompt of 32 tokens, generation continues with 64, greedy. A contender whose loss
or tokens differ is left out. A step's own limit is explained in own_limit.py.
"""

import sys
import tempfile
from functools import partial

import numpy as np

from npformer.commands.shared import command_line, write_json  # needs pip install -e .
from scripts.bench.contenders import of_backends, started
from scripts.bench.limits import Limits, print_results
from scripts.bench.machine import print_machine
from scripts.bench.options import Positives, left_out, usually
from scripts.bench.turns import Workload, measured

import npformer as nf
from npformer import pretrained

B, PROMPT, NEW = 4, 32, 64
GPT2 = {
    "vocab": 50257,
    "d_model": 768,
    "n_heads": 12,
    "n_layers": 12,
    "d_ff": 3072,
    "max_len": 1024,
}
SMALL = GPT2 | {"vocab": 500, "d_model": 96, "n_heads": 4, "n_layers": 2, "d_ff": 384}
TRAINING = {"lr": 1e-4, "weight_decay": 0.1}
CLIP_NORM = 1.0
COLUMNS = ["ms", "spread", "× first", "of sgemm", "of own limit"]
# The same function in one pass, and no dropout.
THEIRS = {"activation_function": "gelu_pytorch_tanh", "embd_pdrop": 0.0}


@command_line
def main(
    turns: usually(rounds=5, seconds=1.0),
    *,
    lengths: Positives = "64,512",
    without: left_out(["transformers"]) = (),
):
    """Time GPT-2.

    Parameters
    ----------
    quick
        a small model, 3 short rounds
    lengths
        of the texts of a step
    """
    facts = print_machine("torch", "transformers")
    shape = SMALL if turns.quick else GPT2
    wanted = of_backends(["cpu"], build_npformer)
    if "transformers" not in without:
        wanted.append(("transformers", ("torch", "transformers"), build_transformers))
    cases = [("step", T) for T in lengths]
    cases.append(("generate", NEW))
    with started(wanted) as contenders, Limits(turns.sgemm_sizes) as limits:
        results = [measure(shape, *case, contenders, limits, turns) for case in cases]
    write_json(turns.json, {"machine": facts, "shape": shape, "results": results})
    print_results(results, COLUMNS)


def measure(shape, kind, n, contenders, limits, turns):
    """The times of a training step of B texts of n tokens, or of the generation of n tokens."""
    work = shape, kind, n
    what = f"step, B {B}, T {n}" if kind == "step" else f"{n} new tokens"
    workload = Workload(work, flops_of(*work), partial(build_npformer, *work, "cpu"), differs)
    return {"what": what} | measured(contenders, workload, turns, limits)


def differs(theirs, ours):
    return not np.allclose(theirs, ours, rtol=1e-3)


def flops_of(shape, kind, n):
    """The operations of the products with weights; the table of positions is in none."""
    n_parameters = nf.tree.count(model_of(shape).shapes())
    n_weights = n_parameters - shape["max_len"] * shape["d_model"]
    return 6 * n_weights * B * n if kind == "step" else 2 * n_weights * (PROMPT + n)


def model_of(shape):
    return nf.LanguageModel(**shape, positions="learned", scale_embeddings=False)


def ids_of(shape, n_rows, length):
    return np.random.default_rng(0).integers(0, shape["vocab"], (n_rows, length))


def build_npformer(shape, kind, n, backend):
    """A step that returns its loss, or the generation that returns its tokens."""
    model = model_of(shape)
    if kind == "generate":
        params = nf.tree.fixed(model.init(0))
        prompt = ids_of(shape, 1, PROMPT)
        return lambda: nf.greedy_decode(model, params, prompt, max_len=n, backend=backend)[0]
    trainer = nf.Trainer(model, nf.AdamW(**TRAINING), clip_norm=CLIP_NORM, backend=backend)
    ids = ids_of(shape, B, n + 1)
    return lambda: trainer.step(ids)


def build_transformers(shape, kind, n):
    """The same with ``GPT2LMHeadModel`` of transformers, in PyTorch's eager mode."""
    from scripts.bench.peers.transformers_models import generation, training_step

    model = model_of(shape)
    with tempfile.TemporaryDirectory() as folder:
        pretrained.save(folder, model, model.init(0))
        if kind == "generate":
            return generation(folder, ids_of(shape, 1, PROMPT), n, **THEIRS)
        ids = ids_of(shape, B, n + 1)
        return training_step(folder, ids, clip_norm=CLIP_NORM, **TRAINING, **THEIRS)


if __name__ == "__main__":
    sys.exit(main())
