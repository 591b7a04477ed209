"""Time models that exist, npformer, transformers and llama.cpp in turns: a language model, and vectors of sentences.

python scripts/bench/bench_pretrained.py --language-model SmolLM2.gguf --sentence-model models/minilm
python scripts/bench/bench_pretrained.py --language-model FOLDER --without llama.cpp

All are in float32, or in 8-bit integers if the name says so, and use every core. Of a prompt of 32 tokens, generation
continues with 64, greedy; a prompt of 512 tokens is read for one token. 32 sentences become vectors at once. Without
integers, a contender whose result differs is left out. llama.cpp (the package llama-cpp-python) takes part where it is
installed and the model is a GGUF file. The own limit of the work, in float32, is explained in own_limit.py.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from npformer.commands.command import command  # needs pip install -e .
from npformer.commands.output import write_json
from scripts.bench.contenders import agreeing, build_all, of_backends, started
from scripts.bench.limits import alternate_with, limits_contender, measure_own_limit, print_limits
from scripts.bench.machine import machine, print_machine
from scripts.bench.options import add_without, parsed, parser_of
from scripts.bench.report import percent, print_table, rated, time_cells, timing

import npformer as nf
from npformer import pretrained, tree

PROMPT, NEW, LONG, SENTENCES, SHORT = 32, 64, 512, 32, 24  # tokens, sentences, tokens of a sentence
WORK = {
    "first": f"a prompt of {PROMPT}",
    "generate": f"and {NEW} new tokens",
    "prompt": f"a prompt of {LONG}",
    "vectors": f"{SENTENCES} vectors",
}
SHARES = {"of sgemm": "share_of_sgemm", "of own limit": "share_of_own_limit", "of reading": "share_of_reading"}
LIBRARIES = {"npformer int8": (), "transformers": ("torch", "transformers")}
LLAMA_CPP = {"llama.cpp": "F32", "llama.cpp Q8_0": "Q8_0"}  # in what its matrices are stored
LIBRARIES |= dict.fromkeys(LLAMA_CPP, ("llama_cpp",))
INT8 = "npformer int8", "llama.cpp Q8_0"  # whose results may differ


@command
def main(argv=None):
    parser = parser_of(__doc__, rounds=7, seconds=2.0, quick_seconds=0.1, quick="3 short rounds")
    parser.add_argument("--language-model", type=Path, metavar="FILE", help="a GGUF file or a folder with a Llama")
    parser.add_argument("--sentence-model", type=Path, metavar="DIR", help="a folder with a BERT")
    add_without(parser, list(LIBRARIES))
    options = parsed(parser, argv)
    given = {options.language_model: ("first", "generate", "prompt"), options.sentence_model: ("vectors",)}
    given.pop(None, None)
    if not given:
        parser.error("nothing to measure, expected --language-model, --sentence-model, or both")
    facts, results = print_machine(machine("torch", "transformers")), []
    with tempfile.TemporaryDirectory() as folder, limits_contender(options.sgemm_sizes) as limits:
        for path, kinds in given.items():
            others = {name: LIBRARIES[name] for name in LIBRARIES if name not in options.without}
            if path.suffix != ".gguf":
                others = {name: found for name, found in others.items() if name not in LLAMA_CPP}
            work = prepared(path, Path(folder) / path.stem, others)
            wanted = of_backends(["cpu"], build_npformer)
            wanted += [(name, libraries, partial(build_other, name)) for name, libraries in others.items()]
            with started(wanted) as contenders:
                for kind in kinds:
                    results.append(measured(work, kind, contenders, limits, options, results))
    write_json(options.json, {"machine": facts, "results": results})
    rows = [
        [result["what"], name, *time_cells(found), *(percent(found[share]) for share in SHARES.values())]
        + [f"{found['memory'] / 1e6:,.0f}"]
        for result in results
        for name, found in result["contenders"].items()
    ]
    print_table(["", "", "ms", "spread", "x npformer", *SHARES, "MB"], rows)
    print_limits(results)


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
    return {"files": files, "ids": ids, "weights": tree.count(params), "table": params["embedding"].size}


def measured(work, kind, contenders, limits, options, before):
    """The times of one kind of work, and how near they are to the limits.

    Reading the weights limits each new token after the first one, which waits for the products of the prompt: its time
    is in the results before.
    """
    able = agreeing(build_all(contenders, work, kind), lambda a, b: not np.allclose(a, b, atol=1e-3), INT8)
    measure_own_limit(limits, options.sgemm_sizes, partial(build_npformer, work, kind, "cpu"))
    turns, facts = alternate_with(limits, able, options)
    weights, inner = work["weights"], work["weights"] - work["table"]
    n_numbers = {
        "first": PROMPT * inner + weights,
        "generate": NEW * weights + PROMPT * inner,
        "prompt": LONG * inner,
        "vectors": SHORT * SENTENCES * inner,
    }
    firsts = before[-1]["contenders"] if kind == "generate" else {}
    n_read = (NEW - 1) * weights if kind == "generate" else inner
    figures = {}
    for contender in able:
        found, memory = rated(timing(turns, contender.name), 2 * n_numbers[kind], facts), contender.memory()
        bytes_read, first = (1 if contender.name in INT8 else 4) * n_read, firsts.get(contender.name)
        reading = found["seconds"]["median"] - (first["seconds"]["median"] if first else 0)
        if contender.name in INT8:
            found["share_of_own_limit"] = None  # which is that of the float32 work
        found["share_of_reading"] = 1e-9 * bytes_read / facts["limits"]["read"] / reading
        figures[contender.name] = found | {"memory": memory.running_peak - memory.libraries}
    return {"what": WORK[kind], **facts, "contenders": figures}


def build_npformer(work, kind, backend, int8=False):
    """The work of one kind, which returns its result."""
    model, params, _ = pretrained.load(work["files"]["npformer"])
    params, ids = tree.fixed(nf.quantize(params) if int8 else params), inputs(work, kind)
    if kind == "vectors":
        return lambda: model.vectors(params, ids, backend=backend)
    return lambda: nf.greedy_decode(model, params, ids, max_len=n_new(kind), backend=backend)[0]


def build_other(name, work, kind):
    """The same with another library, or with integers."""
    if name == "npformer int8":
        return build_npformer(work, kind, "cpu", int8=True)
    if name == "transformers":
        from scripts.bench.peers.transformers_models import generation, vectors

        return (vectors if kind == "vectors" else generation)(work["files"][name], inputs(work, kind), n_new(kind))
    from scripts.bench.peers.llama_cpp_model import generation

    return generation(work["files"][name], inputs(work, kind), n_new(kind))


def inputs(work, kind):
    """The ids of the work."""
    return {"prompt": work["ids"][:1], "vectors": work["ids"][:, :SHORT]}.get(kind, work["ids"][:1, :PROMPT])


def n_new(kind):
    """The number of new tokens."""
    return NEW if kind == "generate" else 1


if __name__ == "__main__":
    sys.exit(main())
