"""The arrays of a stack of layers, as the kernel of a step of decoding reads them: by their
addresses.

A kernel cannot walk through dicts of parameters. So each sublayer becomes a record of arrays, and
all records become one table of addresses and sizes (``kernels/stack_step.py``). A stack with any
array that the kernel does not take is left to the layers.
"""

from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.cpu.backend import ALIGNED, C_CONTIGUOUS, WRITEABLE
from npformer.cpu.few_rows import Matrix, panels_of, record_at
from npformer.cpu.linear_maps import NOTHING, LinearMap, linear_map_of
from npformer.quantized import Quantized
from npformer.reference.math.activations import INPUTS

SUITED = C_CONTIGUOUS | ALIGNED | WRITEABLE
# The kinds of sublayers: attention to the own cache, attention to a memory, and the third.
OWN, MEMORY, FEED_FORWARD = range(3)
# The weights that tell the form of a layer, by their paths in it.
PROJECTION = "attention.qkv.weight"
OUTPUT = "feed_forward.out.weight"


class Sublayer(NamedTuple):
    """The arrays of a sublayer: two linear maps, and the normalisation before or after it."""

    kind: int
    first: LinearMap
    last: LinearMap
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
    """What the layers of a stack have in common."""

    dtype: np.dtype
    is_quantized: bool
    d_model: int
    d_ff: int


def stack_of(layers, settings, has_memory):
    """The sublayers of each layer, which have packed projections; None if the kernel does not take
    their arrays.
    """
    stack = [dict(tree.leaves(params)) for params in layers]
    try:
        form = _form_of(stack)
        return [_sublayers_of(arrays, settings, has_memory, form) for arrays in stack]
    except NotSuited:
        return None


def _form_of(stack):
    """The form of the first layer, which all others have to have."""
    if not stack or not {PROJECTION, OUTPUT} <= stack[0].keys():
        raise NotSuited
    projection = stack[0][PROJECTION]
    output = stack[0][OUTPUT]
    if projection.dtype not in NOTHING:
        raise NotSuited
    is_quantized = isinstance(projection, Quantized)
    return Form(projection.dtype, is_quantized, projection.shape[0], output.shape[0])


def _sublayers_of(arrays, settings, has_memory, form):
    """The sublayers of a layer, from its arrays by their paths."""
    D = form.d_model

    def sublayer(kind, name, first, n_first, n_last):
        """With a first map to ``n_first`` numbers, and a last one of ``n_last``."""
        norm_bias = NOTHING[form.dtype]
        if settings.norm_type == "layer_norm":
            norm_bias = _addressable(arrays.get(f"{name}_norm.bias"), (D,), form.dtype)
        return Sublayer(
            kind=kind,
            first=_linear_map_at(arrays, f"{name}.{first}", (D, n_first), form),
            last=_linear_map_at(arrays, f"{name}.out", (n_last, D), form),
            gain=_addressable(arrays.get(f"{name}_norm.gain"), (D,), form.dtype),
            bias=norm_bias,
        )

    sublayers = [sublayer(OWN, "attention", "qkv", sum(settings.attention.widths(D)), D)]
    if has_memory:
        sublayers.append(sublayer(MEMORY, "memory_attention", "q", D, D))
    n_hidden = INPUTS[settings.activation] * form.d_ff
    return [*sublayers, sublayer(FEED_FORWARD, "feed_forward", "hidden", n_hidden, form.d_ff)]


def _linear_map_at(arrays, path, shape, form):
    """The linear map whose parameters have this path, with a weight of this shape."""
    weight = arrays.get(f"{path}.weight")
    n_in, n_out = shape
    bias = NOTHING[form.dtype]
    if f"{path}.bias" in arrays:
        bias = _addressable(arrays[f"{path}.bias"], (n_out,), form.dtype)
    if not form.is_quantized:
        return linear_map_of(form.dtype, _addressable(weight, shape, form.dtype), bias)
    if not isinstance(weight, Quantized):
        raise NotSuited
    values = _addressable(weight.values.T, (n_out, n_in), np.int8)
    scale = _addressable(weight.scale[0], (n_out,), form.dtype)
    return linear_map_of(form.dtype, values, bias, scale=scale)


def _addressable(x, shape, dtype):
    """An array whose address the kernel may get; ``NotSuited`` if it is another one, or None."""
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
