"""Run the examples of every page, as ``pytest`` does: a page with a wrong result is an error of the build.

The empty line that ends an example in the source is not shown.
"""

import doctest
import io
from pathlib import Path

from docutils import nodes
from sphinx.errors import ExtensionError


def setup(app):
    app.connect("source-read", run)
    app.connect("doctree-read", cut)
    return {"parallel_read_safe": True}


def run(app, page, source):
    """Run the lines with ``>>>`` of one page."""
    if page.startswith("api/"):  # docstrings, which are run where they stand
        return
    if page == "descendants/by-hand" and not Path("models/smollm2").is_dir():  # make test-models runs it
        return
    test = doctest.DocTestParser().get_doctest(source[0], {"__name__": "__main__"}, page, page, 0)
    report = io.StringIO()
    results = doctest.DocTestRunner(verbose=False).run(test, out=report.write)
    if results.failed:
        raise ExtensionError(f"{page}: {results.failed} examples failed\n{report.getvalue()}")


def cut(app, tree):
    """Cut the empty lines at the end of every block of code."""
    for block in tree.findall(nodes.literal_block):
        if block.rawsource == block.astext():  # what is coloured later
            block.rawsource = block.rawsource.rstrip()
            block.children = []
            block += nodes.Text(block.rawsource)
