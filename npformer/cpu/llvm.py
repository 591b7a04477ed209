"""What the loops share that are written in LLVM's instructions.

LLVM does not vectorise every loop as we want it. Such a loop is written with LLVM's vector types: a
``builder`` appends one instruction after another to the kernel that calls it.
"""

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils
from numba.np.arrayobj import make_array

_FEATURES = llvmlite.binding.get_host_cpu_features()
# Of a vector register.
BITS = 512 if _FEATURES.get("avx512f") else 256 if _FEATURES.get("avx") else 128
WORD = ir.IntType(64)
INTEGER = ir.IntType(32)
BYTE = ir.IntType(8)
CONTRACT = ["contract"]  # a product need not be rounded before it is added


def vector_of(context, dtype):
    """The type of a vector register full of numbers of a numba type."""
    return ir.VectorType(context.get_data_type(dtype), BITS // dtype.bitwidth)


def arrays_of(context, builder, kinds, values):
    """The arrays of these numba types, whose fields are values in LLVM."""
    pairs = zip(kinds, values, strict=True)
    return [make_array(kind)(context, builder, value) for kind, value in pairs]


def rows_of(builder, array, first, step, n):
    """The numbers of n rows first, first + step, … of an array, the last one in place of those
    beyond it.
    """
    last = builder.sub(builder.extract_value(array.shape, 0), WORD(1))
    rows = []
    for i in range(n):
        row = builder.add(first, builder.mul(WORD(i), step))
        rows.append(builder.select(builder.icmp_signed("<", row, last), row, last))
    return rows


def repeated(builder, number, vector):
    """A vector of this type, full of one number."""
    first = builder.insert_element(vector(ir.Undefined), number, WORD(0))
    zeros = ir.VectorType(INTEGER, vector.count)(None)
    return builder.shuffle_vector(first, first, zeros)


def new_sums(builder, vector, n):
    """Places of n vectors that are zeros at first. LLVM keeps them in registers."""
    return [cgutils.alloca_once_value(builder, vector(None)) for _ in range(n)]


def add_product(builder, total, x, y):
    """Add x y to the sum at a place."""
    product = builder.fmul(x, y, flags=CONTRACT)
    builder.store(builder.fadd(builder.load(total), product, flags=CONTRACT), total)
