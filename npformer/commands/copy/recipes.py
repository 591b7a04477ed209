"""The sizes of ``npformer copy``, each with its training."""

from collections.abc import Callable
from typing import NamedTuple

from npformer.errors import UserError
from npformer.models import Transformer
from npformer.runtime.ranks import world
from npformer.text.copy_task import PAD
from npformer.training import Adam, Trainer, noam, warmup_cosine


def quick_adam(steps):
    return Adam(warmup_cosine(3e-3, warmup=steps // 12, total=steps), betas=(0.9, 0.98))


def annotated_adam(steps):
    return Adam(noam(d_model=512, warmup=400, factor=0.5), betas=(0.9, 0.98), eps=1e-9)


class Preset(NamedTuple):
    """The sequences, the size of the model, and how it is trained."""

    lengths: dict
    sizes: dict
    optimizer: Callable[[int], Adam]
    batch_size: int
    steps: int
    clip_norm: float | None = None
    average_last: int = 1

    def trainer(self, vocab, n_steps, sizes, **settings):
        """A trainer of a new model, which may have other sizes; ``settings`` are of ``Trainer``."""
        try:
            model = Transformer(vocab, vocab, pad_id=PAD, **self.sizes | sizes)
        except UserError as error:
            not_given = self.sizes.keys() - sizes.keys()
            if any(name in str(error) for name in not_given):
                advice = "a size that is not given is that of the preset"
                raise UserError(f"{error}: {advice}") from None
            raise
        optimizer = self.optimizer(n_steps)
        return Trainer(model, optimizer, clip_norm=self.clip_norm, ranks=world(), **settings)


PRESETS = {
    # Lengths 1 ... 10, so that padding is used; no dropout, as every training sequence is new.
    "quick": Preset(
        {"min_len": 1, "max_len": 10},
        {"d_model": 64, "n_heads": 4, "n_layers": 2, "d_ff": 128, "dropout": 0.0},
        quick_adam,
        batch_size=32,
        steps=1200,
        clip_norm=1.0,
    ),
    # The setting of the Annotated Transformer, 20 epochs of 20 batches of 80 sequences of 10
    # symbols. The learning rate is still rising when training ends, so the parameters of the last
    # 100 steps are averaged.
    "annotated": Preset(
        {"min_len": 10, "max_len": 10},
        {"d_model": 512, "n_heads": 8, "n_layers": 2, "d_ff": 2048, "dropout": 0.1},
        annotated_adam,
        batch_size=80,
        steps=400,
        average_last=100,
    ),
}
