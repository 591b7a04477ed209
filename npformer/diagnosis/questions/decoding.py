"""Decoding: whether a cache leads to what the whole computation does."""

import numpy as np

from npformer.diagnosis.finding import sign
from npformer.diagnosis.interface import is_word
from npformer.errors import UserError

N_ROWS = 4
TOLERANCE = 1e-2  # of logits, as kernels of one token round otherwise


def cache(subject):
    """Decoding step by step, against the whole computation."""
    if subject.interface.causal is None or not hasattr(subject.architecture, "decoder"):
        raise UserError(f"the model, {type(subject.model).__name__}, has no decoder")
    *sources, ids = subject.inputs
    words = is_word(ids, subject.pad_id)
    rows = np.argsort(words.sum(axis=1))[-N_ROWS:]
    n_steps = int(words[rows].all(axis=0).sum())  # without padding, which no decoder is given
    ids = ids[rows, :n_steps]
    sources = [x[rows] for x in sources]
    decoder = decoder_of(subject, sources, ids)
    y = subject.outputs([*sources, ids])
    for t in range(0 if sources else 1, n_steps):
        parents = np.arange(len(rows))
        if t == max(2, n_steps // 2):  # rows change places, as in beam search
            parents = parents[::-1]
            ids[:, :t] = ids[parents, :t]
            sources = [x[parents] for x in sources]
            y = subject.outputs([*sources, ids])
        off = np.abs(decoder.step(ids[:, t], parents) - y[:, t]).max()
        if not off <= TOLERANCE:
            yield sign(
                "cache differs",
                f"in step {t}, from rows {parents}, logits differ by {off:.2g} from the whole",
            )
            return


def decoder_of(subject, sources, ids):
    """A decoder of these rows, which has read their sources, or a prompt of one token."""
    begin = sources[0] if sources else ids[:, :2]  # of a prompt, the last token is not read yet
    return subject.architecture.decoder(
        subject.full_params,
        begin,
        max_rows=len(ids) + 1,
        max_len=ids.shape[1],
        backend=subject.ops,
    )
