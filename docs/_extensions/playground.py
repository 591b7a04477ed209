"""The pages to play with, put together from docs/play/ when the site is built."""

import re
from pathlib import Path

from card import tags

from scripts import make_playground

FOLDER = "play"
TEXTS = {  # of the card with which a link to a page is shown
    "index.html": "Two trained Transformers in the browser: where each step looks, what it writes, and every head.",
    "lab.html": "One head of attention with all its gradients: change any number, and see the others follow.",
    "train.html": "A small Transformer that trains in the browser: both passes, every gradient, and what breaks it.",
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
    for name in make_playground.PAGES:
        html = make_playground.page(name, home="../index.html")
        title = re.search("<title>(.*)</title>", html)[1]
        head = tags(app.config.html_baseurl, f"{FOLDER}/{name}", title, TEXTS[name])
        head += '<link rel="icon" href="../_static/favicon.svg">'
        (folder / name).write_text(html.replace('<link rel="icon" href="data:,">', head), encoding="utf-8")
