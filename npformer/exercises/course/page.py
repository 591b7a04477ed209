"""A model on one page, and the text of each of its functions."""

import ast
import importlib.util
import re
from pathlib import Path


class Page:
    """A file of ``docs``.

    Attributes
    ----------
    file : Path
        Where it is: in a clone in ``docs``, in an installed package beside this file, where
        setup.py puts it.
    text : str
    functions : dict
        The parsed functions, by name.
    module : module
    """

    def __init__(self, name):
        beside = Path(__file__).with_name(name)
        in_clone = Path(__file__).parents[3] / "docs" / name
        self.file = beside if beside.exists() else in_clone
        self.text = self.file.read_text(encoding="utf-8")
        self.functions = functions_in(ast.parse(self.text))
        self.module = self._load()

    def _load(self):
        spec = importlib.util.spec_from_file_location(self.file.stem, self.file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def lines(self, first, last):
        """The lines from number ``first`` to ``last``."""
        return "".join(self.text.splitlines(keepends=True)[first - 1 : last])

    def source_of(self, name):
        """The text of a function."""
        function = self.functions[name]
        return self.lines(function.lineno, function.end_lineno)

    def backward_of(self, name):
        """The text of the backward pass in a function, or nothing."""
        for node in self.functions[name].body:
            if isinstance(node, ast.FunctionDef) and node.name == "backward":
                return self.lines(node.lineno, node.end_lineno)
        return ""

    def argument_of_backward(self, name):
        """The name of the argument of the backward pass in a function."""
        found = re.search(r"def backward\((\w+)\)", self.backward_of(name))
        return found[1] if found else "dy"

    def forward_of(self, name):
        """The text of a function whose backward pass is not written."""
        inner = self.backward_of(name)
        if not inner:
            return self.source_of(name)
        stub = f"{inner.splitlines()[0]}\n        raise NotImplementedError\n"
        return self.source_of(name).replace(inner, stub)


def functions_in(tree):
    """The parsed functions of a file, by name."""
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
