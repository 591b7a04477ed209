"""Translate a test text and score the translations with BLEU and chrF, in all and by the length of
the source.

npformer evaluate --model runs/en-fr --data data/multi30k --src en --tgt fr
npformer evaluate --model runs/en-fr --data data/multi30k --src en --tgt fr --split val --beam 1

All lines are checked before the first is translated: the scores are those of the whole text. A line
that is not UTF-8, empty or too long for the model is named, and must be mended first; --skip-empty
leaves pairs with an empty line out.

BLEU is given twice, each with its signature: with the defaults of sacreBLEU (cased, detokenised),
and on lower-cased text tokenised with the Moses tokeniser, as in the literature on Multi30k.
"""

import time
from pathlib import Path

from npformer.commands.arguments import add_backend, add_model, new_parser
from npformer.commands.command import command
from npformer.commands.decoding import add_search, search_of
from npformer.commands.models import load_own
from npformer.commands.output import (
    add_json,
    output_file,
    picture_file,
    refuse_overwriting,
    write_json,
    write_whole,
)

from npformer.errors import UserError
from npformer.files.checkpoint import RESULT
from npformer.runtime.ranks import checksum, world
from npformer.text import ParallelText, Translator, score
from npformer.text.lines import bad_lines
from npformer.text.scores import check_packages

UNLIMITED = 10**9
SHOWN = 5  # lines that cannot be evaluated are named, the others counted
NAMES = {
    "bleu_lower": "BLEU, lower-cased, tokenised",
    "bleu": "BLEU, cased, detokenised",
    "chrf": "chrF",
}
# Words of the source, from the first to the last of each range.
LENGTHS = [(1, 8), (9, 10), (11, 12), (13, 15), (16, 20), (21, UNLIMITED)]
SPLIT = "test_2016_flickr"


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
    translator = load_own(Translator, options, "evaluate")
    src, tgt = languages(translator, options)
    try:
        text = ParallelText.find(
            options.data, options.split, src, tgt, skip_empty=options.skip_empty
        )
    except FileNotFoundError as error:
        advice = "--split is the beginning of the names"
        raise FileNotFoundError(f"{error}; {advice}") from error
    inputs = [text.source, text.target, options.model, options.model / RESULT]
    refuse_overwriting(options, inputs)
    check_lines(translator, text)  # now, not when the lines before have been translated
    sources, references = zip(*text, strict=True)
    start = time.perf_counter()
    search = search_of(options)
    ranks = world()
    texts = checksum([*sources, *references])
    ranks.agree(lambda: {"model": translator.checksum(), "text": texts})
    mine = list(translator.translate(ranks.my_share(sources), **search))
    translations = ranks.gather_lists(mine)
    seconds = time.perf_counter() - start
    if options.out and ranks.is_first:
        write_whole(options.out, "".join(f"{line}\n" for line in translations).encode())
    return {
        "model": str(options.model),
        "split": options.split,
        "pair": [src, tgt],
        "search": search,
        "sentences": len(sources),
        "seconds": seconds,
        "n_ranks": ranks.size,
        "scores": score(translations, references, tgt),
        "by_length": by_length(sources, translations, references, tgt),
    }


def check_lines(translator, text):
    """Raise an error that names the lines that cannot be translated or scored: scores are those of
    all lines.
    """
    encode = lambda line, number: translator.encode([line], first=number)
    messages = bad_lines(text.source, text.skip_empty, encode)
    messages += bad_lines(text.target, text.skip_empty)
    if not messages:
        return
    if len(messages) == 1:
        raise UserError(f"{messages[0]}; nothing was translated")
    shown = messages[:SHOWN]
    if len(messages) > SHOWN:
        shown.append(f"{len(messages) - SHOWN:,} more, too")
    what = f"{len(messages):,} lines cannot be evaluated, and nothing was translated"
    raise UserError(f"{what}: {'; '.join(shown)}")


def languages(translator, options):
    """The languages from the command line, or else those in the model's file."""
    settings = (translator.info or {}).get("settings", {})
    pair = []
    for name in ("src", "tgt"):
        typed = getattr(options, name)
        of_model = settings.get(name)
        if typed and of_model and typed != of_model:
            raise UserError(f"--{name} {typed}, but the model was trained on {of_model}")
        if not (typed or of_model):
            reason = "the model's file does not name the language it was trained on"
            raise UserError(f"--{name} is missing: {reason}")
        pair.append(typed or of_model)
    return pair


def by_length(sources, translations, references, language):
    """The scores of the sentences of each range of lengths."""
    pairs = list(zip(sources, translations, references, strict=True))
    rows = []
    for shortest, longest in LENGTHS:
        some = [pair[1:] for pair in pairs if shortest <= len(pair[0].split()) <= longest]
        if some:
            translated, expected = map(list, zip(*some, strict=True))
            scores = score(translated, expected, language)
            del scores["signatures"]
            rows.append({"words": [shortest, longest], "sentences": len(some), **scores})
    return rows


def words_of(row):
    shortest, longest = row["words"]
    return f"{shortest} to {longest}" if longest < UNLIMITED else f"{shortest} and more"


def draw(result, path):
    from npformer.plots import plot_curves

    rows = result["by_length"]
    names = NAMES | {"bleu": "BLEU, cased"}
    panel = {
        "at": range(len(rows)),
        "labels": [f"{words_of(row)}\n({row['sentences']})" for row in rows],
        "systems": {title: [[row[name] for row in rows]] for name, title in names.items()},
        "title": f"{pair_of(result)}, {result['split']}",
        "xlabel": "words of the source (number of sentences)",
        "ylabel": "score",
        "ylim": (0, 100),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    plot_curves([panel], path)


def pair_of(result):
    return " to ".join(result["pair"])


def report(result):
    sentences = f"{result['sentences']} sentences in {result['seconds']:.1f} s"
    print(f"{pair_of(result)}, {result['split']}: {sentences}")
    scores = result["scores"]
    for name, title in NAMES.items():
        print(f"  {title:<30} {scores[name]:5.1f}   {scores['signatures'][name]}")
    print("\nwords of the source   sentences   BLEU lower-cased   BLEU cased   chrF")
    for row in result["by_length"]:
        print(
            f"{words_of(row):<20}  {row['sentences']:>9}   {row['bleu_lower']:>16.1f}   "
            f"{row['bleu']:>10.1f}   {row['chrf']:>4.1f}"
        )


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    add_model(parser)
    parser.add(
        "--data",
        "folder with the aligned files, plain or .gz",
        type=Path,
        required=True,
        metavar="DIR",
    )
    parser.add("--src", "language of the source (default: the model's)")
    parser.add("--tgt", "language of the target (default: the model's)")
    parser.add_flag("--skip-empty", "leave out pairs with an empty line")
    parser.add(
        "--split",
        "beginning of the files' names: test for test.en, test.fr",
        default=SPLIT,
    )
    add_search(parser)
    parser.add("--out", "write the translations to FILE", type=output_file, metavar="FILE")
    parser.add("--plot", "draw the scores by length", type=picture_file, metavar="PNG")
    add_json(parser)
    add_backend(parser, int8=True)
    return parser.parse_args(argv)
