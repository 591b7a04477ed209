"""Record work as a CUDA graph and replay it: one call launches hundreds of kernels.

Everything that changes from one replay to the next is read from arrays on the GPU: the token ids, some numbers, and the
words of each dropout key. One copy from the host fills them all.
"""

import contextlib
import warnings

import cupy
import numpy as np

from npformer.reference.random import derive_key, key_words

MOST_SHAPES = 256  # the most recordings that are kept; the least recently used one is dropped first
MOST_KEYS = 4096
ALIGNMENT = 256  # in bytes, of each array in the block of inputs


class Recorder:
    """A function of batches that is recorded once for each shape of a batch, and then replayed.

    For the first batch of a shape the function is called normally, which compiles missing kernels. For the second it
    is recorded. From then on the recording is replayed. Each call waits for its result, because the next call
    overwrites the inputs.

    Parameters
    ----------
    work : callable
        ``work(batches, key, numbers)`` -> a tuple of numbers on the GPU. It must not read values from the GPU.
    fill_up : callable
        ``fill_up(batch, rounded_up)`` -> the batch, a tuple of NumPy arrays, padded so that there are few shapes.
    """

    def __init__(self, work, fill_up):
        self.work, self.fill_up = work, fill_up
        self.seen, self.recordings = set(), {}  # keyed by shape; the recording used last comes last
        self.refused = False
        self.stream = cupy.cuda.Stream()
        self.pool = cupy.cuda.MemoryPool(self._allocate)

    def __call__(self, batches, key, numbers):
        """Call ``work``, or replay its recording if there is a single batch.

        Parameters
        ----------
        batches : sequence of tuples of NumPy arrays
        key : int
        numbers : sequence of float

        Returns
        -------
        list of float
        """
        batches, numbers = [self.fill_up(batch, rounded_up) for batch in batches], np.array(numbers, np.float64)
        recording = self._recording_of(batches[0], numbers) if len(batches) == 1 else None
        if not recording:
            there = [tuple(map(cupy.asarray, batch)) for batch in batches]
            return _together(self.work(there, key, cupy.asarray(numbers))).get().tolist()
        caller = cupy.cuda.get_current_stream()
        self.stream.wait_event(caller.record())
        with self.stream:
            result = recording.replay(batches[0], key, numbers, self.stream)
        caller.wait_event(self.stream.record())
        return result.get().tolist()

    def _recording_of(self, batch, numbers):
        """The recording for this shape, which is made at the second batch; None if there is none."""
        shape = tuple(x.shape for x in batch)
        if self.refused:
            return None
        if shape not in self.seen:
            self.seen.add(shape)
            return None
        recording = self.recordings.pop(shape, None) or self._record(batch, numbers)
        self.recordings[shape] = recording
        while len(self.recordings) > MOST_SHAPES:
            del self.recordings[next(iter(self.recordings))]
        return recording

    def _record(self, batch, numbers):
        try:
            with self.stream, cupy.cuda.using_allocator(self.pool.malloc):
                return Recording(self.work, batch, numbers, self.stream)
        except Exception as error:  # CuPy raises many types of errors
            warnings.warn(f"this step cannot be recorded, its kernels are launched one by one: {error}", stacklevel=6)
            self.refused = True
            return None

    def _allocate(self, size):
        """Allocate memory for the pool.

        The pool counts the working memory of a recording as free, although a replay uses it. When there is no memory
        left, all free memory of the pool is returned to the system, so the recordings are deleted first.
        """
        try:
            return cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)
        except Exception:
            self.recordings.clear()
            cupy.get_default_memory_pool().free_all_blocks()
            raise  # CuPy tries again


class Recording:
    """A recording of ``work`` for batches of one shape."""

    def __init__(self, work, batch, numbers, stream):
        words, arrays = np.zeros((MOST_KEYS, 2), np.uint32), dict(enumerate(batch))
        self.inputs = Inputs({"numbers": numbers, **arrays, "words": words})
        self.keys = KeyTable(self.inputs.there["words"])
        stream.begin_capture()
        try:
            there = self.inputs.there
            batch_there = tuple(there[i] for i in arrays)
            self.result = _together(work([batch_there], KeyToCome(self.keys), there["numbers"]))
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the one to report
                stream.end_capture()
            raise
        self.graph = stream.end_capture()

    def replay(self, batch, key, numbers, stream):
        """Replay the recording on another batch. Returns the same array each time, with new values."""
        words = self.keys.words_from(key)
        here = self.inputs.here
        for i, x in enumerate(batch):
            here[i][...] = x
        here["numbers"][...] = numbers
        here["words"][: len(words)] = words
        self.inputs.send(here["words"][len(words) :].nbytes, stream)
        self.graph.launch(stream)
        return self.result


class Inputs:
    """Arrays that the host fills for each replay, in one block of host memory and one block of GPU memory.

    Attributes
    ----------
    here, there : dict of arrays
        The same arrays on the host (NumPy) and on the GPU (CuPy).
    """

    def __init__(self, arrays):
        places, size = {}, 0
        for name, x in arrays.items():
            places[name] = slice(size, size + x.nbytes)
            size += -(-x.nbytes // ALIGNMENT) * ALIGNMENT
        self.memory = np.frombuffer(cupy.cuda.alloc_pinned_memory(size), np.uint8, size)
        self.copy = cupy.empty(size, np.uint8)
        self.here, self.there = (
            {name: block[places[name]].view(x.dtype).reshape(x.shape) for name, x in arrays.items()}
            for block in (self.memory, self.copy)
        )
        for name, x in arrays.items():
            self.here[name][...] = x
        self.copy.set(self.memory)

    def send(self, n_unused, stream):
        """Copy all but the last ``n_unused`` bytes, in the order of the stream; until then they must not change."""
        self.copy.data.copy_from_host_async(self.memory.ctypes.data, self.memory.nbytes - n_unused, stream)


class KeyTable:
    """A table on the GPU from which kernels read the words of the keys that are derived from one key."""

    def __init__(self, words):
        self.words = words
        self.places = {}

    def words_of(self, path):
        """The row of the table for the key that is derived with this path of numbers."""
        return self.words[self.places.setdefault(path, len(self.places))]

    def words_from(self, key):
        """The words of all keys that are derived from this one, in the order of the table."""
        return np.array([key_words(derive_key(key, *path)) for path in self.places], np.uint32).reshape(-1, 2)


class KeyToCome:
    """A placeholder for a key in a recording. Only its path of derivation is known; each replay has another key."""

    def __init__(self, table, path=()):
        self.table, self.path = table, path

    def derive(self, *path):
        """The placeholder for ``derive_key(key, *path)``."""
        return KeyToCome(self.table, self.path + path)

    def words(self):
        """The array on the GPU that will hold the two words of the key during a replay."""
        return self.table.words_of(self.path)


def rounded_up(n):
    """Round up to a multiple of 8; above 128 of 16, above 256 of 32, ... This gives few shapes and little padding."""
    step = max(8, 2 ** ((n - 1).bit_length() - 4))
    return -(-n // step) * step


def _together(numbers):
    """All numbers in one array, so that one copy brings them to the host."""
    return cupy.stack([x.astype(np.float64) for x in numbers])
