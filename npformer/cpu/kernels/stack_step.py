"""A step of decoding through all layers as one kernel: what ``layers.decoder_layer`` or
``layers.encoder_layer`` computes for one position of each row, one layer after another.

With a call from Python for each operation, it would take twice as long. The weights are read by
their addresses (``cpu/stack.py``), and threads share products and heads (``cpu/few_rows``).
"""

from typing import NamedTuple

import numba
import numpy as np

from npformer.checks import check_in_dtype
from npformer.cpu.backend import ops
from npformer.cpu.few_rows import JIT, array_at, team_for
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.kernels.activations import KINDS, activate
from npformer.cpu.kernels.decoding import (
    Cached,
    address_of_attention,
    attend_together,
    cached_of,
)
from npformer.cpu.kernels.linear import map_few_rows
from npformer.cpu.kernels.normalisation import normalise_rows, scale_rows
from npformer.cpu.kernels.rotary import turn_row, turns
from npformer.cpu.linear_maps import LinearMap
from npformer.cpu.rows import add_row, copy_row
from npformer.cpu.stack import FEED_FORWARD, OWN, stack_of, sublayer_at, with_panels
from npformer.operations.options import changed_fields
from npformer.reference.math.attention import scale_of
from npformer.runtime.threads import FEW_ROWS

# The fields of the settings that the kernel of a step reads. It is not used with others that are
# not at their defaults.
KNOWN_OF_LAYER = {
    "attention",
    "norm",
    "norm_type",
    "eps",
    "activation",
    "dropout_rate",
    "hidden_dropout_rate",
}
KNOWN_OF_ATTENTION = {
    "n_heads",
    "n_kv_heads",
    "causal",
    "window",
    "scale",
    "dropout_rate",
    "rotary",
}
KNOWN_OF_ROTARY = {"base", "scaling", "pairs", "llama3"}


class Step(NamedTuple):
    """The settings of a layer, as the kernel takes them. It has no dropout and sees what its cache
    has.
    """

    n_heads: int
    scale: float
    is_pre: bool
    is_rms: bool
    eps: float
    activation: NamedTuple
    is_halves: bool
    piece_of_attention: int  # the address of the function that computes one


def stack_step(layers, settings, has_memory, max_rows, n_steps):
    """The layers of a stack for the newest token of each row, as a function; None if there is no
    kernel for them.

    ``step(x, cache, memory)`` is ``layers.decoder_layer`` or, without a memory,
    ``layers.encoder_layer`` with a cache, of one layer after another, or ``NotImplemented``. The
    first axis of the arrays ``kv`` are the layers. All rows write their keys and values before any
    of them attends, so the rows may be the positions of one sentence. The weights may be copied:
    they must not change while it is used.
    """
    attention = settings.attention
    records = (
        (settings, KNOWN_OF_LAYER),
        (attention, KNOWN_OF_ATTENTION),
        (attention.rotary, KNOWN_OF_ROTARY),
    )
    for record, known in records:
        if record is not None and not changed_fields(record) <= known:
            return None
    stack = stack_of(layers, settings, has_memory)
    if stack is None:
        return None
    return StackKernel(with_panels(stack, max_rows, n_steps), settings, has_memory)


if JIT:
    ops.hooks["stack_step"] = stack_step


class StackKernel:
    """What ``stack_step`` returns: the kernel with all that it reads of a stack."""

    def __init__(self, stack, settings, has_memory):
        self.stack = stack  # keeps the memory at the addresses, also if parameters are replaced
        self.table = np.array(
            [[sublayer.words() for sublayer in layer] for layer in stack], np.int64
        )
        self.has_memory = has_memory
        self.attention = settings.attention
        gain = stack[0][0].gain
        self.dtype = gain.dtype
        self.head_width = len(gain) // settings.attention.n_heads
        self.step = _step_of(settings, self.head_width, self.dtype)

    def __call__(self, x, cache, memory=None):
        """The output of the layers for x, or ``NotImplemented``."""
        if not self.has_memory:
            memory = cache  # No layer reads it, but the kernel takes two caches.
        if not self._suits(x, cache, memory):
            return NotImplemented
        any_weight = self.stack[0][0].first.weight
        y = np.array(x)  # The kernel turns it into the output.
        rotation = turns_of(cache, self.attention.rotary, len(x), self.head_width, self.dtype)
        team = team_for(self.dtype, any_weight.dtype)
        own_entries = cached_of(cache.kv, cache.at, cache.keep_mask)
        memory_entries = cached_of(memory.kv, memory.at, memory.keep_mask)
        _steps(team, y, self.table, any_weight, own_entries, memory_entries, rotation, self.step)
        return y

    def _suits(self, x, cache, memory):
        """Whether the kernel takes these arrays, whose addresses the threads share."""
        window = self.attention.window
        n_keys = cache.at.shape[1]
        if len(x) > FEW_ROWS or (window is not None and n_keys > window):
            return False
        # Dtypes differ also in the order of bytes.
        if not x.dtype == cache.kv.dtype == memory.kv.dtype == self.dtype:
            return False
        if not cache.at.dtype == memory.at.dtype == np.int64:
            return False
        arrays = (cache.kv, cache.at, memory.kv, memory.at)
        return all(array.flags.c_contiguous for array in arrays)


