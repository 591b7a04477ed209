"""Cache of the keys and values of attention for decoding."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.checks import check_ids
from npformer.errors import UserError
from npformer.operations.settings import AttentionSettings, Rotary
from npformer.reference import Ops


class KeyValueCache(NamedTuple):
    """A table of keys and values, and which entries of it the rows of a step see.

    The table stays from step to step, and each step makes a new record of it and of the entries of
    its rows. Rows may share entries, as beams with a common beginning do. Self-attention with a
    cache writes the keys and values of the newest position of each row into the entry ``at[:,
    -1]``.

    Attributes
    ----------
    kv : (P, 2*G*K)
        P entries, each with a key and a value, all G heads of width K side by side. Self-attention
        writes to it.
    at : (R, S) int
        The entries of the S positions of each of the R rows, including the newest position.
    keep_mask : bool (R, 1, 1, S), optional
        As ``padding_mask`` returns it: True = may attend.
    rotary : Rotary, optional
        How the keys in ``kv`` were turned by their positions: as in the settings of the attention.
    positions : (R,) int, optional
        The positions of the newest entries, if they are not all S - 1.

    Examples
    --------
    A layer with a cache, called position by position, returns the same as the layer with
    ``causal=True``, called with the whole sequence:

    >>> from npformer import layers, reference
    >>> from npformer.models.initialization import Initializer, LayerShapes
    >>> params = Initializer(seed=0, dtype="float64").encoder_layer(LayerShapes(d_model=4, d_ff=8))
    >>> x = np.random.default_rng(0).normal(size=(2, 3, 4))  # (B, T, D)
    >>> settings = layers.LayerSettings(layers.AttentionSettings(2, causal=True))
    >>> whole, _ = layers.encoder_layer(reference.ops, params, x, settings)
    >>> kv, at = np.zeros((6, 8)), np.arange(6).reshape(2, 3)  # one entry for each row and position
    >>> for t in range(3):
    ...     cache = layers.KeyValueCache(kv, at[:, : t + 1])
    ...     y, _ = layers.encoder_layer(reference.ops, params, x[:, t], settings, cache=cache)
    ...     print(bool(np.allclose(y, whole[:, t])))
    True
    True
    True
    """

    kv: Array
    at: Array
    keep_mask: Array | None = None
    rotary: Rotary | None = None
    positions: Array | None = None

    @property
    def newest_positions(self) -> Array:
        """The positions of the newest entries: (R,), or (1,) if they are the same."""
        if self.positions is not None:
            return self.positions
        n = self.at.shape[1]
        # Not np.full(…, like=…), which fails on arrays of CuPy.
        return np.arange(n - 1, n, like=self.at)

    def append(self, kv: Array) -> None:
        """Write the keys and values (R, 2*G*K) of the newest positions into ``at[:, -1]``."""
        expected = (len(self.at), self.kv.shape[1])
        if kv.shape != expected or self.at.shape[1] == 0:
            newest = f"keys and values {kv.shape} of the newest positions"
            cache = f"a cache with kv {self.kv.shape} and at {self.at.shape}"
            last = "at (R, S) with the newest position as its last"
            raise UserError(f"{newest} for {cache}: expected {expected}, and {last}")
        # The ids are looked through only when something is wrong: each layer writes in each step.
        try:
            self.kv[self.at[:, -1]] = kv
        except IndexError:
            check_ids(self.at, len(self.kv), "at")
            raise

    def latest(self, n: int) -> "KeyValueCache":
        """The cache of the latest n of the S positions of each row."""
        first = max(0, self.at.shape[1] - n)
        keep_mask = self.keep_mask
        # Attention refuses a list, and a scalar.
        if keep_mask is not None and getattr(keep_mask, "ndim", 0) > 0:
            keep_mask = keep_mask[..., first:]
        return self._replace(at=self.at[:, first:], keep_mask=keep_mask)

    def attend(
        self, ops: Ops, q: Array, settings: AttentionSettings, bias: Array | None = None
    ) -> Array:
        """Attention of one query per row, (R, D), to the keys and values of its row: (R, D)."""
        return ops.cached_attention(q, self.kv, self.at, settings, self.keep_mask, bias)


class BlockCache(NamedTuple):
    """The place of a ``KeyValueCache``, to read the T newest of S positions of B texts at once.

    The x of the layer is then (B·T, D).
    """

    kv: Array  # (B, S, 2*G*K), to which self-attention writes those of the newest positions
    n_new: int  # T
    rotary: Rotary | None = None
    window: int | None = None
    wait: Callable[[], None] | None = None  # for what writes earlier positions, before attention

    @property
    def newest_positions(self) -> Array:
        """The positions of the rows of x: (B·T,)."""
        B, S, _ = self.kv.shape
        return np.tile(np.arange(S - self.n_new, S, like=self.kv), B)

    def append(self, kv: Array) -> None:
        """Write the keys and values (B·T, 2*G*K) of the newest positions."""
        self.kv[:, -self.n_new :] = kv.reshape(len(self.kv), self.n_new, -1)
        if self.wait is not None:
            self.wait()

    def latest(self, n: int) -> "BlockCache":
        """The cache of which each position sees the latest n up to itself."""
        return self._replace(window=n)

    def attend(
        self, ops: Ops, q: Array, settings: AttentionSettings, bias: Array | None = None
    ) -> Array:
        """Causal attention of the queries (B·T, D) of the newest positions: (B·T, D)."""
        kv = self.kv
        keep_mask = None
        if self.window is not None:
            kv = kv[:, max(0, kv.shape[1] - self.n_new + 1 - self.window) :]
            positions = np.arange(kv.shape[1], like=kv)  # from the first that a new one sees
            keep_mask = positions[-self.n_new :, None] - positions < self.window
        q3 = q.reshape(len(kv), self.n_new, -1)
        return ops.cross_attention(q3, kv, settings, keep_mask, bias=bias)[0].reshape(q.shape)
