"""The dispatcher of an operation, which everybody calls: it checks arguments, and calls a kernel or the reference.

Each dispatcher has another one, ``unchecked``, for the layers of a model, which has checked what it was given: that one
trusts its options, keys and ids. Both check arrays against the contract.
"""

from collections.abc import Callable
from functools import wraps

import numpy as np

from npformer.checks import check_in_dtype
from npformer.operations.binder import make_binder
from npformer.operations.options import check_arrays, check_ids, check_of, check_rate_and_key
from npformer.operations.plan import converted, make_plan, rounded
from npformer.runtime.blas_threads import one_blas_thread

MOST_PLANS = 4096  # that a dispatcher remembers

listener: Callable | None = None  # what ``npformer.explain`` calls before each operation


def make_dispatcher(record, kernel=None, reference=None):
    """The function that everybody calls; ``reference`` is the dispatcher without the kernel, if there is one."""
    bind = make_binder(record, kernel.backend.layout if kernel else "0", record.parameters)
    dispatch = _dispatcher(record, kernel, reference, bind, Checks(record))
    dispatch.unchecked = _dispatcher(record, kernel, reference and unchecked(reference), bind, checks=None)
    return dispatch


def unchecked(operation):
    """The dispatcher that trusts its options, of a dispatcher; another function itself.

    What ``functools.wraps`` made of a dispatcher has its attributes, but is another function.
    """
    record = getattr(operation, "record", None)
    is_dispatcher = record is not None and getattr(operation, "__wrapped__", None) is record.function
    return operation.unchecked if is_dispatcher else operation


class Checks:
    """The checks of the arguments of an operation, besides those of its arrays, which a plan makes."""

    def __init__(self, record):
        self.names = list(record.parameters)
        places = {name: place for place, name in enumerate(self.names)}
        options = [parameter for name, parameter in record.parameters.items() if name not in record.contract.arrays]
        checks = [(places[option.name], check_of(option.name, option.annotation)) for option in options]
        self.of_options = [(place, check) for place, check in checks if check]
        self.of_operation = record.check
        self.rate, self.key, self.ignored = map(places.get, ("dropout_rate", "dropout_key", "ignore_id"))
        self.passed = [object()] * len(places)  # the last option that passed its check: most calls have the same ones

    def check_options(self, values):
        """Check the options, and write Python's own numbers in their places."""
        passed = self.passed
        for place, check in self.of_options:
            if values[place] is not passed[place]:
                values[place] = passed[place] = check(values[place])
        if self.rate is not None:
            check_rate_and_key(values[self.rate], values[self.key])

    def check_by_plan(self, plan, values):
        """Check what needs the sizes of a plan."""
        if self.of_operation:
            self.of_operation(**dict(zip(self.names, values, strict=True)))
        may_ignore = self.ignored is not None
        for place, name, size in plan.ids:
            check_ids(values[place], size, name, values[self.ignored] if may_ignore else None, may_ignore=may_ignore)


def _dispatcher(record, kernel, reference, bind, checks):
    """A dispatcher with these ``Checks``, or without, if they are None."""
    parameters, names = record.parameters, list(record.parameters)
    not_0_in_dtype = [(name, names.index(name)) for name in ("eps", "delta") if name in names]
    plans: dict = {}

    @wraps(record.function)
    def dispatch(*args, **keywords):
        try:
            values, signature = bind(*args, **keywords)
        except AttributeError:  # what has no shape is no array
            try:
                check_arrays(record.contract, record.bound(*args, **keywords), parameters)
            except (TypeError, ValueError) as error:
                raise error from None
            if reference is None:
                raise
            return reference(*args, **keywords)  # arrays of another library, whose layout this backend cannot read
        except TypeError as error:
            raise TypeError(f"{error}, expected {', '.join(names)}") from None
        if checks is not None:
            checks.check_options(values)
        plan = plans.get(signature)
        if plan is None:
            if len(plans) >= MOST_PLANS:
                plans.clear()
            plan = plans[signature] = make_plan(record, kernel, dict(zip(names, values, strict=True)))
        for name, place in not_0_in_dtype:
            check_in_dtype(name, values[place], plan.dtype)
        if checks is not None:
            checks.check_by_plan(plan, values)
        listen, heard = listener, None  # another thread may change it
        try:
            if listen is not None:
                heard = listen(record, kernel, plan, values)
            with one_blas_thread():
                result = NotImplemented
                if plan.nothing is not None:
                    result = plan.nothing()
                elif plan.kernel is not None:
                    result = plan.kernel(*converted(values, plan.for_kernel))
                was_left = result is NotImplemented
                if was_left:
                    given = dict(zip(names, converted(values, plan.for_function), strict=True))
                    # NaN in is NaN out, and what is masked may be NaN. exp(-1000) is 0.
                    with np.errstate(invalid="ignore", under="ignore"):
                        result = record.function(**given)
            result = rounded(result, plan.of_results) if plan.of_results else result
            if heard:
                heard.computed(result, was_left)
            return result
        finally:
            if heard:
                heard.end()

    dispatch.record, dispatch.kernel = record, kernel
    return dispatch
