"""A model of data parallel training: from the measured step of one process to the step of n ranks.

A step of n ranks takes the step of one process on its part of the batch, and what it waits for messages:

- the *exchange* of gradients, which goes on beside the backward pass, except for its last chunk;
- the *gathering* of the new parameters, which begins after the update and hides behind nothing;
- three small messages among all ranks: whether all have the same batch, the loss with the norm, whether to stop.

Exchange and gathering each bring (n - 1)/n of the gradient's bytes to every rank, in n - 1 messages for each chunk. A
message takes the network's latency, a byte the inverse of its bandwidth.
"""

import math
from typing import NamedTuple


class Network(NamedTuple):
    """What connects the ranks."""

    latency: float  # seconds of a message
    bandwidth: float  # bytes per second into a rank, and as many out of it


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


def predict(step, network, n, *, hidden=1.0, all_beside=False):
    """Predict a step on n ranks.

    Parameters
    ----------
    step : Step
    network : Network
    n : int
    hidden : float
        How much of the backward pass the exchange can use: 1 if the network needs no processor, 0 if gradients are
        sent after the backward pass.
    all_beside : bool
        Whether the gathering goes on beside the backward pass, too, as in an all-reduce of the gradients; npformer has
        to update its part of the parameters first.

    Returns
    -------
    Prediction

    Examples
    --------
    >>> one_second, network = Step(1.0, n_bytes=1e9), Network(latency=0.0, bandwidth=1e9)
    >>> [round(predict(one_second, network, n).efficiency, 2) for n in (1, 2, 1000)]
    [1.0, 0.65, 0.42]
    """
    if n == 1:
        return Prediction(step.seconds, 0.0)
    transfer = step.n_chunks * (n - 1) * network.latency + (n - 1) / n * step.n_bytes / network.bandwidth
    beside = hidden * step.backward * step.seconds * (1 - 1 / step.n_chunks)
    first = 2 * transfer if all_beside else transfer
    exchange = max(first - beside, first / step.n_chunks)
    small = 3 * math.ceil(math.log2(n)) * network.latency
    waiting = exchange + 2 * transfer - first + small
    return Prediction(step.seconds + waiting, waiting)
