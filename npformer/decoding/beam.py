"""Beam search: several prefixes at once, as a good sentence may begin with a less probable word."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.backends import AnyBackend, get_backend
from npformer.checks import check_choice
from npformer.decoding.generation import FORBIDDEN, NOT_FINITE, no_token
from npformer.decoding.request import Request, checked_request
from npformer.errors import UserError
from npformer.operations.options import check_option

SHOWN = 8  # tokens of a hypothesis, in its text


@dataclass(frozen=True, repr=False)
class Hypothesis:
    """One output sequence of beam search.

    Attributes
    ----------
    tokens : tuple of int
        The tokens after the begin token, up to and including the end token, which is missing if the
        sequence was cut at ``max_len``.
    log_probability : float
        The sum of the log-probabilities of all tokens.
    score : float
        ``log_probability`` divided by the length penalty; hypotheses are ranked by it.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float

    def __repr__(self):
        tokens = ", ".join(map(str, self.tokens[:SHOWN]))
        if len(self.tokens) > SHOWN:
            tokens += ", …"
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
    """Generate a target for each source by beam search, from the ``beam_size`` best prefixes.

    At each step all prefixes of a source are extended by all tokens. A result with the end token is
    finished if it is among the beam_size most probable ones; the beam_size most probable ones
    without the end token are the prefixes of the next step. The search for a source ends as
    ``early_stopping`` says, or at ``max_len``, where the unfinished prefixes become hypotheses as
    they are. Padding is never generated.

    Parameters
    ----------
    model : EncoderDecoder or LanguageModel
    params : nested dict
    src, bos_id, eos_id, max_len, min_len, backend
        As for ``greedy_decode``.
    beam_size : int
        1 is greedy decoding.
    length_penalty : float
        α: 0 compares sums of log-probabilities, which favours short sentences; 1 compares their
        means per token (with "power").
    penalty_form : "power" or "gnmt"
        The score is log p / length^α, or log p / ((5 + length) / 6)^α (Wu et al. 2016; the
        Transformer paper uses it with α = 0.6). The length counts the end token, not the begin
        token.
    early_stopping : True, False or "never"
        When a search ends, as in the library transformers. True: when beam_size hypotheses are
        finished. False: when, moreover, no prefix has a better score than the worst of the
        beam_size best. "never": when no prefix can have one, whatever follows; each step makes the
        sum smaller, and a length penalty favours the length ``max_len``.
    n_best : int
        Largest number of hypotheses to return for each source, at most beam_size.

    Returns
    -------
    list of lists of Hypothesis
        The best hypotheses found for each source, best first: at least one, and ``n_best`` unless
        there are not as many sequences of at most ``max_len`` tokens, as in a small vocabulary.
        (There may be better ones that the search does not see; a larger beam sees more.)

    Raises
    ------
    UserError
        As ``greedy_decode``.

    Examples
    --------
    >>> from npformer import Transformer
    >>> model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> src = np.array([[3, 4, 5], [6, 0, 0]])
    >>> options = {"bos_id": 1, "eos_id": 2, "max_len": 6, "beam_size": 3, "n_best": 2}
    >>> found = beam_search(model, model.init(0), src, **options)
    >>> len(found), len(found[0]), found[0][0].score >= found[0][1].score
    (2, 2, True)
    """
    request = checked_request(model, src, bos_id, eos_id, max_len, min_len)
    beam_size = check_option("beam_size", beam_size)
    n_best = check_option("n_best", n_best)
    if n_best > beam_size:
        raise UserError(f"n_best={n_best}, expected at most beam_size={beam_size}")
    if early_stopping not in (True, False, "never"):
        raise UserError(f"early_stopping={early_stopping!r}, expected True, False or 'never'")
    penalty = length_penalty_of(length_penalty, penalty_form)

    beams = []
    for token, limit in zip(request.first_tokens.tolist(), request.limits.tolist(), strict=True):
        prefixes = [Prefix((token,), 0.0, parent=0)]
        beams.append(Beam(request, limit, beam_size, penalty, early_stopping, prefixes))
    if beams:
        ops = get_backend(backend, params)
        sizes = {"max_rows": len(beams) * beam_size, "max_len": int(request.limits.max())}
        decoder = model.decoder(params, request.sources, **sizes, backend=ops)
        search(ops, decoder, params, beams)
    return [beam.best(n_best) for beam in beams]


