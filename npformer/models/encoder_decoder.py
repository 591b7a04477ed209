"""The base class of all models from a source to a target: logits, loss and gradients."""

from collections.abc import Callable
from typing import Any, ClassVar

from npformer.arrays import Array
from npformer.backends import AnyBackend
from npformer.checks import check_int, check_two_axes, warn
from npformer.errors import UserError
from npformer.models.batch import filled_up
from npformer.models.gradients import Gradients, MaybeGrads
from npformer.models.losses import CrossEntropy, RDrop, twice
from npformer.models.model import Model
from npformer.operations.options import check_option
from npformer.reference.math.random import keys_from
from npformer.runtime.forks import cached_property


class EncoderDecoder(Model):
    """An architecture; its parameters are a separate nested dict.

    It is {"source_embedding", "target_embedding", "encoder", "decoder", "output"}, or has one
    "embedding" if tied; with learned positions it also has {"source_positions",
    "target_positions"}, which are never tied.

    A subclass is a dataclass with ``src_vocab``, ``tgt_vocab``, ``d_model``, ``dropout``,
    ``tie_embeddings``, ``pad_id``, ``max_len`` and ``dtype``. It defines

    - ``depths``, the numbers of layers of encoder and decoder; the parameters of the layers are
      under "0", "1", …
    - ``_init_stacks(new)`` -> parameters of (encoder, decoder), drawn from the ``Initializer``
      ``new``
    - ``_encode(ops, params, src, dropout_key, with_grad)`` -> (memory, backward), where
      backward(dmemory, gradients) gives the gradients of the encoder and of the source's tables to
      ``gradients``
    - ``_decode(ops, params, memory, src, tgt_in, dropout_key, with_grad)`` -> (y, backward), where
      y is (B, T, D), and backward(dy, gradients) gives those of the decoder and of the target's
      tables, and returns dmemory
    - ``decoder_type``, the subclass of ``StepwiseDecoder`` of which ``decoder`` returns an instance

    Both get ids that were checked, and that lie on the device of the parameters.
    """

    src_vocab: int
    tgt_vocab: int
    depths: tuple[int, int]
    decoder_type: Callable
    _init_stacks: Callable
    _encode: Callable
    _decode: Callable

    # What a model has that is no ``Transformer``, whose settings say it.
    tie_embeddings = False
    scale_embeddings = True
    has_learned_positions = False
    share_layers: int | None = None

    sides = ("source", "target")
    stacks: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    @cached_property
    def _vocabularies(self):
        return [self.src_vocab, self.tgt_vocab]

    def _new_params(self, new):
        params = self._new_tables(new)
        stacks = zip(self.stacks, self._init_stacks(new), strict=True)
        params |= {name: stack for name, stack in stacks if stack}  # a file holds no empty dicts
        return params | self._new_output(new, self.tgt_vocab)

    def encode(self, params: dict, src: Array, *, backend: AnyBackend = "auto") -> Any:
        """Return the encoder's output for a source, without dropout.

        Parameters
        ----------
        params : nested dict
        src : (B, S) int

        Returns
        -------
        memory
            The argument of ``decode``: an array (B, S, D), or what the model has instead of it.
        """
        ops = self._backend(backend, params)
        self._check_tokens("src", src, self.src_vocab)
        return self._encode_inputs(ops, params, self._beside(src, params))

    def _encode_inputs(self, ops, params, src):
        """The memory of a source, without dropout and without a backward pass."""
        memory, _ = self._encode(ops, params, src)
        return memory

    def decode(
        self, params: dict, memory: Any, src: Array, tgt_in: Array, *, backend: AnyBackend = "auto"
    ) -> Array:
        """Return the logits of each next token, given the encoder's output, without dropout.

        Parameters
        ----------
        params : nested dict
        memory
            ``encode(params, src)``.
        src : (B, S) int
            Needed only to find the padding.
        tgt_in : (B, T) int
            The decoder's input, which starts with the begin token; logits t predict the token after
            ``tgt_in[:, t]``.

        Returns
        -------
        logits : (B, T, V)
        """
        ops = self._backend(backend, params)
        src, tgt_in = self._inputs(params, src, tgt_in)
        y, _ = self._decode(ops, params, memory, src, tgt_in)
        return ops.linear(y, *self.output_map(params))

    def decoder(
        self, params: dict, src: Array, *, max_rows: int, max_len: int, backend: AnyBackend = "auto"
    ) -> Any:
        """Return a ``StepwiseDecoder``, which caches what it has computed.

        Parameters
        ----------
        params : nested dict
        src : (B, S) int
        max_rows : int
            Largest number of rows in a step: B times the number of hypotheses per source.
        max_len : int
            Largest number of steps, at most that of the model.

        Examples
        --------
        >>> from npformer import Transformer
        >>> model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
        >>> params, src = model.init(0), np.array([[3, 4, 5]])
        >>> decoder = model.decoder(params, src, max_rows=1, max_len=9)
        >>> for token in (1, 3, 4):
        ...     logits = decoder.step(np.array([token]), parents=np.array([0]))
        >>> expected = model.logits(params, src, np.array([[1, 3, 4]]))[:, -1]
        >>> bool(np.allclose(logits, expected, atol=1e-5))
        True
        """
        ops = self._backend(backend, params)
        self._check_tokens("src", src, self.src_vocab)
        max_rows = check_option("max_rows", max_rows)
        max_len = check_int("max_len", max_len, at_least=1, at_most=self.max_len)
        return self.decoder_type(self, ops, params, src, max_rows, max_len)

    def logits(
        self, params: dict, src: Array, tgt_in: Array, *, backend: AnyBackend = "auto"
    ) -> Array:
        """Call ``encode``, then ``decode``: ids (B, S) and (B, T) -> logits (B, T, V)."""
        return self.decode(
            params, self.encode(params, src, backend=backend), src, tgt_in, backend=backend
        )

    def attention_weights(
        self, params: dict, src: Array, tgt_in: Array, *, backend: AnyBackend = "auto"
    ) -> dict:
        """Return the attention weights, if the model has attention."""
        raise UserError(
            f"a {type(self).__name__} has no attention, so there are no attention weights"
        )

    def loss_and_grad(
        self,
        params: dict,
        src: Array,
        tgt_in: Array,
        tgt_out: Array | None = None,
        *,
        dropout_key: int | None = None,
        label_smoothing: float = 0.0,
        consistency: float = 0.0,
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
        src : (B, S) int
        tgt_in : (B, T+1) or (B, T) int
            The target with begin and end tokens, (B, T+1): its first T columns are the decoder's
            input, its last T columns the tokens to predict. If ``tgt_out`` is given, only the first
            T columns.
        tgt_out : (B, T) int, optional
            The last T columns of the target.
        dropout_key : int, optional
            Key of the random bits of dropout; None means no dropout.
        label_smoothing : float
        consistency : float
            If not 0, each sentence passes through the model twice, with different dropout, and the
            loss is the ``paired_cross_entropy`` of the two predictions (R-Drop). A step takes twice
            as long.
        n_tokens : int, optional
            Divide the loss by this number instead of the batch's own number of tokens, for a batch
            that is a part of a larger one.
        loss_scale : float
            Multiplies the gradient, see ``cross_entropy``.
        with_grad : bool
            If False, ``grads`` is None, and nothing is saved for the backward pass.
        ready : callable, optional
            ``ready(path, grads)`` is called as soon as the gradients of the parameters below a path
            are complete, from the last layer to the first, so that they can be added up and sent
            while the others are computed. All gradients are given to it, and the result has none.

        Returns
        -------
        loss : scalar
        grads : nested dict
            With the keys and shapes of ``params``; None with ``ready``.
        n_tokens : int
            Number of targets that are not padding. If ``tgt_out`` is on the GPU, this is an array
            on the GPU, so that the CPU does not have to wait for it.
        """
        ops = self._backend(backend, params)
        src, tgt_in, targets, n_targets = self._batch(params, src, tgt_in, tgt_out)
        criterion: Any = CrossEntropy(self.pad_id, label_smoothing, n_tokens, loss_scale)
        if consistency:
            criterion = RDrop(criterion, consistency)
            src, tgt_in = twice(src, tgt_in)
        gradients = Gradients(params, ready, self._n_uses) if with_grad else None
        encoder_key, decoder_key = keys_from(dropout_key, 2)

        memory, encode_backward = self._encode(ops, params, src, encoder_key, with_grad)
        y, decode_backward = self._decode(ops, params, memory, src, tgt_in, decoder_key, with_grad)
        loss, dy = self._loss(ops, params, y, targets, criterion, gradients)
        if gradients is None:
            return loss, None, n_targets
        dmemory = decode_backward(dy, gradients)
        encode_backward(dmemory, gradients)
        return loss, gradients.all(), n_targets

    def count(self, src: Array, tgt: Array) -> int:
        """Check a batch, and return its number of targets that are not padding.

        Parameters
        ----------
        src : (B, S) int
        tgt : (B, T+1) int

        Raises
        ------
        UserError
            If an id is out of range, or if the shapes do not match.
        """
        expected = "expected ids (B, T+1), a begin token, then one or more"
        check_two_axes("tgt", tgt, expected, n_least=2)
        self._check_pair(src, tgt, "tgt", n_more=1)
        if (tgt[:, 0] != tgt[:1, 0]).any():
            warn("tgt begins with different tokens: is the begin token missing?")
        return int(self._counted(tgt[:, 1:]))

    def fill_up(self, batch: tuple, rounded_up: Callable[[int], int]) -> tuple:
        """Pad a batch, src (B, S) and tgt (B, T+1), to one of a few shapes.

        Nothing is done if no id is padding. ``rounded_up(n)`` is the smallest length >= n out of a
        small set.
        """
        src, tgt = batch
        return filled_up(self, src, rounded_up), filled_up(self, tgt, rounded_up, n_more=1)

    def _batch(self, params, src, tgt_in, tgt_out):
        """Checked sources, inputs of the decoder and targets, and how many targets count."""
        if tgt_out is None:
            check_two_axes("tgt_in", tgt_in, "expected (B, T+1) if tgt_out is not given")
            n_targets = self._counted(tgt_in[:, 1:])
            src, tgt = self._inputs(params, src, tgt_in, n_more=1)
            return src, tgt[:, :-1], tgt[:, 1:], n_targets
        src, tgt_in = self._inputs(params, src, tgt_in)
        self._check_tokens("tgt_out", tgt_out, self.tgt_vocab)
        if tgt_in.shape != tgt_out.shape:
            shapes = f"tgt_in {tgt_in.shape}, tgt_out {tgt_out.shape}"
            raise UserError(f"{shapes}: expected equal shapes (B, T)")
        return src, tgt_in, self._beside(tgt_out, params), self._counted(tgt_out)

    def _inputs(self, params, src, tgt_in, n_more=0):
        """Check ids, and move them to the device of the parameters."""
        self._check_pair(src, tgt_in, "tgt_in", n_more)
        return self._beside(src, params), self._beside(tgt_in, params)

    def _check_pair(self, src, tgt, name, n_more):
        """Check the ids of a source and of a target, of which ``n_more`` columns are not read."""
        self._check_tokens("src", src, self.src_vocab)
        self._check_tokens(name, tgt, self.tgt_vocab, n_more)
        if len(tgt) != len(src):
            numbers = f"src has {len(src)} rows, the target {len(tgt)}"
            expected = "expected the same number, a row for each sentence"
            advice = "an array with a column for each becomes one with .T"
            raise UserError(f"{numbers}: {expected}; {advice}")

    def _check_settings(self):
        super()._check_settings()
        if self.tie_embeddings and self.src_vocab != self.tgt_vocab:
            raise UserError(
                f"tie_embeddings=True with src_vocab={self.src_vocab}, tgt_vocab={self.tgt_vocab}: "
                "expected equal sizes, from one joint vocabulary"
            )


def of_both(value):
    """A number for (encoder, decoder), from one for both or from two."""
    return value if isinstance(value, tuple) else (value, value)


def check_depths(name, value):
    """An int, or a tuple of (encoder, decoder), which was a list in a file."""
    if not isinstance(value, (tuple, list)):
        return check_int(name, value, at_least=0)
    if len(value) != 2:
        raise UserError(f"{name}={value}, expected an int or (encoder, decoder)")
    return tuple(check_int(name, n, at_least=0) for n in value)
