"""GPT-2 (Radford et al. 2019)."""

from npformer.models.language_model import LanguageModel
from npformer.pretrained.family import LIKE_2017, Family


class GPT2(Family):
    """Names and settings of ``GPT2LMHeadModel``. Its linear maps are (in, out), as ours, but for the output."""

    name, architecture = "gpt2", "GPT2LMHeadModel"
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
    prefix = "transformer."
    unneeded = r".*\.attn\.(masked_)?bias"  # constants that older files hold
    has_linear_transposed = False

    def settings_of(self, config, tensors):
        """Our settings; the width of a hidden layer is four times that of the model if it is not said."""
        if config.get("n_inner") is None:
            config = config | {"n_inner": 4 * config.get("n_embd", 0)}
        return super().settings_of(config, tensors)
