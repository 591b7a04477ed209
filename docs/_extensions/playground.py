"""The page to play with, put together from docs/play/ when the site is built."""

from pathlib import Path

from scripts import make_playground


def setup(app):
    app.connect("build-finished", make)
    return {"parallel_read_safe": True}


def make(app, error):
    """Write play/index.html beside the other pages."""
    if error or app.builder.format != "html":
        return
    path = Path(app.outdir) / "play" / "index.html"
    path.parent.mkdir(exist_ok=True)
    path.write_text(make_playground.page(home="../index.html"), encoding="utf-8")
