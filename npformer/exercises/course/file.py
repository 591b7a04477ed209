"""The person's file: the page without the functions that are exercises, and what runs of it."""

import ast
import hashlib
from textwrap import indent

from npformer.exercises.course.page import functions_in
from npformer.exercises.start import task_text


def starting_text(course, taken=None):
    """The page with stubs in place of the functions that are exercises.

    ``taken`` has texts of functions, by name, that stand in place of stubs or given functions.
    """
    names = {part.function_name for part in course.parts.values()}
    new = {name: stub(course, name) for name in course.page.functions if name in names}
    new |= taken or {}
    if course.exercises_first:
        return course.header + in_order(course, new)
    text = course.page.text
    for name, source in new.items():
        text = text.replace(course.page.source_of(name), source)
    return course.header + text.partition("\n\n")[2]


def in_order(course, new):
    """The page without its docstring: the functions of the exercises, then the given functions.

    ``new`` has the texts that stand in place of the page's.
    """
    names = list(dict.fromkeys(part.function_name for part in course.parts.values()))
    page = course.page
    functions = list(page.functions.values())
    above = page.lines(1, functions[0].lineno - 1).partition("\n\n")[2]
    above = above.partition("\n\n\n")[0]  # without the heading of the first functions
    below = page.text.splitlines(keepends=True)[functions[-1].end_lineno :]
    given = [new.get(name, page.source_of(name)) for name in page.functions if name not in names]
    blocks = [
        "# The exercises, in the order of their numbers\n",
        *[new[name] for name in names],
        "# Given. Some of these resemble an answer: read them after you have solved the exercises "
        "above\n",
        *given,
        "".join(below).strip() + "\n",
    ]
    return "\n\n".join([above.rstrip() + "\n", *blocks])


def stub(course, name):
    """A function of the page, without its body, and with its tasks in its docstring."""
    function = course.page.functions[name]
    parts = [part for part in course.parts.values() if part.function_name == name]
    first = (ast.get_docstring(function) or "").splitlines()
    tasks = [text_of(course, part) for part in parts]
    doc = indent("\n\n".join([*first, *tasks]), "    ", lambda line: bool(line.strip())).lstrip()
    numbers = [course.number_of(part) for part in parts]
    lines = [course.page.lines(function.lineno, function.body[0].lineno - 1).rstrip()]
    lines += [f'    """{doc}\n    """', f"    raise NotImplementedError  # exercise {numbers[0]}"]
    has_backward = any(part.gradients or part.has_later_backward for part in parts)
    if has_backward:
        backward = course.page.backward_of(name) or "    def backward(dy):\n"
        lines += ["", backward.splitlines()[0]]
        lines += [f"        raise NotImplementedError  # exercise {numbers[-1]}"]
        result = next(iter(parts[0].results))
        lines += ["", f"    return {result}, backward"]
    return "\n".join(lines) + "\n"


def text_of(course, part):
    """What to do, with the page that explains it."""
    number = course.number_of(part)
    heading = f"Exercise {number}, {part.name}: {part.title}."
    return f"{heading}\n\n{task_text(part)}\n\n{course.pointer(number, part)}"


def digests(course, text):
    """A digest of what each exercise checks in the person's file, without a later backward pass.

    What the person has written beside the functions of the page counts for all.
    """
    functions = functions_in(ast.parse(text))
    beside = [node for name, node in functions.items() if name not in course.page.functions]
    return {
        part.key: digest(functions.get(part.function_name), part, beside)
        for part in course.parts.values()
    }


def digest(function, part, beside):
    """A digest of a function as Python reads it, so that its comments and spaces do not count."""
    nodes = [function.args, *function.body, *beside] if function else []
    if part.has_later_backward:
        nodes = [node for node in nodes if getattr(node, "name", "") != "backward"]
    return hashlib.sha256("".join(map(ast.dump, nodes)).encode()).hexdigest()[:16]


def complete(course, names, solved):
    """Put the page's functions in place of those not solved, among the names of the file."""
    parts = course.parts.values()
    if solved >= {part.key for part in parts}:
        return  # the file alone
    own = dict(names)
    exec(course.page.text, names)
    for part in parts:
        if part.key in solved and part.function_name in own:
            mine, given = own[part.function_name], names[part.function_name]
            if part.has_later_backward:
                mine = with_backward(mine, given)
            names[part.function_name] = mine


def with_backward(mine, given):
    """A function with the person's forward pass and the page's backward pass."""

    def both(*args, **options):
        return mine(*args, **options)[0], given(*args, **options)[1]

    return both
