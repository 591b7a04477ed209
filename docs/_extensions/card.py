"""What a link to a page of the site shows where it is posted: a title, the page's first sentences and a picture."""

import re
from html import escape
from textwrap import shorten

from docutils import nodes

PICTURE = "_static/card.png"  # of scripts/make_card.py


def setup(app):
    app.connect("html-page-context", add)
    return {"parallel_read_safe": True}


def add(app, page, template, context, tree):
    if tree is not None:  # else it is a page without a text, as that of the search
        paragraph = next(tree.findall(nodes.paragraph), None)
        text = paragraph.astext() if paragraph else app.config.project
        title = re.sub("<[^>]*>", "", context["title"])  # which is HTML
        url = app.builder.get_target_uri(page)
        context["metatags"] += tags(app.config.html_baseurl, url, title, escape(shorten(text, 200, placeholder=" …")))


def tags(base, url, title, text):
    """The tags of a page, in HTML; their addresses have to be absolute. The title and the text are HTML."""
    properties = {"title": title, "description": text, "url": base + url, "image": base + PICTURE, "type": "website"}
    found = [f'<meta property="og:{name}" content="{value}">' for name, value in properties.items()]
    found += [f'<meta name="description" content="{text}">', '<meta name="twitter:card" content="summary_large_image">']
    return "\n".join(["", *found, ""])
