"""What the files of other libraries may say: a table of keys for each kind of file, and the function that applies it.

A table says one of four things of a key. It is read: npformer computes with it. It is harmless: no number that npformer
computes depends on it. A file is refused unless the key has one value, usually its default. Or a warning names the
key unless it has one value: then only a training, or a search for a text, would be another one. Whatever a table does
not know is named in a warning, as it may change numbers.
"""

from typing import Any, NamedTuple

from npformer.checks import shown, warn

Rules = dict[str, "Rule"]
MOST_NAMES = 6  # in an error


class Rule(NamedTuple):
    """What a table says of a key."""

    kind: str  # "read", "harmless", "refused" or "warned"
    values: tuple = ()  # of which the key needs to have one, or it is refused, or named in a warning


def read(keys: str) -> Rules:
    """The keys, in one text, are read."""
    return dict.fromkeys(keys.split(), Rule("read"))


def harmless(keys: str) -> Rules:
    """The keys, in one text, change no number; "general.*" stands for all that begin with "general."."""
    return dict.fromkeys(keys.split(), Rule("harmless"))


def refused_unless(values: dict[str, Any]) -> Rules:
    """A file is refused if one of the keys is there with another value; a tuple has several values."""
    return _with_values("refused", values)


def warned_unless(values: dict[str, Any]) -> Rules:
    """A warning names each of the keys that is there with another value; a tuple has several values."""
    return _with_values("warned", values)


def _with_values(kind, values):
    return {key: Rule(kind, value if isinstance(value, tuple) else (value,)) for key, value in values.items()}


UNKNOWN = Rule("warned")


def check_keys(about: dict, rules: Rules, file: str) -> None:
    """Raise an error if a file says something that is not supported; warn of what it says that is not read.

    >>> check_keys({"head_dim": 64, "use_cache": True}, refused_unless({"head_dim": 32}) | harmless("use_cache"), "x")
    Traceback (most recent call last):
    ValueError: x has head_dim=64, supported is 32
    """
    ignored = []
    for key, value in about.items():
        rule = rule_of(key, rules)
        if rule.kind in ("read", "harmless") or value is None or value in rule.values:
            continue
        if rule.kind == "refused":
            supported = " or ".join(map(repr, rule.values))
            raise ValueError(f"{file} has {key:.80}={shown(value)}, supported is {supported}")
        ignored.append(f"{key:.80}={shown(value)}")
    if ignored:
        warn(f"{file} has keys that npformer does not read: {listed(ignored)}. Results may differ")


def rule_of(key: str, rules: Rules) -> Rule:
    """What a table says of a key, by its name or by that of its group."""
    return rules.get(key) or rules.get(f"{key.partition('.')[0]}.*") or UNKNOWN


def listed(names: list[str]) -> str:
    """Some of many names, for an error.

    >>> listed(["a", "b"])
    'a, b'
    """
    more = len(names) - MOST_NAMES
    return ", ".join(f"{name:.80}" for name in names[:MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


# -- of the library transformers

# How a text is generated. A caller gives such options to ``greedy_decode``, ``beam_search`` and ``sample``, which read
# no files; what these functions do not have at all is named in a warning.
GENERATION = (
    read("bos_token_id eos_token_id pad_token_id decoder_start_token_id forced_eos_token_id")
    | harmless(
        """
        do_sample temperature top_k top_p min_p top_h typical_p epsilon_cutoff eta_cutoff repetition_penalty
        num_beams num_beam_groups num_return_sequences length_penalty early_stopping
        max_length max_new_tokens min_length min_new_tokens max_time
        use_cache cache_implementation cache_config max_cache_len low_memory prefill_chunk_size
        return_dict_in_generate output_scores output_logits output_attentions output_hidden_states
        renormalize_logits remove_invalid_values compile_config disable_compile continuous_batching_config
        is_assistant num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold
        assistant_early_exit assistant_ensemble_weight assistant_lookbehind target_lookbehind
        prompt_lookup_num_tokens max_matching_ngram_size speculation_type use_mtp
        transformers_version trust_remote_code _from_model_config
        """
    )
    | warned_unless(
        {
            "bad_words_ids": None,
            "begin_suppress_tokens": [],
            "constraints": None,
            "diversity_penalty": 0.0,
            "dola_layers": None,
            "encoder_no_repeat_ngram_size": 0,
            "encoder_repetition_penalty": 1.0,
            "exponential_decay_length_penalty": None,
            "force_words_ids": None,
            "forced_bos_token_id": None,
            "guidance_scale": 1.0,
            "no_repeat_ngram_size": 0,
            "penalty_alpha": 0.0,
            "sequence_bias": None,
            "stop_strings": None,
            "suppress_tokens": [],
            "token_healing": False,
            "watermarking_config": None,
        }
    )
)

# config.json of all families. Those of a family are added in its class.
CONFIG = GENERATION | (
    read("model_type architectures tie_word_embeddings pooling pad_id")
    | harmless(
        """
        _name_or_path name_or_path model_name _commit_hash transformers.js_config unsloth_fixed unsloth_version
        _attn_implementation _attn_implementation_autoset _attn_implementation_internal attn_implementation
        dtype torch_dtype use_bfloat16 torchscript initializer_range init_std gradient_checkpointing
        chunk_size_feed_forward return_dict use_return_dict output_past finetuning_task task_specific_params
        id2label label2id num_labels _num_labels problem_type
        tokenizer_class model_max_length sep_token_id mask_token_id cls_token_id
        """
    )
    | refused_unless({"is_decoder": False, "is_encoder_decoder": False, "tie_encoder_decoder": False})
    | refused_unless({"add_cross_attention": False, "cross_attention_hidden_size": None, "pruned_heads": {}})
    | warned_unless({"prefix": ""})
)

ROPE = read("rope_type type rope_theta factor") | refused_unless({"partial_rotary_factor": 1.0})
INDEX = read("weight_map") | harmless("metadata")
