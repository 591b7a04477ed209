"""Compiled kernels are kept on disk, and compiled again when any file they may depend
on has changed.
"""

import importlib
import inspect
import os
import pickle
import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path

import numba
import numpy as np
import pytest
from llvmlite.binding import parse_bitcode
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher
from programs import compiling, python
from results import arguments_of, run

import npformer
from npformer import cpu
from npformer.cpu import jit, kernel_cache
from npformer.cpu.few_rows import team_for
from npformer.cpu.kernel_cache import HEADER

NUMBER = re.compile(r"(?<=B)\d+v\d+")  # of a function, in the names that numba makes

RUN = """
import sys
from hashlib import md5
import numpy as np
from npformer import cpu
from npformer.cpu.kernels.dropout import drop_row
x = np.random.default_rng(0).standard_normal((5, 17), np.float32)
results = [*cpu.layer_norm(x, x[0], x[1]), *cpu.cross_entropy(x, np.arange(5))]
print(md5(b"".join(x.tobytes() for x in results)).hexdigest(), end=" ")
result = cpu.dropout(np.ones(4, np.float32), 0.5, 1).tolist()
n_compiled = sum(drop_row.stats.cache_misses.values())
print(result, "with the compiler" if "numba.np.linalg" in sys.modules else "without it", n_compiled)
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package, and a function that runs code with it and returns what it prints."""
    ignored = shutil.ignore_patterns("__pycache__")
    copy = shutil.copytree(Path(npformer.__file__).parent, tmp_path / "npformer", ignore=ignored)

    def run(**environment):
        variables = compiling(PYTHONPATH=tmp_path, **environment)
        return python("-c", RUN, cwd=tmp_path, env=variables).stdout.strip()

    return copy, run


def test_compiled_once_and_again_when_a_file_changes_whose_functions_are_called(package):
    """A process that finds kernels on disk computes the bits of the one that has compiled them.

    Otherwise a resumed training would not reproduce, bit for bit, the training that compiled them.
    """
    copy, run = package
    first = run()
    assert first.endswith(" with the compiler 1")
    path = copy / "cpu" / "kernels" / "recurrence.py"
    path.write_text(path.read_text("utf-8") + "\n# no function of this file is called\n", "utf-8")
    assert run() == first.removesuffix("with the compiler 1") + "without it 0"
    path = copy / "cpu" / "draws.py"
    path.write_text(path.read_text("utf-8").replace("0x7FEB352D", "0x7FEB352F"), "utf-8")
    changed = run()
    assert changed.endswith(" 1")
    assert changed != first


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere"
)
def test_where_nothing_can_be_written_kernels_compile_all_the_same(package):
    copy, run = package
    for folder in (copy / "cpu", copy):
        folder.chmod(0o500)
    assert run(HOME="/nonexistent", XDG_CACHE_HOME="/nonexistent") == run(HOME="/nonexistent")


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A function that returns a tiny kernel, as a new process would find it,
    and the folder of its files.
    """
    (tmp_path / "tiny_kernel.py").write_text("def tiny(x):\n    return x + 1\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tiny_kernel", raising=False)
    kernel_cache._warn.cache_clear()
    function = importlib.import_module("tiny_kernel").tiny
    return lambda: jit.kernel(function), tmp_path / "__pycache__"


def computes(kernel):
    """Whether it is right for a number and for an array, for which it is compiled apart."""
    return (kernel(1.0), kernel(np.ones(1))) == (2, [2])


def is_loaded(kernel):
    """Whether a kernel, which has been called, was found on disk."""
    return not kernel.stats.cache_misses


@pytest.mark.parametrize(
    "error, message",
    [
        (
            RuntimeError("no locator available"),
            "no folder can be written.* set NUMBA_CACHE_DIR to a folder",
        ),
        (AttributeError("no attribute '_impl'"), "does not know this numba"),
    ],
)
def test_without_a_place_to_write_kernels_are_not_kept(tiny, monkeypatch, error, message):
    def refuse(self, function):
        raise error

    monkeypatch.setattr(FunctionCache, "__init__", refuse)
    new, folder = tiny
    with pytest.warns(UserWarning, match=message) as said:
        assert (new()(1.0), new()(1.0)) == (2, 2)
    assert len(said) == 1
    assert not folder.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: b"no kernel",
        lambda whole: bytes(len(whole)),
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:],  # in the machine code
    ],
    ids=["empty", "garbage", "zeros", "cut", "a bit"],
)
def test_a_damaged_file_is_replaced(tiny, damage):
    new, folder = tiny
    kernel = new()
    assert computes(kernel)
    files = {path: path.read_bytes() for path in folder.iterdir()}
    for path, whole in files.items():
        path.write_bytes(damage(whole))
    kernel = new()
    with pytest.warns(
        UserWarning, match="a compiled kernel in .*__pycache__ is damaged: it is compiled"
    ) as said:
        assert computes(kernel)
    assert len(said) == 1
    assert set(folder.iterdir()) == set(files)
    kernel = new()
    assert computes(kernel)
    assert is_loaded(kernel)


def test_a_full_disk_does_not_stop_a_kernel(tiny):
    resource = pytest.importorskip("resource")
    new, folder = tiny
    kernel = new()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.warns(
        UserWarning, match="cannot be kept in .*__pycache__: File too large. .* NUMBA_CACHE_DIR"
    ) as said:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            assert computes(kernel)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(said) == 1
    assert list(folder.iterdir()) == []
    kernel = new()
    assert kernel(1.0) == 2
    assert not is_loaded(kernel)


def test_a_folder_that_is_gone_is_made_again(tiny):
    new, folder = tiny
    kernel = new()
    shutil.rmtree(folder)
    assert kernel(1.0) == 2
    kernel = new()
    assert kernel(1.0) == 2
    assert is_loaded(kernel)
    shutil.rmtree(folder)
    folder.touch()  # where no folder can be made
    with pytest.warns(UserWarning, match="cannot be kept in .*__pycache__: "):
        assert kernel(np.ones(1)) == [2]


def test_two_processes_that_compile_at_once_do_not_mix_their_kernels(tiny, monkeypatch):
    """Each saves its own signature, the second one in the middle of the first one's save."""
    new, _ = tiny
    first, second = new(), new()
    dumps = kernel_cache.dumps

    def save_another(data):
        monkeypatch.setattr(kernel_cache, "dumps", dumps)
        second(np.ones(1))
        return dumps(data)

    monkeypatch.setattr(kernel_cache, "dumps", save_another)
    first(1.0)
    kernel = new()
    assert computes(kernel)
    assert is_loaded(kernel)


