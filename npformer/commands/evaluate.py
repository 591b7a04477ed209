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
from dataclasses import asdict
from pathlib import Path

from npformer.commands.shared import (
    JsonFile,
    OutputFile,
    Picture,
    command_line,
    refuse_overwriting,
    write_json,
    write_whole,
)
from npformer.commands.shared.decoding import Search
from npformer.commands.shared.lines import in_short
from npformer.commands.shared.models import TrainedModel

from npformer.arrays import digest
from npformer.errors import UserError
from npformer.files.checkpoint import RESULT
from npformer.runtime.ranks import world
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


@command_line
def main(
    *,
    trained: TrainedModel,
    data: Path,
    src: str | None = None,
    tgt: str | None = None,
    skip_empty: bool = False,
    split: str = "test_2016_flickr",
    search: Search,
    out: OutputFile | None = None,
    plot: Picture | None = None,
    json: JsonFile | None = None,
):
    """Translate a text, and score the translations.

    Parameters
    ----------
    data : DIR
        folder with the aligned files, plain or .gz
    src
        language of the source (default: the model's)
    tgt
        language of the target (default: the model's)
    skip_empty
        leave out pairs with an empty line
    split
        beginning of the files' names: test for test.en, test.fr
    out
        write the translations to FILE
    plot
        draw the scores by length
    """
    check_packages()
    translator = trained.load(Translator, "evaluate")
    settings = (translator.info or {}).get("settings", {})
    pair = [language_of("src", src, settings), language_of("tgt", tgt, settings)]
    text = find_text(data, split, pair, skip_empty)
    refuse_overwriting([text.source, text.target, trained.model, trained.model / RESULT])
    check_lines(translator, text)  # now, not when the lines before have been translated
    sources, references = zip(*text, strict=True)
    start = time.perf_counter()
    ranks = world()
    translations = translated(translator, sources, references, asdict(search), ranks)
    if not ranks.is_first:
        return
    seconds = time.perf_counter() - start
    if out:
        write_whole(out, "".join(f"{line}\n" for line in translations).encode())
    result = {
        "model": str(trained.model),
        "split": split,
        "pair": pair,
        "search": asdict(search),
        "sentences": len(sources),
        "seconds": seconds,
        "n_ranks": ranks.size,
        "scores": score(translations, references, pair[1]),
        "by_length": by_length(sources, translations, references, pair[1]),
    }
    write_json(json, result)
    if plot:
        draw(result, plot)
    report(result)


def find_text(data, split, pair, skip_empty):
    """The text in the files of a folder whose names begin with ``split``."""
    try:
        return ParallelText.find(data, split, *pair, skip_empty=skip_empty)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; --split is the beginning of the names") from error


def translated(translator, sources, references, search, ranks):
    """The translations of sources, of which each rank makes its share."""
    texts = digest([*sources, *references])
    ranks.agree(lambda: {"model": translator.digest(), "text": texts})
    mine = translator.translate(ranks.my_share(sources), **search)
    return ranks.gather_lists(list(mine))


def language_of(name, typed, settings):
    """The language from the command line, or else that in the settings of the model's training."""
    of_model = settings.get(name)
    if typed and of_model and typed != of_model:
        raise UserError(f"--{name} {typed}, but the model was trained on {of_model}")
    if not (typed or of_model):
        raise UserError(
            f"--{name} is missing: the model's file does not name the language it was trained on"
        )
    return typed or of_model


def check_lines(translator, text):
    """Raise an error that names the lines that cannot be translated or scored: scores are those of
    all lines.
    """
    messages = [*bad_lines(text.source, text.skip_empty, translator.check_line)]
    messages += bad_lines(text.target, text.skip_empty)
    if not messages:
        return
    if len(messages) == 1:
        raise UserError(f"{messages[0]}; nothing was translated")
    raise UserError(
        f"{len(messages):,} lines cannot be evaluated, "
        f"and nothing was translated: {in_short(messages, SHOWN)}"
    )


def by_length(sources, translations, references, language):
    """The scores of the sentences of each range of lengths."""
    rows = []
    lengths = [len(source.split()) for source in sources]
    for shortest, longest in LENGTHS:
        some = [i for i, length in enumerate(lengths) if shortest <= length <= longest]
        if some:
            ours = [translations[i] for i in some]
            scores = score(ours, [references[i] for i in some], language)
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
    print(
        f"{pair_of(result)}, {result['split']}: "
        f"{result['sentences']} sentences in {result['seconds']:.1f} s"
    )
    scores = result["scores"]
    for name, title in NAMES.items():
        print(f"  {title:<30} {scores[name]:5.1f}   {scores['signatures'][name]}")
    print("\nwords of the source   sentences   BLEU lower-cased   BLEU cased   chrF")
    for row in result["by_length"]:
        print(
            f"{words_of(row):<20}  {row['sentences']:>9}   {row['bleu_lower']:>16.1f}   "
            f"{row['bleu']:>10.1f}   {row['chrf']:>4.1f}"
        )
