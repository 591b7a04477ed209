"""Run CuPy without a GPU.

A pytest plugin, to be loaded before anything imports CuPy. build.py has made that CuPy.

Kernels, CuPy's own and npformer's, are compiled by g++ instead of NVRTC. Those without shared
memory are run by a single thread, which is enough for CuPy's loops over all elements; the others as
in tests/cuda_on_cpu.

MAKE_BELIEVE_FMA=1 fuses products and sums and flushes small numbers to zero, as CuPy's compiler
does. MAKE_BELIEVE_CC=75 makes it another GPU than one of compute capability 9.0.
"""

import ctypes
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
MADE = Path(sys.prefix) / "cupy"  # the folder of build.py
KERNELS = MADE / "kernels"
KERNEL = re.compile(r"__global__\s+(?:__launch_bounds__\([^)]*\)\s*)?void\s+(\w+)\s*\(")
CONTRACTS = os.environ.get("MAKE_BELIEVE_FMA", "0") != "0"


def load():
    """Load the make-believe libraries, and the CuPy that calls them."""
    os.environ["CUPY_ACCELERATORS"] = ""  # CUB would need NVRTC
    cuda, _ = (
        ctypes.CDLL(str(MADE / name), ctypes.RTLD_GLOBAL)
        for name in ("libcuda.so.1", "libcublas.so.13")
    )
    cuda.make_believe_used.restype = ctypes.c_size_t
    cuda.make_believe_limit.argtypes = [ctypes.c_size_t]
    cuda.make_believe_freeing_spoils.argtypes = [ctypes.c_bool]
    from cuda import pathfinder

    # it would load a real library of NVIDIA's
    pathfinder.load_nvidia_dynamic_lib = lambda name: NothingLoaded
    from cupy.cuda import compiler

    KERNELS.mkdir(exist_ok=True)
    compiler._compile_module_with_cache = compile_module
    return cuda


class NothingLoaded:
    """What the search for a library of NVIDIA's returns."""

    _handle_uint = 0
    abs_path = None


def compile_module(source, options=(), *, name_expressions=None, **_):
    """Compile kernels; the arguments are those of CuPy's function."""
    from cupy.cuda import function

    of_cupy = "#include <cupy/" in source or bool(name_expressions)
    aliases = {name: f"alias{i}" for i, name in enumerate(name_expressions or ())}
    if name_expressions:
        exported = [f"RUN_TEMPLATE({alias}, {name})" for name, alias in aliases.items()]
    else:
        by_one = of_cupy and "__shared__" not in source and "__syncthreads" not in source
        exported = [
            f"{'RUN_BY_ONE_THREAD' if by_one else 'RUN_ON_CPU'}({name})"
            for name in KERNEL.findall(source)
        ]
    macros = [option for option in options if option.startswith("-D")]
    module = function.Module()
    module.load(str(_library("\n".join([source, *exported]), macros, of_cupy)).encode() + b"\0")
    if aliases:
        module._set_mapping(aliases)
    return module


def _library(source, macros, of_cupy):
    """The library with these kernels, which is compiled once."""
    import cupy

    header = HERE / "cupy_on_cpu.h" if of_cupy else HERE.parent / "cuda_on_cpu" / "cuda_on_cpu.h"
    folders = [HERE]
    if of_cupy:
        cupys = Path(cupy.__file__).parent / "_core" / "include"
        more = [
            cupys,
            cupys / "cupy/_cccl/thrust",
            cupys / "cupy/_cccl/libcudacxx",
            HERE.parent / "cuda_on_cpu",
        ]
        folders += more
    flags = ["-std=c++17", "-O0" if of_cupy else "-O2"]
    flags += ["-w", "-fpermissive", "-shared", "-fPIC", *macros]
    flags += ["-march=native", "-ffp-contract=fast"] if CONTRACTS else ["-ffp-contract=off"]
    texts = [
        path.read_text()
        for path in (HERE.parent / "cuda_on_cpu" / "cuda_on_cpu.h", HERE / "cupy_on_cpu.h")
    ]
    library = (
        KERNELS / f"{hashlib.sha256(repr([source, flags, texts]).encode()).hexdigest()[:32]}.so"
    )
    if not library.exists():
        made = library.with_suffix(f".{os.getpid()}.cpp")
        made.write_text(source)
        command = ["g++", *flags, "-include", header, *(f"-I{folder}" for folder in folders)]
        done = subprocess.run(
            [*command, made, "-o", made.with_suffix(".made")], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"g++ could not compile {made}:\n{done.stderr[:3000]}")
        made.with_suffix(".made").rename(library)
        made.unlink()
    return library


CUDA = load()
