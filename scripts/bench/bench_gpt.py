"""Time GPT-2 (124 million parameters): a training step and cached generation, npformer and transformers in turns.

python scripts/bench/bench_gpt.py                    # minutes
python scripts/bench/bench_gpt.py --quick            # a small model
python scripts/bench/bench_gpt.py --lengths 64 --rounds 9

Both start with the same parameters, are in float32 and use every core; a step ends with AdamW and clipping. Of one
prompt of 32 tokens, generation continues with 64, greedy. A contender whose loss or tokens differ is left out. A
step's own limit is explained in own_limit.py.
"""

import functools
import sys
import tempfile

import numpy as np

from npformer.commands.command import command  # needs pip install -e .
from npformer.commands.output import write_json
from scripts.bench.contenders import agreeing, build_all, of_backends, started
from scripts.bench.limits import alternate_with, limits_contender, measure_own_limit, print_limits
from scripts.bench.machine import machine, print_machine
from scripts.bench.options import add_without, parsed, parser_of, positives
from scripts.bench.report import percent, print_table, rated, time_cells, timing

import npformer as nf
from npformer import pretrained

B, PROMPT, NEW = 4, 32, 64
GPT2 = {"vocab": 50257, "d_model": 768, "n_heads": 12, "n_layers": 12, "d_ff": 3072, "max_len": 1024}
SMALL = {"vocab": 500, "d_model": 96, "n_heads": 4, "n_layers": 2, "d_ff": 384, "max_len": 1024}
LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM = 1e-4, 0.1, 1.0
SHARES = {"of sgemm": "share_of_sgemm", "of own limit": "share_of_own_limit"}
THEIRS = {"activation_function": "gelu_pytorch_tanh", "embd_pdrop": 0.0}  # the same function in one pass; no dropout


@command
def main(argv=None):
    parser = parser_of(__doc__, rounds=5, seconds=1.0, quick_seconds=0.1, quick="a small model, 3 short rounds")
    parser.add_argument("--lengths", type=positives, default=[64, 512], metavar="T,T", help="(default: 64,512)")
    add_without(parser, ["transformers"])
    options = parsed(parser, argv)
    facts = print_machine(machine("torch", "transformers"))
    shape = SMALL if options.quick else GPT2
    wanted = of_backends(["cpu"], build_npformer)
    if "transformers" not in options.without:
        wanted.append(("transformers", ("torch", "transformers"), build_transformers))
    cases = [("step", T) for T in options.lengths] + [("generate", NEW)]
    with started(wanted) as contenders, limits_contender(options.sgemm_sizes) as limits:
        results = [measured(shape, *case, contenders, limits, options) for case in cases]
    write_json(options.json, {"machine": facts, "shape": shape, "results": results})
    rows = [
        [result["what"], name, *time_cells(found), *(percent(found[share]) for share in SHARES.values())]
        for result in results
        for name, found in result["contenders"].items()
    ]
    print_table(["", "", "ms", "spread", "x npformer", *SHARES], rows)
    print_limits(results)


def measured(shape, kind, n, contenders, limits, options):
    """The times of a training step of B texts of n tokens, or of the generation of n tokens."""
    able = agreeing(build_all(contenders, shape, kind, n), lambda a, b: not np.allclose(a, b, rtol=1e-3))
    measure_own_limit(limits, options.sgemm_sizes, functools.partial(build_npformer, shape, kind, n, "cpu"))
    turns, facts = alternate_with(limits, able, options)
    n_weights = sum(x.size for _, x in nf.tree.leaves(model_of(shape).shapes())) - shape["max_len"] * shape["d_model"]
    flops = 6 * n_weights * B * n if kind == "step" else 2 * n_weights * (PROMPT + n)
    what = f"step, B {B}, T {n}" if kind == "step" else f"{n} new tokens"
    return {"what": what, **facts, "contenders": {name: rated(timing(turns, name), flops, facts) for name in turns}}


def model_of(shape):
    return nf.LanguageModel(**shape, positions="learned", scale_embeddings=False)


@functools.cache
def ids_of(vocab, n_rows, length):
    return np.random.default_rng(0).integers(0, vocab, (n_rows, length))


def build_npformer(shape, kind, n, backend):
    """A step that returns its loss, or the generation that returns its tokens."""
    model = model_of(shape)
    if kind == "generate":
        params, prompt = nf.tree.fixed(model.init(0)), ids_of(shape["vocab"], 1, PROMPT)
        return lambda: nf.greedy_decode(model, params, prompt, max_len=n, backend=backend)[0]
    optimizer = nf.AdamW(LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    trainer = nf.Trainer(model, optimizer, clip_norm=CLIP_NORM, backend=backend)
    ids = ids_of(shape["vocab"], B, n + 1)
    return lambda: trainer.step(ids)


def build_transformers(shape, kind, n):
    """The same with ``GPT2LMHeadModel`` of transformers, in PyTorch's eager mode."""
    from scripts.bench.peers.transformers_models import generation, training_step

    model = model_of(shape)
    with tempfile.TemporaryDirectory() as folder:
        pretrained.save(folder, model, model.init(0))
        if kind == "generate":
            return generation(folder, ids_of(shape["vocab"], 1, PROMPT), n, **THEIRS)
        settings = {"lr": LEARNING_RATE, "weight_decay": WEIGHT_DECAY, "clip_norm": CLIP_NORM}
        return training_step(folder, ids_of(shape["vocab"], B, n + 1), **settings, **THEIRS)


if __name__ == "__main__":
    sys.exit(main())
