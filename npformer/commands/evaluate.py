"""Translate a test text and score the translations with BLEU and chrF, in all and by the length of the source.

npformer evaluate --model runs/en-fr --data data/multi30k --src en --tgt fr
npformer evaluate --model runs/en-fr --data data/multi30k --src en --tgt fr --split val --beam 1

All lines are checked before the first is translated: the scores are those of the whole text. A line that is not UTF-8,
empty or too long for the model is named, and must be mended first; --skip-empty leaves pairs with an empty line out.

BLEU is given twice, each with its signature: with the defaults of sacreBLEU (cased, detokenised), and on lower-cased
text tokenised with the Moses tokeniser, as in the literature on Multi30k.
"""

import time
from pathlib import Path

from npformer.commands.arguments import add_backend, add_search, new_parser, quantized, search_of
from npformer.commands.command import command
from npformer.commands.output import add_json, output_file, picture_file, refuse_overwriting, write_json, write_whole

from npformer.data import ParallelText
from npformer.data.parallel_text import bad_lines
from npformer.runtime.ranks import checksum, world
from npformer.translation import Translator, score
from npformer.translation.run import RESULT
from npformer.translation.scores import check_packages

UNLIMITED = 10**9
SHOWN = 5  # lines that cannot be evaluated are named, the others counted
NAMES = {"bleu_lower": "BLEU, lower-cased, tokenised", "bleu": "BLEU, cased, detokenised", "chrf": "chrF"}
LENGTHS = [(1, 8), (9, 10), (11, 12), (13, 15), (16, 20), (21, UNLIMITED)]  # words of the source


@command
def main(argv=None):
    options = parse_arguments(argv)
    check_packages()
    result = evaluate(options)
    if not world().is_first:
        return
    write_json(options.json, result)
    if options.plot:
        draw(result, options.plot)
    report(result)


def evaluate(options):
    translator = quantized(Translator.load(options.model, options.backend), options)
    source, target = languages(translator, options)
    try:
        text = ParallelText.find(options.data, options.split, source, target, skip_empty=options.skip_empty)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; --split is the beginning of the names") from error
    outputs = {"--out": options.out, "--plot": options.plot, "--json": options.json}
    refuse_overwriting(outputs, [text.source, text.target, options.model, options.model / RESULT])
    check_lines(translator, text)  # now, not when the lines before have been translated
    sources, references = zip(*text, strict=True)
    start = time.perf_counter()
    search = search_of(options)
    ranks = world()
    ranks.agree(lambda: {"model": translator.checksum(), "text": checksum([*sources, *references])})
    translations = ranks.gather_lists(list(translator.translate(ranks.my_share(sources), **search)))
    seconds = time.perf_counter() - start
    if options.out and ranks.is_first:
        write_whole(options.out, "".join(f"{line}\n" for line in translations).encode())
    return {
        "model": str(options.model),
        "split": options.split,
        "pair": [source, target],
        "search": search,
        "sentences": len(sources),
        "seconds": seconds,
        "n_ranks": ranks.size,
        "scores": score(translations, references, target),
        "by_length": by_length(sources, translations, references, target),
    }


def check_lines(translator, text):
    """Raise an error that names the lines that cannot be translated or scored: scores are those of all lines."""
    messages = bad_lines(text.source, text.skip_empty, lambda line, number: translator.encode([line], first=number))
    messages += bad_lines(text.target, text.skip_empty)
    if not messages:
        return
    first = "; ".join(messages[:SHOWN])
    if len(messages) == 1:
        raise ValueError(f"{first}; nothing was translated")
    rest = f"; {len(messages) - SHOWN:,} more, too" if len(messages) > SHOWN else ""
    raise ValueError(f"{len(messages):,} lines cannot be evaluated, and nothing was translated: {first}{rest}")


def languages(translator, options):
    """The languages from the command line, or else those in the model's file."""
    pair = []
    for name, given in (("src", options.src), ("tgt", options.tgt)):
        trained = (translator.info or {}).get("settings", {}).get(name)
        if given and trained and given != trained:
            raise ValueError(f"--{name} {given}, but the model was trained on {trained}")
        if not (given or trained):
            raise ValueError(f"--{name} is missing: the model's file does not name the language it was trained on")
        pair.append(given or trained)
    return pair


def by_length(sources, translations, references, language):
    """The scores of the sentences of each range of lengths."""
    rows = []
    for shortest, longest in LENGTHS:
        chosen = [i for i, line in enumerate(sources) if shortest <= len(line.split()) <= longest]
        if chosen:
            scores = score([translations[i] for i in chosen], [references[i] for i in chosen], language)
            del scores["signatures"]
            rows.append({"words": [shortest, longest], "sentences": len(chosen), **scores})
    return rows


def words_of(row):
    shortest, longest = row["words"]
    return f"{shortest} to {longest}" if longest < UNLIMITED else f"{shortest} and more"


def draw(result, path):
    from npformer.plots import plot_curves

    source, target = result["pair"]
    rows = result["by_length"]
    panel = {
        "at": range(len(rows)),
        "labels": [f"{words_of(row)}\n({row['sentences']})" for row in rows],
        "systems": {label: [[row[name] for row in rows]] for name, label in (NAMES | {"bleu": "BLEU, cased"}).items()},
        "title": f"{source} to {target}, {result['split']}",
        "xlabel": "words of the source (number of sentences)",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    plot_curves([panel | {"ylabel": "score", "ylim": (0, 100)}], path)


def report(result):
    scores = result["scores"]
    source, target = result["pair"]
    print(f"{source} to {target}, {result['split']}: {result['sentences']} sentences in {result['seconds']:.1f} s")
    for name, title in NAMES.items():
        print(f"  {title:<30} {scores[name]:5.1f}   {scores['signatures'][name]}")
    print("\nwords of the source   sentences   BLEU lower-cased   BLEU cased   chrF")
    for row in result["by_length"]:
        scores = f"{row['bleu_lower']:>16.1f}   {row['bleu']:>10.1f}   {row['chrf']:>4.1f}"
        print(f"{words_of(row):<20}  {row['sentences']:>9}   {scores}")


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="DIR", help="output of a training, or a model file")
    add("--data", type=Path, required=True, metavar="DIR", help="folder with the aligned files, plain or .gz")
    add("--src", help="language of the source (default: the model's)")
    add("--tgt", help="language of the target (default: the model's)")
    add("--skip-empty", action="store_true", help="leave out pairs with an empty line")
    split = "test_2016_flickr"
    add("--split", default=split, help=f"beginning of the files' names: test for test.en, test.fr (default: {split})")
    add_search(parser)
    add("--out", type=output_file, metavar="FILE", help="write the translations to FILE")
    add("--plot", type=picture_file, metavar="PNG", help="draw the scores by length")
    add_json(parser)
    add_backend(parser, int8=True)
    return parser.parse_args(argv)
