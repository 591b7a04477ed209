"""``explain``: list which operations ran, how long each took, and whether a kernel or the reference
computed it.
"""

import contextlib
import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from npformer.operations import dispatcher
from npformer.operations.host import HOST
from npformer.operations.shapes import match
from npformer.runtime.interrupts import deferred_interrupts


class Call(NamedTuple):
    """One call of an operation.

    Attributes
    ----------
    operation, backend : str
        The name of the operation, and of the backend: "reference", "cpu" or "gpu".
    by : str
        "kernel", or "reference" if the reference computed the operation.
    why : str
        The reason why no kernel ran; empty if one did.
    shapes : dict
        The shape of each array by the name of its argument.
    dtype : str
    seconds : float
    flops : int
        Number of additions and multiplications, 0 for operations that are limited by memory
        bandwidth.
    bytes : int
        Size of all array arguments and results.
    options : dict
        The arguments that are not arrays, by name.
    by_columns : tuple of str
        The names of the arrays whose columns are contiguous in memory, as those of a transposed
        matrix.
    """

    operation: str
    backend: str
    by: str
    why: str
    shapes: dict[str, tuple[int, ...]]
    dtype: str
    seconds: float
    flops: int
    bytes: int
    options: dict[str, Any] = {}
    by_columns: tuple[str, ...] = ()


class Listing:
    """A list with a ``repr`` of its own has it in its slices and sums, too."""

    if not TYPE_CHECKING:  # the types are those of list

        def __getitem__(self, index):
            if isinstance(index, slice):
                return type(self)(super().__getitem__(index))
            return super().__getitem__(index)

        def __add__(self, other):
            return type(self)(super().__add__(other))


class Calls(Listing, list[Call]):
    """The calls that ``explain`` has listed. It is shown as a table, the operation with the longest
    time first.

    Each line is an operation with the number of its calls, their total time, its share of the time
    of all operations, and its rate: in GFLOP/s (billions of additions and multiplications per
    second) if the operation counts them, else in GB/s (billions of bytes read and written per
    second). The shapes are those of the slowest call. The last line has also the time that passed:
    what is missing is that of Python between the operations.
    """

    passed = 0.0  # seconds in the ``with`` block

    def __repr__(self) -> str:
        line = "{:>5} {:>9} {:>6} {:>12}  {:<12} {}".format
        return "\n".join([*(line(*row) for row in self._rows()), self._total()])

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        short = '<td style="white-space: nowrap; text-align: {}">{{}}</td>'.format
        long = "<td style='text-align: left'>{}</td>"
        line = f"<tr>{short('right') * 4}{short('left')}{long}</tr>".format
        header, *rows = self._rows()
        lines = [line(*header).replace("td", "th"), *(line(*map(escape, row)) for row in rows)]
        return f"<table>{''.join(lines)}</table><p>{self._total()}</p>"

    def _rows(self):
        """The cells of each row of the table: a header, and the operations."""
        groups = defaultdict(list)
        for call in self:
            groups[call.operation, call.dtype, call.backend, call.by, call.why].append(call)
        total = _sum(self, "seconds")
        yield "calls", "ms", "share", "rate", "computed by", "operation"
        for calls in sorted(groups.values(), key=lambda calls: -_sum(calls, "seconds")):
            slowest = max(calls, key=lambda call: call.seconds)
            seconds = _sum(calls, "seconds")
            share = f"{seconds / (total or 1):.1%}"  # 0 where the clock is coarse
            by = f"{slowest.backend} kernel" if slowest.by == "kernel" else "reference"
            name = f"{slowest.operation} {slowest.dtype}".rstrip()
            operation = f"{name}: {_shapes(calls, slowest)}"
            if slowest.why:
                operation += f" [{slowest.why}]"
            yield (
                str(len(calls)),
                f"{1e3 * seconds:.3f}",
                share,
                _rate(calls, seconds),
                by,
                operation,
            )

    def _total(self):
        """The line that sums up the table."""
        milliseconds = 1e3 * _sum(self, "seconds")
        passed = f" in {1e3 * self.passed:.1f} ms" if self.passed else ""
        return f"{len(self)} calls, {milliseconds:.1f} ms (summed over threads){passed}"


