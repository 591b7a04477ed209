"""Decoding with Marian, Hugging Face's encoder-decoder Transformer for translation, at the size of
an npformer model.

Its layers are post-norm, so it cannot use npformer's parameters: the weights are random, and only
the speed can be compared. The arithmetic is the same, except for the order of the norms, and for
one table that is used for both embeddings and the output.
"""

import torch
from transformers import MarianConfig, MarianMTModel

PAD, BOS, EOS = 0, 1, 2


def decoder(model, n_threads):
    """``decode(src, n_new, beam_size)`` -> (B, n_new) ids, at the size of an
    ``npformer.Transformer``.

    Attention "eager" instead of "sdpa", a static cache, and torch.compile with either cache changed
    little (-2 to +10 % with greedy search). Only torch.compile with the growing cache was slower:
    it compiles again and again, and halves the speed of beam search.
    """
    torch.set_num_threads(n_threads)
    torch.manual_seed(0)
    twin = MarianMTModel(configuration(model)).eval()

    @torch.inference_mode()
    def decode(src, n_new, beam_size):
        options = {"num_beams": beam_size, "min_new_tokens": n_new, "max_new_tokens": n_new}
        ids = twin.generate(torch.from_numpy(src), do_sample=False, use_cache=True, **options)
        return ids.numpy()[:, 1:]  # without the begin token

    return decode


def configuration(model):
    """The configuration of a Marian model of the same size."""
    n_encoder, n_decoder = model.depths
    return MarianConfig(
        vocab_size=model.tgt_vocab,
        d_model=model.d_model,
        encoder_layers=n_encoder,
        decoder_layers=n_decoder,
        encoder_attention_heads=model.n_heads,
        decoder_attention_heads=model.n_heads,
        encoder_ffn_dim=model.d_ff,
        decoder_ffn_dim=model.d_ff,
        activation_function=model.activation,
        max_position_embeddings=model.max_len + 1,
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,  # or it would end the longest sequence with the end token
    )
