"""Links from pages to files of the repository: to the site's page of a module, if it has one; else shown as text."""

import re

from docutils import nodes

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:npformer|scripts|tests|README\.md|CONTRIBUTING\.md)[^)]*\)")
MODULE = re.compile(r"(\[[^\]]+\]\()(?:\.\./)+(npformer/[\w/]+?)(?:/__init__)?\.py\)")
SCHEME = "module"  # one that conf.py tells the parser


def setup(app):
    app.connect("source-read", mark)
    app.connect("doctree-resolved", lead)
    return {"parallel_read_safe": True}


def mark(app, page, source):
    """Write ``module:npformer/...`` for the addresses of modules; replace other links out of docs by their texts."""
    source[0] = OUTSIDE.sub(r"\1", MODULE.sub(rf"\1{SCHEME}:\2)", source[0]))


def lead(app, tree, page):
    """Let the links of one page to modules lead to the pages with their code."""
    for link in list(tree.findall(nodes.reference)):
        scheme, _, path = link.get("refuri", "").partition(":")
        if scheme == SCHEME:
            modules = getattr(app.env, "_viewcode_modules", {}) if app.builder.format == "html" else {}
            if modules.get(path.replace("/", ".")):
                link["refuri"], link["internal"] = app.builder.get_relative_uri(page, f"_modules/{path}"), True
            else:
                link.replace_self(link.children)
