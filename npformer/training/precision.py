"""Mixed precision on a GPU: steps compute in a shorter format; parameters stay float32."""

import contextlib
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.errors import UserError

GROWS_AFTER = 2000  # steps without an overflow


class Precision:
    """A copy of the parameters in the number format of a step, and the loss scale of float16.

    float16 has no numbers below 6e-8, but many gradients are smaller. So the loss is multiplied by
    a scale that is as large as possible without overflow of the gradients (Micikevicius et al.
    2018): it is halved when they overflow, and doubled after 2,000 steps without an overflow.
    bfloat16 has the range of float32 and needs no scale. "tf32" is float32, except that matrix
    products round their factors to 11 significant bits.
    """

    def __init__(self, name, ops, flat_params, params):
        check_precision(name, ops)
        if name != "float32" and flat_params.dtype != np.float32:
            what = f"precision={name!r} of a model of {flat_params.dtype}"
            raise UserError(f"{what}, expected dtype='float32'")
        self.name, self.ops, self.full = name, ops, flat_params
        self.params = params
        self.half = None  # the parameters in a format of 16 bits
        if name in ("bfloat16", "float16"):
            self.half = ops.device.asarray(np.zeros(flat_params.size, _dtype(name)))
            self.params = tree.view_as(self.half, params)
        self.has_loss_scale = name == "float16"
        self.loss_scale = LossScale(2.0**15, 0) if self.has_loss_scale else LossScale(1.0, 0)

    def over(self, loss_and_grad):
        """A ``loss_and_grad`` that computes in this number format."""
        if self.name == "float32":
            return loss_and_grad

        def in_short(params, *batch, **options):
            # ``params`` are views of self.full. In a short format, self.params are views of
            # self.half, its copy; otherwise they are ``params``.
            if self.half is not None:
                self.half[...] = self.full
            with self.ops.device.tf32() if self.name == "tf32" else contextlib.nullcontext():
                return loss_and_grad(self.params, *batch, **options)

        return in_short

    def over_step(self, run_step):
        """A ``run_step`` that tries again with half of the loss scale while the gradients overflow.

        It takes batches, a key and ``Numbers``, and returns what ``training_step`` does.
        """
        if not self.has_loss_scale:
            return run_step

        def scaled(batches, key, numbers):
            scale = self.loss_scale
            while True:
                scaled_numbers = numbers._replace(loss_scale=scale.value)
                loss, norm, is_update = run_step(batches, key, scaled_numbers)
                # With a scale of 1 it is the gradient itself that is too large.
                if is_update or scale.value <= 1 or not np.isfinite(loss):
                    break
                scale = LossScale(scale.value / 2, 0)
            if is_update:
                self.loss_scale = scale.after_step()
            return loss, norm, is_update

        return scaled


def check_precision(name, ops):
    """Raise if this backend cannot compute in this precision."""
    if name not in ops.device.precisions:
        expected = " or ".join(map(repr, ops.device.precisions))
        raise UserError(f"precision={name!r} on the backend {ops.name}, expected {expected}")


class LossScale(NamedTuple):
    """The loss scale, and the number of steps without an overflow since it last changed."""

    value: float
    n_steps: int

    def after_step(self):
        """The scale after a step without an overflow."""
        if self.n_steps + 1 == GROWS_AFTER:
            return LossScale(2 * self.value, 0)
        return LossScale(self.value, self.n_steps + 1)


def _dtype(name):
    if name == "float16":
        return np.float16
    try:
        import ml_dtypes
    except ImportError as error:
        raise UserError("precision='bfloat16' needs ml_dtypes: pip install ml_dtypes") from error
    return ml_dtypes.bfloat16
