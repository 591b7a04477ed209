"""Llama (Touvron et al. 2023), and models that differ little from it: Mistral, Qwen2 and Qwen3."""

from npformer.errors import UserError
from npformer.operations.options import check_expressed
from npformer.operations.settings import Rotary
from npformer.pretrained.families.family import SIZES, LanguageFamily
from npformer.pretrained.keys import ROPE_KEYS
from npformer.pretrained.rules import (
    check_complete,
    check_keys,
    check_supported,
    parse_rules,
    parse_settings,
    parse_table,
    refused_unless,
)

LLAMA3_KEYS = parse_table("""
    factor            factor
    original_max_len  original_max_position_embeddings
    low_freq_factor   low_freq_factor
    high_freq_factor  high_freq_factor
    """)
# How positions may be scaled, and what is said of each way.
ROPE_KEYS_OF = {
    "default": ROPE_KEYS,
    "linear": ROPE_KEYS,
    "llama3": ROPE_KEYS | parse_rules(f"read {' '.join(LLAMA3_KEYS.values())}"),
}
LLAMA_SETTINGS = """
    n_kv_heads      num_key_value_heads  null
    d_head          head_dim             null
    eps             rms_norm_eps         1e-6
    inner_dropout   attention_dropout    0.0
    bias            attention_bias       false
    tie_embeddings  tie_word_embeddings  false
    pad_id          pad_token_id         null
    rotary          -
    -               rope_theta           10000.0

    positions         =  "rotary"
    norm              =  "pre"
    norm_type         =  "rms_norm"
    activation        =  "swiglu"
    scale_embeddings  =  false
    window            =  null

    =  hidden_act  "silu"

    read      attention_bias mlp_bias rope_scaling rope_parameters
    harmless  pretraining_tp rope_interleaved is_llama_config
    refused   partial_rotary_factor  1.0
    """
# How many layers have a window, and which, if there is one.
NO_WINDOW = """
    =         use_sliding_window  false
    harmless  sliding_window max_window_layers
    """
ROTATION = "the rotation in config.json"  # in an error


class Llama(LanguageFamily):
    """Names and settings of ``LlamaForCausalLM``."""

    name, architectures = "llama", ("LlamaForCausalLM", "LlamaModel")
    names = parse_table("""
        embedding                      embed_tokens
        layers.{}.attention_norm       layers.{}.input_layernorm
        layers.{}.attention.qkv        layers.{}.self_attn.q_proj
                                       layers.{}.self_attn.k_proj
                                       layers.{}.self_attn.v_proj
        layers.{}.attention.q_norm     layers.{}.self_attn.q_norm
        layers.{}.attention.k_norm     layers.{}.self_attn.k_norm
        layers.{}.attention.out        layers.{}.self_attn.o_proj
        layers.{}.feed_forward_norm    layers.{}.post_attention_layernorm
        layers.{}.feed_forward.hidden  layers.{}.mlp.gate_proj
                                       layers.{}.mlp.up_proj
        layers.{}.feed_forward.out     layers.{}.mlp.down_proj
        layers.norm                    norm
        output                         lm_head
        """)
    settings = parse_settings(SIZES, LLAMA_SETTINGS)
    unneeded = r".*\.rotary_emb\.inv_freq"

    def extra_rules(self, config):
        """There are biases everywhere or nowhere."""
        has_mlp_bias = bool(config.get("mlp_bias"))
        if has_mlp_bias and not config["attention_bias"]:
            return refused_unless({"mlp_bias": False})
        return refused_unless({"attention_bias": has_mlp_bias})

    def extra_settings_from(self, config, tensors):
        """The rotation, and the width of a head if it is not its part of the model's."""
        settings = {}
        n_heads = config.get("num_attention_heads")
        if n_heads and config["head_dim"] == config.get("hidden_size", 0) / n_heads:
            settings["d_head"] = None
        rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
        rotary = rotation_of(rope)
        rotary["base"] = rope.get("rope_theta", config["rope_theta"])
        return settings | {"rotary": rotary}

    def extra_keys_for(self, model):
        """The keys of the rotation, and numbers that are None in ours."""
        rotary = model.rotary or Rotary()
        check_expressed(rotary, ["base", "scaling", "llama3"], "rotary.")
        rope = {"rope_type": "default", "rope_theta": rotary.base}
        if rotary.scaling != 1:
            rope |= {"rope_type": "linear", "factor": rotary.scaling}
        if rotary.llama3 is not None:
            rope["rope_type"] = "llama3"
            rope |= {key: getattr(rotary.llama3, ours) for ours, key in LLAMA3_KEYS.items()}
        keys = {"rope_parameters": rope, "rope_theta": rotary.base}
        keys["num_key_value_heads"] = model.n_kv_heads or model.n_heads
        keys["head_dim"] = model.layer_settings.attention.head_width(model.d_model)
        if "bias" in self.settings.key_of:
            keys["mlp_bias"] = model.bias
        return keys


def rotation_of(rope: dict) -> dict:
    """The settings of the rotation except for its base, from those of transformers."""
    nested = sorted(name for name, value in rope.items() if isinstance(value, dict))
    if nested:
        names = ", ".join(nested)
        raise UserError(f"{ROTATION} differs by layers: {names}; expected the same for all layers")
    kind = rope.get("rope_type", rope.get("type", "default"))
    check_supported(f"{ROTATION} has rope_type", kind, ROPE_KEYS_OF)
    check_keys(rope, ROPE_KEYS_OF[kind], ROTATION)
    if kind == "linear":
        return {"scaling": rope.get("factor", 1.0)}
    if kind == "llama3":
        check_complete(rope, LLAMA3_KEYS.values(), ROTATION)
        return {"llama3": {ours: rope[key] for ours, key in LLAMA3_KEYS.items()}}
    return {}


class Mistral(Llama):
    """Names and settings of ``MistralForCausalLM``.

    It is a Llama without biases, whose attention may have a window.
    """

    name, architectures = "mistral", ("MistralForCausalLM", "MistralModel")
    settings = parse_settings(
        SIZES,
        LLAMA_SETTINGS,
        """
        window  sliding_window  4096
        bias    =               false
        """,
    )


class Qwen2(Llama):
    """Names and settings of ``Qwen2ForCausalLM``.

    It is a Llama whose queries, keys and values alone have biases.
    """

    name, architectures = "qwen2", ("Qwen2ForCausalLM", "Qwen2Model")
    settings = parse_settings(
        SIZES,
        LLAMA_SETTINGS,
        """
        bias      =                   false
        qkv_bias  =                   true
        """,
        NO_WINDOW,
    )

    def extra_rules(self, config):
        """All layers attend to the whole text."""
        # The number of layers may be forged: a list of so many would take all memory.
        n_listed = len(config.get("layer_types") or [])
        n_layers = min(config.get("num_hidden_layers") or 0, n_listed + 1)
        everywhere = refused_unless({"layer_types": ["full_attention"] * n_layers})
        return super().extra_rules(config) | everywhere


class Qwen3(Qwen2):
    """Names and settings of ``Qwen3ForCausalLM``: heads of queries and keys are normalised."""

    name, architectures = "qwen3", ("Qwen3ForCausalLM", "Qwen3Model")
    settings = parse_settings(
        SIZES,
        LLAMA_SETTINGS,
        """
        bias     =                   false
        qk_norm  =                   true
        -        head_dim            128
        """,
        NO_WINDOW,
    )
