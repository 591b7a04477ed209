"""The person's file: the page with the functions of the exercises left to write, and what runs of it."""

import ast
import hashlib
from textwrap import indent

from npformer.exercises.start import explained, task_text
from npformer.exercises.transformer import page
from npformer.exercises.transformer.record import BUILD

HEADER = '''"""Your own Transformer: encoder and decoder, forward and backward, in NumPy alone.

Write the functions that are exercises, in the order of their numbers. The others are given.

    npformer exercises build check    # say what is wrong, or what comes next
    npformer exercises build hint     # a hint; the next time one more
    npformer exercises build train    # train: with the given functions in place of those that you have not written yet

'''


def starting_text():
    """The page with stubs in place of the functions that are exercises."""
    text = page.TEXT
    for name in {part.function_name: None for part in BUILD.values()}:
        text = text.replace(page.source_of(name), stub(name))
    return HEADER + text.partition("\n\n")[2]


def stub(name):
    """A function of the page with the tasks of its exercises in its docstring, and without its body."""
    function = page.FUNCTIONS[name]
    parts = [(number, part) for number, part in enumerate(BUILD.values(), 1) if part.function_name == name]
    first = (ast.get_docstring(function) or "").splitlines()
    tasks = [text_of(number, part) for number, part in parts]
    doc = indent("\n\n".join([*first, *tasks]), "    ", lambda line: bool(line.strip())).lstrip()
    lines = [page.lines_of(function.lineno, function.lineno).rstrip(), f'    """{doc}\n    """']
    lines.append(f"    raise NotImplementedError  # exercise {parts[0][0]}")
    backward = page.backward_of(name)
    if backward:
        lines += ["", backward.splitlines()[0], f"        raise NotImplementedError  # exercise {parts[-1][0]}"]
        lines += ["", "    return y, backward"]
    return "\n".join(lines) + "\n"


def text_of(number, part):
    """What to do, with the page that explains it."""
    return f"Exercise {number}, {part.label}: {part.title}.\n\n{task_text(part)}\n\n{explained(part)}"


def digests(text):
    """A digest of what each exercise checks in the person's file: of its function, without a later backward pass.

    What the person has written beside the functions of the page counts for all.
    """
    functions = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    beside = [node for name, node in functions.items() if name not in page.FUNCTIONS]
    return {part.key: digest(functions.get(part.function_name), part, beside) for part in BUILD.values()}


def digest(function, part, beside):
    """A digest of a function as Python reads it, so that its comments and spaces do not count."""
    nodes = [function.args, *function.body, *beside] if function else []
    counted = [node for node in nodes if not part.has_later_backward or getattr(node, "name", "") != "backward"]
    return hashlib.sha256("".join(map(ast.dump, counted)).encode()).hexdigest()[:16]


def complete(names, solved):
    """Put the functions of the page in place of those that are not solved, among the names of the person's file."""
    if solved >= {part.key for part in BUILD.values()}:
        return  # the file alone
    own = dict(names)
    exec(page.TEXT, names)
    for part in BUILD.values():
        if part.key in solved and part.function_name in own:
            mine, given = own[part.function_name], names[part.function_name]
            names[part.function_name] = with_backward(mine, given) if part.has_later_backward else mine


def with_backward(mine, given):
    """A function with the person's forward pass and the page's backward pass."""

    def both(*args, **options):
        return mine(*args, **options)[0], given(*args, **options)[1]

    return both
