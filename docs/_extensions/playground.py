"""The page to play with, put together from docs/play/ when the site is built."""

from pathlib import Path

from card import tags

from scripts import make_playground

URL = "play/index.html"
TEXT = "Two trained Transformers and an attention with all its gradients, in which every number can be looked at."


def setup(app):
    app.connect("build-finished", make)
    return {"parallel_read_safe": True}


def make(app, error):
    """Write play/index.html beside the other pages."""
    if error or app.builder.format != "html":
        return
    path = Path(app.outdir) / URL
    path.parent.mkdir(exist_ok=True)
    head = tags(app.config.html_baseurl, URL, "Play with a Transformer", TEXT)
    head += '<link rel="icon" href="../_static/favicon.svg">'
    html = make_playground.page(home="../index.html").replace('<link rel="icon" href="data:,">', head)
    path.write_text(html, encoding="utf-8")
