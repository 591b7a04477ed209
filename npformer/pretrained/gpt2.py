"""GPT-2 (Radford et al. 2019)."""

from npformer.models.language_model import LanguageModel
from npformer.pretrained.family import LIKE_2017, Family
from npformer.pretrained.keys import harmless, warned_unless


class GPT2(Family):
    """Names and settings of ``GPT2LMHeadModel``. Its linear maps are (in, out), as ours, but for the output."""

    name, architecture, architectures = "gpt2", "GPT2LMHeadModel", ("GPT2Model",)
    model = LanguageModel
    names = {
        "embedding": "wte",
        "positions": "wpe",
        "layers.{}.attention_norm": "h.{}.ln_1",
        "layers.{}.attention.qkv": "h.{}.attn.c_attn",
        "layers.{}.attention.out": "h.{}.attn.c_proj",
        "layers.{}.feed_forward_norm": "h.{}.ln_2",
        "layers.{}.feed_forward.hidden": "h.{}.mlp.c_fc",
        "layers.{}.feed_forward.out": "h.{}.mlp.c_proj",
        "layers.norm": "ln_f",
        "output": "lm_head",
    }
    settings = {
        "vocab": "vocab_size",
        "d_model": "n_embd",
        "n_heads": "n_head",
        "n_layers": "n_layer",
        "d_ff": "n_inner",
        "max_len": "n_positions",
        "eps": ("layer_norm_epsilon", 1e-5),
        "activation": ("activation_function", "gelu_new"),
        "dropout": ("resid_pdrop", 0.1),
        "inner_dropout": ("attn_pdrop", 0.1),
        "tie_embeddings": ("tie_word_embeddings", True),
        "pad_id": ("pad_token_id", None),
    }
    constants = LIKE_2017 | {"positions": "learned", "norm": "pre", "scale_embeddings": False}
    supported = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
    other_keys = harmless("n_ctx reorder_and_upcast_attn summary_activation summary_first_dropout")
    other_keys |= harmless("summary_proj_to_labels summary_type summary_use_proj")
    prefix = "transformer."
    unneeded = r".*\.attn\.(masked_)?bias"  # constants that older files hold
    has_linear_transposed = False

    def rules(self, config):
        """What each key of config.json means: the embeddings have the dropout of the sublayers."""
        dropout = config.get("resid_pdrop", 0.1)
        return super().rules(config) | warned_unless({"embd_pdrop": dropout})

    def settings_of(self, config, tensors, instead=()):
        """Our settings; the width of a hidden layer is four times that of the model if it is not said."""
        if config.get("n_inner") is None:
            config = config | {"n_inner": 4 * config.get("n_embd", 0)}
        return super().settings_of(config, tensors, instead)
