"""The files of a model: settings as JSON, and tensors, which are read when they are used."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.checks import shown
from npformer.errors import UserError
from npformer.extras import imported
from npformer.files.paths import MISSING, check_regular, kind_of_file, read_bounded
from npformer.files.strict_json import parse_json
from npformer.pretrained.keys import INDEX_KEYS
from npformer.pretrained.rules import check_keys, check_supported, listed, parse_table

TENSORS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
STORED_DTYPES = parse_table("""
    F64   <f8
    F32   <f4
    F16   <f2
    BF16  <u2
    """)
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".ot")
CONVERTING = (
    ": in transformers, AutoModel…from_pretrained(FOLDER).save_pretrained(NEW)"
    " writes model.safetensors"
)
POINTER = b"version https://git-lfs"  # begins what a clone has in place of a large file
BLOCK = 2**20  # numbers that are converted at a time
MOST_BYTES = 64 * 2**20  # bytes of a file of settings or of a tokenizer


class Stored(NamedTuple):
    """A tensor of a file, which is read when it is used."""

    shape: tuple[int, ...]
    rows: Callable[[Any], Array]  # the floats of some of its rows

    @classmethod
    def of(cls, array):
        """An array that is in memory."""
        return cls(array.shape, array.__getitem__)

    def parts(self):
        """Slices of some rows, one after another."""
        step = max(1, BLOCK // max(1, math.prod(self.shape[1:])))
        for begin in range(0, self.shape[0], step):
            yield slice(begin, begin + step)

    def into(self, out):
        """Write it into an array of the same shape, some rows at a time."""
        for part in self.parts():
            out[part] = self.rows(part)

    def equals(self, other):
        """Whether another tensor has the same shape and numbers."""
        if other.shape != self.shape:
            return False
        return all(np.array_equal(self.rows(part), other.rows(part)) for part in self.parts())

    def numbers(self):
        """The numbers of its rows, for ``take``."""
        if 0 in self.shape:  # of which a file of any size may have any number
            raise UserError(f"a tensor has the shape {self.shape}, expected no axis of length 0")
        return np.arange(self.shape[0])

    def take(self, numbers):
        """The rows with these numbers, as a tensor."""
        return Stored((len(numbers), *self.shape[1:]), lambda rows: self.rows(numbers[rows]))


Files = dict[str, bytes]  # by their names
Tensors = dict[str, Stored]


class Contents(NamedTuple):
    """What a folder of transformers holds; of a GGUF file, what its folder would."""

    config: dict  # config.json
    tensors: Tensors
    files: Files  # of its tokenizer, by their names


def read_bytes(path: Path) -> bytes:
    """The bytes of a file of unknown origin."""
    return read_bounded(path, MOST_BYTES)


def text_in(files: Files, name: str) -> str:
    """The text of one of several files."""
    try:
        return files[name].decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is no text in UTF-8: {error}") from None


def json_in(files: Files, name: str) -> dict:
    """The dict in one of several files."""
    value = parse_json(text_in(files, name), name)
    if not isinstance(value, dict):
        raise UserError(f"{name} holds a {type(value).__name__}, expected a dict")
    return value


def json_or_empty(files: Files, name: str) -> dict:
    """The dict in one of several files, an empty one if it is not there."""
    return json_in(files, name) if name in files else {}


def read_json(path: Path) -> dict:
    """A dict in a JSON file of unknown origin."""
    return json_in({path.name: read_bytes(path)}, path.name)


def ends_in(*files: dict) -> list[int]:
    """The ids that end a text, as files say with one number or with a list."""
    ends: list = []
    for about in files:
        ids = about.get("eos_token_id")
        ends.extend(ids if isinstance(ids, list) else [ids])
    return [id_ for id_ in ends if isinstance(id_, int)]


def import_safetensors() -> Any:
    """The package safetensors."""
    return imported("safetensors.numpy", "pretrained", "models that exist need")


def tensors_of(folder: Path) -> Tensors:
    """The tensors of a folder: in one file, or else in several that an index lists."""
    if kind_of_file(folder / TENSORS_FILE) != MISSING:
        return tensors_in(folder / TENSORS_FILE)
    if kind_of_file(folder / INDEX_FILE) == MISSING:
        others = sorted(path.name for path in folder.iterdir() if path.suffix in OTHER_WEIGHTS)
        there = f"the weights in {listed(others)} are not read" if others else "it has no weights"
        raise UserError(f"it has neither {TENSORS_FILE} nor {INDEX_FILE}; {there}{CONVERTING}")
    places = weight_map(read_json(folder / INDEX_FILE))
    tensors: Tensors = {}
    for name in sorted(set(places.values())):
        if kind_of_file(folder / name) == MISSING:
            raise UserError(f"{name:.80} is missing, which {INDEX_FILE} lists")
        tensors |= tensors_in(folder / name)
    for name, place in places.items():
        if name not in tensors:
            raise UserError(f"{INDEX_FILE} lists {name:.80}, which {place} does not hold")
    return tensors


def weight_map(index: dict) -> dict[str, str]:
    """The file of each tensor, as an index lists them."""
    check_keys(index, INDEX_KEYS, INDEX_FILE)
    places = index.get("weight_map")
    what = "from names of tensors to names of files in the folder"
    if not isinstance(places, dict):
        raise UserError(f"{INDEX_FILE} has no weight_map {what}")
    for place in places.values():
        if not isinstance(place, str) or Path(place).name != place:
            raise UserError(
                f"{INDEX_FILE} has {shown(place)} in its weight_map, expected one {what}"
            )
    return places


def tensors_in(path: Path) -> Tensors:
    """The tensors of a safetensors file, which its library checks before anything is read."""
    safetensors = import_safetensors()
    check_regular(path)
    try:
        with safetensors.safe_open(path, "numpy"):
            pass
    except (OSError, safetensors.SafetensorError) as error:
        with path.open("rb") as file:
            is_pointer = file.read(len(POINTER)) == POINTER
        if is_pointer:
            raise UserError(
                f"{path.name} is a pointer of git-lfs, not the weights: git lfs pull brings them"
            ) from None
        raise UserError(f"{path.name} is no safetensors file, or a damaged one: {error}") from None
    data = np.memmap(path, np.uint8, "r")
    begin = 8 + int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8:begin]))
    header.pop("__metadata__", None)
    return {name: _stored(name, x, data[begin:]) for name, x in header.items()}


def _stored(name: str, described: dict, data) -> Stored:
    shape = tuple(described["shape"])
    dtype = described["dtype"]
    begin, end = described["data_offsets"]

    def rows(part):
        check_supported(f"{name} has dtype", dtype, STORED_DTYPES)
        values = np.ndarray(shape, STORED_DTYPES[dtype], data[begin:end])[part]
        if dtype == "BF16":  # the upper half of a float32
            return (values.astype("<u4") << 16).view("<f4")
        return values

    return Stored(shape, rows)
