"""GPT-2 (Radford et al. 2019)."""

from npformer.pretrained.families.family import LIKE_2017, LanguageFamily
from npformer.pretrained.rules import parse_settings, parse_table, warned_unless


class GPT2(LanguageFamily):
    """Names and settings of ``GPT2LMHeadModel``.

    Its linear maps are (in, out), as ours, except for the output.
    """

    name, architectures = "gpt2", ("GPT2LMHeadModel", "GPT2Model")
    names = parse_table("""
        embedding                      wte
        positions                      wpe
        layers.{}.attention_norm       h.{}.ln_1
        layers.{}.attention.qkv        h.{}.attn.c_attn
        layers.{}.attention.out        h.{}.attn.c_proj
        layers.{}.feed_forward_norm    h.{}.ln_2
        layers.{}.feed_forward.hidden  h.{}.mlp.c_fc
        layers.{}.feed_forward.out     h.{}.mlp.c_proj
        layers.norm                    ln_f
        output                         lm_head
        """)
    settings = parse_settings(
        LIKE_2017,
        """
        vocab           vocab_size
        d_model         n_embd
        n_heads         n_head
        n_layers        n_layer
        d_ff            n_inner              null
        max_len         n_positions
        eps             layer_norm_epsilon   1e-5
        activation      activation_function  "gelu_new"
        dropout         resid_pdrop          0.1
        inner_dropout   attn_pdrop           0.1
        tie_embeddings  tie_word_embeddings  true
        pad_id          pad_token_id         null

        positions         =  "learned"
        norm              =  "pre"
        scale_embeddings  =  false

        =  scale_attn_weights               true
        =  scale_attn_by_inverse_layer_idx  false

        harmless  n_ctx reorder_and_upcast_attn summary_activation summary_first_dropout
        harmless  summary_proj_to_labels summary_type summary_use_proj
        """,
    )
    prefix = "transformer."
    unneeded = r".*\.attn\.(masked_)?bias"  # constants that older files hold
    has_linear_transposed = False

    def extra_rules(self, config):
        """The embeddings have the dropout of the sublayers, here."""
        return warned_unless({"embd_pdrop": config["resid_pdrop"]})

    def extra_settings_from(self, config, tensors):
        """A hidden layer is four times as wide as the model where config.json does not say it."""
        if config["n_inner"] is None:
            return {"d_ff": 4 * config.get("n_embd", 0)}
        return {}
