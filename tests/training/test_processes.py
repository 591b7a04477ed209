"""A training in another process, which ``multiprocessing`` starts while a thread of this one trains."""

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from npformer import Adam, CopyTask, Trainer, Transformer

PATIENCE = 120  # seconds after which a child counts as hanging


def trained():
    """The parameters after three steps on two shards."""
    task = CopyTask(seed=0)
    model = Transformer(task.vocab, task.vocab, d_model=16, n_heads=2, n_layers=1, d_ff=32, dropout=0.1)
    trainer = Trainer(model, Adam(1e-3), n_shards=2)
    for step in range(3):
        trainer.step(*task.batch(step, 8))
    return np.array(trainer.flat_params)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_child_has_the_same_bits_beside_a_thread_that_trains(method):
    wanted = trained()
    stop = threading.Event()

    def train_until_the_end():
        while not stop.is_set():
            trained()

    thread = threading.Thread(target=train_until_the_end)
    thread.start()
    try:
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            children = [pool.submit(trained) for _ in range(2)]
            for child in children:
                np.testing.assert_array_equal(child.result(PATIENCE), wanted)
    finally:
        stop.set()
        thread.join()
