"""One item made while the one before is worked on."""

from concurrent.futures import ThreadPoolExecutor

_END = object()


def ahead(items):
    """The same items, each made by a thread while the caller has the one before: where the caller waits for a GPU.

    Parameters
    ----------
    items : iterable

    Examples
    --------
    >>> list(ahead(n * n for n in range(4)))
    [0, 1, 4, 9]
    """
    items = iter(items)
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = thread.submit(next, items, _END)
            yield item
