"""Formulas as MathML, which browsers show themselves: no script, no font and no network is needed."""

import re
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

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
    translator.body.append(checked(node))
    raise nodes.SkipNode


def display(translator, node):
    translator.body.append(f'<div class="formula">{checked(node, display="block")}</div>')
    raise nodes.SkipNode


def checked(node, **options):
    """The MathML of a node's formula; a formula that is wrong gives a warning."""
    try:
        return converted(node.astext(), **options)
    except ValueError as error:
        logging.getLogger(__name__).warning("in the formula %s: %s", node.astext(), error, location=node)
        return ""


def converted(formula, **options):
    """The MathML of a formula in LaTeX, or ValueError."""
    if (braces := re.sub(r"\\.", "", formula)).count("{") != braces.count("}"):
        raise ValueError("there are not as many { as }")
    for old, new in REWRITTEN:
        formula = re.sub(old, new, formula)
    try:
        mathml = convert(formula, **options)
        root = ElementTree.fromstring(mathml)
    except Exception as error:  # the converter has many, without a message
        raise ValueError(f"{type(error).__name__} {error}") from error
    if unknown := re.findall(r"\\\w*", "".join(root.itertext())):  # which the converter shows as they are
        raise ValueError(f"{unknown[0]} is not known")
    if any(len(fraction) != 2 for fraction in root.iterfind(".//{*}mfrac")):
        raise ValueError("a fraction has no denominator")
    return mathml
