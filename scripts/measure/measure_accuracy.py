"""Measure how far results and gradients are from the exact ones on hard inputs, beside PyTorch if
it is installed.

python scripts/measure/measure_accuracy.py  # half a minute
python scripts/measure/measure_accuracy.py --only layer_norm,gru --dtype float64

An input is hard if it makes a sum or a difference lose digits: a large offset, tiny arguments, long
rows, constant rows, many rows. The exact result is what the reference computes in NumPy's long
double, whose significand has 64 bits on x86. An error is the largest difference divided by the
largest entry of the result, or, where the table says "each", the largest relative error of a single
entry of the result. It is in units of the dtype's rounding error (2⁻²³ in float32).
"""

import importlib.util
import sys
from functools import partial
from typing import NamedTuple

import numpy as np

from npformer.commands.arguments import new_parser  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import add_json, write_json
from scripts.bench.machine import machine, print_machine
from scripts.bench.options import add_some
from scripts.bench.report import print_table

from npformer import get_backend, reference
from npformer.gradients.cases import Case, Drawn, cast, draw


class Hard(NamedTuple):
    """An operation, an input, and how far a backend may be from the exact result (the bounds of the
    case).
    """

    case: Case
    label: str
    each: bool = False

    def __str__(self):
        return f"{self.case.operation}-{self.label}"


HARD: list[Hard] = []


def hard(operations, label, change=None, given=None, each=False, bounds=(4, 4), **sizes):
    """Add a hard input for each of these operations: ``change`` maps names of arrays to functions
    of standard normals.

    ``bounds`` are the largest errors of the result and of a gradient that a backend may have.
    """
    for operation in operations.split():
        contract = getattr(reference, operation).record.contract
        changed = {
            name: Drawn(
                lambda rng, all_sizes, x=contract.arrays[name], f=f: f(draw(x, all_sizes, rng))
            )
            for name, f in (change or {}).items()
            if name in contract.arrays
        }
        sizes = {letter.replace("leading", "..."): size for letter, size in sizes.items()}
        case = Case(operation, {**(given or {}), **changed}, sizes, *bounds)
        HARD.append(Hard(case, label, each))


plus = lambda offset: lambda x: offset + x
times = lambda factor: lambda x: factor * x
constant = lambda x: np.full_like(x, 0.37)


def down_to_tiny(x):
    """Numbers of both signs, from 1 to below 1e-40."""
    return np.sign(x) * 10.0 ** (-10 * np.abs(x))


NO_MASK = {"keep_mask": None}
PLAIN = {**NO_MASK, "bias": None}
FEED_FORWARD = {"activation": "gelu", "dropout_rate": 0.0, "dropout_key": None}
PAIRED = {"consistency": 5.0, "ignore_id": None}
STATES = {**NO_MASK, "dcells": None}
QUERIES = {"leading": (2, 2), "T": 50, "S": 50}
ADAM = {"grad": times(1e-8), "m": times(1e-8), "v": lambda x: 1e-16 * x * x}


def gated(scale):
    """Add recurrent cells whose inputs and first states have this size."""
    change = {
        **{name: times(scale) for name in ("x_gates", "h0", "c0", "bias")},
        "weight": times(0.1),
    }
    sizes = {"B": 4, "T": 20, "D": 32}
    hard("gru lstm", f"inputs of {scale:g}", change, given=STATES, bounds=(4, 8), **sizes)


