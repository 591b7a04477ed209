"""Signals that ask for an end."""

import signal
from unittest.mock import patch

import numpy as np
import pytest
from programs import WITH_SIGNALS, in_threads, python

from npformer import SGD, Trainer, Transformer
from npformer.runtime import interrupts
from npformer.training import StopSignals

pytestmark = pytest.mark.usefixtures("signals_of_the_foreground")
CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}  # Windows has no SIGHUP
ALL = pytest.mark.parametrize(
    "number, code",
    [(getattr(signal, name), code) for name, code in CODES.items() if hasattr(signal, name)],
)


def handlers():
    return [signal.getsignal(number) for number in interrupts.TO_STOP]


@pytest.mark.parametrize("number, code", [(None, 0), *ALL.args[1]])
def test_a_signal_is_only_noted(number, code):
    with StopSignals() as stop:
        if number is not None:
            signal.raise_signal(number)
        assert stop(None, None) == (number is not None)
    assert (stop.received, stop.exit_code) == (number, code)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
def test_a_signal_that_is_ignored_stays_ignored():
    """As SIGHUP is after nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            signal.raise_signal(signal.SIGHUP)
        assert stop.received is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_is_answered_at_once(capfd):
    with StopSignals("saving"):
        signal.raise_signal(signal.SIGTERM)
        assert capfd.readouterr().err == "\nSIGTERM: saving\n"


def test_a_signal_is_noted_even_if_nobody_can_be_told():
    with StopSignals("saving") as stop, patch("os.write", side_effect=BrokenPipeError):
        signal.raise_signal(signal.SIGTERM)
    assert stop.received == signal.SIGTERM


@ALL
def test_the_handlers_are_what_they_were_after_a_signal_and_after_an_error(number, code):
    before = handlers()
    with StopSignals():
        assert before[0] not in handlers()
        signal.raise_signal(number)
    assert handlers() == before
    with pytest.raises(ZeroDivisionError), StopSignals():
        raise ZeroDivisionError
    assert handlers() == before


@ALL
def test_a_second_ctrl_c_interrupts_whatever_the_first_signal_was(number, code):
    with pytest.raises(KeyboardInterrupt), StopSignals() as stop:
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGINT)
    assert stop.exit_code == code


@WITH_SIGNALS
def test_a_second_sigterm_ends_the_process():
    code = """
import signal
from npformer.training import StopSignals
with StopSignals():
    signal.raise_signal(signal.SIGTERM)
    print("once", flush=True)
    signal.raise_signal(signal.SIGTERM)
    print("twice", flush=True)
"""
    assert python("-c", code, code=-signal.SIGTERM).stdout == "once\n"


def test_as_a_callback_it_stops_the_training_after_the_step():
    trainer = Trainer(Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8), SGD(0.1))
    batch = np.array([[3, 4]]), np.array([[1, 3, 2]])

    def batches():
        for i in range(9):
            if i == 2:
                signal.raise_signal(signal.SIGTERM)
            yield batch

    with StopSignals() as stop:
        history = trainer.fit(batches(), callbacks=[stop], progress=False)
    assert len(history) == trainer.n_steps == 3


def test_in_another_thread_it_does_nothing():
    before, seen = handlers(), []

    def work():
        with StopSignals() as stop:
            seen.append((handlers(), stop(None, None), stop.exit_code))

    in_threads(work)
    assert seen == [(before, False, 0)]
