"""The dispatcher of an operation, which everybody calls: it checks arguments, and calls a kernel or the reference.

Each dispatcher has another one, ``unchecked``, for the layers of a model, which has checked what it was given: that one
trusts its options, keys and ids. Both check arrays against the contract.
"""

import inspect
from functools import wraps
from threading import get_ident

import numpy as np

from npformer.checks import check_ids, check_in_dtype
from npformer.operations.binder import make_binder
from npformer.operations.options import check_of, check_rate_and_key
from npformer.operations.plan import converted, make_plan, rounded
from npformer.operations.shapes import check_arrays
from npformer.runtime.blas_threads import computing, one_blas_thread

MOST_PLANS = 4096  # that a computation remembers


def make_dispatcher(record, kernel=None):
    """The function that everybody calls, of an operation with or without a kernel."""
    computation = Computation(record, kernel)
    dispatch = _dispatcher(record, kernel, CheckedComputation(computation))
    dispatch.unchecked = _dispatcher(record, kernel, computation)
    return dispatch


def _dispatcher(record, kernel, computation):
    """A function with the parameters of the operation; it returns the result of a computation."""
    bind = make_binder(record, kernel.backend.layout if kernel else "0")
    result_of = computation.result

    @wraps(record.function)
    def dispatch(*args, **keywords):
        try:
            values, signature = bind(*args, **keywords)
        except AttributeError:  # what has no shape is no array
            try:
                arguments = inspect.signature(record.function).bind(*args, **keywords).arguments
                check_arrays(record.contract, arguments, record.parameters)
            except (TypeError, ValueError) as error:
                raise error from None
            raise
        except TypeError as error:
            raise TypeError(f"{error}, expected {', '.join(record.parameters)}") from None
        return result_of(values, signature)

    dispatch.record, dispatch.kernel = record, kernel
    return dispatch


class Computation:
    """An operation, computed from the values of its parameters. It checks arrays, and trusts the rest."""

    def __init__(self, record, kernel):
        self.record = record
        self.kernel = kernel
        self.names = list(record.parameters)
        small = [name for name in ("eps", "delta") if name in self.names]  # must not be rounded to 0
        self.small = [(name, self.names.index(name)) for name in small]
        self.plans: dict = {}

    def result(self, values, signature):
        """The result of the operation; ``signature`` is what a plan depends on."""
        plan = self.plan_for(values, signature)
        result, _ = run(self, plan, values)
        return result

    def plan_for(self, values, signature):
        """The plan for values with this signature. The arrays are checked when it is made."""
        plan = self.plans.get(signature)
        if plan is None:
            plan = make_plan(self.record, self.kernel, dict(zip(self.names, values, strict=True)))
            if len(self.plans) >= MOST_PLANS:
                self.plans.clear()
            self.plans[signature] = plan
        for name, place in self.small:
            check_in_dtype(name, values[place], plan.dtype)
        return plan


class CheckedComputation:
    """A computation that checks the other values, too. It can be left out."""

    def __init__(self, computation):
        record = computation.record
        self.computation = computation
        self.check_of_operation = record.check
        self.checks = []  # (place, check) of the options that have one
        for place, (name, parameter) in enumerate(record.parameters.items()):
            check = None if name in record.contract.arrays else check_of(name, parameter.annotation)
            if check is not None:
                self.checks.append((place, check))
        # What was checked last: most calls have the same options.
        self.passed = [object()] * len(computation.names)
        places = {name: place for place, name in enumerate(computation.names)}
        self.rate = places.get("dropout_rate")
        self.key = places.get("dropout_key")
        self.ignored = places.get("ignore_id")

    def result(self, values, signature):
        """The result of the operation. In ``values``, Python's own numbers replace the options."""
        for place, check in self.checks:
            if values[place] is not self.passed[place]:
                values[place] = self.passed[place] = check(values[place])
        if self.rate is not None:
            check_rate_and_key(values[self.rate], values[self.key])
        plan = self.computation.plan_for(values, signature)
        if self.check_of_operation:
            self.check_of_operation(**dict(zip(self.computation.names, values, strict=True)))
        for place, name, size in plan.ids:
            if self.ignored is None:
                check_ids(values[place], size, name)
            else:
                check_ids(values[place], size, name, values[self.ignored], may_ignore=True)
        result, _ = run(self.computation, plan, values)
        return result


def compute(computation, plan, values):
    """The result of an operation by a plan, and whether the kernel has left it to the reference."""
    if get_ident() not in computing:
        with one_blas_thread():
            return compute(computation, plan, values)
    result = NotImplemented
    if plan.kernel is not None:
        result = plan.kernel(*(converted(values, plan.for_kernel) if plan.for_kernel else values))
    is_left = result is NotImplemented
    if is_left:
        if plan.for_function:
            values = converted(values, plan.for_function)
        # NaN in is NaN out, and what is masked may be NaN. exp(-1000) is 0.
        with np.errstate(invalid="ignore", under="ignore"):
            arguments = dict(zip(computation.names, values, strict=True))
            result = computation.record.function(**arguments)
    if plan.of_results:
        result = rounded(result, plan.of_results)
    return result, is_left


# ``npformer.explain`` puts a function with the same parameters and results in its place.
run = compute
