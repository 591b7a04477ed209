"""The pages to play with, put together from docs/play/ when the site is built, and the labs in pages of the book.

A picture that links to a page of play/ with a state, ``[![…](picture)](../play/lab.html#…)``, becomes that page itself,
where the browser runs it; see docs/_static/embedded.js. Elsewhere, as on GitHub, it is a picture with a link.
"""

import re
from html import escape
from pathlib import Path

from card import tags
from docutils import nodes
from docutils.parsers.rst import Directive

from scripts import make_playground

FOLDER = "play"
TEXTS = {  # of the card with which a link to a page is shown
    "index.html": "Two trained Transformers in the browser: where each step looks, what it writes, and every head.",
    "lab.html": "Attention, softmax and layer norm with every number: change one, predict what follows, and see why.",
    "train.html": "A small Transformer that trains in the browser: both passes, every gradient, and what breaks it.",
}
EMBEDDED = re.compile(r"^\[(!\[[^\]]*\]\([^)]*\))\]\(((?:\.\./)+play/[\w.]+#\S+)\)$", re.MULTILINE)


def setup(app):
    app.add_directive("embedded", Embedded)
    app.connect("source-read", mark)
    app.connect("html-page-context", add_script)
    app.connect("build-finished", make)
    return {"parallel_read_safe": True}


def mark(app, page, source):
    """Make a directive of each picture that links to a page with a state."""
    source[0] = EMBEDDED.sub(r"```{embedded} \2\n\1\n```", source[0])


class Embedded(Directive):
    """A page to play with, in the place of its picture; both are in one box."""

    required_arguments = 1
    has_content = True

    def run(self):
        """Return the box, with the picture as a link to the page in it."""
        [address] = self.arguments
        link = nodes.reference(refuri=address)
        parsed = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, parsed)
        link += parsed.next_node(nodes.image)
        box = f'<div class="embedded" data-page="{escape(address)}">'
        return [
            nodes.raw("", box, format="html"),
            nodes.paragraph("", "", link),
            nodes.raw("", "</div>", format="html"),
        ]


def add_script(app, page, template, context, tree):
    if tree is not None and any('data-page="' in node.astext() for node in tree.findall(nodes.raw)):
        app.add_js_file("embedded.js", loading_method="defer")


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
