"""Streams and threads: work of CUDA is done late,
and a call from anywhere may spoil a recording.
"""

import threading

import cupy
import numpy as np
import pytest

from npformer import Adam, Trainer, Transformer, gpu

MODEL = Transformer(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=16, dropout=0.1)


def losses_of(seed, n=6, model=MODEL):
    """The losses of a training.

    (It warns if a step cannot be recorded, and a warning is an error.)
    """
    trainer, rng = Trainer(model, Adam(0.01), seed=seed, backend=gpu), np.random.default_rng(seed)
    losses = []
    for _ in range(n):
        src, tgt = rng.integers(3, 11, (8, 8)), rng.integers(3, 11, (8, 9))
        tgt[:, 0] = 1
        losses.append(trainer.step(src, tgt))
    return losses


class UsesDefaultStream(Transformer):
    """A model that calls something on the default stream, while a step is recorded."""

    def loss_and_grad(self, *args, **options):
        with cupy.cuda.Stream.null:
            cupy.zeros(3).fill(1)
        return super().loss_and_grad(*args, **options)


def test_a_call_on_the_default_stream_spoils_no_recording():
    model = UsesDefaultStream(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=16, dropout=0.1)
    assert losses_of(0, model=model) == losses_of(0)


def test_what_another_thread_computes_spoils_no_recording():
    expected, stop, wrong = losses_of(0, 20), threading.Event(), []

    def compute():
        while not stop.is_set():
            x = cupy.arange(100.0)
            if float((x * 2).sum()) != 9900:
                wrong.append(x)

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        assert losses_of(0, 20) == expected
    finally:
        stop.set()
        thread.join()
    assert not wrong


def test_two_threads_may_train():
    expected, found = [losses_of(seed, 20) for seed in range(2)], [None, None]

    def train(seed):
        found[seed] = losses_of(seed, 20)

    threads = [threading.Thread(target=train, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


def test_what_an_interrupted_call_sends_is_what_arrives():
    total, batch = cupy.zeros(()), np.ones((8, 8))

    def work(batches, key, numbers):
        total[...] = total + batches[0][0].sum()
        return (total,)

    recorder = gpu.ops.device.record(work, lambda batch, _: batch)
    for _ in range(3):
        [before] = recorder([(batch,)], 0, [0.0])
    [recording] = recorder.recordings.values()
    replay = recording.replay

    def interrupted(*args):
        replay(*args)
        raise KeyboardInterrupt

    recording.replay = interrupted
    with pytest.raises(KeyboardInterrupt):
        recorder([(10 * batch,)], 0, [0.0])
    recording.replay = replay
    assert recorder([(100 * batch,)], 0, [0.0]) == [before + 110 * batch.size]
