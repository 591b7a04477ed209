"""Words written alike wherever they stand: the capital of a sentence and missing spaces become marks, and text again.

Without marks a vocabulary of pieces holds ``▁Un`` and ``▁un``, ``homme`` behind an apostrophe and ``▁homme`` behind a
space, and learns each by itself; with them both are one word beside a mark.

    ↑   the next word, which begins a sentence, begins with a capital
    ‿   on the side where a word or sign has no space
"""

import re
import unicodedata

CAPITAL, JOINED = "↑", "‿"

# A French word that an apostrophe cuts short (l', jusqu'); a word, with hyphens, or behind an apostrophe ('s); signs.
_PART = re.compile(r"(?:[cdjlmnst]|\w*qu)['’](?=\w)|['’]?\w+(?:-\w+)*|[^\w\s]+", re.IGNORECASE)
_OTHERWISE = str.maketrans({CAPITAL: "^", JOINED: "_"} | dict.fromkeys("\u200b\u200e\u200f\ufeff", " "))
_NO_MARKS = str.maketrans(dict.fromkeys([CAPITAL, JOINED]))


def mark(line):
    """A line with parts that touched each other apart, without the capitals of its sentences, and marks that tell.

    Letters are composed first (Unicode's NFKC), as sentencepiece does, so that an accent is never cut from its letter.
    A word such as "TV" keeps its capitals. Signs that are marks, and spaces of no width, are written otherwise.

    Examples
    --------
    >>> mark("L'homme parle à Paul.")
    "↑ l'‿ homme parle à Paul ‿."
    >>> unmark(mark("L'homme parle à Paul."))
    "L'homme parle à Paul."
    """
    words, end, begins = [], None, True
    for match in _PART.finditer(unicodedata.normalize("NFKC", line).translate(_OTHERWISE)):
        part = match.group()
        if match.start() == end and part[0].isalnum():
            words[-1] += JOINED
        elif match.start() == end:
            part = JOINED + part
        elif begins and part != part.lower() and _capital(part.lower()) == part:
            words.append(CAPITAL)
            part = part.lower()
        words.append(part)
        begins, end = part[-1] in ".!?", match.end()
    return " ".join(words)


def unmark(line):
    """What ``mark`` was given, composed and with single spaces; of any other text its words, without marks."""
    text, begins, joined = [], False, True
    for word in line.split():
        if word == CAPITAL:
            begins = True
            continue
        bare = word.translate(_NO_MARKS)
        bare = _capital(bare) if begins else bare
        text.append(bare if joined or word.startswith(JOINED) else f" {bare}")
        begins, joined = False, word.endswith(JOINED)
    return "".join(text)


def _capital(part):
    return part[:1].upper() + part[1:]