@contextlib.contextmanager
def explain() -> Iterator[Calls]:
    """Context manager that lists the operations that run inside, with shapes, times, and whether a
    kernel ran.

    An operation of the reference that calls other operations is listed as one call, as is
    ``stack_step``, the layers of a decoder, or of an encoder of 8-bit integers. If several threads
    compute, their times are added. The time of the first call of a kernel includes compiling it or
    loading it from disk, so call it once before. Outside of the ``with`` block nothing is listed,
    and there is no overhead.

    Yields
    ------
    Calls
        A list of ``Call``, which is shown as a table.

    Examples
    --------
    >>> import npformer as nf
    >>> x, weight = np.ones((2, 5)), np.ones((5, 3))
    >>> with nf.explain() as calls:
    ...     y = nf.linear(x, weight)
    >>> calls[0].operation, calls[0].by, calls[0].shapes["weight"], calls[0].flops
    ('linear', 'kernel', (5, 3), 60)
    """
    calls = Calls()
    start = time.perf_counter()
    try:
        with deferred_interrupts():
            _active.append(calls)
            dispatcher.observer = _explained
        yield calls
    finally:
        calls.passed = time.perf_counter() - start
        with deferred_interrupts():
            _active[:] = [others for others in _active if others is not calls]
            dispatcher.observer = _explained if _active else None


_active: list[Calls] = []  # of all ``with`` blocks that have not ended, in any thread
_busy = threading.local()


def _explained(computation, plan, values):
    """The result of an operation, which is listed unless another operation calls it: that one is
    listed as a whole.
    """
    work = partial(dispatcher.compute, computation, plan, values)
    if getattr(_busy, "now", False):
        result, _ = work()
        return result
    record = computation.record
    kernel = computation.kernel
    device = kernel.backend.device if kernel else HOST
    (result, is_left), seconds = _timed(device, work)
    why = plan.why
    if is_left and not why:
        why = kernel.why_not(*values) or "the kernel left it to the reference"
    backend = kernel.backend.name if kernel else "reference"
    _add(_call_of(record, backend, why, values, result, seconds))
    return result


def explained_hook(backend, name, hook, about, *arguments):
    """The result of a hook of a backend, which is listed as an operation unless it is
    ``NotImplemented``.

    ``about(*arguments)`` returns the shapes and the number of bytes of the ``Call``.
    """
    if not _active or getattr(_busy, "now", False):
        return hook(*arguments)
    result, seconds = _timed(backend.device, partial(hook, *arguments))
    if result is not NotImplemented:
        shapes, n_bytes = about(*arguments)
        _add(Call(name, backend.name, "kernel", "", shapes, str(result.dtype), seconds, 0, n_bytes))
    return result


def _timed(device, work):
    """The result of work on a device, whose operations are not listed, and its time."""
    _busy.now = True
    try:
        device.wait()
        start = time.perf_counter()
        result = work()
        device.wait()
        return result, time.perf_counter() - start
    finally:
        _busy.now = False


def _add(call):
    """Add a call to the lists of all ``with`` blocks."""
    for calls in _active:
        calls.append(call)


def _call_of(record, backend, why, values, result, seconds):
    """The ``Call`` of an operation."""
    arguments = dict(zip(record.parameters, values, strict=True))
    operands = {name: arguments[name] for name in record.contract.arrays}
    arrays = {name: x for name, x in operands.items() if x is not None}
    options = {name: value for name, value in arguments.items() if name not in operands}
    results = result if isinstance(result, tuple) else (result,)
    moved = [*(x for x in results if hasattr(x, "nbytes")), *arrays.values()]
    dtypes = [str(x.dtype) for x in moved if x.dtype.kind not in "ib"]
    return Call(
        operation=record.name,
        backend=backend,
        by="reference" if why else "kernel",
        why=why,
        shapes={name: x.shape for name, x in arrays.items()},
        dtype=dtypes[0] if dtypes else "",
        seconds=seconds,
        flops=_flops(record, arguments),
        bytes=sum(x.nbytes for x in moved),
        options=options,
        by_columns=tuple(name for name, x in arrays.items() if _is_by_columns(x)),
    )


def _flops(record, arguments):
    """The number of additions and multiplications; 0 if the operation does not count them."""
    if not record.flops:
        return 0
    sizes = match(record.contract, arguments)
    sizes["N"] = math.prod(sizes.pop("...", ()))
    return int(eval(record.flops, {}, sizes))


def _is_by_columns(x):
    return x.ndim > 1 and x.strides[-1] > x.strides[-2]


def _shapes(calls, slowest):
    shapes = [
        f"{name} {'×'.join(map(str, shape)) or 'scalar'}" for name, shape in slowest.shapes.items()
    ]
    n_others = len({str(call.shapes) for call in calls}) - 1
    others = f" (and {n_others} more)" if n_others else ""
    return ", ".join(shapes) + others


def _sum(calls, field):
    return sum(getattr(call, field) for call in calls)


def _rate(calls, seconds):
    seconds = seconds or math.inf
    if calls[0].flops:
        return f"{_sum(calls, 'flops') / seconds / 1e9:.1f} GFLOP/s"
    return f"{_sum(calls, 'bytes') / seconds / 1e9:.1f} GB/s"
