"""How a command ends: with one line for a mistake of its user, a traceback for a bug, silently if
it is interrupted.

Every command and every script imports this module before NumPy and decorates its ``main`` with
``command``. The module needs only the standard library, so that it can say that NumPy is missing.
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

from npformer.commands.shared.arguments import PARSER, in_words_of_the_command_line
from npformer.commands.shared.on_ranks import Quiet

from npformer.errors import UserError
from npformer.extras import pip_install


def command(main):
    """Decorate ``main(argv)``, so that it returns an exit code whatever happens, unless there is a
    bug.

    0: done, or the reader of standard output (for example ``head``) has closed the pipe.
    1: something that the user can mend is wrong; one line on standard error says what.
    2: wrong arguments; argparse exits with it.
    130: Ctrl-C; 129 or 143: the terminal was closed, or the program was asked to end, by SIGHUP or
    SIGTERM.
    """

    @functools.wraps(main)
    def run(argv=None):
        # Python would look for cycles among all that numba has made, a tenth of a second long.
        atexit.register(gc.freeze)
        format_before = warnings.formatwarning
        warnings.formatwarning = warning_line
        parser_before = PARSER.set(None)
        if hasattr(sys.stdout, "reconfigure"):
            # Names of files need not be UTF-8: they are printed as they were given.
            sys.stdout.reconfigure(errors="surrogateescape")
        with Quiet() as ranks, ended_by_signals():
            code = 0
            try:
                code = _exit_code(main, argv, ranks)
            finally:
                # Also if argparse exits: after this, Python itself would write the output, and
                # complain if it cannot.
                warnings.formatwarning = format_before
                PARSER.reset(parser_before)
                error = _flush()
                if error and code == 0:
                    print_error(message_of(error))
                    ranks.failed(1)
                    sys.exit(1)
        return code

    return run


@contextlib.contextmanager
def ended_by_signals():
    """Inside, SIGTERM and SIGHUP raise ``SystemExit``: a command then writes what it writes at its
    end.
    """

    def end(number, frame):
        sys.exit(128 + number)

    replaced = []
    if threading.current_thread() is threading.main_thread():  # no other may set a handler
        signals = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
        # One that is ignored, as nohup does with SIGHUP, stays ignored; Windows has no SIGHUP.
        replaced = [each for each in signals if each and signal.getsignal(each) is signal.SIG_DFL]
    for each in replaced:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each in replaced:
            signal.signal(each, signal.SIG_DFL)


def message_of(error):
    """What to tell the user about an error that is not a bug; None for a bug, which keeps its
    traceback.
    """
    match error:
        case MemoryError():
            reason = str(error) or "an allocation failed"
            return f"there is not enough memory: {reason}; smaller sizes need less"
        case UnicodeEncodeError() if error.encoding != "utf-8":
            letters = error.object[error.start : error.end]
            return f"standard output cannot show {letters!r}: set PYTHONIOENCODING=utf-8"
        case OSError(filename=None, strerror=str()):
            return f"reading or writing failed: {error.strerror}"
        case OSError(strerror=str()):
            return f"{os.fsdecode(error.filename)}: {error.strerror}"
        case UserError() | OSError():
            return str(error)
        case ImportError() if "pip install" in str(error):
            return str(error)
    return None


def message_or_raise(error):
    """What to tell the user about an error that has cost only a part of the work; a bug is raised
    again.
    """
    message = message_of(error)
    if message is None:
        raise error
    return message


def print_error(message):
    """Print one line to standard error, as ``print_note`` does."""
    message = in_words_of_the_command_line(message)
    print_note("error: " + message.replace("\n", " "))


def print_note(message):
    """Print to standard error, unless it is closed or its reader has gone."""
    with contextlib.suppress(OSError):
        if sys.stderr is not None:
            print(message, file=sys.stderr, flush=True)


def warning_line(message, *place, **settings):
    """A warning as one line, for ``warnings.formatwarning``."""
    return f"warning: {in_words_of_the_command_line(str(message))}\n"


def _exit_code(main, argv, ranks):
    try:
        return main(argv) or 0
    except KeyboardInterrupt:
        code = 130
    except SystemExit as stop:  # of argparse
        if stop.code:
            ranks.failed(stop.code)
        raise
    except Exception as error:
        ranks.wait_for_teller(error)
        message = message_of(error)
        if isinstance(error, BrokenPipeError) and _output_is_broken():
            code = 0
        elif message is not None:
            print_error(message)
            code = 1
        else:
            if ranks.several:
                traceback.print_exc()
            ranks.failed(1)
            raise
    ranks.failed(code)
    return code


def _flush():
    """Write what is left of the output. Returns the error if it cannot be written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _discard_output()
        if isinstance(error, BrokenPipeError):
            return None
        return OSError(error.errno, error.strerror, "standard output")
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


def _before_main(kind, error, trace):
    """Handle what stops a script while it still imports: Ctrl-C, and a Python without NumPy."""
    if issubclass(kind, KeyboardInterrupt):
        return
    if issubclass(kind, ModuleNotFoundError) and error.name == "numpy":
        print_error(f"numpy is not installed for {sys.executable}: {pip_install()}")
        return
    sys.__excepthook__(kind, error, trace)


if sys.excepthook is sys.__excepthook__:  # a program that imports this may have its own
    sys.excepthook = _before_main
