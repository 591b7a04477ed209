"""Where a damaged file is kept."""


def name_for_damaged(path):
    """Return a name beside a file that is not taken by what an earlier damage left.

    Examples
    --------
    >>> from pathlib import Path
    >>> str(name_for_damaged(Path("log.jsonl")))
    'log.jsonl.damaged'
    """
    names = (path.with_name(f"{path.name}.damaged{n or ''}") for n in range(1_000_000))
    return next(name for name in names if not name.exists())
