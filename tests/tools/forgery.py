"""Random forgeries of checkpoints with a right checksum, and random damage to their bytes."""

import copy
import json

import numpy as np

from npformer.files.checkpoint import checksum, load_checkpoint, save_checkpoint

OTHER_DTYPES = ["BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3"]
OTHER_DTYPES += ["C64", "I128", "f32", "float32", "", "object"]
NUMPY = {"BOOL": "?", "F16": "f2", "F32": "f4", "F64": "f8"}
NUMPY |= {
    f"{kind}{bits}": f"{kind.lower()}{bits // 8}" for kind in "IU" for bits in (8, 16, 32, 64)
}
DTYPES = list(NUMPY)
NAMES = ["", "a", "params", "params.", "params.a.b"]
NAMES += ["params.output.bias.x", "optimizer", "subwords.source", "é\n"]
NAMES += ["x" * 999, "\ud800", "\0", "params" + ".a" * 2000]
NAMES += ["__proto__", "name", "max_len", "__metadata__ "]
WORDS = ["", "Transformer", "Recurrent", "float16", "float64"]
WORDS += ["lstm", "post", "swiglu", "additive", "SGD", "separate"]
WORDS += ["\ud800", "NaN"]
NUMBERS = [0, -1, 1, 2, 7, 1.5, -0.0, 1e308, 10**9, 10**12, 2**31, 2**63, 2**64, 10**30, 10**299]
NUMBERS += [float("nan"), float("inf")]
# replaced in the text: JSON that json.dumps does not write
DEEP, HUGE, TWICE = "@deep@", "@huge@", "@twice@"
PARTS = ["info", "info", "info", "info", "content"]
PARTS += ["layout", "layout", "names", "order", "metadata"]
DEPTHS = (50, 99, 150, 990, 5000, 100_000)


def parts(path):
    """The header of a safetensors file as a dict, and the bytes behind it."""
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    return json.loads(whole[8 : 8 + length]), whole[8 + length :]


