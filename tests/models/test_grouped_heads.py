"""Heads of queries that share heads of keys and values (Ainslie et al. 2023)."""

import numpy as np
import pytest
from promises import assert_steps_equal_recomputation, params_of
from tested import npf
from whole_models import (
    assert_gradient_along_directions,
    assert_same_gradient,
    loss_of_leaves,
    shaken,
)

from npformer import Transformer, tree
from npformer.layers import AttentionSettings, cross_attention, self_attention

B, T, S, H, G, K = 2, 5, 7, 4, 2, 3
SETTINGS = AttentionSettings(H, G, causal=True)
SIZES = {"d_model": 8, "n_heads": 4, "n_layers": (1, 2), "d_ff": 9}
SIZES |= {"max_len": 16, "dropout": 0.3, "dtype": "float64"}
SRC = np.array([[3, 4, 5, 6], [7, 8, 0, 0], [9, 0, 0, 0]])
normal = np.random.default_rng(0).standard_normal


def test_each_head_attends_with_the_keys_and_values_of_its_group(every_backend):
    qkv = normal((B, T, (H + 2 * G) * K))
    heads = qkv.reshape(B, T, H + 2 * G, K)
    out, *_ = npf.self_attention(qkv, SETTINGS)
    for b, h, t in np.ndindex(B, H, T):
        key, value = H + h // 2, H + G + h // 2
        scores = [heads[b, t, h] @ heads[b, s, key] / np.sqrt(K) for s in range(t + 1)]
        weights = np.exp(scores) / np.sum(np.exp(scores))
        expected = sum(weight * heads[b, s, value] for s, weight in enumerate(weights))
        np.testing.assert_allclose(out[b, t, h * K : (h + 1) * K], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_as_pytorch(every_backend, n_kv_heads, biased):
    torch = pytest.importorskip("torch")
    q, kv, dout = normal((B, T, H * K)), normal((B, S, 2 * n_kv_heads * K)), normal((B, T, H * K))
    heads = [
        torch.tensor(x.reshape(B, len(x[0]), -1, K).swapaxes(1, 2))
        for x in (q, *np.split(kv, 2, axis=-1))
    ]
    bias = normal((H, T, S)) if biased else None
    mask = torch.tensor(bias)[None] if biased else None
    for x in [*heads, mask] if biased else heads:
        x.requires_grad_()
    y = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask, enable_gqa=True)
    y.backward(torch.tensor(dout.reshape(B, T, H, K).swapaxes(1, 2)))
    settings = AttentionSettings(H, n_kv_heads)
    out, *saved = npf.cross_attention(q, kv, settings, bias=bias)
    dq, dkv, *dbias = npf.cross_attention_backward(dout, q, kv, out, *saved, settings, bias=bias)
    merged = [
        x.detach().numpy().swapaxes(1, 2).reshape(B, x.shape[2], -1)
        for x in (y, *(x.grad for x in heads))
    ]
    np.testing.assert_allclose(out, merged[0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(dq, merged[1], rtol=0, atol=1e-13)
    np.testing.assert_allclose(dkv, np.concatenate(merged[2:], axis=-1), rtol=0, atol=1e-13)
    for dx in dbias:
        np.testing.assert_allclose(dx, mask.grad[0].numpy(), rtol=0, atol=1e-13)
    assert len(dbias) == biased


@pytest.mark.parametrize("n_kv_heads", [1, 2])
def test_a_model_trains_and_decodes_with_them(every_backend, n_kv_heads):
    model = Transformer(7, 9, n_kv_heads=n_kv_heads, **SIZES)
    params = shaken(model.init(0))
    f, f_backward = loss_of_leaves(model, params, 5)
    assert_gradient_along_directions(f, f_backward, params)
    assert_same_gradient(f_backward, loss_of_leaves(model, params, 5, every_backend)[1], params)
    model = Transformer(11, 11, n_kv_heads=n_kv_heads, **SIZES)
    assert_steps_equal_recomputation(model, params_of(model), SRC, every_backend)
    assert (
        model.decoder(params_of(model), SRC, max_rows=3, max_len=4).kv.shape[-1]
        == 2 * n_kv_heads * 2
    )


@pytest.mark.parametrize("has_bias", [True, False])
def test_separate_projections_compute_what_a_packed_one_does(every_backend, has_bias):
    """Forward and gradients, for q (D, D) and narrower k and v, as in the weights of Llama."""
    D, widths = H * K, {"q": H * K, "k": G * K, "v": G * K, "out": H * K}
    maps = {
        name: {"weight": normal((D, n)), **({"bias": normal(n)} if has_bias else {})}
        for name, n in widths.items()
    }
    x, memory, dy = normal((B, T, D)), normal((B, S, D)), normal((B, T, D))

    def packed(params, *names):
        joined = {
            key: np.concatenate([params[name][key] for name in names], axis=-1)
            for key in params["q"]
        }
        return {"".join(names): joined} | {
            name: params[name] for name in params if name not in names
        }

    for layer, inputs, names in (
        (self_attention, [x], "qkv"),
        (cross_attention, [x, memory], "kv"),
    ):
        results = []
        for params in (maps, packed(maps, *names)):
            y, backward = layer(every_backend, params, *inputs, AttentionSettings(H, G))
            *dinputs, grads = backward(dy)
            grads = packed(grads, *names) if params is maps else grads
            results.append(dict(tree.leaves({"y": y, **dict(enumerate(dinputs)), **grads})))
        assert results[0].keys() == results[1].keys()
        for path, value in results[0].items():
            np.testing.assert_allclose(value, results[1][path], rtol=0, atol=1e-11, err_msg=path)


def test_as_many_as_heads_of_queries_change_nothing():
    model, other = (Transformer(11, 11, n_kv_heads=n, **SIZES) for n in (None, 4))
    assert (tree.flatten(model.init(0))[0] == tree.flatten(other.init(0))[0]).all()
    model = Transformer(11, 11, n_kv_heads=2, **SIZES)
    assert model.attention_weights(model.init(0), SRC, SRC)["memory"][0].shape == (3, 4, 4, 4)


def test_a_number_that_does_not_divide_the_heads_and_widths_that_do_not_fit():
    with pytest.raises(ValueError, match="n_kv_heads=3, expected a divisor of n_heads=4"):
        Transformer(11, 11, n_kv_heads=3, **SIZES)
    message = (
        r"kv has shape \(2, 7, 24\), expected \(B, S, 2\*G\*K\) "
        "with .*G = 2 from settings.n_kv_heads"
    )
    with pytest.raises(ValueError, match=message):
        npf.cross_attention(
            normal((B, T, H * K)), normal((B, S, 2 * H * K)), AttentionSettings(H, G)
        )
