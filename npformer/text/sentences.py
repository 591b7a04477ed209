"""Where the sentences of a text are: it is divided at signs, empty lines and marks of items."""

import re

# What begins an item, a title or a row of a table; also an empty line.
MARK = re.compile(r"\s*(([-*+>|]|#+|\d+[.)])\s+|```|$)")
ABBREVIATION = re.compile(
    r"\b([A-Z]|Mrs?|Ms|Dr|Prof|St|Jr|Sr|vs|etc|[Ee]\.g|[Ii]\.e|cf|al|pp?|Figs?|Eqs?)\.$"
)
SHORT = 60  # characters: a shorter line ends a sentence
LONGEST_SENTENCE = 2000  # characters; a model reads fewer


def sentences(text):
    r"""The sentences of a text that have a letter or a digit, each with the number of its first
    line.

    >>> text = "# A title\nOne. This is another one, so long that it goes on behind the line\nends."
    >>> for number, sentence in sentences(text):
    ...     print(number, sentence)
    1 A title
    2 One.
    2 This is another one, so long that it goes on behind the line ends.
    """
    rows = []  # (number, parts) of each sentence: its parts are joined once, at the end
    ended = True
    length = 0
    for number, line in enumerate(text.split("\n"), start=1):
        mark = MARK.match(line)
        ended |= mark is not None
        for part in parts_of(line[mark.end() if mark else 0 :].strip()):
            if ended or length + len(part) > LONGEST_SENTENCE:
                rows.append((number, []))
                length = 0
            rows[-1][1].append(part)
            length += len(part)
            ended = part.endswith((".", "!", "?")) and not ABBREVIATION.search(part)
        ended |= len(line) < SHORT
    joined = [(number, " ".join(parts)) for number, parts in rows]
    return [(number, sentence) for number, sentence in joined if re.search(r"\w", sentence)]


def parts_of(line):
    """Yield the parts of a line, each of which may end a sentence; a long one is divided, at a
    space if it has one.
    """
    for part in re.split(r"(?<=[.!?])\s+(?![a-z])", line):
        begin = 0
        while len(part) - begin > LONGEST_SENTENCE:
            end = part.rfind(" ", begin + 1, begin + LONGEST_SENTENCE)
            if end < 0:
                end = begin + LONGEST_SENTENCE
            yield part[begin:end].strip()
            begin = end
        yield part[begin:].strip()
