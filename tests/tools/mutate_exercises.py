"""Mutation testing of the exercises: check that the checker notices a wrong answer.

Each mutant is the answer of an exercise with one change: another operator, comparison or function,
a term dropped, a constant, axis or index changed, a transposition undone, two arguments swapped, a
statement left out or done in place. A mutant is equivalent, and left out, if each of its numbers is
equal to that of the answer (without any tolerance) on all cases of many seeds, whose sizes and
numbers differ from those that the checker uses. A mutant that the checker does not notice, though
it is not equivalent, is a survivor, and is printed with the largest difference of its results.

    python tests/tools/mutate_exercises.py                # all mutants, about two minutes
    python tests/tools/mutate_exercises.py --sample 200   # a random part of them
    python tests/tools/mutate_exercises.py --only build/  # those of the fourteen exercises
    python tests/tools/mutate_exercises.py --only gpt/    # those of the twelve of one's own GPT
    python tests/tools/mutate_exercises.py --only derive/ --sample 150 --least 97

The answers and the cases of derive/ are those of build/, so all mutants are without them; their
mistakes have other explanations.
"""

import ast
import contextlib
import signal
import sys
import warnings

import numpy as np

from npformer.exercises import check_function
from npformer.exercises.courses import ALL
from npformer.exercises.trial import call
from npformer.pretrained.rules import parse_table
from tests.tools import mutate_backward
from tests.tools.tool import Natural, Seed, sampled, tool

SECONDS = 5  # for one mutant on one case
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Pow)
COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
FUNCTIONS = parse_table("""
    max      min
    min      max
    sum      mean
    mean     sum
    sin      cos
    cos      sin
    exp      log
    log      exp
    sqrt     square
    argmax   argmin
    maximum  minimum
    triu     tril
    zeros    ones
    tanh     sin
    cumsum   cumprod
    """)


@tool
def main(
    *,
    seeds: Natural = 100,
    only: str = "",
    sample: Natural | None = None,
    least: float = 95.0,
    seed: Seed = 0,
):
    """Mutate answers.

    Parameters
    ----------
    seeds
        with which a survivor is compared with the answer
    only
        only the exercises whose names begin with this
    sample
        so many mutants, drawn at random
    least
        per cent that have to be caught
    """
    mutants = [mutant for mutant in all_mutants() if mutant[0].startswith(only)]
    if not only:
        mutants = [mutant for mutant in mutants if not mutant[0].startswith("derive/")]
    mutants = sampled(mutants, sample, seed)
    caught, equivalent, survivors = judge(mutants, seeds)
    answers = len({name for name, *_ in mutants})
    print(f"\n{len(mutants)} mutants of {answers} answers: {len(caught)} caught, ", end="")
    print(f"{len(equivalent)} equivalent, {len(survivors)} survivors")
    share = 100 * len(caught) / max(len(caught) + len(survivors), 1)
    print(f"caught of those that are not equivalent: {share:.1f} %")
    return [] if share >= least else survivors


def judge(mutants, n_seeds, verbose=True):
    """Check each mutant. Returns three lists.

    Caught, equivalent, survivors with their largest difference.
    """
    caught, equivalent, survivors = [], [], []
    for name, change, source in mutants:
        exercise = ALL[name]
        if is_caught(exercise, source):
            caught.append((name, change))
            continue
        difference = largest_difference(exercise, exercise.function_from(source), n_seeds)
        if difference is None:
            equivalent.append((name, change))
        else:
            survivors.append((name, change, difference))
        if verbose:
            what = "equivalent" if difference is None else f"SURVIVED, differs by {difference:.2g}:"
            print(f"{what} {name}: {change}", flush=True)
    return caught, equivalent, survivors


def is_caught(exercise, source):
    """Whether the checker finds something wrong with a mutant."""
    try:
        with time_limit():
            return not check_function(exercise, exercise.function_from(source)).solved
    except TimeoutError:
        return True


def largest_difference(exercise, mutant, n_seeds):
    """How far the results are apart, relative to the largest number.

    None if they are equal everywhere.
    """
    largest = None
    for seed in range(1, n_seeds + 1):
        for case in exercise.cases(np.random.default_rng(seed)):
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                right = call(exercise, exercise.answer, case)
                try:
                    with time_limit():
                        other = call(exercise, mutant, case)
                except TimeoutError:
                    return np.inf
            difference = difference_of(right, other)
            if difference is not None:
                largest = max(difference, largest or 0.0)
    return largest


