"""cuDNN's attention: its arguments, and when it is used. Without a GPU its Python package is also replaced."""

import importlib
import importlib.util
import sys

import numpy as np
import pytest
from on_gpu import HAS_TENSOR_CORES, MISSING, NO_GPU, cupy_installed, gpu, load, put, take

from npformer import reference

pytestmark = pytest.mark.skipif(bool(MISSING), reason=str(MISSING))
module = sys.modules["npformer.gpu.cudnn"]
REAL = importlib.util.find_spec("cudnn") is not None
FLOAT16 = 2.0**-11  # the largest error of rounding, relative


@pytest.fixture
def cudnn(monkeypatch):
    """The package, or its substitute, and a counter of the graphs that were run."""
    if NO_GPU:
        monkeypatch.setattr(module, "cudnn", load("cudnn"))
    elif not REAL:
        pytest.skip("cudnn is not installed")
    runs, run = [], module._run
    monkeypatch.setattr(module, "_run", lambda *args: runs.append(run(*args)))
    return runs


def packed(T, S=None, dtype="float16"):
    """q, and k and v in one array, as projections leave them."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, T, 16)).astype(dtype), rng.normal(size=(2, S or T, 32)).astype(dtype)


@pytest.mark.skipif(not HAS_TENSOR_CORES, reason="no tensor cores of the Ampere generation or later")
@pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
def test_it_computes_what_ours_does(cudnn, causal):
    arrays = packed(5, 7)
    with cupy_installed(), gpu.cudnn_attention():
        q, kv = put(arrays)
        out, logsumexp = gpu.cross_attention(q, kv, 2, causal=causal)
        actual = take((out, logsumexp, *gpu.cross_attention_backward(out, q, kv, out, logsumexp, 2, causal=causal)))
    assert len(cudnn) == 2
    q, kv = (x.astype("float32") for x in arrays)
    expected = reference.cross_attention(q, kv, 2, causal=causal)
    dout, logsumexp = (x.astype("float32") for x in actual[:2])
    expected += reference.cross_attention_backward(dout, q, kv, dout, logsumexp, 2, causal=causal)
    for x, wanted in zip(actual, expected, strict=True):
        np.testing.assert_allclose(x, wanted, rtol=0, atol=4 * FLOAT16 * np.abs(wanted).max())


def test_the_rest_stays_ours(cudnn):
    q, kv = packed(5)
    mask = np.ones((2, 1, 1, 5), bool)
    with cupy_installed(), gpu.cudnn_attention():
        gpu.cross_attention(*put((q, kv)), 2, put(mask))
        gpu.cross_attention(*put((q, kv)), 2, dropout_rate=0.5, dropout_key=3)
        gpu.cross_attention(*put((q, kv)), 4)
        gpu.cross_attention(*put(packed(5, 4)), 2, causal=True)
        gpu.cross_attention(*put(packed(5, dtype="float32")), 2)
        gpu.cross_attention(*put(packed(1)), 2)
    with cupy_installed():
        gpu.cross_attention(*put((q, kv)), 2)
    assert not cudnn


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(module, "cudnn", None)
    monkeypatch.setitem(sys.modules, "cudnn", None)
    with pytest.raises(ImportError, match="the extra cudnn13x of npformer"), gpu.cudnn_attention():
        pass


@pytest.mark.skipif(not REAL, reason="cudnn is not installed")
@pytest.mark.parametrize("causal", [False, True])
def test_the_graphs_are_valid(causal, monkeypatch):
    """This is tested as far as the package can check it without a GPU."""
    monkeypatch.setattr(module, "cudnn", importlib.import_module("cudnn"))
    heads = module.Layout((2, 4, 128, 64), (128 * 256, 64, 256, 1), "bfloat16")
    layouts = dict.fromkeys(range(module.Q, module.DV + 1), heads)
    layouts[module.STATS] = module.Layout((2, 4, 128, 1), (512, 128, 1, 1), "float32")
    for graph in (module.forward, module.backward):
        graph(layouts, causal, 0.125).validate()
