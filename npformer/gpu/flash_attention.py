"""Attention in tiles: the (T, S) weights exist a tile at a time, in shared memory or in registers."""

import math
from typing import NamedTuple

import cupy
import numpy as np

from npformer import reference
from npformer.gpu import cudnn
from npformer.gpu.arrays import contiguous, on_tensor_cores, size_of, suit
from npformer.gpu.dropout import drawing
from npformer.gpu.launch import launch, real
from npformer.reference.attention import default_scale
from npformer.reference.checks import check_attention

SHARED_MEMORY = 48 * 1024  # bytes that a block may have without asking for more
WIDTHS = (16, 32, 64, 128)


def flash_attention(q, k, v, keep_mask=None, *, causal=False, scale=None, dropout_rate=0.0, key=None):
    """As ``reference.flash_attention``."""
    options = {"causal": causal, "scale": scale, "dropout_rate": dropout_rate, "key": key}
    if not fits(q, k, v, keep_mask):
        return reference.flash_attention(q, k, v, keep_mask, **options)
    check_attention(q, k, v, keep_mask, dropout_rate, key)
    out = cupy.empty((*q.shape[:-1], v.shape[-1]), q.dtype)
    logsumexp = attend(*map(as_heads, (q, k, v)), as_heads(out), mask_of(keep_mask, q, k), **options)
    return out, logsumexp.reshape(q.shape[:-1])


def flash_attention_backward(
    dout, q, k, v, out, logsumexp, keep_mask=None, *, causal=False, scale=None, dropout_rate=0.0, key=None
):
    """As ``reference.flash_attention_backward``."""
    options = {"causal": causal, "scale": scale, "dropout_rate": dropout_rate, "key": key}
    if not (fits(q, k, v, keep_mask) and fits_saved(dout, out, logsumexp, q, v)):
        return reference.flash_attention_backward(dout, q, k, v, out, logsumexp, keep_mask, **options)
    check_attention(q, k, v, keep_mask, dropout_rate, key)
    gradients = [cupy.empty(x.shape, x.dtype) for x in (q, k, v)]
    saved = as_heads(dout), as_heads(out), contiguous(logsumexp)
    attend_backward(*saved, *map(as_heads, (q, k, v, *gradients)), mask_of(keep_mask, q, k), **options)
    return tuple(gradients)


def attend(q, k, v, out, mask, *, causal, dropout_rate, key, scale=None):
    """Write ``out`` (B, H, T, Kv), given heads (B, H, T or S, width) and a mask (B, H, T, S) or None, in any layout.

    Returns
    -------
    logsumexp : (B, H, T)
    """
    B, H, T, _ = q.shape
    logsumexp = cupy.empty((B, H, T), real(q.dtype))
    if cudnn.takes(q, k, v, out, mask=mask, causal=causal, dropout_rate=dropout_rate):
        cudnn.attend(q, k, v, out, logsumexp, causal, default_scale(q, scale))
        return logsumexp
    arrays = [part for x in (q, k, v, out) for part in _with_steps(x)]
    options = _options(q, k, v, mask, causal, scale, dropout_rate, key)
    _launch("attention", 1, tiles_of(q, k, v, out), q.dtype, (T, H, B), *arrays, logsumexp, *options)
    return logsumexp


