"""Random forgeries of files, random damage to their bytes, and what becomes of them."""

import collections
import contextlib
import copy
import io
import json
import random
import re
import traceback
import warnings
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from npformer.commands.shared import Reading  # needs pip install -e .

from npformer.files.checkpoint import checksum, load_checkpoint, save_checkpoint
from npformer.training import CheckpointError
from tests.tools.tool import Natural

NUMPY = {"BOOL": "?", "F16": "f2", "F32": "f4", "F64": "f8"}
NUMPY |= {
    f"{kind}{bits}": f"{kind.lower()}{bits // 8}" for kind in "IU" for bits in (8, 16, 32, 64)
}
DTYPES = [*NUMPY, "BF16", "F8_E4M3", "F8_E8M0", "F4", "C64", "I128", "f32", "float32", "", "object"]
NAMES = ["", "a", "params", "params.", "params.a.b", "params.output.bias.x", "optimizer"]
NAMES += ["subwords.source", "é\n", "x" * 999, "\ud800", "\0", "params" + ".a" * 2000]
NAMES += ["__proto__", "name", "max_len", "__metadata__ "]
WORDS = ["", "Transformer", "Recurrent", "float16", "float64", "lstm", "post", "swiglu"]
WORDS += ["additive", "SGD", "separate", "\ud800", "NaN"]
NUMBERS = [0, -1, 1, 2, 7, 1.5, -0.0, 1e308, 10**9, 10**12, 2**31, 2**63, 2**64, 10**30, 10**299]
NUMBERS += [float("nan"), float("inf")]
# replaced in the text: JSON that json.dumps does not write
DEEP, HUGE, TWICE = "@deep@", "@huge@", "@twice@"
DEPTHS = (50, 99, 150, 990, 5000, 100_000)
ACCEPTED, REFUSED, ANOTHER, FAILED = "accepted", "CheckpointError", "text or precision", "FAILURE"
LONGEST_MESSAGE = 1000
# The options of ``forge``, beside --seed.
Files = Annotated[Natural, Reading(help="number of files")]
Only = Annotated[Natural, Reading(help="only the file with this number, from 0")]


# -- what becomes of a file


def forge(load, n, seed, only):
    """Load n files, or only the one with a number, print what happens, and return the failures.

    ``load(draw)`` makes a file with random numbers of its own and loads it. It yields what was
    loaded, the outcome and the message of an error.
    """
    outcomes, reasons, failures = collections.Counter(), collections.Counter(), []
    for number in range(n) if only is None else [only]:
        for what, outcome, text in load(random.Random(f"{seed}/{number}")):
            outcomes[what, outcome] += 1
            reasons[kind_of(text)] += outcome == REFUSED
            if outcome == FAILED:
                failures.append(f"--seed {seed} --only {number}, {what}: {text}")
                print(failures[-1], flush=True)
    for (what, outcome), count in sorted(outcomes.items()):
        print(f"{what:24}{outcome:20}{count:7,}")
    print(f"{len(reasons)} kinds of CheckpointError, the most frequent:")
    for text, count in reasons.most_common(40):
        print(f"{count:7,}  {text}")
    return failures


