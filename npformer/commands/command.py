"""How a command ends: with one line for a mistake of its user, a traceback for a bug, silently if it is interrupted.

Every command and every script imports this module before NumPy and decorates its ``main`` with ``command``. The module
needs only the standard library, so that it can say that NumPy is missing.
"""

import atexit
import contextlib
import functools
import gc
import os
import select
import signal
import sys
import threading
import traceback
import warnings
from pathlib import Path

from npformer.commands.arguments import PARSERS, as_typed, names_typed
from npformer.commands.on_ranks import Quiet

from npformer.runtime.extras import pip_install

PACKAGE = str(Path(__file__).parents[1])
atexit.register(gc.freeze)  # Python would look for cycles among all that numba has made, a tenth of a second long


def command(main):
    """Decorate ``main(argv)``, so that it returns an exit code whatever happens, unless there is a bug.

    0: done, or the reader of standard output (for example ``head``) has closed the pipe.
    1: something that the user can mend is wrong; one line on standard error says what.
    2: wrong arguments; argparse exits with it.
    130: Ctrl-C; 129 or 143: the terminal was closed, or the program was asked to end, by SIGHUP or SIGTERM.
    """

    @functools.wraps(main)
    def run(argv=None):
        before = warnings.formatwarning
        warnings.formatwarning = lambda message, *_, **__: f"warning: {as_typed(str(message), names_typed())}\n"
        no_command = PARSERS.set([])
        if hasattr(sys.stdout, "reconfigure"):  # names of files need not be UTF-8: print them as they were given
            sys.stdout.reconfigure(errors="surrogateescape")
        with Quiet() as ranks, ended_by_signals():
            code = 0
            try:
                code = _exit_code(main, argv, ranks)
            finally:  # also if argparse exits: after this, Python itself would write the output, and complain
                warnings.formatwarning = before
                PARSERS.reset(no_command)
                error = _flush()
                if error and code == 0:
                    print_error(message_of(error))
                    ranks.failed(1)
                    sys.exit(1)
        return code

    return run


@contextlib.contextmanager
def ended_by_signals():
    """Inside, SIGTERM and SIGHUP raise ``SystemExit``: a command then writes what it writes at its end."""

    def end(number, frame):
        sys.exit(128 + number)

    replaced = []
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
        replaced = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in replaced:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)


def message_of(error, main=None):
    """What to tell the user about an error that is not a bug; None for a bug, which keeps its traceback."""
    match error:
        case MemoryError():
            return f"there is not enough memory: {str(error) or 'an allocation failed'}; smaller sizes need less"
        case UnicodeEncodeError() if error.encoding != "utf-8":
            return f"standard output cannot show {error.object[error.start : error.end]!r}: set PYTHONIOENCODING=utf-8"
        case OSError(filename=None, strerror=str()):
            return f"reading or writing failed: {error.strerror}"
        case OSError(strerror=str()):
            return f"{os.fsdecode(error.filename)}: {error.strerror}"
        case OSError():
            return str(error)
        case ImportError() if "pip install" in str(error):
            return str(error)
        case ValueError() if _is_raised_by_us(error, main):
            return str(error)
    return None


def message_or_raise(error):
    """What to tell the user about an error that has cost only a part of the work; a bug is raised again."""
    message = message_of(error)
    if message is None:
        raise error
    return message


def print_error(message):
    """Print one line to standard error, as ``print_note`` does."""
    print_note("error: " + as_typed(message, names_typed()).replace("\n", " "))


def print_note(message):
    """Print to standard error, unless it is closed or its reader has gone."""
    with contextlib.suppress(OSError):
        if sys.stderr is not None:
            print(message, file=sys.stderr, flush=True)


def _exit_code(main, argv, ranks):
    try:
        return main(argv) or 0
    except KeyboardInterrupt:
        ranks.failed(130)
        return 130
    except SystemExit as stop:  # of argparse
        if stop.code:
            ranks.failed(stop.code)
        raise
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _output_is_broken():
            ranks.failed(0)
            return 0
        message = message_of(error, main)
        if message is None:
            if ranks.several:
                traceback.print_exc()
            ranks.failed(1)
            raise
        print_error(message)
        ranks.failed(1)
        return 1


def _flush():
    """Write what is left of the output. Returns the error if it cannot be written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _discard_output()
        return None if isinstance(error, BrokenPipeError) else OSError(error.errno, error.strerror, "standard output")
    return None


def _output_is_broken():
    """Whether nobody reads standard output any more; then what is left of it is discarded."""
    if sys.stdout is None or not hasattr(select, "poll"):
        return False
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)  # of errors alone
    if not output.poll(0):
        return False
    _discard_output()
    return True


def _discard_output():
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_raised_by_us(error, main):
    """Whether a ``raise`` of npformer or of a script made the error, whose message is then meant for the user.

    ``main`` is that of the script. A function in C, such as ``int``, raises in the line that calls it, which is no
    ``raise``: such an error is a bug.
    """
    frame = traceback.extract_tb(error.__traceback__)[-1]
    folders = [PACKAGE, *getattr(sys.modules.get("scripts"), "__path__", [])]
    if main is not None:
        folders.append(os.path.dirname(main.__code__.co_filename))
    return frame.filename.startswith(tuple(folders)) and (frame.line or "").startswith("raise ")


def _before_main(kind, error, trace):
    """Handle what stops a script while it still imports: Ctrl-C, and a Python that has no NumPy."""
    if issubclass(kind, KeyboardInterrupt):
        return
    if issubclass(kind, ModuleNotFoundError) and error.name == "numpy":
        print_error(f"numpy is not installed for {sys.executable}: {pip_install()}")
        return
    sys.__excepthook__(kind, error, trace)


sys.excepthook = _before_main
