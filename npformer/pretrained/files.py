"""The files of a model: settings as JSON, and tensors, which are read when they are used."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npformer.checks import shown
from npformer.extras import imported
from npformer.files.paths import MISSING, check_regular, kind_of_file, read_bounded
from npformer.files.strict_json import parse_json
from npformer.pretrained.family import Stored
from npformer.pretrained.keys import SHARDS, check_keys, check_supported, listed

TENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".ot")
CONVERTING = (
    ": in transformers, AutoModel…from_pretrained(FOLDER).save_pretrained(NEW)"
    " writes model.safetensors"
)
LONGEST = 64 * 2**20  # bytes of a file of settings or of a tokenizer


class Found(NamedTuple):
    """What a file or a folder holds; a GGUF file holds what its folder would."""

    config: dict | None  # config.json; a state dict has none
    tensors: dict[str, Stored]
    files: dict[str, bytes] = {}  # of its tokenizer, by their names
    folder: Path | None = None  # if it is one


def read_bytes(path: Path) -> bytes:
    """The bytes of a file of unknown origin."""
    return read_bounded(path, LONGEST)


def text_of_file(name: str, data: bytes) -> str:
    """The text of a file of unknown origin."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is no text in UTF-8: {error}") from None


def json_of_file(name: str, data: bytes) -> dict:
    """The dict in a JSON file of unknown origin."""
    value = parse_json(text_of_file(name, data), name)
    if not isinstance(value, dict):
        raise ValueError(f"{name} holds a {type(value).__name__}, expected a dict")
    return value


def json_or_empty(files: dict[str, bytes], name: str) -> dict:
    """The dict in one of several files, an empty one if it is not there."""
    return json_of_file(name, files[name]) if name in files else {}


def read_json(path: Path) -> dict:
    """A dict in a JSON file of unknown origin."""
    return json_of_file(path.name, read_bytes(path))


def gguf_names(folder: Path) -> list[str]:
    """The names of the GGUF files in a folder."""
    return sorted(path.name for path in folder.iterdir() if path.suffix == ".gguf")


def only_gguf(folder: Path) -> Path | None:
    """The GGUF file that is the model of a folder without config.json, if there is just one."""
    if not folder.is_dir() or (folder / "config.json").exists():
        return None
    names = gguf_names(folder)
    return folder / names[0] if len(names) == 1 else None


def is_of_others(path: Path, has_checkpoint: bool) -> bool:
    """Whether ``pretrained.load`` is to read what a path leads to.

    The checkpoints of a training in a folder without config.json come before its GGUF files.
    """
    if path.suffix == ".gguf" or (path / "config.json").exists():
        return True
    return path.is_dir() and not has_checkpoint and bool(gguf_names(path))


def import_safetensors() -> Any:
    """The package safetensors."""
    return imported("safetensors.numpy", "pretrained", "models that exist need")


def tensors_of(folder: Path) -> dict[str, Stored]:
    """The tensors of a folder: in one file, or else in several that an index lists."""
    if kind_of_file(folder / TENSORS) != MISSING:
        return tensors_in(folder / TENSORS)
    if kind_of_file(folder / INDEX) == MISSING:
        others = sorted(path.name for path in folder.iterdir() if path.suffix in OTHER_WEIGHTS)
        there = f"the weights in {listed(others)} are not read" if others else "it has no weights"
        raise ValueError(f"it has neither {TENSORS} nor {INDEX}; {there}{CONVERTING}")
    places = weight_map(read_json(folder / INDEX))
    tensors: dict[str, Stored] = {}
    for name in sorted(set(places.values())):
        if kind_of_file(folder / name) == MISSING:
            raise ValueError(f"{name:.80} is missing, which {INDEX} lists")
        tensors |= tensors_in(folder / name)
    for name, place in places.items():
        if name not in tensors:
            raise ValueError(f"{INDEX} lists {name:.80}, which {place} does not hold")
    return tensors


def weight_map(index: dict) -> dict[str, str]:
    """The file of each tensor, as an index lists them."""
    check_keys(index, SHARDS, INDEX)
    places = index.get("weight_map")
    what = "from names of tensors to names of files in the folder"
    if not isinstance(places, dict):
        raise ValueError(f"{INDEX} has no weight_map {what}")
    for place in places.values():
        if not isinstance(place, str) or Path(place).name != place:
            raise ValueError(f"{INDEX} has {shown(place)} in its weight_map, expected one {what}")
    return places


def tensors_in(path: Path) -> dict[str, Stored]:
    """The tensors of a safetensors file, which its library checks before anything is read."""
    safetensors = import_safetensors()
    check_regular(path)
    try:
        with safetensors.safe_open(path, "numpy"):
            pass
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path.name} is no safetensors file, or a damaged one: {error}") from None
    data = np.memmap(path, np.uint8, "r")
    begin = 8 + int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8:begin]))
    header.pop("__metadata__", None)
    return {name: _stored(name, x, data[begin:]) for name, x in header.items()}


def _stored(name: str, described: dict, data: Any) -> Stored:
    shape = tuple(described["shape"])
    dtype = described["dtype"]
    begin, end = described["data_offsets"]

    def rows(part):
        check_supported(f"{name} has dtype", dtype, DTYPES)
        values = np.ndarray(shape, DTYPES[dtype], data[begin:end])[part]
        if dtype == "BF16":  # the upper half of a float32
            return (values.astype("<u4") << 16).view("<f4")
        return values

    return Stored(shape, rows)
