"""What a person has done: which exercises are solved, where their files are, and how many hints were given."""

import contextlib
import json
from pathlib import Path

FOLDER = Path("exercises")  # in the current folder
FILE = FOLDER / "progress.json"


class Progress:
    """It is read when it is made, and written after each change."""

    def __init__(self):
        self.solved, self.files, self.hints = set(), {}, {}
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # none yet, or damaged
            read = json.loads(FILE.read_text(encoding="utf-8"))
            self.solved = {str(name) for name in read["solved"]}
            self.files = {str(name): str(file) for name, file in read["files"].items()}
            self.hints = {str(name): int(n) for name, n in read["hints"].items()}

    def file_of(self, name):
        """The file in which a person writes an exercise."""
        return Path(self.files.get(name, FOLDER / f"{name}.py"))

    def is_begun(self, name):
        """Whether there is a file of the exercise."""
        return self.file_of(name).exists()

    def save(self):
        """Write it; raises OSError."""
        FOLDER.mkdir(exist_ok=True)
        state = {"solved": sorted(self.solved), "files": self.files, "hints": self.hints}
        FILE.write_text(json.dumps(state, indent=1), encoding="utf-8")
