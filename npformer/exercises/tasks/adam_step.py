"""A step of Adam."""

import numpy as np

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw


def adam_step(param, grad, m, v, step, lr, beta1, beta2, eps):
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad**2
    m_hat = m / (1 - beta1**step)
    v_hat = v / (1 - beta2**step)
    return param - lr * m_hat / (np.sqrt(v_hat) + eps), m, v


def expected(param, grad, m, v, step, lr, beta1, beta2, eps):
    reference.adam_update(param, grad, m, v, step=step, lr=lr, beta1=beta1, beta2=beta2, eps=eps)
    return param, m, v


def cases(rng):
    n = int(rng.integers(1, 8))
    settings = (0.001, 0.9, 0.999, 1e-8)
    one_number = np.array([1.0]), np.array([123.0]), np.zeros(1), np.zeros(1)
    three_numbers = *draw(rng, 2, 3), np.zeros(3), np.zeros(3)
    return [
        Case("the first step", *one_number, 1, 0.25, 0.9, 0.999, 1e-8),
        Case("the first step of three numbers", *three_numbers, 1, *settings),
        Case("the tenth step", *draw(rng, 3, 3), draw(rng, 3) ** 2, 10, *settings),
        Case("other settings", *draw(rng, 3, n), draw(rng, n) ** 2, 3, 0.1, 0.8, 0.95, 0.1),
        Case("a large eps", *draw(rng, 3, n), 0.01 * draw(rng, n) ** 2, 2, 0.5, 0.5, 0.9, 1.0),
    ]


exercise = Task(
    answer=adam_step,
    title="a step of Adam, with its bias correction",
    page="training/adam",
    task="""
        m and v are running means of the gradient and of its square, which begin at 0. As they begin at 0, they are too
        small at first: after `step` steps the weights of all gradients in m sum to 1 - beta1^step, so it is divided by
        that, and v by 1 - beta2^step.

            m = beta1 m + (1 - beta1) grad             m̂ = m / (1 - beta1^step)
            v = beta2 v + (1 - beta2) grad²            v̂ = v / (1 - beta2^step)
            param = param - lr m̂ / (√v̂ + eps)

        Return the new param, m and v (new arrays). m and v are returned without the correction; step is 1 at first.""",
    arguments={
        "param": "(n,) array",
        "grad": "(n,) array",
        "m": "(n,) array",
        "v": "(n,) array",
        "step": "int, 1 for the first step",
        "lr": "float",
        "beta1": "float",
        "beta2": "float",
        "eps": "float",
    },
    results={"param": "(n,) array", "m": "(n,) array", "v": "(n,) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {" / (1 - beta1**step)": "", " / (1 - beta2**step)": ""},
            "the bias correction is missing: the first step then is too large",
        ),
        Mistake({" / (1 - beta1**step)": ""}, explanations.NO_CORRECTION_OF_M),
        Mistake({" / (1 - beta2**step)": ""}, explanations.NO_CORRECTION_OF_V),
        Mistake({"**step": "**(step + 1)"}, explanations.EXPONENT_TOO_LARGE),
        Mistake({"**step": ""}, "the bias correction has no exponent: 1 - beta^step"),
        Mistake({"(np.sqrt(v_hat) + eps)": "np.sqrt(v_hat + eps)"}, explanations.EPS_IN_ROOT),
        Mistake({"np.sqrt(v_hat)": "v_hat"}, "the root of v̂ is missing"),
        Mistake(
            {"(1 - beta2) * grad**2": "(1 - beta2) * grad"},
            "v is a mean of the squares of the gradient",
        ),
        Mistake(
            {"param - lr": "param + lr"},
            "the step has the wrong sign: it has to go against the gradient, so subtract it",
        ),
        Mistake(
            {", m, v\n": ", m_hat, v_hat\n"},
            "m and v are returned with the correction, which would be applied again in the next step",
        ),
        Mistake(
            {"beta1 * m + (1 - beta1) * grad": "(1 - beta1) * m + beta1 * grad"},
            "beta1 and 1 - beta1 are exchanged: m keeps most of its old value",
        ),
    ),
    hints=(
        "Four lines for m, v, m̂ and v̂, and one for param, in the order of the formulas.",
        "beta1**step is a number; m += … would change the argument, so write m = ….",
    ),
)
