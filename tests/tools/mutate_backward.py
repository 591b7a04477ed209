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
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from npformer.commands.arguments import natural, new_parser, positive  # needs pip install -e .
from npformer.commands.command import command

from npformer.gradients.cases import CASES

ROOT = Path(__file__).resolve().parents[2]
# the tests that notice most mutants soonest, for the folders and files outside the reference
FIRST = {
    "layers": ["tests/models/test_layers.py", "tests/models/test_every_model.py"],
    "layers/recurrence": ["tests/models/test_every_model.py"],
    "models/encoder_decoder": [
        "tests/models/test_every_model.py",
        "tests/models/test_transformer.py",
    ],
    "models/transformer": [
        "tests/models/test_transformer.py",
        "tests/models/test_every_model.py",
    ],
    "models/recurrent": ["tests/models/test_every_model.py"],
    "models/autoencoder": ["tests/models/test_every_model.py"],
    "models/bytenet": ["tests/models/test_bytenet.py", "tests/models/test_every_model.py"],
}
FILES = [
    *(
        path
        for folder in ("reference/math", "layers")
        for path in sorted((ROOT / "npformer" / folder).glob("*.py"))
    ),
    *(ROOT / "npformer" / f"{name}.py" for name in FIRST if name.startswith("models/")),
]
PYTEST = ["-x", "-q", "--no-header", "-p", "no:cacheprovider"]
# tests that also run kernels
COMPILED = ["parity", "fuzz", "kernel_cache", "memory", "few_rows", "bad_options"]
WITHOUT_KERNELS = [
    *(f"--ignore=tests/operations/test_{name}.py" for name in COMPILED),
    "-k",
    "not cpu and not gpu",
]
POISON = [
    f"tests/operations/test_{name}.py"
    for name in ("poison", "masking", "forward_oracles", "flash_attention")
]
SECOND_OF_REFERENCE = [*POISON, "tests/operations", *WITHOUT_KERNELS]
SECOND = ["tests/models", "tests/training", *WITHOUT_KERNELS]
HELPERS = {
    "cross_entropy",
    "paired_cross_entropy",
    "mse_loss",
    "huber_loss",
    "errors_and_share",
    "is_counted",
    "added_up",
    "product",
    "shares",
    "state_before",
    "taps",
    "_direction",
    "_hidden",
    "blocks",
    "scores_tile",
    "mask_tile",
    "dropout_tile",
    "dropout_keep",
    "kept_scale",
}
COMMUTATIVE = {"min", "max", "maximum", "swapaxes", "_dtype"}
KEPT = {"str", "range", "zip", "warn", "result_type", "operation", "backward_of", "array"}


@command
def main(argv=None):
    parser = new_parser(__doc__)
    parser.add_argument("--only", default="", help="only files whose name begins with this")
    parser.add_argument(
        "--sample",
        type=positive,
        metavar="N",
        help="so many mutants, drawn at random (default: all)",
    )
    parser.add_argument(
        "--seed", type=natural, default=0, help="of the sample (default: %(default)s)"
    )
    parser.add_argument(
        "--jobs",
        type=positive,
        default=os.cpu_count(),
        help="mutants at a time (default: all cores)",
    )
    options = parser.parse_args(argv)
    files = [path for path in FILES if place_of(path).startswith(options.only)]
    mutants = [mutant for path in files for mutant in mutants_of(path)]
    if options.sample and options.sample < len(mutants):
        mutants = random.Random(options.seed).sample(mutants, options.sample)
    print(
        (
            f"{len(mutants)} mutants of {len({(path, name) for path, name, *_ in mutants})} "
            "backward passes"
        ),
        flush=True,
    )

    survivors = []
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(options.jobs) as pool,
    ):
        workplaces = Workplaces(Path(folder))
        if not workplaces.survives(files[0], files[0].read_text()):
            sys.exit("the tests fail without any mutation, so no mutant can be tested")
        runs = {
            pool.submit(workplaces.survives, path, source): (path, name, line, change)
            for path, name, line, change, source in mutants
        }
        for done, run in enumerate(concurrent.futures.as_completed(runs), 1):
            if run.result():
                path, name, line, change = runs[run]
                survivors.append(run)
                print(f"SURVIVED {path.relative_to(ROOT)}:{line} {name}: {change}", flush=True)
            if done % 50 == 0:
                print(f"{done} of {len(mutants)} tried, {len(survivors)} survived", flush=True)
    print(f"{len(mutants)} mutants, {len(survivors)} survivors")
    return 1 if survivors else 0


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
            if first:
                return all(
                    self._passes(place, ["pytest", *PYTEST, *tests]) for tests in (first, SECOND)
                )
            own = sorted({case.operation for case in CASES if module_of(case) == path.stem})
            return (
                self._passes(place, ["npformer", "gradcheck", "--stop", *own])
                and self._passes(place, ["pytest", *PYTEST, *SECOND_OF_REFERENCE])
                and self._passes(place, ["pytest", *PYTEST, *SECOND])
            )
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
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        if function.name.endswith("backward") or function.name in HELPERS:
            elsewhere = {
                id(node)
                for child in ast.walk(function)
                if is_apart(child, function)
                for node in ast.walk(child)
            }
            for node in ast.walk(function):
                if id(node) not in elsewhere:
                    for change, new in mutations(node):
                        yield (
                            path,
                            function.name,
                            node.lineno,
                            change,
                            with_replaced(tree, node, new),
                        )


def is_apart(node, outer):
    """Whether a node is mutated separately (an inner function) or not at all (the message of an
    error).
    """
    return isinstance(node, ast.Raise) or (isinstance(node, ast.FunctionDef) and node is not outer)


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
                    flipped = [*elements[:i], ast.UnaryOp(ast.USub(), element), *elements[i + 1 :]]
                    yield f"{text}: result {i} negated", ast.Return(ast.Tuple(flipped, ast.Load()))
        case ast.Return(value) if value is not None and is_gradient(value):
            yield f"{text}: negated", ast.Return(ast.UnaryOp(ast.USub(), value))
        case ast.Dict(keys, values) if len(values) > 1:
            for i in range(len(values) - 1):
                swapped = [*values[:i], values[i + 1], values[i], *values[i + 2 :]]
                yield f"{text}: entries {i} and {i + 1} swapped", ast.Dict(keys, swapped)
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
            for i in range(len(arguments) - 1) if name_of(function) not in COMMUTATIVE else ():
                swapped = [*arguments[:i], arguments[i + 1], arguments[i], *arguments[i + 2 :]]
                yield (
                    f"{text}: arguments {i} and {i + 1} swapped",
                    ast.Call(function, swapped, node.keywords),
                )


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
    changed = copy.deepcopy(tree, memo := {})
    twin = memo[id(node)]

    class Replace(ast.NodeTransformer):
        def visit(self, child):
            return copy.deepcopy(new) if child is twin else self.generic_visit(child)

    return ast.unparse(ast.fix_missing_locations(Replace().visit(changed)))


if __name__ == "__main__":
    sys.exit(main())
