"""Layers as closures: ``y, backward = layer(ops, params, x, …)``; ``dx, grads = backward(dy)``.

``ops`` is the backend, as ``npformer.get_backend`` returns it; ``npformer.reference``, the module,
has the operations that a layer calls, too. ``params`` is a dict of arrays, and ``grads`` has the
same keys. The forward pass follows the figure of the paper from the input to the output, and the
backward pass has the corresponding lines in reverse order. A layer has no state: the closure
``backward`` holds what the backward pass needs.

The building blocks ``linear``, ``layer_norm``, ``rms_norm``, ``attention``, ``self_attention``,
``cross_attention`` and ``feed_forward`` can be used alone. ``encoder_layer`` and ``decoder_layer``
put ``norm_before`` before each of their sublayers, and ``add_and_norm`` after it.
``AttentionSettings`` and ``LayerSettings`` are what a layer is apart from its parameters and
inputs: a new option is a field of one of them. ``Stack`` keeps the backward functions of several
layers. ``KeyValueCache`` holds the keys and values of earlier positions for decoding.

A layer of this module checks the types of its settings, parameters and key first, and refuses
parameters that it does not know. Models, and layers that call each other, import the functions of
its files, which leave this out.
"""

from npformer.layers import (
    convolution,
    multi_head,
    normalisation,
    position_wise,
    projection,
    recurrence,
    sublayer,
    transformer,
)
from npformer.layers.cache import KeyValueCache
from npformer.layers.stack import Stack
from npformer.layers.with_checks import checked
from npformer.operations.settings import AttentionSettings, LayerSettings, Llama3Scaling, Rotary

__all__ = [
    "AttentionSettings",
    "KeyValueCache",
    "LayerSettings",
    "Llama3Scaling",
    "Rotary",
    "Stack",
    "add_and_norm",
    "attention",
    "cross_attention",
    "decoder_layer",
    "encoder_layer",
    "feed_forward",
    "layer_norm",
    "linear",
    "masked_conv1d",
    "norm_before",
    "project",
    "read_both_ways",
    "read_steps",
    "residual_conv_block",
    "rms_norm",
    "self_attention",
]

add_and_norm = checked(sublayer.add_and_norm, reads_a_part=True)
attention = checked(multi_head.attention)
cross_attention = checked(multi_head.cross_attention)
decoder_layer = checked(transformer.decoder_layer)
encoder_layer = checked(transformer.encoder_layer)
feed_forward = checked(position_wise.feed_forward)
layer_norm = checked(normalisation.layer_norm)
linear = checked(projection.linear)
masked_conv1d = checked(convolution.masked_conv1d)
norm_before = checked(sublayer.norm_before)
project = checked(projection.project, reads_a_part=True)
read_both_ways = checked(recurrence.read_both_ways)
read_steps = checked(recurrence.read_steps)
residual_conv_block = checked(convolution.residual_conv_block, reads_a_part=True)
rms_norm = checked(normalisation.rms_norm)
self_attention = checked(multi_head.self_attention)
