"""cuDNN's fused attention as an optional replacement of ours. It needs nvidia-cudnn-frontend."""

import importlib
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import cupy

from npformer.gpu.tensor_attention import on_tensor_cores

cudnn = None  # the package, which is imported when it is first needed
_asked_for = False
Q, K, V, OUT, STATS, DOUT, DQ, DK, DV = range(1, 10)  # the ids of the arrays of a graph


@contextmanager
def cudnn_attention():
    """Context manager in which attention is computed by cuDNN, where it computes the same as our kernels.

    That is the case in float16 and bfloat16, without a mask and without dropout, if the width of the heads is a
    multiple of 8 and every query sees a key. In all other cases our kernels are used. Keys that the causal mask hides
    have to be finite: in cuDNN a weight of 0 need not hide NaN or inf. A recorded step continues to use the attention
    with which it was recorded. Gradients are bitwise reproducible, for which cuDNN may need memory that grows with
    T · S.

    Raises
    ------
    ImportError
        If the package cudnn is missing. Inside the context, operations raise the errors of cuDNN if it has no kernel
        for this GPU or shape.
    """
    global cudnn, _asked_for
    try:
        cudnn = cudnn or importlib.import_module("cudnn")
    except ImportError as error:
        raise ImportError("cudnn_attention needs cuDNN: the extra cudnn13x of npformer, or cudnn12x") from error
    before, _asked_for = _asked_for, True
    try:
        yield
    finally:
        _asked_for = before


def takes(q, k, *others, mask, causal, dropout_rate):
    """Whether cuDNN computes the attention of these heads."""
    if not _asked_for or mask is not None or dropout_rate:
        return False
    T, S = q.shape[2], k.shape[2]
    all_see_a_key = not causal or T <= S
    return all_see_a_key and T * S > 1 and on_tensor_cores(q, k, *others)


def attend(q, k, v, out, logsumexp, causal, scale):
    """Write ``out`` and ``logsumexp``; heads are (B, H, T or S, width)."""
    arrays = {Q: q, K: k, V: v, OUT: out, STATS: logsumexp.reshape(*logsumexp.shape, 1)}
    _run(forward, arrays, causal, scale)


def attend_backward(dout, out, logsumexp, q, k, v, dq, dk, dv, causal, scale):
    """Write ``dq``, ``dk`` and ``dv``."""
    stats = logsumexp.reshape(*logsumexp.shape, 1)
    arrays = {Q: q, K: k, V: v, OUT: out, STATS: stats, DOUT: dout, DQ: dq, DK: dk, DV: dv}
    _run(backward, arrays, causal, scale)


class Layout(NamedTuple):
    """What a graph needs to know about an array."""

    dim: tuple
    stride: tuple  # in elements
    dtype: str


def forward(layouts, causal, scale, handle=None):
    """The graph that computes the output and the logsumexp of each query from q, k and v."""
    graph, given = _begin({name: layouts[name] for name in (Q, K, V)}, handle)
    out, stats = graph.sdpa(q=given[Q], k=given[K], v=given[V], generate_stats=True, **_options(causal, scale))
    _finish({OUT: out, STATS: stats}, layouts)
    return graph


def backward(layouts, causal, scale, handle=None):
    """The graph that computes the gradients of q, k and v, bitwise reproducibly, from all of these and dout."""
    graph, given = _begin({name: layouts[name] for name in (Q, K, V, OUT, STATS, DOUT)}, handle)
    names = {"q": Q, "k": K, "v": V, "o": OUT, "dO": DOUT, "stats": STATS}
    arguments = {name: given[uid] for name, uid in names.items()}
    gradients = graph.sdpa_backward(**arguments, use_deterministic_algorithm=True, **_options(causal, scale))
    _finish(dict(zip((DQ, DK, DV), gradients, strict=True)), layouts)
    return graph


def _begin(layouts, handle):
    wide = {"intermediate_data_type": cudnn.data_type.FLOAT, "compute_data_type": cudnn.data_type.FLOAT}
    graph = cudnn.pygraph(io_data_type=_data_type(layouts[Q].dtype), handle=handle, **wide)
    tensors = {
        uid: graph.tensor(dim=list(x.dim), stride=list(x.stride), data_type=_data_type(x.dtype), uid=uid)
        for uid, x in layouts.items()
    }
    return graph, tensors


def _finish(results, layouts):
    for uid, tensor in results.items():
        x = layouts[uid]
        tensor.set_output(True).set_uid(uid).set_dim(list(x.dim)).set_stride(list(x.stride))
        tensor.set_data_type(_data_type(x.dtype))


def _data_type(name):
    return getattr(cudnn.data_type, {"float16": "HALF", "bfloat16": "BFLOAT16", "float32": "FLOAT"}[name])


def _options(causal, scale):
    options = {"attn_scale": scale}
    if causal:  # the last query is aligned with the last key
        options["diagonal_alignment"] = cudnn.diagonal_alignment.BOTTOM_RIGHT
        options["diagonal_band_right_bound"] = 0
    return options


def _run(make, arrays, causal, scale):
    layouts = tuple((uid, _layout(x)) for uid, x in arrays.items())
    handle = _handle(cupy.cuda.Device().id)
    graph = _built(make, layouts, causal, float(scale), handle)
    workspace = cupy.empty(max(1, graph.get_workspace_size()), "uint8")
    cudnn.set_stream(handle=handle, stream=cupy.cuda.get_current_stream().ptr)
    graph.execute({uid: x.data.ptr for uid, x in arrays.items()}, workspace.data.ptr, handle=handle)


def _layout(x):
    return Layout(x.shape, tuple(step // x.itemsize for step in x.strides), x.dtype.name)


@cache
def _handle(device):
    return cudnn.create_handle()


@cache  # without a limit, as recordings may still use a graph
def _built(make, layouts, causal, scale, handle):
    graph = make(dict(layouts), causal, scale, handle)
    graph.build([cudnn.heur_mode.A])
    return graph
