"""What the cases of several courses are made of."""

from npformer import tree
from npformer.exercises.exercise import draw


def paths(params):
    """How an entry of each leaf is written, as in ["qkv"]["weight"]."""
    names = [path.split(".") for path, _ in tree.leaves(params)]
    return ["".join(f'["{name}"]' for name in each) for each in names]


def noisy(rng, params):
    """Parameters of which none is 0 or 1."""
    return tree.map_leaves(lambda x: x + 0.5 * draw(rng, *x.shape), params)


def mask(rng, *shape):
    """A mask whose rows all keep the first key."""
    keep = rng.random(shape) < 0.6
    keep[..., 0] = True
    return keep
