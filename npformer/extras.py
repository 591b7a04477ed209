"""Where the book is, and how to install what npformer can use and does not need."""

import shlex
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]  # the clone, or what a wheel was installed into
IS_CLONE = (ROOT / "setup.cfg").is_file()
ADDRESS = "https://github.com/npformer/npformer"
BOOK = "docs" if IS_CLONE else f"{ADDRESS}/blob/main/docs"  # where its pages are
PAGES = str(ROOT / BOOK) if IS_CLONE else BOOK  # the same, from any folder


def pip_install(extra=""):
    """The command that installs npformer with an extra, from any folder.

    In a clone it installs the clone, otherwise the wheel.
    """
    name = str(ROOT) if IS_CLONE else "npformer"
    what = f"'{name}[{extra}]'" if extra else shlex.quote(name)
    return f"pip install -e {what}" if IS_CLONE else f"pip install {what}"


def imported(module: str, extra: str, what: str) -> Any:
    """The package of a module that an extra installs, with that module.

    If it is missing, the error says what needs it.

    >>> imported("nothing.at.all", "plot", "pictures need")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ImportError: pictures need nothing: pip install ...
    """
    try:
        return __import__(module)
    except ImportError as error:
        raise ImportError(f"{what} {module.partition('.')[0]}: {pip_install(extra)}") from error
