"""The whole model against ``torch.nn.Transformer`` in float64.

Loss, and every parameter's gradient.
"""

from functools import partial

import numpy as np
import pytest
from oracles import assert_close

from npformer import Transformer, reference, tree

torch = pytest.importorskip("torch")
functional = torch.nn.functional

B, S, T, H, K, F, N = 3, 7, 5, 2, 11, 13, (2, 1)
D = H * K
ACTIVATIONS = {"relu": "relu", "gelu_erf": "gelu", "silu": functional.silu}
ACTIVATIONS["gelu"] = partial(functional.gelu, approximate="tanh")


def value(parameter):
    return parameter.detach().numpy()


def gradient(parameter):
    return parameter.grad.numpy()


def linear(get, m):
    return {"weight": get(m.weight).T, "bias": get(m.bias)}


def layer_norm(get, m):
    return {"gain": get(m.weight), "bias": get(m.bias)}


def attention(get, m, names):
    """The rows of PyTorch's packed map are those of q, k and v."""
    weight, bias = get(m.in_proj_weight), get(m.in_proj_bias)
    params = {"out": linear(get, m.out_proj)}
    begin = 0
    for name in names:
        rows = slice(begin, begin + D * len(name))
        params[name] = {"weight": weight[rows].T, "bias": bias[rows]}
        begin = rows.stop
    return params


def stack(get, module):
    """One stack in our layout: ``get`` takes a torch parameter's values or its gradient."""
    params = {}
    for i, layer in enumerate(module.layers):
        block = {
            "attention": attention(get, layer.self_attn, ["qkv"]),
            "attention_norm": layer_norm(get, layer.norm1),
        }
        last_norm = layer.norm2
        if hasattr(layer, "multihead_attn"):
            block["memory_attention"] = attention(get, layer.multihead_attn, ["q", "kv"])
            block["memory_attention_norm"] = layer_norm(get, layer.norm2)
            last_norm = layer.norm3
        block["feed_forward"] = {
            "hidden": linear(get, layer.linear1),
            "out": linear(get, layer.linear2),
        }
        block["feed_forward_norm"] = layer_norm(get, last_norm)
        params[str(i)] = block
    if module.norm is not None:
        params["norm"] = layer_norm(get, module.norm)
    return tree.map_leaves(np.copy, params)


def their_transformer(norm, activation):
    options = {"d_model": D, "nhead": H, "dim_feedforward": F, "dropout": 0.0}
    options |= {"activation": ACTIVATIONS[activation], "batch_first": True}
    options["norm_first"] = norm == "pre"

    def of_layers(stack, layer, n, **more):
        final = torch.nn.LayerNorm(D) if norm == "pre" else None
        return stack(layer(**options), n, norm=final, **more)

    nn = torch.nn
    unnested = {"enable_nested_tensor": False}
    encoder = of_layers(nn.TransformerEncoder, nn.TransformerEncoderLayer, N[0], **unnested)
    decoder = of_layers(nn.TransformerDecoder, nn.TransformerDecoderLayer, N[1])
    stacks = {"custom_encoder": encoder, "custom_decoder": decoder}
    model = nn.Transformer(D, H, **stacks, batch_first=True).double()
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
    src = rng.integers(1, v_src, (B, S))
    tgt = rng.integers(1, v_tgt, (B, T + 1))
    src[1, 5:] = src[2, 3:] = tgt[1, 4:] = 0
    tgt_in, tgt_out = tgt[:, :-1], tgt[:, 1:]

    options = {"norm": norm, "activation": activation, "tie_embeddings": tied, "dropout": 0.0}
    model = Transformer(v_src, v_tgt, D, H, N, F, **options, dtype="float64")
    params = model.init(0)
    params["encoder"] = stack(value, theirs.encoder)
    params["decoder"] = stack(value, theirs.decoder)
    params["output"]["bias"] += 0.1 * rng.standard_normal(v_tgt)

    ends = {name: params[name] for name in params if name not in ("encoder", "decoder")}
    ends = tree.map_leaves(lambda x: torch.tensor(x, requires_grad=True), ends)
    source = ends["embedding" if tied else "source_embedding"]
    target = ends["embedding" if tied else "target_embedding"]
    output = ends["embedding"].T if tied else ends["output"]["weight"]

    def embed(table, ids):
        positions = torch.tensor(reference.sinusoidal_encoding(ids.shape[1], D))
        words = torch.tensor(ids != 0)[..., None]
        return (table[torch.tensor(ids)] * D**0.5 + positions) * words

    is_padding = torch.tensor(src == 0)
    y = theirs(
        embed(source, src),
        embed(target, tgt_in),
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        src_key_padding_mask=is_padding,
        memory_key_padding_mask=is_padding,
        tgt_key_padding_mask=torch.tensor(tgt_in == 0),
    )
    logits = y @ output + ends["output"]["bias"]
    options = {"ignore_index": 0, "label_smoothing": 0.1}
    their_loss = functional.cross_entropy(logits.mT, torch.tensor(tgt_out), **options)
    their_loss.backward()
    wanted = tree.map_leaves(gradient, ends)
    wanted["encoder"] = stack(gradient, theirs.encoder)
    wanted["decoder"] = stack(gradient, theirs.decoder)

    counted = tgt_out != 0
    ours = model.logits(params, src, tgt_in)
    assert_close(ours[counted], logits.detach().numpy()[counted], 1e-10)
    loss, grads, _ = model.loss_and_grad(params, src, tgt, label_smoothing=0.1)
    assert abs(loss - their_loss.item()) <= 1e-10
    wanted = dict(tree.leaves(wanted))
    for path, grad in tree.leaves(grads):
        assert np.abs(wanted[path]).max() > 1e-6 or path.endswith("bias"), path
        np.testing.assert_allclose(grad, wanted[path], rtol=0, atol=1e-10, err_msg=path)
