"""PyTorch's ``nn.Transformer``, with the embeddings and the output that a program adds to it."""

import re

import numpy as np

from npformer.checks import shown
from npformer.errors import UserError
from npformer.models.encoder import Encoder
from npformer.models.language_model import LanguageModel
from npformer.models.transformer import Transformer
from npformer.pretrained.families.naming import Naming, check_settings
from npformer.pretrained.files import Stored
from npformer.pretrained.rules import listed, parse_table
from npformer.reference import sinusoidal_encoding

MARK = "layers.0.self_attn.in_proj_weight"  # of a stack
TORCH_ACTIVATIONS = ("relu", "gelu", "gelu_erf", "silu")
SINES = {"sinusoidal": "interleaved", "sinusoidal_concatenated": "concatenated"}
TORCH_POSITIONS = (*SINES, "learned", "none")  # which the program adds, or nothing
CONSTANTS = {"norm_type": "layer_norm", "n_kv_heads": None, "window": None, "rotary": None}
NEAR = 0.01  # the rounding of a sine in bfloat16
# Settings of ours. Of these a state dict says what its shapes show. The others are given to
# ``load``, as they are to nn.Transformer.
EXPRESSED = {
    "src_vocab",
    "tgt_vocab",
    "d_model",
    "d_ff",
    "n_layers",
    "bias",
    "tie_embeddings",
    "n_heads",
    "norm",
    "activation",
    "eps",
    "pad_id",
    "max_len",
    "positions",
    "scale_embeddings",
    "forced_eos_id",
}


def tensors_of_state(state):
    """The tensors of a dict of arrays or of tensors of PyTorch, also of parameters and bfloat16."""
    return {name: Stored.of(as_array(x)) for name, x in state.items()}


