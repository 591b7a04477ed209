"""Every kernel is shipped, and compiles with NVRTC, the compiler that CuPy uses,
which needs no GPU; the comment above its call repeats its declaration.
"""

import ast
import ctypes
import importlib.util
import itertools
import re
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from on_gpu import MISSING, gpu

if MISSING:
    pytest.skip(MISSING, allow_module_level=True)

launch = sys.modules["npformer.gpu.launch"]
# the package has a function of that name
tiles = sys.modules["npformer.gpu.kernels.flash_attention"]

GPUS = "sm_80", "sm_90", "sm_120"
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FOLDER = Path(gpu.__file__).parent
SOURCES = sorted(FOLDER.glob("cuda/*.cu"))
assert SOURCES, FOLDER
FILES = [source.stem for source in SOURCES]
NVIDIA = importlib.util.find_spec("nvidia")
CUDA = [Path(folder) / "cu13" for folder in NVIDIA.submodule_search_locations] if NVIDIA else []
LIBRARIES = [path for folder in CUDA for path in folder.glob("lib/libnvrtc.so.13")]


@pytest.fixture(scope="module")
def nvrtc():
    if not LIBRARIES:
        pytest.skip(
            "there is no compiler for the kernels of npformer.gpu: pip install -e '.[nvrtc]'"
        )
    return ctypes.CDLL(LIBRARIES[0])


def compile_for(gpu_name, module, nvrtc):
    """The status and the messages of the compiler.

    Without optimization, which would take five times as long.
    """
    folders = [f"-I{path}/include" for path in CUDA]
    options = [*module["options"], f"-arch={gpu_name}", "--Ofast-compile=max", *folders]
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    code = module["code"].encode()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), code, b"kernels.cu", 0, None, None)
    texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = nvrtc.nvrtcCompileProgram(program, len(options), texts)
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    messages = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, messages)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return status, messages.value.decode()


def variants(file):
    """The dtypes and macros with which a file of kernels is compiled."""
    if file == "flash_attention":
        widths = [("float32", 16), ("float64", 16), (BFLOAT16, 32), ("float64", 32)]
        widths += [("float16", 64), ("float64", 64), ("float32", 128)]
        found = []
        for dtype, width in widths:
            itemsize = max(4, np.dtype(dtype).itemsize)
            found.append((dtype, tiles.plain_tiles(width, itemsize).constants))
        return found
    if file == "tensor_attention":
        widths = [(BFLOAT16, width) for width in tiles.WIDTHS] + [("float16", 64)]
        return [(dtype, tiles.tensor_tiles(width).constants) for dtype, width in widths]
    half = ("float16", BFLOAT16)[FILES.index(file) % 2]
    return [(dtype, {}) for dtype in ("float32", "float64", half)]


def test_other_files_do_not_tell_the_types_of_half_precision_apart():
    """So that each of them is compiled for one of the two."""
    names = {path.name for path in FOLDER.glob("cuda/*.cu*") if "FLOAT16" in path.read_text()}
    assert names == {"common.cuh", "tensor_attention.cu", "tensor_cores.cuh"}


@pytest.mark.parametrize("file", FILES)
def test_it_compiles_without_a_warning(file, nvrtc, monkeypatch):
    """In the variants that the package compiles, for several generations of GPUs."""
    monkeypatch.setattr(launch.cupy, "RawModule", dict)
    each_gpu = itertools.cycle(GPUS)
    for dtype, constants in variants(file):
        gpu_name = next(each_gpu)
        module = launch._module.__wrapped__(file, np.dtype(dtype), tuple(constants.items()))
        assert compile_for(gpu_name, module, nvrtc) == (0, ""), (gpu_name, dtype, constants)


def test_every_source_is_a_kernel_that_the_package_ships():
    code = "".join(path.read_text() for path in FOLDER.rglob("*.py"))
    for source in SOURCES:
        for kernel in re.findall(r"__global__ void (\w+)\(", source.read_text()):
            assert f'"{kernel}"' in code, f"{source.name}: nobody runs {kernel}"


CODE = "".join(path.read_text() for path in FOLDER.glob("cuda/*.cu*"))


def test_a_comment_says_what_a_file_and_a_kernel_compute():
    for path in FOLDER.glob("cuda/*.cu*"):
        lines = path.read_text().splitlines()
        assert lines[0].startswith("// "), path.name
        for above, line in itertools.pairwise(lines):
            if line.startswith('extern "C"'):
                assert above.startswith("// "), f"{path.name}: {line}"


def test_a_comment_above_its_call_is_the_declaration_of_a_kernel():
    """The call has its parameters in this order; no other comment looks like a declaration."""
    kernels = re.findall(r"__global__ void (\w+)\((.*?)\) {", CODE, re.DOTALL)
    declared = {name: names_of(parameters) for name, parameters in kernels}
    launched = set()
    for path in FOLDER.rglob("*.py"):
        text = path.read_text()
        comments = comments_above(text)
        found = {line for line, text in comments.items() if text.partition("(")[0] in declared}
        for name, call in launches(ast.parse(text), declared):
            where = f"{path.name}:{call.lineno}"
            assert comments.get(call.lineno) == f"{name}({', '.join(declared[name])})", where
            found.discard(call.lineno)
            launched.add(name)
            if ast.unparse(call.func) == "kernel":
                assert fits(call.args, declared[name]), where
        assert not found, path
    assert launched == declared.keys()


def launches(tree, declared):
    """(name of a kernel, call) of each call that launches a kernel, or that tells a function which
    one it is to launch.
    """
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    name = None
    for call in sorted(calls, key=lambda call: call.lineno):
        function = ast.unparse(call.func)
        if function == "kernel":
            if name:
                yield name, call
            continue
        has_file = function in ("cuda_kernel", "element_kernel", "row_kernel")
        told = call.args[1 if has_file else 0]
        told = told.value if isinstance(told, ast.Constant) else None
        if has_file or function == "_kernel":
            name = told  # None where the function is told by its caller
        elif told in declared:
            yield told, call


def fits(arguments, parameters):
    """Whether arguments are as many as the parameters, and in their order where they have their
    names; those from the first with a star on are not known.
    """
    known = list(itertools.takewhile(lambda x: not isinstance(x, ast.Starred), arguments))
    if len(known) == len(arguments) and len(arguments) != len(parameters):
        return False
    names = [ast.unparse(argument) for argument in known]
    return all(name == parameters[i] for i, name in enumerate(names) if name in parameters)


def comments_above(text):
    """The comments that stand on lines of their own, by the number of the line below."""
    comments = {}
    above = ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip().startswith("# "):
            above += line.strip().removeprefix("#")
        else:
            comments[number] = above.strip()
            above = ""
    return comments


def test_the_fields_of_records_are_in_the_order_of_the_declaration():
    [head_arguments] = re.findall(r"#define HEAD_ARGUMENTS([^#]*)", CODE)
    fields = [*tiles.Sizes._fields, *tiles.KernelOptions._fields]
    assert names_of(head_arguments) == fields


def names_of(parameters):
    """The names of the parameters of a kernel, HEADS(x) and other macros as they are."""
    return [re.findall(r"\w+(?:\(\w+\))?", x)[-1] for x in parameters.split(",")]
