"""PyTorch's ``nn.Transformer``, with the embeddings and the output layer that a program adds to it."""

import re

import numpy as np

from npformer.checks import shown
from npformer.models.encoder import Encoder
from npformer.models.language_model import LanguageModel
from npformer.models.transformer import Transformer
from npformer.pretrained.family import Family, Stored
from npformer.pretrained.keys import listed
from npformer.reference import sinusoidal_encoding

MARK = "layers.0.self_attn.in_proj_weight"  # of a stack
ACTIVATIONS = ("relu", "gelu", "gelu_erf", "silu")
POSITIONS = (
    "sinusoidal",
    "sinusoidal_concatenated",
    "learned",
    "none",
)  # which the program adds, or nothing
OUTSIDE = ("source_embedding", "target_embedding", "output")  # which nn.Transformer does not have
NEAR = 0.01  # the rounding of a sine in bfloat16


def tensors_of_state(state):
    """The tensors of a dict of arrays, or of tensors of PyTorch, also of parameters and of bfloat16."""
    arrays = {name: as_array(x) for name, x in state.items()}
    return {name: Stored(x.shape, x.__getitem__) for name, x in arrays.items()}


def as_array(x):
    """An array of NumPy; what PyTorch trains is detached, and what NumPy does not have becomes float32."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        if str(x.dtype) == "torch.bfloat16":
            x = x.float()
    return np.asarray(x)


def stacks_in(tensors):
    """The beginnings of the names of all stacks of layers, such as "model.encoder."."""
    names = [name for name in tensors if name == MARK or name.endswith(f".{MARK}")]
    return {name.removesuffix(MARK) for name in names}


def family_of_state(names, tensors, model):
    """How the tensors of a state dict are named, for the class of a model of ours, or for what the names say."""
    stacks = stacks_in(tensors)
    if not stacks:
        raise ValueError(f"no tensor has a name that ends with {MARK}, expected those of an nn.Transformer")
    if model in (LanguageModel, Encoder):
        return PyTorchEncoder(names, tensors, model)
    if model not in (None, Transformer):
        raise ValueError(f"model={shown(model)}, expected nf.Transformer, nf.LanguageModel, nf.Encoder or None")
    if len(stacks) == 1:
        place = f"the layers of an nn.TransformerEncoder, {listed([f'{place}layers' for place in stacks])}"
        which = "model=nf.LanguageModel if a mask hides the future, or else model=nf.Encoder"
        raise ValueError(f"it has only {place}, and no nn.Transformer with a decoder: give {which}")
    return PyTorch(names, tensors)


def stack(name, attentions, inside=""):
    """The names of the layers of a stack, which is ``inside`` theirs; the normalisations are numbered."""
    ours, theirs = f"{name}.{{}}", f"{inside}layers.{{}}"
    sublayers = [*attentions, "feed_forward"]
    return {
        f"{name}.norm": f"{inside}norm",
        **{f"{ours}.attention.qkv.{leaf}": f"{theirs}.self_attn.in_proj_{leaf}" for leaf in ("weight", "bias")},
        **{f"{ours}.{our}.out": f"{theirs}.{their}.out_proj" for our, their in attentions.items()},
        f"{ours}.feed_forward.hidden": f"{theirs}.linear1",
        f"{ours}.feed_forward.out": f"{theirs}.linear2",
        **{f"{ours}.{sublayer}_norm": f"{theirs}.norm{i}" for i, sublayer in enumerate(sublayers, 1)},
    }


class PyTorch(Family):
    """Names of ``nn.Transformer`` in a state dict; the settings that its shapes do not show are given.

    ``names`` has the module of the program, such as "src_embed", for each of "source_embedding",
    "target_embedding" and "output", and for "source_positions" and "target_positions" if they are
    learned; also that of the "transformer", which is found in ``tensors`` if it is not given.
    """

    model = Transformer
    constants = {"norm_type": "layer_norm", "n_kv_heads": None, "window": None, "rotary": None}
    # Of these a state dict says what its shapes show. The others are given to ``load``, as they are
    # to nn.Transformer.
    own_settings: tuple[str, ...] = (
        *(
            "src_vocab",
            "tgt_vocab",
            "d_model",
            "d_ff",
            "n_layers",
            "bias",
            "tie_embeddings",
            "n_heads",
            "norm",
        ),
        *(
            "activation",
            "eps",
            "pad_id",
            "max_len",
            "positions",
            "scale_embeddings",
            "forced_eos_id",
        ),
    )
    names = {
        **stack("encoder", {"attention": "self_attn"}, "encoder."),
        **stack("decoder", {"attention": "self_attn", "memory_attention": "multihead_attn"}, "decoder."),
        **{
            f"decoder.{{}}.memory_attention.{part}.{leaf}": f"decoder.layers.{{}}.multihead_attn.{part}_{leaf}"
            for part in ("q", "kv")
            for leaf in ("weight", "bias")
        },
    }

    def __init__(self, names, tensors=None):
        names = dict(names)
        inside = names.pop("transformer", "")
        self.prefix = f"{inside}." if inside else ""
        if tensors is not None:
            self._find(names, tensors)
        self.heads = tuple(names.values())
        self.names = self.names | names

    outside: tuple[str, ...] = OUTSIDE
    stacks: tuple[str, ...] = ("encoder.", "decoder.")
    first_layer = "encoder.layers.0."

    def _find(self, names, tensors):
        """Find the nn.Transformer, and check that the others are there."""
        places = stacks_in(tensors)
        wholes = [place.removesuffix("encoder.") for place in places if place.endswith("encoder.")]
        self.prefix = next((place for place in wholes if f"{place}decoder." in places), None)
        if self.prefix is None:
            raise ValueError(
                f"its layers are {listed(sorted(places))}, expected an encoder and a decoder in one module"
            )
        self._check_outside(names, tensors)

    def _check_outside(self, names, tensors):
        """Check that the modules that are named are there."""
        inside = tuple(f"{self.prefix}{stack}" for stack in self.stacks)
        others = listed(sorted(name for name in tensors if not name.startswith(inside)))
        if missing := [name for name in self.outside if name not in names]:
            example = f'names={{"{self.outside[0]}": "src_embed", …}}'
            raise ValueError(
                f"names lacks {', '.join(missing)}: give the modules of the tensors {others}, as {example}"
            )
        unknown = [name for name in names.values() if f"{name}.weight" not in tensors and name not in tensors]
        if unknown:
            raise ValueError(f"names has {listed(unknown)}, expected modules of the tensors {others}")

    def arriving(self, tensors, config):
        """The tensors by the names of the table: the projections of a cross-attention are two."""
        arriving = {}
        for name, x in tensors.items():
            if name in self.heads:  # a parameter without a module
                arriving[f"{name}.weight"] = without_axes_of_one(x)
                continue
            name = name.removeprefix(self.prefix)
            if kind := re.fullmatch(r"(.*\.multihead_attn\.)in_proj_(weight|bias)", name):
                rows, D = x.numbers(), x.shape[0] // 3
                arriving[f"{kind[1]}q_{kind[2]}"] = x.take(rows[:D])
                arriving[f"{kind[1]}kv_{kind[2]}"] = x.take(rows[D:])
            else:
                arriving[name] = x
        return self._with_biases(self._without_buffers(arriving))

    def _without_buffers(self, tensors):
        """Leave out a table of sines, which a program keeps beside its parameters, and remember which it is."""
        ours = (*self.stacks, *(f"{head}." for head in self.heads))
        buffers = {name: x for name, x in tensors.items() if not name.startswith(ours)}
        kinds = {name: kind_of_sines(x) for name, x in buffers.items()}
        if others := sorted(name for name, kind in kinds.items() if kind is None):
            positions = 'learned positions are named, as names={"source_positions": …}'
            raise ValueError(
                f"names says nothing of {listed(others)}: {positions}; leave out masks and other constants"
            )
        self.sines = next(iter(kinds.values()), None)
        return {name: x for name, x in tensors.items() if name not in buffers}

    def _with_biases(self, tensors):
        """Add zeros where a normalisation or the output has no bias, as in nn.Transformer(bias=False)."""
        missing = {}
        for name, x in tensors.items():
            bias = re.sub(r"weight$", "bias", name)
            has_bias = re.fullmatch(r"(.*\.)?norm\d?\.weight", name) or name == self.output_with_bias
            if has_bias and bias not in tensors:
                zeros = np.zeros(x.shape[0], np.float32)
                missing[bias] = Stored(zeros.shape, zeros.__getitem__)
        return tensors | missing

    @property
    def output_with_bias(self):
        """The matrix of the output, which has a bias."""
        return f"{self.names['output']}.weight"

    def settings_of(self, config, tensors, instead=()):
        """Our settings, of the shapes; "norm" and the others that no shape shows are those of PyTorch's defaults."""
        V, D = tensors[f"{self.names['source_embedding']}.weight"].shape
        layers = {(m[1], m[2]) for name in tensors if (m := re.match(r"(encoder|decoder)\.layers\.(\d+)\.", name))}
        return {
            "src_vocab": V,
            "tgt_vocab": tensors[f"{self.names['target_embedding']}.weight"].shape[0],
            "d_model": D,
            **self._common_settings(tensors),
            "n_layers": [sum(name == stack for stack, _ in layers) for name in ("encoder", "decoder")],
            "final_norm": "encoder.norm.weight" in tensors,
        }

    def _common_settings(self, tensors):
        settings = {"norm": "post", "scale_embeddings": False, "positions": self.sines or "none"}
        settings["d_ff"] = tensors[f"{self.first_layer}linear1.weight"].shape[0]
        settings["bias"] = f"{self.first_layer}self_attn.in_proj_bias" in tensors
        for name in ("positions", "source_positions"):
            if name in self.names:
                settings |= {
                    "positions": "learned",
                    "max_len": tensors[f"{self.names[name]}.weight"].shape[0],
                }
        return settings

    def check(self, model):
        """Raise if a model of ours is not an nn.Transformer."""
        if not isinstance(model, Transformer):
            raise ValueError(f"a {type(model).__name__} is no nn.Transformer, expected a Transformer")
        super().check(model)
        if model.activation not in ACTIVATIONS or model.positions not in POSITIONS:
            given = f"activation={model.activation!r}, positions={model.positions!r}"
            expected = f"one of {ACTIVATIONS} and one of {POSITIONS}"
            raise ValueError(f"{given}, expected {expected}, as an nn.Transformer has")

    def leaving(self, tensors, model):
        """The tensors by the names of a state dict."""
        found: dict[str, list] = {}
        for name, x in super().leaving(tensors, model).items():
            found.setdefault(re.sub(r"(\.multihead_attn\.)(q|kv)_", r"\1in_proj_", name), []).append(x)
        return {name: np.concatenate(parts) for name, parts in found.items()}


