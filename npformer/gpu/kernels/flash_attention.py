"""Attention in tiles: only one tile of the (T, S) weights exists at a time, in shared memory or in
registers. ``packed_attention.py`` makes kernels of the functions in this file.
"""

import math
from typing import NamedTuple

import cupy
import numpy as np

from npformer.gpu.kernels.dropout import dropout_arguments
from npformer.gpu.launch import cuda_kernel, real, with_steps
from npformer.reference.math.attention import scale_of

SHARED_MEMORY = 48 * 1024  # bytes that a block may have by default
MOST_HEADS = 65535  # and the most sequences, per launch
WIDTHS = (16, 32, 64, 128)
KNOWN = "causal scale dropout_rate"  # the fields of AttentionOptions that these kernels know
QUERIES = 128  # per block of the kernel that prepares the backward pass, one for each thread


class Tiles(NamedTuple):
    """The parameters with which attention kernels are compiled and launched."""

    file: str
    constants: dict
    rows: int  # the rows that a block keeps
    block: tuple
    kept: int = 0  # bytes of shared memory for each array whose rows a block keeps
    # bytes of shared memory for the tiles of the other arrays, through which it loops
    passing: int = 0


class Sizes(NamedTuple):
    """The first of the HEAD_ARGUMENTS of the kernels."""

    T: int  # queries
    S: int  # keys
    K: int  # width of a query and of a key
    Kv: int  # width of a value
    n_shared: int  # heads of queries to a head of keys


class KernelOptions(NamedTuple):
    """The other HEAD_ARGUMENTS, the last of which are the ``DropoutArguments``."""

    scale: np.floating
    mask: cupy.ndarray | None
    mask_batch: int
    mask_head: int
    mask_row: int
    mask_column: int
    causal: bool
    key: cupy.ndarray | None
    threshold: np.uint32
    kept_scale: np.floating


def kernel_options(q, k, keep_mask, bias, options, dropout_key):
    """The last argument of ``attend`` and ``attend_backward``; there is no bias."""
    scale = scale_for(q, options)
    mask_and_steps = mask_of(keep_mask, q, k)
    drop = dropout_arguments(options.dropout_rate, dropout_key, q.dtype)
    return KernelOptions(scale, *mask_and_steps, options.causal, *drop)


def scale_for(q, options):
    """The scale of the scores, as a number of the kernels."""
    return real(q.dtype).type(scale_of(q.shape[-1], options.scale))


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
        return NotImplemented
    sizes = _sizes(q, k, v)
    peak = cupy.empty(q.shape[:3], real(q.dtype))
    total = cupy.empty(q.shape[:3], real(q.dtype))
    heads = (*with_steps(q), *with_steps(k), *with_steps(v), *with_steps(out))
    kernel = _kernel("attention", tiles, q, sizes.T, n_kept=1)
    # attention(HEADS(q), HEADS(k), HEADS(v), HEADS(out), peaks, totals, HEAD_ARGUMENTS)
    kernel(*heads, peak, total, *sizes, *options)
    return peak, total


