"""Measure how far results and gradients are from the exact ones on hard inputs, beside PyTorch if
it is installed.

python scripts/measure/measure_accuracy.py  # half a minute
python scripts/measure/measure_accuracy.py --only layer_norm,gru --dtype float64

An input is hard if it makes a sum or a difference lose digits: a large offset, tiny arguments, long
rows, constant rows, many rows. They are in hard_inputs.toml. The exact result is what the reference
computes in NumPy's long double, whose significand has 64 bits on x86. An error is the largest
difference divided by the largest entry of the result, or, where the table says "each", the largest
relative error of a single entry of the result. It is in units of the dtype's rounding error (2⁻²³
in float32).
"""

import importlib.util
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from npformer.commands.shared import (  # needs pip install -e .
    JsonFile,
    command_line,
    write_json,
)
from scripts.bench.machine import print_machine
from scripts.bench.options import some
from scripts.bench.report import print_table

from npformer import get_backend, reference
from npformer.gradients.case import Case
from npformer.gradients.drawing import Drawn, cast, draw


class Hard(NamedTuple):
    """An operation, an input, and how far a backend may be from the exact result (the bounds of the
    case).
    """

    case: Case
    label: str
    each: bool = False

    def __str__(self):
        return f"{self.case.operation}-{self.label}"


CHANGES = {  # what becomes of standard normals
    "plus": lambda x, number: number + x,
    "times": lambda x, number: number * x,
    "square": lambda x, number: number * x * x,
    "constant": np.full_like,
    "tiny": lambda x, _: np.sign(x) * 10.0 ** (-10 * np.abs(x)),  # from 1 to below 1e-40
}
ARGUMENTS = {  # those with a name in hard_inputs.toml, as TOML has no None
    "plain": {"keep_mask": None, "bias": None},
    "feed-forward": {"activation": "gelu", "dropout_rate": 0.0, "dropout_key": None},
    "paired": {"consistency": 5.0, "ignore_id": None},
    "states": {"keep_mask": None, "dcells": None},
}


def hard(row):
    """A hard input for each operation of a row."""
    arguments = row.get("arguments", {})
    if isinstance(arguments, str):
        arguments = ARGUMENTS[arguments]
    sizes = dict(row["sizes"])
    if "leading" in sizes:
        sizes["..."] = tuple(sizes.pop("leading"))
    bounds = row.get("bounds", (4, 4))
    for operation in row["operations"].split():
        arrays = getattr(reference, operation).record.contract.arrays
        changed = {
            name: Drawn(partial(draw_changed, arrays[name], change))
            for name, change in row.get("change", {}).items()
            if name in arrays
        }
        case = Case(operation, arguments | changed, sizes, *bounds)
        yield Hard(case, row["name"], row.get("each", False))


def draw_changed(array, changes, rng, sizes):
    """Draw an array, and change it step by step: "times 3, plus 1e6"."""
    x = draw(array, sizes, rng)
    for change in changes.split(", "):
        name, _, number = change.partition(" ")
        x = CHANGES[name](x, float(number or 0))
    return x


with Path(__file__).with_name("hard_inputs.toml").open("rb") as file:
    HARD = [each for row in tomllib.load(file)["input"] for each in hard(row)]


def contenders():
    """What computes each result: the backends, and PyTorch if it is installed."""
    functions = {name: partial(of_backend, get_backend(name)) for name in ("reference", "cpu")}
    if importlib.util.find_spec("torch"):
        functions["PyTorch"] = of_torch
    return functions


def of_backend(ops, case, arguments, cotangents):
    """The first result of an operation, or the arrays it has written to, and all gradients, by
    name.
    """
    is_array = lambda x: isinstance(x, np.ndarray)
    arguments = {name: x.copy() if is_array(x) else x for name, x in arguments.items()}
    forward = case.forward.record
    results = _by_name(forward.contract, getattr(ops, forward.name)(**arguments))
    written = [x.name for x in forward.contract.arrays.values() if x.kind == "written"]
    if written:
        return {name: arguments[name] for name in written if arguments[name] is not None}
    first = next(iter(results))
    arrays = {name: results[name] for name in (first, "dlogits") if name in results}
    if case.backward:
        backward = case.backward.record
        shapes = {f"{name}_shape": x.shape for name, x in arguments.items() if is_array(x)}
        known = results | arguments | shapes | cotangents
        parameters = {name: known[name] for name in backward.parameters if name in known}
        gradients = getattr(ops, backward.name)(**parameters)
        arrays |= _by_name(backward.contract, gradients)
    return {name: x for name, x in arrays.items() if x is not None}


