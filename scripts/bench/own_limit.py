"""The limit of one step: its matrix products, each at the best time of this run, and the bytes of
what is no product.

What a step computes is read from ``npformer.explain()`` of one step in one piece, on one thread:

- Its products are those of the linear maps and of attention, with their shapes and layouts. Each is
  timed on all cores, by BLAS and by npformer, as one product and as parts side by side; the fastest
  counts. Products of a causal attention count as the part of the scores that is seen, and at the
  speed of a tile that stays in the cache.
- Its bytes are those of the arrays that an operation reads or writes and that are not in one of its
  products, as the time of a product has those. Of attention, whose tiles are copies, all arrays
  count. An array that is updated in place is read and written. Bytes are moved at the speed at
  which one core or all of them copy memory.
- A step of decoding reads its weights, at the speed at which a large matrix is multiplied by a
  vector.

What is neither counts nothing: exponentials and other arithmetic, sums of gradients between
operations, and Python. As the speed of memory is that of large arrays, bytes that stay in a cache
count too much.
"""

import math
import time
from collections import Counter, defaultdict
from functools import partial
from timeit import timeit
from typing import NamedTuple

import numpy as np

from scripts.bench.machine import PAUSE, physical_cores

import npformer as nf
from npformer.cpu.attention_tiles.tile import KEYS, QUERIES
from npformer.cpu.jit import kernel
from npformer.cpu.padded import multiply_columns, multiply_padded, with_room
from npformer.errors import UserError
from npformer.runtime.blas_threads import blas_threads
from npformer.runtime.threads import even_slices, in_parallel, kernel_threads

NUMBER = 4  # bytes: all is float32
MOST_WEIGHTS = 2**27  # bytes of the matrices among which a product alternates, more than a cache
FEW_ROWS = 128  # up to so many, npformer has products of its own for decoding
SECONDS = 0.01  # a product is repeated until its time can be read from the clock
HOPELESS = 1.2  # a way that takes so many times as long as the best is not tried again
WITH_SPINNING = "BLAS, all threads"  # which afterwards keep the cores busy for a while
AT_LEAST = 2**25  # multiplications in a row: threads begin at slightly different times
CACHED = 2**16  # numbers of the matrices of attention that a core multiplies again and again
WRITTEN = {"adam_update": ("param", "m", "v"), "sgd_update": ("param", "velocity")}  # in place


class Product(NamedTuple):
    """A product of two matrices, (m, depth) times (depth, n), which lie in memory by rows or by
    columns.
    """

    m: int
    depth: int
    n: int
    left_by_columns: bool = False
    right_by_columns: bool = False
    in_tiles: bool = False  # of one head of attention

    @property
    def multiplications(self):
        """The number of multiplications, and of additions."""
        return self.m * self.depth * self.n


READING = Product(1, 2**13, 2**13, right_by_columns=True)  # its time is that of reading the matrix


class Work(NamedTuple):
    """What an operation has to do."""

    products: dict  # Product -> how many; of causal attention not a whole number
    moved: int = 0  # bytes that are read or written
    read: int = 0  # bytes of weights that a step of decoding only reads


# -- what a call has to do -------------------------------------------------------------------------


def work_of(call):
    """The ``Work`` of a ``Call``."""
    if call.operation in WORK:
        return WORK[call.operation](call)
    if call.flops:
        raise UserError(
            f"{call.operation}: nobody has said which products it has, "
            f"expected one of {', '.join(WORK)}"
        )
    written = sum(math.prod(call.shapes[name]) for name in WRITTEN.get(call.operation, ()))
    return Work({}, moved=call.bytes + NUMBER * written)


def of_linear(call):
    """x W, whose result may be kept beside that of the activation."""
    n, D, F = sizes_of_linear(call)
    product = Product(n, D, F, right_by_columns="weight" in call.by_columns)
    return Work({product: 1}, call.bytes - NUMBER * (n * D + D * F + n * F))


def of_linear_backward(call):
    """dy Wᵀ and xᵀ dy, of dy as the activation and dropout leave it."""
    n, D, F = sizes_of_linear(call)
    of_input = Product(n, F, D, right_by_columns="weight" not in call.by_columns)
    of_weight = Product(D, n, F, left_by_columns=True)
    in_products = 2 * n * D + 2 * D * F
    if call.operation == "linear_backward":
        in_products += n * F
    elif call.operation == "linear_dropout_residual_backward":
        # dy is listed twice, also as the gradient of the residual. Without dropout the products
        # read dy itself.
        in_products += n * F if call.options["dropout_rate"] else 2 * n * F
    return Work(dict(Counter([of_input, of_weight])), call.bytes - NUMBER * in_products)


def sizes_of_linear(call):
    """The number of rows of x, and the shape of the weight."""
    return math.prod(call.shapes["x"][:-1]), *call.shapes["weight"]