hard("softmax log_softmax", "offset 1e6", {"x": plus(1e6)}, leading=(64, 500))
hard("softmax log_softmax", "rows of 1e6", leading=(1, 10**6))
hard("softmax log_softmax", "constant rows of 1e5", {"x": constant}, leading=(1, 10**5))
hard("softmax", "results of 1e-45", {"x": times(20)}, each=True, bounds=(64, 16), leading=(64, 100))
hard(
    "layer_norm rms_norm", "offset 1e4", {"x": plus(1e4)}, bounds=(4000, 8000), leading=(64,), D=512
)
hard("layer_norm rms_norm", "1e-30", {"x": times(1e-30)}, leading=(64,), D=512)
hard("layer_norm rms_norm", "1e30", {"x": times(1e30)}, leading=(64,), D=512)
hard("layer_norm rms_norm", "rows of 1e6", leading=(1,), D=10**6)
hard("layer_norm rms_norm", "constant rows of 1e5", {"x": constant}, leading=(2,), D=10**5)
hard("layer_norm", "1e5 rows", bounds=(40, 60), leading=(10**5,), D=8)
hard("rms_norm", "1e6 rows", leading=(10**6,), D=2)
hard("layer_norm rms_norm", "4,096 rows", leading=(4096,), D=64)
hard("rms_norm", "one column", leading=(4096,), D=1)
hard("linear", "1e5 rows", bounds=(4, 24), leading=(10**5,), D=4, F=3)
hard("linear", "4,096 rows", bounds=(6, 10), leading=(4096,), D=64, F=64)
hard(
    "linear_activation_dropout",
    "1e5 rows",
    given=FEED_FORWARD,
    bounds=(4, 24),
    leading=(10**5,),
    D=4,
    F=3,
)
hard("linear_dropout_residual", "1e5 rows", bounds=(4, 24), leading=(10**5,), D=4, F=3)
hard("conv1d", "1e5 steps", bounds=(4, 100), B=1, T=10**5, D=2, E=2, W=3)
hard("embedding", "1e5 of 3 words", bounds=(0, 60), leading=(10**5,), V=3, D=4)
hard(
    "tanh sigmoid relu gelu gelu_erf silu",
    "1e-45 … 1",
    {"x": down_to_tiny},
    each=True,
    leading=(10**5,),
)
hard(
    "tanh sigmoid relu silu",
    "-50 … 50",
    {"x": times(12)},
    each=True,
    bounds=(4, 12),
    leading=(10**5,),
)
hard("gelu gelu_erf", "-9 … 9", {"x": times(2)}, each=True, bounds=(64, 32), leading=(10**5,))
hard("gelu gelu_erf", "-5 … 5", {"x": times(1.2)}, bounds=(4, 8), leading=(10**5,))
hard("swiglu", "1e-45 … 1", {"x": down_to_tiny}, leading=(1000,), F=50)
hard("cross_entropy", "1e5 words", leading=(2,), V=10**5)
hard("cross_entropy", "smoothing, 1e5 words", given={"label_smoothing": 0.1}, leading=(2,), V=10**5)
hard("cross_entropy", "offset 1e6", {"logits": plus(1e6)}, leading=(64,), V=500)
hard(
    "paired_cross_entropy",
    "5,000 words",
    {"logits": times(3)},
    given=PAIRED,
    bounds=(4, 12),
    leading=(4,),
    V=5000,
)
hard(
    "paired_cross_entropy",
    "offset 1e6",
    {"logits": lambda x: 1e6 + 3 * x},
    given=PAIRED,
    bounds=(4, 12),
    leading=(4,),
    V=5000,
)
hard(
    "attention flash_attention", "1e5 keys", given=PLAIN, bounds=(16, 16), leading=(), T=2, S=10**5
)
hard(
    "attention flash_attention",
    "scores of 100",
    {"q": times(100)},
    given=PLAIN,
    bounds=(160, 160),
    **QUERIES,
)
hard(
    "attention flash_attention",
    "1e-20",
    {x: times(1e-20) for x in "qkv"},
    given=PLAIN,
    bounds=(4, 16),
    **QUERIES,
)
hard(
    "additive_score",
    "1e-8",
    {x: times(1e-4) for x in ("q", "k", "w_q", "w_k")},
    bounds=(4, 12),
    **QUERIES,
)
hard("cosine_score", "1e-18", {x: times(1e-18) for x in "qk"}, **QUERIES)
gated(1)
gated(1e-4)
gated(1e-8)
gated(1e-30)
hard(
    "gru lstm",
    "1,000 steps",
    {"weight": times(0.5)},
    given=STATES,
    bounds=(4, 50),
    B=4,
    T=1000,
    D=4,
)
hard("global_norm", "1e-30", {"grad": times(1e-30)}, leading=(10**5,))
hard("global_norm", "1e30", {"grad": times(1e30)}, leading=(10**5,))
hard("sgd_update", "1e5 numbers", given={"lr": 0.1, "momentum": 0.9}, n=10**5)
hard("adam_update", "gradients of 1e-8", ADAM, given={"lr": 0.1, "step": 3}, n=10**5)


