"""Work that is recorded as a CUDA graph, and replayed: hundreds of kernels for one call of the host.

What changes from one time to the next has a place on the GPU that the kernels read: the token ids, some numbers, and
the words of each key that dropout draws with. One copy fills them all.
"""

import contextlib
import warnings

import cupy
import numpy as np

from npformer.reference.random import derive_key, key_words

MOST_SHAPES = 256  # that are recorded; then those not used for longest are forgotten
MOST_KEYS = 4096
ALIGNMENT = 256  # bytes, of every array on the GPU


class Recorder:
    """A step on batches, which is recorded for each of their shapes.

    The first batch of a shape is worked on as ever, which compiles what is missing. The second is recorded. From then
    on there is one call. A result has to be looked at before the next call, which writes over what this one reads.

    Parameters
    ----------
    work : callable
        ``work(batches, key, numbers)`` -> a tuple of numbers on the GPU. It must not look at any number there.
    fill_up : callable
        ``fill_up(batch, rounded_up)`` -> the batch, a tuple of NumPy arrays, with padding: so there are few shapes.
    """

    def __init__(self, work, fill_up):
        self.work, self.fill_up = work, fill_up
        self.seen, self.recordings = set(), {}  # shapes; of the recordings the one used last is last
        self.refused = False
        self.stream = cupy.cuda.Stream()
        self.pool = cupy.cuda.MemoryPool(self._allocate)

    def __call__(self, batches, key, numbers):
        """``work``, or its replay, which there is for a single batch.

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
        """The recording for this shape, made if it is the second time; None where there is none."""
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
        except Exception as error:  # CuPy has a type for each way to fail
            warnings.warn(f"this step cannot be recorded, its kernels are launched one by one: {error}", stacklevel=6)
            self.refused = True
            return None

    def _allocate(self, size):
        """Memory for the pool.

        What a recording works in is free memory of the pool for everything but its replay. If there is no more, the
        pool gives back all that is free; so no recording may be replayed after that.
        """
        try:
            return cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)
        except Exception:
            self.recordings.clear()
            cupy.get_default_memory_pool().free_all_blocks()
            raise  # and CuPy tries again


class Recording:
    """Work on batches of one shape."""

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
            with contextlib.suppress(Exception):  # that something was wrong is known
                stream.end_capture()
            raise
        self.graph = stream.end_capture()

    def replay(self, batch, key, numbers, stream):
        """What the work gives for another batch, in the array in which it gave it before."""
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
    """Arrays that the host fills for each replay: one block of its memory, and one on the GPU.

    Attributes
    ----------
    here, there : dict of arrays
        The same, of NumPy and of CuPy.
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
        """Copy all but the last bytes, before what the stream does next. They must stay until that is done."""
        self.copy.data.copy_from_host_async(self.memory.ctypes.data, self.memory.nbytes - n_unused, stream)


class KeyTable:
    """Where the words of keys that are derived from one are for kernels to read."""

    def __init__(self, words):
        self.words = words
        self.places = {}

    def words_of(self, path):
        """Where the words of the key with this path of numbers will be."""
        return self.words[self.places.setdefault(path, len(self.places))]

    def words_from(self, key):
        """The words of all keys that are derived from this one, in their places."""
        return np.array([key_words(derive_key(key, *path)) for path in self.places], np.uint32).reshape(-1, 2)


class KeyToCome:
    """A key of which is known only how it will be derived: another for each replay."""

    def __init__(self, table, path=()):
        self.table, self.path = table, path

    def derive(self, *path):
        """What ``derive_key`` makes of it."""
        return KeyToCome(self.table, self.path + path)

    def words(self):
        """Its two words, on the GPU, when it is used."""
        return self.table.words_of(self.path)


def rounded_up(n):
    """A multiple of 8, and of 16 above 128, of 32 above 256, ...: so there are few shapes, and little to fill up."""
    step = max(8, 2 ** ((n - 1).bit_length() - 4))
    return -(-n // step) * step


def _together(numbers):
    """In one array, which is one copy to the host."""
    return cupy.stack([x.astype(np.float64) for x in numbers])
