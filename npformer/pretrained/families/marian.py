"""Marian's translation models (Junczys-Dowmunt et al. 2018), as OPUS-MT trains them."""

import numpy as np

from npformer.checks import shown
from npformer.errors import UserError
from npformer.models.transformer import Transformer
from npformer.pretrained.families.family import LIKE_2017, Family
from npformer.pretrained.files import Stored
from npformer.pretrained.rules import parse_settings, parse_table, refused_unless, warned_unless

BEGIN_LOGIT = -1e4  # the logit of the begin token, which is not predicted
# The tensors that have a row for the begin token.
WITH_BEGIN = (
    "shared.weight",
    "decoder.embed_tokens.weight",
    "lm_head.weight",
    "final_logits_bias",
)


class Marian(Family):
    """Names and settings of ``MarianMTModel``.

    In its files a translation begins with the token of the padding. Here the begin token has an id
    of its own, the last: V + 1 tokens, of which the last has the vector of the padding and is never
    predicted.
    """

    name, architectures = "marian", ("MarianMTModel",)
    model = Transformer
    # The setting also says which tables of the encoder and the decoder are one.
    how_to_untie = "write tie_word_embeddings=false in config.json to have both"
    names = parse_table("""
        embedding                         shared
        source_embedding                  encoder.embed_tokens
        target_embedding                  decoder.embed_tokens
        encoder.{}.attention.qkv          encoder.layers.{}.self_attn.q_proj
                                          encoder.layers.{}.self_attn.k_proj
                                          encoder.layers.{}.self_attn.v_proj
        encoder.{}.attention.out          encoder.layers.{}.self_attn.out_proj
        encoder.{}.attention_norm         encoder.layers.{}.self_attn_layer_norm
        encoder.{}.feed_forward.hidden    encoder.layers.{}.fc1
        encoder.{}.feed_forward.out       encoder.layers.{}.fc2
        encoder.{}.feed_forward_norm      encoder.layers.{}.final_layer_norm
        decoder.{}.attention.qkv          decoder.layers.{}.self_attn.q_proj
                                          decoder.layers.{}.self_attn.k_proj
                                          decoder.layers.{}.self_attn.v_proj
        decoder.{}.attention.out          decoder.layers.{}.self_attn.out_proj
        decoder.{}.attention_norm         decoder.layers.{}.self_attn_layer_norm
        decoder.{}.feed_forward.hidden    decoder.layers.{}.fc1
        decoder.{}.feed_forward.out       decoder.layers.{}.fc2
        decoder.{}.feed_forward_norm      decoder.layers.{}.final_layer_norm
        decoder.{}.memory_attention.out   decoder.layers.{}.encoder_attn.out_proj
        decoder.{}.memory_attention_norm  decoder.layers.{}.encoder_attn_layer_norm
        decoder.{}.memory_attention.q     decoder.layers.{}.encoder_attn.q_proj
        decoder.{}.memory_attention.kv    decoder.layers.{}.encoder_attn.k_proj
                                          decoder.layers.{}.encoder_attn.v_proj
        output                            lm_head
        output.bias                       final_logits_bias
        """)
    settings = parse_settings(
        LIKE_2017,
        """
        d_model           d_model
        n_heads           encoder_attention_heads
        d_ff              encoder_ffn_dim
        max_len           max_position_embeddings
        activation        activation_function      "gelu"
        dropout           dropout                  0.1
        inner_dropout     attention_dropout        0.0
        scale_embeddings  scale_embedding          false
        pad_id            pad_token_id
        forced_eos_id     forced_eos_token_id      0

        -  encoder_layers                    12
        -  decoder_layers                    12
        -  share_encoder_decoder_embeddings  true
        -  tie_word_embeddings               true

        positions  =  "sinusoidal_concatenated"
        norm       =  "post"
        eps        =  null

        =  normalize_before            false
        =  normalize_embedding         false
        =  add_final_layer_norm        false
        =  add_bias_logits             false
        =  static_position_embeddings  true

        src_vocab       -
        tgt_vocab       -
        n_layers        -
        tie_embeddings  -

        read      vocab_size decoder_vocab_size
        harmless  classif_dropout classifier_dropout extra_pos_embeddings
        harmless  force_bos_token_to_be_generated is_encoder_decoder num_hidden_layers
        harmless  tokenizer_class decoder_start_token_id
        warned    activation_dropout  0.0
        warned    encoder_layerdrop   0.0
        warned    decoder_layerdrop   0.0
        """,
    )
    of_generation = ("forced_eos_token_id",)
    heads = ("lm_head", "final_logits_bias")
    unneeded = r"(encoder|decoder)\.embed_positions\.weight"

    def from_file(self, tensors, config):
        """The tensors by the names of the table, with a row for the begin token."""
        config = self.settings.defaults | config
        renamed = super().from_file(tensors, config)
        shared = None
        if config["share_encoder_decoder_embeddings"]:
            shared = renamed.pop("shared.weight", None)
        source = renamed.pop("encoder.embed_tokens.weight", shared)
        target = renamed.pop("decoder.embed_tokens.weight", shared)
        output = renamed.pop("lm_head.weight", None)
        begin = config.get("decoder_start_token_id", config.get("pad_token_id"))
        if is_tied(config):  # the output may be the same once more, in some files
            tables = {"shared.weight": extended(target, begin)}
            tables["lm_head.weight"] = extended(output, begin)
        else:
            if config["tie_word_embeddings"] and output is None:
                output = target
            tables = {"encoder.embed_tokens.weight": source}
            tables["decoder.embed_tokens.weight"] = extended(target, begin)
            # Whatever the row of the begin token is, its logit is BEGIN_LOGIT.
            tables["lm_head.weight"] = extended(output, 0)
        bias = renamed.pop("final_logits_bias", None)
        if bias is not None:  # (1, V)
            tables["final_logits_bias"] = Stored.of(np.append(bias.rows(slice(1)), BEGIN_LOGIT))
        return renamed | {name: table for name, table in tables.items() if table is not None}

    def write(self, model, params):
        """The tensors of the table, where the padding has the vector of the begin token."""
        tensors = super().write(model, params)
        bias = tensors["final_logits_bias"][-1]
        if not bias <= BEGIN_LOGIT / 2:
            raise UserError(
                f"the last token is left out, as the begin token, but its output.bias is {bias:g}, "
                f"expected {BEGIN_LOGIT:g}, as load gives it, so that it is never predicted"
            )
        name = "shared.weight" if model.tie_embeddings else "decoder.embed_tokens.weight"
        table = tensors[name].copy()
        table[model.pad_id] = table[-1]  # with which translations begin there
        return tensors | {name: table}

    def for_file(self, tensors, model):
        """The tensors by the names of a file, without the row for the begin token."""
        tensors = {name: x[:-1] if name in WITH_BEGIN else x for name, x in tensors.items()}
        tensors["final_logits_bias"] = tensors["final_logits_bias"][None]
        return super().for_file(tensors, model)

    def begin_id(self, config):
        """The id of the begin token, which comes after those of a file."""
        return config.get("decoder_vocab_size") or config.get("vocab_size", 0)

    def extra_rules(self, config):
        """The decoder is as wide as the encoder, and begins with the padding."""
        padding = config.get("pad_token_id")
        same = {
            "decoder_start_token_id": padding,
            "decoder_ffn_dim": config.get("encoder_ffn_dim"),
            "decoder_attention_heads": config.get("encoder_attention_heads"),
        }
        return refused_unless(same) | warned_unless({"bad_words_ids": [[padding]]})

    def extra_settings_from(self, config, tensors):
        """The sizes of the vocabularies, with the begin token, and the numbers of layers."""
        n_source = config.get("vocab_size", 0)
        n_target = self.begin_id(config) + 1
        is_one_table = is_tied(config)
        return {
            "src_vocab": n_target if is_one_table else n_source,
            "tgt_vocab": n_target,
            "n_layers": [config["encoder_layers"], config["decoder_layers"]],
            "tie_embeddings": is_one_table,
        }

    def extra_keys_for(self, model):
        """What ``extra_settings_from`` reads, and what the decoder shares with the encoder."""
        if model.pad_id is None:
            raise UserError(
                "pad_id=None, expected an id: a translation begins with the vector of the padding"
            )
        n_encoder, n_decoder = model.depths
        n_target = model.tgt_vocab - 1
        return {
            "encoder_layers": n_encoder,
            "decoder_layers": n_decoder,
            "decoder_attention_heads": model.n_heads,
            "decoder_ffn_dim": model.d_ff,
            "vocab_size": n_target if model.tie_embeddings else model.src_vocab,
            "decoder_vocab_size": n_target,
            "decoder_start_token_id": model.pad_id,
            "share_encoder_decoder_embeddings": model.tie_embeddings,
            "tie_word_embeddings": model.tie_embeddings,
        }


def is_tied(config):
    """Whether one table is that of the source, of the target and of the output."""
    return config["share_encoder_decoder_embeddings"] and config["tie_word_embeddings"]


def extended(stored, id_):
    """A table with one more row, a copy of that of an id; None if there is none."""
    if stored is None:
        return None
    V = stored.shape[0]
    if not isinstance(id_, int) or not 0 <= id_ < V:
        raise UserError(
            f"pad_token_id={shown(id_)}, expected an id below the {V} of the vocabulary"
        )
    return stored.take(np.append(stored.numbers(), id_))