def _by_name(contract, results):
    results = results if isinstance(results, tuple) else (results,)
    names = [result.name for result in contract.results] or ["result"]
    return dict(zip(names, results, strict=False))


def of_torch(case, arguments, cotangents):
    """As ``of_backend``, with gradients by autograd; None if PyTorch has no such operation."""
    import torch

    from scripts.bench.peers.pytorch_operations import OPERATIONS, leaves_of, tensors_of

    peer = OPERATIONS.get(case.operation)
    if peer is None:
        return None
    tensors = tensors_of(arguments)
    leaves = leaves_of(tensors)
    y = peer(**tensors)
    y.backward(*[torch.tensor(dy) for dy in [*cotangents.values()][:1]])
    arrays = _by_name(case.forward.record.contract, y.detach().numpy())
    for name, x in leaves.items():
        if x.grad is not None:
            arrays[f"d{name}"] = x.grad.numpy()
    return arrays


def errors_of(hard, dtype, names=None):
    """For each contender (the error of the result, the largest error of a gradient), in units of
    rounding.

    Either is None if there is no such thing. ``names`` are those of some contenders.
    """
    arguments = hard.case.arguments(dtype)
    cotangents = hard.case.cotangents(arguments, dtype) if hard.case.backward else {}
    exact_inputs = [cast(arrays, np.longdouble) for arrays in (arguments, cotangents)]
    exact = of_backend(reference, hard.case, *exact_inputs)
    first, *gradients = exact
    errors = {}
    computed_by = contenders()
    for name in names or computed_by:
        computed = computed_by[name](hard.case, arguments, cotangents) or {}
        of_result = None
        if computed:
            of_result = error_of(computed[first], exact[first], dtype, hard.each)
        of_gradients = [error_of(computed[x], exact[x], dtype) for x in gradients if x in computed]
        # NaN if one is.
        errors[name] = of_result, float(np.max(of_gradients)) if of_gradients else None
    return errors


def error_of(computed, exact, dtype, each=False):
    """The error in units of rounding; inf where 0 is exact. Subnormals round as the smallest normal
    number does.
    """
    info = np.finfo(dtype)
    error = np.abs(computed - exact)
    size = np.abs(exact)
    if not each:
        error = error.max()
        size = size.max()
    of_zeros = np.where(error == 0, 0, np.inf)
    relative = np.where(size == 0, of_zeros, error / np.maximum(size, info.tiny))
    return float(relative.max() / info.eps)


def shown(errors):
    """The errors of a result and of its gradients, if there are any."""
    return " / ".join(f"{x:.3g}" for x in errors if x is not None) or "-"


OPERATIONS = list(dict.fromkeys(hard.case.operation for hard in HARD))


@command_line
def main(
    *,
    only: some(OPERATIONS, "operations (default: all)") = None,
    dtype: Literal["float32", "float64"] = "float32",
    json: JsonFile | None = None,
):
    """Measure accuracy."""
    facts = print_machine()
    print(f"{dtype}; error of the result / largest error of a gradient\n")
    rows = []
    table = []
    for hard in HARD:
        operation = hard.case.operation
        if operation not in (only or OPERATIONS):
            continue
        errors = errors_of(hard, dtype)
        row = {"operation": operation, "input": hard.label}
        rows.append(row | {"each": hard.each, "errors": errors})
        label = f"{hard.label}, each" if hard.each else hard.label
        table.append([operation, label, *map(shown, errors.values())])
    write_json(json, {"machine": facts, "dtype": dtype, "rows": rows})
    print_table(["operation", "input", *contenders()], table)


if __name__ == "__main__":
    sys.exit(main())
