"""Attention in tiles: only one tile of the (T, S) weights exists at a time, in shared memory or in
registers.
"""

import math
from typing import NamedTuple

import cupy

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.kernels.dropout import dropout_arguments
from npformer.gpu.launch import cuda_kernel, real
from npformer.reference.math.attention import scale_of

SHARED_MEMORY = 48 * 1024  # bytes that a block may have by default
MOST_HEADS = 65535  # and the most sequences, per launch
WIDTHS = (16, 32, 64, 128)


class Tiles(NamedTuple):
    """The parameters with which attention kernels are compiled and launched."""

    file: str
    constants: dict
    rows: int  # the rows that a block keeps
    block: tuple
    kept: int = 0  # bytes of shared memory for each array whose rows a block keeps
    # bytes of shared memory for the tiles of the other arrays, through which it loops
    passing: int = 0


KNOWN = "causal scale dropout_rate"  # the fields of AttentionOptions that these kernels know


# no kernel of the GPU adds it
@kernel_of(reference.flash_attention, as_it_lies="q k v", without="bias", knows=KNOWN)
def flash_attention(q, k, v, keep_mask, bias, options, dropout_key):
    out = cupy.empty((*q.shape[:-1], v.shape[-1]), q.dtype)
    for_kernel = kernel_options(q, k, keep_mask, bias, options, dropout_key)
    saved = attend(*map(as_heads, (q, k, v, out)), for_kernel)
    if saved is NotImplemented:
        return NotImplemented
    peak, total = (x.reshape(q.shape[:-1]) for x in saved)
    return out, peak, total


@kernel_of(
    reference.flash_attention_backward, as_it_lies="dout q k v out", without="bias", knows=KNOWN
)
def flash_attention_backward(
    dout, q, k, v, out, peak, total, keep_mask, bias, options, dropout_key
):
    gradients = tuple(cupy.empty(x.shape, x.dtype) for x in (q, k, v))
    for_kernel = kernel_options(q, k, keep_mask, bias, options, dropout_key)
    heads, dheads = map(as_heads, (q, k, v, out)), tuple(map(as_heads, gradients))
    done = attend_backward(as_heads(dout), heads, (peak, total), dheads, for_kernel)
    return done if done is NotImplemented else gradients


def kernel_options(q, k, keep_mask, bias, options, dropout_key):
    """The last arguments of the kernels, of ``AttentionOptions``; there is no bias."""
    number = real(q.dtype).type
    mask = mask_of(keep_mask, q, k)
    drop = dropout_arguments(options.dropout_rate, dropout_key, q.dtype)
    return number(scale_of(q.shape[-1], options.scale)), *mask, options.causal, *drop


def attend(q, k, v, out, options):
    """Write ``out`` (B, H, T, Kv) for heads (B, H, T or S, width) in any layout.

    Returns
    -------
    peak, total : (B, H, T)
        The largest score of each query, -inf if it sees no key, and Σ exp(score - peak). Or
        NotImplemented.
    """
    tiles = tiles_of(q, k, v, out)
    if tiles is None:
        return NotImplemented  # the heads are too wide for shared memory
    B, H, T, _ = q.shape
    saved = cupy.empty((B, H, T), real(q.dtype)), cupy.empty((B, H, T), real(q.dtype))
    arrays = [part for x in (q, k, v, out) for part in _with_steps(x)]
    _launch("attention", 1, tiles, q.dtype, (T, H, B), *arrays, *saved, *_sizes(q, k, v), *options)
    return saved


