"""Every kernel is shipped, and compiles with NVRTC, the compiler that CuPy uses,
which needs no GPU; the comment above its call repeats its declaration.
"""

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
    return [(dtype, {}) for dtype in ("float32", "float64", "float16", BFLOAT16)]


@pytest.mark.parametrize("file", [source.stem for source in SOURCES])
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


def test_a_comment_above_its_call_is_the_declaration_of_a_kernel():
    """Also the fields of a record are in the order of the declaration."""
    cuda = "".join(path.read_text() for path in FOLDER.glob("cuda/*.cu*"))
    kernels = re.findall(r"__global__ void (\w+)\((.*?)\) {", cuda, re.DOTALL)
    declared = {f"{name}({', '.join(names_of(parameters))})" for name, parameters in kernels}
    code = "".join(path.read_text() for path in FOLDER.rglob("*.py"))
    comments = re.findall(r"(?: *# .*\n)+", code)
    assert declared <= {re.sub(r"\s*# |\n", " ", comment).strip() for comment in comments}

    [head_arguments] = re.findall(r"#define HEAD_ARGUMENTS([^#]*)", cuda)
    fields = [*tiles.Sizes._fields, *tiles.KernelOptions._fields]
    assert names_of(head_arguments) == fields


def names_of(parameters):
    """The names of the parameters of a kernel, HEADS(x) and other macros as they are."""
    return [re.findall(r"\w+(?:\(\w+\))?", x)[-1] for x in parameters.split(",")]
