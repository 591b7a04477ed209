"""In which numbers a step is computed, on a GPU: parameters and moments stay float32."""

import contextlib
from typing import NamedTuple

import numpy as np

from npformer import tree

GROWS_AFTER = 2000  # steps without an overflow


class Precision:
    """Copies of the parameters in the numbers that a step is computed in, and a scale against vanishing gradients.

    float16 has no numbers below 6e-8, where many gradients are. So the loss is multiplied by a scale, as large as the
    gradients bear (Micikevicius et al. 2018): halved when they overflow, doubled after 2,000 steps in which they did
    not. bfloat16 has the range of float32.

    Parameters
    ----------
    name : "float32", "tf32", "bfloat16" or "float16"
        tf32 is float32 whose matrix products round their factors to 11 bits.
    ops : module
    flat_params : (n,)
    params : nested dict
        Views into it.
    """

    def __init__(self, name, ops, flat_params, params):
        check_precision(name, ops)
        if name != "float32" and flat_params.dtype != np.float32:
            raise ValueError(f"precision={name!r} of a model of {flat_params.dtype}, expected dtype='float32'")
        self.name, self.ops, self.full = name, ops, flat_params
        self.params, self.half = params, None
        if name in ("bfloat16", "float16"):
            self.half = ops.asarray(np.zeros(flat_params.size, _dtype(name)))
            self.params = tree.view_as(self.half, params)
        self.state = ScaleState(2.0**15, 0) if name == "float16" else ScaleState(1.0, 0)

    @contextlib.contextmanager
    def computing(self):
        """Within it the copies, which it gives, are up to date, and products as the name says."""
        if self.half is not None:
            self.half[...] = self.full
        with self.ops.tf32() if self.name == "tf32" else contextlib.nullcontext():
            yield self.params

    def after_step(self):
        """One more without an overflow."""
        scale, n = self.state
        if self.name == "float16":
            self.state = ScaleState(2 * scale, 0) if n + 1 == GROWS_AFTER else ScaleState(scale, n + 1)

    def after_overflow(self):
        """Whether it is worth trying again, with half the scale."""
        if self.name != "float16" or self.state.scale <= 1:
            return False
        self.state = ScaleState(self.state.scale / 2, 0)
        return True


def check_precision(name, ops):
    """Whether these operations can compute in it."""
    if name not in ops.PRECISIONS:
        expected = " or ".join(map(repr, ops.PRECISIONS))
        raise ValueError(f"precision={name!r} on the backend {ops.__name__}, expected {expected}")


class ScaleState(NamedTuple):
    """What the loss is multiplied by, and for how many steps that has gone well."""

    scale: float
    n_steps: int


def _dtype(name):
    if name == "float16":
        return np.float16
    try:
        import ml_dtypes
    except ImportError as error:
        raise ValueError("precision='bfloat16' needs ml_dtypes, expected to be installed: pip install it") from error
    return ml_dtypes.bfloat16
