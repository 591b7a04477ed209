"""The pages to play with, put together from docs/play/ when the site is built."""

from pathlib import Path

from card import tags

from scripts import make_playground

FOLDER = "play"
PAGES = {  # the title and the text of the card with which a link to it is shown
    "index.html": (
        "Play with a Transformer",
        "Two trained Transformers and an attention with all its gradients, in which every number can be looked at.",
    ),
    "train.html": (
        "Watch a Transformer learn",
        "A small Transformer that trains in the browser: both passes, each number, each gradient, and what breaks it.",
    ),
}


def setup(app):
    app.connect("build-finished", make)
    return {"parallel_read_safe": True}


def make(app, error):
    """Write the pages of play/ beside the others."""
    if error or app.builder.format != "html":
        return
    folder = Path(app.outdir) / FOLDER
    folder.mkdir(exist_ok=True)
    for name, (title, text) in PAGES.items():
        head = tags(app.config.html_baseurl, f"{FOLDER}/{name}", title, text)
        head += '<link rel="icon" href="../_static/favicon.svg">'
        html = make_playground.page(name, home="../index.html").replace('<link rel="icon" href="data:,">', head)
        (folder / name).write_text(html, encoding="utf-8")
