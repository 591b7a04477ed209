"""Time language models and vectors of sentences, of models that exist or of GPT-2 with random
numbers, with npformer, transformers and llama.cpp in turns.

python scripts/bench/bench_pretrained.py --language-model SmolLM2.gguf --sentence-model minilm
python scripts/bench/bench_pretrained.py --language-model FOLDER --without llama.cpp
python scripts/bench/bench_pretrained.py --gpt2         # training steps and generation: minutes
python scripts/bench/bench_pretrained.py --gpt2 --quick # of a small model

All are in float32, or in 8-bit integers if the name says so, and use every core. Of a prompt of 32
tokens, generation continues with 64, greedy; a prompt of 512 tokens is read for one token. 32
sentences become vectors at once. A training step of GPT-2, of four texts, ends with AdamW and
clipping. Without integers, a contender whose result differs is left out. llama.cpp (the package
llama-cpp-python) takes part where it is installed and the model is a GGUF file. The own limit of
the work, in float32, is explained in own_limit.py.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from npformer.commands.shared import UsageError  # needs pip install -e .
from scripts.bench.benchmark import benchmark
from scripts.bench.contenders import of_backends, started
from scripts.bench.limits import Limits, print_results
from scripts.bench.options import Positives, left_out, usually
from scripts.bench.turns import Workload, measured

import npformer as nf
from npformer import pretrained, tree


class Case(NamedTuple):
    """A model that is measured, and what is done with it."""

    path: Path
    works: list
    settings: dict = {}  # of transformers, where its configuration has others


class Work(NamedTuple):
    """What is done with a model: "step", "generate" or "vectors"."""

    kind: str
    n_rows: int
    n_tokens: int  # of a row, or of a prompt
    n_new: int = 0  # tokens that are generated

    def __str__(self):
        if self.kind == "step":
            return f"a step of {self.n_rows} × {self.n_tokens}"
        if self.kind == "vectors":
            return f"{self.n_rows} vectors"
        return f"and {self.n_new} new tokens" if self.n_new > 1 else f"a prompt of {self.n_tokens}"


PROMPT = Work("generate", 1, 32, 1)
GENERATION = Work("generate", 1, 32, 64)
LONG_PROMPT = Work("generate", 1, 512, 1)
VECTORS = Work("vectors", 32, 24)
GPT2 = {
    "vocab": 50257,
    "d_model": 768,
    "n_heads": 12,
    "n_layers": 12,
    "d_ff": 3072,
    "max_len": 1024,
}
SMALL_GPT2 = GPT2 | {"vocab": 500, "d_model": 96, "n_heads": 4, "n_layers": 2, "d_ff": 384}
# What makes transformers fastest: the same function in one pass, and no dropout.
OF_GPT2 = {"activation_function": "gelu_pytorch_tanh", "embd_pdrop": 0.0}
TRAINING = {"lr": 1e-4, "weight_decay": 0.1}
CLIP_NORM = 1.0
COLUMNS = ["ms", "spread", "× first", "of sgemm", "of own limit", "of reading", "MB"]
LLAMA_CPP = {"llama.cpp": "F32", "llama.cpp Q8_0": "Q8_0"}  # in what its matrices are stored
LIBRARIES = {
    "npformer int8": (),
    "transformers": ("torch", "transformers"),
    **dict.fromkeys(LLAMA_CPP, ("llama_cpp",)),
}
INT8 = "npformer int8", "llama.cpp Q8_0"  # whose results may differ
TRAINED = "npformer", "transformers"  # the others have no training steps


@benchmark("torch", "transformers")
def main(
    turns: usually(rounds=7, seconds=2.0, quick_seconds=0.1),
    *,
    language_model: Path | None = None,
    sentence_model: Path | None = None,
    gpt2: bool = False,
    lengths: Positives = "64,512",
    without: left_out(LIBRARIES) = (),
):
    """Time models.

    Parameters
    ----------
    language_model : FILE
        a GGUF file or a folder with a Llama
    sentence_model : DIR
        a folder with a BERT
    gpt2
        GPT-2 with random numbers; with --quick, a small one
    lengths
        of the texts of its training steps
    """
    cases = []
    if language_model:
        cases.append(Case(language_model, [PROMPT, GENERATION, LONG_PROMPT]))
    if sentence_model:
        cases.append(Case(sentence_model, [VECTORS]))
    with tempfile.TemporaryDirectory() as folder:
        if gpt2:
            model = gpt2_model(turns.quick)
            pretrained.save(folder, model, model.init(0))
            steps = [Work("step", 4, n_tokens) for n_tokens in lengths]
            cases.append(Case(Path(folder), [*steps, PROMPT, GENERATION], OF_GPT2))
        if not cases:
            expected = "expected --language-model, --sentence-model, --gpt2, or some of them"
            raise UsageError(f"nothing to measure, {expected}")
        others = [name for name in LIBRARIES if name not in without]
        results = []
        with Limits(turns.sgemm_sizes) as limits:
            for case in cases:
                results += measured_model(case, others, turns, limits)
    print_results(results, COLUMNS)
    return {"results": results}


def gpt2_model(quick):
    """GPT-2, or a small model like it."""
    shape = SMALL_GPT2 if quick else GPT2
    return nf.LanguageModel(**shape, positions="learned", scale_embeddings=False)


def measured_model(case, others, turns, limits):
    """The results of each work with a model."""
    if case.path.suffix != ".gguf":
        others = [name for name in others if name not in LLAMA_CPP]
    entries = of_backends(["cpu"], build_npformer)
    entries += [(name, LIBRARIES[name], partial(build_other, name)) for name in others]
    results = {}
    with tempfile.TemporaryDirectory() as folder, started(entries) as contenders:
        model = prepared(case, Path(folder), others)
        for work in case.works:
            able = contenders
            if work.kind == "step":
                able = [contender for contender in contenders if contender.name in TRAINED]
            results[work] = measure(model, work, able, limits, turns)
    for work, result in results.items():
        prompt = results[PROMPT]["contenders"] if work == GENERATION else {}
        add_share_of_reading(result, model, work, prompt)
    return list(results.values())


def prepared(case, folder, others):
    """The files of each library, in float32, the settings of transformers, and how many numbers are
    in products and in the table of tokens.
    """
    model, params, tokenizer = pretrained.load(case.path)
    pretrained.save(folder, model, params, tokenizer)
    files = dict.fromkeys(["npformer", "npformer int8", "transformers"], str(folder))
    for name, kind in LLAMA_CPP.items():
        if name in others:
            from scripts.bench.peers.llama_cpp_model import converted

            files[name] = converted(case.path, folder / f"{kind}.gguf", kind)
    table = params["embedding"].size
    weights = tree.count(params) - np.size(params.get("positions", ()))
    facts = {"vocab": model.vocab, "weights": weights, "table": table}
    return {"files": files, "settings": case.settings} | facts


def measure(model, work, contenders, limits, turns):
    """The times of a work, and how near they are to the limits of its operations."""
    own_limit_of = partial(build_npformer, model, work, "cpu")
    workload = Workload((model, work), flops_of(model, work), own_limit_of, differs, INT8)
    result = measured(contenders, workload, turns, limits)
    for name, figures in result["contenders"].items():
        if name in INT8:
            figures["share_of_own_limit"] = None  # which is that of the float32 work
    return {"what": str(work)} | result


def add_share_of_reading(result, model, work, prompt):
    """Add how near the times of a work are to the limit of reading the weights.

    It limits each new token but the first one, which waits for the products of the prompt:
    ``prompt`` has the figures of that. It does not limit a training step.
    """
    n_read = model["weights"] - model["table"]
    if prompt:
        n_read = (work.n_new - 1) * model["weights"]
    for name, figures in result["contenders"].items():
        figures["share_of_reading"] = None
        if work.kind == "step":
            continue
        reading = figures["seconds"]["median"]
        if name in prompt:
            reading -= prompt[name]["seconds"]["median"]
        bytes_read = n_read if name in INT8 else 4 * n_read
        figures["share_of_reading"] = bytes_read / 1e9 / result["limits"]["read"] / reading


def differs(theirs, ours):
    return not np.allclose(theirs, ours, atol=1e-3)


def flops_of(model, work):
    """The operations of the products with weights; of a text, only new tokens need the output."""
    inner = model["weights"] - model["table"]
    n_tokens = work.n_rows * work.n_tokens
    if work.kind == "step":
        return 6 * model["weights"] * n_tokens
    if work.kind == "vectors":
        return 2 * inner * n_tokens
    return 2 * (inner * (n_tokens + work.n_new - 1) + model["table"] * work.n_new)


def ids_of(model, work):
    """The ids of a work; those of a step have one more, as each token has a target."""
    n_tokens = work.n_tokens + (work.kind == "step")
    rng = np.random.default_rng(0)
    return rng.integers(model["vocab"] // 50, model["vocab"], (work.n_rows, n_tokens))


def build_npformer(model, work, backend, int8=False):
    """A work, which returns its result."""
    network, params, _ = pretrained.load(model["files"]["npformer"])
    ids = ids_of(model, work)
    if work.kind == "step":
        settings = {"clip_norm": CLIP_NORM, "backend": backend}
        trainer = nf.Trainer(network, nf.AdamW(**TRAINING), params=params, **settings)
        return lambda: trainer.step(ids)
    params = tree.fixed(nf.quantize(params) if int8 else params)
    if work.kind == "vectors":
        return lambda: network.vectors(params, ids, backend=backend)
    return lambda: nf.greedy_decode(network, params, ids, max_len=work.n_new, backend=backend)[0]


def build_other(name, model, work):
    """The same with another library, or with integers."""
    if name == "npformer int8":
        return build_npformer(model, work, "cpu", int8=True)
    file = model["files"][name]
    ids = ids_of(model, work)
    if name in LLAMA_CPP:
        from scripts.bench.peers import llama_cpp_model

        return llama_cpp_model.generation(file, ids, work.n_new)
    from scripts.bench.peers import transformers_models

    if work.kind == "vectors":
        return transformers_models.vectors(file, ids)
    settings = model["settings"]
    if work.kind == "step":
        training = TRAINING | {"clip_norm": CLIP_NORM}
        return transformers_models.training_step(file, ids, **training, **settings)
    return transformers_models.generation(file, ids, work.n_new, **settings)


if __name__ == "__main__":
    sys.exit(main())
