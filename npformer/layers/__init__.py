"""Layers as closures: ``y, backward = layer(ops, params, x, …)``, then ``dx, grads = backward(dy)``.

``ops`` is the backend, as ``npformer.get_backend`` returns it; ``npformer.reference``, the module, has the operations
that a layer calls, too. ``params`` is a dict of arrays, and ``grads`` has the same keys. The forward pass follows the
figure of the paper from the input to the output, and the backward pass has the corresponding lines in reverse order. A
layer has no state: the closure ``backward`` holds what the backward pass needs.

The building blocks ``linear``, ``layer_norm``, ``rms_norm``, ``attention``, ``self_attention``, ``cross_attention`` and
``feed_forward`` can be used alone. ``encoder_layer`` and ``decoder_layer`` put ``norm_before`` before each of their
sublayers, and ``add_and_norm`` after it.
``AttentionSettings`` and ``LayerSettings`` are what a layer is apart from its parameters and inputs: a new option is a
field of one of them. ``Stack`` keeps the backward functions of several layers. ``KeyValueCache`` holds the keys and
values of earlier positions for decoding.

The layers of this module check their settings, parameters and keys; those of its files are called by models and by each
other, and do not.
"""

from npformer.layers.cache import KeyValueCache
from npformer.layers.convolution import masked_conv1d, residual_conv_block
from npformer.layers.door import at_the_door
from npformer.layers.multi_head import attention, cross_attention, self_attention
from npformer.layers.normalisation import layer_norm, rms_norm
from npformer.layers.position_wise import feed_forward
from npformer.layers.projection import linear, project
from npformer.layers.recurrence import read_both_ways, read_steps
from npformer.layers.stack import Stack
from npformer.layers.sublayer import add_and_norm, norm_before
from npformer.layers.transformer import decoder_layer, encoder_layer
from npformer.reference.settings import AttentionSettings, LayerSettings, Rotary

__all__ = [
    "AttentionSettings",
    "KeyValueCache",
    "LayerSettings",
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

for _name in __all__:
    if _name[0].islower():
        globals()[_name] = at_the_door(globals()[_name])
