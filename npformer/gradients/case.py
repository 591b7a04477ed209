"""A case: an operation with some of its options, with valid arguments of both passes and what
``gradcheck`` takes.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np

from npformer import reference
from npformer.gradients.drawing import SIZES, Drawn, cast, draw
from npformer.operations.contract import Contract
from npformer.operations.shapes import match

INVERSE = {"split_heads": "merge_heads", "merge_heads": "split_heads"}  # and the backward pass
# The same in all cases of an operation, so that a label need not have it.
DRAWN_ALIKE = {
    "ids", "targets", "params", "x", "v", "similarity", "similarity_backward"
}  # fmt: skip


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
        arguments: dict[str, Any] = {}
        # A size that the contract takes from a table belongs to an option of the case; another one
        # is an argument, or a field of one.
        for size in self.contract.sizes.values():
            letter = size.letters[0]
            if size.table:
                sizes[letter] = size.table[self.options[size.argument]]
            else:
                arguments[size.field or size.argument] = sizes[letter]
        for name, array in self.contract.arrays.items():
            arguments[name] = draw(array, sizes, rng)
        for name, value in self.options.items():
            arguments[name] = value.draw(rng, sizes) if isinstance(value, Drawn) else value
        # A record of options is made of those arguments that are its fields.
        for name, parameter in self.forward.record.parameters.items():
            if is_dataclass(parameter.annotation):
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
        return _parameters_of(
            self.backward, {**results, **cotangents, **shapes, **own, **arguments}
        )

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

        def arguments_with(values):
            by_name = dict(zip(arrays, values, strict=True))
            replaced = {name: by_name.get(name, x) for name, x in arguments.items()}
            if "params" in arguments:
                replaced["params"] = values[n_arrays:]
            return replaced

        def f(*values):
            results = self.results(arguments_with(values))
            return np.concatenate([np.reshape(results[name], -1) for name in differentiated])

        def f_backward(dy, *values):
            replaced = arguments_with(values)
            results = self.results(replaced)
            cotangents = _divided(dy, {name: results[name] for name in differentiated})
            gradients = self._gradients(replaced, results, cotangents)
            return tuple(x for x in gradients if x is not None)

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
        """The gradients of the arrays of floats, None where an array is."""
        if "loss" in results:
            _, gradient = results.values()
            return _gradients_of_loss(cotangents["dloss"], gradient, arguments)
        if self.operation in INVERSE:
            inverse = getattr(reference, INVERSE[self.operation])
            inputs = {"n_heads": SIZES["H"], "x": cotangents["dy"]}
            return (inverse(**_parameters_of(inverse, inputs)),)
        return _as_tuple(self.backward(**self._with_gradients(arguments, results, cotangents)))


def _divided(dy, results):
    """The gradients of results by name, from one array of them all, as ``f`` puts them together."""
    cotangents = {}
    start = 0
    for name, result in results.items():
        part = dy[start : start + np.size(result)]
        cotangents[f"d{name}"] = part.reshape(np.shape(result))
        start += part.size
    return cotangents


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


def _parameters_of(operation, arguments):
    """Those arguments that are parameters of the operation."""
    names = operation.record.parameters
    return {name: value for name, value in arguments.items() if name in names}
