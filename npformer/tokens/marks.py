"""Marks for capitals at the beginning of a sentence and for missing spaces.

Without marks a subword vocabulary holds both ``▁Un`` and ``▁un``, and both ``homme`` (after an
apostrophe) and ``▁homme`` (after a space), and a model learns each separately. With marks each pair
is one word, which is always written alike, and a mark. ``unmark`` restores the text.

    ↑   the next word is the first of a sentence and begins with a capital
    ‿   on the side where a word or sign has no space
"""

import re
import unicodedata

CAPITAL, JOINED = "↑", "‿"

# A French word that ends with an apostrophe (l', jusqu'); a word, with hyphens, or after an
# apostrophe ('s); signs.
_PART = re.compile(r"(?:[cdjlmnst]|\w*qu)['’](?=\w)|['’]?\w+(?:-\w+)*|[^\w\s]+", re.IGNORECASE)
_OTHERWISE = str.maketrans(
    {CAPITAL: "^", JOINED: "_"} | dict.fromkeys("\u200b\u200e\u200f\ufeff", " ")
)
# unicodedata sorts the accents on one letter in a time that grows with the square of their number,
# so no more than 30 are normalised together. No text of any language has as many on a letter.
_MANY_ACCENTS = re.compile(r"(.[^\w\s]{30})(?=[^\w\s])", re.DOTALL)
_NO_MARKS = str.maketrans(dict.fromkeys([CAPITAL, JOINED]))


def mark(line):
    """Separate words and signs by spaces, and mark where there was none.

    The first word of each sentence becomes lower-case, with a mark. Unicode is normalised first
    (NFKC), as sentencepiece does, so that an accent is never separated from its letter. A word such
    as "TV" keeps its capitals. Characters of the text that look like marks, and zero-width spaces,
    are replaced.

    >>> mark("L'homme parle à Paul.")
    "↑ l'‿ homme parle à Paul ‿."
    >>> unmark(mark("L'homme parle à Paul."))
    "L'homme parle à Paul."
    """
    words = []
    end = None  # of the part before
    begins = True  # a sentence
    for match in _PART.finditer(_normalised(line).translate(_OTHERWISE)):
        part = match.group()
        if match.start() == end and part[0].isalnum():
            words[-1] += JOINED
        elif match.start() == end:
            part = JOINED + part
        elif begins and part != part.lower() and _capital(part.lower()) == part:
            words.append(CAPITAL)
            part = part.lower()
        words.append(part)
        begins = part[-1] in ".!?"
        end = match.end()
    return " ".join(words)


def unmark(line):
    """Return the line given to ``mark``, normalised and with single spaces.

    Of other text, return its words without marks.
    """
    text = []
    begins = False
    joined = True
    for word in line.split():
        if word == CAPITAL:
            begins = True
            continue
        bare = word.translate(_NO_MARKS)
        if begins:
            bare = _capital(bare)
        text.append(bare if joined or word.startswith(JOINED) else f" {bare}")
        begins = False
        joined = word.endswith(JOINED)
    return "".join(text)


def _normalised(line):
    return "".join(unicodedata.normalize("NFKC", part) for part in _MANY_ACCENTS.split(line))


def _capital(part):
    return part[:1].upper() + part[1:]
