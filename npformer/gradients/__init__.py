"""Check that a backward pass is the derivative of its forward pass.

Two numerical methods compute the derivative. They have nothing in common but the forward function:

* **Complex step.** For an analytic f, f(x + ih) = f(x) + ih f'(x) + O(h²): the derivative is the
  imaginary part divided by h. Nothing is subtracted, so h can be 1e-30 and the result is accurate
  to the last digits. The forward function has to accept complex numbers, and compare only their
  real parts, as npformer's functions do.
* **Central differences.** (f(x + h) - f(x - h)) / 2h. This is accurate to about 10 digits, and has
  no requirements.

A backward pass returns a vector-Jacobian product, so both methods differentiate Σ dy · f(x) for one
random dy.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.checks import check_callable, check_int
from npformer.errors import UserError
from npformer.operations.options import ABOVE_0

COMPLEX_STEP = 1e-30
CENTRAL_STEP = 1e-5
# What an error above the tolerance may be: 10 times the measured rounding of the derivative, up to
# 1000 times the tolerance.
MOST_OF_ROUNDING = 10
MOST_OF_TOLERANCE = 1000


class GradientError(AssertionError):
    """A backward pass that is not the derivative of its forward pass."""


class GradientErrors(dict):
    """The largest relative error by argument and method, and how many entries were checked;
    ``print`` shows both.

    Attributes
    ----------
    checked : dict
        (number of entries that were checked, number of entries) by argument.
    """

    def __init__(self, checked):
        super().__init__({name: {} for name in checked})
        self.checked = checked

    def __str__(self):
        lines = []
        for name, by_method in self.items():
            n_checked, n = self.checked[name]
            parts = [f"{name}: {n_checked} of {n} entries checked"]
            parts += [f"{method} {error:.1e}" for method, error in by_method.items()]
            lines.append(", ".join(parts))
        return "\n".join(lines)


def gradcheck(
    f: Callable,
    f_backward: Callable,
    args: Sequence[Array],
    *,
    names: Sequence[str] | None = None,
    seed: int = 0,
    complex_tolerance: float | None = 1e-13,
    central_tolerance: float | None = 1e-8,
    sample: int | None = None,
) -> GradientErrors:
    """Compare a hand-written backward with two numerical derivatives, at every entry of every
    argument.

    Each entry costs three calls of ``f``. For a whole model, ``sample=30`` checks 30 entries of
    each argument instead.

    Parameters
    ----------
    f : callable
        ``f(*args)`` returns one array or scalar. Integer arguments, masks and dropout keys go in a
        closure.
    f_backward : callable
        ``f_backward(dy, *args)`` returns the gradients in the order of ``args`` (one array if there
        is one argument).
    args : sequence of float64 arrays
    names : sequence of str, optional
        The names of the arguments in error messages and in the result; no two are equal.
    seed : int
        The seed of the random cotangent dy, and of the sample.
    complex_tolerance, central_tolerance : float or None
        Largest allowed error, relative to the largest entry of the argument's gradient (or to
        1/1000 of the largest entry of all gradients, if that is more: some gradients are zero in
        theory, but consist of rounding errors in practice). None leaves the method out; one of
        the two has to remain. Give new parameters: near a loss of 0, a gradient is the difference
        of numbers that are much larger, and so is its rounding. An error up to 1000 times the
        tolerance is accepted if it is below 10 times this rounding, which is then measured with
        three other steps.
    sample : int, optional
        How many entries of each argument are checked: that with the largest gradient, or with NaN,
        and others that are drawn at random. By default all.

    Returns
    -------
    GradientErrors
        A dict with ``errors[name][method]``, the largest relative error; ``errors.checked[name]``
        has the number of entries that were checked, and that of all entries.

    Raises
    ------
    GradientError
        If a gradient is wrong; the message has the index of the worst entry and both values. A NaN
        anywhere is an error. If central differences agree with the backward pass and the complex
        step does not, ``f`` is not analytic; for example, it uses abs, conj or a cast to real
        numbers. ``complex_tolerance=None`` then leaves the complex step out.

    Examples
    --------
    >>> def sin_backward(dy, x):
    ...     return dy * np.cos(x)
    >>> errors = gradcheck(np.sin, sin_backward, [np.array([0.5, 1.0])])
    >>> errors["x0"]["complex step"] < 1e-15
    True
    >>> some = gradcheck(np.sin, sin_backward, [np.arange(1000.0)], sample=30)
    >>> some.checked
    {'x0': (30, 1000)}
    >>> gradcheck(np.sin, lambda dy, x: -dy * np.cos(x), [np.array([0.0])])
    Traceback (most recent call last):
    npformer.gradients.GradientError: gradient of x0 is off by 2 (relative; complex step, \
tolerance 1e-13): at [0] the backward gives 1.8101675 and the complex step -1.8101675
    """
    if isinstance(args, np.ndarray):
        raise TypeError("args is an array, expected a list of arrays: try [x]")
    check_callable("f", f)
    check_callable("f_backward", f_backward)
    seed = check_int("seed", seed, at_least=0)
    methods = []
    if complex_tolerance is not None:
        tolerance = ABOVE_0.check("complex_tolerance", complex_tolerance)
        methods.append(Method("complex step", complex_step, COMPLEX_STEP, tolerance))
    if central_tolerance is not None:
        tolerance = ABOVE_0.check("central_tolerance", central_tolerance)
        methods.append(Method("central differences", central_differences, CENTRAL_STEP, tolerance))
    if not methods:
        both = "complex_tolerance=None with central_tolerance=None"
        raise UserError(f"{both}, expected one of them: without a method nothing is checked")
    args = [_checked(x, i) for i, x in enumerate(args)]
    names = [f"x{i}" for i in range(len(args))] if names is None else list(names)
    if len(names) != len(args):
        raise UserError(f"{len(names)} names for {len(args)} args, expected equally many")
    if len(set(names)) < len(names):
        raise UserError(f"names={names}, expected a name of its own for each argument")

    dy = cotangent(_shape_of_result(f, args), seed)
    gradients = _gradients(f_backward, dy, args, names)
    entries = [_sampled(gradient, sample, [seed, i]) for i, gradient in enumerate(gradients)]
    check = Check(f, args, names, dy, gradients, entries)
    errors = GradientErrors(check.checked)
    for method in methods:
        for name, error in check.errors_by(method).items():
            errors[name][method.name] = error
    return errors


def cotangent(shape: tuple[int, ...], seed: int = 0) -> Array:
    """A random dy that differs from the numbers of ``default_rng(seed)``, with which ``args`` are
    often drawn.

    If dy were equal to x, a backward pass that returns x instead of dy would pass the check.
    """
    return np.random.default_rng([seed, *b"gradcheck"]).standard_normal(shape)


def complex_step(
    f: Callable,
    args: Sequence[Array],
    i: int,
    dy: Any,
    entries: Any = None,
    step: float = COMPLEX_STEP,
) -> Array:
    """The gradient of ``Σ dy · f(*args)`` with respect to ``args[i]``, by the complex step, one
    entry at a time.

    With ``entries``, indices into the flat array, it is an array of these derivatives alone.

    >>> complex_step(np.sin, [np.array([0.0, 1.0])], 0, dy=1.0).round(4)  # cos 0 and cos 1
    array([1.    , 0.5403])
    """
    args = [x.astype(complex) for x in args]
    x = args[i].flat
    derivatives = []
    for entry in range(args[i].size) if entries is None else entries:
        x[entry] += 1j * step
        derivatives.append(np.sum(dy * np.imag(f(*args)) / step))
        x[entry] = x[entry].real
    return np.reshape(derivatives, args[i].shape if entries is None else -1)


def central_differences(
    f: Callable,
    args: Sequence[Array],
    i: int,
    dy: Any,
    entries: Any = None,
    step: float = CENTRAL_STEP,
) -> Array:
    """The gradient of ``Σ dy · f(*args)`` with respect to ``args[i]``, by central differences, as
    ``complex_step``.
    """
    args = [x.copy() for x in args]
    x = args[i].flat
    derivatives = []
    for entry in range(args[i].size) if entries is None else entries:
        middle = x[entry]
        x[entry] = middle + step
        above = np.array(f(*args))  # a copy: f may return a view of its argument
        x[entry] = middle - step
        below = np.array(f(*args))
        x[entry] = middle
        derivatives.append(np.sum(dy * (above - below)) / (2 * step))
    return np.reshape(derivatives, args[i].shape if entries is None else -1)


def _gradients(f_backward, dy, args, names):
    """What the backward pass returns: an array for each argument, of its shape."""
    results = f_backward(dy if dy.ndim else float(dy), *args)
    if not isinstance(results, (tuple, list)):
        results = (results,)
    if len(results) != len(args):
        returned = f"{len(results)} gradients for {len(args)} arguments"
        raise GradientError(f"the backward returned {returned}")
    gradients = [np.asarray(x) for x in results]
    for name, x, gradient in zip(names, args, gradients, strict=True):
        if gradient.dtype == object:
            expected = "an array: does the backward return it?"
            raise GradientError(f"gradient of {name} is {gradient}, expected {expected}")
        if gradient.shape != x.shape:
            has = f"has shape {gradient.shape}, expected {x.shape}"
            raise GradientError(f"gradient of {name} {has}")
    return gradients


def _sampled(gradient, sample, seed):
    """The entries to check, in order: all, or the largest of the gradient (NaN before all others)
    and random ones.
    """
    if sample is None or check_int("sample", sample, at_least=1) >= gradient.size:
        return np.arange(gradient.size)
    # The largest is what errors are relative to, and a mistake where no other entry is drawn.
    largest = np.abs(gradient).argmax()
    rng = np.random.default_rng([*seed, *b"sample"])
    others = rng.choice(gradient.size - 1, sample - 1, replace=False)
    others += others >= largest
    return np.sort(np.append(others, largest))


class Method(NamedTuple):
    """A numerical method that computes a derivative."""

    name: str
    derivative: Callable  # ``complex_step`` or ``central_differences``
    step: float
    tolerance: float  # of relative errors


class Check(NamedTuple):
    """A function at some arguments, and the gradients that its backward pass gives there."""

    f: Callable
    args: list[Array]
    names: list[str]
    dy: Array
    gradients: list[Array]
    entries: list[Array]  # of each argument, into its flat array: those that are checked

    @property
    def checked(self):
        """(number of entries that are checked, number of entries) by argument."""
        sizes = {}
        for name, gradient, entries in zip(self.names, self.gradients, self.entries, strict=True):
            sizes[name] = (len(entries), gradient.size)
        return sizes

    def errors_by(self, method):
        """The largest relative error of each argument, by its name, as a method measures it.

        An error that is not allowed raises ``GradientError``.
        """
        largest_errors = {}
        derivatives = [self._derivative(method, i, method.step) for i in range(len(self.args))]
        largest = [np.abs(derivative).max(initial=0) for derivative in derivatives]
        floor = 1e-3 * max(largest, default=0)
        for i, name in enumerate(self.names):
            gradient = self.gradients[i].reshape(-1)[self.entries[i]]
            scale = max(largest[i], floor) or 1.0
            errors = relative_errors(gradient, derivatives[i], scale)
            error = float(errors.max(initial=0))
            largest_errors[name] = error
            if error <= method.tolerance:
                continue
            if not self._may_be_rounding(error, method, i, derivatives[i], scale):
                raise self._wrong(method, i, derivatives[i], errors)
        return largest_errors

    def _derivative(self, method, i, step):
        """The derivative by argument i, at the entries that are checked."""
        return method.derivative(self.f, self.args, i, self.dy, self.entries[i], step)

    def _may_be_rounding(self, error, method, i, derivative, scale):
        """Whether an error above the tolerance is one that the rounding of ``f`` explains.

        Rounding is measured by the same method with other steps.
        """
        if error > MOST_OF_TOLERANCE * method.tolerance:
            return False
        for divisor in (3, 5, 7):  # what one step shows may be 0 by chance
            again = self._derivative(method, i, method.step / divisor)
            rounding = relative_errors(again, derivative, scale).max()
            if error <= MOST_OF_ROUNDING * rounding:
                return True
        return False

    def _wrong(self, method, i, derivative, errors):
        """The error of a gradient that is wrong, with the entry that is wrong most."""
        worst = errors.argmax()
        error = errors[worst]
        entry = self.entries[i][worst]
        place = [int(k) for k in np.unravel_index(entry, self.gradients[i].shape)]
        digits = ".8g"
        advice = ""
        if error < 1e-7:
            digits = ".17g"
            advice = (
                "; so little may be rounding, which is larger near a loss of 0: "
                "check new parameters"
            )
        measured = f"relative; {method.name}, tolerance {method.tolerance:.0e}"
        problem = f"gradient of {self.names[i]} is off by {error:.2g} ({measured})"
        backward = f"the backward gives {self.gradients[i].flat[entry]:{digits}}"
        numeric = f"the {method.name} {derivative[worst]:{digits}}"
        return GradientError(f"{problem}: at {place} {backward} and {numeric}{advice}")


def relative_errors(gradient, derivative, scale):
    """The errors in units of a scale; that of NaN is infinite."""
    errors = np.abs(gradient - derivative) / scale
    return np.where(np.isnan(errors), np.inf, errors)


def _shape_of_result(f, args):
    """The shape of the array that a function returns; a tuple is an error."""
    y = f(*args)
    if isinstance(y, (tuple, list)):
        problem = f"f returns a {type(y).__name__} of {len(y)}"
        raise TypeError(f"{problem}, expected one array: try lambda *x: f(*x)[0]")
    return np.shape(y)


def _checked(x, i):
    x = np.asarray(x)
    if x.dtype != np.float64:
        expected = "float64: nothing less can be checked to 1e-13"
        raise TypeError(f"args[{i}] has dtype {x.dtype}, expected {expected}")
    return x
