"""Beam search: it extends several prefixes at once, so a good sentence may begin with a less probable word."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npformer.arrays import Array
from npformer.backends import AnyBackend, get_backend
from npformer.decoding.common import FORBIDDEN, NOT_FINITE, checked, forced, no_token
from npformer.operations.options import check_option

SHOWN = 8  # tokens of a hypothesis, in its text


@dataclass(frozen=True, repr=False)
class Hypothesis:
    """One output sequence of beam search.

    Attributes
    ----------
    tokens : tuple of int
        The tokens after the begin token, up to and including the end token, which is missing if the sequence was cut
        at ``max_len``.
    log_probability : float
        The sum of the log-probabilities of all tokens.
    score : float
        ``log_probability`` divided by the length penalty; hypotheses are ranked by it.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float

    def __repr__(self):
        tokens = ", ".join([*map(str, self.tokens[:SHOWN]), *["…"] * (len(self.tokens) > SHOWN)])
        numbers = f"log-probability {self.log_probability:.4g}, score {self.score:.4g}"
        return f"<Hypothesis of {len(self.tokens)} tokens: {tokens}; {numbers}>"


def beam_search(
    model: Any,
    params: dict,
    src: Any,
    *,
    bos_id: int | None = None,
    eos_id: int | Sequence[int] | None = None,
    max_len: int | Array,
    beam_size: int = 5,
    length_penalty: float = 1.0,
    penalty_form: str = "power",
    early_stopping: bool | str = True,
    min_len: int = 0,
    n_best: int = 1,
    backend: AnyBackend = "auto",
) -> list[list[Hypothesis]]:
    """Generate a target for each source by beam search, which keeps the ``beam_size`` best prefixes at each step.

    At each step all prefixes of a source are extended by all tokens. A result with the end token is finished if it is
    among the beam_size most probable ones; the beam_size most probable ones without the end token are the prefixes of
    the next step. The search for a source ends as ``early_stopping`` says, or at ``max_len``, where the unfinished
    prefixes become hypotheses as they are. Padding is never generated.

    Parameters
    ----------
    model : EncoderDecoder or LanguageModel
    params : nested dict
    src, bos_id, eos_id, max_len, min_len, backend
        As for ``greedy_decode``.
    beam_size : int
        1 is greedy decoding.
    length_penalty : float
        α: 0 compares sums of log-probabilities, which favours short sentences; 1 compares their means per token (with
        "power").
    penalty_form : "power" or "gnmt"
        The score is log p / length^α, or log p / ((5 + length) / 6)^α (Wu et al. 2016; the Transformer paper uses it
        with α = 0.6). The length counts the end token, not the begin token.
    early_stopping : True, False or "never"
        When a search ends, as in the library transformers. True: when beam_size hypotheses are finished. False: when,
        moreover, no prefix has a better score than the worst of the beam_size best. "never": when no prefix can have
        one, whatever follows; each step makes the sum smaller, and a length penalty favours the length ``max_len``.
    n_best : int
        Largest number of hypotheses to return for each source, at most beam_size.

    Returns
    -------
    list of lists of Hypothesis
        The best hypotheses found for each source, best first: at least one, and ``n_best`` unless there are not as many
        sequences of at most ``max_len`` tokens, as in a small vocabulary. (There may be better ones that the search
        does not see; a larger beam sees more.)

    Raises
    ------
    ValueError
        As ``greedy_decode``.

    Examples
    --------
    >>> from npformer import Transformer
    >>> model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> src = np.array([[3, 4, 5], [6, 0, 0]])
    >>> found = beam_search(model, model.init(0), src, bos_id=1, eos_id=2, max_len=6, beam_size=3, n_best=2)
    >>> len(found), len(found[0]), found[0][0].score >= found[0][1].score
    (2, 2, True)
    """
    request = checked(model, src, bos_id, eos_id, max_len, min_len)
    beam_size, n_best = check_option("beam_size", beam_size), check_option("n_best", n_best)
    if n_best > beam_size:
        raise ValueError(f"n_best={n_best}, expected at most beam_size={beam_size}")
    if early_stopping not in (True, False, "never"):
        raise ValueError(f"early_stopping={early_stopping!r}, expected True, False or 'never'")
    penalty = length_penalty_of(length_penalty, penalty_form)

    beams = [Beam(beam_size, source, request, penalty, early_stopping) for source in range(len(request.limits))]
    if beams:
        ops, max_rows = get_backend(backend, params), len(beams) * beam_size
        options = {"max_rows": max_rows, "max_len": int(request.limits.max()), "backend": ops}
        search(ops, model.decoder(params, request.sources, **options), params, beams, beam_size, len(request.eos_ids))
    return [sorted(beam.finished, key=lambda hypothesis: -hypothesis.score)[:n_best] for beam in beams]


