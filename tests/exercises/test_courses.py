"""What holds for every course: the file that it begins, and its derivations."""

import ast
import re
from textwrap import dedent

import numpy as np
import pytest

from npformer.exercises import check_function
from npformer.exercises.course.course import course_of
from npformer.exercises.course.file import starting_text, stub
from npformer.exercises.courses import COURSES, PARTS

every_course = pytest.mark.parametrize("course", COURSES.values(), ids=COURSES)


@every_course
def test_the_file_is_the_page_with_functions_left_to_write(course):
    text = starting_text(course)
    assert max(len(line) for line in text.splitlines() if "/docs/" not in line) <= 120
    numbers = [int(number) for number in re.findall(r"Exercise (\d+), ", text)]
    assert sorted(numbers) == list(range(1, len(course.parts) + 1))
    names = {}
    exec(text, names)
    asked_for = {part.function_name for part in course.parts.values()}
    for part in course.parts.values():
        assert check_function(part, names[part.function_name]).state == "not written"
        if part.gradients:
            returned = f"    return {next(iter(part.results))}, backward\n"
            assert stub(course, part.function_name).endswith(returned)
    for name in course.page.functions:
        source = stub(course, name) if name in asked_for else course.page.source_of(name)
        assert source in text


@every_course
def test_a_file_is_known_as_one_of_its_course(course):
    assert course_of(starting_text(course), COURSES.values()) is course


def test_what_is_written_below_the_docstring_says_nothing_of_the_course():
    line = f"{COURSES['derive'].mark} {COURSES['gpt'].mark}"
    for course in COURSES.values():
        text = starting_text(course)
        for below in (f"# {line}\n", f"TEXT = '{line}'\n", f"# {line}\ndef (\n"):
            assert course_of(text + below, COURSES.values()) is course
    for text in (
        "",
        f"# {line}\nimport os\n",
        f"import os\n# {line}\ndef (\n",
        f'x = 1\n"""{line}"""\n',
    ):
        assert course_of(text, COURSES.values()) is None


@every_course
def test_functions_can_be_taken_from_elsewhere(course):
    asked_for, *others = {part.function_name: part for part in course.parts.values()}
    given = next(name for name in course.page.functions if name not in [asked_for, *others])
    taken = {name: f"def {name}():\n    return 'taken'\n" for name in (given, asked_for)}
    text = starting_text(course, taken)
    for source in taken.values():
        assert source in text
    assert stub(course, asked_for) not in text
    assert course.page.source_of(given) not in text


# -- the derivations: their lines of Python are executed -------------------------------------------


@pytest.mark.parametrize(
    "part", [part for part in PARTS if part.derivation], ids=lambda part: part.key
)
def test_the_formulas_of_a_derivation_hold(part):
    code = code_of(part.derivation)
    assert code
    for case in part.cases(np.random.default_rng(7)):
        names = vars(part.one_page.module) | dict(zip(part.arguments, case.args, strict=True))
        with np.errstate(all="ignore"):
            execute(code, names)
        expected = part.expected(*case.args)
        if len(part.results) == 1:
            expected = [expected]
        for name, value in zip(part.results, expected, strict=True):
            if part.gradients or name in names:  # a derivation of gradients has all of them
                assert_same(eval(name, names), value, name)


def assert_same(x, wanted, words):
    np.testing.assert_allclose(x, wanted, rtol=1e-9, atol=1e-12, err_msg=words)


def code_of(derivation):
    """The indented lines of a derivation."""
    lines = dedent(derivation).strip().splitlines()
    assert max(map(len, lines)) <= 96
    return dedent("\n".join(line for line in lines if line.startswith("    ")))


def execute(code, names):
    """Run statements; an equation has to hold."""
    for node in ast.parse(code).body:
        match node:
            case ast.Expr(ast.Compare(left, [ast.Eq()], [right])):
                sides = [eval(ast.unparse(side), names) for side in (left, right)]
                assert_same(*sides, ast.unparse(node))
            case _:
                exec(ast.unparse(node), names)


def test_a_wrong_equation_of_a_derivation_is_noticed():
    execute("y = 2 * x\ny == x + x", {"x": np.ones(3)})
    with pytest.raises(AssertionError, match="y == x"):
        execute("y = 2 * x\ny == x", {"x": np.ones(3)})
