"""Keys and values of attention that were computed before."""

from typing import NamedTuple

from npformer.arrays import Array
from npformer.layers.types import Ops


class KeyValueCache(NamedTuple):
    """A table of keys and values, and where in it those of each row are.

    Rows may share entries, as beams with the same beginning do. A layer that is given a cache writes the keys and
    values of the newest position into the entry that is the last of each row of ``at``.

    Attributes
    ----------
    kv : (P, 2D)
        A key and a value, all heads side by side, in each of P entries. It is written to.
    at : (R, S) int
        Which entries the keys of each of R rows are: of S positions, the newest included.
    keep_mask : bool (R, S), optional
        True = may attend.

    Examples
    --------
    Position by position, a layer computes what it computes of the whole sequence with ``causal=True``:

    >>> import numpy as np
    >>> from npformer import layers, reference
    >>> from npformer.models.initialization import Initializer
    >>> params = Initializer(seed=0, dtype="float64").encoder_layer(d_model=4, d_ff=8)
    >>> x = np.random.default_rng(0).normal(size=(2, 3, 4))  # (B, T, D)
    >>> whole, _ = layers.encoder_layer(reference, params, x, n_heads=2, causal=True)
    >>> kv, at = np.zeros((6, 8)), np.arange(6).reshape(2, 3)  # an entry for each row and position
    >>> for t in range(3):
    ...     cache = layers.KeyValueCache(kv, at[:, : t + 1])
    ...     y, _ = layers.encoder_layer(reference, params, x[:, t], n_heads=2, cache=cache)
    ...     print(bool(np.allclose(y, whole[:, t])))
    True
    True
    True
    """

    kv: Array
    at: Array
    keep_mask: Array | None = None

    def append(self, kv: Array) -> None:
        """Write the keys and values (R, 2D) of the newest token of each row, whose place is the last of its row."""
        expected = (len(self.at), self.kv.shape[1])
        if kv.shape != expected or self.at.shape[1] == 0:
            raise ValueError(
                f"keys and values {kv.shape} of the newest positions for a cache with kv {self.kv.shape} and "
                f"at {self.at.shape}: expected {expected}, and at (B, S) with the newest position as its last"
            )
        self.kv[self.at[:, -1]] = kv

    def attend(self, ops: Ops, q: Array, n_heads: int) -> Array:
        """Attention of one query a row, (R, D), to the keys and values of its row: (R, D)."""
        return ops.cached_attention(q, self.kv, self.at, n_heads, self.keep_mask)