def attend_backward(dout, heads, saved, gradients, options):
    """Write the gradients (dq, dk, dv) of heads (q, k, v, out) in any layout, from (peak, total).
    Returns None, or NotImplemented.
    """
    q, k, v, out = heads
    dq, dk, dv = gradients
    tiles = tiles_of(q, k, v, dout, dq, dk, dv)
    if tiles is None:
        return NotImplemented  # as above
    B, H, T, _ = q.shape
    # shift, inverse, sums
    of_queries = tuple(cupy.empty((B, H, T), real(q.dtype)) for _ in range(3))
    n_queries = 128  # per block, one for each thread
    arrays = *_with_steps(dout), *_with_steps(out), *saved, *of_queries, T, v.shape[3]
    grid, block = (-(-T // n_queries), H, B), (n_queries,)
    kernel = cuda_kernel(tiles.file, "prepare_backward", q.dtype, grid, block, **tiles.constants)
    kernel(*arrays)
    inputs = *(part for x in (dout, q, k, v) for part in _with_steps(x)), *of_queries
    options = *_sizes(q, k, v), *options
    _launch(
        "attention_backward_q", 2, tiles, q.dtype, (T, H, B), *inputs, *_with_steps(dq), *options
    )
    parts = [cupy.empty((B, H, *x.shape[2:]), x.dtype) if x.shape[1] < H else x for x in (dk, dv)]
    outputs = [given for x in parts for given in _with_steps(x)]
    _launch(
        "attention_backward_kv", 2, tiles, q.dtype, (k.shape[2], H, B), *inputs, *outputs, *options
    )
    # heads of queries that share keys and values add to them
    for x, part in zip((dk, dv), parts, strict=True):
        if part is not x:
            x[...] = part.reshape(B, x.shape[1], -1, *x.shape[2:]).sum(axis=2, dtype=real(x.dtype))
    return None


def tiles_of(q, *arrays):
    """The tiles for heads (B, H, T or S, width); None if they are too wide or too many."""
    width = max(x.shape[-1] for x in (q, *arrays))
    if width > WIDTHS[-1] or max(q.shape[:2]) > MOST_HEADS:
        return None
    width = next(wide for wide in WIDTHS if wide >= width)
    return (
        tensor_tiles(width)
        if on_tensor_cores(q, *arrays)
        else plain_tiles(width, real(q.dtype).itemsize)
    )


def on_tensor_cores(*arrays):
    """Whether the GPU has tensor cores for this dtype, and all rows begin and end at multiples of
    16 bytes.
    """
    if arrays[0].dtype.itemsize != 2 or int(cupy.cuda.Device().compute_capability) < 80:
        return False
    places = [
        place for x in arrays for place in (x.data.ptr, *x.strides[:-1], x.shape[-1] * x.itemsize)
    ]
    return all(place % 16 == 0 for place in places)


def tensor_tiles(width):
    """A block keeps 64 rows. It loops over two arrays, with two tiles of each, which are smaller if
    heads are wide.
    """
    rows, tile, row_bytes = 64, 64 if width <= 64 else 32, 2 * (width + 8)
    constants = {"WIDTH": width, "ROWS": rows, "TILE": tile}
    return Tiles(
        "tensor_attention", constants, rows, (128,), rows * row_bytes, 4 * tile * row_bytes
    )


def plain_tiles(width, itemsize):
    """The largest tiles of which four, and two tiles of scores, fit into shared memory; None if not
    even 16 rows do.
    """
    for tile in (32, 16):
        if (4 * tile * (width + 1) + 2 * tile * (tile + 1)) * itemsize <= SHARED_MEMORY:
            return Tiles("flash_attention", {"WIDTH": width, "TILE": tile}, tile, (16, 16))
    return None


def as_heads(x):
    """(..., T, K) as (B, H, T, K) with contiguous rows."""
    x = _with_four_axes(x)
    return x if x.strides[-1] == x.itemsize else cupy.ascontiguousarray(x)


class Mask(NamedTuple):
    """A mask (B, H, T, S), and its steps along each axis, as the kernels declare it."""

    mask: cupy.ndarray | None
    mask_batch: int = 0
    mask_head: int = 0
    mask_row: int = 0
    mask_column: int = 0


def mask_of(keep_mask, q, k):
    """The mask, broadcast to all heads of queries."""
    if keep_mask is None:
        return Mask(None)
    mask = _with_four_axes(cupy.broadcast_to(keep_mask, (*q.shape[:-1], k.shape[-2])))
    return Mask(mask, *mask.strides)  # a bool has one byte: its strides are its steps


def _with_four_axes(x):
    """A view or copy with four axes: leading axes of length 1 are added, or the first axes merged
    into one.
    """
    if x.ndim > 4:
        return x.reshape(math.prod(x.shape[:-3]), *x.shape[-3:])
    return x[(None,) * (4 - x.ndim)]


def _with_steps(x):
    """An array and its steps, in elements, from one batch, head and row to the next."""
    return x, *(stride // x.itemsize for stride in x.strides[:3])


def _sizes(q, k, v):
    return q.shape[2], k.shape[2], q.shape[3], v.shape[3], q.shape[1] // k.shape[1]


def _launch(name, n_kept, tiles, dtype, sizes, *args):
    """Run a kernel in which each block keeps its rows of ``n_kept`` arrays in shared memory."""
    n, *heads_and_batches = sizes
    grid, shared = (-(-n // tiles.rows), *heads_and_batches), n_kept * tiles.kept + tiles.passing
    kernel = cuda_kernel(
        tiles.file, name, dtype, grid, tiles.block, shared=shared, **tiles.constants
    )
    kernel(*args)
