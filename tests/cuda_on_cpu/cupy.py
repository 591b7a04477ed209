"""A substitute for CuPy where there is no GPU.

Its arrays are in host memory, and its kernels run on the processor.

It has the part of CuPy that npformer uses, and is as strict: NumPy and CuPy arrays do not mix, a
CuPy array does not become a NumPy array by itself, and a kernel's arguments have to have the sizes
that it declares. Besides, it counts in ``n_reads`` how often the host has looked at an array, for
which a GPU would have to be waited for.
"""

import contextlib
import ctypes
import functools
import hashlib
import operator
import os
import re
import subprocess
import tempfile
import types
from pathlib import Path

import numpy as np

__version__ = "14.2.0"
HEADER = Path(__file__).with_name("cuda_on_cpu.h")
n_reads = 0
threads_run_in_reverse = False
recorded = None  # the calls since a stream began to record, or None if none does


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):  # noqa: N801
    """An array whose numbers NumPy cannot read without an explicit conversion."""

    def __init__(self, array):
        self._array = array

    @property
    def data(self):
        return _Place(self._array.ctypes.data)

    def get(self, out=None):
        if out is None:
            return asnumpy(self)
        out[...] = asnumpy(self)
        return out

    def set(self, array):
        _refuse_while_recording("a copy to the GPU")
        if not isinstance(array, np.ndarray):
            raise TypeError(f"Only numpy.ndarray can be set to cupy.ndarray, not {type(array)}")
        if array.shape != self.shape or array.dtype != self.dtype:
            raise ValueError(
                f"set {np.shape(array)} {array.dtype}, the array is {self.shape} {self.dtype}"
            )
        self._array[...] = array

    def __array__(self, *args, **kwargs):
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct one."
        )

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        if ufunc is np.matmul and any(x.ndim > 2 and x.dtype.name == "bfloat16" for x in inputs):
            raise TypeError("data type 'E' not understood")  # CuPy has no such product
        return _call(getattr(ufunc, method), inputs, options)

    def __array_function__(self, function, kinds, args, options):
        if options.get("shape") == ():  # which CuPy's zeros_like takes as no shape
            options = {name: x for name, x in options.items() if name != "shape"}
        result = _call(function, args, options)
        # CuPy makes another dtype of it
        if function is np.where and result.dtype.name == "bfloat16":
            return result.astype(np.float32)
        return result

    def __getitem__(self, index):
        return _call(operator.getitem, (self, index), {})

    def __setitem__(self, index, value):
        _call(operator.setitem, (self, index, value), {})

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self._array, name)
        return functools.partial(_method, value) if callable(value) else _wrap(_arrays(value))

    def __bool__(self):
        return bool(_read(self))

    def __int__(self):
        return int(_read(self))

    def __float__(self):
        return float(_read(self))

    def __index__(self):
        return _read(self).__index__()

    def __len__(self):
        return len(self._array)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __repr__(self):
        return repr(self._array)


ndarray.__module__ = "cupy"


class _Place:
    """The address of an array."""

    def __init__(self, ptr):
        self.ptr = ptr

    def copy_from_host_async(self, address, size, stream):
        _refuse_while_recording("a copy to the GPU")
        ctypes.memmove(self.ptr, address, size)


def asarray(x, dtype=None):
    if isinstance(x, ndarray):
        return x if dtype in (None, x.dtype) else x.astype(dtype)
    _refuse_while_recording("a copy to the GPU")
    return ndarray(np.array(x, dtype))


array = asarray


def asnumpy(x):
    return _read(x).copy() if isinstance(x, ndarray) else np.asarray(x)


def empty(shape, dtype=float):
    return _poisoned(np.empty(shape, dtype))


def empty_like(x):
    return _poisoned(np.empty_like(_unwrap(x)))


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    value = getattr(np, name)
    if isinstance(value, type) or not callable(value):
        return value
    return _Function(value)


