"""The exercises, in the order of the book."""

from importlib import import_module

from npformer.exercises.exercise import Exercise

ORDER = """
soft_lookup softmax fix_softmax attention
split_heads fix_split merge_heads multi_head_attention fix_multi_head
causal_mask fix_square_mask padding_mask fix_additive_mask
masked_attention fix_polarity fix_causal_attention
sinusoidal_positions fix_positions layer_norm greedy
linear_backward softmax_backward attention_backward running_attention layer_norm_backward
relu_backward gelu_backward
dropout_backward embedding_backward cross_entropy fix_loss residual_backward
back_1_norm back_2_feed_forward back_3_norm back_4_values back_5_scores back_6_maps
smoothed_cross_entropy adam_step noam_rate beam_search nucleus
"""

EXERCISES: dict[str, Exercise] = {
    name: import_module(f"npformer.exercises.tasks.{name}").exercise for name in ORDER.split()
}
