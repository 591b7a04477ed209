"""What can be set of an ``Encoder``, and the checks of it."""

from dataclasses import dataclass
from typing import Literal

from npformer.checks import check_choice, shown
from npformer.errors import UserError
from npformer.models.heads import HEADS
from npformer.models.pooling import POOLINGS, VectorMap
from npformer.models.stack import OneStack


@dataclass(frozen=True, repr=False)
class EncoderSettings(OneStack):
    """The settings of an ``Encoder``, which its docstring explains, and which have to agree."""

    task: Literal["classes", "numbers", "words"] | None = None
    n_outputs: int | None = None
    pooling: str | tuple[str, ...] = "mean"
    pooler: bool = False
    n_inputs: int | None = None
    n_types: int = 0
    embedding_norm: bool = False
    labels: tuple[str, ...] | None = None
    after_pooling: tuple[VectorMap, ...] = ()
    counted_positions: bool = False
    pooler_activation: Literal["tanh", "relu"] = "tanh"

    def __post_init__(self):
        if (self.vocab is None) == (self.n_inputs is None):
            sizes = f"vocab={self.vocab}, n_inputs={self.n_inputs}"
            expected = "expected the size of a vocabulary or the width of real vectors, not both"
            raise UserError(f"{sizes}: {expected}")
        if self.vocab is None:
            self._set(pad_id=None)
        self._check_settings()
        self._head.check_settings()
        if self.pooler and self.by_position:
            raise UserError("pooler=True, expected False where each position has an output")
        if self.counted_positions and (self.pad_id is None or not self.has_learned_positions):
            settings = f"pad_id={self.pad_id}, positions={self.positions!r}"
            raise UserError(f"counted_positions=True with {settings}, expected an id and 'learned'")
        self._check_pooling()
        self._check_labels()

    def _check_pooling(self):
        """Check how a sequence becomes a vector; what was read from a file gets its types."""
        poolings = [self.pooling]
        if isinstance(self.pooling, (list, tuple)):
            poolings = list(self.pooling)
            self._set(pooling=tuple(poolings))
            if len(poolings) < 2 or "none" in poolings:
                raise UserError(f"pooling={self.pooling}, expected two or more of {POOLINGS[:-1]}")
        for pooling in poolings:
            check_choice("pooling", pooling, POOLINGS)
        maps = [
            VectorMap(**each) if isinstance(each, dict) else each for each in self.after_pooling
        ]
        self._set(after_pooling=tuple(maps))
        if self.task is not None and (self.after_pooling or isinstance(self.pooling, tuple)):
            vectors = f"pooling={self.pooling!r}, after_pooling={self.after_pooling}"
            advice = "replace(model, …, pooling='first', after_pooling=()) has such a vector"
            raise UserError(
                f"{vectors} with task={self.task!r}, expected one pooling and nothing after it: "
                f"{advice}"
            )
        if self.pooling == "none" and self.after_pooling:
            raise UserError(
                f"after_pooling={self.after_pooling} with pooling='none', expected nothing after it"
            )

    def _check_labels(self):
        """Check that the names of the outputs are as many texts as there are outputs."""
        if self.labels is None:
            return
        labels = tuple(self.labels)
        self._set(labels=labels)
        if self.n_outputs is None:
            raise UserError(
                f"labels={shown(labels)} with task={self.task!r}, expected none; "
                "with names of classes, give task='classes' and n_outputs=…, too"
            )
        if len(labels) != self.n_outputs or not all(isinstance(label, str) for label in labels):
            raise UserError(f"labels={shown(labels)}, expected n_outputs={self.n_outputs} texts")

    @property
    def _head(self):
        """What follows the layers for the task."""
        return HEADS[self.task](self)

    @property
    def by_position(self):
        """Whether the output layer predicts something for each position."""
        return self._head.by_position
