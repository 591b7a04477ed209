"""A training log with one line of JSON for each record.

It can be read while it is written; only its last line may be cut.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Self

from npformer.checks import check_int, warn
from npformer.files.paths import check_regular, name_for_damaged, path_to_replace, replace_file
from npformer.files.strict_json import check_restorable, parse_json
from npformer.runtime.interrupts import deferred_interrupts


class JsonLog:
    """A file of records, each a dict.

    Parameters
    ----------
    path : str or Path
    keep : int
        Number of lines to keep from an existing file. A training that is resumed from a checkpoint
        writes the records after the checkpoint again. If one of all lines is damaged, the file as
        it was is kept beside the log, as ``log.jsonl.damaged``, with a warning, and the log goes on
        without that line.

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

    def __init__(self, path: str | Path, keep: int = 0) -> None:
        keep = check_int("keep", keep, at_least=0)
        self.path = path_to_replace(path, "a file")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        kept = self._kept(keep) if keep and self.path.exists() else []
        replace_file(self.path, "".join(json.dumps(record) + "\n" for record in kept).encode())
        self.n_records = len(kept)
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115, closed by __exit__

    def write(self, record: dict) -> None:
        """Append a record, which is in the file when this returns; after an error, nothing is."""
        check_restorable(record, "record")
        line = (json.dumps(record) + "\n").encode()
        with deferred_interrupts():
            end = os.fstat(self._file.fileno()).st_size
            try:
                while line:  # a disk that is nearly full takes a part
                    line = line[self._file.write(line) :]
            except OSError:
                self._file.truncate(end)
                raise
            self.n_records += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def _kept(self, keep):
        records, damaged = _parsed(self.path)
        if damaged:
            aside = name_for_damaged(self.path)
            shutil.copy2(self.path, aside)
            what = f"{self.path}: {_described(damaged)}"
            warn(f"{what}; the file as it was is now {aside}")
        return [record for record in records[:keep] if record is not None]

    @staticmethod
    def read(path: str | Path) -> list[dict]:
        """Return all records; an incomplete last line, which a crash may have left, is none.

        A damaged line is left out, with a warning.
        """
        records, damaged = _parsed(path)
        if damaged:
            warn(f"{path}: {_described(damaged)}")
        return [record for record in records if record is not None]


def _parsed(path):
    """The record of each complete line, None if damaged, and the numbers of damaged lines."""
    check_regular(path)
    records = []
    for line in Path(path).read_bytes().split(b"\n")[:-1]:
        try:
            record = parse_json(line.decode(), "the line")
        except ValueError:
            record = None
        records.append(record if isinstance(record, dict) else None)
    return records, [number for number, record in enumerate(records, start=1) if record is None]


def _described(damaged):
    others = f" and {len(damaged) - 1} others are" if len(damaged) > 1 else " is"
    return f"line {damaged[0]}{others} damaged, expected a dict in JSON: left out"
