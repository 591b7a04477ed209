"""Links from pages to files of the repository, which are not part of the site: shown as text."""

import re

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:npformer|scripts|tests|README\.md|CONTRIBUTING\.md)[^)]*\)")


def setup(app):
    app.connect("source-read", remove)
    return {"parallel_read_safe": True}


def remove(app, page, source):
    """Replace the links of one page by their texts."""
    source[0] = OUTSIDE.sub(r"\1", source[0])
