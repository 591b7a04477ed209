"""Matrices of 8-bit integers: decoding one token reads all weights, here a quarter of the bytes of
float32.
"""

import re

import numpy as np

from npformer import tree
from npformer.arrays import underflow_is_zero
from npformer.errors import UserError
from npformer.runtime.threads import in_parallel

LARGEST = 127  # the integers are from -127 to 127
# The paths of what becomes integers: tables, the output projection, and the weights of the layers
# of a Transformer.
TABLE = r"(\w+_)?embedding"
WEIGHT = r"output\.weight|(.+\.)?\d+\.(attention|memory_attention|feed_forward)\.\w+\.weight"


class Quantized:
    """A matrix W ≈ s · Q of 8-bit integers Q and scales s, one for each column, or for each row of
    an embedding table.

    ``numpy.asarray(matrix)`` is s · Q, the matrix with which a model computes.

    Attributes
    ----------
    values : (D_in, D_out) int8
    scale : (1, D_out) or (D_in, 1)
    """

    def __init__(self, values, scale):
        self.values = values
        self.scale = scale
        self.shape = values.shape
        self.size = values.size
        self.ndim = values.ndim
        self.dtype = scale.dtype
        self.nbytes = values.nbytes + scale.nbytes

    @classmethod
    @underflow_is_zero()
    def of(cls, x, axis):
        """The nearest numbers: s = max |x| / 127 along the axis, and Q = x / s, rounded.

        >>> matrix = Quantized.of(np.array([[0.5, 3.0], [-1.0, 0.0]]), axis=0)
        >>> matrix.values, matrix.scale * 127
        (array([[  64,  127],
               [-127,    0]], dtype=int8), array([[1., 3.]]))
        >>> np.asarray(matrix).round(3)
        array([[ 0.504,  3.   ],
               [-1.   ,  0.   ]])
        """
        scale = np.abs(x).max(axis=axis, keepdims=True, initial=0) / LARGEST
        # A number below the normal ones has few digits. It is rounded up, so that no quotient is
        # above 127.
        scale = np.where(scale < np.finfo(x.dtype).tiny, np.nextafter(scale, 1), scale)
        values = np.rint(x / scale).astype(np.int8)
        if axis == 0:  # what is added up together lies together
            values = np.asfortranarray(values)
        return cls(values, scale.astype(x.dtype, copy=False))

    @property
    def T(self):
        """The transposed matrix."""
        return Quantized(self.values.T, self.scale.T)

    def __array__(self, dtype=None, copy=None):
        return (self.values * self.scale).astype(dtype or self.dtype, copy=False)

    def __repr__(self):
        return f"<int8 matrix {self.shape}, scales in {self.dtype}>"


def quantize(params: dict) -> dict:
    """Return parameters whose large matrices are 8-bit integers, for decoding with a Transformer.

    A step of decoding takes the time in which the weights are read from memory, and these are a
    quarter as large as in float32. All sums are in the data type of the parameters. The model
    computes with W' = s · Q, where Q has integers from -127 to 127, and there is one s for each
    column of W, or for each row of an embedding table, whose rows the output projection multiplies
    by, too. A weight changes by s / 2 at most, where 127 s is the largest of its column.

    Parameters
    ----------
    params : nested dict
        NumPy arrays; they are not changed. The layers of a ``Recurrent`` or a ``ByteNet`` stay as
        they are.

    Returns
    -------
    nested dict
        For decoding and everything else without gradients. What was an array of the weights of
        layers, of embeddings or of the output projection is a matrix of which ``numpy.asarray``
        makes floats again; the others are the same, but float16 becomes float32, in which such a
        model computes.

    Examples
    --------
    >>> from npformer import LanguageModel, sample
    >>> model = LanguageModel(vocab=11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
    >>> small = quantize(model.init(seed=0))
    >>> small["embedding"]
    <int8 matrix (11, 16), scales in float32>
    >>> sample(model, small, [[3, 4]], max_len=3, seed=0)[0].shape
    (3,)
    """
    if not isinstance(params, dict):
        expected = "a nested dict such as model.init(seed)"
        raise TypeError(f"params is {tree.described(params)}, expected {expected}")
    return tree.from_leaves([(path, _quantized(path, x)) for path, x in tree.leaves(params)])


def _quantized(path, x):
    tree.check_leaf(path, x)
    if x.dtype == np.float16:
        x = x.astype(np.float32)
    is_table = re.fullmatch(TABLE, path)
    if isinstance(x, Quantized) or not (is_table or re.fullmatch(WEIGHT, path)):
        return x
    if not isinstance(x, np.ndarray):
        problem = f"params[{path!r}] is a {type(x).__module__} array"
        expected = "one of NumPy: only the CPU computes with 8-bit integers"
        raise UserError(f"{problem}, expected {expected}")
    if not np.isfinite(x).all():
        raise UserError(f"params[{path!r}] has inf or NaN, expected numbers")
    return Quantized.of(x, axis=1 if is_table else 0)


def dequantized(x):
    """A matrix, or the parameters of a layer, with floats in place of integers; unchanged if they
    are floats.

    >>> dequantized(Quantized.of(np.array([[127.0]]), axis=0))
    array([[127.]])
    """
    if not is_quantized(x):
        return x
    matrices = [matrix for _, matrix in tree.leaves(x) if isinstance(matrix, Quantized)]
    floats = iter(in_parallel(np.asarray, matrices))
    return tree.map_leaves(lambda x: next(floats) if isinstance(x, Quantized) else x, x)


def is_quantized(x):
    """Whether it is such a matrix, or a tree that holds one."""
    if isinstance(x, tree.Fixed):
        return Quantized in x.types
    if isinstance(x, dict):
        return any(map(is_quantized, x.values()))
    return isinstance(x, Quantized)


def check_trainable(params):
    """Raise an error if parameters hold integers."""
    if is_quantized(params):
        advice = "train floats, and quantize them afterwards"
        raise UserError(f"8-bit integers have no gradients: {advice}")


def moved(params, device):
    """The parameters on a device, where matrices of integers stay as they are."""
    return tree.map_leaves(lambda x: x if isinstance(x, Quantized) else device.asarray(x), params)


def floats(x):
    """The scales of a matrix, beside which other arrays are computed; an array itself."""
    return x.scale if isinstance(x, Quantized) else x


def look_up(ids, table, pad_id):
    """The arguments of the same look-up in a table of floats: ids, table, pad_id.

    In place of a table of integers, it has a row for each token: floats of all rows would take
    longer.
    """
    if not isinstance(table, Quantized):
        return ids, table, pad_id
    is_pad = ids == pad_id
    rows = ids.ravel()
    pad_row = int(is_pad.argmax()) if is_pad.any() else -1
    at = np.where(is_pad, pad_row, np.arange(ids.size).reshape(ids.shape))
    return at, table.values[rows] * table.scale[rows], pad_row
