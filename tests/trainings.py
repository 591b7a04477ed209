"""What a training leaves in its folder, to compare two of them, and what it shows."""

import copy
import io
import pickle
import sys

import numpy as np
import pytest

from npformer import Adam, Trainer, Transformer
from npformer.training import JsonLog, load_checkpoint

# A batch, whose rows end at different columns.
SRC = np.array([[3, 4, 5, 6], [7, 3, 0, 0], [8, 0, 0, 0], [5, 5, 6, 0], [9, 10, 3, 3]])
TGT = np.pad(SRC, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0)))
TGT[range(5), (SRC != 0).sum(axis=1) + 1] = 2
MODEL = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=12, dropout=0.2)


def make(optimizer=None, model=MODEL, **settings):
    """A trainer of a small model."""
    return Trainer(model, optimizer or Adam(0.01), **settings)


def pickled(x):
    return pickle.loads(pickle.dumps(x))


each_copy = pytest.mark.parametrize("copied", [copy.deepcopy, pickled])


def log_of(folder):
    """The records of a training, without what each has taken."""
    records = JsonLog.read(folder / "log.jsonl")
    return [
        {name: value for name, value in record.items() if name != "seconds"} for record in records
    ]


def steps_of(records, name="step"):
    """The steps whose records have a name, such as "loss".

    Those of all records if it is left out.
    """
    return [record["step"] for record in records if name in record]


def outcome(folder):
    """The log, and the facts and the bytes of every array of every checkpoint."""
    paths = sorted(folder.rglob("*.safetensors"))
    checkpoints = {str(path.relative_to(folder)): load_checkpoint(path) for path in paths}
    return {
        "log": log_of(folder),
        "infos": {file: info for file, (_, info) in checkpoints.items()},
        "arrays": {
            (file, name): x.tobytes()
            for file, (arrays, _) in checkpoints.items()
            for name, x in arrays.items()
        },
    }


def assert_same(given, expected):
    """Two outcomes are equal, and if not, the first difference is short."""
    assert given["log"] == expected["log"]
    assert given["infos"] == expected["infos"]
    assert given["arrays"].keys() == expected["arrays"].keys()
    assert [name for name, x in given["arrays"].items() if x != expected["arrays"][name]] == []


def reversed_order(params):
    """The same parameters, in dicts that have them in another order."""
    if not isinstance(params, dict):
        return params
    return {name: reversed_order(child) for name, child in reversed(params.items())}


class Terminal(io.StringIO):
    """Standard error as a person sees it."""

    def isatty(self):
        return True


def shown_by(monkeypatch, stream, work):
    """What a work writes to standard error."""
    monkeypatch.setattr(sys, "stderr", stream)
    work()
    return stream.getvalue()
