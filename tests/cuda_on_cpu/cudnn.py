"""A substitute for cuDNN's Python package: the reference computes the graphs of attention from the same addresses."""

import ctypes
import types

import numpy as np

from npformer import reference

data_type = types.SimpleNamespace(HALF="float16", BFLOAT16="bfloat16", FLOAT="float32")
diagonal_alignment = types.SimpleNamespace(BOTTOM_RIGHT="bottom right")
heur_mode = types.SimpleNamespace(A="A")


def create_handle():
    return "handle"


def set_stream(*, handle, stream):
    assert handle == "handle"


class Tensor:
    """An array in a graph."""

    def __init__(self, dim=None, stride=None, data_type=None, uid=None):
        self.dim, self.stride, self.data_type, self.uid = dim, stride, data_type, uid

    def __getattr__(self, name):
        if not name.startswith("set_"):
            raise AttributeError(name)

        def set_to(value):
            setattr(self, name.removeprefix("set_"), value)
            return self

        return set_to

    def at(self, addresses):
        dtype = np.dtype(self.data_type)
        assert self.stride[-1] == 1 and addresses[self.uid] % 16 == 0
        size = sum((n - 1) * step for n, step in zip(self.dim, self.stride, strict=True)) + 1
        memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(addresses[self.uid])
        return np.ndarray(self.dim, dtype, memory, 0, [step * dtype.itemsize for step in self.stride])


class pygraph:  # noqa: N801
    """A graph of one operation."""

    built = False

    def __init__(self, *, io_data_type, intermediate_data_type, compute_data_type, handle):
        assert intermediate_data_type == compute_data_type == data_type.FLOAT and handle == "handle"

    def tensor(self, **layout):
        return Tensor(**layout)

    def sdpa(self, *, q, k, v, generate_stats, **options):
        assert generate_stats
        self._compute, self._inputs = _forward, (q, k, v)
        return self._returns(2, options)

    def sdpa_backward(self, *, q, k, v, o, dO, stats, use_deterministic_algorithm, **options):  # noqa: N803
        assert use_deterministic_algorithm
        self._compute, self._inputs = _backward, (dO, q, k, v, o, stats)
        return self._returns(3, options)

    def _returns(self, n, options):
        causal = options.pop("diagonal_alignment", None) is not None
        assert not causal or options.pop("diagonal_band_right_bound") == 0
        self._options = {"causal": causal, "scale": options.pop("attn_scale")}
        assert not options
        self._outputs = [Tensor() for _ in range(n)]
        return self._outputs

    def build(self, heuristics):
        assert all(tensor.output for tensor in self._outputs)
        self.built = True

    def get_workspace_size(self):
        return 0

    def execute(self, addresses, workspace, handle):
        assert self.built and isinstance(workspace, int) and handle == "handle"
        inputs = [tensor.at(addresses).astype("float32") for tensor in self._inputs]
        for tensor, result in zip(self._outputs, self._compute(*inputs, **self._options), strict=True):
            tensor.at(addresses)[...] = result


def _forward(q, k, v, **options):
    out, logsumexp = reference.flash_attention(q, k, v, **options)
    return out, logsumexp[..., None]


def _backward(dout, q, k, v, out, stats, **options):
    return reference.flash_attention_backward(dout, q, k, v, out, stats[..., 0], **options)
