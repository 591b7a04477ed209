"""Mutation testing of the backward passes: check that the tests notice a wrong gradient.

The script mutates each function named ``backward`` or ``*_backward``, the losses, which return
their own gradient, and the helpers that they share. Each mutant has one change: a sign is flipped,
a term, factor or exponent dropped, a transposition undone, a call or a selection skipped, or two
neighbouring arguments swapped. Then the tests run on that copy of the package. A mutant that no
test notices is a survivor, and is printed with its line.

    # everything, about twenty minutes on 2 cores
    python tests/tools/mutate_backward.py
    # the files whose names begin with this
    python tests/tools/mutate_backward.py --only reference/math/normalisation
    # a random part of them
    python tests/tools/mutate_backward.py --sample 50
"""

import ast
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from npformer.commands.shared import Positive

from npformer.gradients.cases import CASES
from tests.tools.tool import Natural, Seed, sampled, tool

ROOT = Path(__file__).resolve().parents[2]
EVERY_MODEL = "tests/models/test_every_model.py"
# the tests that notice most mutants soonest, for the folders and files outside the reference
FIRST = {
    "layers": ["tests/models/test_layers.py", EVERY_MODEL],
    "layers/recurrence": [EVERY_MODEL],
    "models/encoder_decoder": [EVERY_MODEL, "tests/models/test_transformer.py"],
    "models/transformer": ["tests/models/test_transformer.py", EVERY_MODEL],
    "models/recurrent": [EVERY_MODEL],
    "models/autoencoder": [EVERY_MODEL],
    "models/bytenet": ["tests/models/test_bytenet.py", EVERY_MODEL],
}
PACKAGE = ROOT / "npformer"
FILES = [*sorted(PACKAGE.glob("reference/math/*.py")), *sorted(PACKAGE.glob("layers/*.py"))]
FILES += [PACKAGE / f"{name}.py" for name in FIRST if name.startswith("models/")]
PYTEST = ["-x", "-q", "--no-header", "-p", "no:cacheprovider"]
# tests that also run kernels
COMPILED = ["parity", "fuzz", "kernel_cache", "memory", "few_rows", "bad_options"]
WITHOUT_KERNELS = [f"--ignore=tests/operations/test_{name}.py" for name in COMPILED]
WITHOUT_KERNELS += ["-k", "not cpu and not gpu"]
POISON = ["poison", "masking", "forward_oracles", "flash_attention"]
POISON = [f"tests/operations/test_{name}.py" for name in POISON]
SECOND_OF_REFERENCE = [*POISON, "tests/operations", *WITHOUT_KERNELS]
SECOND = ["tests/models", "tests/training", *WITHOUT_KERNELS]
HELPERS = {"cross_entropy", "paired_cross_entropy", "mse_loss", "huber_loss", "errors_and_share"}
HELPERS |= {"is_counted", "added_up", "product", "shares", "state_before", "states_before", "taps"}
HELPERS |= {"_hidden", "is_visible", "tiles_of", "of", "positions", "blocks", "scores_tile"}
HELPERS |= {"dropout_tile", "dropout_keep", "kept_scale", "mean_divisor"}
N_CORES = os.cpu_count()
COMMUTATIVE = {"min", "max", "maximum", "swapaxes", "_dtype"}
KEPT = {"str", "range", "zip", "warn", "result_type", "operation", "backward_of", "array"}


@tool
def main(
    *,
    only: str = "",
    sample: Natural | None = None,
    jobs: Positive = N_CORES,
    seed: Seed = 0,
):
    """Mutate backward passes.

    Parameters
    ----------
    only
        only the files whose names begin with this
    sample
        so many mutants, drawn at random
    jobs
        mutants at a time
    """
    trees = [ast.parse(path.read_text()) for path in FILES]
    missing = HELPERS - {function.name for tree in trees for function in functions_of(tree)}
    if missing:
        sys.exit(f"no file has these helpers: {', '.join(sorted(missing))}")
    files = [path for path in FILES if place_of(path).startswith(only)]
    mutants = sampled([mutant for path in files for mutant in mutants_of(path)], sample, seed)
    n_functions = len({(path, name) for path, name, *_ in mutants})
    print(f"{len(mutants)} mutants of {n_functions} backward passes", flush=True)
    survivors = []
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(jobs) as pool,
    ):
        workplaces = Workplaces(Path(folder))
        if not workplaces.survives(files[0], files[0].read_text()):
            sys.exit("the tests fail without any mutation, so no mutant can be tested")
        runs = {}
        for path, name, line, change, source in mutants:
            place = f"{path.relative_to(ROOT)}:{line} {name}: {change}"
            runs[pool.submit(workplaces.survives, path, source)] = place
        for done, run in enumerate(concurrent.futures.as_completed(runs), 1):
            if run.result():
                survivors.append(f"SURVIVED {runs[run]}")
                print(survivors[-1], flush=True)
            if done % 50 == 0:
                print(f"{done} of {len(mutants)} tried, {len(survivors)} survived", flush=True)
    return survivors


