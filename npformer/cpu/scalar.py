"""Functions of one number that kernels call in their loops; LLVM turns them into vector
instructions.

The bodies of the functions with ``compiled_as`` are used only when the JIT is switched off, and
show what is computed, as those of ``jit.lowered``.
"""

import math

import numba
import numpy as np
from numba.extending import overload

from npformer.cpu.jit import PART, exact, inlined, lowered

# Numba computes with a Python number in float64. These constants are float32.
ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)
LEAST = np.float32(-104)  # exp of less is 0
MOST = np.float32(89)  # exp of more is infinite
LOG2_E = np.float32(1 / math.log(2))
LN2_HIGH = np.float32(355 / 512)  # nine bits of ln(2), and the rest
LN2_LOW = np.float32(math.log(2) - 355 / 512)
# The sum with it rounds to an integer, which is in the lower bits of the sum.
TO_INTEGER = np.float32(1.5 * 2**23)

# The points t of the midpoint rule with steps of 1, and exp(-t²/2)/π with t².
MIDDLES = [i + 0.5 for i in range(6)]
TERMS = tuple((np.float32(math.exp(-0.5 * t * t) / math.pi), np.float32(t * t)) for t in MIDDLES)

# Coefficients of (exp(r) - 1 - r) / r²: with them, the relative error of exp(r) is at most 3.1e-9
# where |r| <= ln(2)/2, which is the smallest that a polynomial of this degree can have.
P = tuple(map(np.float32, (0.4999999341, 0.1666652011, 0.0416683942, 0.0083687804, 0.0013814467)))


def like(x, number):
    """A constant in the type of ``x``: float32 · float64 would be computed in float64, at half the
    speed.
    """
    return type(x)(number)


@lowered(like, lambda x, number: x, numba.types.Float, numba.types.Number)
def _compile_like(context, builder, signature, arguments):
    return context.cast(builder, arguments[1], signature.args[1], signature.return_type)


def bits_of(x):
    """The bits of a number of 32 bits, as an integer."""
    return np.float32(x).view(np.int32)


def of_bits(n):
    """The float32 with these bits."""
    return np.int32(n).view(np.float32)


def _compile_as_cast(function, given, result):
    """Compile ``function`` as a cast of the bits: numba's ``view`` would be a function of its own,
    compiled alone.
    """

    @lowered(function, lambda x: result, given)
    def compiled(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(result))


_compile_as_cast(bits_of, numba.float32, numba.int32)
_compile_as_cast(of_bits, numba.int32, numba.float32)


def compiled_as(of_float32, of_float64):
    """Decorate a function whose first argument is a number or an array: kernels call these
    functions in its place.
    """

    def decorate(function):
        @overload(function, jit_options=PART, strict=False)  # a loop with a call is not vectorised
        def chosen(x, *others):
            return of_float32 if getattr(x, "dtype", x) == numba.float32 else of_float64

        return function

    return decorate


@compiled_as(lambda x: _exp32(x), lambda x: math.exp(x))
def exp(x):
    """exp(x). In float32 the relative error is up to 9e-8, and results below the normal numbers are
    subnormal ones.
    """
    return np.exp(x)


@compiled_as(lambda x: _exp_negative32(x), lambda x: math.exp(0 if x > 0 else x))
def exp_negative(x):
    """exp(min(x, 0)), which is cheaper: x is a distance from the largest number of a row, above 0
    only by rounding.
    """
    return np.exp(np.minimum(x, 0))


@exact
def _exp_negative32(x):
    """2ⁿ⁺²⁴ exp(r) · 2⁻²⁴. Results below the normal numbers are rounded to them in the last product
    only.
    """
    n, expm1_r = _split(ZERO if x > ZERO else x)
    power = _power_of_two(n + np.int32(24))
    y = (power * expm1_r + power) * np.float32(2**-24)
    return ZERO if x < LEAST else y


@exact
def _exp32(x):
    """2ⁿ exp(r), with 2ⁿ as a product of two factors, so that only the result leaves the range of
    normal numbers.
    """
    is_zero = x < LEAST  # False for NaN
    n, expm1_r = _split(ZERO if is_zero else MOST if x > MOST else x)
    half = n >> np.int32(1)
    other = ZERO if is_zero else _power_of_two(n - half)
    return (ONE + expm1_r) * _power_of_two(half) * other


@exact
def _expm1_32(x):
    """exp(x) - 1 as 2ⁿ (exp(r) - 1) + (2ⁿ - 1): if x is small n is 0, and nothing cancels."""
    n, expm1_r = _split(x)
    power = _power_of_two(n)
    return power * expm1_r + (power - ONE)


@exact
def _power_of_two(n):
    """2ⁿ, of which n + 127 is the exponent's bits."""
    return of_bits(np.int32((n + np.int32(127)) << np.int32(23)))


@exact
def _split(x):
    """(n, exp(r) - 1) with x = n ln(2) + r and |r| <= ln(2)/2, for |x| up to 128.

    Only the lower nine bits of the integer n are right: those that ``_power_of_two`` keeps. ln(2)
    is subtracted in two parts, as the product of n and nine bits is exact.
    """
    shifted = x * LOG2_E + TO_INTEGER
    n = shifted - TO_INTEGER
    r = x - n * LN2_HIGH
    r = r - n * LN2_LOW
    square = r * r  # the terms are added in pairs, so that few have to wait for those before
    low = P[0] + r * P[1]
    high = P[2] + r * P[3]
    p = low + square * (high + square * P[4])
    return bits_of(shifted), r + square * p


@exact
def reciprocal_root(x):
    """1/√x, 0 where x is infinite."""
    return like(x, 1) / np.sqrt(x)


@compiled_as(lambda x: _tanh32(x), lambda x: math.tanh(x))
def tanh(x):
    """tanh(x). In float32 the relative error is up to 2e-7, also of tiny results."""
    return np.tanh(x)


@inlined
def _tanh32(x):
    """e / (e + 2) with e = exp(2x) - 1, and x limited to ±10, where tanh rounds to ±1."""
    e = _expm1_32(TWO * limited(x, 10))
    return e / (e + TWO)


@inlined
def limited(x, most):
    """x, but -most if it is less, and most if it is more."""
    return like(x, -most) if x < like(x, -most) else like(x, most) if x > like(x, most) else x


@inlined
def sigmoid(x):
    """1 / (1 + exp(-x)): 0 where exp(-x) overflows, and the result would be subnormal."""
    return like(x, 1) / (like(x, 1) + exp(-x))


@compiled_as(lambda x: _normal32(x), lambda x: 0.5 * math.erfc(-math.sqrt(0.5) * x))
def normal_distribution(x):
    """Φ(x). The relative error is a few times (1 + x²) ε, also of small results."""
    return 0.5 * math.erfc(-math.sqrt(0.5) * x)


@inlined
def _normal32(x):
    """The sum of ``reference.math.normal`` with steps of 1: without branches, it takes 1.2 ns,
    where erfc takes 9.5.
    """
    x = limited(x, 20)
    z = abs(x)
    e = exp(np.float32(-2 * math.pi) * z)
    tail = e / (ONE + e) if z < np.float32(2 * math.pi) else ZERO
    total = ZERO
    for factor, square in TERMS:
        total += factor / (z * z + square)
    tail += exp(np.float32(-0.5) * z * z) * z * total
    return tail if x < ZERO else ONE - tail