def of_attention(call):
    """Scores and weighted sums of all heads."""
    heads, T, S, K, seen = sizes_of_attention(call)
    return Work({scores(T, K, S): heads * seen, sums(T, S, K): heads * seen}, call.bytes)


def of_attention_backward(call):
    """The scores again, and the gradients of weights, values, queries and keys."""
    heads, T, S, K, seen = sizes_of_attention(call)
    products = {scores(T, K, S): 2, sums(T, S, K): 1, transposed(S, T, K): 2}
    return Work({product: heads * seen * n for product, n in products.items()}, call.bytes)


def scores(T, K, S):
    return Product(T, K, S, right_by_columns=True, in_tiles=True)


def sums(T, S, K):
    return Product(T, S, K, in_tiles=True)


def transposed(S, T, K):
    return Product(S, T, K, left_by_columns=True, in_tiles=True)


def sizes_of_attention(call):
    """The number of heads of the batch, T, S, the width of a head, and the part of the scores that
    is seen.
    """
    settings = call.options["settings"]
    if "qkv" in call.shapes:
        B, T, width = call.shapes["qkv"]
        S = T
        K = width // (settings.n_heads + 2 * (settings.n_kv_heads or settings.n_heads))
    else:
        B, T, width = call.shapes["q"]
        S = call.shapes["kv"][1]
        K = width // settings.n_heads
    hidden = T * (T - 1) / 2 if settings.causal else 0  # the last query sees all keys
    return B * settings.n_heads, T, S, K, 1 - hidden / (T * S)


def of_embedding(call):
    """The rows of the table that are read, not all of it."""
    table = math.prod(call.shapes["table"])
    rows = math.prod(call.shapes["ids"]) * call.shapes["table"][1]
    return Work({}, call.bytes - NUMBER * (table - rows))


WORK = {
    "linear": of_linear,
    "linear_backward": of_linear_backward,
    "linear_activation_dropout": of_linear,
    "linear_activation_dropout_backward": of_linear_backward,
    "linear_dropout_residual": of_linear,
    "linear_dropout_residual_backward": of_linear_backward,
    "linear_cross_entropy": of_linear,
    "self_attention": of_attention,
    "self_attention_backward": of_attention_backward,
    "cross_attention": of_attention,
    "cross_attention_backward": of_attention_backward,
    "embed_tokens": of_embedding,
    "stack_step": lambda call: Work({}, read=call.bytes),
}


def sum_of_works(calls):
    """{operation: its ``Work`` in all calls}."""
    works = defaultdict(list)
    for call in calls:
        works[call.operation].append(work_of(call))
    return {name: _sum(each) for name, each in works.items()}


def _sum(works):
    products = Counter()
    for work in works:
        products.update(work.products)
    return Work(dict(products), sum(work.moved for work in works), sum(work.read for work in works))


# -- how long it takes at best ---------------------------------------------------------------------


def build_own_limit(build):
    """``limit(copied)``, which measures the limit of the step that ``build()`` returns, better from
    call to call.

    ``copied`` is the number of bytes that are read and written per second. The result has the
    number of calls of each operation, and the seconds of its products and of its bytes.
    """
    with blas_threads(1):  # in one piece
        step = build()
        with nf.explain() as calls:
            step()
    del step
    n_calls = Counter(call.operation for call in calls)
    works = sum_of_works(calls)
    numbers = _sum(works.values()).products
    timed = {product: Timed(product, math.ceil(n)) for product, n in numbers.items()}
    if any(work.read for work in works.values()):
        timed[READING] = Timed(READING, 1)
    fastest_copy = 0.0

    def limit(copied):
        nonlocal fastest_copy
        fastest_copy = max(fastest_copy, copied)
        time.sleep(PAUSE)
        for spinning in (False, True):
            for each in timed.values():
                each.measure(spinning)
        return {name: {"calls": n_calls[name]} | seconds_of(work) for name, work in works.items()}

    def seconds_of(work):
        moving = work.moved / fastest_copy
        if work.read:
            moving += work.read * timed[READING].best / (NUMBER * READING.depth * READING.n)
        products = sum(n * timed[product].best for product, n in work.products.items())
        return {"products": products, "bytes": moving}

    return limit


class Timed:
    """The best time of a product on all cores, of which a step has some number."""

    def __init__(self, product, number):
        ways = ways_in_tiles(product) if product.in_tiles else ways_of(product, number)
        self._seconds = dict.fromkeys(ways, math.inf)
        self._ways = ways

    @property
    def best(self):
        """The seconds of the fastest way."""
        return min(self._seconds.values())

    def measure(self, spinning=False):
        """Time the ways that may be the best: that after which threads spin, or all others."""
        for way, (run, products) in self._ways.items():
            is_hopeless = HOPELESS * self.best < self._seconds[way] < math.inf
            if is_hopeless or (way == WITH_SPINNING) != spinning:
                continue
            once = timeit(run, number=1)
            repeats = math.ceil(SECONDS / max(once, 1e-7))
            seconds = timeit(run, number=repeats) / repeats if repeats > 1 else once
            self._seconds[way] = min(self._seconds[way], seconds / products)