def as_array(x):
    """An array of NumPy; what PyTorch trains is detached, and bfloat16 becomes float32."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        if str(x.dtype) == "torch.bfloat16":
            x = x.float()
    return np.asarray(x)


def stacks_in(tensors):
    """The beginnings of the names of all stacks of layers, such as "model.encoder."."""
    names = [name for name in tensors if name == MARK or name.endswith(f".{MARK}")]
    return sorted(name.removesuffix(MARK) for name in names)


def naming_to_save(names):
    """How a state dict is to name its tensors: ``names`` are those that a user gives."""
    modules = dict(names)
    transformer = modules.pop("transformer", None)
    return PyTorch(modules, f"{transformer}." if transformer else "")


def naming_of_state(modules, tensors, model):
    """How a state dict names its tensors, for a class of ours or for what the names say."""
    stacks = stacks_in(tensors)
    if not stacks:
        expected = f"a name that ends with {MARK}, expected those of an nn.Transformer"
        raise UserError(f"no tensor has {expected}")
    if model in (LanguageModel, Encoder):
        if len(stacks) > 1:
            raise UserError(f"it has several stacks of layers, {listed(stacks)}, expected one")
        return PyTorchEncoder(modules, stacks[0], model)
    if model not in (None, Transformer):
        expected = "nf.Transformer, nf.LanguageModel, nf.Encoder or None"
        raise UserError(f"model={shown(model)}, expected {expected}")
    if len(stacks) == 1:
        raise UserError(
            f"it has only the layers of an nn.TransformerEncoder, {stacks[0]:.80}layers, "
            "and no nn.Transformer with a decoder: give "
            "model=nf.LanguageModel if a mask hides the future, or else model=nf.Encoder"
        )
    return PyTorch(modules, prefix_of_transformer(stacks))


def prefix_of_transformer(stacks):
    """How the names of the nn.Transformer begin that has an encoder and a decoder."""
    for stack in stacks:
        prefix = stack.removesuffix("encoder.")
        if stack.endswith("encoder.") and f"{prefix}decoder." in stacks:
            return prefix
    raise UserError(
        f"its layers are {listed(stacks)}, expected an encoder and a decoder in one module"
    )


class PyTorch(Naming):
    """Names of ``nn.Transformer`` in a state dict; what its shapes do not show is given.

    ``modules`` has the module of the program, such as "src_embed", for each of "source_embedding",
    "target_embedding" and "output", and for "source_positions" and "target_positions" if they are
    learned; ``prefix`` is how the names of the tensors of the nn.Transformer begin.
    """

    model = Transformer
    names = parse_table("""
        encoder.norm                           encoder.norm
        encoder.{}.attention.qkv.weight        encoder.layers.{}.self_attn.in_proj_weight
        encoder.{}.attention.qkv.bias          encoder.layers.{}.self_attn.in_proj_bias
        encoder.{}.feed_forward.hidden         encoder.layers.{}.linear1
        encoder.{}.feed_forward.out            encoder.layers.{}.linear2
        encoder.{}.attention.out               encoder.layers.{}.self_attn.out_proj
        encoder.{}.attention_norm              encoder.layers.{}.norm1
        encoder.{}.feed_forward_norm           encoder.layers.{}.norm2
        decoder.norm                           decoder.norm
        decoder.{}.attention.qkv.weight        decoder.layers.{}.self_attn.in_proj_weight
        decoder.{}.attention.qkv.bias          decoder.layers.{}.self_attn.in_proj_bias
        decoder.{}.feed_forward.hidden         decoder.layers.{}.linear1
        decoder.{}.feed_forward.out            decoder.layers.{}.linear2
        decoder.{}.attention.out               decoder.layers.{}.self_attn.out_proj
        decoder.{}.memory_attention.out        decoder.layers.{}.multihead_attn.out_proj
        decoder.{}.attention_norm              decoder.layers.{}.norm1
        decoder.{}.memory_attention_norm       decoder.layers.{}.norm2
        decoder.{}.feed_forward_norm           decoder.layers.{}.norm3
        decoder.{}.memory_attention.q.weight   decoder.layers.{}.multihead_attn.q_weight
        decoder.{}.memory_attention.q.bias     decoder.layers.{}.multihead_attn.q_bias
        decoder.{}.memory_attention.kv.weight  decoder.layers.{}.multihead_attn.kv_weight
        decoder.{}.memory_attention.kv.bias    decoder.layers.{}.multihead_attn.kv_bias
        """)
    outside: tuple[str, ...] = ("source_embedding", "target_embedding", "output")
    stacks: tuple[str, ...] = ("encoder.", "decoder.")
    first_layer = "encoder.layers.0."

    def __init__(self, modules, prefix):
        self.prefix = prefix
        self.heads = tuple(modules.values())
        self.names = self.names | modules
        # The matrix of the output, which has a bias in all models but a LanguageModel.
        self.output_with_bias = None
        if self.model is not LanguageModel:
            self.output_with_bias = f"{modules.get('output')}.weight"
        # How the names of the tensors of the layers begin.
        self.inside = tuple(f"{prefix}{stack}" for stack in self.stacks)

    def from_state(self, tensors):
        """Our settings, as far as a state dict shows them, and the tensors by the names of the
        table.
        """
        self._check_outside(tensors)
        sines = self._sines_in(tensors)
        renamed = self._renamed({name: x for name, x in tensors.items() if name not in sines})
        settings = self._settings_of(renamed)
        if sines and settings["positions"] == "none":
            settings["positions"] = next(iter(sines.values()))
        return settings, renamed

    def _check_outside(self, tensors):
        """Check that the modules that are named are there."""
        others = listed(sorted(name for name in tensors if not name.startswith(self.inside)))
        missing = [name for name in self.outside if name not in self.names]
        if missing:
            raise UserError(
                f"names lacks {', '.join(missing)}: give the modules of the tensors {others}, as "
                f'names={{"{self.outside[0]}": "src_embed", …}}'
            )
        places = {*tensors, *(name.removesuffix(".weight") for name in tensors)}
        unknown = [name for name in self.heads if name not in places]
        if unknown:
            raise UserError(
                f"names has {listed(unknown)}, expected modules of the tensors {others}"
            )

    def _renamed(self, tensors):
        """The tensors by the names of the table: the projections of a cross-attention are two."""
        renamed = {}
        for name, x in tensors.items():
            if name in self.heads:  # a parameter without a module
                renamed[f"{name}.weight"] = without_axes_of_one(x)
                continue
            if name.startswith(self.inside):
                name = name.removeprefix(self.prefix)
            projection = re.fullmatch(r"(.*\.multihead_attn\.)in_proj_(weight|bias)", name)
            if projection:
                module, leaf = projection.groups()
                rows, D = x.numbers(), x.shape[0] // 3
                renamed[f"{module}q_{leaf}"] = x.take(rows[:D])
                renamed[f"{module}kv_{leaf}"] = x.take(rows[D:])
            else:
                renamed[name] = x
        return renamed | self._biases_missing_in(renamed)

    def _sines_in(self, tensors):
        """The tables of sines that a program keeps beside its parameters: their kinds by name."""
        modules = tuple(f"{head}." for head in self.heads)
        kinds = {}
        for name, x in tensors.items():
            if name not in self.heads and not name.startswith((*self.inside, *modules)):
                kinds[name] = kind_of_sines(x)
        others = sorted(name for name, kind in kinds.items() if kind is None)
        if others:
            raise UserError(
                f"names says nothing of {listed(others)}: "
                'learned positions are named, as names={"source_positions": …}; '
                "leave out masks and other constants"
            )
        return kinds

    def _biases_missing_in(self, tensors):
        """Zeros for the biases that nn.Transformer(bias=False) does not have, and ours do."""
        biases = {}
        for name, x in tensors.items():
            bias = re.sub(r"weight$", "bias", name)
            is_norm = re.fullmatch(r"(.*\.)?norm\d?\.weight", name)
            if (is_norm or name == self.output_with_bias) and bias not in tensors:
                biases[bias] = Stored.of(np.zeros(x.shape[0], np.float32))
        return biases

    def _settings_of(self, tensors):
        """Our settings, of the shapes; those that no shape shows are PyTorch's defaults."""
        V, D = tensors[f"{self.names['source_embedding']}.weight"].shape
        return self._settings_of_layers(tensors) | {
            "src_vocab": V,
            "tgt_vocab": tensors[f"{self.names['target_embedding']}.weight"].shape[0],
            "d_model": D,
            "n_layers": [n_layers(tensors, "encoder."), n_layers(tensors, "decoder.")],
            "final_norm": "encoder.norm.weight" in tensors,
        }

    def _settings_of_layers(self, tensors):
        """The settings that models with one stack and with two have."""
        settings = {
            "norm": "post",
            "scale_embeddings": False,
            "positions": "none",
            "d_ff": tensors[f"{self.first_layer}linear1.weight"].shape[0],
            "bias": f"{self.first_layer}self_attn.in_proj_bias" in tensors,
        }
        for name in ("positions", "source_positions"):
            if name in self.names:
                settings["positions"] = "learned"
                settings["max_len"] = tensors[f"{self.names[name]}.weight"].shape[0]
        return settings

    def check(self, model):
        """Raise if a model of ours is not an nn.Transformer."""
        if not isinstance(model, Transformer):
            raise UserError(
                f"a {type(model).__name__} is no nn.Transformer, expected a Transformer"
            )
        check_settings(model, CONSTANTS, EXPRESSED)
        if model.activation not in TORCH_ACTIVATIONS or model.positions not in TORCH_POSITIONS:
            raise UserError(
                f"activation={model.activation!r}, positions={model.positions!r}, "
                f"expected one of {TORCH_ACTIVATIONS} and one of {TORCH_POSITIONS}, "
                "as an nn.Transformer has"
            )

    def for_file(self, tensors, model):
        """The tensors by the names of a state dict."""
        renamed: dict[str, list] = {}
        for name, x in super().for_file(tensors, model).items():
            name = re.sub(r"(\.multihead_attn\.)(q|kv)_", r"\1in_proj_", name)
            renamed.setdefault(name, []).append(x)
        return {name: np.concatenate(parts) for name, parts in renamed.items()}


