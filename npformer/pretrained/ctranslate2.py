"""Translation models for CTranslate2, an inference engine in C++ (needs the package ctranslate2)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.checks import shown
from npformer.files.folders import new_files
from npformer.files.paths import path_to_replace
from npformer.models.transformer import Transformer
from npformer.operations.options import check_expressed
from npformer.pretrained.family import OF_ALL
from npformer.pretrained.pytorch import PyTorch

NAMES = {  # of what a layer has
    "attention_norm": "self_attention/layer_norm",
    "attention.qkv": "self_attention/linear_0",
    "attention.out": "self_attention/linear_1",
    "memory_attention_norm": "attention/layer_norm",
    "memory_attention.q": "attention/linear_0",
    "memory_attention.kv": "attention/linear_1",
    "memory_attention.out": "attention/linear_2",
    "feed_forward_norm": "ffn/layer_norm",
    "feed_forward.hidden": "ffn/linear_0",
    "feed_forward.out": "ffn/linear_1",
}
ACTIVATIONS = {"relu": "RELU", "gelu": "GELUTanh", "gelu_erf": "GELU", "silu": "SWISH", "swiglu": "SWISH"}
SUPPORTED: dict[str, tuple] = {
    "n_kv_heads": (None,),
    "window": (None,),
    "positions": ("sinusoidal", "sinusoidal_concatenated", "learned"),
    "rotary": (None,),
}
WRITTEN = {*PyTorch.own_settings, "norm_type"}  # but ``forced_eos_id``, as a translation always ends there
NEVER = -1e9  # the logit of padding


def export(
    folder: str | Path,
    model: Transformer,
    params: dict,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    *,
    bos_id: int,
    eos_id: int,
    add_source_eos: bool = True,
) -> None:
    """Write a model to a folder from which ``ctranslate2.Translator(folder)`` translates as npformer does.

    ``translate_batch(…, min_decoding_length=0)`` then finds what ``beam_search`` finds, with the same scores. But it
    cuts translations at ``max_decoding_length``, also those of a model with a ``forced_eos_id``.

    Parameters
    ----------
    folder : str or Path
        Is made.
    model : Transformer
    params : nested dict
    source_tokens, target_tokens : sequences of str
        The name of each id: what CTranslate2 takes and returns. "<unk>" is that of unknown tokens. Those of a Marian
        are [tokenizer.pieces[i] for i in range(len(tokenizer))], and one more for ``tokenizer.bos_id``.
    bos_id, eos_id : int
        With which each target begins and ends, as for ``beam_search``.
    add_source_eos : bool
        Whether CTranslate2 appends the end token to each source, as the model had it in training.

    Raises
    ------
    ValueError
        If CTranslate2 has no such model.
    """
    path_to_replace(folder, "a folder")
    tokens = source_tokens, target_tokens
    spec = specification(model, params, *tokens, bos_id=bos_id, eos_id=eos_id, add_source_eos=add_source_eos)
    with new_files(folder) as new:
        spec.save(str(new))


def specification(
    model: Transformer,
    params: dict,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    *,
    bos_id: int,
    eos_id: int,
    add_source_eos: bool = True,
) -> Any:
    """What ``export`` writes, of the same arguments: CTranslate2's description of the model, which has been checked.

    Its ``save(folder)`` writes it to a folder that is there.
    """
    try:
        from ctranslate2 import specs
    except ImportError as error:
        raise ImportError("an export to CTranslate2 needs its package: pip install ctranslate2") from error
    check(model, source_tokens, target_tokens)
    spec = specs.TransformerSpec.from_config(
        model.depths,
        model.n_heads,
        no_final_norm=not model.has_final_norm,
        activation=specs.common_spec.Activation[ACTIVATIONS[model.activation]],
        ffn_glu=model.activation == "swiglu",
        rms_norm=model.norm_type == "rms_norm",
    )
    spec.config.layer_norm_epsilon = model.layer_settings.norm_eps
    spec.config.bos_token = spec.config.decoder_start_token = target_tokens[bos_id]
    spec.config.eos_token, spec.config.add_source_eos = target_tokens[eos_id], add_source_eos
    spec.register_source_vocabulary(list(source_tokens))
    spec.register_target_vocabulary(list(target_tokens))

    for side, name in (("source", "encoder"), ("target", "decoder")):
        to = getattr(spec, name)
        to.pre_norm, to.scale_embeddings = model.norm == "pre", model.scale_embeddings
        embeddings = to.embeddings[0] if side == "source" else to.embeddings
        embeddings.weight = floats(model.table_of(params, side))
        to.position_encodings.encodings = floats(model.positions_of(params, side, slice(None)))
        fill(specs, to, params.get(name, {}))
    weight, bias = model.output_map(params)
    bias = np.where(np.arange(model.tgt_vocab) == model.pad_id, NEVER, on_host(bias))
    spec.decoder.projection.weight, spec.decoder.projection.bias = floats(weight.T), floats(bias)
    spec.validate()
    spec.optimize()  # a table that is tied is written once
    return spec


def check(model: Any, source_tokens: Sequence[str], target_tokens: Sequence[str]) -> None:
    """Raise if a model cannot be expressed, or if the names are not those of its ids."""
    if not isinstance(model, Transformer):
        raise ValueError(f"a {type(model).__name__} cannot be exported to CTranslate2, expected a Transformer")
    for name, values in SUPPORTED.items():
        if (given := getattr(model, name)) not in values:
            raise ValueError(f"{name}={shown(given)} cannot be exported, expected {' or '.join(map(repr, values))}")
    check_expressed(model, {*SUPPORTED, *WRITTEN, *OF_ALL})
    if not min(model.depths):
        raise ValueError(f"n_layers={model.n_layers} cannot be exported, expected at least one in each stack")
    for name, tokens, size in (("source", source_tokens, model.src_vocab), ("target", target_tokens, model.tgt_vocab)):
        if len(set(tokens)) != size or len(tokens) != size:
            given = f"{len(tokens)}, {len(set(tokens))} of them different"
            raise ValueError(f"{name}_tokens are {given}, expected a name for each of {size} ids")


def fill(specs: Any, spec: Any, params: dict) -> None:
    """Set the parameters of a stack."""
    for path, x in tree.leaves(params):
        module, _, leaf = path.rpartition(".")
        number, _, part = module.partition(".")
        place = f"layer_{number}/{NAMES[part]}" if part else "layer_norm"
        to = specs.model_spec.index_spec(spec, place)
        name = {"gain": "gamma", "bias": "beta"}[leaf] if place.endswith("norm") else leaf
        if place.endswith("ffn/linear_0") and hasattr(ffn := spec.layer[int(number)].ffn, "linear_0_noact"):
            x, other = np.split(on_host(x), 2, axis=-1)  # silu(a) b, of the two halves of one projection
            setattr(ffn.linear_0_noact, leaf, floats(other.T))
        setattr(to, name, floats(x.T))  # a linear map is (D_out, D_in) there


def floats(x: Any) -> np.ndarray:
    """A contiguous array of float32."""
    return np.ascontiguousarray(on_host(x), np.float32)
