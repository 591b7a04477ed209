"""The dispatcher of an operation, which everybody calls: it checks arguments, and calls a kernel or the reference."""

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
    parameters = record.parameters
    bind = make_binder(record, kernel.backend.layout if kernel else "0", parameters)
    names, places = list(parameters), {name: place for place, name in enumerate(parameters)}
    options = [parameter for name, parameter in parameters.items() if name not in record.contract.arrays]
    checks = [(places[option.name], check) for option in options if (check := check_of(option.name, option.annotation))]
    rate, key, ignored = map(places.get, ("dropout_rate", "dropout_key", "ignore_id"))
    never_0 = [(name, places[name]) for name in ("eps", "delta") if name in places]
    plans: dict = {}
    known = [object()] * len(names)  # the last option that passed its check: most calls have the same ones

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
        for place, check in checks:
            if values[place] is not known[place]:
                values[place] = known[place] = check(values[place])
        if rate is not None:
            check_rate_and_key(values[rate], values[key])
        plan = plans.get(signature)
        if plan is None:
            if len(plans) >= MOST_PLANS:
                plans.clear()
            plan = plans[signature] = make_plan(record, kernel, dict(zip(names, values, strict=True)))
        for name, place in never_0:
            check_in_dtype(name, values[place], plan.dtype)
        if record.check:
            record.check(**dict(zip(names, values, strict=True)))
        for place, name, size in plan.ids:
            ignore_id = None if ignored is None else values[ignored]
            check_ids(values[place], size, name, ignore_id, may_ignore=ignored is not None)
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
