"""What a person has done: which exercises are solved, where their files are, and which hints were given.

``sources`` has a digest of each function of one's own Transformer and GPT, as it was when it was right, and
``diagnoses`` what the last check has said of an exercise that was wrong, until a hint was shown after it.
"""

import json
import sys
from pathlib import Path

from npformer.errors import UserError
from npformer.files.paths import name_for_damaged, read_bounded, replace_file

FOLDER = Path("exercises")  # in the current folder
FILE = FOLDER / "progress.json"
LARGEST = 2**20  # bytes; the files of the exercises have some thousands
MOST_HINTS = 9  # of an exercise
# What Python raises of a source that it cannot read: no Python, a zero byte, nested too deeply.
UNREADABLE = SyntaxError, ValueError, RecursionError, MemoryError


def read_source(path):
    """The bytes of a file of a person, in whose place a program of theirs may have put anything."""
    return read_bounded(path, LARGEST)


class Progress:
    """It is read when it is made, and written after each change."""

    def __init__(self):
        if FOLDER.exists() and not FOLDER.is_dir():
            raise ValueError(f"{FOLDER} is a file, but the folder of your exercises has this name: move it away")
        self.solved, self.files, self.hints, self.sources, self.diagnoses = set(), {}, {}, {}, {}
        try:
            self.solved, self.files, self.hints, self.sources, self.diagnoses = parsed(read_source(FILE))
        except FileNotFoundError:  # nothing is done yet
            pass
        except UserError:  # of one entry: the others are kept
            raise
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            aside = name_for_damaged(FILE)
            FILE.rename(aside)
            print(
                f"{FILE} is damaged: it is now {aside}. Which exercises are solved is forgotten; check them again",
                file=sys.stderr,
            )

    def file_of(self, name):
        """The file in which a person writes an exercise."""
        return Path(self.files.get(name, FOLDER / f"{name}.py"))

    def is_begun(self, name):
        """Whether there is a file of the exercise."""
        return self.file_of(name).exists()

    def save(self):
        """Write it; raises OSError."""
        FOLDER.mkdir(exist_ok=True)
        state = {
            "solved": sorted(self.solved),
            "files": self.files,
            "hints": self.hints,
            "sources": self.sources,
            "diagnoses": self.diagnoses,
        }
        replace_file(FILE, json.dumps(state, indent=1).encode())


def parsed(text):
    """What is solved, the files, the hints, the sources and the diagnoses, of the text of a file."""
    read = json.loads(text)
    solved = {str(name) for name in read["solved"]}
    files = {str(name): str(file) for name, file in read["files"].items()}
    sources = {str(name): str(digest) for name, digest in read.get("sources", {}).items()}
    hints = {str(name): numbers_of(shown, name) for name, shown in read["hints"].items()}
    diagnoses = {str(name): str(line) for name, line in read.get("diagnoses", {}).items()}
    return solved, files, hints, sources, diagnoses


def numbers_of(shown, name):
    """The numbers of the hints of an exercise that were shown.

    Once they came in one order, and only how many was written.
    """
    numbers = list(range(1, shown + 1)[:MOST_HINTS]) if type(shown) is int else shown
    if isinstance(numbers, list) and all(type(number) is int and 1 <= number <= MOST_HINTS for number in numbers):
        return numbers
    advice = f"expected the numbers of hints that were shown, from 1 to {MOST_HINTS}, as in [1, 2]: write them, or []"
    raise UserError(f'{FILE}: "hints" has {shown!r:.40} for {name!r:.40}, {advice}')