class _Function:
    """A function of NumPy, for these arrays."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **options):
        return _call(self.function, args, options)

    def at(self, *args):
        return _call(self.function.at, args, {})


def _poisoned(x):
    """Fill an array with arbitrary contents, as uninitialised memory may have."""
    x.reshape(-1).view(np.uint8)[...] = 0xFF
    return ndarray(x)


def _call(function, args, options):
    args, options = _unwrap(args), _unwrap(options)
    result = _arrays(function(*args, **options))
    if recorded is not None:
        recorded.append(lambda: _write(result, function(*args, **options)))
    return _wrap(result)


def _arrays(x):
    """Turn NumPy scalars into arrays, which have an address."""
    if isinstance(x, np.generic):
        return np.asarray(x)
    return type(x)(map(_arrays, x)) if type(x) in (tuple, list) else x


def _write(place, result):
    """Write a result to the array that the recording returned, when it is replayed."""
    for x, y in (
        zip(place, result, strict=True) if isinstance(place, (tuple, list)) else [(place, result)]
    ):
        if isinstance(x, np.ndarray) and x.size:
            np.copyto(x, y)


def _refuse_while_recording(what):
    if recorded is not None:
        raise RuntimeError(f"cudaErrorStreamCaptureUnsupported: {what}")


def _method(function, *args, **options):
    return _call(function, args, options)


def _wrap(x):
    if isinstance(x, np.ndarray):
        return ndarray(x)
    return type(x)(map(_wrap, x)) if type(x) in (tuple, list) else x


def _unwrap(x):
    if isinstance(x, ndarray):
        return x._array
    if isinstance(x, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(x, dict):
        return {key: _unwrap(value) for key, value in x.items()}
    return type(x)(map(_unwrap, x)) if type(x) in (tuple, list) else x


def _read(x):
    global n_reads
    _refuse_while_recording("the host looks at an array")
    n_reads += 1
    return x._array


class RawModule:
    """Kernels, compiled for the processor."""

    def __init__(self, *, code, options=()):
        names = re.findall(r"__global__\s+void\s+(\w+)\(", code)
        self._library = _compile(
            code + "".join(f"\nRUN_ON_CPU({name})" for name in names), tuple(options)
        )

    def get_function(self, name):
        return _Kernel(self._library, name)


class _Kernel:
    """A kernel with the interface of CuPy: its limit of shared memory can be raised."""

    max_dynamic_shared_size_bytes = 48 * 1024

    def __init__(self, library, name):
        self._name, self._launch = name, getattr(library, f"launch_{name}")
        self._launch.restype = ctypes.c_char_p
        self._sizes = _sizes(getattr(library, f"sizes_of_{name}"))

    def __call__(self, grid, block, args, *, shared_mem=0):
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise RuntimeError(f"CUDA_ERROR_INVALID_VALUE: {shared_mem} bytes of shared memory")
        if recorded is None:
            self._run(grid, block, args, shared_mem)
        else:
            recorded.append(lambda: self._run(grid, block, args, shared_mem))

    def _run(self, grid, block, args, shared_mem):
        name = self._name
        values = [
            np.uintp(x.data.ptr) if isinstance(x, ndarray) else np.uintp(0) if x is None else x
            for x in args
        ]
        values = [np.asarray(x) for x in values]
        if [x.itemsize for x in values] != self._sizes:
            raise TypeError(
                f"{name}: given arguments of {[x.itemsize for x in values]} bytes, "
                f"expected {self._sizes}"
            )
        shape = [(ctypes.c_uint * 3)(*x, *[1] * (3 - len(x))) for x in (grid, block)]
        addresses = (ctypes.c_void_p * len(values))(*(x.ctypes.data for x in values))
        error = self._launch(*shape, ctypes.c_size_t(shared_mem), addresses, threads_run_in_reverse)
        if error:
            raise RuntimeError(f"{name}: {error.decode()}")


def _sizes(function):
    """The types of the arguments that a kernel declares."""
    sizes = (ctypes.c_int * 64)()
    return list(sizes[: function(sizes)])


@functools.cache
def _compile(code, options):
    folder = Path(tempfile.gettempdir()) / "npformer-cuda-on-cpu"
    folder.mkdir(exist_ok=True)
    flags = [
        "-std=c++17",
        "-O2",
        "-march=native",
        "-ffp-contract=off",
        *(x for x in options if x.startswith("-D")),
    ]
    facts = [code, *flags, HEADER.read_text()]
    library = folder / f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:32]}.so"
    if not library.exists():
        made = library.with_suffix(f".{os.getpid()}")  # another process may compile the same
        source = made.with_suffix(f"{made.suffix}.cpp")
        source.write_text(code)
        command = ["g++", *flags, "-shared", "-fPIC", "-include", HEADER, source, "-o", made]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"g++ could not compile the kernels:\n{done.stderr}")
        source.unlink()
        made.rename(library)
    return ctypes.CDLL(str(library))


class Stream:
    """A stream that can record."""

    ptr = 0

    def __init__(self, *, non_blocking=False):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def begin_capture(self):
        global recorded
        recorded = []

    def end_capture(self):
        global recorded
        work, recorded = recorded, None
        return types.SimpleNamespace(launch=lambda stream: [do() for do in work])

    def is_capturing(self):
        return recorded is not None

    def synchronize(self):
        _refuse_while_recording("the host waits")

    def record(self):
        return None

    def wait_event(self, event):
        pass


def get_default_memory_pool():
    """A pool that never has anything to give back."""
    return types.SimpleNamespace(malloc=None, free_all_blocks=lambda: None)


cuda = types.SimpleNamespace(
    alloc_pinned_memory=bytearray,
    Device=lambda: types.SimpleNamespace(id=0, compute_capability="90"),
    Memory=object,
    MemoryPool=lambda allocator: get_default_memory_pool(),
    Stream=Stream,
    get_current_stream=Stream,
    memory=types.SimpleNamespace(OutOfMemoryError=MemoryError),
    runtime=types.SimpleNamespace(getDeviceCount=lambda: 1, runtimeGetVersion=lambda: 13000),
    using_allocator=lambda malloc: contextlib.nullcontext(),
)
