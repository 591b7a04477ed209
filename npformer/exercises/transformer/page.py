"""The Transformer on one page, and the text of each of its functions."""

import ast
import importlib.util
from pathlib import Path

BESIDE = Path(__file__).with_name("one_page_transformer.py")  # setup.py puts it there
FILE = BESIDE if BESIDE.exists() else Path(__file__).parents[3] / "docs" / BESIDE.name  # in a clone


def _load():
    spec = importlib.util.spec_from_file_location(BESIDE.stem, FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGE = _load()
TEXT = FILE.read_text(encoding="utf-8")
FUNCTIONS = {node.name: node for node in ast.parse(TEXT).body if isinstance(node, ast.FunctionDef)}


def lines_of(first, last):
    """The lines of the page from number ``first`` to ``last``."""
    return "".join(TEXT.splitlines(keepends=True)[first - 1 : last])


def source_of(name):
    """The text of a function of the page."""
    return lines_of(FUNCTIONS[name].lineno, FUNCTIONS[name].end_lineno)


def backward_of(name):
    """The text of the backward pass in a function, or nothing."""
    inner = [node for node in FUNCTIONS[name].body if isinstance(node, ast.FunctionDef)]
    return lines_of(inner[0].lineno, inner[0].end_lineno) if inner else ""


def forward_of(name):
    """The text of a function whose backward pass is not written."""
    inner = backward_of(name)
    return source_of(name).replace(inner, f"{inner.splitlines()[0]}\n        raise NotImplementedError\n")
