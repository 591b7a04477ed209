"""The whole model against ``torch.nn.Transformer`` in float64: output and every parameter's gradient."""

import numpy as np
import pytest

from npformer import Transformer, reference, tree

torch = pytest.importorskip("torch")

B, S, T, H, K, F, N = 3, 7, 5, 2, 11, 13, 2
D = H * K


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


def load(module, norm):
    """Our parameters of one encoder or decoder stack, taken from torch's."""

    def linear(weight, bias):
        return {"weight": weight.detach().numpy().T.copy(), "bias": bias.detach().numpy().copy()}

    def layer_norm(m):
        return {"gain": m.weight.detach().numpy().copy(), "bias": m.bias.detach().numpy().copy()}

    def attention(m, memory=False):
        out = linear(m.out_proj.weight, m.out_proj.bias)
        if not memory:
            return {"qkv": linear(m.in_proj_weight, m.in_proj_bias), "out": out}
        return {
            "q": linear(m.in_proj_weight[:D], m.in_proj_bias[:D]),
            "kv": linear(m.in_proj_weight[D:], m.in_proj_bias[D:]),
            "out": out,
        }

    params = {}
    for i, layer in enumerate(module.layers):
        block = {"attention": attention(layer.self_attn), "attention_norm": layer_norm(layer.norm1)}
        last_norm = layer.norm2
        if hasattr(layer, "multihead_attn"):
            block["memory_attention"] = attention(layer.multihead_attn, memory=True)
            block["memory_attention_norm"] = layer_norm(layer.norm2)
            last_norm = layer.norm3
        block["feed_forward"] = {
            "hidden": linear(layer.linear1.weight, layer.linear1.bias),
            "out": linear(layer.linear2.weight, layer.linear2.bias),
        }
        block["feed_forward_norm"] = layer_norm(last_norm)
        params[str(i)] = block
    if norm == "pre":
        params["norm"] = layer_norm(module.norm)
    return params


def gradients_of(module, norm):
    """Torch's gradients in our layout: load() applied to a module whose weights are its gradients."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.grad)
    return load(module, norm)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_forward_and_all_parameter_gradients(norm):
    torch.manual_seed(0)
    options = dict(  # noqa: C408
        d_model=D,
        nhead=H,
        dim_feedforward=F,
        dropout=0.0,
        activation="relu",
        batch_first=True,
        norm_first=norm == "pre",
    )
    final = {"norm": torch.nn.LayerNorm(D)} if norm == "pre" else {}
    their_encoder = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(**options), N, enable_nested_tensor=False, **final
    )
    final = {"norm": torch.nn.LayerNorm(D)} if norm == "pre" else {}
    their_decoder = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(**options), N, **final)
    theirs = torch.nn.Transformer(
        D, H, custom_encoder=their_encoder, custom_decoder=their_decoder, batch_first=True
    ).double()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # no bias at 0, no gain at 1

    src = np.random.default_rng(0).integers(1, 17, (B, S))
    src[1, 5:] = 0
    src[2, 3:] = 0
    tgt = np.random.default_rng(1).integers(1, 19, (B, T))
    tgt[1, 3:] = 0

    model = Transformer(17, 19, d_model=D, n_heads=H, n_layers=N, d_ff=F, norm=norm, dropout=0.0, dtype="float64")
    params = model.init(0)
    params["encoder"], params["decoder"] = load(theirs.encoder, norm), load(theirs.decoder, norm)

    memory, encode_backward = model._encode(reference, params, src)
    y, decode_backward = model._decode(reference, params, memory, src, tgt)
    dy = np.random.default_rng(2).standard_normal(y.shape)
    dy[tgt == 0] = 0  # the loss counts no padding
    dmemory, decoder_grads, tgt_table_grad = decode_backward(dy)
    encoder_grads, src_table_grad = encode_backward(dmemory)

    # theirs begins after the embedding
    tables = {name: tensor(params[f"{name}_embedding"]).requires_grad_() for name in ("source", "target")}

    def embed(table, ids):
        x = table[torch.tensor(ids)] * D**0.5 + tensor(model._positions[: ids.shape[1]])
        return x * tensor(ids != 0)[..., None]

    causal = torch.ones(T, T, dtype=torch.bool).triu(1)
    their_y = theirs(
        embed(tables["source"], src),
        embed(tables["target"], tgt),
        tgt_mask=causal,
        src_key_padding_mask=torch.tensor(src == 0),
        memory_key_padding_mask=torch.tensor(src == 0),
        tgt_key_padding_mask=torch.tensor(tgt == 0),
    )
    np.testing.assert_allclose(y[tgt != 0], their_y.detach().numpy()[tgt != 0], rtol=0, atol=1e-10)
    their_y.backward(tensor(dy))

    pairs = {
        "encoder": (encoder_grads, gradients_of(theirs.encoder, norm)),
        "decoder": (decoder_grads, gradients_of(theirs.decoder, norm)),
        "source": (src_table_grad, tables["source"].grad.numpy()),
        "target": (tgt_table_grad, tables["target"].grad.numpy()),
    }
    compared = 0
    for ours, wanted in pairs.values():
        for (path, x), (_, z) in zip(tree.leaves(ours), tree.leaves(wanted), strict=True):
            assert np.abs(z).max() > 0 or path.endswith("bias"), path
            np.testing.assert_allclose(x, z, rtol=0, atol=1e-10, err_msg=path)
            compared += x.size
    assert compared == tree.count({"encoder": params["encoder"], "decoder": params["decoder"]}) + (17 + 19) * D
