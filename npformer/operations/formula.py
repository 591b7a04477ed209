"""The decorators of the math: its functions get the record of an operation, and remain what they
are.

So they call each other without any check. ``npformer.reference`` makes the operations that
everybody else calls, with ``operation_of``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

from npformer.operations import record
from npformer.operations.dispatcher import make_dispatcher

operation = partial(record.operation, checked=False)
backward_of = partial(record.backward_of, checked=False)

Parameters = ParamSpec("Parameters")
Results = TypeVar("Results")


def operation_of(function: Callable[Parameters, Results]) -> "staticmethod[Parameters, Results]":
    """The operation of a function of the math, as a member of a class: it checks its arguments."""
    return staticmethod(make_dispatcher(cast(Any, function).record))
