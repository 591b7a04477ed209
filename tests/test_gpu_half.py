"""The kernels on numbers of half precision: as the reference on the same numbers in float32, but for the rounding."""

import importlib.util

import numpy as np
import pytest
from on_gpu import MISSING, cupy_installed, gpu, put, take
from operations import arrays_of, valid_calls

from npformer import reference

pytestmark = pytest.mark.skipif(bool(MISSING), reason=str(MISSING))

# Largest difference over the largest entry of the result, in units of the dtype's rounding error (float16: 9.8e-4,
# bfloat16: 7.8e-3). Half a unit is the rounding of the result; more where something is rounded on the way.
BOUNDS = {
    **dict.fromkeys(["dropout", "dropout_backward", "relu", "relu_backward", "embedding", "embed_tokens"], 0.51),
    **dict.fromkeys(["gelu", "gelu_backward", "silu", "silu_backward", "embedding_backward"], 0.51),
    **dict.fromkeys(["softmax", "softmax_backward", "log_softmax", "log_softmax_backward"], 0.51),
    **dict.fromkeys(["layer_norm", "layer_norm_backward", "embed_tokens_backward"], 0.51),
    **dict.fromkeys(["linear", "linear_backward", "product"], 1.01),
    **dict.fromkeys(["linear_activation_dropout", "linear_dropout_residual"], 1.6),
    **dict.fromkeys(["linear_activation_dropout_backward", "linear_dropout_residual_backward"], 2),
    **dict.fromkeys(["conv1d", "conv1d_backward"], 1.6),
    **dict.fromkeys(["cross_entropy", "linear_cross_entropy"], 2),
    **dict.fromkeys(["paired_cross_entropy", "linear_paired_cross_entropy"], 2),
    **dict.fromkeys(["flash_attention", "self_attention", "cross_attention"], 0.51),
    **dict.fromkeys(["flash_attention_backward", "self_attention_backward", "cross_attention_backward"], 0.51),
    "cached_attention": 0.51,
}
DTYPES = [
    "float16",
    pytest.param(
        "bfloat16", marks=pytest.mark.skipif(not importlib.util.find_spec("ml_dtypes"), reason="no ml_dtypes")
    ),
]
NOT_IN_HALF = {  # without kernels, made of others, or with another order of what rounding makes equal
    *("attention", "attention_backward", "gru", "gru_backward", "lstm", "lstm_backward"),
    *("decoder_layer_step", "log_softmax_top_k"),
}
STAY_WIDE = {"mean", "rstd", "logsumexp"}


def test_every_kernel_is_here():
    names = {name for name in valid_calls() if getattr(gpu, name) is not getattr(reference, name)}
    assert names - NOT_IN_HALF == set(BOUNDS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BOUNDS)
def test_half_precision(name, dtype):
    if dtype == "bfloat16":
        import ml_dtypes

        dtype = ml_dtypes.bfloat16
    dtype, arguments = np.dtype(dtype), valid_calls("float32")[name]
    halves = {
        key: x.astype(dtype) if isinstance(x, np.ndarray) and x.dtype.kind == "f" and key not in STAY_WIDE else x
        for key, x in arguments.items()
    }
    rounded = {key: x.astype("float32") if getattr(x, "dtype", None) == dtype else x for key, x in halves.items()}
    expected = arrays_of(getattr(reference, name)(**rounded))
    with cupy_installed():
        actual = arrays_of(take(getattr(gpu, name)(**put(halves))))
    for i, (x, wanted) in enumerate(zip(actual, expected, strict=True)):
        unit = 2.0**-10 if dtype.name == "float16" else 2.0**-7
        bound = BOUNDS[name] * unit * np.abs(wanted[np.isfinite(wanted)]).max()
        assert x.dtype == (np.float32 if wanted.ndim == 0 or x.dtype == np.float32 else dtype), f"result {i}"
        np.testing.assert_allclose(x.astype("float32"), wanted, rtol=0, atol=bound, err_msg=f"result {i}")