def attend_backward(dout, heads, saved, gradients, options):
    """Write the gradients (dq, dk, dv) of heads (q, k, v, out) in any layout, from (peak, total).
    Returns None, or NotImplemented.
    """
    q, k, v, out = heads
    peak, total = saved
    dq, dk, dv = gradients
    tiles = tiles_of(q, k, v, dout, dq, dk, dv)
    if tiles is None:
        return NotImplemented
    B, H, T, _ = q.shape
    sizes = _sizes(q, k, v)

    shift = cupy.empty((B, H, T), real(q.dtype))
    inverse = cupy.empty((B, H, T), real(q.dtype))
    sums = cupy.empty((B, H, T), real(q.dtype))
    grid = (-(-T // QUERIES), H, B)
    kernel = cuda_kernel(
        tiles.file, "prepare_backward", q.dtype, grid, (QUERIES,), **tiles.constants
    )
    # prepare_backward(HEADS(dout), HEADS(out), peak, total, shift, inverse, sums, T, Kv)
    kernel(*with_steps(dout), *with_steps(out), peak, total, shift, inverse, sums, T, sizes.Kv)

    # BACKWARD_ARGUMENTS are HEADS(dout), HEADS(q), HEADS(k), HEADS(v), shift, inverse and sums.
    inputs = (*with_steps(dout), *with_steps(q), *with_steps(k), *with_steps(v))
    inputs += (shift, inverse, sums)
    kernel = _kernel("attention_backward_q", tiles, q, T, n_kept=2)
    # attention_backward_q(BACKWARD_ARGUMENTS, HEADS(dq), HEAD_ARGUMENTS)
    kernel(*inputs, *with_steps(dq), *sizes, *options)

    dk_parts = _parts(dk, H)
    dv_parts = _parts(dv, H)
    kernel = _kernel("attention_backward_kv", tiles, q, sizes.S, n_kept=2)
    # attention_backward_kv(BACKWARD_ARGUMENTS, HEADS(dk), HEADS(dv), HEAD_ARGUMENTS)
    kernel(*inputs, *with_steps(dk_parts), *with_steps(dv_parts), *sizes, *options)
    _add_parts(dk_parts, dk)
    _add_parts(dv_parts, dv)
    return None


def _sizes(q, k, v):
    _, H, T, K = q.shape
    _, G, S, Kv = v.shape
    return Sizes(T, S, K, Kv, H // G)


def _kernel(name, tiles, q, n_rows, *, n_kept):
    """A kernel in which each block keeps its rows of ``n_kept`` arrays in shared memory, for all
    heads of queries.
    """
    B, H, _, _ = q.shape
    grid = (-(-n_rows // tiles.rows), H, B)
    shared = n_kept * tiles.kept + tiles.passing
    return cuda_kernel(tiles.file, name, q.dtype, grid, tiles.block, shared, **tiles.constants)


def _parts(dx, H):
    """What the heads of queries write to: their own parts of ``dx`` if they share keys, else
    itself.
    """
    B, G, S, width = dx.shape
    return dx if G == H else cupy.empty((B, H, S, width), dx.dtype)


def _add_parts(parts, dx):
    if parts is not dx:
        B, G, S, width = dx.shape
        dx[...] = parts.reshape(B, G, -1, S, width).sum(axis=2, dtype=real(dx.dtype))


def tiles_of(q, *arrays):
    """The tiles for heads (B, H, T or S, width); None if they are too wide for shared memory, or
    too many.
    """
    widest = max(x.shape[-1] for x in (q, *arrays))
    if widest > WIDTHS[-1] or max(q.shape[:2]) > MOST_HEADS:
        return None
    width = next(width for width in WIDTHS if width >= widest)
    if on_tensor_cores(q, *arrays):
        return tensor_tiles(width)
    return plain_tiles(width, real(q.dtype).itemsize)


def on_tensor_cores(*arrays):
    """Whether the GPU has tensor cores for this dtype, which can read the arrays."""
    if arrays[0].dtype.itemsize != 2 or int(cupy.cuda.Device().compute_capability) < 80:
        return False
    return all(_is_aligned(x) for x in arrays)


def _is_aligned(x):
    """Whether all rows begin and end at multiples of 16 bytes."""
    n_bytes = (x.data.ptr, *x.strides[:-1], x.shape[-1] * x.itemsize)
    return all(n % 16 == 0 for n in n_bytes)


def tensor_tiles(width):
    """A block keeps 64 rows. It loops over two arrays, with two tiles of each, which are smaller if
    heads are wide.
    """
    rows = 64
    tile = 64 if width <= 64 else 32
    row_bytes = 2 * (width + 8)
    constants = {"WIDTH": width, "ROWS": rows, "TILE": tile}
    kept = rows * row_bytes
    return Tiles("tensor_attention", constants, rows, (128,), kept, passing=4 * tile * row_bytes)


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


def mask_of(keep_mask, q, k):
    """The mask of all heads of queries, (B, H, T, S), and its steps along each axis."""
    if keep_mask is None:
        return None, 0, 0, 0, 0
    mask = _with_four_axes(cupy.broadcast_to(keep_mask, (*q.shape[:-1], k.shape[-2])))
    return mask, *mask.strides  # a bool has one byte: its strides are its steps


def _with_four_axes(x):
    """A view or copy with four axes: leading axes of length 1 are added, or the first axes merged
    into one.
    """
    if x.ndim > 4:
        return x.reshape(math.prod(x.shape[:-3]), *x.shape[-3:])
    return x[(None,) * (4 - x.ndim)]
