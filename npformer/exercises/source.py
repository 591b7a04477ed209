"""A person's file: its bytes, the names that it defines, and why Python cannot read it."""

import linecache
import re
import sys
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType

from npformer.exercises.trial import persons_code
from npformer.files.paths import read_bounded

LARGEST = 2**20  # bytes; the files of the exercises have some thousands
# What Python raises of a source that it cannot read: no Python, a zero byte, nested too deeply.
UNREADABLE = SyntaxError, ValueError, RecursionError, MemoryError


def read_source(path):
    """The bytes of a file of a person, in whose place a program of theirs may have put anything."""
    return read_bounded(path, LARGEST)


def run(source, file):
    """The names that the source of a file defines. It may import other files of its folder."""
    sys.path.append(str(Path(file).parent))
    module = ModuleType("exercise")
    module.__file__ = file
    sys.modules["exercise"] = module
    code = compile(source, file, "exec")
    # Errors quote the lines that run, whatever the code puts in place of its file: None says that
    # no file is read again.
    linecache.cache[file] = len(source), None, decode_source(source).splitlines(keepends=True), file
    with persons_code():
        exec(code, vars(module))
    return vars(module)


def syntax_error_text(error):
    """A syntax error in one line."""
    where = f" in line {error.lineno}" if error.lineno else ""
    text = f": {error.text.strip()}" if error.text else ""
    save = "; save it as UTF-8" if re.search("null bytes|codec|encoding", error.msg) else ""
    return f"Python cannot read the file: {error.msg}{where}{text}{save}"
