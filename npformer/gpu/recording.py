"""Work that is recorded as a CUDA graph, and replayed: hundreds of kernels for one call of the host.

What changes from one time to the next has a place on the GPU that the kernels read: the token ids, their number, and
the words of each key that dropout draws with.
"""

import warnings

import cupy
import numpy as np

from npformer.reference.random import derive_key, key_words

MULTIPLE = 8  # lengths and rows are filled up to one, so that there are fewer shapes
MOST_KEYS = 4096


class Recorder:
    """Work on batches, which is recorded for each of their shapes.

    The first batch of a shape is worked on as ever, which compiles what is missing and fills the pool with memory.
    The second is recorded. From then on there is one call.

    Parameters
    ----------
    work : callable
        ``work(src, tgt, key, n_tokens)`` -> an array on the GPU. It must not look at any number there.
    pad_id : int
        What batches are filled up with.
    """

    def __init__(self, work, pad_id):
        self.work, self.pad_id = work, pad_id
        self.recordings = {}
        self.stream = cupy.cuda.Stream()
        self.pool = cupy.cuda.MemoryPool()  # recordings share it, as they never run at once

    def __call__(self, src, tgt, key, n_tokens):
        """``work``, or its replay.

        Parameters
        ----------
        src, tgt : (B, S), (B, T) int
            NumPy arrays.
        key : int
        n_tokens : float
        """
        src, tgt = filled_up(src, self.pad_id), filled_up(tgt, self.pad_id)
        shape = src.shape, tgt.shape
        with self.stream, cupy.cuda.using_allocator(self.pool.malloc):
            if shape in self.recordings and self.recordings[shape] is None:
                self.recordings[shape] = self._record(src, tgt)
            recording = self.recordings.setdefault(shape, None)
            if not recording:
                return self.work(cupy.asarray(src), cupy.asarray(tgt), key, cupy.asarray(np.float32(n_tokens)))
            return recording.replay(src, tgt, key, n_tokens, self.stream)

    def _record(self, src, tgt):
        """A recording, or False where the work looks at what the GPU computes."""
        try:
            return Recording(self.work, src, tgt, self.stream)
        except Exception as error:  # CuPy has a type for each way to fail
            warnings.warn(f"this step cannot be recorded, its kernels are launched one by one: {error}", stacklevel=5)
            return False


class Recording:
    """Work on batches of one shape."""

    def __init__(self, work, src, tgt, stream):
        self.src, self.tgt = cupy.asarray(src), cupy.asarray(tgt)
        self.n_tokens, self.keys = cupy.ones((), np.float32), KeyTable()
        stream.begin_capture()
        try:
            self.result = work(self.src, self.tgt, KeyToCome(self.keys), self.n_tokens)
        finally:
            self.graph = stream.end_capture()

    def replay(self, src, tgt, key, n_tokens, stream):
        """What the work gives for another batch, in the array in which it gave it before."""
        self.src.set(src)
        self.tgt.set(tgt)
        self.n_tokens.set(np.array(n_tokens, np.float32))
        self.keys.derive_from(key)
        self.graph.launch(stream)
        return self.result


class KeyTable:
    """The words of all keys that are derived from one, where kernels read them."""

    def __init__(self):
        self.words = cupy.zeros((MOST_KEYS, 2), np.uint32)
        self.paths = []

    def place_of(self, path):
        """Where the words of the key with this path of numbers will be."""
        if path not in self.paths:
            self.paths.append(path)
        return self.words[self.paths.index(path)]

    def derive_from(self, key):
        """Write the words of all keys."""
        if self.paths:
            words = np.array([key_words(derive_key(key, *path)) for path in self.paths], np.uint32)
            self.words[: len(words)].set(words)


class KeyToCome:
    """A key of which is known only how it will be derived: another for each replay."""

    def __init__(self, table, path=()):
        self.table, self.path = table, path

    def derive(self, *path):
        """What ``derive_key`` makes of it."""
        return KeyToCome(self.table, self.path + path)

    @property
    def words(self):
        """Its two words, on the GPU, when it is used."""
        return self.table.place_of(self.path)


def filled_up(ids, pad_id):
    """Rows and columns of padding, up to a multiple of ``MULTIPLE``."""
    missing = [(0, -n % MULTIPLE) for n in ids.shape]
    return np.pad(ids, missing, constant_values=pad_id)
