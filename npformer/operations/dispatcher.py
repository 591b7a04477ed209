"""The dispatcher of an operation, which everybody calls: it checks arguments, and calls a kernel or
the reference.

Each dispatcher has another one, ``unchecked``, for the layers of a model, which has checked what it
was given: that one trusts its options, keys and ids. Both check arrays against the contract.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from types import NoneType

import numpy as np

from npformer.checks import check_ids
from npformer.operations.options import advice_on_name, check_of, check_rate_and_key
from npformer.operations.plan import converted, make_binder, make_plan, rounded
from npformer.operations.shapes import check_arrays
from npformer.runtime.blas_threads import computing, one_blas_thread

MOST_PLANS = 4096  # that a computation remembers

# Calls ``compute`` for all dispatchers, and returns the result: ``npformer.explain`` sets it.
observer: Callable | None = None


def make_dispatcher(record, kernel=None):
    """The function that everybody calls, of an operation with or without a kernel."""
    bind = make_binder(record, kernel.backend.layout if kernel else "0")
    computation = Computation(record, kernel)
    dispatcher = _dispatcher(bind, computation, Checks(record))
    unchecked = _dispatcher(bind, computation, checks=None)
    dispatcher.unchecked = unchecked
    unchecked.unchecked = unchecked
    return dispatcher


def _dispatcher(bind, computation, checks):
    """A dispatcher, which checks options, keys and ids only if it is given ``checks``."""
    record = computation.record
    plans = computation.plans

    @wraps(record.function)
    def dispatch(*args, **keywords):
        try:
            values, signature = bind(*args, **keywords)
        except (AttributeError, TypeError) as error:
            raise _error_of_call(record, error, args, keywords) from None
        if checks is not None:
            checks.check_options(values)
        plan = plans.get(signature) or computation.new_plan(values, signature)
        if checks is not None:
            checks.check_by_plan(plan, values)
        observe = observer  # read once, as another thread may end its ``explain`` meanwhile
        if observe is not None:
            return observe(computation, plan, values)
        result, _ = compute(computation, plan, values)
        return result

    dispatch.record = record
    dispatch.kernel = computation.kernel
    return dispatch


def _error_of_call(record, error, args, keywords):
    """The error for arguments that cannot be bound, in place of Python's own."""
    if isinstance(error, TypeError):
        expected = ", ".join(record.parameters)
        unknown = [name for name in keywords if name not in record.parameters]
        if unknown:
            expected += advice_on_name(unknown[0], list(record.parameters))
        return TypeError(f"{error}, expected {expected}")
    try:  # what has no shape is no array
        arguments = inspect.signature(record.function).bind(*args, **keywords).arguments
        check_arrays(record.contract, arguments, record.parameters)
    except (TypeError, ValueError) as wrong_array:
        return wrong_array
    return error


class Computation:
    """What computes an operation, and its plans."""

    def __init__(self, record, kernel):
        self.record = record
        self.kernel = kernel
        self.names = list(record.parameters)
        self.plans: dict = {}  # by what they depend on

    def new_plan(self, values, signature):
        """The plan for values with a new signature, whose arrays are checked."""
        plan = make_plan(self.record, self.kernel, dict(zip(self.names, values, strict=True)))
        if len(self.plans) >= MOST_PLANS:
            self.plans.clear()
        self.plans[signature] = plan
        return plan


# Options that are kept after their check. An array, or a key on the GPU, is not: its memory would
# outlive the training.
PLAIN = (int, float, str, NoneType)


class Checks:
    """The checks of the values that are no arrays, and of ids."""

    def __init__(self, record):
        self.check_together = record.check
        self.names = list(record.parameters)
        self.of_options = []  # (place, check) of the options that have one
        for place, (name, parameter) in enumerate(record.parameters.items()):
            check = None if name in record.contract.arrays else check_of(name, parameter.annotation)
            if check is not None:
                self.of_options.append((place, check))
        # What was checked last: most calls have the same options.
        self.passed = [object()] * len(self.names)
        places = {name: place for place, name in enumerate(self.names)}
        self.rate = places.get("dropout_rate")
        self.key = places.get("dropout_key")
        self.ignored = places.get("ignore_id")

    def check_options(self, values):
        """Check the options, and write Python's own numbers in their places."""
        passed = self.passed
        for place, check in self.of_options:
            if values[place] is not passed[place]:
                values[place] = check(values[place])
                if isinstance(values[place], PLAIN):
                    passed[place] = values[place]
        if self.rate is not None:
            check_rate_and_key(values[self.rate], values[self.key])

    def check_by_plan(self, plan, values):
        """Check ids, whose bounds the plan knows, and that the arguments go together."""
        if self.check_together:
            self.check_together(**dict(zip(self.names, values, strict=True)))
        for place, name, size in plan.ids:
            if self.ignored is None:
                check_ids(values[place], size, name)
            else:
                check_ids(values[place], size, name, values[self.ignored], may_ignore=True)


def compute(computation, plan, values):
    """The result of an operation by a plan, and whether the kernel has left it to the reference."""
    if get_ident() not in computing:
        with one_blas_thread():
            return compute(computation, plan, values)
    result = NotImplemented
    if plan.compute is not None:
        conversions = plan.kernel_conversions
        result = plan.compute(*(converted(values, conversions) if conversions else values))
    is_left = result is NotImplemented
    if is_left:
        if plan.reference_conversions:
            values = converted(values, plan.reference_conversions)
        # NaN in is NaN out, and what is masked may be NaN. exp(-1000) is 0.
        with np.errstate(invalid="ignore", under="ignore"):
            arguments = dict(zip(computation.names, values, strict=True))
            result = computation.record.function(**arguments)
    if plan.result_dtypes:
        result = rounded(result, plan.result_dtypes)
    return result, is_left
