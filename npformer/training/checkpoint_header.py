"""The header of a checkpoint, which is checked as a whole before any array is allocated.

A checkpoint is a safetensors file: the length of its header in 8 bytes, the header, and the bytes of the arrays, one
after the other. The header is JSON: for each array its dtype, shape and place, and the metadata, a dict of strings.
"""

import math
import os
import stat

import numpy as np

from npformer.training.strict_json import parse_json

FORMAT = "npformer checkpoint"
VERSION = "1"
LARGEST_HEADER = 8 * 2**20  # bytes; parsed, it takes some times as much memory
METADATA = {"format", "version", "order", "info", "crc32"}
DTYPES = {"BOOL": np.dtype(bool)}  # by the names in safetensors
DTYPES |= {f"F{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)}
DTYPES |= {f"{kind}{bits}": np.dtype(f"<{kind.lower()}{bits // 8}") for kind in "IU" for bits in (8, 16, 32, 64)}
MOST_AXES = 64  # of an array of NumPy's


def open_file(path):
    """Open a file of which all is read, so that one that is saved meanwhile under its name changes nothing."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for someone to write to it
        raise ValueError("it is not a regular file")
    return open(path, "rb")


def read_header(file):
    """Read and check all of an open checkpoint but its arrays.

    Returns
    -------
    metadata : dict of str to str
    info : dict
    layout : dict of str to (dtype, shape, position in the file)
        Of the arrays, in the order in which they were saved.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        With the reason why it is no checkpoint.
    """
    header, start, n_bytes = _read(file)
    metadata = header.pop("__metadata__", None)
    _check_metadata(metadata)
    _check_arrays(header, n_bytes)
    order, info = (parse_json(metadata[name], f"its {name}") for name in ("order", "info"))
    if not isinstance(order, list) or not all(isinstance(name, str) for name in order):
        raise ValueError(f"its order is {order!r:.60}, expected a list of names")
    if sorted(order) != sorted(header):
        raise ValueError(f"its order has {len(order)} names, expected those of its {len(header)} arrays, each once")
    if not isinstance(info, dict):
        raise ValueError(f"its info is {info!r:.60}, expected a dict")
    entries = ((name, header[name]) for name in order)
    layout = {name: (DTYPES[x["dtype"]], x["shape"], start + x["data_offsets"][0]) for name, x in entries}
    return metadata, info, layout


def read_array(file, dtype, shape, position):
    """Read one array of an open checkpoint."""
    file.seek(position)
    return np.fromfile(file, dtype, math.prod(shape)).reshape(shape)


def check_header_size(n_bytes):
    """Check the length of a header, when it is read and when it is written."""
    if n_bytes > LARGEST_HEADER:
        raise ValueError(f"its header has {n_bytes:,} bytes, expected at most {LARGEST_HEADER:,}")


def _read(file):
    """Return the header of a safetensors file as a dict, where it ends, and the number of bytes behind it."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8:
        raise ValueError(f"it has {size} bytes")
    if length > size - 8:
        raise ValueError(f"it has {size:,} bytes, fewer than the {length:,} of its header")
    check_header_size(length)
    header = parse_json(file.read(length).decode(), "its header")
    if not isinstance(header, dict):
        raise ValueError(f"its header is {header!r:.60}, expected a dict")
    return header, 8 + length, size - 8 - length


def _check_metadata(metadata):
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise ValueError("npformer did not write it")
    version = metadata.get("version")
    if version != VERSION:
        raise ValueError(f"it has format version {version!s:.20}, this npformer reads {VERSION}")
    if metadata.keys() != METADATA:
        raise ValueError(f"its metadata has the keys {sorted(metadata)!s:.200}, expected {sorted(METADATA)}")
    for name, value in metadata.items():
        if not isinstance(value, str) or not value.isascii():  # other characters can take four times the memory
            raise ValueError(f"its metadata has {name}={value!r:.60}, expected a str of ASCII characters")


def _check_arrays(arrays, n_bytes):
    """Check that the described arrays fill the rest of the file, without a gap or an overlap."""
    places = sorted(_place(name, array) for name, array in arrays.items())
    ends = [0, *(end for _, end in places)]
    if [begin for begin, _ in places] != ends[:-1] or ends[-1] != n_bytes:
        raise ValueError(f"its arrays should fill {ends[-1]:,} bytes one after the other, but it has {n_bytes:,}")


def _place(name, array):
    """Return where an array begins and ends."""
    if not isinstance(array, dict) or array.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"its array {name!r:.60} is {array!r:.60}, expected dtype, shape and data_offsets")
    dtype, shape, place = array["dtype"], array["shape"], array["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"its array {name!r:.60} has dtype {dtype!r:.60}, expected one of {', '.join(DTYPES)}")
    if not _are_counts(shape) or len(shape) > MOST_AXES or not _are_counts(place) or len(place) != 2:
        raise ValueError(f"its array {name!r:.60} has shape {shape!r:.60} at {place!r:.60}, expected counts")
    begin, end = place
    if end - begin != math.prod(shape) * DTYPES[dtype].itemsize:
        raise ValueError(f"its array {name!r:.60} has shape {shape!r:.60}, which does not fill its place {place!r:.60}")
    if math.prod(n or 1 for n in shape) * DTYPES[dtype].itemsize >= 2**63:  # an empty one may have any other lengths
        raise ValueError(f"its array {name!r:.60} has shape {shape!r:.60}, too large for an array")
    return begin, end


def _are_counts(values):
    return isinstance(values, list) and all(type(n) is int and n >= 0 for n in values)
