"""Formulas as MathML, which browsers show themselves: no script, no font and no network is needed."""

from docutils import nodes
from latex2mathml.converter import convert


def setup(app):
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True}


def inline(translator, node):
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def display(translator, node):
    formula = node.astext().replace("{aligned}", "{split}")  # the same, by the name that the converter knows
    translator.body.append(f'<div class="formula">{convert(formula, display="block")}</div>')
    raise nodes.SkipNode