class Workplaces:
    """A copy of the package and the tests for each thread."""

    def __init__(self, folder):
        self.folder = folder
        self.local = threading.local()

    def survives(self, path, source):
        """Whether every test passes when the text of one file is replaced."""
        place = self._place()
        target = place / path.relative_to(ROOT)
        original = target.read_text()
        target.write_text(source)
        try:
            first = FIRST.get(place_of(path), FIRST.get(path.parent.name))
            runs = [["pytest", *PYTEST, *tests] for tests in (first, SECOND) if tests]
            if not first:
                own = sorted({case.operation for case in CASES if module_of(case) == path.stem})
                runs.insert(0, ["npformer", "gradcheck", "--stop", *own])
                runs.insert(1, ["pytest", *PYTEST, *SECOND_OF_REFERENCE])
            return all(self._passes(place, run) for run in runs)
        finally:
            target.write_text(original)

    def _passes(self, place, arguments):
        threads = {
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(place),
        }
        command = [sys.executable, "-m", *arguments]
        try:
            done = subprocess.run(
                command, cwd=place, env=os.environ | threads, capture_output=True, timeout=600
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def _place(self):
        if not hasattr(self.local, "place"):
            self.local.place = Path(tempfile.mkdtemp(dir=self.folder))
            for name in ("npformer", "tests", "scripts", "docs"):
                shutil.copytree(ROOT / name, self.local.place / name)
            for name in ("setup.cfg", "conftest.py", "README.md"):
                shutil.copy(ROOT / name, self.local.place)
        return self.local.place


def place_of(path):
    """The place of a file in the package, for example ``reference/math/normalisation``."""
    return path.relative_to(ROOT / "npformer").with_suffix("").as_posix()


def module_of(case):
    """The name of the reference's file that contains the operation of a case."""
    return case.forward.record.function.__module__.rpartition(".")[2]


def mutants_of(path):
    """All mutants of a file, as (path, function, line, change, new source)."""
    tree = ast.parse(path.read_text())
    for function in functions_of(tree):
        if function.name.endswith("backward") or function.name in HELPERS:
            for node in own_nodes(function):
                for change, new in mutations(node):
                    source = with_replaced(tree, node, new)
                    yield path, function.name, node.lineno, change, source


def functions_of(tree):
    """All functions in a syntax tree, also inner ones and methods."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def own_nodes(node):
    """A function and its nodes.

    Not those of an inner function, which is mutated separately, nor those of the message of an
    error.
    """
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.Raise, ast.FunctionDef)):
            yield from own_nodes(child)


def mutations(node):
    """(description, replacement) for each way to break one node of the syntax tree."""
    text = ast.unparse(node)
    match node:
        case ast.BinOp(left, ast.Add(), right):
            yield f"{text}: + to -", ast.BinOp(left, ast.Sub(), right)
        case ast.BinOp(left, ast.Sub(), right):
            yield f"{text}: - to +", ast.BinOp(left, ast.Add(), right)
        case ast.BinOp(left, ast.MatMult(), right):
            yield f"{text}: operands swapped", ast.BinOp(right, ast.MatMult(), left)
        case ast.UnaryOp(ast.USub(), operand):
            yield f"{text}: sign dropped", operand
        case ast.AugAssign(target, ast.Add(), value):
            yield f"{text}: += to -=", ast.AugAssign(target, ast.Sub(), value)
            yield f"{text}: += to =", ast.Assign([target], value)
        case ast.Attribute(value, "T"):
            yield f"{text}: not transposed", value
        case ast.Return(ast.Tuple(elements)):
            for i, element in enumerate(elements):
                if is_gradient(element):
                    flipped = [*elements]
                    flipped[i] = ast.UnaryOp(ast.USub(), element)
                    yield f"{text}: result {i} negated", ast.Return(ast.Tuple(flipped, ast.Load()))
        case ast.Return(value) if value is not None and is_gradient(value):
            yield f"{text}: negated", ast.Return(ast.UnaryOp(ast.USub(), value))
        case ast.Dict(keys, values) if len(values) > 1:
            for which, swapped in swaps(values):
                yield f"{text}: entries {which} swapped", ast.Dict(keys, swapped)
        case ast.Call(ast.Name("transpose"), [argument]) | ast.Call(
            ast.Attribute(argument, "swapaxes")
        ):
            yield f"{text}: not transposed", argument
        case ast.Call(
            ast.Attribute(_, "where"), [_, kept, ast.Constant()] | [_, ast.Constant(), kept]
        ):
            yield f"{text}: nothing selected", kept
        case ast.Call(ast.Attribute(operand, "sum" | "mean")):
            yield f"{text}: no sum", operand
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.Pow(), right):
            yield f"{text}: {ast.unparse(right)} dropped", left
            yield f"{text}: {ast.unparse(left)} dropped", right
        case ast.Call(function, [first, *_] as arguments) if name_of(function) not in KEPT:
            yield f"{text}: call skipped", first
            for which, swapped in swaps(arguments) if name_of(function) not in COMMUTATIVE else ():
                new = ast.Call(function, swapped, node.keywords)
                yield f"{text}: arguments {which} swapped", new


def swaps(items):
    """The places of two neighbours, and the list in which they have changed places."""
    for i in range(len(items) - 1):
        swapped = [*items]
        swapped[i : i + 2] = items[i + 1], items[i]
        yield f"{i} and {i + 1}", swapped


def is_gradient(node):
    """Whether a returned expression can be negated.

    Not if it is zeros, a dict of gradients, None or a tuple.
    """
    if isinstance(node, ast.Call) and name_of(node.func) == "zeros_like":
        return False
    return not isinstance(
        node, (ast.Dict, ast.Constant, ast.Tuple, ast.Starred, ast.GeneratorExp, ast.ListComp)
    )


def name_of(function):
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def with_replaced(tree, node, new):
    """The source of the tree with one node replaced."""
    return ast.unparse(ast.fix_missing_locations(replaced(tree, node, new)))


def replaced(tree, node, new):
    """A copy of a tree, or of a list or value in it, that has ``new`` in place of one node."""
    if tree is node:
        return new
    if isinstance(tree, list):
        return [replaced(part, node, new) for part in tree]
    if not isinstance(tree, ast.AST):
        return tree
    return type(tree)(**{name: replaced(part, node, new) for name, part in ast.iter_fields(tree)})


if __name__ == "__main__":
    sys.exit(main())
