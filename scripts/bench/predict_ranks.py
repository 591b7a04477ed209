"""Predict the step of many ranks from the measured step of one process: a model of data parallel
training.

A step of n ranks takes the step of one process on its part of the batch, and what it waits for
messages:

- the *exchange* of gradients, which goes on beside the backward pass, except for its last chunk;
- the *gathering* of the new parameters, which begins after the update, so that nothing hides it;
- three small messages among all ranks: whether all have the same batch, the loss with the norm,
  whether to stop.

Exchange and gathering each bring (n - 1)/n of the gradient's bytes to every rank, in n - 1 messages
for each chunk. A message takes the network's latency, a byte the inverse of its bandwidth. If the
processor has to move the bytes, it computes later what it would compute meanwhile. Slow ranks and
networks that others use too are not in the model.
"""

import math
from typing import NamedTuple


class Network(NamedTuple):
    """What connects the ranks."""

    latency: float  # seconds of a message
    bandwidth: float  # bytes per second into a rank, and as many out of it
    # Seconds in which a byte needs the processor: 0 if the network's card moves it.
    processor: float = 0.0


class Step(NamedTuple):
    """A step of one process on the rows of one rank."""

    seconds: float
    n_bytes: float  # of the gradient
    backward: float = 2 / 3  # share of the seconds, beside which gradients are exchanged
    n_chunks: int = 16


class Prediction(NamedTuple):
    """The seconds of a step on n ranks."""

    step: float
    waiting: float  # of these

    @property
    def efficiency(self):
        """The throughput of a rank, relative to a process alone."""
        return 1 - self.waiting / self.step


def predict(step, network, n):
    """The ``Prediction`` of a step on n ranks.

    Examples
    --------
    >>> one_second, network = Step(1.0, n_bytes=1e9), Network(latency=0.0, bandwidth=1e9)
    >>> [round(predict(one_second, network, n).efficiency, 2) for n in (1, 2, 1000)]
    [1.0, 0.65, 0.42]
    """
    if n == 1:
        return Prediction(step.seconds, 0.0)
    received = (n - 1) / n * step.n_bytes
    transfer = step.n_chunks * (n - 1) * network.latency + received / network.bandwidth
    busy = network.processor * received / step.n_chunks
    small = 3 * math.ceil(math.log2(n)) * network.latency
    waiting = exchanged(step, transfer / step.n_chunks, busy) + transfer + small
    return Prediction(step.seconds + waiting, waiting)


def exchanged(step, seconds, busy):
    """How much later the exchange ends than the backward pass of one process would.

    A chunk is sent for so many ``seconds`` when it is complete and the chunk before has arrived,
    and keeps the processor ``busy`` for a part of them, by which later chunks are complete later.
    """
    n = step.n_chunks
    backward = step.backward * step.seconds
    end = -math.inf
    for i in range(n):  # the chunks are complete at equal intervals
        complete = backward * (i + 1 - n) / n  # so much later than the backward pass
        end = max(end, i * busy + complete) + seconds
    return end
