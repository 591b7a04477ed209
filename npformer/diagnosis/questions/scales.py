"""The size of parameters and scores: numbers that are not finite, equal, or unusually large."""

import re

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.diagnosis.finding import sign
from npformer.diagnosis.questions.dependence import longest_row

LARGEST = 1 << 18  # numbers: of a larger array, columns at equal distances are examined


def finite(subject):
    """Whether all parameters are finite."""
    for path in tree.not_finite(subject.params):
        yield sign("not finite", f"parameter {path} holds NaN or infinity")


def equal(subject):
    """Whether parameters that have to differ are equal."""
    messages = []
    paths = dict[bytes, str]()  # of the matrices, by their numbers
    for path, vectors in matrices(subject):
        other = paths.setdefault(vectors.tobytes(), path)
        n_different = n_distinct(vectors)
        n_constant = (vectors == vectors[:, :1]).all(axis=1).sum()
        is_varied = n_different >= 0.9 * len(vectors) and n_constant <= 0.1 * len(vectors)
        if (other == path and is_varied) or is_meant_so(subject, path):
            continue
        if other != path:
            messages.append(f"{path} equals {other}")
        else:
            kind = "rows" if is_table(path) else "columns"
            messages.append(f"{path}: only {n_different} of {len(vectors)} {kind} are different")
    if len(messages) > 1:
        messages[0] += f"; {len(messages) - 1} other matrices are like this"
    if messages:
        yield sign("equal weights", messages[0])


def scale(subject):
    """Whether parameters are as large as usual."""
    most = 4 if subject.is_new else 16  # times as large as usual: they may grow
    for path, vectors in matrices(subject):
        usual = usual_size(path, subject.params_by_path[path].shape)
        numbers = np.median(np.sqrt((vectors.astype(float) ** 2).mean(axis=1)))
        largest = most * usual
        if re.search("emb|wte|wpe", path):
            largest = max(largest, 1.5)  # a table may be of variance 1
        smallest = min(usual / (2 * most), 0.01)  # half of what GPT-2 begins with at any width
        if not smallest < numbers < largest and not is_meant_so(subject, path):
            message = f"{path} has numbers {numbers / usual:.2g} times the usual {usual:.2g}"
            n_steps = getattr(subject.trainer, "n_steps", 0)
            if n_steps > 0:
                message += f" after {n_steps} steps: perhaps their rate was too large"
            yield sign("scale of weights", message)


def scores(subject):
    """Whether the scores of a new model's attention are as large as usual."""
    has_heads = hasattr(subject.architecture, "n_heads")
    has_weights = has_heads and hasattr(subject.architecture, "attention_weights")
    if not (subject.is_new and has_weights and subject.interface.ids):
        return
    inputs, _ = longest_row(subject, subject.interface.ids[-1])
    weights_of = subject.architecture.attention_weights
    weights = weights_of(subject.full_params, *inputs, backend=subject.ops)
    spreads = [spread_of_scores(on_host(x)) for of_stack in weights.values() for x in of_stack]
    spread = np.median(spreads or [0])
    # It is 0.3 to 1 in new models of 1 to 6 layers; without a scale, that times the root of a
    # head's width.
    if spread > 1.5:
        yield sign(
            "scale of scores",
            f"in a softmax, the scores of a query have a standard deviation of {spread:.2g}",
        )


def spread_of_scores(weights):
    """The median standard deviation of the scores of a query, of attention weights (…, T, S)."""
    scores = np.log(np.where(weights > 0, weights, np.nan).astype(float))  # except for a constant
    spreads = np.nanstd(scores, axis=-1)
    is_enough = (weights > 0).sum(axis=-1) > 3
    return np.median(spreads[is_enough]) if is_enough.any() else 0.0


def matrices(subject):
    """The path of each matrix and some of its vectors, one for each unit or token."""
    for path, x in subject.params_by_path.items():
        if x.ndim != 2 or min(x.shape) < 2:
            continue
        vectors = vectors_of(path, x)
        if is_table(path) and subject.pad_id in range(len(vectors)):
            vectors = np.delete(vectors, subject.pad_id, axis=0)
        yield path, vectors[:: max(1, vectors.size // LARGEST)]


def is_table(path):
    """Whether a matrix has a row for each token; those of linear maps have a column for a unit."""
    return not path.endswith("weight")


def vectors_of(path, x):
    """The rows of a table, or the columns of a linear map."""
    return x if is_table(path) else x.T


def n_distinct(vectors):
    """The number of different vectors."""
    return len({vector.tobytes() for vector in vectors})


def usual_size(path, shape):
    """The root mean square with which the numbers of a matrix begin."""
    if re.search("positions|types", path):
        return 1.0
    return (shape[1] if is_table(path) else sum(shape) / 2) ** -0.5


def is_meant_so(subject, path):
    """Whether a new model begins with one number there, and its columns get different gradients.

    The second matrix of an adapter begins with zeros, and so may the last one of a sublayer.
    """
    x = subject.new_params.get(path)
    if x is None or (x != x.flat[0]).any() or (subject.params_by_path[path] != x).any():
        return False
    gradient = subject.computed.grads[path]
    if not gradient.any():  # if it has none elsewhere either, it is no fault of the numbers
        return not subject.grads_beside[path].any()
    vectors = vectors_of(path, gradient)
    vectors = vectors[vectors.any(axis=1)]
    return n_distinct(vectors) >= 0.9 * len(vectors)
