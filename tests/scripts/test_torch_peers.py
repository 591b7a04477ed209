"""The models in PyTorch, JAX, CTranslate2 and transformers
that the benchmarks use compute the same as npformer.
"""

import numpy as np
import pytest

import npformer as nf

pytest.importorskip("resource", reason="the benchmarks need a Unix system")
from scripts.bench import steps  # noqa: E402

SMALL = steps.Size(V=17, N=2, D=32, H=4, F=48, B=3, S=7, T=6)
OPTIONS = {"lr": 1e-3, "label_smoothing": 0.1}


def losses_of(step):
    return [step() for _ in range(5)]


def small_case():
    model = nf.Transformer(SMALL.V, SMALL.V, SMALL.D, SMALL.H, SMALL.N, SMALL.F, dropout=0.0)
    src, tgt = steps.batch_of(SMALL)
    optimizer = nf.Adam(OPTIONS["lr"], betas=(0.9, 0.98), eps=1e-9)
    trainer = nf.Trainer(
        model, optimizer, label_smoothing=OPTIONS["label_smoothing"], backend="reference"
    )
    return model, src, tgt, losses_of(lambda: trainer.step(src, tgt))


@pytest.mark.parametrize("fused", [False, True])
def test_pytorch_takes_the_same_steps(fused):
    """Five losses without dropout: the same model, the same gradient, the same Adam."""
    torch = pytest.importorskip("torch")
    from scripts.bench.peers import pytorch_model

    model, src, tgt, losses = small_case()
    step = pytorch_model.training_step(
        model, src, tgt, n_threads=torch.get_num_threads(), fused=fused, **OPTIONS
    )
    assert losses_of(step) == pytest.approx(losses, rel=1e-5)


def test_jax_takes_the_same_steps():
    pytest.importorskip("jax")
    from scripts.bench.peers import jax_model

    model, src, tgt, losses = small_case()
    assert losses_of(jax_model.training_step(model, src, tgt, **OPTIONS)) == pytest.approx(
        losses, rel=1e-5
    )


def small_decoding_case():
    model = nf.Transformer(SMALL.V, SMALL.V, SMALL.D, SMALL.H, SMALL.N, SMALL.F)
    params = model.init(seed=0)
    # neither padding, which npformer masks, nor the end token
    params["output"]["bias"][[0, 2]] = -1e9
    src = np.random.default_rng(0).integers(3, SMALL.V, (SMALL.B, SMALL.S))
    return model, params, src


def test_ctranslate2_decodes_the_same_tokens():
    pytest.importorskip("ctranslate2")
    from scripts.bench.peers import ctranslate2_model

    model, params, src = small_decoding_case()
    decode = ctranslate2_model.decoder(model, params, n_threads=1)
    ours = nf.greedy_decode(model, params, src, bos_id=1, eos_id=2, max_len=9, backend="reference")
    np.testing.assert_array_equal(decode(src, 9, 1), ours)
    assert np.shape(decode(src, 9, 4)) == (SMALL.B, 9)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_huggingface_decodes_as_many_tokens(beam_size):
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    from scripts.bench.peers import huggingface_model

    model, _, src = small_decoding_case()
    decode = huggingface_model.decoder(model, n_threads=torch.get_num_threads())
    assert decode(src, 9, beam_size).shape == (SMALL.B, 9)