def test_each_file_that_a_file_of_kernels_imports_is_found():
    """Otherwise a change of it would not make them stale."""
    for path in kernel_cache.FOLDER.rglob("*.py"):
        for imported in kernel_cache._read(path)[1]:
            assert imported.is_file(), f"{path} imports {imported}"


def test_a_number_of_another_room_makes_kernels_stale(monkeypatch):
    read = kernel_cache._read.__wrapped__  # without what it remembers
    update = kernel_cache.FOLDER / "kernels/update.py"
    before = read(update)
    monkeypatch.setattr("npformer.reference.math.update.NORM_BLOCK", 2**13)
    assert read(update) != before


def test_every_number_of_a_kernel_is_part_of_its_origin():
    """It stands in a file that the kernel is made of, or is one of another room that is read."""
    n_numbers = 0
    for function in jit.KERNELS:
        path = Path(function.__code__.co_filename)
        if kernel_cache.FOLDER not in path.parents:
            continue  # a kernel of a test
        text = path.read_text("utf-8")
        texts = [file.read_text("utf-8") for file in kernel_cache.files_of(path)]
        for name, value in inspect.getclosurevars(function).globals.items():
            if isinstance(value, int | float | str):
                n_numbers += 1
                is_defined = re.compile(rf"^(\w+, )*{name}\b.* = |^{name} = ", re.MULTILINE)
                is_followed = name in kernel_cache.constants_in(text)
                assert is_followed or any(map(is_defined.search, texts)), f"{path}: {name}"
    assert n_numbers


def test_every_function_that_a_kernel_calls_is_inlined():
    """Otherwise it is linked: to another copy in a process that compiles the kernel than in one
    that loads it.
    """
    team_for(np.dtype("float32"))  # compiles a kernel that is defined in a function
    linked = set()
    for function in jit.KERNELS:
        found = inspect.getclosurevars(function)
        called = [*found.globals.values(), *found.nonlocals.values()]
        for module in filter(inspect.ismodule, found.globals.values()):
            called += [vars(module).get(name) for name in function.__code__.co_names]
        for x in called:
            if isinstance(x, Dispatcher) and not x.targetoptions["forceinline"]:
                linked.add(x.py_func)
    assert not linked & set(jit.KERNELS)


def modules_on_disk():
    """The LLVM modules of our kernels that are on disk, in the version of now."""
    for kernel in jit.KERNELS.values():
        folder = kernel_cache.folder_of(kernel)
        if not kernel.__module__.startswith("npformer.") or folder is None:
            continue
        for path in folder.glob(f"{kernel._cache._impl.filename_base}.*.nbc"):
            library, _, _, signature, *_ = pickle.loads(path.read_bytes()[HEADER:])
            place = kernel_cache.place_of(kernel, signature.args)
            if place.path == path and place.is_filled():
                _, _, (_, bitcode) = library
                yield parse_bitcode(bitcode)


# Comments, numbers of metadata and of attributes, and names of values differ from kernel to kernel.
OF_A_KERNEL = re.compile(r";.*|, ![\w.]+ !\d+|[#!]\d+|%[\w.]+|^[\w.]+:", re.MULTILINE)


def body_of(function):
    """The text of a function in LLVM, without what differs from kernel to kernel."""
    text = OF_A_KERNEL.sub("", NUMBER.sub("", str(function)))
    return text.split()


def test_no_two_functions_share_the_name_by_which_kernels_are_linked():
    """A kernel from disk takes what another process has compiled under the name of a function that
    it calls. The number that numba adds to a name may be that of another function there.
    """
    for name in ("flash_attention", "flash_attention_backward", "linear"):
        run(cpu, name, arguments_of(name))  # each is linked with a function of ours
    bodies = defaultdict(list)
    for module in modules_on_disk():
        for function in module.functions:
            if not function.is_declaration:
                bodies[NUMBER.sub("", function.name)].append(function)
    assert any("padded" in name for name in bodies)  # with loops that are linked
    for name, functions in bodies.items():
        first, *others = functions
        if others:
            expected = body_of(first)
            assert all(body_of(function) == expected for function in others), name
