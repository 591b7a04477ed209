"""Random bits as a pure function of (key, element index), the same on every backend.

There is no generator state and no mask to store: the backward pass generates the same bits again, a
finite difference can be computed with a fixed dropout mask, and a resumed run repeats the
interrupted run exactly.
"""

import numpy as np

from npformer.arrays import Array
from npformer.checks import check_array, check_int, check_key

_64_BITS = 0xFFFFFFFFFFFFFFFF
_32_BITS = 0xFFFFFFFF
MOST_KEYS = 1_000_000  # of one call, which takes a second; derive_key has others


def derive_key(key: int | None, *path: int) -> int | None:
    """Derive a new key from a key and a path of integers: ``derive_key(seed, step, layer)``.
    ``None`` gives ``None``.

    >>> derive_key(7, 1, 2) == derive_key(derive_key(7, 1), 2) != derive_key(7, 2, 1)
    True
    """
    if key is None:
        return None
    if type(key) is not int:
        key = check_key("key", key)
        if hasattr(key, "derive"):  # a key of a recorded step, whose number the GPU reads
            return key.derive(*path)
    for number in path:
        if type(number) is not int:
            number = check_key("path", number)
        key = _splitmix64(_splitmix64(key) + 1 + number)
    return key


def split_key(key: int | None, n: int) -> list:
    """Derive ``n`` different keys from one, so that no key is used twice. ``None`` gives ``n``
    times ``None``.

    >>> len(set(split_key(7, 3) + split_key(8, 3)))
    6
    """
    n = check_int("n", n, at_least=0, at_most=MOST_KEYS)
    return keys_from(derive_key(key), n)


def keys_from(key, n):
    """``split_key`` of a key and a number that were checked."""
    return [derive_key(key, i) for i in range(n)]


def random_bits(index: Array, key: int) -> Array:
    """32 random bits, (...) uint32, for each element index, (...) non-negative int64, under a
    64-bit key.

    The index is hashed with one half of the key, and the result with the other half: after a single
    round, the bits of one key would be a permutation of the bits of any other key.

    >>> index = np.arange(1000)
    >>> bits = random_bits(index, key=1)
    >>> bool((bits[500:] == random_bits(index[500:], key=1)).all()), len(np.unique(bits))
    (True, 1000)
    """
    check_array(index, "index", "ids")
    return bits_of(index, check_key("key", key))


@np.errstate(over="ignore")  # hashing multiplies modulo 2^32
def bits_of(index, key):
    """``random_bits``, of arguments that were checked."""
    low_key, high_key = key_words(key)
    low = index.astype(np.uint32)
    high = (index >> 32).astype(np.uint32)
    first = _mix32(low ^ low_key)
    return _mix32(first + (high ^ high_key))


def key_words(key):
    """The two 32-bit words of the hash of a key."""
    word = _splitmix64(int(key))
    return np.uint32(word & _32_BITS), np.uint32(word >> 32)


def _mix32(h):
    """A bijection of 32-bit words; each output bit depends on all input bits: C. Wellons' lowbias32
    (2018).
    """
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D)
    h = (h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B)
    return h ^ (h >> np.uint32(16))


def _splitmix64(x):
    """A bijection of 64-bit words, of the same kind: Steele, Lea and Flood's SplitMix (2014)."""
    x = (x + 0x9E3779B97F4A7C15) & _64_BITS
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return x ^ (x >> 31)
