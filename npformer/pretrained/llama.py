"""Llama (Touvron et al. 2023), and models of its architecture such as SmolLM2."""

from npformer.checks import shown
from npformer.models.language_model import LanguageModel
from npformer.operations.options import check_expressed
from npformer.pretrained.family import SIZES, Family
from npformer.pretrained.keys import ROPE, check_keys, harmless, read, refused_unless
from npformer.reference.settings import Rotary


class Llama(Family):
    """Names and settings of ``LlamaForCausalLM``."""

    name, architecture, architectures = "llama", "LlamaForCausalLM", ("LlamaModel",)
    model = LanguageModel
    names = {
        "embedding": "embed_tokens",
        "layers.{}.attention_norm": "layers.{}.input_layernorm",
        "layers.{}.attention.qkv": " ".join(f"layers.{{0}}.self_attn.{x}_proj" for x in "qkv"),
        "layers.{}.attention.out": "layers.{}.self_attn.o_proj",
        "layers.{}.feed_forward_norm": "layers.{}.post_attention_layernorm",
        "layers.{}.feed_forward.hidden": "layers.{0}.mlp.gate_proj layers.{0}.mlp.up_proj",
        "layers.{}.feed_forward.out": "layers.{}.mlp.down_proj",
        "layers.norm": "norm",
        "output": "lm_head",
    }
    settings = SIZES | {
        "n_kv_heads": ("num_key_value_heads", None),
        "eps": ("rms_norm_eps", 1e-6),
        "inner_dropout": ("attention_dropout", 0.0),
        "bias": ("attention_bias", False),
        "tie_embeddings": ("tie_word_embeddings", False),
        "pad_id": ("pad_token_id", None),
    }
    constants = {"positions": "rotary", "norm": "pre", "norm_type": "rms_norm", "activation": "swiglu"}
    constants |= {"scale_embeddings": False, "window": None}
    own_settings = ("rotary",)
    supported = {"hidden_act": "silu"}
    other_keys = read("head_dim attention_bias mlp_bias rope_theta rope_scaling rope_parameters")
    other_keys |= harmless("pretraining_tp rope_interleaved is_llama_config")
    other_keys |= refused_unless({"partial_rotary_factor": 1.0})
    unneeded = r".*\.rotary_emb\.inv_freq"

    def rules(self, config):
        """What each key of config.json means: a width of heads, and biases everywhere or nowhere."""
        sizes = config.get("hidden_size"), config.get("num_attention_heads")
        width = {"head_dim": sizes[0] // sizes[1]} if all(isinstance(x, int) and x > 0 for x in sizes) else {}
        has_mlp_bias = bool(config.get("mlp_bias"))
        with_bias = {"attention_bias": has_mlp_bias}
        if has_mlp_bias and not config.get("attention_bias"):
            with_bias = {"mlp_bias": False}
        return super().rules(config) | refused_unless(width | with_bias)

    def settings_of(self, config, tensors, instead=()):
        """Our settings, also those of the rotation."""
        rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind not in ("default", "linear"):
            raise ValueError(
                f"the rotation in config.json has rope_type={shown(kind)}, supported are 'default' and 'linear'"
            )
        found = super().settings_of(config, tensors, instead)
        check_keys(rope, ROPE, "the rotation in config.json")
        scaling = rope.get("factor", 1.0) if kind == "linear" else 1.0
        return found | {"rotary": {"base": rope.get("rope_theta", config.get("rope_theta", 1e4)), "scaling": scaling}}

    def config_of(self, model):
        """What config.json says of a model of ours."""
        rotary = model.rotary or Rotary()
        check_expressed(rotary, ["base", "scaling"], "rotary.")
        rope = {"rope_type": "default", "rope_theta": rotary.base}
        if rotary.scaling != 1:
            rope |= {"rope_type": "linear", "factor": rotary.scaling}
        ours = {"mlp_bias": model.bias, "num_key_value_heads": model.n_kv_heads or model.n_heads}
        return super().config_of(model) | ours | {"rope_parameters": rope, "rope_theta": rotary.base}


class Mistral(Llama):
    """Names and settings of ``MistralForCausalLM``: a Llama without biases, whose attention may have a window."""

    name, architecture, architectures = "mistral", "MistralForCausalLM", ("MistralModel",)
    settings = {name: key for name, key in Llama.settings.items() if name != "bias"}
    settings |= {"window": ("sliding_window", 4096)}
    constants = {name: value for name, value in Llama.constants.items() if name != "window"} | {"bias": False}
