"""A training on two threads, small enough for thousands of them, and what it decodes."""

import numpy as np

from npformer import Adam, Trainer, Transformer, greedy_decode
from npformer.text import CopyTask

MODEL = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32, "dropout": 0.1}


class SmallTraining:
    """A training that can be continued."""

    def __init__(self, seed):
        self.task = CopyTask(seed=seed)
        model = Transformer(self.task.vocab, self.task.vocab, pad_id=0, **MODEL)
        settings = {"seed": seed, "clip_norm": 1.0, "n_shards": 2, "backend": "cpu"}
        self.trainer = Trainer(model, Adam(lr=1e-3), **settings)

    def batch(self, step):
        """The batch of a step."""
        return self.task.batch(step, 8)

    def train_to(self, n):
        """Make steps until there are n."""
        for step in range(self.trainer.n_steps, n):
            self.trainer.step(*self.batch(step))
        return self

    def decoded(self, params):
        """The ids that these parameters decode, on two threads and with the helper."""
        src, _ = self.task.batch(0, 80)
        options = {"bos_id": 1, "eos_id": 2, "max_len": 4}
        rows = [
            greedy_decode(self.trainer.model, params, some, **options) for some in (src, src[:2])
        ]
        return np.concatenate([np.concatenate([*map(np.asarray, each)]) for each in rows])

    def result(self):
        """The parameters and what they decode, as one array."""
        return np.concatenate([self.trainer.flat_params, self.decoded(self.trainer.params)])
