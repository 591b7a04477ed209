"""Time models that exist, npformer, transformers and llama.cpp in turns: a language model, and
vectors of sentences.

python scripts/bench/bench_pretrained.py --language-model SmolLM2.gguf --sentence-model minilm
python scripts/bench/bench_pretrained.py --language-model FOLDER --without llama.cpp

All are in float32, or in 8-bit integers if the name says so, and use every core. Of a prompt of 32
tokens, generation continues with 64, greedy; a prompt of 512 tokens is read for one token. 32
sentences become vectors at once. Without integers, a contender whose result differs is left out.
llama.cpp (the package llama-cpp-python) takes part where it is installed and the model is a GGUF
file. The own limit of the work, in float32, is explained in own_limit.py.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from npformer.commands.shared import (  # needs pip install -e .
    UsageError,
    command_line,
    write_json,
)
from scripts.bench.contenders import of_backends, started
from scripts.bench.limits import Limits, print_results
from scripts.bench.machine import print_machine
from scripts.bench.options import left_out, usually
from scripts.bench.turns import Workload, measured

import npformer as nf
from npformer import pretrained, tree

PROMPT, NEW, LONG, SENTENCES, SHORT = 32, 64, 512, 32, 24  # tokens, sentences, tokens of a sentence
WORK = {
    "first": f"a prompt of {PROMPT}",
    "generate": f"and {NEW} new tokens",
    "prompt": f"a prompt of {LONG}",
    "vectors": f"{SENTENCES} vectors",
}
COLUMNS = ["ms", "spread", "× first", "of sgemm", "of own limit", "of reading", "MB"]
LLAMA_CPP = {"llama.cpp": "F32", "llama.cpp Q8_0": "Q8_0"}  # in what its matrices are stored
LIBRARIES = {
    "npformer int8": (),
    "transformers": ("torch", "transformers"),
    **dict.fromkeys(LLAMA_CPP, ("llama_cpp",)),
}
INT8 = "npformer int8", "llama.cpp Q8_0"  # whose results may differ


@command_line
def main(
    turns: usually(rounds=7, seconds=2.0),
    *,
    language_model: Path | None = None,
    sentence_model: Path | None = None,
    without: left_out(LIBRARIES) = (),
):
    """Time models that exist.

    Parameters
    ----------
    language_model : FILE
        a GGUF file or a folder with a Llama
    sentence_model : DIR
        a folder with a BERT
    """
    works = []
    if language_model:
        works.append((language_model, ("first", "generate", "prompt")))
    if sentence_model:
        works.append((sentence_model, ("vectors",)))
    if not works:
        expected = "expected --language-model, --sentence-model, or both"
        raise UsageError(f"nothing to measure, {expected}")
    facts = print_machine("torch", "transformers")
    others = [name for name in LIBRARIES if name not in without]
    results = []
    with Limits(turns.sgemm_sizes) as limits:
        for path, kinds in works:
            results += measured_model(path, kinds, others, turns, limits)
    write_json(turns.json, {"machine": facts, "results": results})
    print_results(results, COLUMNS)


def measured_model(path, kinds, others, turns, limits):
    """The results of each kind of work with a model."""
    if path.suffix != ".gguf":
        others = [name for name in others if name not in LLAMA_CPP]
    wanted = of_backends(["cpu"], build_npformer)
    wanted += [(name, LIBRARIES[name], partial(build_other, name)) for name in others]
    results = {}
    with tempfile.TemporaryDirectory() as folder, started(wanted) as contenders:
        work = prepared(path, Path(folder) / path.stem, others)
        for kind in kinds:
            first = results["first"]["contenders"] if kind == "generate" else {}
            results[kind] = measure(work, kind, contenders, limits, turns, first)
    return list(results.values())


def prepared(path, folder, others):
    """The files of each library, in float32, the inputs, and the numbers of weights."""
    model, params, tokenizer = pretrained.load(path)
    pretrained.save(folder, model, params, tokenizer)
    files = dict.fromkeys(["npformer", "npformer int8", "transformers"], str(folder))
    for name, kind in LLAMA_CPP.items():
        if name in others:
            from scripts.bench.peers.llama_cpp_model import converted

            files[name] = converted(path, folder / f"{kind}.gguf", kind)
    ids = np.random.default_rng(0).integers(1000, model.vocab, (SENTENCES, LONG))
    weights = tree.count(params)
    return {"files": files, "ids": ids, "weights": weights, "table": params["embedding"].size}


def measure(work, kind, contenders, limits, turns, first):
    """The times of one kind of work, and how near they are to the limits.

    Reading the weights limits each new token but the first one, which waits for the products of the
    prompt: ``first`` has the figures of that.
    """
    own_limit_of = partial(build_npformer, work, kind, "cpu")
    workload = Workload((work, kind), flops_of(work, kind), own_limit_of, differs, INT8)
    result = measured(contenders, workload, turns, limits)
    n_read = weights_read(work, kind)
    for name, found in result["contenders"].items():
        reading = found["seconds"]["median"]
        if name in first:
            reading -= first[name]["seconds"]["median"]
        bytes_read = n_read if name in INT8 else 4 * n_read
        found["share_of_reading"] = bytes_read / 1e9 / result["limits"]["read"] / reading
        if name in INT8:
            found["share_of_own_limit"] = None  # which is that of the float32 work
    return {"what": WORK[kind]} | result


def differs(theirs, ours):
    return not np.allclose(theirs, ours, atol=1e-3)


def flops_of(work, kind):
    """The operations of the products; a prompt needs the output of its last token alone."""
    weights = work["weights"]
    inner = weights - work["table"]
    n_multiplied = {
        "first": PROMPT * inner + weights,
        "generate": NEW * weights + PROMPT * inner,
        "prompt": LONG * inner,
        "vectors": SHORT * SENTENCES * inner,
    }
    return 2 * n_multiplied[kind]


def weights_read(work, kind):
    """How many weights are read."""
    if kind == "generate":
        return (NEW - 1) * work["weights"]
    return work["weights"] - work["table"]


def build_npformer(work, kind, backend, int8=False):
    """The work of one kind, which returns its result."""
    model, params, _ = pretrained.load(work["files"]["npformer"])
    params = tree.fixed(nf.quantize(params) if int8 else params)
    ids = inputs(work, kind)
    if kind == "vectors":
        return lambda: model.vectors(params, ids, backend=backend)
    return lambda: nf.greedy_decode(model, params, ids, max_len=n_new(kind), backend=backend)[0]


def build_other(name, work, kind):
    """The same with another library, or with integers."""
    if name == "npformer int8":
        return build_npformer(work, kind, "cpu", int8=True)
    if name in LLAMA_CPP:
        from scripts.bench.peers.llama_cpp_model import generation as build
    elif kind == "vectors":
        from scripts.bench.peers.transformers_models import vectors as build
    else:
        from scripts.bench.peers.transformers_models import generation as build
    return build(work["files"][name], inputs(work, kind), n_new(kind))


def inputs(work, kind):
    """The ids of the work."""
    if kind == "vectors":
        return work["ids"][:, :SHORT]
    return work["ids"][:1] if kind == "prompt" else work["ids"][:1, :PROMPT]


def n_new(kind):
    """The number of new tokens."""
    return NEW if kind == "generate" else 1


if __name__ == "__main__":
    sys.exit(main())