def _step_of(settings, head_width, dtype):
    attention = settings.attention
    check_in_dtype("eps", settings.norm_eps, dtype)
    return Step(
        n_heads=attention.n_heads,
        scale=dtype.type(scale_of(head_width, attention.scale)),
        is_pre=settings.norm == "pre",
        is_rms=settings.norm_type == "rms_norm",
        eps=dtype.type(settings.norm_eps),
        activation=KINDS[settings.activation],
        is_halves=attention.rotary is not None and attention.rotary.pairs == "halves",
        piece_of_attention=address_of_attention(numba.from_dtype(dtype)),
    )


def turns_of(cache, rotary, n_rows, K, dtype):
    """The cosines and sines of the newest positions (2, R, K/2); without rotary positions (2, 0,
    0).
    """
    if rotary is None:
        return np.empty((2, 0, 0), dtype)
    positions = cache.newest_positions
    rotation = turns(
        positions.tobytes(), positions.dtype, K, rotary.base, rotary.scaling, rotary.llama3, dtype
    )
    return np.repeat(rotation, n_rows, axis=1) if len(positions) < n_rows else rotation


@kernel
def _steps(team, x, table, any_weight, own_entries, memory_entries, rotation, step):
    """Turn x into the output of the layers, one after another.

    All weights have the dtype of ``any_weight``, which the addresses in the table do not say.
    """
    kv, at, keep_mask = own_entries
    memory_kv, memory_at, memory_mask = memory_entries
    for i in range(len(table)):
        own = Cached(kv[i], at, keep_mask)
        memory = Cached(memory_kv[i], memory_at, memory_mask)
        _layer(team, x, table[i], any_weight, own, memory, rotation, step)


@inlined
def _layer(team, x, table, any_weight, own, memory, rotation, step):
    """One layer. Its sublayers are a loop, so that what they share is compiled once.

    Each is a linear map, attention or the activation, and another linear map, whose result y is
    added to x.
    """
    board, _, _ = team
    h = np.empty_like(x)
    y = np.empty_like(x)
    for i in range(len(table)):
        sublayer = sublayer_at(table[i].ctypes.data)
        gain = array_at(sublayer.gain, x.dtype)[0]
        bias = array_at(sublayer.bias, x.dtype)[0]
        first = _map_at(sublayer.first, any_weight, x)
        last = _map_at(sublayer.last, any_weight, x)
        inner = np.empty((len(x), _widths(first.weight)[1]), x.dtype)
        between = np.empty((len(x), _widths(last.weight)[0]), x.dtype)

        if step.is_pre:
            _normalise(x, gain, bias, step, h)
        map_few_rows(team, h if step.is_pre else x, first, inner)
        if sublayer.kind == OWN:
            _cache_newest(inner, x.shape[1], rotation, own, step)
        if sublayer.kind == FEED_FORWARD:
            for b in range(len(x)):
                activate(step.activation, inner[b], between[b])
        else:
            cached = own if sublayer.kind == OWN else memory
            attend_together(
                board, step.piece_of_attention, inner, cached, step.n_heads, step.scale, between
            )
        map_few_rows(team, between, last, y)
        for b in range(len(x)):
            add_row(y[b], x[b])
        if not step.is_pre:
            _normalise(x, gain, bias, step, x)


@inlined
def _map_at(matrices, any_weight, x):
    """The linear map whose arrays lie at these addresses, with the dtypes of a weight and of x."""
    return LinearMap(
        weight=array_at(matrices.weight, any_weight.dtype),
        panels=array_at(matrices.panels, x.dtype)[0],
        scale=array_at(matrices.scale, x.dtype)[0],
        bias=array_at(matrices.bias, x.dtype)[0],
    )


@inlined
def _widths(weight):
    """(D_in, D_out) of a linear map, whose weight is transposed if it has integers."""
    rows, columns = weight.shape
    return (columns, rows) if weight.itemsize == 1 else (rows, columns)


@inlined
def _normalise(x, gain, bias, step, y):
    statistics = np.empty((2, len(x)), x.dtype)
    if step.is_rms:
        scale_rows(x, gain, step.eps, y, statistics[0])
    else:
        normalise_rows(x, gain, bias, step.eps, y, statistics[0], statistics[1])


@inlined
def _cache_newest(packed, d_model, rotation, own, step):
    """Write the newest keys and values of each row to the cache.

    A row of ``packed`` has its query, key and value side by side. The first two are turned before,
    if positions are rotary; otherwise there are no angles.
    """
    cos, sin = rotation
    n_turned = d_model + own.kv.shape[1] // 2
    for b in range(len(cos)):
        turn_row(packed[b], cos[b], sin[b], n_turned, step.is_halves, packed[b])
    for b in range(len(packed)):
        copy_row(packed[b, d_model:], own.kv[own.at[b, -1]])