def joined(header, data):
    """The bytes of a file with this header; ``header`` may be the text itself."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def rewrite(path, arrays=None, info=None):
    """Change some arrays and facts of a checkpoint, with a right checksum.

    What is None is left out.
    """
    arrays_before, info_before = load_checkpoint(path)
    save_checkpoint(path, merged(arrays_before, arrays), merged(info_before, info))


def merged(before, changes):
    changes = changes or {}
    left_out = [name for name, value in changes.items() if value is None]
    return {name: value for name, value in (before | changes).items() if name not in left_out}


def forged(draw, header, data):
    """The bytes of a forgery: a file with one to three changes and a right checksum."""
    header = copy.deepcopy(header)
    metadata = header["__metadata__"]
    info, order = json.loads(metadata["info"]), json.loads(metadata["order"])
    # changes of the header's own structure, which the checksum covers only if it can be read
    late = []
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        part = draw.choice(PARTS)
        if part == "info":
            info = changed(draw, info)
        elif part == "order":
            order = _order(draw, order)
        elif part == "names":
            header, order = _names(draw, header, order)
        elif part == "content":
            data = _content(draw, header, data)
        else:
            late.append({"layout": _layout, "metadata": _metadata}[part])
    metadata["info"], metadata["order"] = as_text(draw, info), as_text(draw, order)
    for change in late:
        change(draw, header)
    seal(header, data)
    text = as_text(draw, header).encode("utf-8", "surrogatepass")
    return joined(text, data)


def damaged(draw, whole):
    """The bytes of a file with random damage."""
    whole, at = bytearray(whole), draw.randrange(len(whole))
    how = draw.choice(("truncate", "flip", "insert", "zero", "swap", "length"))
    if how == "truncate":
        return bytes(whole[:at])
    if how == "flip":
        for _ in range(draw.choice((1, 1, 8))):
            whole[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
    elif how == "insert":
        whole[at:at] = draw.randbytes(draw.choice((1, 8, 1000)))
    elif how == "zero":
        end = min(len(whole), at + draw.choice((1, 16, 4096)))
        whole[at:end] = bytes(end - at)
    elif how == "swap":
        other = draw.randrange(len(whole))
        whole[at : at + 16], whole[other : other + 16] = (
            whole[other : other + 16],
            whole[at : at + 16],
        )
    else:
        whole[:8] = draw.choice(
            (draw.randbytes(8), bytes(8), b"\xff" * 8, (2**30).to_bytes(8, "little"))
        )
    return bytes(whole)


def changed(draw, value):
    """JSON with one change at a random place: a value or a key replaced, dropped or added."""
    if not isinstance(value, (dict, list)) or not value or draw.random() < 0.15:
        return anything(draw)
    value = copy.copy(value)
    key = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
    how = draw.random()
    if how < 0.6:
        value[key] = changed(draw, value[key])
    elif how < 0.75:
        del value[key]
    elif isinstance(value, list):
        value.insert(key, anything(draw))
    elif how < 0.9:
        value[draw.choice(NAMES)] = anything(draw)
    else:
        value[draw.choice(NAMES)] = value.pop(key)
    return value


def anything(draw, depth=0):
    """Random JSON."""
    kind = draw.randrange(12 if depth < 3 else 8)
    if kind < 4:
        return draw.choice(NUMBERS)
    if kind < 6:
        return draw.choice(WORDS)
    if kind < 8:
        return draw.choice((None, True, False, "x" * 5000, DEEP, HUGE, TWICE))
    children = [anything(draw, depth + 1) for _ in range(draw.randrange(4))]
    return children if kind < 10 else {draw.choice(NAMES): child for child in children}


def as_text(draw, value):
    """JSON, in which what ``json.dumps`` cannot write takes the place of its names."""
    text = json.dumps(value)
    for name in (DEEP, HUGE, TWICE):
        if f'"{name}"' in text:
            n = draw.choice(DEPTHS)
            opened, closed = draw.choice((("[", "]"), ('{"a":', "}")))
            raw = {
                DEEP: opened * n + "1" + closed * n,
                HUGE: "9" * draw.choice((301, 5000)),
                TWICE: '{"a":1,"a":2}',
            }
            text = text.replace(f'"{name}"', raw[name])
    return text


def _order(draw, order):
    how = draw.randrange(5)
    if how == 0 or not isinstance(order, list) or not all(isinstance(name, str) for name in order):
        return anything(draw)
    if how == 1:
        return order[1:]
    if how == 2:
        return [*order, draw.choice([*NAMES, *order])]
    if how == 3:
        return dict.fromkeys(order, 1)
    return draw.sample(order, len(order))  # a right one


def _names(draw, header, order):
    """An array with another name, in both places."""
    old = draw.choice(order) if isinstance(order, list) and order else None
    if not isinstance(old, str) or old not in header:
        return header, order
    new = draw.choice(
        [*NAMES, old + ".x", old.rpartition(".")[0], old.replace("params", "optimizer")]
    )
    return {new if name == old else name: entry for name, entry in header.items()}, [
        new if name == old else name for name in order
    ]


def _metadata(draw, header):
    metadata = header["__metadata__"]
    if not isinstance(metadata, dict) or not metadata:
        return
    key, how = draw.choice(list(metadata)), draw.randrange(5)
    if how == 0:
        del metadata[key]
    elif how == 1:
        metadata[draw.choice(NAMES)] = draw.choice(("", anything(draw)))
    elif how == 2:
        metadata[key] = anything(draw)
    elif how == 3:
        metadata[key] = str(anything(draw))
    else:
        header["__metadata__"] = anything(draw)


def _layout(draw, header):
    """One array with another dtype, shape or place, without care for the others;
    or anything instead of it.
    """
    name = draw.choice([name for name in header if name != "__metadata__"] or ["a"])
    entry, how = header.get(name), draw.randrange(8)
    if not isinstance(entry, dict) or "shape" not in entry or how == 0:
        header[name] = anything(draw)
    elif how == 1:
        entry["dtype"] = draw.choice([*DTYPES, *OTHER_DTYPES, *OTHER_DTYPES, anything(draw)])
    elif how == 2:
        entry["shape"] = draw.choice(
            (anything(draw), [draw.choice(NUMBERS) for _ in range(draw.randrange(4))])
        )
    elif how == 3:
        entry["shape"] = draw.choice(
            (entry["shape"][::-1], [*entry["shape"], 1], [0, 10**12, 10**12], [1] * 70)
        )
    elif how == 4:
        entry["data_offsets"] = draw.choice(
            (anything(draw), [draw.choice(NUMBERS), draw.choice(NUMBERS)])
        )
    elif how == 5:
        entry["data_offsets"] = [
            n + draw.choice((-4, 4)) if isinstance(n, int) else n for n in _list(entry)
        ]
    elif how == 6:
        entry[draw.choice(("x", *entry))] = anything(draw)
    else:
        del header[name]


def _list(entry):
    return entry["data_offsets"] if isinstance(entry.get("data_offsets"), list) else [0, 0]


def _content(draw, header, data):
    """Other bytes in one array, or the same bytes as another dtype or shape."""
    name = draw.choice([name for name in header if name != "__metadata__"] or [None])
    entry = header.get(name)
    if not isinstance(entry, dict) or not {"shape", "data_offsets"} <= entry.keys():
        return data
    begin, end = entry["data_offsets"]
    how = draw.randrange(4)
    if how == 0 and end > begin:
        changed = bytearray(data)
        for _ in range(draw.choice((1, 10, 100))):
            changed[draw.randrange(begin, end)] = draw.randrange(256)
        return bytes(changed)
    if how == 1:
        entry["dtype"], entry["shape"] = "U8", [end - begin]
    elif how == 2:
        dtype = draw.choice(DTYPES)
        size = np.dtype(NUMPY[dtype]).itemsize
        if (end - begin) % size == 0:
            entry["dtype"], entry["shape"] = dtype, [(end - begin) // size]
    else:
        entry["shape"] = draw.choice((entry["shape"][::-1], [1, *entry["shape"]], [end - begin]))
    return data


def seal(header, data):
    """Set the checksum, if the file can be read far enough to have one."""
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or "crc32" not in metadata:
        return
    rest = {name: value for name, value in metadata.items() if name != "crc32"}
    try:
        arrays = {
            name: np.frombuffer(data[slice(*entry["data_offsets"])], NUMPY[entry["dtype"]]).reshape(
                entry["shape"]
            )
            for name, entry in header.items()
            if name != "__metadata__"
        }
        metadata["crc32"] = checksum(arrays, rest)
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
        pass
