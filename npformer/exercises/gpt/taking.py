"""What a person has solved in another course, of the functions that its page shares with gpt's."""

import ast
import builtins
import symtable
from typing import NamedTuple

from npformer.exercises.course.file import digests, stub
from npformer.exercises.course.page import functions_in
from npformer.exercises.gpt.course import GPT


class Taken(NamedTuple):
    """A function of the person's file of another course."""

    name: str
    source: str  # as it stands in the file of gpt
    missing: str  # a name of the other file that it uses, so that it cannot stand there; or ""


def shared_functions(course):
    """The names of the functions that are the same, letter by letter, on the page of gpt."""
    ours = GPT.page
    theirs = course.page
    return [
        name
        for name in ours.functions
        if name in theirs.functions and ours.source_of(name) == theirs.source_of(name)
    ]


def solved_functions(course, text, sources):
    """The functions of a person's file that gpt needs, too, and that are as they were when right.

    Parameters
    ----------
    course : Course
        That of the file.
    text : str
        Of the file. Raises SyntaxError if it is no Python.
    sources : dict
        The digests of what was right, as in ``Progress``.

    Returns
    -------
    list of Taken
    """
    now = digests(course, text)
    nodes = functions_in(ast.parse(text))
    found = []
    for name in shared_functions(course):
        keys = [part.key for part in course.parts.values() if part.function_name == name]
        if name in nodes and keys and all(sources.get(key) == now[key] for key in keys):
            found.append(_taken(name, text, nodes[name]))
    return found


def _taken(name, text, node):
    """A function, with the docstring of gpt's file, where exercises have other numbers."""
    lines = text.splitlines(keepends=True)[: node.end_lineno]
    first = node.body[0]
    if first.lineno == node.lineno:  # all of it is one line
        own = lines[node.lineno - 1 :]
    else:
        is_docstring = ast.get_docstring(node) is not None
        head = lines[node.lineno - 1 : first.lineno - 1]
        body = lines[first.end_lineno if is_docstring else first.lineno - 1 :]
        own = [*head, *_docstring_lines(name), *body]
    source = "".join(own).rstrip() + "\n"
    missing = _names_from_outside(source) - set(vars(GPT.page.module)) - set(vars(builtins))
    return Taken(name, source, min(missing, default=""))


def _docstring_lines(name):
    """The lines of the docstring that a function has in the file of gpt."""
    is_exercise = any(part.function_name == name for part in GPT.parts.values())
    text = stub(GPT, name) if is_exercise else GPT.page.source_of(name)
    function = ast.parse(text).body[0]
    if ast.get_docstring(function) is None:
        return []
    first = function.body[0]
    return text.splitlines(keepends=True)[first.lineno - 1 : first.end_lineno]


def _names_from_outside(source):
    """The names that a function uses and does not define."""
    tables = [symtable.symtable(source, "", "exec")]
    names = set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            is_defined = symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
            if symbol.is_referenced() and symbol.is_global() and not is_defined:
                names.add(symbol.get_name())
    return names
