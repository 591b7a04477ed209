"""What the files of other libraries may say: a table of keys for each kind of file.

A table says one of four things of a key. It is read: npformer computes with it. It is harmless: no
number that npformer computes depends on it. A file is refused unless the key has one of its
supported values, usually its default. Or a warning names the key unless it has one of its usual
values: with another one only a training, or a search for a text, would be different. Whatever a
table does not know is named in a warning, as it may change numbers.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from npformer.checks import shown, warn

Rules = dict[str, "Rule"]
MOST_NAMES = 6  # in an error


class Rule(NamedTuple):
    """What a table says of a key."""

    kind: str  # "read", "harmless", "refused" or "warned"
    values: tuple = ()  # those that are supported, or usual


def read(keys: str) -> Rules:
    """The keys, in one text, are read."""
    return dict.fromkeys(keys.split(), Rule("read"))


def harmless(keys: str) -> Rules:
    """The keys, in one text, change no number; "a.*" stands for all that begin with "a."."""
    return dict.fromkeys(keys.split(), Rule("harmless"))


def refused_unless(values: dict[str, Any]) -> Rules:
    """A file is refused if it has a key with another value; a tuple has several values."""
    return _with_values("refused", values)


def warned_unless(values: dict[str, Any]) -> Rules:
    """A warning names each key that has another value; a tuple has several values."""
    return _with_values("warned", values)


def in_lines(text: str) -> dict[str, Any]:
    r"""Keys with the value that each may have, in JSON, one key in a line.

    >>> in_lines("logit_scale 1.0\nuse_alibi false")
    {'logit_scale': 1.0, 'use_alibi': False}
    """
    values = {}
    for line in text.strip().splitlines():
        key, value = line.split(maxsplit=1)
        values[key] = json.loads(value)
    return values


def _with_values(kind, values):
    rules = {}
    for key, value in values.items():
        rules[key] = Rule(kind, value if isinstance(value, tuple) else (value,))
    return rules


UNKNOWN = Rule("warned")


def parse_table(text: str) -> dict[str, str]:
    r"""A name of ours and one of theirs in a line; more names of theirs have lines of their own.

    >>> parse_table("hidden gate\n up\nout down")
    {'hidden': 'gate up', 'out': 'down'}
    """
    names: dict[str, str] = {}
    for line in text.strip().splitlines():
        *ours, theirs = line.split()
        if ours:
            [name] = ours
            names[name] = theirs
        else:
            names[name] += f" {theirs}"
    return names


def settings_and_defaults(*tables: str) -> tuple[dict[str, str], dict[str, Any]]:
    r"""Settings of ours with the keys of theirs, and what these mean where they are missing.

    A line has a setting and its key, and then a value in JSON if a file need not have the key.

    >>> settings_and_defaults("vocab vocab_size\nd_ff n_inner null")
    ({'vocab': 'vocab_size', 'd_ff': 'n_inner'}, {'n_inner': None})
    """
    settings: dict[str, str] = {}
    defaults: dict[str, Any] = {}
    for text in tables:
        for line in text.strip().splitlines():
            ours, key, *values = line.split()
            settings[ours] = key
            if values:
                defaults[key] = json.loads(values[0])
    return settings, defaults


def check_keys(about: dict, rules: Rules, file: str) -> None:
    """Raise if a file says something that is not supported; warn of what it says that is not read.

    >>> rules = refused_unless({"head_dim": 32}) | harmless("use_cache")
    >>> check_keys({"head_dim": 64, "use_cache": True}, rules, "x")
    Traceback (most recent call last):
    ValueError: x has head_dim=64, supported is 32
    """
    ignored = []
    for key, value in about.items():
        rule = rule_of(key, rules)
        if rule.kind in ("read", "harmless") or value is None or value in rule.values:
            continue
        setting = f"{key:.80}={shown(value)}"
        if rule.kind == "refused":
            supported = " or ".join(map(repr, rule.values))
            raise ValueError(f"{file} has {setting}, supported is {supported}")
        ignored.append(setting)
    if ignored:
        warn(f"{file} has keys that npformer does not read: {listed(ignored)}. Results may differ")


def check_complete(about: dict, keys: Iterable[str], file: str) -> None:
    """Raise if a file does not have all of these keys."""
    missing = sorted({*keys} - about.keys())
    if missing:
        raise ValueError(f"{file} has no {', '.join(missing)}")


def check_supported(setting: str, value: Any, supported: Iterable[str]) -> None:
    """Raise unless a value is one of these texts; ``setting`` says where it stands.

    >>> check_supported("x.json has kind", 3, ["a", "b"])
    Traceback (most recent call last):
    ValueError: x.json has kind=3, supported are a, b
    """
    if value not in list(supported):
        raise ValueError(f"{setting}={shown(value)}, supported are {', '.join(supported)}")


def rule_of(key: str, rules: Rules) -> Rule:
    """What a table says of a key, by its name or by that of its group."""
    group = key.rpartition(".")[0]
    while key not in rules and group:  # "a.b.c" is of the groups "a.b.*" and "a.*"
        key = f"{group}.*"
        group = group.rpartition(".")[0]
    return rules.get(key, UNKNOWN)


def listed(names: list[str]) -> str:
    """Some of many names, for an error.

    >>> listed(["a", "b"])
    'a, b'
    """
    text = ", ".join(f"{name:.80}" for name in names[:MOST_NAMES])
    n_more = len(names) - MOST_NAMES
    return f"{text} and {n_more:,} more" if n_more > 0 else text


# -- of the library transformers

# How a text is generated. A caller gives such options to ``greedy_decode``, ``beam_search`` and
# ``sample``, which read no files; what these functions do not have at all is named in a warning.
# (A Marian reads forced_eos_token_id.)
GENERATION_KEYS = read("bos_token_id eos_token_id pad_token_id decoder_start_token_id")
GENERATION_KEYS |= harmless("""
    do_sample temperature top_k top_p min_p top_h typical_p epsilon_cutoff eta_cutoff
    repetition_penalty
    num_beams num_beam_groups num_return_sequences length_penalty early_stopping
    max_length max_new_tokens min_length min_new_tokens max_time
    use_cache cache_implementation cache_config max_cache_len low_memory prefill_chunk_size
    return_dict_in_generate output_scores output_logits output_attentions output_hidden_states
    renormalize_logits remove_invalid_values compile_config disable_compile
    continuous_batching_config
    is_assistant num_assistant_tokens num_assistant_tokens_schedule
    assistant_confidence_threshold
    assistant_early_exit assistant_ensemble_weight assistant_lookbehind target_lookbehind
    prompt_lookup_num_tokens max_matching_ngram_size speculation_type use_mtp
    transformers_version trust_remote_code _from_model_config
    """)
GENERATION_KEYS |= warned_unless(
    in_lines("""
    bad_words_ids                     null
    begin_suppress_tokens             []
    constraints                       null
    diversity_penalty                 0.0
    dola_layers                       null
    encoder_no_repeat_ngram_size      0
    encoder_repetition_penalty        1.0
    exponential_decay_length_penalty  null
    force_words_ids                   null
    forced_bos_token_id               null
    forced_eos_token_id               null
    guidance_scale                    1.0
    no_repeat_ngram_size              0
    penalty_alpha                     0.0
    sequence_bias                     null
    stop_strings                      null
    suppress_tokens                   []
    token_healing                     false
    watermarking_config               null
    """)
)

# config.json of all families. Those of a family are added in its class.
CONFIG_KEYS = GENERATION_KEYS | read("model_type architectures tie_word_embeddings")
CONFIG_KEYS |= read("pooling after_pooling pad_id adapters")  # which npformer alone writes
CONFIG_KEYS |= harmless("""
    _name_or_path name_or_path model_name _commit_hash transformers.js_config unsloth_fixed
    unsloth_version
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal
    attn_implementation
    dtype torch_dtype use_bfloat16 torchscript initializer_range init_std gradient_checkpointing
    chunk_size_feed_forward return_dict use_return_dict output_past finetuning_task
    task_specific_params
    id2label label2id num_labels _num_labels problem_type
    tokenizer_class model_max_length sep_token_id mask_token_id cls_token_id
    """)
CONFIG_KEYS |= refused_unless(
    in_lines("""
    add_cross_attention          false
    cross_attention_hidden_size  null
    is_decoder                   false
    is_encoder_decoder           false
    pruned_heads                 {}
    tie_encoder_decoder          false
    """)
)
CONFIG_KEYS |= warned_unless({"prefix": ""})

WHOLE_HEADS_KEYS = refused_unless({"partial_rotary_factor": 1.0})
ROPE_KEYS = read("rope_type type rope_theta factor") | WHOLE_HEADS_KEYS
INDEX_KEYS = read("weight_map") | harmless("metadata")

# tokenizer_config.json and special_tokens_map.json. What tokenizer.json says of the same thing is
# added where both are read. tokenizer.json itself is read as a whole by the library tokenizers,
# which refuses what it does not know.
TOKENIZER_KEYS = read("""
    bos_token eos_token pad_token unk_token sep_token cls_token mask_token chat_template
    additional_special_tokens extra_special_tokens
    model_specific_special_tokens added_tokens_decoder
    add_bos_token add_eos_token add_prefix_space
    do_lower_case strip_accents tokenize_chinese_chars
    """)
TOKENIZER_KEYS |= harmless("""
    tokenizer_class processor_class auto_map name_or_path _name_or_path special_tokens_map_file
    tokenizer_file
    _commit_hash transformers_version backend is_local local_files_only from_slow legacy errors
    vocab_size
    model_max_length max_len max_length stride truncation_side truncation_strategy truncation
    padding
    padding_side pad_to_multiple_of pad_token_type_id model_input_names
    clean_up_tokenization_spaces spaces_between_special_tokens use_default_system_prompt
    source_lang target_lang separate_vocabs sp_model_kwargs do_basic_tokenize never_split
    use_fast
    unk_id bos_id eos_id pad_id trim_offsets add_special_tokens
    """)
TOKENIZER_KEYS |= warned_unless({"split_special_tokens": False, "fix_mistral_regex": None})


# -- of the library sentence-transformers

# sentence_bert_config.json
TEXTS_KEYS = read("max_seq_length do_lower_case") | harmless("unpad_inputs")
TEXTS_KEYS |= refused_unless(
    in_lines("""
    config_args         {}
    config_kwargs       {}
    document_length     null
    modality_config     {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    model_args          {}
    model_kwargs        {}
    module_output_name  "token_embeddings"
    processing_kwargs   {}
    processor_kwargs    {}
    query_expansion     null
    query_length        null
    tokenizer_args      {}
    transformer_task    "feature-extraction"
    """)
)

# config_sentence_transformers.json
PROMPTS_KEYS = read("prompts default_prompt_name similarity_fn_name") | harmless("__version__")
PROMPTS_KEYS |= refused_unless({"model_type": "SentenceTransformer"})

# config.json of the modules that modules.json names
VECTOR_KEYS = refused_unless(
    {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
)
DENSE_KEYS = read("in_features out_features bias activation_function")
MODULE_KEYS = {
    "Pooling": read("""
        pooling_mode include_prompt embedding_dimension word_embedding_dimension
        pooling_mode_cls_token pooling_mode_max_tokens pooling_mode_mean_tokens
        pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens pooling_mode_lasttoken
        """),
    "Dense": DENSE_KEYS | refused_unless({"use_residual": False}) | VECTOR_KEYS,
    "LayerNorm": read("dimension"),
    "Normalize": VECTOR_KEYS,
    "Dropout": harmless("dropout"),
}


# -- of llama.cpp

GGUF_KEYS = read("""
    general.architecture general.alignment split.count
    tokenizer.ggml.model tokenizer.ggml.pre
    tokenizer.ggml.tokens tokenizer.ggml.token_type
    tokenizer.ggml.merges tokenizer.ggml.add_bos_token tokenizer.ggml.add_eos_token
    tokenizer.ggml.bos_token_id tokenizer.ggml.eos_token_id
    tokenizer.ggml.padding_token_id
    tokenizer.ggml.eot_token_id tokenizer.ggml.eom_token_id
    tokenizer.ggml.unknown_token_id
    tokenizer.chat_template tokenizer.chat_templates tokenizer.chat_template.*
    """)
GGUF_KEYS |= harmless("""
    general.* quantize.* split.no split.tensors.count imatrix.*
    tokenizer.ggml.scores tokenizer.ggml.token_type_count tokenizer.huggingface.json
    tokenizer.ggml.seperator_token_id tokenizer.ggml.separator_token_id
    tokenizer.ggml.cls_token_id
    tokenizer.ggml.mask_token_id tokenizer.ggml.prefix_token_id tokenizer.ggml.middle_token_id
    tokenizer.ggml.suffix_token_id tokenizer.ggml.fim_pre_token_id
    tokenizer.ggml.fim_suf_token_id
    tokenizer.ggml.fim_mid_token_id tokenizer.ggml.fim_pad_token_id
    tokenizer.ggml.fim_rep_token_id
    tokenizer.ggml.fim_sep_token_id
    """)
GGUF_KEYS |= refused_unless({"general.type": "model"})
GGUF_KEYS |= warned_unless(
    {
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.ggml.add_sep_token": False,
        "tokenizer.ggml.remove_extra_whitespaces": False,
    }
)

# The keys of a GGUF file that begin with the name of its architecture, such as "llama.".
GGUF_MODEL_KEYS = read("""
    embedding_length attention.head_count attention.head_count_kv block_count feed_forward_length
    context_length attention.layer_norm_rms_epsilon rope.dimension_count
    rope.freq_base vocab_size
    rope.scaling.type rope.scaling.factor rope.scale_linear
    attention.key_length attention.value_length
    rope.scaling.original_context_length
    """)
GGUF_MODEL_KEYS |= harmless("rope.scaling.finetuned tensor_data_layout")
GGUF_MODEL_KEYS |= refused_unless(
    in_lines("""
    attention.causal          true
    attention.clamp_kqv       0.0
    attention.max_alibi_bias  0.0
    attention.scale           0.0
    attention.sliding_window  0
    attn_logit_softcapping    0.0
    expert_count              0
    expert_used_count         0
    final_logit_softcapping   0.0
    pooling_type              0
    rope.scaling.attn_factor  1.0
    use_parallel_residual     false
    """)
)
NO_SCALE = 0.0, 1.0  # as files say it
GGUF_MODEL_KEYS |= refused_unless(
    {"embedding_scale": NO_SCALE, "logit_scale": NO_SCALE, "residual_scale": NO_SCALE}
)
