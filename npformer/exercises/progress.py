"""What a person has done: which exercises are solved, their files, and the hints that were given.

``sources`` has a digest of each function of one's own Transformer and GPT, as it was when it was
right, and ``diagnoses`` what the last check has said of an exercise that was wrong, until a hint
was shown after it.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from npformer.errors import UserError
from npformer.exercises.source import read_source
from npformer.files.paths import name_for_damaged, replace_file

FOLDER = Path("exercises")  # in the current folder
FILE = FOLDER / "progress.json"
MOST_HINTS = 9  # of an exercise


@dataclass
class Progress:
    """What is solved, and the rest by the names of exercises. It is written after each change.

    Attributes
    ----------
    solved : set of str
    files : dict
        The file of each exercise.
    hints : dict
        The numbers of the hints that were shown.
    sources, diagnoses : dict
        As above.
    """

    solved: set[str] = field(default_factory=set)
    files: dict[str, str] = field(default_factory=dict)
    hints: dict[str, list[int]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    diagnoses: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls):
        """What the file of the current folder has: nothing if it is missing or damaged."""
        if FOLDER.exists() and not FOLDER.is_dir():
            reason = "but the folder of your exercises has this name: move it away"
            raise UserError(f"{FOLDER} is a file, {reason}")
        try:
            progress = cls.from_text(read_source(FILE))
        except FileNotFoundError:
            return cls()
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            aside = name_for_damaged(FILE)
            FILE.rename(aside)
            consequence = "Which exercises are solved is forgotten; check them again"
            print(f"{FILE} is damaged: it is now {aside}. {consequence}", file=sys.stderr)
            return cls()
        for name, shown in progress.hints.items():  # of one entry: the others are kept
            progress.hints[name] = numbers_of(shown, name)
        return progress

    @classmethod
    def from_text(cls, text):
        """What the text of a file says."""
        entries = json.loads(text)
        return cls(
            solved={str(name) for name in entries["solved"]},
            files={str(name): str(file) for name, file in entries["files"].items()},
            hints={str(name): shown for name, shown in entries["hints"].items()},
            sources={str(name): str(digest) for name, digest in entries.get("sources", {}).items()},
            diagnoses={str(name): str(line) for name, line in entries.get("diagnoses", {}).items()},
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
        entries = vars(self) | {"solved": sorted(self.solved)}
        replace_file(FILE, json.dumps(entries, indent=1).encode())


def numbers_of(shown, name):
    """The numbers of the hints that were shown. Older files have only how many: the first ones."""
    numbers = list(range(1, shown + 1)[:MOST_HINTS]) if type(shown) is int else shown
    possible = range(1, MOST_HINTS + 1)
    if isinstance(numbers, list) and all(
        type(each) is int and each in possible for each in numbers
    ):
        return numbers
    expected = f"the numbers of hints that were shown, from 1 to {MOST_HINTS}, as in [1, 2]"
    problem = f'"hints" has {shown!r:.40} for {name!r:.40}'
    raise UserError(f"{FILE}: {problem}, expected {expected}: write them, or []")
