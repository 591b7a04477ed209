"""The decoder-only Transformer, a language model: each token is predicted from those before."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npformer.arrays import Array
from npformer.backends import AnyBackend
from npformer.checks import check_two_axes
from npformer.decoding.prompts import Prompts
from npformer.decoding.text import LanguageDecoder
from npformer.errors import UserError
from npformer.models.batch import filled_up
from npformer.models.gradients import Gradients, MaybeGrads
from npformer.models.losses import CrossEntropy
from npformer.models.stack import OneStack
from npformer.models.transformer_settings import Positions
from npformer.operations.options import check_option, names_checked


@names_checked
@dataclass(frozen=True, repr=False)
class LanguageModel(OneStack):
    """A decoder-only Transformer, as GPT (Radford et al. 2018); parameters are a nested dict.

    Its layers are those of an encoder, with causal self-attention. The defaults are those of a
    small model as it is built today; ``docs/descendants/changes.md`` says what each of them
    changes.

    Parameters
    ----------
    vocab : int
        Vocabulary size V.
    {settings}

    Examples
    --------
    >>> model = LanguageModel(vocab=11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
    >>> params = model.init(seed=0)
    >>> ids = np.array([[3, 4, 5, 6, 7]])
    >>> model.logits(params, ids).shape
    (1, 5, 11)
    >>> loss, grads, n_tokens = model.loss_and_grad(params, ids)  # each token from those before it
    >>> list(grads), n_tokens
    (['embedding', 'layers'], 4)
    """

    vocab: int
    d_model: int = 384
    n_heads: int = 6
    d_ff: int = 1536
    dropout: float = 0.0
    tie_embeddings: bool = True
    pad_id: int | None = None
    positions: Positions = "rotary"

    causal = True  # in the settings of its layers

    def __post_init__(self):
        self._check_settings()

    @property
    def tgt_vocab(self):
        """The size of the vocabulary of which decoding chooses tokens."""
        return self.vocab

    def logits(self, params: dict, ids: Array, *, backend: AnyBackend = "auto") -> Array:
        """Return the logits of each next token, without dropout: ids (B, T) -> (B, T, V).

        Logits t are of the token after ``ids[:, t]``.
        """
        ops = self._backend(backend, params)
        y, _ = self._encode(ops, params, self._inputs(params, ids))
        return ops.linear(y, *self.output_map(params))

    def loss_and_grad(
        self,
        params: dict,
        ids: Array,
        targets: Array | None = None,
        *,
        dropout_key: int | None = None,
        label_smoothing: float = 0.0,
        n_tokens: int | None = None,
        loss_scale: Any = 1.0,
        backend: AnyBackend = "auto",
        with_grad: bool = True,
        ready: Callable[[str, dict], object] | None = None,
    ) -> tuple[Any, MaybeGrads, Any]:
        """Return the mean cross-entropy per token, its gradient, and the number of tokens.

        Parameters
        ----------
        params : nested dict
        ids : (B, T+1) or (B, T) int
            The text: each token but the first is predicted from those before it. If ``targets`` is
            given, (B, T).
        targets : (B, T) int, optional
            The token after each token of ``ids``.
        dropout_key : int, optional
            Key of the random bits of dropout, another one in each step; None means no dropout.
        label_smoothing, n_tokens, loss_scale, with_grad, ready
            As for ``Transformer.loss_and_grad``.
        """
        ops = self._backend(backend, params)
        ids, targets = [self._beside(x, params) for x in self._checked(ids, targets)]
        n_targets = self._counted(targets)
        criterion = CrossEntropy(self.pad_id, label_smoothing, n_tokens, loss_scale)
        gradients = Gradients(params, ready, self._n_uses) if with_grad else None

        y, encode_backward = self._encode(ops, params, ids, dropout_key, with_grad)
        loss, dy = self._loss(ops, params, y, targets, criterion, gradients)
        if gradients is None:
            return loss, None, n_targets
        encode_backward(dy, gradients)
        return loss, gradients.all(), n_targets

    def count(self, ids: Array, targets: Array | None = None) -> int:
        """Check a batch, and return its number of targets that are not padding."""
        _, targets = self._checked(ids, targets)
        return int(self._counted(targets))

    def fill_up(self, batch: tuple, rounded_up: Callable[[int], int]) -> tuple:
        """Pad a batch, if an id is padding, to one of a few shapes: see ``Transformer.fill_up``."""
        n_more = 1 if len(batch) == 1 else 0  # ids (B, T+1), or ids and targets (B, T)
        return tuple(filled_up(self, ids, rounded_up, n_more) for ids in batch)

    def start(
        self, prompts: Any, bos_id: int | None, slide: bool | None = None
    ) -> tuple[Prompts, Array, Array]:
        """Return the checked prompts, the last token of each, and how many may follow it."""
        if bos_id is not None:
            raise UserError(
                f"bos_id={bos_id}, expected None: a language model goes on after its prompts"
            )
        prompts = Prompts.of(prompts, self, slide)
        return prompts, prompts.last_tokens, self.max_len + 1 - prompts.lengths

    @property
    def is_endless(self):
        """Whether a text may be longer than ``max_len``, and is what it is with a larger one.

        It is if no token needs more than the window before it, and if positions have no vectors.
        """
        return self.window is not None and self.n_positions == 0

    def decoder(
        self,
        params: dict,
        prompts: Any,
        *,
        max_rows: int,
        max_len: int | None = None,
        slide: bool = False,
        backend: AnyBackend = "auto",
    ) -> LanguageDecoder:
        """Return a decoder for single steps that has read all but the last token of each prompt.

        Parameters
        ----------
        params : nested dict
        prompts : (B, T) int, or a list of B sequences of token ids
            Rows of an array may end with padding.
        max_rows : int
            Largest number of rows in a step: B times the number of hypotheses per prompt.
        max_len : int, optional
            Expected number of steps. There may be more; kernels are prepared for this many. The
            model's if not given.
        slide : bool
            As for ``greedy_decode``. Without it, a step beyond the context of a row is an error,
            unless no text of the model can be too long: one with a window, and with positions
            without vectors.

        Examples
        --------
        >>> model = LanguageModel(vocab=11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
        >>> params = model.init(0)
        >>> decoder = model.decoder(params, [[3, 4], [5, 6, 7]], max_rows=2)
        >>> last = np.array([4, 7])  # tokens of the prompts
        >>> logits = decoder.step(last, parents=np.array([0, 1]))
        >>> expected = model.logits(params, np.array([[5, 6, 7]]))[0, -1]
        >>> bool(np.allclose(logits[1], expected, atol=1e-5))
        True
        """
        ops = self._backend(backend, params)
        prompts = Prompts.of(prompts, self, slide)
        max_rows = check_option("max_rows", max_rows)
        max_len = check_option("max_len", self.max_len if max_len is None else max_len)
        return LanguageDecoder(self, ops, params, prompts, max_rows, max_len)

    def _new_params(self, new):
        params = self._new_tables(new)
        params["layers"] = self._new_stack(new, "layers")
        return params | self._new_output(new, self.vocab, has_bias=False)

    def _inputs(self, params, ids):
        self._check_tokens("ids", ids, self.vocab)
        return self._beside(ids, params)

    def _checked(self, ids, targets):
        """Ids and targets (B, T), checked; those of a text (B, T+1) if targets is None."""
        if targets is None:
            check_two_axes("ids", ids, "expected (B, T+1) with two or more tokens", n_least=2)
            self._check_tokens("ids", ids, self.vocab, n_more=1)
            return ids[:, :-1], ids[:, 1:]
        self._check_tokens("ids", ids, self.vocab)
        self._check_tokens("targets", targets, self.vocab)
        if ids.shape != targets.shape:
            shapes = f"ids {ids.shape}, targets {targets.shape}"
            raise UserError(f"{shapes}: expected equal shapes (B, T)")
        return ids, targets
