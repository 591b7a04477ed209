"""A Transformer with options of later models: its gradients, and decoding a token at a time."""

import numpy as np
import pytest
from whole_models import SRC, V_SRC, V_TGT, assert_gradient_along_directions, loss_of_leaves, shaken

from npformer import Transformer

OPTIONS = [
    {"norm_type": "rms_norm"},
    {"activation": "swiglu"},
    {"positions": "rotary", "n_heads": 3},
    {"scale_embeddings": False, "bias": False, "final_norm": True},
    {"positions": "sinusoidal_concatenated", "final_norm": False},
    {"softcap": 0.5},
]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients_and_steps(options, norm, backend):
    model = Transformer(
        V_SRC, V_TGT, 6, **{"n_heads": 2, **options}, n_layers=1, d_ff=13, dropout=0.3, norm=norm, dtype="float64"
    )
    params = shaken(model.init(0))
    f, f_backward = loss_of_leaves(model, params, 5)[0], loss_of_leaves(model, params, 5, backend)[1]
    assert_gradient_along_directions(f, f_backward, params)
    tgt = np.random.default_rng(0).integers(3, V_TGT, (len(SRC), 4))
    decoder = model.decoder(params, SRC, max_rows=len(SRC), max_len=4, backend=backend)
    steps = [decoder.step(tokens, np.arange(len(SRC))) for tokens in tgt.T]
    np.testing.assert_allclose(np.stack(steps, axis=1), model.logits(params, SRC, tgt), rtol=0, atol=1e-12)
