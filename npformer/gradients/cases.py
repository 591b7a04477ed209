"""The table of cases: the options with which each operation is checked, and the tolerances for
kernels.

``npformer gradcheck``, the tests of gradients, parity, dtypes, poison and bad input, the fuzzing
and the mutations all read it. Arguments are drawn from the contracts, so one line in the table adds
an operation to all of these tests.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np

from npformer import reference
from npformer.operations.contract import Contract
from npformer.operations.settings import Llama3Scaling
from npformer.operations.shapes import match, shape_of
from npformer.reference.math.activations import ACTIVATIONS, INPUTS

# Letters that occur together mostly have different primes as sizes, so that mistaking one axis for
# another is noticed.
SIZES = {
    "...": (2, 3),
    "B": 2,
    "H": 3,
    "G": 3,
    "T": 5,
    "S": 7,
    "K": 11,
    "Kv": 13,
    "Kq": 11,
    "Kk": 13,
    "D": 17,
    "F": 19,
    "E": 19,
    "V": 23,
    "W": 3,
    "A": 17,
    "P": 29,
    "R": 31,
    "n": 37,
    "m": 5,
    "p": 7,
}
INVERSE = {"split_heads": "merge_heads", "merge_heads": "split_heads"}  # and the backward pass
# The same in all cases of an operation, so that a label need not have it.
DRAWN_ALIKE = {
    "ids", "targets", "at", "params", "x", "v", "similarity", "similarity_backward"
}  # fmt: skip


class Drawn(NamedTuple):
    """An argument that is not drawn from the contract, but by ``draw(rng, sizes)``; with axes, " (T
    S)", in a label.
    """

    draw: Callable
    axes: str = ""


class Case(NamedTuple):
    """An operation with some of its options.

    A bound is the largest allowed error of a kernel: the largest difference divided by the largest
    entry of the result, in units of the dtype's rounding error. 0 means bitwise equality. Sums of n
    terms in another order differ by about √n units.
    """

    operation: str
    # Arguments of both passes that are not drawn from the contract: values, or a ``Drawn``.
    options: dict
    sizes: dict  # of letters that differ from ``SIZES``
    bound: float
    backward_bound: float

    def __str__(self) -> str:
        labels = []
        for name, value in self.options.items():
            if name in DRAWN_ALIKE:
                continue
            if value is True:
                labels.append(name)
            elif isinstance(value, Drawn):
                labels.append(name + value.axes)
            else:
                labels.append(f"{name}={value}")
        labels += [f"{letter}={size}" for letter, size in self.sizes.items() if letter != "..."]
        return f"{self.operation} ({', '.join(labels)})" if labels else self.operation

    @property
    def forward(self) -> Any:
        """The operation of the reference."""
        return getattr(reference, self.operation)

    @property
    def backward(self) -> Any:
        """The operation of the reference that is its backward pass, or None."""
        return getattr(reference, f"{self.operation}_backward", None)

    @property
    def contract(self) -> Contract:
        """The contract of the forward pass."""
        return self.forward.record.contract

    @property
    def is_differentiable(self) -> bool:
        """Whether there is a gradient to check."""
        is_loss = any(result.name == "loss" for result in self.contract.results)
        return is_loss or self.backward is not None or self.operation in INVERSE

    @property
    def names(self) -> list[str]:
        """The names of the forward pass, and of the backward pass if there is one."""
        return [self.operation] + ([self.backward.record.name] if self.backward else [])

    def arguments_of(self, name: str, dtype: str = "float64", seed: int = 0) -> dict[str, Any]:
        """Valid arguments of the forward or the backward pass, whichever has this name."""
        if name == self.operation:
            return self.arguments(dtype, seed)
        return self.backward_arguments(dtype, seed)

    def arguments(self, dtype: str = "float64", seed: int = 0, **others) -> dict[str, Any]:
        """Valid arguments of the forward pass; ``others`` are sizes of letters that replace those
        of the case.
        """
        rng = np.random.default_rng(seed)
        sizes = {**SIZES, **self.sizes, **others}
        for size in self.contract.sizes.values():
            if size.table:
                sizes[size.letters[0]] = size.table[self.options[size.argument]]
        arguments: dict[str, Any] = {}
        for name, array in self.contract.arrays.items():
            arguments[name] = draw(array, sizes, rng)
        for size in self.contract.sizes.values():
            if not size.table:
                arguments[size.field or size.argument] = sizes[size.letters[0]]
        for name, value in self.options.items():
            arguments[name] = value.draw(rng, sizes) if isinstance(value, Drawn) else value
        for name, parameter in self.forward.record.parameters.items():
            if is_dataclass(parameter.annotation):  # whose fields stand among the arguments
                record: Any = parameter.annotation
                names = {field.name for field in fields(record)} & arguments.keys()
                arguments[name] = record(**{field: arguments[field] for field in names})
        return cast(_parameters_of(self.forward, arguments), dtype)

    def backward_arguments(self, dtype: str = "float64", seed: int = 0) -> dict[str, Any]:
        """Valid arguments of the backward pass: the arguments and results of the forward pass, and
        random gradients.
        """
        arguments = self.arguments(dtype, seed)
        cotangents = self.cotangents(arguments, dtype, seed)
        return self._with_gradients(arguments, self.results(arguments), cotangents)

    def cotangents(self, arguments: dict, dtype: str = "float64", seed: int = 0) -> dict[str, Any]:
        """Random gradients of the results that the forward pass has for these arguments."""
        rng = np.random.default_rng(seed + 1)
        sizes = {**SIZES, **match(self.contract, arguments)}
        return {f"d{x.name}": cast(draw(x, sizes, rng), dtype) for x in self.contract.results}

    def _with_gradients(self, arguments, results, cotangents):
        """The arguments of the backward pass, from those and the results of the forward pass."""
        shapes = {}
        for name, x in arguments.items():
            if isinstance(x, np.ndarray):
                shapes[f"{name}_shape"] = x.shape
        own = {name: x for name, x in self.options.items() if not isinstance(x, Drawn)}
        every = {**results, **cotangents, **shapes, **own, **arguments}
        return _parameters_of(self.backward, every)

    def results(self, arguments: dict) -> dict[str, Any]:
        """What the reference returns, by name."""
        results = _as_tuple(self.forward(**arguments))
        names = [result.name for result in self.contract.results]
        return dict(zip(names, results, strict=True))

    def derivative(self, seed: int = 0, **sizes) -> tuple[Callable, Callable, dict]:
        """The arguments of ``gradcheck``: a function, its backward pass, and the arrays to
        differentiate it by.

        ``sizes`` are those of ``arguments``.
        """
        arguments = self.arguments(seed=seed, **sizes)
        arrays = {}
        for name, array in self.contract.arrays.items():
            if array.kind == "float" and arguments[name] is not None:
                arrays[name] = arguments[name]
        n_arrays = len(arrays)
        for i, x in enumerate(arguments.get("params", ())):
            arrays[f"params[{i}]"] = x
        differentiated = self._differentiated_results()

        def with_arrays(values):
            new = dict(zip(arrays, values, strict=True))
            changed = {name: new.get(name, x) for name, x in arguments.items()}
            if "params" in arguments:
                changed["params"] = values[n_arrays:]
            return changed

        def f(*values):
            results = self.results(with_arrays(values))
            return np.concatenate([np.reshape(results[name], -1) for name in differentiated])

        def f_backward(dy, *values):
            changed = with_arrays(values)
            results = self.results(changed)
            cotangents = {}
            start = 0
            for name in differentiated:
                part = dy[start : start + np.size(results[name])]
                cotangents[f"d{name}"] = part.reshape(np.shape(results[name]))
                start += part.size
            gradients = self._gradients(changed, results, cotangents)
            return tuple(x for x in gradients if x is not None)[: len(arrays)]

        return f, f_backward, arrays

    def _differentiated_results(self):
        """The names of the results that have a gradient in the backward pass."""
        cotangents = self.backward.record.parameters if self.backward else {"dloss", "dy"}
        names = []
        for result in self.contract.results:
            cotangent = f"d{result.name}"
            is_none = cotangent in self.options and self.options[cotangent] is None
            if cotangent in cotangents and not is_none:
                names.append(result.name)
        return names

    def _gradients(self, arguments, results, cotangents):
        """The gradients of the arrays of floats, None where an array is, and perhaps others."""
        if "loss" in results:
            _, gradient = results.values()
            return _gradients_of_loss(cotangents["dloss"], gradient, arguments)
        if self.operation in INVERSE:
            inverse = getattr(reference, INVERSE[self.operation])
            every = {"n_heads": SIZES["H"], "x": cotangents["dy"]}
            return (inverse(**_parameters_of(inverse, every)),)
        every = self._with_gradients(arguments, results, cotangents)
        return _as_tuple(self.backward(**every))


def _gradients_of_loss(dloss, gradient, arguments):
    """The gradients of a loss, from the gradient that it returns: of what it compares, and times
    ``loss_scale``.

    If the loss includes a linear map, the backward pass of the map is applied.
    """
    gradient = dloss * gradient / arguments.get("loss_scale", 1.0)
    if "weight" not in arguments:
        return (gradient,)
    inputs = (arguments["x"], arguments["weight"], arguments["bias"])
    return reference.linear_backward(gradient, *inputs)


def _as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def draw(argument, sizes, rng):
    """A random array for an argument or result of a contract."""
    shape = shape_of(argument.axes, sizes)
    if argument.kind == "ids":
        low, high = (0, sizes[argument.below]) if argument.below else (-99, 100)
        return rng.integers(low, high, shape)
    x = rng.standard_normal(shape)
    return x > -0.3 if argument.kind == "mask" else x


def cast(value, dtype):
    """A value in which all floating-point arrays are cast to a dtype."""
    if isinstance(value, dict):
        return {name: cast(x, dtype) for name, x in value.items()}
    if isinstance(value, tuple):
        return tuple(cast(x, dtype) for x in value)
    is_float = isinstance(value, np.ndarray) and value.dtype.kind in "fc"
    return value.astype(dtype) if is_float else value


def _parameters_of(operation, arguments):
    """Those arguments that are parameters of the operation."""
    names = operation.record.parameters
    return {name: value for name, value in arguments.items() if name in names}


def _mask(axes, above=0.0):
    """A mask with these axes. If T is one of them, the second query may attend to nothing."""

    def draw(rng, sizes):
        keep_mask = rng.standard_normal(shape_of(axes.split(), sizes)) > above
        if axes.endswith(("T S", "T T", "T 1")):
            keep_mask[..., 1, :] = False
        return keep_mask

    return Drawn(draw, f" ({axes})")


def _bias(axes):
    """A bias on the scores with these axes."""

    def draw(rng, sizes):
        return rng.standard_normal(shape_of(axes.split(), sizes))

    return Drawn(draw, f" ({axes})")


def _words(axes):
    """Ids with these axes: the last two of a row are padding (0), and the second is the same as the
    first.
    """

    def draw(rng, sizes):
        ids = rng.integers(1, sizes["V"], shape_of(axes.split(), sizes))
        ids[..., -2:] = 0
        ids[..., 1] = ids[..., 0]
        return ids

    return Drawn(draw)


def _params(axes):
    """The parameters of a score, which have these axes."""

    def draw(rng, sizes):
        return tuple(0.3 * rng.standard_normal(shape_of(x.split(), sizes)) for x in axes)

    return Drawn(draw)


@Drawn
def _away_from_zero(rng, sizes):
    """Numbers that are not near 0, where relu has no derivative."""
    x = rng.standard_normal(sizes["..."])
    return x + 0.01 * np.where(x < 0, -1, 1)


@Drawn
def _rows(rng, sizes):
    """A mask of rows, which has 1 as its last size."""
    return rng.standard_normal((*sizes["..."][:-1], 1)) > -0.3


@Drawn
def _places(rng, sizes):
    """The positions of the tokens of each row in a cache, all different."""
    return rng.permutation(sizes["P"])[: sizes["B"] * sizes["T"]].reshape(sizes["B"], sizes["T"])


@Drawn
def _positions(rng, sizes):
    """The same positions for all rows."""
    return np.arange(sizes["T"])


@Drawn
def _mean_of_squares(rng, sizes):
    """The second moment of Adam, which is above 0."""
    return 0.1 + rng.random(sizes["n"])


CASES: list[Case] = []


def add(names, *options, bound, backward_bound=None, **sizes):
    """Add one case for each of these operations and each of these options."""
    if "leading" in sizes:  # dots are no name
        sizes["..."] = sizes.pop("leading")
    if backward_bound is None:
        backward_bound = bound
    for name in names.split():
        CASES.extend(Case(name, x, sizes, bound, backward_bound) for x in options or ({},))


def add_attention(names, scores, *more, bound=16, backward_bound=32, **sizes):
    """Add the cases of attention operations, where ``scores`` are the axes of their scores."""
    *batch, T, S = scores.split()
    mask_of_keys = _mask(" ".join([*batch, "1", S]))
    mask_of_queries = _mask(" ".join([*batch, T, "1"]))
    without_bias = [
        {"keep_mask": _mask(scores)},
        {"keep_mask": mask_of_keys},
        {"keep_mask": mask_of_queries},
        {"keep_mask": _mask(S)},
        {"keep_mask": None, "causal": True},
        {"keep_mask": None, **DROPOUT},
        {"keep_mask": _mask(scores), "causal": True, **DROPOUT},
        *more,
        {"keep_mask": None, "softcap": 0.7},
        {"keep_mask": _mask(scores), **with_bias(scores), "softcap": 3.0},
    ]
    options = [{"keep_mask": None}, *({"bias": None, **x} for x in without_bias)]
    bounds = {"bound": bound, "backward_bound": backward_bound}
    add(names, *options, **bounds, **sizes)
    if T != S:  # with a causal mask and more queries than keys, the first queries see no key
        few_keys = {"keep_mask": None, "causal": True, "bias": None}
        add(names, few_keys, **bounds, **{**sizes, "T": 9})


def add_score(score, *axes, **sizes):
    """Add the cases of attention with a score whose parameters have these axes."""
    options = {"score": score, "params": _params(axes)}
    masked = {"keep_mask": _mask("... T S"), "causal": True}
    add("score_attention", {**options, "keep_mask": None}, {**options, **masked}, bound=32, **sizes)


def with_bias(axes):
    """The options of a case with a bias on the scores that has these axes."""
    return {"bias": _bias(axes), "causal": True, **DROPOUT}


def bias_alone(axes):
    """The options of a case with a bias, and nothing else."""
    return {"keep_mask": None, "bias": _bias(axes)}


DROPOUT = {"dropout_rate": 0.3, "dropout_key": 2024}
NO_DROPOUT = {"dropout_rate": 0.0, "dropout_key": None}
LOSS: list[dict] = [
    {"ignore_id": None},
    {"ignore_id": 0},
    {"label_smoothing": 0.1},
    {"ignore_id": 0, "label_smoothing": 0.1, "n_tokens": 100},
    {"ignore_id": 0, "loss_scale": 8.0},
]
NUMBERS: list[dict] = [
    {"keep_mask": None},
    {},
    {"keep_mask": _rows, "n_tokens": 100},
    {"loss_scale": 8.0},
]
TOKENS = {"ids": _words("... T"), "pad_id": 0}
TILES: dict = {"bound": 16, "backward_bound": 32, "leading": (), "T": 67, "S": 71, "K": 3, "Kv": 2}

add("relu", {"x": _away_from_zero}, bound=0, leading=(2, 5, 17))
add("tanh sigmoid", bound=0, leading=(2, 5, 17))
add("gelu gelu_erf silu", bound=4, leading=(2, 5, 17))
add("swiglu", bound=4)
for rate in (0.3, 0.0):
    add("dropout", {"dropout_rate": rate, "dropout_key": 7}, bound=0, leading=(2, 5, 17))
add("softmax log_softmax", {}, {"axis": 0}, {"axis": 1}, bound=4, leading=(5, 7, 11))
add("split_heads merge_heads", bound=0, leading=(2,))
add("layer_norm rms_norm", {}, {"eps": 0.1}, bound=8)
add("product", bound=8)
add("linear", {}, {"bias": None}, bound=8)

with_activations = [
    *({"activation": name, **NO_DROPOUT} for name in ACTIVATIONS if INPUTS[name] == 1),
    {"activation": "gelu", **DROPOUT},
    {"activation": "swiglu", **DROPOUT},
    {"activation": "relu", "bias": None, **DROPOUT},
]
# dh is rounded before two products.
add("linear_activation_dropout", *with_activations, bound=8, backward_bound=32)
add("linear_dropout_residual", DROPOUT, {"bias": None}, bound=8)

add("conv1d", {}, {"bias": None}, {"causal": True}, {"dilation": 2}, bound=16)
add("conv1d", {"dilation": 9, "causal": True}, bound=16)
add("conv1d", {"dilation": 4}, {"dilation": 2, "causal": True}, bound=16, W=5)
add("conv1d", {"causal": True}, bound=16, W=2)

scaled = {"keep_mask": None, "scale": 0.7}
biases = [with_bias("T S"), bias_alone("... 1 S")]
add_attention("attention flash_attention", "... T S", scaled, *biases)
add_attention("self_attention", "B H T T", with_bias("B H T T"), bias_alone("H 1 T"))
add_attention("cross_attention", "B H T S", with_bias("B 1 1 S"), bias_alone("T S"))
add_attention("self_attention", "B H T T", H=4, G=2)
one_head = {"bound": 16, "backward_bound": 32, "H": 4, "G": 1}
add("cross_attention", {"bias": None}, with_bias("B H T S"), **one_head)
add("flash_attention", {"bias": None, "keep_mask": None}, with_bias("T S"), **TILES)
add("flash_attention", {**with_bias("T S"), "softcap": 0.7}, **TILES)
add("flash_attention", {"bias": None, **DROPOUT}, {"causal": True}, **TILES)
add("cached_attention", {}, {"bias": None}, {"keep_mask": None, "bias": None}, bound=16)
add("cached_attention", with_bias("H 1 S"), {"bias": None, "softcap": 0.7}, bound=16, H=4, G=2)

add("log_softmax_top_k", {"k": 4}, {"k": 1}, {"k": 100}, bound=4)
backwards = {"reverse": True, "keep_mask": None}
padded = {"keep_mask": _mask("B T", above=-0.5), "reverse": True}
add("gru lstm", {"keep_mask": None}, backwards, padded, bound=16, D=7)
add("gru", {}, bound=16, D=7)
add("lstm", {"dcells": None}, bound=16, D=7)

add("dot_score scaled_dot_score cosine_score bilinear_score is_same exp_cosine", bound=8)
add("additive_score", bound=8, backward_bound=32)
for score in ("dot", "scaled_dot", "cosine"):
    add_score(score, Kk=SIZES["Kq"])
add_score("bilinear", "Kq Kk")
add_score("additive", "Kq A", "Kk A", "A")
backward = reference.exp_cosine_backward
lookup: dict = {"similarity": reference.exp_cosine, "similarity_backward": backward}
add("soft_lookup", lookup, bound=16)

add("embedding", TOKENS, bound=0, backward_bound=4, leading=(2,))
add("embed_tokens", {**TOKENS, **DROPOUT}, {**TOKENS, **NO_DROPOUT}, bound=4, leading=(2,))
add("embed_tokens", {**TOKENS, "positions": None}, bound=4, leading=(2,))
add("embed_tokens", {**TOKENS, "scaled": False, "pad_id": -1}, bound=4, leading=(2,))
slow = {"base": 500.0, "scaling": 4.0, "pairs": "interleaved"}
add("rotary", {}, slow, bound=4, P=2, M=4)
scalings = [Llama3Scaling(8.0, original_max_len=n) for n in (9, 50)]  # which stretch more, or less
add("rotary", *({"llama3": scaling} for scaling in scalings), bound=4, P=2, M=4)
add("rotary", {"positions": _positions}, bound=4, P=0, M=1)

words = {"targets": _words("...")}
pairs = {**words, "consistency": 0.7}
of_words = [{**words, **options} for options in LOSS]
of_pairs = [{**pairs, **options} for options in LOSS]
add("cross_entropy linear_cross_entropy", *of_words, bound=8, leading=(2, 5))
add("linear_cross_entropy", {**words, "bias": None}, bound=8, leading=(2, 5))
add("paired_cross_entropy linear_paired_cross_entropy", *of_pairs, bound=16, leading=(5,))
add("mse_loss", *NUMBERS, bound=4, leading=(2, 5, 17))
add("huber_loss", *NUMBERS, {"delta": 0.4}, bound=4, leading=(2, 5, 17))

add("global_norm", bound=4, leading=(1009,))
add("norms_of_blocks", bound=4, n=10007)
with_momentum = {"lr": 0.1, "momentum": 0.9}
add("sgd_update", {**with_momentum, "grad_scale": 0.7}, {"lr": 0.1, "velocity": None}, bound=4)
add("sgd_update", {**with_momentum, "nesterov": True}, bound=4)
with_decay = {"lr": 0.1, "weight_decay": 0.01, "grad_scale": 0.7}
add("adam_update", {**with_decay, "step": 3, "v": _mean_of_squares}, bound=4)
add("lion_update", with_decay, bound=4)
