"""Programs with PyTorch's ``nn.Transformer``: their state dicts load, compute the same, and are saved as they were."""

import numpy as np
import pytest

from npformer import pretrained

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")

V_SRC, V_TGT, D, H, F = 11, 13, 12, 3, 17
NAMES = {"source_embedding": "src_embed", "target_embedding": "tgt_embed", "output": "out"}


class Program(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.src_embed, self.tgt_embed = torch.nn.Embedding(V_SRC, D), torch.nn.Embedding(V_TGT, D)
        self.inner = torch.nn.Transformer(D, H, dim_feedforward=F, batch_first=True, dropout=0.0, **options)
        self.out = torch.nn.Linear(D, V_TGT)

    def forward(self, src, tgt):
        hidden = torch.nn.Transformer.generate_square_subsequent_mask(tgt.shape[1], dtype=torch.float64)
        is_padding = src == 0
        options = {"src_key_padding_mask": is_padding, "memory_key_padding_mask": is_padding, "tgt_mask": hidden}
        source = torch.where(is_padding[..., None], 0.0, self.src_embed(src))
        return self.out(self.inner(source, self.tgt_embed(tgt), **options))


@pytest.mark.parametrize(("norm_first", "activation"), [(False, "relu"), (True, "gelu")])
@pytest.mark.parametrize("as_file", [True, False], ids=["file", "dict"])
def test_a_state_dict_is_loaded_and_saved(norm_first, activation, as_file, tmp_path):
    torch.manual_seed(0)
    options = {"num_encoder_layers": 3, "num_decoder_layers": 2, "norm_first": norm_first, "activation": activation}
    program = Program(**options).double().eval()
    with torch.no_grad():
        for parameter in program.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    state = program.state_dict()
    if as_file:
        from safetensors.torch import save_file

        save_file(state, tmp_path / "state.safetensors")
    settings = {"n_heads": H, "norm": "pre" if norm_first else "post", "dtype": "float64"}
    settings["activation"] = {"gelu": "gelu_erf"}.get(activation, activation)
    model, params, tokenizer = pretrained.load(
        tmp_path / "state.safetensors" if as_file else state, names=NAMES, **settings
    )
    src, tgt = np.array([[3, 4, 5, 1], [6, 7, 0, 0]]), np.array([[1, 3, 4], [1, 9, 8]])
    wanted = program(torch.tensor(src), torch.tensor(tgt)).detach().numpy()
    np.testing.assert_allclose(model.logits(params, src, tgt), wanted, rtol=1e-10, atol=1e-12)
    assert tokenizer is None

    pretrained.save(tmp_path / "again.safetensors", model, params, names=NAMES | {"transformer": "inner"})
    from safetensors.torch import load_file

    again = load_file(tmp_path / "again.safetensors")
    assert again.keys() == state.keys()
    assert all(torch.equal(again[name], x) for name, x in state.items())


def test_what_is_missing_is_named():
    state = Program(num_encoder_layers=1, num_decoder_layers=1).state_dict()
    for names, message in [
        (None, "names lacks source_embedding, target_embedding, output: .*out.bias, out.weight, src_embed.weight"),
        (NAMES | {"output": "head"}, "names has head, expected modules of the tensors out.bias"),
    ]:
        with pytest.raises(ValueError, match=message):
            pretrained.load(state, names=names, n_heads=H)
    with pytest.raises(ValueError, match="missing: decoder.layers.0.norm1.bias, decoder.layers.0.norm1.weight;"):
        pretrained.load({k: v for k, v in state.items() if "decoder.layers.0.norm1" not in k}, names=NAMES, n_heads=H)
