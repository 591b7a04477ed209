"""From a model to a sequence: the most probable token each time, the best of many beginnings, or by chance.

A model is anything with ``decoder(params, src, max_rows=…, max_len=…, backend=…)``, whose ``step(tokens, parents)``
returns the logits of the next tokens, as ``Transformer`` has it; with ``src_vocab``, ``tgt_vocab``, ``pad_id`` and
``max_len``.
"""

from npformer.decoding.beam import Hypothesis, beam_search
from npformer.decoding.greedy import greedy_decode
from npformer.decoding.rescoring import log_probability
from npformer.decoding.sampling import sample

__all__ = ["Hypothesis", "beam_search", "greedy_decode", "log_probability", "sample"]
