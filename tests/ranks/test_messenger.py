"""The thread that calls MPI while gradients are computed."""

import threading
import time
from types import SimpleNamespace

import pytest

from npformer.runtime.messenger import Messenger


def messenger_of(testall):
    """A messenger that calls this function instead of MPI."""
    return Messenger(SimpleNamespace(mpi=SimpleNamespace(Request=SimpleNamespace(Testall=testall))))


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "npformer-messenger"]


def deliver(messenger, *requests):
    with messenger.lock:
        messenger.deliver(requests)


def test_it_calls_mpi_until_all_messages_have_arrived():
    seen = []

    def testall(requests):
        seen.append(list(requests))
        return len(seen) > 3

    messenger = messenger_of(testall)
    for requests, n_calls in (("ab", 4), ("c", 5)):
        deliver(messenger, *requests)
        while len(seen) < n_calls:
            time.sleep(0.001)
    messenger.end()
    assert seen == [["a", "b"]] * 4 + [["c"]]
    assert not threads()


def test_it_ends_while_messages_are_under_way_and_without_any():
    messenger = messenger_of(lambda requests: False)
    messenger.end()
    deliver(messenger, "a")
    assert len(threads()) == 1
    messenger.end()
    messenger.end()
    assert not threads()


def test_an_error_of_mpi_is_raised_at_the_end():
    def fail(requests):
        raise OSError("the other rank is gone")

    messenger = messenger_of(fail)
    deliver(messenger, "a")
    while threads():
        time.sleep(0.001)
    with pytest.raises(OSError, match="the other rank is gone"):
        messenger.end()
