"""The records of settings, under the name of the module that once had them."""

from npformer.operations.settings import (
    AttentionOptions as AttentionOptions,
    AttentionSettings as AttentionSettings,
    LayerSettings as LayerSettings,
    Rotary as Rotary,
)