def outcome_of(call, path):
    """Load a file: the outcome, and the message of an error. Unexpected ones have a traceback."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("error")
            call()
    except CheckpointError as error:
        text = str(error)
        if text.isprintable() and path.name in text and len(text) < LONGEST_MESSAGE:
            return REFUSED, text.replace(str(path), "FILE")
        return FAILED, f"a bad message: {text!r:.500}"
    except Exception as error:
        text = str(error)
        is_of_precision = type(error) is ValueError and text.startswith("precision=")
        is_of_text = type(error) is FileNotFoundError
        if is_of_precision or is_of_text and re.search(r": expected train\..*, found", text):
            return ANOTHER, text
        traceback.print_exc()
        return FAILED, f"{type(error).__name__}: {text!r:.300}"
    return ACCEPTED, ""


def kind_of(text):
    """A message without what differs from file to file."""
    text = re.sub(r"cannot be read as a checkpoint: |; (try an|expected a file).*", "", text)
    text = re.sub(r"'[^']*'?|\"[^\"]*\"?|\[[^]]*\]?|\{[^}]*\}?|\([^)]*\)", "…", text)
    text = re.sub(r"=\S+", "=…", re.sub(r"[-+\d][\d,.e+]*|\bnan\b|\binf\b", "N", text))
    return re.sub(r"parameter \S+: .*", "parameter …: given …, expected …", text)[:90]


# -- files


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


def damaged(draw, whole):
    """The bytes of a file with random damage."""
    whole, at = bytearray(whole), draw.randrange(len(whole))
    match draw.choice(("truncate", "flip", "insert", "zero", "swap", "length")):
        case "truncate":
            del whole[at:]
        case "flip":
            for _ in range(draw.choice((1, 1, 8))):
                whole[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        case "insert":
            whole[at:at] = draw.randbytes(draw.choice((1, 8, 1000)))
        case "zero":
            end = min(len(whole), at + draw.choice((1, 16, 4096)))
            whole[at:end] = bytes(end - at)
        case "swap":
            other = draw.randrange(len(whole))
            part = whole[at : at + 16]
            whole[at : at + 16] = whole[other : other + 16]
            whole[other : other + 16] = part
        case "length":
            number = draw.choice((0, 2**30, 2**64 - 1, draw.randrange(2**64)))
            whole[:8] = number.to_bytes(8, "little")
    return bytes(whole)


# -- JSON


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
    n = draw.choice(DEPTHS)
    opened, closed = draw.choice((("[", "]"), ('{"a":', "}")))
    raw = {DEEP: opened * n + "1" + closed * n, HUGE: "9" * draw.choice((301, 5000))}
    raw[TWICE] = '{"a":1,"a":2}'
    text = json.dumps(value)
    for name, special in raw.items():
        text = text.replace(f'"{name}"', special)
    return text


def as_bytes(draw, value):
    """JSON, also such that is no UTF-8."""
    return as_text(draw, value).encode("utf-8", "surrogatepass")


# -- checkpoints


@dataclass
class Forgery:
    """The parts of a checkpoint that changes go to."""

    header: Any
    data: bytes
    info: Any
    order: Any


def forged(draw, header, data):
    """The bytes of a forgery: a file with one to three changes and a right checksum."""
    metadata = copy.deepcopy(header["__metadata__"])
    info, order = json.loads(metadata["info"]), json.loads(metadata["order"])
    forgery = Forgery(copy.deepcopy(header), data, info, order)
    for change in draw.choices([*CHANGES], CHANGES.values(), k=draw.choice((1, 1, 1, 2, 3))):
        with contextlib.suppress(AttributeError, IndexError, KeyError, TypeError, ValueError):
            change(draw, forgery)  # unless an earlier one has left nothing to change
    if draw.random() < 0.1:
        metadata = changed(draw, metadata)
    elif isinstance(metadata, dict):
        metadata |= {"info": as_text(draw, forgery.info), "order": as_text(draw, forgery.order)}
    if isinstance(forgery.header, dict):
        forgery.header["__metadata__"] = metadata
    seal(forgery.header, forgery.data)
    return joined(as_bytes(draw, forgery.header), forgery.data)


def change_info(draw, forgery):
    forgery.info = changed(draw, forgery.info)


def change_order(draw, forgery):
    forgery.order = draw.choice(
        (
            changed(draw, forgery.order),
            dict.fromkeys(forgery.order, 1),
            draw.sample(forgery.order, len(forgery.order)),  # a right one
        )
    )


def change_name(draw, forgery):
    """An array with another name, in both places."""
    old = draw.choice(forgery.order)
    others = old + ".x", old.rpartition(".")[0], old.replace("params", "optimizer")
    new = draw.choice([*NAMES, *others])
    forgery.header = {new if name == old else name: x for name, x in forgery.header.items()}
    forgery.order = [new if name == old else name for name in forgery.order]


def change_layout(draw, forgery):
    """One array with another dtype, shape or place, without care for the others."""
    name = draw.choice([name for name in forgery.header if name != "__metadata__"])
    entry = forgery.header[name]
    shape = entry["shape"]
    entry |= draw.choice(
        (
            {"dtype": draw.choice(DTYPES)},
            {"shape": draw.choice((shape[::-1], [*shape, 1], [0, 10**12, 10**12], [1] * 70))},
            {"shape": [draw.choice(NUMBERS) for _ in range(draw.randrange(4))]},
            {"data_offsets": [n + draw.choice((-4, 4)) for n in entry["data_offsets"]]},
            {"data_offsets": draw.choices(NUMBERS, k=2)},
            {draw.choice(("x", *entry)): anything(draw)},
        )
    )
    if draw.random() < 0.2:
        forgery.header = changed(draw, forgery.header)


def change_content(draw, forgery):
    """Other bytes in one array, or the same bytes as another dtype or shape."""
    name = draw.choice([name for name in forgery.header if name != "__metadata__"])
    entry = forgery.header[name]
    begin, end = entry["data_offsets"]
    if draw.random() < 0.4:
        data = bytearray(forgery.data)
        for _ in range(draw.choice((1, 10, 100))):
            data[draw.randrange(begin, end)] = draw.randrange(256)
        forgery.data = bytes(data)
        return
    dtype = draw.choice(["U8", *NUMPY])
    n = (end - begin) // np.dtype(NUMPY[dtype]).itemsize
    shapes = [entry["shape"][::-1], [1, *entry["shape"]], [end - begin]]
    entry |= draw.choice(({"dtype": dtype, "shape": [n]}, {"shape": draw.choice(shapes)}))


# How often each is drawn.
CHANGES = {change_info: 4, change_layout: 2, change_content: 1, change_name: 1, change_order: 1}


def seal(header, data):
    """Set the checksum, if the file can be read far enough to have one."""
    with contextlib.suppress(
        AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError
    ):
        metadata = header["__metadata__"]
        if "crc32" not in metadata:
            return
        arrays = {}
        for name, entry in header.items():
            if name != "__metadata__":
                flat = np.frombuffer(data[slice(*entry["data_offsets"])], NUMPY[entry["dtype"]])
                arrays[name] = flat.reshape(entry["shape"])
        rest = {name: value for name, value in metadata.items() if name != "crc32"}
        metadata["crc32"] = checksum(arrays, rest)
