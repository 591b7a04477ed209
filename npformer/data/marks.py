"""Words written alike wherever they stand: the capital of a sentence and missing spaces become marks, and text again.

Without marks a vocabulary of pieces holds ``▁Un`` and ``▁un``, ``homme`` behind an apostrophe and ``▁homme`` behind a
space, and learns each by itself; with them both are one word beside a mark.

    ↑   the next word, which begins a sentence, begins with a capital
    ‿   on the side where a word or sign has no space
"""

import re

CAPITAL, JOINED = "↑", "‿"

# A French word that an apostrophe cuts short (l', qu'); a word, with its hyphens, or behind an apostrophe ('s); signs.
_PART = re.compile(r"(?:[cdjlmnst]|qu)['’](?=\w)|['’]?\w+(?:-\w+)*|[^\w\s]+", re.IGNORECASE)
_LIKE_MARKS = str.maketrans({CAPITAL: "^", JOINED: "_"})  # for text that has these signs itself
_NO_MARKS = str.maketrans(dict.fromkeys([CAPITAL, JOINED]))


def mark(line):
    """A line with parts that touched each other apart, without the capitals of its sentences, and marks that tell.

    Examples
    --------
    >>> mark("L'homme parle à Paul.")
    "↑ l'‿ homme parle à Paul ‿."
    >>> unmark(mark("L'homme parle à Paul."))
    "L'homme parle à Paul."
    """
    words, end, begins = [], None, True
    for match in _PART.finditer(line.translate(_LIKE_MARKS)):
        part = match.group()
        if match.start() == end and part[0].isalnum():
            words[-1] += JOINED
        elif match.start() == end:
            part = JOINED + part
        elif begins and _capital(_small(part)) == part != _small(part):
            words.append(CAPITAL)
            part = _small(part)
        words.append(part)
        begins, end = part[-1] in ".!?", match.end()
    return " ".join(words)


def unmark(line):
    """What ``mark`` was given, with single spaces; of any other text its words, without marks."""
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


def _small(part):
    return part[:1].lower() + part[1:]


def _capital(part):
    return part[:1].upper() + part[1:]