def length_penalty_of(alpha, form):
    """Return the length penalty, which divides the log-probability, as a function of the length."""
    alpha = check_option("length_penalty", alpha)
    if alpha > 10:
        raise ValueError(f"length_penalty={alpha}, expected 0 to 10; 1 compares means per token")
    if form == "power":
        return lambda length: length**alpha
    if form == "gnmt":
        return lambda length: ((5 + length) / 6) ** alpha
    raise ValueError(f"penalty_form={form!r}, expected 'power' or 'gnmt'")


def search(ops, decoder, params, beams, beam_size, n_ends):
    """Extend all beams step by step until they are done; the prefixes of all beams are the rows of one batch."""
    beams, parents = list(beams), np.arange(len(beams))
    while beams:
        t = len(beams[0].begun[0])
        rows = [len(beam.sums) for beam in beams]
        tokens = np.array([token for beam in beams for token in beam.last_tokens])
        k = 2 * beam_size + 1 + n_ends  # more than needed, as padding and, before min_len, end tokens are discarded
        log_p, ids = decoder.step(tokens, parents, lambda logits, _, k=k: ops.log_softmax_top_k(logits, k))
        if np.isnan(log_p[:, 0]).any():
            raise no_token(NOT_FINITE, params, t)
        going_on, parents, first = [], [], 0
        for beam, n in zip(beams, rows, strict=True):
            kept = beam.grow(log_p[first : first + n], ids[first : first + n])
            if not (kept or beam.finished):
                raise no_token(FORBIDDEN, params, t)
            if kept:
                going_on.append(beam)
                parents += [first + row for row in kept]
            first += n
        beams, parents = going_on, np.array(parents)


class Beam:
    """The beam of one source, which is a row of the request: its unfinished prefixes and its finished hypotheses."""

    def __init__(self, size, source, request, penalty, early_stopping):
        self.size, self.source, self.request = size, source, request
        self.max_len = int(request.limits[source])
        self.penalty, self.early_stopping = penalty, early_stopping
        self.begun = [()]  # tokens of each prefix
        self.last_tokens = [int(request.first_tokens[source])]  # the last one of each, the input of the next step
        self.sums = [0.0]  # log-probability of each prefix
        self.finished = []

    def grow(self, log_p, ids):
        """Extend the prefixes by one token; return the index of the prefix that each new one extends, [] at the end.

        ``log_p`` and ``ids`` (R, K) are the K most probable next tokens of each prefix.
        """
        length = len(self.begun[0]) + 1
        if forced(self.request, length)[self.source]:
            ids = np.full((len(self.sums), 1), self.request.model.forced_eos_id)
            log_p = np.zeros(ids.shape)
        totals = log_p.astype(np.float64) + np.array(self.sums)[:, None]  # a sum may be out of the range of float32
        for token in self.request.forbidden(length):
            totals[ids == token] = -np.inf
        order = np.argsort(-totals, axis=None, kind="stable")
        kept, begun, sums = [], [], []
        for rank, (row, column) in enumerate(zip(*np.unravel_index(order, totals.shape), strict=True)):
            total, token = float(totals[row, column]), int(ids[row, column])
            tokens = (*self.begun[row], token)
            if total == -np.inf or len(kept) == self.size:
                break
            if token in self.request.eos_ids:
                if rank < self.size:
                    self._finish(tokens, total)
            else:
                kept.append(int(row)), begun.append(tokens), sums.append(total)
        if length == self.max_len:
            for tokens, total in zip(begun, sums, strict=True):
                self._finish(tokens, total)
        if length == self.max_len or (len(self.finished) >= self.size and self._is_done(sums, length)):
            return []
        self.begun, self.sums, self.last_tokens = begun, sums, [tokens[-1] for tokens in begun]
        return kept

    def _is_done(self, sums, length):
        if self.early_stopping not in (False, "never") or not sums:
            return True
        longest = self.max_len if self.early_stopping == "never" else length
        worst = sorted(hypothesis.score for hypothesis in self.finished)[-self.size]
        return sums[0] / max(self.penalty(longest), self.penalty(length)) <= worst

    def _finish(self, tokens, total):
        self.finished.append(Hypothesis(tokens, total, total / self.penalty(len(tokens))))
