"""What may know of what."""

import ast
import re
from inspect import isfunction
from pathlib import Path

import numpy as np
import pytest
from programs import python

import npformer
from npformer.operations.host import Host

PACKAGE = Path(npformer.__file__).parent
DEVICE = re.compile(r"\bcupy\b|is_cupy|is_recording|\bname [!=]= .[cg]pu\b")
# Which backend it is, whose array, and what is recorded.
MAY_KNOW = {"backends.py", "arrays.py", "checks.py", "operations/options.py"}

# What does not reach a user: of the authors of exercises, and of processes of their own, in which a
# ValueError is caught.
RAISED_ELSEWHERE = [
    "exercises/exercise.py: ValueError(f'{self.name}: a mistake replaces {old!r}, {reason}')",
    "exercises/verdict.py: ValueError('there is no verdict')",
    "pretrained/sandbox.py: ValueError(f'the text has more than {MOST_CHARACTERS:,} characters')",
    "pretrained/sandbox.py: ValueError(why)",
]

# data, language and translation are old paths of what text and tokens have.
FLOORS = """
    arrays errors extras
    checks tree
    runtime
    progress files
    operations quantized
    reference
    kernels
    cpu gpu gradients plots
    backends
    config layers
    decoding tokens
    models
    diagnosis
    training
    pretrained
    text
    data exercises language translation
    commands
    __main__
"""


def imported_by(node):
    """The names of the rooms that a node of Python's syntax imports."""
    match node:
        case ast.ImportFrom(module="npformer", names=names):
            paths = [f"npformer.{alias.name}" for alias in names]
        case ast.ImportFrom(module=module):
            paths = [str(module)]
        case ast.Import(names=names):
            paths = [alias.name for alias in names]
        case _:
            paths = []
    return {path.split(".")[1] for path in paths if path.startswith("npformer.")}


def test_nothing_imports_what_stands_above_it():
    floors = {name: floor for floor, line in enumerate(FLOORS.split("\n")) for name in line.split()}
    imports = set()
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            imports |= {(own, other) for other in imported_by(node) - {own, "__version__"}}
    assert {name for pair in imports for name in pair} == set(floors)
    assert {(own, other) for own, other in imports if floors[own] <= floors[other]} == set()


def test_what_the_package_raises_of_its_users_is_a_user_error():
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Raise) and node.exc:
                raised = ast.unparse(node.exc)
                if raised.partition("(")[0] == "ValueError":
                    found.append(f"{path.relative_to(PACKAGE).as_posix()}: {raised}")
    reason = "a command shows its traceback: raise UserError"
    assert sorted(found) == RAISED_ELSEWHERE, reason


def test_only_the_backend_of_the_gpu_knows_its_device():
    knowing = {
        path.relative_to(PACKAGE)
        for path in PACKAGE.rglob("*.py")
        if DEVICE.search(path.read_text("utf-8"))
    }
    assert {path.as_posix() for path in knowing if path.parts[0] != "gpu"} == MAY_KNOW


def test_the_device_of_the_gpu_has_the_methods_of_the_host():
    tree = ast.parse((PACKAGE / "gpu" / "device.py").read_text("utf-8"))
    [device] = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    names = {node.name for node in device.body if isinstance(node, ast.FunctionDef)}
    of_python = {"__annotate_func__"}  # since 3.14
    assert names == {name for name, value in vars(Host).items() if isfunction(value)} - of_python


MISSPELLED = """
import npformer as nf
model = nf.Transformer(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
trainer = nf.Trainer(model, nf.Adam(lr=0.1, betaz=(0.9, 0.98)), clip_nrm=1.0)
trainer.fit([], every="10")
nf.compile_kernels(model, label_smooth=0.1)
"""
TYPES = [
    '"betaz" for "Adam"',
    '"clip_nrm" for "Trainer"',
    '"every" to "fit" of "Trainer" has incompatible type "str"',
    '"label_smooth" for "compile_kernels"',
]


def test_a_misspelled_operation_or_setting_is_an_error_of_types(tmp_path):
    code = "def layer(ops: Ops, x: Array) -> None:\n    ops.{}(x, x)\n"
    imports = "from npformer.arrays import Array\nfrom npformer.reference import Ops\n"
    paths = [tmp_path / f"{name}.py" for name in ("linear", "linaer")]
    for path in paths:
        path.write_text(imports + code.format(path.stem))
    settings = tmp_path / "settings.py"
    settings.write_text(MISSPELLED)
    user = Path(__file__).with_name("typed_program.py")
    # What NumPy's arrays hold has to be written before NumPy 2.3.
    options = ["--allow-any-generics"] if np.lib.NumpyVersion(np.__version__) < "2.3.0" else []
    # a cache that is not that of make lint
    options += ["--strict", "--follow-imports=silent", "--cache-dir=.mypy_cache/strict"]
    shown = python(
        "-m", "mypy", *options, *paths, settings, user, code=1, cwd=PACKAGE.parent
    ).stdout
    assert '"Ops" has no attribute "linaer"' in shown
    assert [text for text in TYPES if text not in shown] == []
    assert "Found 5 errors in 2 files (checked 4 source files)" in shown


def test_a_program_with_a_model_of_its_own_runs(tmp_path):
    pytest.importorskip("safetensors")
    program = Path(__file__).with_name("typed_program.py")
    shown = python(program, tmp_path / "x.safetensors", cwd=PACKAGE.parent).stdout
    assert "after 130 steps" in shown
