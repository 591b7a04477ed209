"""Record work as a CUDA graph and replay it: one call launches hundreds of kernels.

Everything that changes from one replay to the next is read from arrays on the GPU: the token ids,
some numbers, and the words of each dropout key. One copy from the host fills them all.
"""

import contextlib
import weakref
from itertools import accumulate

import cupy
import numpy as np

from npformer.checks import warn
from npformer.gpu.blas import handle
from npformer.gpu.memory import OutOfMemory, WorkingMemory
from npformer.reference.math.random import derive_key, key_words

# The most recordings that are kept; the least recently used one is dropped first. (A training on
# Multi30k has 41 forms of batches.)
MOST_FORMS = 256
MOST_KEYS = 4096  # of dropout: a step with more is not recorded
ALIGNMENT = 256  # in bytes, of each array in the block of inputs: that of CUDA's own memory
ONE_BY_ONE = "its kernels are launched one by one"  # the end of a warning


class Recorder:
    """A function of batches that is recorded once for each form of a batch, and then replayed.

    The form is the shapes and dtypes of its arrays. For the first batch of a form the function is
    called normally, which compiles missing kernels. For the second it is recorded. From then on the
    recording is replayed. Each call waits for its result, because the next call overwrites the
    inputs.

    ``work(batches, key, numbers)`` -> a tuple of numbers on the GPU, from which it must not read
    values. ``fill_up(batch, rounded_up)`` -> the batch, a tuple of NumPy arrays, padded so that
    there are few shapes.
    """

    def __init__(self, work, fill_up):
        self.work = work
        self.fill_up = fill_up
        self.seen: set[tuple] = set()  # forms
        self.too_large: set[tuple] = set()  # forms
        self.refused = False
        # Other streams wait for the default one: a call on that would spoil a recording.
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.memory = WorkingMemory()
        self.recordings = self.memory.recordings  # by form; the one used last comes last
        # CuPy keeps the memory of a pool that is deleted.
        dropped = weakref.finalize(self, self.memory.give_back)
        dropped.atexit = False

    def __call__(self, batches, key, numbers):
        """Call ``work``, or replay its recording if there is a single batch; return the numbers as
        a list of float.
        """
        batches = [self.fill_up(batch, rounded_up) for batch in batches]
        numbers = np.array(numbers, np.float64)
        # A call that was interrupted may have left a copy that still reads the inputs.
        self.stream.synchronize()
        self.stream.wait_event(cupy.cuda.get_current_stream().record())
        with self.stream, self.memory.using():
            recording = self._recording_of(batches[0], numbers) if len(batches) == 1 else None
            if recording:
                result = recording.replay(batches[0], key, numbers, self.stream)
            else:
                on_gpu = [tuple(map(cupy.asarray, batch)) for batch in batches]
                result = _stacked(self.work(on_gpu, key, cupy.asarray(numbers)))
            return result.get().tolist()

    def _recording_of(self, batch, numbers):
        """The recording for batches of this form, made at the second one; None if there is none."""
        form = tuple((x.shape, x.dtype) for x in batch)
        if self.refused or form in self.too_large:
            return None
        if form not in self.seen:
            self.seen.add(form)
            return None
        if self.memory.was_given_back:
            self.recordings.clear()
        recording = self.recordings.pop(form, None) or self._record(form, batch, numbers)
        if recording:
            self.recordings[form] = recording
        while len(self.recordings) > MOST_FORMS:
            del self.recordings[next(iter(self.recordings))]
        return recording

    def _record(self, form, batch, numbers):
        """A new recording. If the work cannot be recorded, a warning is issued, and the result is
        None.
        """
        try:
            # The second time there is all the memory that can be had.
            recording = self._recorded(batch, numbers) or self._recorded(batch, numbers)
        except Exception as error:  # CuPy raises many types of errors
            self.refused = True
            warn(f"this step cannot be recorded: {error}; {ONE_BY_ONE}")
            return None
        if recording is None:
            self.too_large.add(form)
            shapes = ", ".join(str(x.shape) for x in batch)
            reason = f"the GPU has too little memory to record a step with arrays of {shapes}"
            warn(f"{reason}; {ONE_BY_ONE}")
        return recording

    def _recorded(self, batch, numbers):
        """A new recording; None if there was too little memory, or some of what it uses was given
        back meanwhile. Then all that can be had is made free.
        """
        self.memory.was_given_back = False
        try:
            recording = Recording(self.work, batch, numbers, self.stream)
        except Exception as error:
            if not (isinstance(error, OutOfMemory) or self.memory.was_given_back):
                raise
            recording = None
        if self.memory.was_given_back:
            recording = None
        if recording is None:
            self.memory.give_back()
        return recording