def contenders():
    """What computes each result: the backends, and PyTorch if it is installed."""
    found = {name: partial(of_backend, get_backend(name)) for name in ("reference", "cpu")}
    return found | ({"PyTorch": of_torch} if importlib.util.find_spec("torch") else {})


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
    found = {name: results[name] for name in (first, "dlogits") if name in results}
    if case.backward:
        backward = case.backward.record
        shapes = {f"{name}_shape": x.shape for name, x in arguments.items() if is_array(x)}
        known = results | arguments | shapes | cotangents
        parameters = {name: known[name] for name in backward.parameters if name in known}
        gradients = getattr(ops, backward.name)(**parameters)
        found |= _by_name(backward.contract, gradients)
    return {name: x for name, x in found.items() if x is not None}


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
    found = {f"d{name}": x.grad.numpy() for name, x in leaves.items() if x.grad is not None}
    return {**_by_name(case.forward.record.contract, y.detach().numpy()), **found}


def errors_of(hard, dtype, names=None):
    """For each contender (the error of the result, the largest error of a gradient), in units of
    rounding.

    Either is None if there is no such thing. ``names`` are those of some contenders.
    """
    arguments = hard.case.arguments(dtype)
    cotangents = hard.case.cotangents(arguments, dtype) if hard.case.backward else {}
    exact = of_backend(
        reference, hard.case, *(cast(given, np.longdouble) for given in (arguments, cotangents))
    )
    first, *gradients = exact
    errors = {}
    computed_by = contenders()
    for name in names or computed_by:
        found = computed_by[name](hard.case, arguments, cotangents) or {}
        of_result = error_of(found[first], exact[first], dtype, hard.each) if found else None
        of_gradients = [error_of(found[x], exact[x], dtype) for x in gradients if x in found]
        errors[name] = (
            of_result,
            float(np.max(of_gradients)) if of_gradients else None,
        )  # NaN if one is
    return errors


def error_of(found, exact, dtype, each=False):
    """The error in units of rounding; inf where 0 is exact. Subnormals round as the smallest normal
    number does.
    """
    info = np.finfo(dtype)
    error = np.abs(found - exact)
    size = np.abs(exact)
    if not each:
        error = error.max()
        size = size.max()
    relative = np.where(
        size == 0, np.where(error == 0, 0, np.inf), error / np.maximum(size, info.tiny)
    )
    return float(relative.max() / info.eps)


def shown(errors):
    """The errors of a result and of its gradients, if there are any."""
    return " / ".join(f"{x:.3g}" for x in errors if x is not None) or "-"


@command
def main(argv=None):
    operations = list(dict.fromkeys(x.case.operation for x in HARD))
    parser = new_parser(__doc__)
    add_some(parser, "--only", operations, operations, metavar="NAMES", help="(default: all)")
    parser.add_argument(
        "--dtype", choices=["float32", "float64"], default="float32", help="(default: float32)"
    )
    add_json(parser)
    options = parser.parse_args(argv)

    facts = print_machine(machine())
    print(f"{options.dtype}; error of the result / largest error of a gradient\n")
    rows = []
    table = []
    for hard in HARD:
        operation = hard.case.operation
        if operation not in options.only:
            continue
        errors = errors_of(hard, options.dtype)
        row = {"operation": operation, "input": hard.label, "each": hard.each, "errors": errors}
        rows.append(row)
        label = f"{hard.label}, each" if hard.each else hard.label
        table.append([operation, label, *map(shown, errors.values())])
    write_json(options.json, {"machine": facts, "dtype": options.dtype, "rows": rows})
    print_table(["operation", "input", *contenders()], table)


if __name__ == "__main__":
    sys.exit(main())
