"""How kernels of heads are compiled, and how threads divide the heads."""

import numba

from npformer.cpu.attention_tiles.heads import Heads
from npformer.cpu.compiling import does_nothing
from npformer.cpu.jit import kernel
from npformer.runtime.threads import MOST_PARTS, WORTH_A_PART, even_slices, in_parallel

OF_A_HEAD = 2**17  # multiplications that take as long as the copies of the matrices of a short head


def of_any_layout(function):
    """Compile a kernel once for all layouts of the heads that it takes.

    Its first argument are ``Heads``, and its last two are the options and a range of heads.
    """
    if numba.config.DISABLE_JIT:
        return function
    compiled = kernel(function)
    entries = {}

    def compile_for(arguments):
        return compiled.compile(tuple(map(_type_of, arguments)))

    def call(*arguments):
        heads, *_, options, _ = arguments
        key = heads.q.dtype, *map(type, options)
        entry = entries.get(key) or compile_for(arguments)
        if entry is not does_nothing:
            entries[key] = entry
        return entry(*arguments)

    return call


def _type_of(argument):
    """The type of an argument. That of ``Heads`` does not say how they lie."""
    kind = numba.typeof(argument)
    if not isinstance(argument, Heads):
        return kind
    return numba.types.BaseTuple.from_types([x.copy(layout="A") for x in kind], Heads)


def all_heads(work, n_heads, heads):
    """Whether ``work((first, end))`` returns True for all parts of so many heads, which are divided
    evenly between threads.
    """
    B, H, T, K = heads.q.shape
    S = heads.v.shape[2]
    n_products = B * H * (T * S * K + OF_A_HEAD)
    n = min(n_heads, n_products // WORTH_A_PART, MOST_PARTS)
    if n < 2:
        return work((0, n_heads))
    return all(in_parallel(work, [(part.start, part.stop) for part in even_slices(n_heads, n)]))
