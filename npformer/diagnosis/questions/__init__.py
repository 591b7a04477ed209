"""The questions of a diagnosis, in the order in which they are asked.

There is a file for what they are about: the batch (``data``, ``pairs``), the size of parameters and
scores (``scales``), masks, positions, padding and rows (``dependence``), the loss (``losses``), the
gradient, the update with the settings of the trainer, and decoding.
"""

from npformer.diagnosis.questions import (
    data,
    decoding,
    dependence,
    gradient,
    losses,
    pairs,
    scales,
    update,
)

# A check is a function of a ``Subject`` that yields a ``Finding`` for each sign of a mistake. Its
# docstring is shown where it cannot be made.
OF_DATA = (
    data.numbers,
    data.answers,
    data.copies,
    data.padding,
    data.special_tokens,
    pairs.partners,
    data.shift,
)
QUICK = (
    scales.finite,
    scales.equal,
    scales.scale,
    dependence.repeatable,
    dependence.rows,
    dependence.tokens,
    dependence.both_sides,
    dependence.positions_or_tokens,
    dependence.padding,
    dependence.order,
    losses.of_outputs,
    losses.at_the_start,
    scales.scores,
    losses.after_training,
    losses.of_dropout,
    losses.divided,
)
COSTLY = (
    gradient.differences,
    gradient.by_parameter,
    update.settings,
    update.one_batch,
    decoding.cache,
)
