"""A whole step on a GPU, from the batch to the updated parameters, as a replay of one that was recorded."""

import numpy as np

from npformer.options import check_ids


class RecordedStep:
    """A trainer's steps, recorded for each shape of a batch.

    The host fills one block of memory, starts the replay, and looks at two numbers. Whether they are finite the GPU has
    found out before, and else left the parameters as they were. A recording keeps the trainer's settings.

    Parameters
    ----------
    trainer : Trainer
        On a GPU.
    """

    def __init__(self, trainer):
        self.trainer = trainer
        model = trainer.model
        self.recorder = trainer.ops.Recorder(self._work, model.pad_id, model.max_len)

    def __call__(self, src, tgt, key, n_tokens):
        """One step.

        Returns
        -------
        loss, norm : float
            If one of them is not finite, there was no step.
        """
        trainer = self.trainer
        check_ids(src, trainer.model.src_vocab, "src")
        check_ids(tgt, trainer.model.tgt_vocab, "tgt")
        if len(src) != len(tgt) or src.ndim != 2:
            raise ValueError(f"src {src.shape}, tgt {tgt.shape}: expected (B, S) and (B, T+1)")
        scale, step = trainer.precision.state.scale, trainer.n_steps + 1
        numbers = n_tokens / scale, 1 / scale, trainer.optimizer.learning_rate(step), step
        return tuple(self.recorder(src, tgt, key, np.array(numbers, np.float64)).get().tolist())

    def _work(self, src, tgt, key, numbers):
        """What is recorded; nothing here may look at a number."""
        trainer, (n_tokens, unscale, lr, step) = self.trainer, numbers
        loss = trainer.compute_gradient(src, tgt, key, n_tokens)
        loss_and_norm, grad_scale = trainer.ops.judge_gradient(loss, trainer.flat_grads, unscale, trainer.clip_norm)
        trainer.update(step, grad_scale, lr)
        return loss_and_norm