class PyTorchEncoder(PyTorch):
    """Names of an nn.TransformerEncoder, as a language model or as an encoder of ours."""

    names = parse_table("""
        layers.norm                     norm
        layers.{}.attention.qkv.weight  layers.{}.self_attn.in_proj_weight
        layers.{}.attention.qkv.bias    layers.{}.self_attn.in_proj_bias
        layers.{}.feed_forward.hidden   layers.{}.linear1
        layers.{}.feed_forward.out      layers.{}.linear2
        layers.{}.attention.out         layers.{}.self_attn.out_proj
        layers.{}.attention_norm        layers.{}.norm1
        layers.{}.feed_forward_norm     layers.{}.norm2
        """)
    outside = ("embedding",)
    stacks = "layers.", "norm."
    first_layer = "layers.0."

    def __init__(self, modules, prefix, model):
        self.model = model
        super().__init__(modules, prefix)

    def _settings_of(self, tensors):
        """Our settings, of the shapes and of PyTorch's defaults."""
        V, D = tensors[f"{self.names['embedding']}.weight"].shape
        settings = self._settings_of_layers(tensors) | {
            "vocab": V,
            "d_model": D,
            "n_layers": n_layers(tensors, ""),
            "activation": "relu",
            "final_norm": "norm.weight" in tensors,
        }
        output = self.names.get("output")
        if self.model is LanguageModel:
            if f"{output}.bias" in tensors:
                raise UserError(
                    f"{output}.bias: the output of a LanguageModel has no bias; "
                    "load it as an Encoder, or leave the bias out if it is 0"
                )
            return settings | {"tie_embeddings": output is None}
        if output is None:
            return settings | {"task": None}
        n_outputs = tensors[f"{output}.weight"].shape[0]
        return settings | {"task": "classes", "n_outputs": n_outputs, "pooling": "none"}


def n_layers(tensors, prefix):
    """The number of layers of a stack, with whose prefix the names begin."""
    layers = (re.match(rf"{prefix}layers\.(\d+)\.", name) for name in tensors)
    return len({layer[1] for layer in layers if layer})


def kind_of_sines(stored):
    """The name of the table of sines that a tensor holds, or None."""
    shape = [n for n in stored.shape if n != 1]
    if len(shape) != 2 or shape[1] % 2:
        return None  # and is not read: it may hold integers
    table = np.asarray(without_axes_of_one(stored).rows(slice(None)), np.float32)
    for kind, order in SINES.items():
        if np.abs(table - sinusoidal_encoding(*table.shape, order)).max(initial=0) < NEAR:
            return kind
    return None


def without_axes_of_one(stored):
    """A tensor without its axes of length 1: (1, T, D) or (T, 1, D) as (T, D)."""
    if 1 not in stored.shape:
        return stored
    return Stored.of(np.squeeze(np.asarray(stored.rows(slice(None)))))
