"""The process and its cores: threads, memory, interrupts, forks and ranks.

What holds at any time, and which file sees to it:

**Threads** (``threads.py``, ``blas_threads.py``, ``cores.py``, ``preemptions.py``). While npformer
computes, a matrix product of NumPy has one thread of BLAS. What is worth dividing is divided into
parts by its sizes alone. The caller begins one part after another, helpers do the same when they
have a core, and nobody waits for a thread that has not begun a part. A part does not divide its own
work again. The parts do not depend on the number of threads, so the results have the same bits.

**Memory** (``memory.py``). A thread reuses the memory of its large arrays as soon as nothing refers
to them.

**Interrupts** (``interrupts.py``). What belongs together is changed inside ``deferred_interrupts``:
parameters and the count of steps, a file and its name, a lock and the knowledge of who has it. The
exception of a signal comes when the outermost block of the main thread ends; the fifth Ctrl-C comes
at once. In a block of ``StopSignals`` a signal only sets a flag, after which a training ends.

**Forks** (``forks.py``). A forked process has the memory of its parent and only the thread that
forked. Every module with threads, locks or unfinished blocks gives ``in_forked_process`` a function
that sets them right in the child, which can then compute, also if the parent forked during a step.
No fork happens while a kernel is compiled.

**Compilations** (``compilations.py``). A progress bar hears of each kernel that is compiled. The
seconds are counted.

**Ranks** (``started.py``, ``ranks.py``, ``sums.py``, ``chunks.py``). All ranks make the same calls
in the same order. What may differ between them, such as an error in a step or a save, is exchanged,
so that either all raise or none. Whatever else ends one rank, the others raise an error where they
would wait for it (``endings.py``). The shards of a batch are added as the leaves of one tree,
whoever computes them: any number of ranks makes the same bits. Of each chunk of a flat array, a
rank owns a piece. While gradients are computed, a thread calls MPI (``messenger.py``), and who else
calls it holds its lock; the step that starts the thread ends it, whatever happens.
"""
