"""Run the examples of every page, as ``pytest`` does: a page with a wrong result is an error of the build."""

import doctest
import io

from sphinx.errors import ExtensionError


def setup(app):
    app.connect("source-read", run)
    return {"parallel_read_safe": True}


def run(app, page, source):
    """Run the lines with ``>>>`` of one page."""
    if page.startswith("api/"):  # docstrings, which are run where they stand
        return
    test = doctest.DocTestParser().get_doctest(source[0], {"__name__": "__main__"}, page, page, 0)
    report = io.StringIO()
    results = doctest.DocTestRunner(verbose=False).run(test, out=report.write)
    if results.failed:
        raise ExtensionError(f"{page}: {results.failed} examples failed\n{report.getvalue()}")
