"""Records in memory, which one thread leaves at an address for others.

A record is a ``NamedTuple`` of numbers, arrays and such records. A kernel cannot look up an array
in a table, nor get it from another thread, but it can get numbers: in memory, an array of one or
two axes is a ``Matrix``.
"""

from typing import NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from npformer.cpu.jit import inlined
from npformer.cpu.llvm import BYTE, WORD, arrays_of

# The type of a function that computes a piece: (address of a job, piece).
PIECE_SIGNATURE = numba.void(numba.int64, numba.int64)


class Matrix(NamedTuple):
    """A C-contiguous array in memory. A vector has one row."""

    address: int
    rows: int
    columns: int

    @classmethod
    def of(cls, x):
        """An array as it lies in memory."""
        return cls(x.ctypes.data, *np.atleast_2d(x).shape)


@inlined
def array_at(matrix, dtype):
    """The array of a ``Matrix``, with two axes."""
    return numba.carray(_pointer(matrix.address), (matrix.rows, matrix.columns), dtype)


@intrinsic
def _pointer(typing_context, address):
    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], BYTE.as_pointer())

    return numba.types.voidptr(numba.int64), generate


def _type_of(kind):
    """The type of a record, or of one of its fields, in memory.

    All numbers have 64 bits, so they lie side by side.
    """
    if kind in NUMBERS:
        return NUMBERS[kind]
    record = Matrix if kind is np.ndarray else kind
    return numba.types.NamedTuple(map(_type_of, record.__annotations__.values()), record)


NUMBERS = {int: numba.int64, float: numba.float64, bool: numba.int64}


def record_at(kind):
    """The function that reads a record of this kind from an address."""
    record = _type_of(kind)

    @intrinsic
    def read(typing_context, address):
        def generate(context, builder, signature, arguments):
            pointer = context.get_value_type(record).as_pointer()
            return builder.load(builder.inttoptr(arguments[0], pointer))

        return record(numba.int64), generate

    return read


@intrinsic
def stored(typing_context, record):
    """The address of a record in memory, which is there until the function that calls this ends."""

    def generate(context, builder, signature, arguments):
        kind = _type_of(record.instance_class)
        values = cgutils.unpack_tuple(builder, arguments[0])
        fields = [
            _in_memory(context, builder, *field) for field in zip(values, record, kind, strict=True)
        ]
        copy = cgutils.alloca_once_value(builder, context.make_tuple(builder, kind, fields))
        return builder.ptrtoint(copy, WORD)

    return numba.int64(record), generate


def _in_memory(context, builder, x, kind, kind_in_memory):
    if not isinstance(kind, numba.types.Array):
        return context.cast(builder, x, kind, kind_in_memory)
    [array] = arrays_of(context, builder, [kind], [x])
    shape = cgutils.unpack_tuple(builder, array.shape)
    rows = shape[0] if kind.ndim == 2 else WORD(1)
    matrix = [builder.ptrtoint(array.data, WORD), rows, shape[-1]]
    return context.make_tuple(builder, kind_in_memory, matrix)


@intrinsic
def call(typing_context, function, job, piece):
    """Call the function of the type ``PIECE_SIGNATURE`` at an address."""

    def generate(context, builder, signature, arguments):
        address, *words = arguments
        pointer = ir.FunctionType(ir.VoidType(), [WORD, WORD]).as_pointer()
        builder.call(builder.inttoptr(address, pointer), words)
        return context.get_dummy_value()

    return numba.void(numba.int64, numba.int64, numba.int64), generate