class PyTorchEncoder(PyTorch):
    """Names of an nn.TransformerEncoder in a state dict, as a language model or as an encoder of ours."""

    names = stack("layers", {"attention": "self_attn"})
    outside = ("embedding",)
    stacks = "layers.", "norm."
    first_layer = "layers.0."

    def __init__(self, names, tensors, model):
        self.model = model
        super().__init__(names, tensors)

    def _find(self, names, tensors):
        """Find the layers, and check that the embedding and the output are there."""
        places = stacks_in(tensors)
        if len(places) != 1:
            raise ValueError(f"it has several stacks of layers, {listed(sorted(places))}, expected one")
        [self.prefix] = places
        self._check_outside(names, tensors)

    @property
    def output_with_bias(self):
        """The matrix of the output, which has a bias in an Encoder alone."""
        return f"{self.names.get('output')}.weight" if self.model is Encoder else None

    def settings_of(self, config, tensors, instead=()):
        """Our settings, of the shapes and of PyTorch's defaults."""
        V, D = tensors[f"{self.names['embedding']}.weight"].shape
        n_layers = len({name.split(".")[1] for name in tensors if name.startswith("layers.")})
        settings = self._common_settings(tensors) | {"vocab": V, "d_model": D, "n_layers": n_layers}
        settings |= {"activation": "relu", "final_norm": "norm.weight" in tensors}
        output = self.names.get("output")
        if self.model is LanguageModel:
            if f"{output}.bias" in tensors:
                advice = "load it as an Encoder, or leave the bias out if it is 0"
                raise ValueError(f"{output}.bias: the output of a LanguageModel has no bias; {advice}")
            return settings | {"tie_embeddings": output is None}
        if output is None:
            return settings | {"task": None}
        n_outputs = tensors[f"{output}.weight"].shape[0]
        return settings | {"task": "classes", "n_outputs": n_outputs, "pooling": "none"}


def kind_of_sines(stored):
    """The name of the table of sines that a tensor holds, or None."""
    shape = [size for size in stored.shape if size != 1]
    if len(shape) != 2 or shape[1] % 2:
        return None
    table = np.asarray(stored.rows(slice(None)), np.float32).reshape(shape)
    for kind, order in {
        "sinusoidal": "interleaved",
        "sinusoidal_concatenated": "concatenated",
    }.items():
        if np.abs(table - sinusoidal_encoding(*shape, order)).max(initial=0) < NEAR:
            return kind
    return None


def without_axes_of_one(stored):
    """A tensor (1, T, D) or (T, 1, D) as one of shape (T, D)."""
    shape = tuple(size for size in stored.shape if size != 1)
    if shape == stored.shape:
        return stored
    table = np.asarray(stored.rows(slice(None))).reshape(shape)
    return Stored(shape, table.__getitem__)
