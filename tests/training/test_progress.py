"""What the progress bar says while kernels are compiled."""

import io
import sys

import pytest
from programs import environment, python
from trainings import Terminal, shown_by

from npformer.progress import progress_bar, say
from npformer.runtime.compilations import compilation_listener, compiling, working_time
from npformer.training.trainer import StepInfo

numba = pytest.importorskip("numba")
pytest.importorskip("tqdm")
pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
INFO = StepInfo(step=1, loss=0.5, lr=0.1, grad_norm=1.0, n_tokens=7, seconds=0.1)


def increase(x):
    return x + 1


def increase_twice(x):
    return increase(increase(x))


@pytest.fixture
def first_run(monkeypatch, tmp_path):
    """Functions to compile, with nothing on disk."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(globals(), "increase", numba.njit(increase))
    from npformer.cpu import jit  # here, as it needs numba

    return lambda: jit.kernel(increase_twice)


def shown(monkeypatch, stream, kernel, arguments):
    """What the bar writes during steps that call a kernel with these arguments."""

    def work():
        with progress_bar(len(arguments), True) as bar:
            for x in arguments:
                kernel(x)
                bar.advance(INFO)

    return shown_by(monkeypatch, stream, work)


def test_a_terminal_sees_which_kernel_is_compiled_and_afterwards_no_more_of_it(
    monkeypatch, first_run
):
    text = shown(monkeypatch, Terminal(), first_run(), [1, 1, 1.5])
    assert (
        "compiling kernel 1: test_progress.increase_twice" in text
    )  # and not the function that is compiled as a part of it
    assert "compiling kernel 2: test_progress.increase_twice" in text
    assert "compiling kernel 3" not in text
    last = text.split("\r")[-1]
    assert "loss 0.5000" in last
    assert "compiling" not in last


def test_a_log_file_gets_one_line(monkeypatch, first_run):
    text = shown(monkeypatch, io.StringIO(), first_run(), [1, 1.5])
    assert text.count("compiling kernels for this processor (once)") == 1
    assert "compiling kernel 1" not in text


@pytest.mark.parametrize("why", [KeyboardInterrupt, ValueError])
def test_the_last_line_of_a_log_file_is_written_whatever_ends_the_training(monkeypatch, why):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(why), progress_bar(9, True) as bar:
        bar.advance(INFO)
        raise why
    assert stream.getvalue().startswith("step 1 of 9: loss 0.5")


class Gone(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


class Lines(list):
    write = list.append


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize(
    "stream", [Gone(), None, closed(), Lines()], ids=["broken", "none", "closed", "no file"]
)
def test_a_training_goes_on_if_nobody_can_be_told(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", stream)
    with progress_bar(2, True) as bar:
        for _ in range(2):
            bar.advance(INFO)
            say("a line")


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_with_kernels_on_disk_nothing_is_said(monkeypatch, first_run, stream):
    first_run()(1)
    kernel = first_run()
    assert "compiling" not in shown(monkeypatch, stream(), kernel, [1, 1])
    assert sum(kernel.stats.cache_hits.values()) == 1


def test_numba_is_not_imported_for_it():
    code = (
        "import sys; from npformer.progress import progress_bar\nwith progress_bar(1, True): pass\n"
    )
    python("-c", code + "assert 'numba' not in sys.modules")


SLOW = """
import time
from npformer.cpu import jit
from npformer.runtime import compilations

compilations.PATIENCE = 60
def fast(x):
    return x + 1
def slow(x):
    return x + 1
jit.kernel(fast)(1)
compilations.PATIENCE = 0
jit.kernel(slow)(1)
import numba
numba.njit(lambda x: x - 1)(1)
"""


def test_a_compilation_that_takes_long_says_so_wherever_it_happens(tmp_path):
    """For kernels of npformer, not for what others compile."""
    (tmp_path / "slow.py").write_text(SLOW)
    errors = python(tmp_path / "slow.py", env=environment(NUMBA_CACHE_DIR=str(tmp_path))).stderr
    [line] = errors.splitlines()
    assert line.startswith("npformer: compiling the kernel __main__.slow for this processor (")


def test_a_kernel_is_compiled_where_no_thread_can_be_started(monkeypatch, first_run):
    def start(timer):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Timer.start", start)
    assert first_run()(1) == 3


def test_the_working_time_stands_still_while_a_kernel_is_compiled():
    with compilation_listener(), compiling("a kernel"):
        times = [working_time(), working_time()]
    assert times[0] == times[1] <= working_time()


def test_the_working_time_never_goes_back_if_threads_compile_at_once():
    times = [working_time()]
    with compilation_listener(), compiling("a kernel"):
        times.append(working_time())
        with compiling("another one"):
            times.append(working_time())
        times.append(working_time())
    times.append(working_time())
    assert times == sorted(times)
