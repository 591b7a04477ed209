"""Interrupts, threads and forks while a training runs."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from numpy.testing import assert_array_equal
from programs import FORKS_WARN, WITH_FORK, WITH_SIGNALS, environment, forked, in_threads, python

from npformer import Adam, Trainer, Transformer, greedy_decode
from npformer.runtime import blas_threads as blas
from npformer.runtime.forks import cached_property
from npformer.runtime.interrupts import MOST, deferred_interrupts
from npformer.text import CopyTask
from npformer.training import StopSignals, load_checkpoint
from tests.tools.fork_training import work, work_until

pytestmark = pytest.mark.usefixtures("signals_of_the_foreground")


@contextmanager
def handling(number, handler):
    """A block in which a signal has this handler, at its end, too."""
    before = signal.signal(number, handler)
    try:
        yield
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


@contextmanager
def thread_in(block):
    """A block in which another thread is in the context that ``block()`` gives."""
    begun, done = threading.Event(), threading.Event()

    def hold():
        with block():
            begun.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.fixture
def two_threads():
    with blas.blas_threads(2):
        yield


def test_an_interrupt_comes_when_the_block_has_ended():
    done = []
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        signal.raise_signal(signal.SIGINT)
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
        done.append(True)
    assert done


def test_a_handler_that_raises_nothing_runs_at_once():
    seen = []
    with handling(signal.SIGTERM, lambda number, frame: seen.append(number)), deferred_interrupts():
        signal.raise_signal(signal.SIGTERM)
        assert seen == [signal.SIGTERM]


def test_an_interrupt_is_raised_beside_an_error_of_the_block():
    with pytest.raises(KeyboardInterrupt) as caught, deferred_interrupts():
        signal.raise_signal(signal.SIGINT)
        raise ZeroDivisionError
    assert isinstance(caught.value.__context__, ZeroDivisionError)


def test_a_block_that_never_ends_is_interrupted_by_the_fifth_signal():
    n = 0
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        while n < 2 * MOST:
            n += 1
            signal.raise_signal(signal.SIGINT)
    assert n == MOST


def test_other_threads_defer_nothing():
    seen = []

    def work():
        with deferred_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    in_threads(work)
    assert seen == [signal.default_int_handler]


def test_a_handler_that_the_block_sets_is_kept():
    with deferred_interrupts():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is signal.SIG_IGN


def small(seed=0, **options):
    task = CopyTask(seed=seed)
    model = Transformer(
        task.vocab, task.vocab, d_model=16, n_heads=2, n_layers=1, d_ff=32, dropout=0.1
    )
    return task, Trainer(model, Adam(lr=1e-3), seed=seed, backend="cpu", **options)


def interrupted_by(act):
    """``loss_and_grad``, which calls ``act()`` in the main thread; a helper waits for that."""
    loss_and_grad, has_begun = Transformer.loss_and_grad, threading.Event()

    def interrupted(*args, **options):
        if threading.current_thread() is threading.main_thread():
            has_begun.set()
            act()
        else:  # it would take all shards while the main thread has no core
            has_begun.wait(10)
        return loss_and_grad(*args, **options)

    return interrupted


def too_late(number, frame):
    raise TimeoutError


OTHERS = [
    (getattr(signal, name), too_late, TimeoutError)
    for name in ("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGCHLD", "SIGUSR2", "SIGRTMIN")
    if hasattr(signal, name)
]


@pytest.mark.parametrize(
    "number, handler, error",
    [(signal.SIGINT, signal.default_int_handler, KeyboardInterrupt), *OTHERS],
)
def test_a_step_that_is_interrupted_is_made_and_counted(
    number, handler, error, two_threads, monkeypatch
):
    """By a handler of any signal, several times."""
    _, other = small(n_shards=2)

    def interrupt():
        for _ in range(3):
            signal.raise_signal(number)

    with handling(number, handler), monkeypatch.context() as patch:
        patch.setattr(Transformer, "loss_and_grad", interrupted_by(interrupt))
        task, trainer = small(n_shards=2)
        with pytest.raises(error):
            trainer.step(*task.batch(0, 8))
    other.step(*task.batch(0, 8))
    assert trainer.n_steps == 1
    assert_array_equal(trainer.flat_params, other.flat_params)


@pytest.mark.parametrize("n_interrupts", [1, 2])
def test_a_trainer_knows_the_file_whose_writing_was_interrupted(
    n_interrupts, tmp_path, monkeypatch
):
    task, trainer = small()
    replace = os.replace

    def interrupted(new, path):
        replace(new, path)
        for _ in range(n_interrupts if Path(path).name == "last.safetensors" else 0):
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trainer.fit([task.batch(i, 8) for i in range(3)], save=tmp_path, progress=False)
    trainer.fit([task.batch(i, 8) for i in range(3, 5)], save=tmp_path, progress=False)
    assert load_checkpoint(tmp_path / "last.safetensors")[1]["n_steps"] == 5


@pytest.mark.skipif(
    blas.openblas_function("get_num_threads") is None, reason="NumPy is not linked to OpenBLAS"
)
def test_an_interrupt_of_a_block_that_begins_leaves_the_number_of_threads(monkeypatch, two_threads):
    real = blas.openblas_function

    def interrupting(name, restype=None):
        function = real(name, restype)
        if name != "set_num_threads":
            return function

        def set_to(n):
            function(n)
            signal.raise_signal(signal.SIGINT)

        return set_to

    with monkeypatch.context() as patch:
        patch.setattr(
            blas,
            "_functions",
            lambda: (real("get_num_threads"), interrupting("set_num_threads", None)),
        )
        for block in (blas.blas_threads(1), blas.one_blas_thread()):
            with pytest.raises(KeyboardInterrupt), block:
                pass
            assert real("get_num_threads")() == 2


@WITH_FORK
@pytest.mark.parametrize(("tool", "n"), [("interrupts", 8), ("forks", 2)])
def test_interrupts_and_forks_at_random_moments(tool, n):
    """In a process of its own: pytest would be interrupted, too, and forked."""
    python(Path(__file__).parents[1] / f"tools/{tool[:-1]}_training.py", f"--{tool}", n)


def test_six_threads_train_six_models_with_the_same_bits_as_one_after_the_other(two_threads):
    def train(seed):
        task, trainer = small(seed, n_shards=2 if seed % 2 else None)
        for step in range(8):
            trainer.step(*task.batch(step, 8))
        rows = greedy_decode(
            trainer.model, trainer.params, task.batch(0, 80)[0], bos_id=1, eos_id=2, max_len=6
        )
        return trainer.flat_params, [list(row) for row in rows]

    expected, results = [train(seed) for seed in range(6)], {}

    def work(seed):
        results[seed] = train(seed)

    in_threads(*(partial(work, seed) for seed in range(6)))
    for seed, (params, rows) in enumerate(expected):
        assert_array_equal(results[seed][0], params)
        assert results[seed][1] == rows


@WITH_FORK
@FORKS_WARN
def test_a_fork_while_another_thread_compiles(tmp_path):
    code = """
