"""What the files of other libraries may say: a table of keys for each kind of file.

``npformer.pretrained.rules`` says what the words of a table mean.
"""

from npformer.pretrained.rules import parse_rules

# -- of the library transformers

# How a text is generated. A caller gives such options to ``greedy_decode``, ``beam_search`` and
# ``sample``, which read no files; what these functions do not have at all is named in a warning.
# (A Marian reads forced_eos_token_id.)
GENERATION_KEYS = parse_rules("""
    read      bos_token_id eos_token_id pad_token_id decoder_start_token_id
    harmless  do_sample temperature top_k top_p min_p repetition_penalty
    harmless  num_beams num_beam_groups num_return_sequences length_penalty early_stopping
    harmless  max_length max_new_tokens min_length min_new_tokens max_time
    harmless  use_cache cache_implementation cache_config max_cache_len low_memory
    harmless  prefill_chunk_size
    harmless  return_dict_in_generate output_scores output_logits output_attentions
    harmless  output_hidden_states
    harmless  renormalize_logits remove_invalid_values compile_config disable_compile
    harmless  continuous_batching_config
    harmless  is_assistant num_assistant_tokens num_assistant_tokens_schedule
    harmless  assistant_confidence_threshold
    harmless  assistant_early_exit assistant_ensemble_weight assistant_lookbehind
    harmless  target_lookbehind
    harmless  prompt_lookup_num_tokens max_matching_ngram_size speculation_type use_mtp
    harmless  transformers_version trust_remote_code _from_model_config
    warned    bad_words_ids                     null
    warned    begin_suppress_tokens             []
    warned    constraints                       null
    warned    diversity_penalty                 0.0
    warned    dola_layers                       null
    warned    epsilon_cutoff                    0.0
    warned    eta_cutoff                        0.0
    warned    top_h                             null
    warned    typical_p                         1.0
    warned    encoder_no_repeat_ngram_size      0
    warned    encoder_repetition_penalty        1.0
    warned    exponential_decay_length_penalty  null
    warned    force_words_ids                   null
    warned    forced_bos_token_id               null
    warned    forced_eos_token_id               null
    warned    guidance_scale                    1.0
    warned    no_repeat_ngram_size              0
    warned    penalty_alpha                     0.0
    warned    sequence_bias                     null
    warned    stop_strings                      null
    warned    suppress_tokens                   []
    warned    token_healing                     false
    warned    watermarking_config               null
    """)

# config.json of all families. Those of a family are added in its class. npformer alone writes
# pooling, after_pooling, pad_id and adapters.
CONFIG_KEYS = GENERATION_KEYS | parse_rules("""
    read      model_type architectures tie_word_embeddings
    read      pooling after_pooling pad_id adapters
    harmless  _name_or_path name_or_path model_name _commit_hash transformers.js_config
    harmless  unsloth_fixed
    harmless  unsloth_version
    harmless  _attn_implementation _attn_implementation_autoset _attn_implementation_internal
    harmless  attn_implementation
    harmless  dtype torch_dtype use_bfloat16 torchscript initializer_range init_std
    harmless  gradient_checkpointing
    harmless  chunk_size_feed_forward return_dict use_return_dict output_past finetuning_task
    harmless  task_specific_params
    harmless  id2label label2id num_labels _num_labels problem_type
    harmless  tokenizer_class model_max_length sep_token_id mask_token_id cls_token_id
    refused   add_cross_attention          false
    refused   cross_attention_hidden_size  null
    refused   is_decoder                   false
    refused   is_encoder_decoder           false
    refused   pruned_heads                 {}
    refused   tie_encoder_decoder          false
    warned    prefix  ""
    """)

ROPE_KEYS = parse_rules("""
    read     rope_type type rope_theta factor
    refused  partial_rotary_factor  1.0
    """)
INDEX_KEYS = parse_rules("""
    read      weight_map
    harmless  metadata
    """)

# tokenizer_config.json and special_tokens_map.json. What tokenizer.json says of the same thing is
# added where both are read. tokenizer.json itself is read as a whole by the library tokenizers,
# which refuses what it does not know.
TOKENIZER_KEYS = parse_rules("""
    read      bos_token eos_token pad_token unk_token sep_token cls_token mask_token chat_template
    read      additional_special_tokens extra_special_tokens
    read      model_specific_special_tokens added_tokens_decoder
    read      add_bos_token add_eos_token add_prefix_space
    read      do_lower_case strip_accents tokenize_chinese_chars
    harmless  tokenizer_class processor_class auto_map name_or_path _name_or_path
    harmless  special_tokens_map_file
    harmless  tokenizer_file
    harmless  _commit_hash transformers_version backend is_local local_files_only from_slow legacy
    harmless  errors
    harmless  vocab_size
    harmless  model_max_length max_len max_length stride truncation_side truncation_strategy
    harmless  truncation
    harmless  padding
    harmless  padding_side pad_to_multiple_of pad_token_type_id model_input_names
    harmless  clean_up_tokenization_spaces spaces_between_special_tokens use_default_system_prompt
    harmless  source_lang target_lang separate_vocabs sp_model_kwargs do_basic_tokenize
    harmless  never_split
    harmless  use_fast
    harmless  unk_id bos_id eos_id pad_id trim_offsets add_special_tokens
    warned    split_special_tokens  false
    warned    fix_mistral_regex     null
    """)


