"""A training log with one line of JSON per record: readable while it is written; only its last line may be cut."""

import json
import os
from pathlib import Path


class JsonLog:
    """A file of records, each a dict.

    Parameters
    ----------
    path : str or Path
    keep : int
        Number of records to keep from an existing file. A training that is resumed from a checkpoint writes the
        records after the checkpoint again.

    Attributes
    ----------
    n_records : int
        Number of records in the file, which a checkpoint saves for ``keep``.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with JsonLog(f"{folder}/log.jsonl") as log:
    ...         for step in (1, 2, 3):
    ...             log.write({"step": step, "loss": 1 / step})
    ...     with JsonLog(f"{folder}/log.jsonl", keep=1) as log:
    ...         log.write({"step": 2, "loss": 0.4})
    ...     JsonLog.read(f"{folder}/log.jsonl")
    [{'step': 1, 'loss': 1.0}, {'step': 2, 'loss': 0.4}]
    """

    def __init__(self, path, keep=0):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        kept = self.read(self.path)[:keep] if keep and self.path.exists() else []
        new = self.path.with_name(f".{self.path.name}.tmp")  # so that a crash here does not lose what was kept
        new.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")
        os.replace(new, self.path)
        self.n_records = len(kept)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115, closed by __exit__

    def write(self, record):
        """Append one record; it is in the file when this returns."""
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        self.n_records += 1

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    @staticmethod
    def read(path):
        """Return all records before the first incomplete line, which a crash may have left."""
        records = []
        for line in Path(path).read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return records
