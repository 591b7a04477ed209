"""GPT-2 (Radford et al. 2019)."""

from npformer.models.language_model import LanguageModel
from npformer.pretrained.family import Family


class GPT2(Family):
    """Names and settings of ``GPT2LMHeadModel``. Its linear maps are (in, out), as ours, but for the output."""

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
        "eps": "layer_norm_epsilon",
        "activation": "activation_function",
        "dropout": "resid_pdrop",
        "inner_dropout": "attn_pdrop",
        "tie_embeddings": "tie_word_embeddings",
        "pad_id": "pad_token_id",
    }
    constants = {
        "positions": "learned",
        "norm": "pre",
        "norm_type": "layer_norm",
        "bias": True,
        "scale_embeddings": False,
        "n_kv_heads": None,
        "window": None,
    }
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "tie_word_embeddings": True,
        "n_inner": None,
        "pad_token_id": None,
    }
    supported = {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    }
    prefix = "transformer."
    unneeded = r".*\.attn\.(masked_)?bias"  # constants that older files hold
    has_linear_transposed = False

    def settings_of(self, config, tensors):
        """Our settings; the width of a hidden layer is four times that of the model if it is not said."""
        if config.get("n_inner") is None:
            config = config | {"n_inner": 4 * config.get("n_embd", 0)}
        return super().settings_of(config, tensors)
