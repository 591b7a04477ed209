"""The parameters by themselves: numbers that are not finite, equal, or of another size than usual."""

import re

import numpy as np

from npformer import tree
from npformer.diagnosis.gradient import moved

LARGEST = 1 << 18  # of a larger array every so manyth column is examined


def finite(case):
    """Whether all parameters are finite."""
    for path in tree.not_finite(case.params):
        yield "not finite", f"parameter {path} holds NaN or infinity"


def equal(case):
    """Whether parameters that have to differ are equal."""
    paths = dict[bytes, str]()
    seen = []
    for path, vectors in matrices(case):
        other = paths.setdefault(vectors.tobytes(), path)
        n_different = len({vector.tobytes() for vector in vectors})
        n_constant = (vectors == vectors[:, :1]).all(axis=1).sum()
        is_varied = n_different >= 0.9 * len(vectors) and n_constant <= 0.1 * len(vectors)
        if (other == path and is_varied) or is_meant_so(case, path):
            continue
        if other != path:
            seen.append(f"{path} equals {other}")
        else:
            kind = "rows" if is_table(path) else "columns"
            seen.append(f"{path}: only {n_different} of {len(vectors)} {kind} are different")
    if seen:
        others = f"; {len(seen) - 1} other matrices are like this" if len(seen) > 1 else ""
        yield "equal weights", seen[0] + others


def scale(case):
    """Whether parameters are as large as usual."""
    most = 4 if case.is_new else 16  # times as large as usual: they may grow
    for path, vectors in matrices(case):
        usual = usual_size(path, case.params_by_path[path].shape)
        numbers = np.median(np.sqrt((vectors.astype(float) ** 2).mean(axis=1)))
        largest = most * usual
        if re.search("emb|wte|wpe", path):
            largest = max(largest, 1.5)  # a table may be of variance 1
        smallest = min(usual / (2 * most), 0.01)  # half of what GPT-2 begins with at any width
        if not smallest < numbers < largest and not is_meant_so(case, path):
            yield "scale of weights", f"{path} has numbers {numbers / usual:.2g} times the usual {usual:.2g}"


def matrices(case):
    """The path of each matrix and some of its vectors, one for each unit or token."""
    for path, x in case.params_by_path.items():
        if x.ndim != 2 or min(x.shape) < 2:
            continue
        vectors = vectors_of(path, x)
        if is_table(path) and case.pad_id in range(len(vectors)):
            vectors = np.delete(vectors, case.pad_id, axis=0)
        yield path, vectors[:: max(1, vectors.size // LARGEST)]


def is_table(path):
    """Whether a matrix has a row for each token; those of linear maps have a column for each unit."""
    return not path.endswith("weight")


def vectors_of(path, x):
    """The rows of a table, or the columns of a linear map."""
    return x if is_table(path) else x.T


def usual_size(path, shape):
    """The root mean square with which the numbers of a matrix begin."""
    if re.search("positions|types", path):
        return 1.0
    return (shape[1] if is_table(path) else sum(shape) / 2) ** -0.5


def is_meant_so(case, path):
    """Whether a new model begins with one number there, and its columns get gradients that differ.

    The second matrix of an adapter begins with zeros, and so may the last one of a sublayer.
    """
    x = case.new_params.get(path)
    if x is None or (x != x.flat[0]).any() or (case.params_by_path[path] != x).any():
        return False
    if not case.grads[path].any():
        return not case.gradient(params=moved(case.params))[1][path].any()  # then it is no fault of the numbers
    gradient = vectors_of(path, case.grads[path])
    gradient = gradient[gradient.any(axis=1)]
    return len({vector.tobytes() for vector in gradient}) >= 0.9 * len(gradient)
