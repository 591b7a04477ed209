"""What a GGUF file holds: values with their names, and tensors, which are dequantised when they are
read.
"""

import math
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npformer.checks import shown
from npformer.errors import UserError
from npformer.extras import imported
from npformer.files.paths import check_regular
from npformer.pretrained.files import Stored, Tensors

NUMBERS = dict(enumerate("BbHhIif?"))  # kinds of values: the codes of struct
NUMBERS |= {10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
ALIGNMENT = 32  # bytes, if the file does not say


class Reader:
    """Reads one value after another, and never more than a file has."""

    def __init__(self, data: Any):
        self.data = data
        self.at = 0

    def take(self, n: int) -> bytes:
        """The next n bytes."""
        if n > len(self.data) - self.at:
            raise UserError("it ends before its header is complete, or it is damaged")
        self.at += n
        return bytes(self.data[self.at - n : self.at])

    def numbers(self, n: int, code: str) -> tuple:
        """The next n numbers."""
        form = f"<{n}{code}"
        return struct.unpack(form, self.take(struct.calcsize(f"<{code}") * n))

    def number(self, code: str):
        """The next number."""
        return self.numbers(1, code)[0]

    def text(self) -> str:
        """The next text."""
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def value(self, kind: int):
        """The next value."""
        if kind == STRING:
            return self.text()
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind != ARRAY:
            raise UserError(f"it has a value of kind {kind}, expected 0 to 12: it is damaged")
        kind, n = self.number("I"), self.number("Q")
        if kind == STRING:
            return [self.text() for _ in range(n)]
        if kind not in NUMBERS:
            raise UserError(f"it has a list of kind {kind}, expected numbers or texts")
        return list(self.numbers(n, NUMBERS[kind]))


class Stretch(NamedTuple):
    """The part of a file that a tensor takes."""

    begin: int  # bytes after the header
    name: str
    shape: tuple[int, ...]
    kind: int  # how its numbers are quantised


def contents_of(path: Path) -> tuple[dict, Tensors]:
    """The values of a file by their names, and its tensors."""
    check_regular(path)
    is_empty = path.stat().st_size == 0  # and cannot be mapped
    data = np.empty(0, np.uint8) if is_empty else np.memmap(path, np.uint8, "r")
    reader = Reader(data)
    if reader.take(4) != b"GGUF" or reader.number("I") not in (2, 3):
        raise UserError("it does not begin as a GGUF file of version 2 or 3")
    n_tensors, n_values = reader.numbers(2, "Q")
    about = {}
    for _ in range(n_values):
        name = reader.text()
        about[name] = reader.value(reader.number("I"))
    stretches = [next_stretch(reader) for _ in range(n_tensors)]
    alignment = about.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise UserError(f"general.alignment={shown(alignment)}, expected at least 1")
    begin = -(-reader.at // alignment) * alignment
    return about, tensors_at(stretches, data[begin:])


def next_stretch(reader: Reader) -> Stretch:
    """What the header says of the next tensor."""
    name = reader.text()
    n_axes = min(reader.number("I"), 9)
    shape = reader.numbers(n_axes, "Q")[::-1]
    kind = reader.number("I")
    return Stretch(reader.number("Q"), name, shape, kind)


def tensors_at(stretches: list[Stretch], data) -> Tensors:
    """The tensors in some stretches of the bytes after a header.

    No two share bytes: a small file could have any number of large ones.
    """
    tensors: Tensors = {}
    last = ""
    end = 0
    for stretch in sorted(stretches):
        name = stretch.name
        if name in tensors:
            raise UserError(f"it has two tensors with the name {name:.80}")
        tensor, n_bytes = tensor_at(stretch, data)
        if stretch.begin < end:
            raise UserError(
                f"{last:.80} and {name:.80} have the same bytes of the file, expected their own"
            )
        tensors[name] = tensor
        last = name
        end = stretch.begin + n_bytes
    return tensors


def tensor_at(stretch: Stretch, data) -> tuple[Stored, int]:
    """A tensor, which is dequantised when it is read, and the number of its bytes."""
    begin, name, shape, number = stretch
    gguf = imported("gguf.quants", "pretrained", "GGUF files need")
    try:
        kind = gguf.GGMLQuantizationType(number)
    except ValueError:
        raise UserError(f"{name:.80} is quantised in the unknown way {number}") from None
    block, size = gguf.GGML_QUANT_SIZES[kind]
    width = shape[-1] // block * size if shape else 0  # bytes of a row
    n_bytes = math.prod(shape[:-1]) * width
    if not shape or shape[-1] % block or begin + n_bytes > len(data):
        raise UserError(
            f"{name:.80} of shape {shape} does not lie in the file: it is cut off or damaged"
        )
    blocks = data[begin : begin + n_bytes].reshape(*shape[:-1], width)

    def rows(part):
        is_vector = len(shape) == 1  # which is one row of blocks
        try:
            floats = gguf.quants.dequantize(blocks if is_vector else blocks[part], kind)
        except NotImplementedError:
            raise UserError(
                f"{name:.80} is quantised as {kind.name}, which is not supported"
            ) from None
        return floats[part] if is_vector else floats.reshape(-1, *shape[1:])

    return Stored(shape, rows), n_bytes