import os, signal, threading, time
import numpy as np
from npformer import cpu
def work():
    return cpu.softmax(np.ones((2, 3), "float32"))
thread = threading.Thread(target=work)
thread.start()
time.sleep(0.3)
if os.fork() == 0:
    signal.alarm(300)
    work()
    os._exit(0)
assert os.wait()[1] == 0
"""
    python("-c", code, env=environment(NUMBA_CACHE_DIR=str(tmp_path)))


@WITH_FORK
def test_a_process_forked_beside_stop_signals_ends_on_sigterm():
    with StopSignals():
        assert forked(lambda: os.kill(os.getpid(), signal.SIGTERM)) == -signal.SIGTERM


def test_a_thread_goes_on_training_when_the_main_thread_has_ended():
    code = """
import threading, time
from npformer.runtime.blas_threads import blas_threads
from npformer.runtime.threads import in_parallel
def work():
    threading.main_thread().join()
    print(in_parallel(lambda part: 2 * part, [1, 2, 3]))
blas_threads(2).__enter__()
threading.Thread(target=work).start()
"""
    done = python("-c", code)
    assert (done.stdout, done.stderr) == ("[2, 4, 6]\n", "")


def test_one_trainer_in_several_threads_takes_every_step_and_saves_between_steps(tmp_path):
    pytest.importorskip("safetensors")
    task, trainer = small()
    saved = []

    def train():
        for i in range(30):
            trainer.step(*task.batch(i, 8))

    def save():
        while trainer.n_steps < 60:
            trainer.save(tmp_path / "x")
            # A checksum that is wrong would be an error.
            saved.append(load_checkpoint(tmp_path / "x")[1]["n_steps"])

    in_threads(train, train, save)
    assert trainer.n_steps == 60
    assert len(saved) > 2


@WITH_FORK
@FORKS_WARN
def test_a_trainer_whose_lock_another_thread_has_steps_in_a_forked_process():
    task, trainer = small()
    trainer.step(*task.batch(0, 8))

    def step():
        trainer.step(*task.batch(1, 8))
        return trainer.n_steps

    with thread_in(trainer._guard):
        assert forked(step) == 2


@WITH_FORK
@FORKS_WARN
def test_a_property_that_another_thread_computes_is_computed_in_a_forked_process():
    begun, done = threading.Event(), threading.Event()

    class Model:
        @cached_property
        def shapes(self):
            begun.set()
            done.wait()
            return {}

    (holder := threading.Thread(target=lambda: Model().shapes)).start()
    begun.wait()

    def work():
        done.set()
        return Model().shapes != {}

    code = forked(work)
    done.set()
    holder.join()
    assert code == 0


PATIENCE = 120  # seconds after which a child counts as hanging


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_child_has_the_same_bits_beside_a_thread_that_trains(method):
    wanted, stop = work(0), threading.Event()
    thread = threading.Thread(target=work_until, args=(stop, 0))
    thread.start()
    try:
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            children = [pool.submit(work, 0) for _ in range(2)]
            for child in children:
                assert_array_equal(child.result(PATIENCE), wanted)
    finally:
        stop.set()
        thread.join()


@WITH_SIGNALS
def test_the_tests_of_signals_pass_in_the_background_and_under_nohup():
    files = (
        "tests/training/test_interruption.py",
        "--pyargs",
        "npformer.runtime.interrupts",
        "npformer.training.guard",
    )
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    ignoring = ["sh", "-c", 'trap "" INT HUP; exec "$@"', "sh"]
    done = subprocess.run(
        [*ignoring, *tests], cwd=Path(__file__).parents[2], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["step", "explain"])
def test_a_handler_that_calls_the_trainer_in_mid_step_is_refused(name, monkeypatch, tmp_path):
    """It would save parameters of which some are updated, or make a step inside a step."""
    _, other = small(n_shards=2)
    errors = []

    def handler(number, frame):
        for call in (lambda: trainer.save(tmp_path / "x"), lambda: trainer.step(*task.batch(1, 8))):
            with pytest.raises(RuntimeError, match="set a flag in the handler") as raised:
                call()
            errors.append(raised.value)

    with handling(signal.SIGUSR1, handler), monkeypatch.context() as patch:
        interrupt = partial(signal.raise_signal, signal.SIGUSR1)
        patch.setattr(Transformer, "loss_and_grad", interrupted_by(interrupt))
        task, trainer = small(n_shards=2)
        getattr(trainer, name)(*task.batch(0, 8))
    getattr(other, name)(*task.batch(0, 8))
    assert errors
    assert_array_equal(trainer.flat_params, other.flat_params)
    with handling(signal.SIGUSR1, signal.SIG_IGN):
        trainer.step(*task.batch(1, 8))  # and the lock is free