class Recording:
    """A recording of ``work`` for batches of one form."""

    def __init__(self, work, batch, numbers, stream):
        self.inputs = Inputs([numbers, *batch, np.zeros((MOST_KEYS, 2), np.uint32)])
        numbers_on_gpu, *batch_on_gpu, words = self.inputs.on_gpu
        self.places = {}  # the rows of the words, by the paths on which their keys are derived
        key = KeyToCome(words, self.places)
        handle()  # of cuBLAS: a new one could not be made in the recording
        stream.begin_capture()
        try:
            self.result = _stacked(work([tuple(batch_on_gpu)], key, numbers_on_gpu))
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the one to report
                stream.end_capture()
            raise
        self.graph = stream.end_capture()

    def replay(self, batch, key, numbers, stream):
        """Replay the recording on another batch; return the same array, with new values."""
        words = [key_words(derive_key(key, *path)) for path in self.places]
        *arrays, table = self.inputs.on_host
        for array, x in zip(arrays, [numbers, *batch], strict=True):
            array[...] = x
        table[: len(words)] = np.array(words, np.uint32).reshape(-1, 2)
        self.inputs.send(table[len(words) :].nbytes, stream)
        self.graph.launch(stream)
        return self.result


class Inputs:
    """Arrays that the host fills for each replay, ``on_host`` in one block of its memory,
    ``on_gpu`` in one of the GPU.
    """

    def __init__(self, arrays):
        *starts, size = accumulate((_aligned(x.nbytes) for x in arrays), initial=0)
        self.memory = np.frombuffer(cupy.cuda.alloc_pinned_memory(size), np.uint8, size)
        self.copy = cupy.empty(size, np.uint8)
        self.on_host = []
        self.on_gpu = []
        for start, x in zip(starts, arrays, strict=True):
            place = slice(start, start + x.nbytes)
            self.on_host.append(self.memory[place].view(x.dtype).reshape(x.shape))
            self.on_gpu.append(self.copy[place].view(x.dtype).reshape(x.shape))
            self.on_host[-1][...] = x
        self.copy.set(self.memory)

    def send(self, n_unused, stream):
        """Copy all but the last ``n_unused`` bytes, in the order of the stream; until then they
        must not change.
        """
        self.copy.data.copy_from_host_async(
            self.memory.ctypes.data, self.memory.nbytes - n_unused, stream
        )


class KeyToCome:
    """A placeholder for a key in a recording. Only its path of derivation is known; each replay has
    another key.

    The words of each key are in a row of a table on the GPU; ``places`` has the rows of the paths
    that were asked for.
    """

    def __init__(self, table, places, path=()):
        self.table = table
        self.places = places
        self.path = path

    def derive(self, *path):
        """The placeholder for ``derive_key(key, *path)``."""
        return KeyToCome(self.table, self.places, self.path + path)

    def words(self):
        """The array on the GPU that will hold the two words of the key during a replay."""
        return self.table[self.places.setdefault(self.path, len(self.places))]


def rounded_up(n):
    """Round up to a multiple of 8; above 128 of 16, above 256 of 32, ... This gives few shapes and
    little padding.
    """
    step = max(8, 2 ** ((n - 1).bit_length() - 4))
    return -(-n // step) * step


def _aligned(n_bytes):
    """A number of bytes, rounded up to a multiple of ``ALIGNMENT``."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def _stacked(numbers):
    """All numbers in one array, so that one copy brings them to the host."""
    return cupy.stack([x.astype(np.float64) for x in numbers])
