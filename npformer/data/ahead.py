"""Prefetching: the next item is made while the caller uses the current one."""

from concurrent.futures import ThreadPoolExecutor

_END = object()


def ahead(items):
    """Yield the same items; a thread makes each while the caller uses the one before."""
    items = iter(items)
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = thread.submit(next, items, _END)
            yield item
