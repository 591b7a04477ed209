"""Translation models for CTranslate2, an inference engine in C++, whose package this needs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.checks import shown
from npformer.errors import UserError
from npformer.files.folders import new_files
from npformer.files.paths import path_to_replace
from npformer.models.transformer import Transformer
from npformer.operations.options import check_expressed
from npformer.pretrained.families.naming import SHARED_SETTINGS, named_views
from npformer.pretrained.families.pytorch import EXPRESSED
from npformer.pretrained.files import Files
from npformer.pretrained.rules import parse_table

SPEC_ACTIVATIONS = parse_table("""
    relu      RELU
    gelu      GELUTanh
    gelu_erf  GELU
    silu      SWISH
    swiglu    SWISH
    """)
# The names of the parts of a ``TransformerSpec``.
NAMES = parse_table("""
    encoder.{}.attention_norm         encoder/layer_{}/self_attention/layer_norm
    encoder.{}.attention.qkv          encoder/layer_{}/self_attention/linear_0
    encoder.{}.attention.out          encoder/layer_{}/self_attention/linear_1
    encoder.{}.feed_forward_norm      encoder/layer_{}/ffn/layer_norm
    encoder.{}.feed_forward.hidden    encoder/layer_{}/ffn/linear_0
    encoder.{}.feed_forward.out       encoder/layer_{}/ffn/linear_1
    encoder.norm                      encoder/layer_norm
    decoder.{}.attention_norm         decoder/layer_{}/self_attention/layer_norm
    decoder.{}.attention.qkv          decoder/layer_{}/self_attention/linear_0
    decoder.{}.attention.out          decoder/layer_{}/self_attention/linear_1
    decoder.{}.memory_attention_norm  decoder/layer_{}/attention/layer_norm
    decoder.{}.memory_attention.q     decoder/layer_{}/attention/linear_0
    decoder.{}.memory_attention.kv    decoder/layer_{}/attention/linear_1
    decoder.{}.memory_attention.out   decoder/layer_{}/attention/linear_2
    decoder.{}.feed_forward_norm      decoder/layer_{}/ffn/layer_norm
    decoder.{}.feed_forward.hidden    decoder/layer_{}/ffn/linear_0
    decoder.{}.feed_forward.out       decoder/layer_{}/ffn/linear_1
    decoder.norm                      decoder/layer_norm
    """)
# silu(a) b, of the two halves a and b of one projection of ours
GATED = parse_table("""
    encoder.{}.feed_forward.hidden    encoder/layer_{}/ffn/linear_0
                                      encoder/layer_{}/ffn/linear_0_noact
    decoder.{}.feed_forward.hidden    decoder/layer_{}/ffn/linear_0
                                      decoder/layer_{}/ffn/linear_0_noact
    """)
SUPPORTED: dict[str, tuple] = {
    "n_kv_heads": (None,),
    "window": (None,),
    "positions": ("sinusoidal", "sinusoidal_concatenated", "learned"),
    "rotary": (None,),
}
# Of these, ``forced_eos_id`` is not written: a translation there always ends with that token.
ALLOWED = EXPRESSED | {"norm_type"}
PADDING_LOGIT = -1e9
NORM_LEAVES = {"weight": "gamma", "bias": "beta"}


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
    files: Files | None = None,
) -> None:
    """Write a model to a folder from which ``ctranslate2.Translator(folder)`` translates as
    npformer does.

    ``translate_batch(…, min_decoding_length=0)`` then finds what ``beam_search`` finds, with the
    same scores. But it cuts translations at ``max_decoding_length``, also those of a model with a
    ``forced_eos_id``.

    Parameters
    ----------
    folder : str or Path
        Is made.
    model : Transformer
    params : nested dict
    source_tokens, target_tokens : sequences of str
        The name of each id: what CTranslate2 takes and returns. "<unk>" is that of unknown tokens.
        Those of a Marian are [tokenizer.pieces[i] for i in range(len(tokenizer))], and one more for
        ``tokenizer.bos_id``.
    bos_id, eos_id : int
        With which each target begins and ends, as for ``beam_search``.
    add_source_eos : bool
        Whether CTranslate2 appends the end token to each source, as the model had it in training.
    files : dict, optional
        The names and bytes of other files that the folder gets, such as those of a tokenizer.

    Raises
    ------
    UserError
        If CTranslate2 has no such model.
    """
    folder = path_to_replace(folder, "a folder")
    try:
        from ctranslate2 import specs
    except ImportError as error:
        raise ImportError(
            "an export to CTranslate2 needs its package: pip install ctranslate2"
        ) from error
    check(model, source_tokens, target_tokens)
    spec = specs.TransformerSpec.from_config(
        model.depths,
        model.n_heads,
        no_final_norm=not model.has_final_norm,
        activation=specs.common_spec.Activation[SPEC_ACTIVATIONS[model.activation]],
        ffn_glu=model.activation == "swiglu",
        rms_norm=model.norm_type == "rms_norm",
    )
    spec.config.layer_norm_epsilon = model.layer_settings.norm_eps
    spec.config.bos_token = target_tokens[bos_id]
    spec.config.decoder_start_token = target_tokens[bos_id]
    spec.config.eos_token = target_tokens[eos_id]
    spec.config.add_source_eos = add_source_eos
    spec.register_source_vocabulary(list(source_tokens))
    spec.register_target_vocabulary(list(target_tokens))
    fill(specs, spec, model, params)
    spec.validate()
    spec.optimize()  # a table that is tied is written once
    with new_files(folder) as new:
        spec.save(str(new))
        for name, data in (files or {}).items():
            (new / name).write_bytes(data)


def check(model, source_tokens: Sequence[str], target_tokens: Sequence[str]) -> None:
    """Raise if a model cannot be expressed, or if the names are not those of its ids."""
    if not isinstance(model, Transformer):
        raise UserError(
            f"a {type(model).__name__} cannot be exported to CTranslate2, expected a Transformer"
        )
    for name, values in SUPPORTED.items():
        value = getattr(model, name)
        if value not in values:
            expected = " or ".join(map(repr, values))
            raise UserError(f"{name}={shown(value)} cannot be exported, expected {expected}")
    check_expressed(model, {*SUPPORTED, *ALLOWED, *SHARED_SETTINGS})
    if not min(model.depths):
        raise UserError(
            f"n_layers={model.n_layers} cannot be exported, expected at least one in each stack"
        )
    check_each_has_a_name("source_tokens", source_tokens, model.src_vocab)
    check_each_has_a_name("target_tokens", target_tokens, model.tgt_vocab)


def check_each_has_a_name(argument, tokens, size):
    """Raise unless there are as many names as ids, no two of which are the same."""
    n_different = len(set(tokens))
    if n_different != size or len(tokens) != size:
        raise UserError(
            f"{argument} are {len(tokens)}, {n_different} of them different, "
            f"expected a name for each of {size} ids"
        )


def fill(specs, spec, model, params):
    """Set all parameters."""
    spec.encoder.embeddings[0].weight = floats(model.table_of(params, "source"))
    spec.decoder.embeddings.weight = floats(model.table_of(params, "target"))
    for side, name in (("source", "encoder"), ("target", "decoder")):
        stack = getattr(spec, name)
        stack.pre_norm = model.norm == "pre"
        stack.scale_embeddings = model.scale_embeddings
        positions = model.positions_of(params, side, slice(None))
        stack.position_encodings.encodings = floats(positions)
    names = NAMES | GATED if model.activation == "swiglu" else NAMES
    stacks = {name: params[name] for name in ("encoder", "decoder")}
    for name, x in named_views(names, model, tree.map_leaves(on_host, stacks)):
        place, _, leaf = name.rpartition(".")
        if place.endswith("norm"):
            leaf = NORM_LEAVES[leaf]
        setattr(specs.model_spec.index_spec(spec, place), leaf, floats(x))
    weight, bias = model.output_map(params)
    is_padding = np.arange(model.tgt_vocab) == model.pad_id
    projection = spec.decoder.projection
    projection.weight = floats(weight.T)
    projection.bias = floats(np.where(is_padding, PADDING_LOGIT, on_host(bias)))


def floats(x) -> np.ndarray:
    """A contiguous array of float32."""
    return np.ascontiguousarray(on_host(x), np.float32)