def length_penalty_of(alpha, form):
    """Return the length penalty, which divides the log-probability, as a function of the length."""
    alpha = check_option("length_penalty", alpha)
    if alpha > 10:
        raise UserError(f"length_penalty={alpha}, expected 0 to 10; 1 compares means per token")
    check_choice("penalty_form", form, ("power", "gnmt"))

    def penalty(length):
        if form == "power":
            return length**alpha
        return ((5 + length) / 6) ** alpha

    return penalty


def search(ops, decoder, params, beams):
    """Extend all beams step by step until they are done; their prefixes are rows of one batch."""
    # Enough of each prefix for ``size`` ends and ``size`` that go on, though padding and, before
    # min_len, end tokens are discarded.
    k = 2 * beams[0].size + 1 + len(beams[0].request.eos_ids)

    def best_tokens(logits, part):
        return ops.log_softmax_top_k(logits, k)

    parents = list(range(len(beams)))  # in the first step these are the sources
    for t in itertools.count():
        tokens = np.array([prefix.tokens[-1] for beam in beams for prefix in beam.prefixes])
        log_p, ids = decoder.step(tokens, np.array(parents), best_tokens)
        if np.isnan(log_p[:, 0]).any():
            raise no_token(NOT_FINITE, params, t)
        parents = []
        first = 0  # the row of the first prefix of a beam
        for beam in beams:
            rows = slice(first, first + len(beam.prefixes))
            beam.extend(log_p[rows], ids[rows], length=t + 1)
            if not (beam.prefixes or beam.finished):
                raise no_token(FORBIDDEN, params, t)
            parents += [first + prefix.parent for prefix in beam.prefixes]
            first = rows.stop
        beams = [beam for beam in beams if beam.prefixes]
        if not beams:
            return


class Prefix(NamedTuple):
    """The beginning of a target, which the search goes on to extend."""

    tokens: tuple[int, ...]  # with the begin token, which is no part of a hypothesis
    log_probability: float
    parent: int  # the number of the prefix of the step before that it extends


@dataclass
class Beam:
    """The search for one source: finished hypotheses, and prefixes, none when it is done."""

    request: Request
    max_len: int
    size: int
    penalty: Callable[[int], float]
    early_stopping: bool | str
    prefixes: list[Prefix]
    finished: list[Hypothesis] = field(default_factory=list)

    def extend(self, log_p, ids, length):
        """Extend the prefixes to this length: finish those that end, keep the best of the others.

        ``log_p`` and ``ids`` (R, K) are the K most probable next tokens of each prefix.
        """
        unfinished = []
        for rank, extension in enumerate(self._extensions(log_p, ids, length)):
            if extension.tokens[-1] in self.request.eos_ids:
                if rank < self.size:
                    self._finish(extension)
            elif len(unfinished) < self.size:
                unfinished.append(extension)
            else:
                break
        self.prefixes = unfinished
        if length == self.max_len:
            for prefix in unfinished:
                self._finish(prefix)
            self.prefixes = []
        elif self._is_done(length):
            self.prefixes = []

    def _extensions(self, log_p, ids, length):
        """The possible extensions of all prefixes by one token, the most probable first."""
        request = self.request
        if request.has_forced_end and length == self.max_len:
            ids = np.full((len(ids), 1), request.model.forced_eos_id)
            log_p = np.zeros(ids.shape)
        sums = np.array([prefix.log_probability for prefix in self.prefixes])
        totals = log_p.astype(np.float64) + sums[:, None]  # may be out of the range of float32
        for token in request.forbidden(length):
            totals[ids == token] = -np.inf
        order = np.argsort(-totals, axis=None, kind="stable")
        for row, column in zip(*np.unravel_index(order, totals.shape), strict=True):
            total = float(totals[row, column])
            if total == -np.inf:
                return
            yield Prefix((*self.prefixes[row].tokens, int(ids[row, column])), total, int(row))

    def _is_done(self, length):
        """Whether there are hypotheses enough, as ``early_stopping`` says."""
        if len(self.finished) < self.size:
            return False
        if self.early_stopping not in (False, "never") or not self.prefixes:
            return True
        # A sum of log-probabilities only falls, but a later one is divided by a larger penalty.
        longest = self.max_len if self.early_stopping == "never" else length
        best_to_come = self.prefixes[0].log_probability / self.penalty(longest)
        return best_to_come <= self.best(self.size)[-1].score

    def _finish(self, prefix):
        tokens = prefix.tokens[1:]
        score = prefix.log_probability / self.penalty(len(tokens))
        self.finished.append(Hypothesis(tokens, prefix.log_probability, score))

    def best(self, n):
        """The n best hypotheses, or all if there are fewer, best first."""
        return sorted(self.finished, key=lambda hypothesis: -hypothesis.score)[:n]
