"""The arrays of a stack of layers, as the kernel of a step of decoding reads them: by their
addresses.
"""

from typing import NamedTuple

import numpy as np

from npformer.cpu.backend import ALIGNED, C_CONTIGUOUS, WRITEABLE
from npformer.cpu.few_rows import Matrix, panels_of, record_at
from npformer.cpu.maps import NOTHING, Map, map_of
from npformer.quantized import Quantized
from npformer.reference.math.activations import INPUTS

SUITED = C_CONTIGUOUS | ALIGNED | WRITEABLE
# The kinds of sublayers: attention to the own cache, attention to a memory, and the third.
OWN, MEMORY, FEED_FORWARD = range(3)


class Sublayer(NamedTuple):
    """The arrays of a sublayer: two linear maps, and the normalisation before or after it."""

    kind: int
    first: Map
    last: Map
    gain: np.ndarray
    bias: np.ndarray

    def words(self):
        """Its numbers in memory, as ``sublayer_at`` reads them."""
        arrays = *self.first, *self.last, self.gain, self.bias
        return [self.kind, *(number for x in arrays for number in Matrix.of(x))]


sublayer_at = record_at(Sublayer)


class NotSuited(Exception):
    """A layer has an array that the kernel does not take."""


class Form(NamedTuple):
    """What the arrays of a stack have in common."""

    dtype: np.dtype
    is_quantized: bool


def stack_of(layers, settings, has_memory):
    """The sublayers of each layer, which have packed projections; None if the kernel does not take
    their arrays.
    """
    try:
        first = layers[0]
        weight = first["attention"]["qkv"]["weight"]
        D = weight.shape[0]
        d_ff = first["feed_forward"]["out"]["weight"].shape[0]
        form = Form(weight.dtype, isinstance(weight, Quantized))
        return [_sublayers_of(params, D, d_ff, settings, has_memory, form) for params in layers]
    except (NotSuited, IndexError, KeyError, AttributeError):
        # There is no layer, another dtype, other projections, or no array.
        return None


def _sublayers_of(params, D, d_ff, settings, has_memory, form):
    def sublayer(kind, name, first, n_first, n_last):
        """With a first map to ``n_first`` numbers, and a last one of ``n_last``."""
        maps = params[name]
        norm = params[f"{name}_norm"]
        return Sublayer(
            kind=kind,
            first=_map_of(maps[first], D, n_first, form),
            last=_map_of(maps["out"], n_last, D, form),
            gain=_vector(norm["gain"], D, form),
            bias=_vector(norm.get("bias"), D, form),
        )

    sublayers = [sublayer(OWN, "attention", "qkv", sum(settings.attention.widths(D)), D)]
    if has_memory:
        sublayers.append(sublayer(MEMORY, "memory_attention", "q", D, D))
    n_hidden = INPUTS[settings.activation] * d_ff
    return [*sublayers, sublayer(FEED_FORWARD, "feed_forward", "hidden", n_hidden, d_ff)]


def _map_of(params, n_in, n_out, form):
    weight = params["weight"]
    bias = _vector(params.get("bias"), n_out, form)
    if not form.is_quantized:
        return map_of(form.dtype, _array(weight, (n_in, n_out), form.dtype), bias)
    values = _array(weight.values.T, (n_out, n_in), np.int8)
    return map_of(form.dtype, values, bias, scale=_vector(weight.scale[0], n_out, form))


def _vector(x, n, form):
    """The vector, which is empty if there is none."""
    return NOTHING[form.dtype] if x is None else _array(x, (n,), form.dtype)


def _array(x, shape, dtype):
    if type(x) is not np.ndarray or x.shape != shape or x.dtype != dtype:
        raise NotSuited
    if x.flags.num & SUITED != SUITED:
        raise NotSuited
    return x


def with_panels(stack, max_rows, n_steps):
    """The stack, with copies of its weights in panels if they pay off."""
    if len(stack[0][0].first.scale) > 0:
        return stack
    sublayers = [sublayer for layer in stack for sublayer in layer]
    weights = [each.weight for sublayer in sublayers for each in (sublayer.first, sublayer.last)]
    copies = iter(panels_of(weights, max_rows, n_steps))

    def with_copies(sublayer):
        first = sublayer.first._replace(panels=next(copies))
        last = sublayer.last._replace(panels=next(copies))
        return sublayer._replace(first=first, last=last)

    return [[with_copies(sublayer) for sublayer in layer] for layer in stack]
