"""PyTorch's ``nn.Transformer``, with the embeddings and the output layer that a program adds to it."""

import re

import numpy as np

from npformer.models.transformer import Transformer
from npformer.pretrained.family import Family, Stored
from npformer.pretrained.keys import listed

MARK = "encoder.layers.0.self_attn.in_proj_weight"
ACTIVATIONS = ("relu", "gelu", "gelu_erf", "silu")
POSITIONS = ("sinusoidal", "sinusoidal_concatenated", "learned", "none")  # which the program adds, or nothing
OUTSIDE = ("source_embedding", "target_embedding", "output")  # which nn.Transformer does not have


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


def stack(name, attentions):
    """The names of the layers of a stack; the normalisations are numbered."""
    ours, theirs = f"{name}.{{}}", f"{name}.layers.{{}}"
    sublayers = [*attentions, "feed_forward"]
    return {
        f"{name}.norm": f"{name}.norm",
        **{f"{ours}.attention.qkv.{leaf}": f"{theirs}.self_attn.in_proj_{leaf}" for leaf in ("weight", "bias")},
        **{f"{ours}.{our}.out": f"{theirs}.{their}.out_proj" for our, their in attentions.items()},
        f"{ours}.feed_forward.hidden": f"{theirs}.linear1",
        f"{ours}.feed_forward.out": f"{theirs}.linear2",
        **{f"{ours}.{sublayer}_norm": f"{theirs}.norm{i}" for i, sublayer in enumerate(sublayers, 1)},
    }


class PyTorch(Family):
    """Names of ``nn.Transformer`` in a state dict; the settings that its shapes do not show are given.

    ``names`` has the module of the program, such as "src_embed", for each of "source_embedding", "target_embedding" and
    "output"; also that of the "transformer", which is found in ``tensors`` if it is not given.
    """

    model = Transformer
    constants = {"norm_type": "layer_norm", "n_kv_heads": None, "window": None, "rotary": None}
    # Of these a state dict says what its shapes show. The others are given to ``load``, as they are to nn.Transformer.
    own_settings: tuple[str, ...] = (
        *("src_vocab", "tgt_vocab", "d_model", "d_ff", "n_layers", "bias", "tie_embeddings", "n_heads", "norm"),
        *("activation", "eps", "pad_id", "max_len", "positions", "scale_embeddings", "forced_eos_id"),
    )
    names = {
        **stack("encoder", {"attention": "self_attn"}),
        **stack("decoder", {"attention": "self_attn", "memory_attention": "multihead_attn"}),
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

    def _find(self, names, tensors):
        """Find the nn.Transformer, and check that the others are there."""
        self.prefix = next((name.removesuffix(MARK) for name in tensors if name.endswith(MARK)), None)
        if self.prefix is None:
            raise ValueError(f"no tensor has a name that ends with {MARK}, expected those of an nn.Transformer")
        inside = tuple(f"{self.prefix}{stack}." for stack in ("encoder", "decoder"))
        others = listed(sorted(name for name in tensors if not name.startswith(inside)))
        if missing := [name for name in OUTSIDE if name not in names]:
            given = 'names={"source_embedding": "src_embed", …}'
            raise ValueError(f"names lacks {', '.join(missing)}: give the modules of the tensors {others}, as {given}")
        if unknown := [name for name in names.values() if f"{name}.weight" not in tensors]:
            raise ValueError(f"names has {listed(unknown)}, expected modules of the tensors {others}")

    def arriving(self, tensors, config):
        """The tensors by the names of the table: the projections of a cross-attention are two."""
        found = {}
        for name, x in tensors.items():
            name = name.removeprefix(self.prefix)
            if kind := re.fullmatch(r"(.*\.multihead_attn\.)in_proj_(weight|bias)", name):
                rows, D = x.numbers(), x.shape[0] // 3
                found |= {f"{kind[1]}q_{kind[2]}": x.take(rows[:D]), f"{kind[1]}kv_{kind[2]}": x.take(rows[D:])}
            else:
                found[name] = x
        return found

    def settings_of(self, config, tensors, instead=()):
        """Our settings, of the shapes; "norm" and the others that no shape shows are those of PyTorch's defaults."""
        V, D = tensors[f"{self.names['source_embedding']}.weight"].shape
        layers = {(m[1], m[2]) for name in tensors if (m := re.match(r"(encoder|decoder)\.layers\.(\d+)\.", name))}
        return {
            "src_vocab": V,
            "tgt_vocab": tensors[f"{self.names['target_embedding']}.weight"].shape[0],
            "d_model": D,
            "d_ff": tensors["encoder.layers.0.linear1.weight"].shape[0],
            "n_layers": [sum(name == stack for stack, _ in layers) for name in ("encoder", "decoder")],
            "norm": "post",
            "final_norm": "encoder.norm.weight" in tensors,
            "bias": "encoder.layers.0.self_attn.in_proj_bias" in tensors,
            "positions": "none",
            "scale_embeddings": False,
        }

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
