"""Show a text while its tokens are chosen."""


def streaming(text_of, show, begun=()):
    """A function for ``on_step`` that calls ``show`` with each part of a text once it is certain.

    ``text_of`` makes a text of ids, and ``begun`` are those before the first of the row. A
    character may be several tokens: until all are there, its text is U+FFFD. The text of a token
    may also depend on those before it, so each is decoded after the latest ones that have a text.
    """
    window = [*map(int, begun)]
    shown = text_of(window) if window else ""
    n_certain = len(window)  # tokens of the window whose text is shown

    def show_new(rows, tokens):
        nonlocal window, shown, n_certain
        window.append(int(tokens[0]))
        text = text_of(window)
        certain = text.rstrip("\ufffd")
        if len(certain) > len(shown):  # pieces may change those before them for a while
            show(certain[len(shown) :])
            shown = certain
        if certain == text:
            latest = window[n_certain:]
            if of_latest := text_of(latest):
                window, shown = latest, of_latest
            n_certain = len(window)

    return show_new
