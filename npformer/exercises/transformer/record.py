"""How an exercise is made, and what its cases are made of."""

import inspect
import re

import numpy as np

from npformer import tree
from npformer.exercises.exercise import Mistake, draw
from npformer.exercises.transformer import page
from npformer.exercises.transformer.page import PAGE
from npformer.exercises.transformer.part import Part

BUILD: dict[str, Part] = {}


def add(label, cases, mistakes, results=("y",), arguments=(), kind=Part, **details):
    """Make an exercise. The names of its arguments and results are those of the page's function and of a case.

    What is expected is what the page's function returns, which the tests compare with npformer.
    """
    answer = getattr(PAGE, label.removesuffix("_backward"))
    first, gradients = cases(np.random.default_rng(0))[0].args, details.get("gradients", ())
    names = list(arguments or list(inspect.signature(answer).parameters)[: len(first) - len(gradients[:1])])
    if gradients:
        names.append(re.search(r"def backward\((\w+)\)", page.backward_of(answer.__name__))[1])
        for name in gradients:
            is_tree = name == "grads"
            results += tuple(f"grads{path}" for path in paths(first[0])) if is_tree else (name,)
    made = kind(
        answer=answer,
        label=label,
        arguments=dict.fromkeys(names, ""),
        results=dict.fromkeys(results, ""),
        expected=lambda *args: made.results_of(answer, args),
        cases=cases,
        mistakes=tuple(Mistake(change, text) for change, text in mistakes),
        **details,
    )
    BUILD[label] = made


def paths(params):
    """How an entry of each leaf is written, as in ["qkv"]["weight"]."""
    return ["".join(f'["{name}"]' for name in path.split(".")) for path, _ in tree.leaves(params)]


def noisy(rng, params):
    """Parameters of which none is 0 or 1."""
    return tree.map_leaves(lambda x: x + 0.5 * draw(rng, *x.shape), params)


def model(rng, D, F=5, n_layers=1, vocab=7):
    """Parameters of a whole model."""
    return noisy(rng, PAGE.init(rng, vocab, D, n_layers, F))


def mask(rng, *shape):
    """A mask whose rows all keep the first key."""
    keep = rng.random(shape) < 0.6
    keep[..., 0] = True
    return keep
