"""Marian's translation models (Junczys-Dowmunt et al. 2018), as OPUS-MT trains them."""

import numpy as np

from npformer.checks import shown
from npformer.models.transformer import Transformer
from npformer.pretrained.family import LIKE_2017, Family, Stored
from npformer.pretrained.keys import harmless, read, refused_unless, warned_unless

NEVER = -1e4  # the logit of the begin token, which is not predicted


def attention(ours, theirs):
    """The names of an attention and of its normalisation."""
    return {f"{ours}.out": f"{theirs}.out_proj", f"{ours}_norm": f"{theirs}_layer_norm"}


def stack(name):
    """The names of the layers of a stack."""
    ours, theirs = f"{name}.{{}}", f"{name}.layers.{{0}}"
    return {
        f"{ours}.attention.qkv": " ".join(f"{theirs}.self_attn.{x}_proj" for x in "qkv"),
        **attention(f"{ours}.attention", f"{theirs}.self_attn"),
        f"{ours}.feed_forward.hidden": f"{theirs}.fc1",
        f"{ours}.feed_forward.out": f"{theirs}.fc2",
        f"{ours}.feed_forward_norm": f"{theirs}.final_layer_norm",
    }


class Marian(Family):
    """Names and settings of ``MarianMTModel``.

    In its files a translation begins with the token of the padding. Here the begin token has an id of its own, the
    last: V + 1 tokens, of which the last has the vector of the padding and is never predicted.
    """

    name, architecture = "marian", "MarianMTModel"
    model = Transformer
    names = {
        "embedding": "shared",
        "source_embedding": "encoder.embed_tokens",
        "target_embedding": "decoder.embed_tokens",
        **stack("encoder"),
        **stack("decoder"),
        **attention("decoder.{}.memory_attention", "decoder.layers.{0}.encoder_attn"),
        "decoder.{}.memory_attention.q": "decoder.layers.{0}.encoder_attn.q_proj",
        "decoder.{}.memory_attention.kv": " ".join(f"decoder.layers.{{0}}.encoder_attn.{x}_proj" for x in "kv"),
        "output": "lm_head",
        "output.bias": "final_logits_bias",
    }
    settings = {
        "d_model": "d_model",
        "n_heads": "encoder_attention_heads",
        "d_ff": "encoder_ffn_dim",
        "max_len": "max_position_embeddings",
        "activation": ("activation_function", "gelu"),
        "dropout": ("dropout", 0.1),
        "inner_dropout": ("attention_dropout", 0.0),
        "scale_embeddings": ("scale_embedding", False),
        "pad_id": "pad_token_id",
        "forced_eos_id": ("forced_eos_token_id", 0),
    }
    constants = LIKE_2017 | {"positions": "sinusoidal_concatenated", "norm": "post", "eps": None}
    own_settings = "src_vocab", "tgt_vocab", "n_layers", "tie_embeddings"
    supported = {"normalize_before": False, "normalize_embedding": False, "add_final_layer_norm": False}
    supported |= {"add_bias_logits": False, "static_position_embeddings": True}
    other_keys = read("vocab_size decoder_vocab_size share_encoder_decoder_embeddings encoder_layers decoder_layers")
    other_keys |= harmless("classif_dropout classifier_dropout extra_pos_embeddings force_bos_token_to_be_generated")
    other_keys |= harmless("is_encoder_decoder num_hidden_layers tokenizer_class decoder_start_token_id")
    other_keys |= warned_unless({"activation_dropout": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0})
    heads = ("lm_head", "final_logits_bias")
    unneeded = r"model\.(encoder|decoder)\.embed_positions\.weight"

    def arriving(self, tensors, config):
        """The tensors by the names of the table, with a row for the begin token."""
        tensors = super().arriving(tensors, config)
        shared, bias = tensors.pop("shared.weight", None), tensors.pop("final_logits_bias", None)
        source, target = (tensors.pop(f"{name}.embed_tokens.weight", shared) for name in ("encoder", "decoder"))
        output = tensors.pop("lm_head.weight", target)
        begin = config.get("decoder_start_token_id", config.get("pad_token_id"))
        if is_tied(config):
            found = {"shared.weight": extended(target, begin)}
        else:
            found = {"encoder.embed_tokens.weight": source, "decoder.embed_tokens.weight": extended(target, begin)}
            found["lm_head.weight"] = extended(output, 0)  # whatever it is, it is NEVER
        if bias is not None:  # (1, V)
            logits = np.append(bias.rows(slice(1)), NEVER)
            found["final_logits_bias"] = Stored(logits.shape, logits.__getitem__)
        return tensors | {name: x for name, x in found.items() if x is not None}

    def write(self, model, params):
        """The tensors of the table; the padding, with which translations begin there, has the begin token's vector."""
        tensors = super().write(model, params)
        if not (bias := tensors["final_logits_bias"][-1]) <= NEVER / 2:
            given = f"the last token is left out, as the begin token, but its output.bias is {bias:g}"
            raise ValueError(f"{given}, expected {NEVER:g}, as load gives it, so that it is never predicted")
        table = "shared.weight" if model.tie_embeddings else "decoder.embed_tokens.weight"
        tensors[table] = tensors[table].copy()
        tensors[table][model.pad_id] = tensors[table][-1]
        return tensors

    def leaving(self, tensors, model):
        """The tensors by the names of a file, without the row for the begin token."""
        extended = ("shared.weight", "decoder.embed_tokens.weight", "lm_head.weight", "final_logits_bias")
        tensors = {name: x[:-1] if name in extended else x for name, x in tensors.items()}
        tensors["final_logits_bias"] = tensors["final_logits_bias"][None]
        return super().leaving(tensors, model)

    def rules(self, config):
        """What each key of config.json means: the decoder is as wide as the encoder, and begins with the padding."""
        padding = config.get("pad_token_id")
        same = {"decoder_start_token_id": padding, "decoder_ffn_dim": config.get("encoder_ffn_dim")}
        same |= {"decoder_attention_heads": config.get("encoder_attention_heads")}
        return super().rules(config) | refused_unless(same) | warned_unless({"bad_words_ids": [[padding]]})

    def settings_of(self, config, tensors, instead=()):
        """Our settings, also the sizes of the vocabularies and the numbers of layers."""
        found = super().settings_of(config, tensors, instead)
        source = config.get("vocab_size", 0)
        target = 1 + (config.get("decoder_vocab_size") or source)
        sizes = {"src_vocab": target if is_tied(config) else source, "tgt_vocab": target}
        depths = [config.get(f"{name}_layers", 12) for name in ("encoder", "decoder")]
        return found | sizes | {"n_layers": depths, "tie_embeddings": is_tied(config)}

    def config_of(self, model):
        """What config.json says of a model of ours."""
        if model.pad_id is None:
            raise ValueError("pad_id=None, expected an id: a translation begins with the vector of the padding")
        (n_encoder, n_decoder), tied, target = model.depths, model.tie_embeddings, model.tgt_vocab - 1
        return super().config_of(model) | {
            "encoder_layers": n_encoder,
            "decoder_layers": n_decoder,
            "decoder_attention_heads": model.n_heads,
            "decoder_ffn_dim": model.d_ff,
            "vocab_size": target if tied else model.src_vocab,
            "decoder_vocab_size": target,
            "decoder_start_token_id": model.pad_id,
            "share_encoder_decoder_embeddings": tied,
            "tie_word_embeddings": tied,
        }


def is_tied(config):
    """Whether one table is that of the source, of the target and of the output."""
    return config.get("share_encoder_decoder_embeddings", True) and config.get("tie_word_embeddings", True)


def extended(stored, id_):
    """A table with one more row, a copy of that of an id; None if there is none."""
    if stored is None:
        return None
    V = stored.shape[0]
    if not isinstance(id_, int) or not 0 <= id_ < V:
        raise ValueError(f"pad_token_id={shown(id_)}, expected an id below the {V} of the vocabulary")
    return stored.take(np.append(stored.numbers(), id_))
