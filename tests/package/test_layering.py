"""What may know of what."""

import ast
import re
from pathlib import Path

import npformer

PACKAGE = Path(npformer.__file__).parent
DEVICE = re.compile(r"import cupy|\bcupy\.|is_gpu|is_on_gpu|is_cupy|== .npformer\.gpu")
MAY_KNOW = {"backends.py", "arrays.py"}  # which backend there is, and whose array this is

FLOORS = """
    arrays
    checks tree
    runtime
    operations
    reference
    cpu gpu gradcheck plots
    backends
    config decoding
    layers data
    models
    training
    exercises translation
    __main__
"""
UPWARD = {("reference", "layers")}  # decoder_layer_step is composed of layers


def test_nothing_imports_what_stands_above_it():
    floors = {name: floor for floor, line in enumerate(FLOORS.split("\n")) for name in line.split()}
    imports = set()
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "npformer":
                imports |= {(own, alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("npformer."):
                imports.add((own, str(node.module).split(".")[1]))
            elif isinstance(node, ast.Import):
                imports |= {
                    (own, alias.name.split(".")[1]) for alias in node.names if alias.name.startswith("npformer.")
                }
    imports = {(own, other) for own, other in imports if own != other and other != "__version__"}
    assert {name for pair in imports for name in pair} - {"npformer"} == set(floors)
    assert {(own, other) for own, other in imports if floors[own] <= floors[other]} == UPWARD


def test_only_the_backend_of_the_gpu_knows_its_device():
    files = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "gpu" and path.name not in MAY_KNOW]
    assert len(files) > 80
    knowing = {str(path.relative_to(PACKAGE)) for path in files if DEVICE.search(path.read_text("utf-8"))}
    assert knowing == set()


def test_each_backend_knows_its_device():
    from npformer import cpu, reference
    from npformer.runtime import host

    names = {"PRECISIONS", "asarray", "asynchronous", "record", "run_rows", "run_shards", "to_numpy"}
    assert {name for name in vars(host) if name in names} == names
    for ops in (reference, cpu):
        assert all(getattr(ops, name) is getattr(host, name) for name in names)
        assert not names & set(reference.__all__)
