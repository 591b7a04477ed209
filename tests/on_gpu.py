"""``npformer.gpu`` on the GPU if CuPy finds one, else on a substitute for CuPy.

The substitute runs the kernels on the processor.

``ON_GPU`` takes and returns NumPy arrays, so that what tests a backend tests this one, too.
"""

import contextlib
import ctypes
import functools
import importlib
import importlib.util
import inspect
import os
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).with_name("cuda_on_cpu")


def reason_for_no_gpu():
    """The reason why CuPy has no GPU, or None if it has.

    With NPFORMER_GPU set (make test-gpu) it has to have one.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            import cupy

            cupy.zeros(1)
    except Exception as error:  # CuPy raises many types of errors
        if os.environ.get("NPFORMER_GPU"):
            raise
        return f"{type(error).__name__}: {error}"
    return None


def load(name):
    """Load a module of the folder cuda_on_cpu, without making its name importable."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NO_GPU = reason_for_no_gpu()
ON_PROCESSOR = NO_GPU or "cupy_without_gpu" in sys.modules  # where kernels run slowly
MISSING = (
    NO_GPU
    and not shutil.which("g++")
    and f"there is no GPU ({NO_GPU}), and no g++ to run its kernels without"
)
cupy = load("cupy") if NO_GPU else sys.modules["cupy"]


@contextlib.contextmanager
def small_blocks():
    """Context manager with two warps per block if a processor runs them, instead of eight."""
    modules = (
        [sys.modules[name] for name in list(sys.modules) if name.startswith("npformer.gpu.")]
        if ON_PROCESSOR
        else []
    )
    before = [(module, module.THREADS) for module in modules if hasattr(module, "THREADS")]
    for module, _ in before:
        module.THREADS = 64
    try:
        yield
    finally:
        for module, threads in before:
            module.THREADS = threads


@contextlib.contextmanager
def cupy_installed():
    """Context manager in which ``import cupy`` finds the substitute, if there is no GPU."""
    before = sys.modules.get("cupy")
    sys.modules["cupy"] = cupy
    try:
        yield
    finally:
        if before is None:
            del sys.modules["cupy"]
        else:
            sys.modules["cupy"] = before


with cupy_installed():
    gpu = importlib.import_module("npformer.gpu")
# for attention: of the Ampere generation or later
HAS_TENSOR_CORES = int(cupy.cuda.Device().compute_capability) >= 80
if NO_GPU:
    blas = importlib.import_module("npformer.gpu.blas")
    stand_in = load("cublas")
    stand_in.cupy = cupy
    blas.library = lambda: stand_in


def smaller(size):
    """A size that does not take too long on the processor, but still needs several tiles."""
    return max(3, -(-size // 8)) if ON_PROCESSOR else size


def put(x):
    """An argument with its arrays on the GPU, in the same layout."""
    if isinstance(x, np.ndarray):
        return _put_as_it_lies(x)
    if isinstance(x, dict):
        return {key: put(value) for key, value in x.items()}
    return tuple(map(put, x)) if isinstance(x, tuple) else x


def take(x):
    """A result with its arrays in host memory."""
    if isinstance(x, cupy.ndarray):
        return cupy.asnumpy(x)
    if isinstance(x, dict):
        return {key: take(value) for key, value in x.items()}
    return type(x)(map(take, x)) if isinstance(x, (tuple, list)) else x


def _put_as_it_lies(x):
    if any(stride % x.itemsize for stride in x.strides):  # which a GPU cannot read
        x = x.copy()
    if NO_GPU:
        return cupy.ndarray(x.copy() if x.flags.c_contiguous else x)
    low, high = np.lib.array_utils.byte_bounds(x)
    memory = cupy.asarray(np.frombuffer((ctypes.c_char * (high - low)).from_address(low), np.uint8))
    start = x.__array_interface__["data"][0] - low
    return cupy.ndarray(x.shape, x.dtype, memory.data + start, x.strides)


def _with_numpy_arrays(operation):
    """An operation of ``npformer.gpu`` that takes and returns NumPy arrays."""
    signature = inspect.signature(operation)
    written = [x.name for x in operation.record.contract.arrays.values() if x.kind == "written"]

    @functools.wraps(operation)
    def call(*args, **options):
        given = signature.bind(*args, **options).arguments
        with cupy_installed():
            placed = put(given)
            result = take(operation(**placed))
            for x in written:
                if given.get(x) is not None:
                    given[x][...] = take(placed[x])
        return result

    return call


ON_GPU = gpu.ops.replaced(
    **{name: _with_numpy_arrays(getattr(gpu.ops, name)) for name in gpu.ops.names()}
)
ON_GPU.kernels = gpu.ops.kernels
