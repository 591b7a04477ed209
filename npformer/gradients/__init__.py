"""Check that a backward pass is the derivative of its forward pass.

Two numerical methods compute the derivative. They have nothing in common but the forward function:

* **Complex step.** For an analytic f, f(x + ih) = f(x) + ih f'(x) + O(h²): the derivative is the imaginary part
  divided by h. Nothing is subtracted, so h can be 1e-30 and the result is accurate to the last digits. The forward
  function has to accept complex numbers, and compare only their real parts, as npformer's functions do.
* **Central differences.** (f(x + h) - f(x - h)) / 2h. This is accurate to about 10 digits, and has no requirements.

A backward pass returns a vector-Jacobian product, so both methods differentiate Σ dy · f(x) for one random dy.
"""

import numpy as np

COMPLEX_STEP = 1e-30
CENTRAL_STEP = 1e-5


class GradientError(AssertionError):
    """A backward pass that is not the derivative of its forward pass."""


def gradcheck(
    f,
    f_backward,
    args,
    *,
    names=None,
    seed: int = 0,
    complex_tolerance: float | None = 1e-13,
    central_tolerance: float | None = 1e-8,
) -> dict:
    """Compare a hand-written backward with two numerical derivatives, at every entry of every argument.

    Parameters
    ----------
    f : callable
        ``f(*args)`` returns one array or scalar. Integer arguments, masks and dropout keys go in a closure.
    f_backward : callable
        ``f_backward(dy, *args)`` returns the gradients in the order of ``args`` (one array if there is
        one argument).
    args : sequence of float64 arrays
    names : sequence of str, optional
        The names of the arguments in error messages.
    seed : int
        The seed of the random cotangent dy.
    complex_tolerance, central_tolerance : float or None
        Largest allowed error, relative to the largest entry of the argument's gradient (or to 1/1000 of the largest
        entry of all gradients, if that is more: some gradients are zero in theory, but consist of rounding errors in
        practice). None leaves the method out.

    Returns
    -------
    dict
        ``errors[name][method]``, the largest relative error.

    Raises
    ------
    GradientError
        If a gradient is wrong; the message has the index of the worst entry and both values. A NaN anywhere is an
        error. If central differences agree with the backward pass and the complex step does not, ``f`` is not
        analytic; for example, it uses abs, conj or a cast to real numbers. ``complex_tolerance=None`` then leaves the
        complex step out.

    Examples
    --------
    >>> gradcheck(np.sin, lambda dy, x: dy * np.cos(x), [np.array([0.5, 1.0])])["x0"]["complex step"] < 1e-15
    True
    >>> gradcheck(np.sin, lambda dy, x: -dy * np.cos(x), [np.array([0.0])])
    Traceback (most recent call last):
    npformer.gradients.GradientError: gradient of x0 is off by 2 (relative; complex step, tolerance 1e-13): at [0] the \
backward gives 1.8101675 and the complex step -1.8101675
    """
    if isinstance(args, np.ndarray):
        raise TypeError("args is an array, expected a list of arrays: try [x]")
    args = [_checked(x, i) for i, x in enumerate(args)]
    names = [f"x{i}" for i in range(len(args))] if names is None else list(names)
    y = f(*args)
    if isinstance(y, (tuple, list)):
        raise TypeError(f"f returns a {type(y).__name__} of {len(y)}, expected one array: try lambda *x: f(*x)[0]")
    y = np.asarray(y)
    dy = cotangent(y.shape, seed)
    gradients = f_backward(dy if y.ndim else float(dy), *args)
    gradients = gradients if isinstance(gradients, (tuple, list)) else (gradients,)
    if len(gradients) != len(args):
        raise GradientError(f"the backward returned {len(gradients)} gradients for {len(args)} arguments")

    methods = {
        "complex step": (complex_step, complex_tolerance),
        "central differences": (central_differences, central_tolerance),
    }
    errors: dict[str, dict[str, float]] = {name: {} for name in names}
    for method, (derivative, tolerance) in methods.items():
        if tolerance is None:
            continue
        expected = [derivative(f, args, i, dy) for i in range(len(args))]
        floor = 1e-3 * max((np.abs(g).max(initial=0) for g in expected), default=0)
        for name, gradient, numeric in zip(names, gradients, expected, strict=True):
            errors[name][method] = _compare(name, np.asarray(gradient), numeric, floor, method, tolerance)
    return errors


def cotangent(shape, seed=0):
    """A random dy that differs from the numbers of ``default_rng(seed)``, with which ``args`` are often drawn.

    If dy were equal to x, a backward pass that returns x instead of dy would pass the check.
    """
    return np.random.default_rng([seed, *b"gradcheck"]).standard_normal(shape)


def complex_step(f, args, i, dy):
    """The gradient of ``Σ dy · f(*args)`` with respect to ``args[i]``, by the complex step, one entry at a time."""
    args = [x.astype(complex) for x in args]
    gradient = np.empty(args[i].shape)
    for index in np.ndindex(gradient.shape):
        args[i][index] += 1j * COMPLEX_STEP
        gradient[index] = np.sum(dy * np.imag(f(*args)) / COMPLEX_STEP)
        args[i][index] = args[i][index].real
    return gradient


def central_differences(f, args, i, dy):
    """The gradient of ``Σ dy · f(*args)`` with respect to ``args[i]``, by central differences."""
    args = [x.copy() for x in args]
    gradient = np.empty(args[i].shape)
    for index in np.ndindex(gradient.shape):
        x = args[i][index]
        args[i][index] = x + CENTRAL_STEP
        above = np.array(f(*args))  # a copy: f may return a view of its argument
        args[i][index] = x - CENTRAL_STEP
        below = np.array(f(*args))
        args[i][index] = x
        gradient[index] = np.sum(dy * (above - below)) / (2 * CENTRAL_STEP)
    return gradient


def _compare(name, gradient, numeric, floor, method, tolerance):
    """The largest relative error of one gradient. Raises ``GradientError`` if it is above the tolerance."""
    if gradient.dtype == object:
        raise GradientError(f"gradient of {name} is {gradient}, expected an array: does the backward return it?")
    if gradient.shape != numeric.shape:
        raise GradientError(f"gradient of {name} has shape {gradient.shape}, expected {numeric.shape}")
    if gradient.size == 0:
        return 0.0
    scale = max(np.abs(numeric).max(), floor) or 1.0
    difference = np.abs(gradient - numeric) / scale
    difference = np.where(np.isnan(difference), np.inf, difference)
    worst = np.unravel_index(difference.argmax(), difference.shape)
    error = float(difference[worst])
    if not error <= tolerance:
        raise GradientError(
            f"gradient of {name} is off by {error:.2g} (relative; {method}, tolerance {tolerance:.0e}): "
            f"at {[int(i) for i in worst]} the backward gives {gradient[worst]:.8g} "
            f"and the {method} {numeric[worst]:.8g}"
        )
    return error


def _checked(x, i):
    x = np.asarray(x)
    if x.dtype != np.float64:
        raise TypeError(f"args[{i}] has dtype {x.dtype}, expected float64: nothing less can be checked to 1e-13")
    return x
