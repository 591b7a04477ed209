"""Cut the empty line that ends an example in the source of a page."""

from docutils import nodes


def setup(app):
    app.connect("doctree-read", cut)
    return {"parallel_read_safe": True}


def cut(app, tree):
    """Cut the empty lines at the end of every block of code."""
    for block in tree.findall(nodes.literal_block):
        if block.rawsource == block.astext():  # what is coloured later
            block.rawsource = block.rawsource.rstrip()
            block.children = []
            block += nodes.Text(block.rawsource)
