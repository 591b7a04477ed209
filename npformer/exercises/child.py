"""Runs in a process of its own: check one function of a person's file, and write the verdict.

    python -m npformer.exercises.child KEY FILE VERDICT SECONDS

The person's code runs in a fork of it, which may end in any way, or not at all; ``process`` starts
it and waits.
"""

import contextlib
import linecache
import os
import sys
import threading
import time
import traceback
from difflib import get_close_matches
from functools import partial, wraps

import npformer
import npformer.decoding
import npformer.layers
from npformer import reference
from npformer.exercises.compare import check_function
from npformer.exercises.courses import ALL
from npformer.exercises.keeping import run_in_fork
from npformer.exercises.source import read_source, run, syntax_error_text
from npformer.exercises.texts import error_line, error_text
from npformer.exercises.trial import PERSONS_CODE_RUNS
from npformer.exercises.verdict import BEGIN, UnderWay, Verdict, too_long
from npformer.reference import Ops

MEMORY = 8 * 2**30  # bytes of addresses, of which the libraries take some
FILE_SIZE = 2**30  # bytes of a file that it writes
ENDING = threading.Lock()


def main(key, file, answer_file, seconds):
    """Check the function of an exercise in a file."""
    # It is opened before the person's code can put something in its place.
    with open(answer_file, "r+b", buffering=0) as answer:
        run_in_fork(partial(judge, ALL[key], file, answer, float(seconds)))


def judge(exercise, file, answer, seconds):
    """Check the function of an exercise, write the verdict, and end the process."""
    set_limits()
    forbid(exercise.function_name)
    use_reference()
    os.write(sys.stdout.fileno(), BEGIN)
    under_way = UnderWay()
    watch(file, answer, seconds, under_way)
    try:
        verdict = check_file(exercise, file, under_way)
    except Exception as error:
        advice = "does your code change Python or NumPy, as np.sum = … does?"
        verdict = under_way.verdict(f"the checker stopped with {error_line(error)}: {advice}")
    except BaseException as error:
        # Such as KeyboardInterrupt, which only the person's code can raise here.
        line = "" if under_way.complaint else f"it raises {error_text(error, file)}"
        verdict = under_way.verdict(line)
    end(answer, verdict)


def set_limits():
    """Let a function that takes too much memory, or writes too much, get an error, if possible."""
    with contextlib.suppress(ImportError):
        import resource

        for what, limit in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, FILE_SIZE)):
            with contextlib.suppress(OSError, ValueError):  # ValueError: its limit is lower already
                resource.setrlimit(what, (limit, limit))


def use_reference():
    """Compute npformer's operations by their math: compiling kernels would take its time."""
    for package in ("npformer.cpu", "npformer.gpu"):
        sys.modules[package] = reference


def forbid(name):
    """Keep a person's code from npformer's functions of this name, which it is asked to write: they
    raise an error, wherever they were imported from. npformer's own code calls them as before.
    """
    if hasattr(npformer, name):
        setattr(npformer, name, forbidden(getattr(npformer, name), name))
    if name in Ops.names():
        setattr(Ops, name, staticmethod(forbidden(getattr(Ops, name), name)))
    for title, module in list(sys.modules.items()):
        function = vars(module).get(name)
        # A module may have the name of its function.
        if title.startswith("npformer.") and callable(function):
            setattr(module, name, forbidden(function, name))


def forbidden(function, name):
    """The function, which raises an error while a person's code runs."""

    @wraps(function)
    def call(*args, **options):
        if PERSONS_CODE_RUNS.is_set():
            raise RuntimeError(f"npformer.{name} is the function that you are asked to write")
        return function(*args, **options)

    return call


def check_file(exercise, file, under_way=None):
    """Run a file, and check the function in it."""
    try:
        source = read_source(file)
    except (OSError, ValueError) as error:
        return Verdict("wrong", [str(error)])
    try:
        names = run(source, file)
    except SyntaxError as error:
        return Verdict("wrong", [syntax_error_text(error)])
    except (Exception, SystemExit) as error:
        return Verdict("wrong", [f"running the file raises {error_text(error, file)}"])
    if exercise.function_name not in names:
        functions = [name for name in names if callable(names[name])]
        close = get_close_matches(exercise.function_name, functions, 1)
        but = f", but one called {close[0]}" if close else ""
        missing = f"the file has no function {exercise.function_name}"
        return Verdict("wrong", [f"{missing}{but}: expected {exercise.signature}"])
    return check_function(exercise, exercise.completed(names), file=file, under_way=under_way)


def watch(file, answer, seconds, under_way):
    """Start a thread that ends the process when the time is over, and says at which line it was."""
    main_thread = threading.get_ident()

    def wait():
        time.sleep(seconds)
        stack = traceback.extract_stack(sys._current_frames()[main_thread])
        lines = [frame.lineno for frame in stack if frame.filename == file]
        where = ""
        if lines:
            where = f" (line {lines[-1]}: {linecache.getline(file, lines[-1]).strip()})"
        # Otherwise it is the search for a reason that is late.
        late = "" if under_way.complaint else f"{too_long(seconds)}{where}"
        end(answer, under_way.verdict(late))

    threading.Thread(target=wait, daemon=True).start()


def end(answer, verdict):
    """Write the verdict, and end this process without its threads and what ``atexit`` holds."""
    with ENDING:  # never released: the first verdict is the one
        answer.seek(0)
        answer.truncate(0)  # of what the person's code has written there
        answer.write(verdict.text().encode("utf-8", "replace"))
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
