"""Llama (Touvron et al. 2023), and models that differ little from it: Mistral, Qwen2 and Qwen3."""

from npformer.checks import shown
from npformer.models.language_model import LanguageModel
from npformer.operations.options import check_expressed
from npformer.operations.settings import Rotary
from npformer.pretrained.family import SIZES, Family
from npformer.pretrained.keys import ROPE, check_keys, harmless, read, refused_unless

# Settings of ``Llama3Scaling``, and their keys.
LLAMA3 = {"factor": "factor", "original_max_len": "original_max_position_embeddings"}
LLAMA3 |= {name: name for name in ("low_freq_factor", "high_freq_factor")}
# How positions may be scaled, and what is said of each way.
ROPES = {"default": ROPE, "linear": ROPE, "llama3": ROPE | read(" ".join(LLAMA3.values()))}


class Llama(Family):
    """Names and settings of ``LlamaForCausalLM``."""

    name, architecture, architectures = "llama", "LlamaForCausalLM", ("LlamaModel",)
    model = LanguageModel
    names = {
        "embedding": "embed_tokens",
        "layers.{}.attention_norm": "layers.{}.input_layernorm",
        "layers.{}.attention.qkv": " ".join(f"layers.{{0}}.self_attn.{x}_proj" for x in "qkv"),
        "layers.{}.attention.q_norm": "layers.{}.self_attn.q_norm",
        "layers.{}.attention.k_norm": "layers.{}.self_attn.k_norm",
        "layers.{}.attention.out": "layers.{}.self_attn.o_proj",
        "layers.{}.feed_forward_norm": "layers.{}.post_attention_layernorm",
        "layers.{}.feed_forward.hidden": "layers.{0}.mlp.gate_proj layers.{0}.mlp.up_proj",
        "layers.{}.feed_forward.out": "layers.{}.mlp.down_proj",
        "layers.norm": "norm",
        "output": "lm_head",
    }
    settings = SIZES | {
        "n_kv_heads": ("num_key_value_heads", None),
        "d_head": ("head_dim", None),
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
    other_keys = read("attention_bias mlp_bias rope_theta rope_scaling rope_parameters")
    other_keys |= harmless("pretraining_tp rope_interleaved is_llama_config")
    other_keys |= refused_unless({"partial_rotary_factor": 1.0})
    unneeded = r".*\.rotary_emb\.inv_freq"

    def rules(self, config):
        """What each key of config.json means: there are biases everywhere or nowhere."""
        has_mlp_bias = bool(config.get("mlp_bias"))
        with_bias = {"attention_bias": has_mlp_bias}
        if has_mlp_bias and not config.get("attention_bias"):
            with_bias = {"mlp_bias": False}
        return super().rules(config) | refused_unless(with_bias)

    def settings_of(self, config, tensors, instead=()):
        """Our settings, also those of the rotation."""
        settings = super().settings_of(config, tensors, instead)
        if settings["n_heads"] and settings["d_head"] == settings["d_model"] / settings["n_heads"]:
            settings["d_head"] = None
        rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
        rotary = rotation_of(rope)
        rotary["base"] = rope.get("rope_theta", config.get("rope_theta", 1e4))
        return settings | {"rotary": rotary}

    def config_of(self, model):
        """What config.json says of a model of ours."""
        rotary = model.rotary or Rotary()
        check_expressed(rotary, ["base", "scaling", "llama3"], "rotary.")
        rope = {"rope_type": "default", "rope_theta": rotary.base}
        if rotary.scaling != 1:
            rope |= {"rope_type": "linear", "factor": rotary.scaling}
        if rotary.llama3 is not None:
            rope["rope_type"] = "llama3"
            rope |= {theirs: getattr(rotary.llama3, ours) for ours, theirs in LLAMA3.items()}
        config = super().config_of(model)
        config["num_key_value_heads"] = model.n_kv_heads or model.n_heads
        config["head_dim"] = model.layer_settings.attention.head_width(model.d_model)
        if "bias" in self.settings:
            config["mlp_bias"] = model.bias
        return config | {"rope_parameters": rope, "rope_theta": rotary.base}


def rotation_of(rope: dict) -> dict:
    """The settings of the rotation but for its base, from those of transformers."""
    nested = sorted(name for name, value in rope.items() if isinstance(value, dict))
    if nested:
        expected = "the same for all layers"
        raise ValueError(f"the rotation in config.json differs by layers: {', '.join(nested)}; expected {expected}")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ROPES:
        supported = ", ".join(map(repr, ROPES))
        where = "the rotation in config.json"
        raise ValueError(f"{where} has rope_type={shown(kind)}, supported are {supported}")
    check_keys(rope, ROPES[kind], "the rotation in config.json")
    if kind == "linear":
        return {"scaling": rope.get("factor", 1.0)}
    if kind == "llama3":
        missing = [theirs for theirs in LLAMA3.values() if theirs not in rope]
        if missing:
            raise ValueError(f"the rotation has rope_type='llama3', but no {', '.join(missing)}")
        return {"llama3": {ours: rope[theirs] for ours, theirs in LLAMA3.items()}}
    return {}


# Of the families whose configurations do not say whether there are biases.
WITHOUT_BIAS = {name: key for name, key in Llama.settings.items() if name != "bias"}


class Mistral(Llama):
    """Names and settings of ``MistralForCausalLM``: a Llama without biases, whose attention may have a window."""

    name, architecture, architectures = "mistral", "MistralForCausalLM", ("MistralModel",)
    settings = WITHOUT_BIAS | {"window": ("sliding_window", 4096)}
    constants = {name: value for name, value in Llama.constants.items() if name != "window"}
    constants |= {"bias": False}


class Qwen2(Llama):
    """Names and settings of ``Qwen2ForCausalLM``: a Llama whose queries, keys and values alone have biases."""

    name, architecture, architectures = "qwen2", "Qwen2ForCausalLM", ("Qwen2Model",)
    settings = WITHOUT_BIAS
    constants = Llama.constants | {"bias": False, "qkv_bias": True}
    supported = Llama.supported | {"use_sliding_window": False}
    # How many layers have a window, and which, if there is one.
    other_keys = Llama.other_keys | harmless("sliding_window max_window_layers")

    def rules(self, config):
        """What each key of config.json means: all layers attend to the whole text."""
        n_given = len(config.get("layer_types") or [])  # the number of layers may be forged, and take all memory
        layer_types = ["full_attention"] * min(config.get("num_hidden_layers") or 0, n_given + 1)
        return super().rules(config) | refused_unless({"layer_types": layer_types})


class Qwen3(Qwen2):
    """Names and settings of ``Qwen3ForCausalLM``: each head of the queries and keys is normalised."""

    name, architecture, architectures = "qwen3", "Qwen3ForCausalLM", ("Qwen3Model",)
    settings = Qwen2.settings | {"d_head": ("head_dim", 128)}
    constants = Llama.constants | {"bias": False, "qk_norm": True}