def attend_backward(dout, out, logsumexp, q, k, v, dq, dk, dv, mask, *, causal, dropout_rate, key, scale=None):
    """Write ``dq``, ``dk`` and ``dv``, given heads in any layout and a contiguous ``logsumexp``."""
    if cudnn.takes(q, k, v, dout, out, dq, dk, dv, mask=mask, causal=causal, dropout_rate=dropout_rate):
        cudnn.attend_backward(dout, out, logsumexp, q, k, v, dq, dk, dv, causal, default_scale(q, scale))
        return
    B, H, T, _ = q.shape
    shift, sums = cupy.empty((B, H, T), real(q.dtype)), cupy.empty((B, H, T), real(q.dtype))
    n_queries = 4  # of a block, one a warp
    arrays = *_with_steps(dout), *_with_steps(out), logsumexp, shift, sums
    grid, block = (-(-T // n_queries), H, B), (32, n_queries)
    launch("prepare_backward", "prepare_backward", q.dtype, grid, block, *arrays, *size_of(T, v.shape[-1]))
    inputs = *(part for x in (dout, q, k, v) for part in _with_steps(x)), shift, sums
    options = _options(q, k, v, mask, causal, scale, dropout_rate, key)
    tiles = tiles_of(q, k, v, dout, dq, dk, dv)
    _launch("attention_backward_q", 2, tiles, q.dtype, (T, H, B), *inputs, *_with_steps(dq), *options)
    outputs = *_with_steps(dk), *_with_steps(dv)
    _launch("attention_backward_kv", 2, tiles, q.dtype, (k.shape[2], H, B), *inputs, *outputs, *options)


def fits(q, k, v, keep_mask=None):
    """Whether these are arrays for the kernels, with heads that are narrow enough."""
    if not suit(q, k, v) or min(q.ndim, k.ndim, v.ndim) < 2 or not isinstance(keep_mask, (cupy.ndarray, type(None))):
        return False
    return max(q.shape[-1], v.shape[-1]) <= WIDTHS[-1] and tiles_of(q, k, v) is not None


def fits_saved(dout, out, logsumexp, q, v):
    """The same for what the backward pass is given."""
    shape = (*q.shape[:-1], v.shape[-1])
    fit = suit(dout, out, q) and dout.shape == out.shape == shape
    return fit and suit(logsumexp) and logsumexp.shape == q.shape[:-1] and logsumexp.dtype == real(q.dtype)


class Tiles(NamedTuple):
    """What kernels of attention are compiled for and launched with."""

    file: str
    constants: dict
    rows: int  # that a block keeps
    block: tuple
    kept: int = 0  # bytes of shared memory for each array whose rows it keeps
    passing: int = 0  # and for those that come by


def tiles_of(q, *arrays):
    """The tiles for heads that are no wider than these; None if there are none."""
    width = next(width for width in WIDTHS if width >= max(x.shape[-1] for x in (q, *arrays)))
    return tensor_tiles(width) if on_tensor_cores(q, *arrays) else plain_tiles(width, real(q.dtype).itemsize)


def plain_tiles(width, itemsize):
    """As many rows as fit, four tiles and two of scores; None if not even 16 do."""
    for tile in (32, 16):
        if (4 * tile * (width + 1) + 2 * tile * (tile + 1)) * itemsize <= SHARED_MEMORY:
            return Tiles("flash_attention", {"WIDTH": width, "TILE": tile}, tile, (16, 16))
    return None


def tensor_tiles(width):
    """64 rows that stay, and two times two tiles that come by, smaller ones where heads are wide."""
    rows, tile, row_bytes = 64, 64 if width <= 64 else 32, 2 * (width + 8)
    constants = {"WIDTH": width, "ROWS": rows, "TILE": tile}
    return Tiles("tensor_attention", constants, rows, (128,), rows * row_bytes, 4 * tile * row_bytes)


def as_heads(x):
    """(..., T, K) as (B, H, T, K), the numbers of a row contiguous."""
    x = _with_four_axes(x)
    return x if x.strides[-1] == x.itemsize else contiguous(x)


def mask_of(keep_mask, q, k):
    """The mask as a view (B, H, T, S)."""
    if keep_mask is None:
        return None
    return _with_four_axes(cupy.broadcast_to(keep_mask, (*q.shape[:-1], k.shape[-2])))


def _with_four_axes(x):
    """Leading axes of length 1 where there are fewer, one instead of several where there are more."""
    if x.ndim > 4:
        return x.reshape(math.prod(x.shape[:-3]), *x.shape[-3:])
    return x[(None,) * (4 - x.ndim)]


def _with_steps(x):
    """An array and its steps from batch to batch, head to head and row to row."""
    return x, *size_of(*(stride // x.itemsize for stride in x.strides[:3]))


def _options(q, k, v, mask, causal, scale, dropout_rate, key):
    sizes = size_of(q.shape[2], k.shape[2], q.shape[3], v.shape[3])
    steps = size_of(*((0,) * 4 if mask is None else mask.strides))
    scale = real(q.dtype).type(default_scale(q, scale))
    return *sizes, scale, mask, *steps, np.int32(causal), *drawing(dropout_rate, key, q.dtype)


def _launch(name, n_kept, tiles, dtype, sizes, *args):
    """Run a kernel whose blocks keep rows of ``n_kept`` arrays."""
    n, *heads_and_batches = sizes
    grid, shared = (-(-n // tiles.rows), *heads_and_batches), n_kept * tiles.kept + tiles.passing
    launch(tiles.file, name, dtype, grid, tiles.block, *args, shared=shared, **tiles.constants)
