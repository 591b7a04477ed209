"""The page to play with, put together from docs/play/ when the site is built."""

import importlib.util
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def setup(app):
    app.connect("build-finished", make)
    return {"parallel_read_safe": True}


def make(app, error):
    """Write play/index.html beside the other pages."""
    if error or app.builder.format != "html":
        return
    path = Path(app.outdir) / "play" / "index.html"
    path.parent.mkdir(exist_ok=True)
    path.write_text(_script().page(home="../index.html"), encoding="utf-8")


def _script():
    sys.path.insert(0, str(SCRIPTS))
    spec = importlib.util.spec_from_file_location("make_playground", SCRIPTS / "make_playground.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    sys.path.remove(str(SCRIPTS))
    return script