def difference_of(right, other):
    """The largest relative difference of two outcomes; None if they are equal."""
    if other.error is not None or other.changed:
        return np.inf
    pairs = list(zip(arrays_of(right.value), arrays_of(other.value), strict=False))
    if len(pairs) != len(arrays_of(right.value)):
        return np.inf
    if any(a.shape != b.shape or a.dtype != b.dtype for a, b in pairs):
        return np.inf
    if all(np.array_equal(a, b) for a, b in pairs):
        return None
    with np.errstate(all="ignore"):
        apart = [
            np.abs(a - b) / max(np.abs(a[np.isfinite(a)]).max(initial=0), 1e-300)
            for a, b in pairs
            if a.dtype.kind == "f"
        ]
    return float(max((np.where(x != x, 0, x).max(initial=0) for x in apart), default=np.inf))


def arrays_of(value):
    """The results as a list of arrays."""
    return [np.atleast_1d(np.asarray(x)) for x in (value if isinstance(value, tuple) else (value,))]


@contextlib.contextmanager
def time_limit():
    """Raise TimeoutError in code that does not end."""

    def stop(*_):
        raise Stopped

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    except Stopped:
        raise TimeoutError from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Stopped(BaseException):
    """Not an Exception, which the checker would take for one of the function."""


# -- the mutants -----------------------------------------------------------------------------------


def all_mutants(exercises=None):
    """(exercise, change, source) for each mutant of the answers, by default of all."""
    mutants = {}
    for name, exercise in (exercises or ALL).items():
        tree = ast.parse(exercise.answer_source)
        original = ast.unparse(tree)
        for node in ast.walk(tree):
            for change, new in mutations(node):
                with contextlib.suppress(ValueError, SyntaxError):
                    source = mutate_backward.with_replaced(tree, node, new)
                    compile(source, "", "exec")
                    if source != original:
                        mutants.setdefault((name, source), change)
    return [(name, change, source) for (name, source), change in mutants.items()]


def mutations(node):
    """(description, replacement) for each way to change one node.

    Those of the backward passes, and more.
    """
    if not isinstance(node, (ast.expr, ast.stmt)):
        return
    yield from mutate_backward.mutations(node)
    text = ast.unparse(node).splitlines()[0]
    match node:
        case ast.BinOp(left, operator, right):
            if isinstance(operator, ARITHMETIC):
                for other in ARITHMETIC[:4]:
                    if not isinstance(operator, other):
                        yield f"{text}: operator {other.__name__}", ast.BinOp(left, other(), right)
            if not isinstance(operator, (ast.Add, ast.Mult)):
                yield f"{text}: operands swapped", ast.BinOp(right, operator, left)
            yield f"{text}: {ast.unparse(right)} dropped", left
            yield f"{text}: {ast.unparse(left)} dropped", right
        case ast.Compare(left, [operator], [right]):
            for other in COMPARISONS:
                if not isinstance(operator, other):
                    new = ast.Compare(left, [other()], [right])
                    yield f"{text}: comparison {other.__name__}", new
        case ast.UnaryOp(ast.Not() | ast.Invert(), operand):
            yield f"{text}: not negated", operand
        case ast.Constant(bool() as value):
            yield f"{text}: {not value}", ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            for other in (value + 1, value - 1, -value, 2 * value, 0):
                yield f"{text}: becomes {other}", ast.Constant(other)
        case ast.Attribute(value, attribute, context) if attribute in FUNCTIONS:
            other = FUNCTIONS[attribute]
            yield f"{text}: {other}", ast.Attribute(value, other, context)
        case ast.Tuple(elements, context) | ast.List(elements, context):
            for which, swapped in mutate_backward.swaps(elements):
                yield f"{text}: {which} swapped", type(node)(swapped, context)
        case ast.Assign([ast.Name() as target], ast.BinOp(ast.Name(name) as left, operator, right)):
            in_place = [
                ast.AugAssign(ast.Name(name, ast.Store()), operator, right),
                ast.Assign([target], left),
            ]
            yield f"{text}: in place", ast.If(ast.Constant(True), in_place, [])
            yield f"{text}: left out", ast.Pass()
        case ast.Assign() | ast.AugAssign() | ast.Expr() | ast.Break():
            yield f"{text}: left out", ast.Pass()
        case ast.Slice(lower, upper, step) if lower or upper:
            yield f"{text}: whole axis", ast.Slice(None, None, step)
        case ast.Call(function, arguments, keywords):
            for i, keyword in enumerate(keywords):
                left = keywords[:i] + keywords[i + 1 :]
                yield f"{text}: {keyword.arg} left out", ast.Call(function, arguments, left)
            if isinstance(function, ast.Attribute) and not (
                arguments and isinstance(function.value, ast.Name)
            ):
                yield f"{text}: call skipped", function.value
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Sub):
        yield f"{text}: +=", ast.AugAssign(node.target, ast.Add(), node.value)


if __name__ == "__main__":
    sys.exit(main())