# -- of the library sentence-transformers

# sentence_bert_config.json
TEXTS_KEYS = parse_rules("""
    read      max_seq_length do_lower_case
    harmless  unpad_inputs
    refused   config_args         {}
    refused   config_kwargs       {}
    refused   document_length     null
    refused   modality_config {"text":{"method":"forward","method_output_name":"last_hidden_state"}}
    refused   model_args          {}
    refused   model_kwargs        {}
    refused   module_output_name  "token_embeddings"
    refused   processing_kwargs   {}
    refused   processor_kwargs    {}
    refused   query_expansion     null
    refused   query_length        null
    refused   tokenizer_args      {}
    refused   transformer_task    "feature-extraction"
    """)

# config_sentence_transformers.json
PROMPTS_KEYS = parse_rules("""
    read      prompts default_prompt_name similarity_fn_name
    harmless  __version__
    refused   model_type  "SentenceTransformer"
    """)

# config.json of the modules that modules.json names
VECTOR_KEYS = parse_rules("""
    refused   module_input_name   "sentence_embedding"
    refused   module_output_name  "sentence_embedding"
    """)
DENSE_KEYS = parse_rules("""
    read      in_features out_features bias activation_function
    refused   use_residual  false
    """)
MODULE_KEYS = {
    "Pooling": parse_rules("""
        read  pooling_mode include_prompt embedding_dimension word_embedding_dimension
        read  pooling_mode_cls_token pooling_mode_max_tokens pooling_mode_mean_tokens
        read  pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens
        read  pooling_mode_lasttoken
        """),
    "Dense": DENSE_KEYS | VECTOR_KEYS,
    "LayerNorm": parse_rules("read dimension"),
    "Normalize": VECTOR_KEYS,
    "Dropout": parse_rules("harmless dropout"),
}


# -- of llama.cpp

GGUF_KEYS = parse_rules("""
    read      general.architecture general.alignment split.count
    read      tokenizer.ggml.model tokenizer.ggml.pre
    read      tokenizer.ggml.tokens tokenizer.ggml.token_type
    read      tokenizer.ggml.merges tokenizer.ggml.add_bos_token tokenizer.ggml.add_eos_token
    read      tokenizer.ggml.bos_token_id tokenizer.ggml.eos_token_id
    read      tokenizer.ggml.padding_token_id
    read      tokenizer.ggml.eot_token_id tokenizer.ggml.eom_token_id
    read      tokenizer.ggml.unknown_token_id
    read      tokenizer.chat_template tokenizer.chat_templates tokenizer.chat_template.*
    harmless  general.* quantize.* split.no split.tensors.count imatrix.*
    harmless  tokenizer.ggml.scores tokenizer.ggml.token_type_count tokenizer.huggingface.json
    harmless  tokenizer.ggml.seperator_token_id tokenizer.ggml.separator_token_id
    harmless  tokenizer.ggml.cls_token_id
    harmless  tokenizer.ggml.mask_token_id tokenizer.ggml.prefix_token_id
    harmless  tokenizer.ggml.middle_token_id
    harmless  tokenizer.ggml.suffix_token_id tokenizer.ggml.fim_pre_token_id
    harmless  tokenizer.ggml.fim_suf_token_id
    harmless  tokenizer.ggml.fim_mid_token_id tokenizer.ggml.fim_pad_token_id
    harmless  tokenizer.ggml.fim_rep_token_id
    harmless  tokenizer.ggml.fim_sep_token_id
    refused   general.type  "model"
    warned    tokenizer.ggml.add_space_prefix          false
    warned    tokenizer.ggml.add_sep_token             false
    warned    tokenizer.ggml.remove_extra_whitespaces  false
    """)

# The keys of a GGUF file that begin with the name of its architecture, such as "llama.".
GGUF_MODEL_KEYS = parse_rules("""
    read      embedding_length attention.head_count attention.head_count_kv block_count
    read      feed_forward_length
    read      context_length attention.layer_norm_rms_epsilon rope.dimension_count
    read      rope.freq_base vocab_size
    read      rope.scaling.type rope.scaling.factor rope.scale_linear
    read      attention.key_length attention.value_length
    read      rope.scaling.original_context_length
    harmless  rope.scaling.finetuned tensor_data_layout
    refused   attention.causal          true
    refused   attention.clamp_kqv       0.0
    refused   attention.max_alibi_bias  0.0
    refused   attention.scale           0.0
    refused   attention.sliding_window  0
    refused   attn_logit_softcapping    0.0
    refused   expert_count              0
    refused   expert_used_count         0
    refused   final_logit_softcapping   0.0
    refused   pooling_type              0
    refused   rope.scaling.attn_factor  1.0
    refused   use_parallel_residual     false
    refused   embedding_scale           0.0 or 1.0
    refused   logit_scale               0.0 or 1.0
    refused   residual_scale            0.0 or 1.0
    """)
