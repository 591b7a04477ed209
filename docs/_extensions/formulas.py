"""Formulas as MathML, which browsers show themselves: no script, no font and no network is needed."""

import re

from docutils import nodes
from latex2mathml.converter import convert

REWRITTEN = (  # what the converter does not know, or shows without stretched parentheses or without a space
    (r"\{aligned\}", "{split}"),
    (r"\\begin\{pmatrix\}", r"\\left(\\begin{matrix}"),
    (r"\\end\{pmatrix\}", r"\\end{matrix}\\right)"),
    (r"\\log\s+(?=[\w\\])", r"\\log\\, "),
)


def setup(app):
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True}


def inline(translator, node):
    translator.body.append(converted(node.astext()))
    raise nodes.SkipNode


def display(translator, node):
    translator.body.append(f'<div class="formula">{converted(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def converted(formula, **options):
    """The MathML of a formula in LaTeX."""
    for old, new in REWRITTEN:
        formula = re.sub(old, new, formula)
    return convert(formula, **options)
