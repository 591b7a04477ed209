"""Decoding: generate sequences with a model by greedy decoding, beam search or sampling.

A model is anything with ``src_vocab``, ``tgt_vocab``, ``pad_id``, ``forced_eos_id``, ``max_len``
and ``decoder(params, src, max_rows=…, max_len=…, backend=…)``, which returns an object like that of
``Transformer.decoder``: its ``step(tokens, parents, then)`` returns ``then(logits of the next
tokens, slice of the rows)``. A language model has ``vocab`` and ``start(prompts, bos_id, slide)``
instead of ``src_vocab``: it makes the ``Prompts`` that its ``decoder`` takes. ``log_probability``
needs no decoder, but ``logits(params, src, tgt_in, backend=…)``.
"""

from npformer.decoding.beam import Hypothesis, beam_search
from npformer.decoding.greedy import greedy_decode
from npformer.decoding.rescoring import log_probability
from npformer.decoding.sampling import sample

__all__ = ["Hypothesis", "beam_search", "greedy_decode", "log_probability", "sample"]
