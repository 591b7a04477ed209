"""Memory of the GPU: what the steps of a training share, and what lives longer."""

import contextlib
import weakref

import cupy

OutOfMemory = cupy.cuda.memory.OutOfMemoryError


class WorkingMemory:
    """The memory in which steps are computed and recorded, and the recordings that use it.

    All steps share it, because the pool counts the working memory of a recording as free. A replay
    uses it all the same: when the pool gives free memory back to the system, as it does if there is
    too little, no recording may be replayed again. ``was_given_back`` says so; it is set to False
    only by those who then record anew.
    """

    def __init__(self):
        self.recordings = {}
        self.was_given_back = False
        this = weakref.ref(self)  # otherwise the pool and this object would keep each other
        self.pool = cupy.cuda.MemoryPool(lambda size: _allocate(size, this))

    def using(self):
        """Context manager in which arrays are allocated from this memory."""
        return cupy.cuda.using_allocator(self.pool.malloc)

    def give_back(self):
        """Drop all recordings, and give all free memory back to the system."""
        self.recordings.clear()
        self.pool.free_all_blocks()
        cupy.get_default_memory_pool().free_all_blocks()


def lasting():
    """Context manager for arrays that are kept when the step is over: they would split the memory
    that steps share.
    """
    return cupy.cuda.using_allocator(cupy.get_default_memory_pool().malloc)


def _allocate(size, owner):
    """Memory of the system, for a pool."""
    try:
        return cupy.cuda.MemoryPointer(_Memory(size, owner), 0)
    # CuPy gives the free memory of the pool back and tries again: let there be as much as possible
    except Exception:
        with contextlib.suppress(AttributeError):  # without an owner there are no recordings
            owner().recordings.clear()
        cupy.get_default_memory_pool().free_all_blocks()
        raise


class _Memory(cupy.cuda.Memory):
    """Memory of the system that tells its owner when it is given back."""

    def __init__(self, size, owner):
        self.owner = owner
        super().__init__(size)

    def __del__(self):
        owner = self.owner()
        if owner:
            owner.was_given_back = True
