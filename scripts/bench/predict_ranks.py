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

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

MEASURED = Path(__file__).resolve().parents[1] / "figures" / "results" / "ranks.json"
TOKENS_OF_THE_PAPER = 25_000  # of a batch, on each side


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
    # Seconds from when a chunk is complete to the end of the backward pass, if measured.
    early: Sequence[float] = ()


class Prediction(NamedTuple):
    """The seconds of a step on n ranks."""

    step: float
    waiting: float  # of these

    @property
    def efficiency(self):
        """The throughput of a rank, relative to a process alone."""
        return 1 - self.waiting / self.step


class Published(NamedTuple):
    """What others measured of data parallel training, with all-reduce between hosts."""

    name: str
    n: int  # hosts
    efficiency: float
    step: Step


GBIT = 1e9 / 8
NETWORKS = {  # latencies as is usual: TCP, and remote direct memory access
    "10 Gbit/s": Network(30e-6, 10 * GBIT),
    "25 Gbit/s": Network(30e-6, 25 * GBIT),
    "100 Gbit/s": Network(2e-6, 100 * GBIT),
}
# Horovod's documentation, "Benchmarks": 512 Pascal GPUs, 4 in each host, RoCE with 25 Gbit/s; and
# its README of 2018 for 128 GPUs. Batches of 64 images per GPU. Images per second of one GPU, a
# P100: TensorFlow's guide "Benchmarks"; for ResNet-101, which is not in it, a 16th of the 1,656.82
# of Horovod's 16 GPUs.
ROCE = Network(3e-6, 25 * GBIT)
PUBLISHED = [
    Published("VGG-16", 32, 0.79, Step(64 / 154, 4 * 138.4e6)),
    Published("VGG-16", 128, 0.68, Step(64 / 154, 4 * 138.4e6)),
    Published("Inception V3", 128, 0.90, Step(64 / 142, 4 * 23.8e6)),
    Published("ResNet-101", 128, 0.90, Step(64 * 16 / 1656.82, 4 * 44.5e6)),
]


def predict(step, network, n, *, hidden=1.0, all_beside=False):
    """The ``Prediction`` of a step on n ranks.

    The exchange can use the share ``hidden`` of the backward pass: 1 if the network needs no
    processor, 0 if gradients are sent after it. With ``all_beside`` the gathering goes on beside
    the backward pass, too, as in an all-reduce of the gradients; npformer has to update its part of
    the parameters first.

    Examples
    --------
    >>> one_second, network = Step(1.0, n_bytes=1e9), Network(latency=0.0, bandwidth=1e9)
    >>> [round(predict(one_second, network, n).efficiency, 2) for n in (1, 2, 1000)]
    [1.0, 0.65, 0.42]
    """
    if n == 1:
        return Prediction(step.seconds, 0.0)
    transfer = (
        step.n_chunks * (n - 1) * network.latency + (n - 1) / n * step.n_bytes / network.bandwidth
    )
    first = 2 * transfer if all_beside else transfer
    busy = network.processor * (n - 1) / n * step.n_bytes / step.n_chunks
    small = 3 * math.ceil(math.log2(n)) * network.latency
    waiting = exchanged(step, hidden, first / step.n_chunks, busy) + 2 * transfer - first + small
    return Prediction(step.seconds + waiting, waiting)


def exchanged(step, hidden, seconds, busy):
    """How much later the exchange ends than the backward pass of one process would.

    A chunk is sent for so many ``seconds`` when it is complete and the chunk before has arrived,
    and keeps the processor ``busy`` for a part of them, by which later chunks are complete later.
    """
    n = step.n_chunks
    backward = step.backward * step.seconds
    early = step.early or [backward * (n - i) / n for i in range(1, n + 1)]
    end = -math.inf
    for i, before in enumerate(early):
        end = max(end, i * busy - hidden * before) + seconds
    return end


def range_of(published):
    """The efficiencies with nothing and with everything hidden behind the backward pass, of an
    all-reduce.
    """
    step, n = published.step, published.n
    return [
        predict(step, ROCE, n, hidden=hidden, all_beside=True).efficiency for hidden in (0.0, 1.0)
    ]


class Measured(NamedTuple):
    """What bench_ranks.py wrote of one size."""

    step: Step  # of one process that uses all cores
    tokens: int  # of its batch
    weak: dict[int, float]  # efficiencies of n ranks, each with a whole batch on one thread


def measured(path=MEASURED, name="base"):
    """Read what bench_ranks.py wrote."""
    found = json.loads(path.read_text(encoding="utf-8"))["steps"][name]
    rows = found["contenders"]
    *_, all_cores = (row for contender, row in rows.items() if contender.endswith(" shards"))
    step = Step(all_cores["median"] / 1000, 4.0 * found["parameters"])
    one_thread = rows["1 process, 1 thread"]["median"]
    weak = {
        int(n): one_thread / rows[f"{n} ranks, {n} × the batch"]["median"]
        for n in found["messages"]
    }
    return Measured(step, found["tokens"], weak)


def strong(step, tokens, network, n):
    """The efficiency of n ranks that divide a batch of the paper's size."""
    part = step._replace(seconds=step.seconds * TOKENS_OF_THE_PAPER / tokens / n)
    return predict(part, network, n).efficiency