def ways_of(product, number):
    """{name: (a function that multiplies, how many products that is)} for a product of two large
    matrices.

    Its right matrix is another one from call to call, as the weights of layers are.
    """
    m, depth, n, left_by_columns, right_by_columns, _ = product
    most = max(1, MOST_WEIGHTS // (NUMBER * depth * n))
    left = matrix(m, depth, by_columns=left_by_columns)
    out = np.empty((m, n), np.float32)
    n_matrices = min(number, most)
    rights = [matrix(depth, n, by_columns=right_by_columns) for _ in range(n_matrices)]
    rights *= math.ceil(AT_LEAST / (len(rights) * product.multiplications))
    n_cores = physical_cores()
    ops = nf.get_backend("cpu")

    def with_blas(n_threads):
        with blas_threads(n_threads):
            for right in rights:
                np.matmul(left, right, out=out)

    def rows(part):
        for right in rights:
            np.matmul(left[part], right, out=out[part])

    def columns(part):
        for right in rights:
            np.matmul(left, right[:, part], out=out[:, part])

    def npformer():
        for right in rights:
            ops.linear(left, right)

    def few_rows():
        with kernel_threads():
            npformer()

    runs = {
        "BLAS, one thread": partial(with_blas, 1),
        WITH_SPINNING: partial(with_blas, n_cores),
        "rows side by side": lambda: in_parallel(rows, even_slices(m, n_cores)),
        "columns side by side": lambda: in_parallel(columns, even_slices(n, n_cores)),
    }
    if not left_by_columns:
        runs["npformer"] = npformer
        if m <= FEW_ROWS:
            runs["npformer, few rows"] = few_rows
    return {name: (run, len(rights)) for name, run in runs.items()}


def matrix(*shape, by_columns=False):
    """A matrix, or a matrix for each head, of random numbers, which repeat."""
    if by_columns:
        *heads, n_rows, n_columns = shape
        return matrix(*heads, n_columns, n_rows).swapaxes(-1, -2)
    values = np.random.default_rng(0).standard_normal(10_007, np.float32)
    return np.resize(values, shape)


def ways_in_tiles(product):
    """The same for a product of one head of attention, of matrices that stay in the cache of a
    core.
    """
    m, depth, n, left_by_columns, right_by_columns, _ = product
    n_cores = physical_cores()
    heads = max(1, CACHED // (m * depth + depth * n + m * n))
    repeats = math.ceil(AT_LEAST / (heads * product.multiplications))
    lefts = [matrix(heads, m, depth, by_columns=left_by_columns) for _ in range(n_cores)]
    rights = [matrix(heads, depth, n, by_columns=right_by_columns) for _ in range(n_cores)]
    outs = [np.empty((heads, m, n), np.float32) for _ in range(n_cores)]

    def with_blas(core):
        for _ in range(repeats):
            np.matmul(lefts[core], rights[core], out=outs[core])

    tile = tile_of_product(product)
    tiles = [with_room(shapes_in_memory(tile), np.dtype(np.float32)) for _ in range(n_cores)]
    for a, b, _ in tiles:
        a[:], b[:] = 1, 1
    of_tile = math.ceil(AT_LEAST / tile.multiplications)

    def in_registers(core):
        multiply_tile(*tiles[core], tile.m, tile.n, tile.depth, left_by_columns, of_tile)

    def on_all_cores(work):
        return lambda: in_parallel(work, range(n_cores))

    n_tiles = of_tile * tile.multiplications / product.multiplications
    return {
        "heads by BLAS": (on_all_cores(with_blas), n_cores * repeats * heads),
        "tiles by npformer": (on_all_cores(in_registers), n_cores * n_tiles),
    }


def tile_of_product(product):
    """The part of a product of a head that npformer computes at once."""
    m, depth, n, left_by_columns, right_by_columns, _ = product
    if left_by_columns:
        return product._replace(m=min(m, KEYS), depth=min(depth, QUERIES))
    if right_by_columns:
        return product._replace(m=min(m, QUERIES), n=min(n, KEYS))
    return product._replace(m=min(m, QUERIES), depth=min(depth, KEYS))


def shapes_in_memory(tile):
    """The shapes of left, right and product; the left one lies as its transpose if it is given by
    columns.
    """
    left = (tile.depth, tile.m) if tile.left_by_columns else (tile.m, tile.depth)
    return [left, (tile.depth, tile.n), (tile.m, tile.n)]


@kernel
def multiply_tile(a, b, out, m, n, depth, transposed, repeats):
    scale = np.float32(1)
    for _ in range(repeats):
        if transposed:
            multiply_columns(a, b, out, (m, n, depth), scale, False)
        else:
            multiply_padded(a, b, out, (m, n, depth), scale, False)
