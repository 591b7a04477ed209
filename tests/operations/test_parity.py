"""The backends have the same operations.

Same names, same parameters, same numbers; and kernels compute them.

An operation is tested by its line in ``npformer.gradients.cases``, which says how far a kernel may
be off.
"""

import inspect
import os
import pkgutil
import sys
from pathlib import Path

import numpy as np
import pytest
from layouts import backwards, contiguous, every_second, fortran, read_only, rows_apart
from on_gpu import NO_GPU, ON_GPU, gpu
from programs import environment, python
from results import EVERY_KERNEL, assert_equal_within, dtypes_of, named_results, run, written_by

import npformer as nf
from npformer import cpu, reference
from npformer.gradients.cases import CASES

# units that CuPy's own functions and products are off, where there is no kernel
ON_REAL_GPU = 0 if NO_GPU else 8

LAYOUTS = [every_second, rows_apart, fortran, backwards, read_only]
CALLS = [
    pytest.param(case, name, i, dtype, id=f"{name}-{case}-{dtype}")
    for i, case in enumerate(CASES)
    for name in case.names
    for dtype in dtypes_of(case)
]


def laid_out(arguments, layout, written):
    """The arrays in another layout, except those that the operation writes to."""
    change = {name: contiguous if name in written else layout for name in arguments}
    return {
        name: change[name](x) if isinstance(x, np.ndarray) and x.ndim else x
        for name, x in arguments.items()
    }


@pytest.mark.parametrize(("case", "name", "i", "dtype"), CALLS)
@EVERY_KERNEL
def test_a_kernel_computes_the_same_numbers(ops, case, name, i, dtype):
    """Contiguous, and in one of the other layouts in turn."""
    bound = case.bound if name == case.operation else case.backward_bound
    if ops is ON_GPU:
        bound = max(bound, ON_REAL_GPU)
    expected = named_results(reference, name, case.arguments_of(name, dtype))
    labels = [f"{result} of {name}: {where_to_look(ops, name, case)}" for result in expected]
    for layout in (contiguous, LAYOUTS[i % len(LAYOUTS)]):
        arguments = laid_out(case.arguments_of(name, dtype), layout, written_by(name))
        with nf.explain() as calls:
            actual = run(ops, name, arguments)
        assert_equal_within(bound, dtype, actual, list(expected.values()), labels)
        assert calls[0].by == (
            "kernel" if has_kernel_for(ops, name, arguments, dtype) else "reference"
        ), calls[0].why


def where_to_look(ops, name, case):
    """Which functions differ, and how to find out which of them is wrong."""
    of_reference = place_of(getattr(reference, name).record.function)
    if name not in ops.kernels:
        return f"the reference, {of_reference}, on arrays of the backend {ops.name}"
    of_kernel = place_of(ops.kernels[name].kernel.function)
    differ = f"the kernel in {of_kernel} and the reference in {of_reference} differ"
    if not case.is_differentiable:
        return differ
    return f"{differ}; if npformer gradcheck {case.operation} fails, the reference is wrong"


def place_of(function):
    code = inspect.unwrap(function).__code__
    return f"{Path(*Path(code.co_filename).parts[-4:])}:{code.co_firstlineno}"


def has_kernel_for(ops, name, arguments, dtype):
    """Whether a backend has a kernel of an operation,
    and the kernel says that it takes these arguments.
    """
    if name not in ops.kernels or dtype not in ops.kernels[name].kernel.dtypes:
        return False
    kernel, record = ops.kernels[name].kernel, ops.kernels[name].record
    if any(arguments.get(array) is not None for array in kernel.without):
        return False
    values = {
        parameter.name: parameter.default for parameter in record.parameters.values()
    } | arguments
    return not kernel.why_not(*values.values())


@EVERY_KERNEL
def test_same_names_and_parameters(ops):
    assert {*ops.kernels} <= {*ops.names()}
    for name in ops.names():
        assert inspect.signature(getattr(ops, name)) == inspect.signature(
            getattr(reference, name)
        ), name


@EVERY_KERNEL
def test_every_kernel_is_behind_a_dispatcher(ops):
    """A function of a backend that has the name of an operation is its kernel,
    and is registered as that.
    """
    package = cpu if ops is cpu.ops else gpu
    for file in pkgutil.iter_modules(package.kernels.__path__):
        module = sys.modules[f"{package.kernels.__name__}.{file.name}"]
        # the functions of the module itself, and none of numba's
        functions = {name: x for name, x in vars(module).items() if inspect.isfunction(x)}
        own = {name for name, x in functions.items() if x.__module__ == module.__name__}
        for name in own & set(ops.names()):
            assert vars(module)[name] is getattr(package, name) is ops.kernels[name], name


def test_every_operation_has_a_case():
    without_numbers = {"padding_mask", "to_additive", "from_additive"}
    assert {*reference.Ops.names()} == {
        name for case in CASES for name in case.names
    } | without_numbers


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="this is the inner run")
def test_the_kernels_without_jit():
    """As plain Python they have to give the same numbers: their meaning does not depend on LLVM."""
    ignore = "ignore::RuntimeWarning"  # hashing wraps round, which NumPy reports
    arguments = [
        "-m",
        "pytest",
        "-q",
        "-x",
        __file__,
        "-W",
        ignore,
        "-k",
        "cpu and (float32 or softcap)",
    ]
    python(*arguments, env=environment(NUMBA_DISABLE_JIT="1"))
