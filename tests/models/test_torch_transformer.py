"""The whole model against ``torch.nn.Transformer`` in float64.

Loss, and every parameter's gradient.
"""

import numpy as np
import pytest
from oracles import assert_close

from npformer import Transformer, reference, tree

torch = pytest.importorskip("torch")
functional = torch.nn.functional

B, S, T, H, K, F, N = 3, 7, 5, 2, 11, 13, (2, 1)
D = H * K
ACTIVATIONS = {
    **{"relu": "relu", "gelu_erf": "gelu", "silu": functional.silu},
    "gelu": lambda x: functional.gelu(x, approximate="tanh"),
}


def linear(weight, bias):
    return {"weight": weight.numpy().T.copy(), "bias": bias.numpy().copy()}


def layer_norm(get, m):
    return {"gain": get(m.weight).numpy().copy(), "bias": get(m.bias).numpy().copy()}


def attention(get, m, memory=False):
    weight, bias = get(m.in_proj_weight), get(m.in_proj_bias)
    out = linear(get(m.out_proj.weight), get(m.out_proj.bias))
    if memory:
        return {"q": linear(weight[:D], bias[:D]), "kv": linear(weight[D:], bias[D:]), "out": out}
    return {"qkv": linear(weight, bias), "out": out}


def stack(get, module, norm):
    """One stack in our layout: ``get`` takes a torch parameter's values or its gradient."""
    params = {}
    for i, layer in enumerate(module.layers):
        block = {
            "attention": attention(get, layer.self_attn),
            "attention_norm": layer_norm(get, layer.norm1),
        }
        last_norm = layer.norm2
        if hasattr(layer, "multihead_attn"):
            block["memory_attention"] = attention(get, layer.multihead_attn, memory=True)
            block["memory_attention_norm"] = layer_norm(get, layer.norm2)
            last_norm = layer.norm3
        block["feed_forward"] = {
            "hidden": linear(get(layer.linear1.weight), get(layer.linear1.bias)),
            "out": linear(get(layer.linear2.weight), get(layer.linear2.bias)),
        }
        block["feed_forward_norm"] = layer_norm(get, last_norm)
        params[str(i)] = block
    if norm == "pre":
        params["norm"] = layer_norm(get, module.norm)
    return params


def value(parameter):
    return parameter.detach()


def gradient(parameter):
    return parameter.grad


def their_transformer(norm, activation):
    options = {
        "d_model": D,
        "nhead": H,
        "dim_feedforward": F,
        "dropout": 0.0,
        "activation": ACTIVATIONS[activation],
        "batch_first": True,
        "norm_first": norm == "pre",
    }

    def final():
        return torch.nn.LayerNorm(D) if norm == "pre" else None

    encoder = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(**options), N[0], norm=final(), enable_nested_tensor=False
    )
    decoder = torch.nn.TransformerDecoder(
        torch.nn.TransformerDecoderLayer(**options), N[1], norm=final()
    )
    model = torch.nn.Transformer(
        D, H, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
    ).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # no bias at 0, no gain at 1
    return model


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_erf", "silu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_loss_and_all_parameter_gradients(norm, activation, tied):
    torch.manual_seed(0)
    theirs = their_transformer(norm, activation)
    v_src, v_tgt = (19, 19) if tied else (17, 19)
    rng = np.random.default_rng(0)
    src, tgt = rng.integers(1, v_src, (B, S)), rng.integers(1, v_tgt, (B, T + 1))
    src[1, 5:] = src[2, 3:] = tgt[1, 4:] = 0
    tgt_in, tgt_out = tgt[:, :-1], tgt[:, 1:]

    model = Transformer(
        v_src,
        v_tgt,
        d_model=D,
        n_heads=H,
        n_layers=N,
        d_ff=F,
        dropout=0.0,
        norm=norm,
        activation=activation,
        tie_embeddings=tied,
        dtype="float64",
    )
    params = model.init(0)
    params["encoder"], params["decoder"] = (
        stack(value, m, norm) for m in (theirs.encoder, theirs.decoder)
    )
    params["output"]["bias"] += 0.1 * rng.standard_normal(v_tgt)

    ends = {name: params[name] for name in params if name not in ("encoder", "decoder")}
    ends = tree.map_leaves(lambda x: torch.tensor(x, requires_grad=True), ends)
    source = ends["embedding" if tied else "source_embedding"]
    target = ends["embedding" if tied else "target_embedding"]
    output = ends["embedding"].T if tied else ends["output"]["weight"]

    def embed(table, ids):
        positions = torch.tensor(reference.sinusoidal_encoding(ids.shape[1], D))
        return (table[torch.tensor(ids)] * D**0.5 + positions) * torch.tensor(ids != 0)[..., None]

    y = theirs(
        embed(source, src),
        embed(target, tgt_in),
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        src_key_padding_mask=torch.tensor(src == 0),
        memory_key_padding_mask=torch.tensor(src == 0),
        tgt_key_padding_mask=torch.tensor(tgt_in == 0),
    )
    logits = y @ output + ends["output"]["bias"]
    their_loss = functional.cross_entropy(
        logits.reshape(-1, v_tgt),
        torch.tensor(tgt_out).reshape(-1),
        ignore_index=0,
        label_smoothing=0.1,
    )
    their_loss.backward()
    wanted = tree.map_leaves(lambda x: x.grad.numpy(), ends)
    wanted["encoder"], wanted["decoder"] = (
        stack(gradient, m, norm) for m in (theirs.encoder, theirs.decoder)
    )

    counted = tgt_out != 0
    ours = model.logits(params, src, tgt_in)
    assert_close(ours[counted], logits.detach().numpy()[counted], 1e-10)
    loss, grads, _ = model.loss_and_grad(params, src, tgt_in, tgt_out, label_smoothing=0.1)
    assert abs(loss - their_loss.item()) <= 1e-10
    for path, grad in tree.leaves(grads):
        expected = dict(tree.leaves(wanted))[path]
        assert np.abs(expected).max() > 1e-6 or path.endswith("bias"), path
        np.testing.assert_allclose(grad, expected, rtol=0, atol=1e-10, err_msg=path)
