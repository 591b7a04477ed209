"""What npformer uses of numba and llvmlite that they do not document.

A later version has to have it, or new code.
"""

import inspect

import llvmlite.binding
from llvmlite.binding.ffi import lib
from numba import njit
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.np.arrayobj import make_array

from npformer.cpu.jit import PART


def double(x):
    return 2 * x


def test_a_fork_can_wait_for_both_locks_of_a_compilation():  # cpu/compiling.py
    with lib._lock, global_compiler_lock:
        pass
    assert callable(global_compiler_lock.acquire)
    assert callable(global_compiler_lock.release)


# what npformer/cpu/kernel_cache.py does
def test_files_of_ours_can_take_the_place_of_numba_s_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    cache = FunctionCache(double)
    assert isinstance(cache._cache_path, str)
    assert isinstance(cache._impl.filename_base, str)
    assert {"load", "save"} <= set(dir(cache._cache_file))
    assert list(inspect.signature(cache.save_overload).parameters) == ["sig", "data"]
    assert list(inspect.signature(cache.load_overload).parameters) == ["sig", "target_context"]
    rtsys.initialize(cpu_target.target_context)
    [signature] = njit("i8(i8)")(double).signatures
    with cache._guard_against_spurious_io_errors():
        assert cache._load_overload(signature, cpu_target.target_context) is None
    assert isinstance(dumps([1]), bytes)
    assert hasattr(njit(double), "_cache")


def test_functions_are_there():
    for name in ("alloca_once_value", "for_range", "get_item_pointer", "unpack_tuple"):
        assert callable(getattr(cgutils, name)), name
    assert callable(llvmlite.binding.get_host_cpu_features)


def test_no_machine_code_is_made_of_a_function_that_is_inlined():  # cpu/compiling.py
    twice = njit(**PART, no_cpython_wrapper=True)(double)
    assert njit(lambda x: twice(x))(2.0) == 4
    [result] = twice.overloads.values()
    library, name = result.library, result.fndesc.mangled_name
    assert library.get_function(name)
    assert not library._codegen._engine.is_symbol_defined(name)


def test_an_intrinsic_can_find_the_memory_of_an_array():  # cpu/blas.py, cpu/llvm.py
    assert list(inspect.signature(make_array).parameters) == ["array_type"]
