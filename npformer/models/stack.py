"""What the models of Transformer layers have in common: positions, and a stack of layers."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from npformer import tree
from npformer.arrays import Array, beside
from npformer.backends import AnyBackend
from npformer.layers.normalisation import normalise
from npformer.layers.stack import Stack
from npformer.layers.transformer import encoder_layer
from npformer.models.few_words import encoded_in_a_step, step_of_few_words
from npformer.models.model import Model, named
from npformer.models.transformer_settings import TransformerSettings
from npformer.models.watching import watched
from npformer.operations.options import settings_from
from npformer.operations.settings import Activation, Rotary
from npformer.quantized import dequantized
from npformer.reference import sinusoidal_encoding
from npformer.reference.math.random import keys_from
from npformer.runtime.forks import cached_property


class TransformerModel(TransformerSettings, Model):
    """A model of Transformer layers: the positions of its words, and its first stack."""

    stacks: ClassVar[tuple[str, ...]]  # the names of the parameters of each stack

    def _check_settings(self):
        if isinstance(self.rotary, dict):  # as it was read from a file
            self._set(rotary=settings_from(Rotary, self.rotary, "rotary"))
        super()._check_settings()
        self._check_layers()

    # -- positions

    @cached_property
    def position_table(self):
        """The sinusoidal positional encoding (max_len, D), if it is what the model adds."""
        if not self.positions.startswith("sinusoidal"):
            return None
        layout = "interleaved" if self.positions == "sinusoidal" else "concatenated"
        return sinusoidal_encoding(self.max_len, self.d_model, layout, dtype=self.dtype)

    @cached_property
    def _position_tables(self):
        """``position_table`` in each kind of arrays that parameters had: NumPy's, or a GPU's."""
        return {}

    def positions_of(self, params, side, part):
        """What is added to the embeddings of a side at positions, a slice or an array; or None."""
        if self.has_learned_positions:
            return params[named(side, "positions")][part]
        if self.position_table is None:
            return None
        neighbour = tree.first_leaf(params)
        kind = type(neighbour)
        if kind not in self._position_tables:
            self._position_tables[kind] = beside(self.position_table, neighbour)
        return self._position_tables[kind][part]

    # -- the layers of a stack

    @cached_property
    def _names_of_layers(self):
        """The names of the parameters that each layer of a stack uses, from the first layer on.

        >>> from npformer import LanguageModel
        >>> model = LanguageModel(11, d_model=8, n_heads=2, n_layers=6, share_layers=2)
        >>> model._names_of_layers
        {'layers': ['0', '0', '0', '1', '1', '1']}
        """
        names = {}
        for name, n_layers in zip(self.stacks, self.depths, strict=True):
            n_sets = self.share_layers or n_layers
            names[name] = [str(i * n_sets // n_layers) for i in range(n_layers)]  # neighbours share
        return names

    def layers_of(self, params: dict, name: str) -> list[dict]:
        """The parameters of each layer of a stack: "encoder", "decoder" or "layers"."""
        return [params[name][layer] for layer in self._names_of_layers[name]]

    def _count_uses(self):
        paths = [f"{name}.{layer}" for name in self.stacks for layer in self._names_of_layers[name]]
        return super()._count_uses() | Counter(paths)

    def _new_stack(self, new, name):
        """The parameters of a stack; the layers of a "decoder" have attention to a memory, too."""
        new_layer = new.decoder_layer if name == "decoder" else new.encoder_layer
        names = dict.fromkeys(self._names_of_layers[name])
        params = {layer: new_layer(self.layer_shapes) for layer in names}
        if self.has_final_norm:
            params["norm"] = new.norm(self.d_model, self.norm_type)
        return params

    # -- the first stack, forward and backward

    def _embed_inputs(self, ops, params, inputs, dropout_key):
        """What the first stack reads, (B, T, D), its mask, and the backward pass.

        The mask (B, 1, 1, T) is what its layers attend to, None if this is everything. The backward
        pass is (dx, gradients) -> None.
        """
        x, backward = self.embed(ops, params, self.sides[0], inputs, dropout_key)
        return x, self.keep_mask(inputs), backward

    def _encode(self, ops, params, inputs, dropout_key=None, with_grad=False):
        """The output (B, T, D) of the first stack, and its backward pass, (dy, gradients) -> None.

        Its layers have self-attention. The inputs are checked.
        """
        name = self.stacks[0]
        names = self._names_of_layers[name]
        layers = self.layers_of(params, name)
        settings = self._settings_with(dropout_key)
        embedding_key, *keys = keys_from(dropout_key, 1 + len(layers))

        x, keep_mask, embed_backward = self._embed_inputs(ops, params, inputs, embedding_key)
        # The model has checked its settings, the ids and the key: its layers need not.
        ops = ops.unchecked
        stack = Stack(with_grad)
        # Only weights of 8 bits become floats; floats, as in a training, pass unchanged.
        for layer, key in zip(map(dequantized, layers), keys, strict=True):
            x, backward = encoder_layer(ops, layer, x, settings, keep_mask, dropout_key=key)
            stack.keep(backward)
        y, norm_backward = self.stack_output(ops, params, name, x)

        def encode_backward(dy, gradients):
            dx = norm_backward(dy, gradients)
            for i, backward in stack.backwards():
                dx, grads = backward(dx)
                gradients.give(f"{name}.{names[i]}", grads)
            embed_backward(dx, gradients)

        return y, encode_backward

    def _encode_inputs(self, ops, params, inputs):
        """The output (B, T, D) of the first stack, without dropout and without a backward pass."""
        name = self.stacks[0]
        layers = self.layers_of(params, name)
        step = step_of_few_words(ops.unchecked, layers, self.layer_settings, inputs.shape)
        if step is None:
            y, _ = self._encode(ops, params, inputs)
        else:
            x, keep_mask, _ = self._embed_inputs(ops, params, inputs, None)
            x = encoded_in_a_step(step, x, keep_mask)
            y, _ = self.stack_output(ops.unchecked, params, name, x)
        return y

    def stack_output(self, ops, params, name, x):
        """The output of a stack whose last layer gives x, normalised if the stack ends so.

        The backward pass is (dy, gradients) -> dx.
        """
        if not self.has_final_norm:
            return x, lambda dy, gradients: dy
        y, norm_backward = normalise(ops, params[name]["norm"], x, self.layer_settings)

        def backward(dy, gradients):
            dx, grads = norm_backward(dy)
            gradients.give(name, {"norm": grads})
            return dx

        return y, backward


@dataclass(frozen=True, repr=False)
class OneVocabulary:
    """The first field of a model: those of the last base class come first."""

    vocab: int | None


@dataclass(frozen=True, repr=False)
class OneStack(TransformerModel, OneVocabulary):
    """What a decoder-only and an encoder-only model have in common, which read one input."""

    n_layers: int = 6  # a Transformer may have two numbers
    activation: Activation = "gelu"
    max_len: int = 1024

    _inputs: ClassVar[Callable]  # (params, …) -> what ``_encode`` takes
    stacks = ("layers",)

    @cached_property
    def _vocabularies(self):
        return [] if self.vocab is None else [self.vocab]

    @cached_property
    def depths(self):
        """The number of layers, of one stack."""
        return (self.n_layers,)

    def attention_weights(
        self, params: dict, *inputs: Array, backend: AnyBackend = "auto", **more: Array
    ) -> dict:
        """Return the attention weights of each layer, {"layers": [(B, H, T, T), …]}, NumPy arrays.

        The inputs are those of ``loss_and_grad``, without targets.
        """
        weights: list[Array] = []
        ops = watched(self._backend(backend, params), weights)
        self._encode(ops, params, self._inputs(params, *inputs, **more))
        return {"layers": weights}
