"""Show a text while its tokens are chosen."""


def streaming(text_of, show):
    """A function for ``on_step`` that calls ``show`` with each part of the text of one row as soon as it is certain.

    ``text_of`` makes a text of ids. A character may be several tokens: until all are there, its text is U+FFFD.
    """
    said, shown = [], ""

    def told(rows, tokens):
        nonlocal shown
        said.append(int(tokens[0]))
        text = text_of(said).rstrip("\ufffd")
        if text.startswith(shown) and len(text) > len(shown):  # pieces may change those before them
            show(text[len(shown) :])
            shown = text

    return told
