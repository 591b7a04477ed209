"""Programs with PyTorch's ``nn.Transformer``.

Their state dicts load, compute the same, and are saved as they were.
"""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import refuses

from npformer import Encoder, LanguageModel, pretrained, sinusoidal_encoding
from npformer.training import CheckpointError

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")

V_SRC, V_TGT, D, H, F = 11, 13, 12, 3, 17
NAMES = {"source_embedding": "src_embed", "target_embedding": "tgt_embed", "output": "out"}


class Program(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.src_embed, self.tgt_embed = torch.nn.Embedding(V_SRC, D), torch.nn.Embedding(V_TGT, D)
        self.inner = torch.nn.Transformer(
            D, H, dim_feedforward=F, batch_first=True, dropout=0.0, **options
        )
        self.out = torch.nn.Linear(D, V_TGT)

    def forward(self, src, tgt):
        hidden = torch.nn.Transformer.generate_square_subsequent_mask(
            tgt.shape[1], dtype=torch.float64
        )
        is_padding = src == 0
        options = {
            "src_key_padding_mask": is_padding,
            "memory_key_padding_mask": is_padding,
            "tgt_mask": hidden,
        }
        source = torch.where(is_padding[..., None], 0.0, self.src_embed(src))
        return self.out(self.inner(source, self.tgt_embed(tgt), **options))


@pytest.mark.parametrize(("norm_first", "activation"), [(False, "relu"), (True, "gelu")])
@pytest.mark.parametrize("as_file", [True, False], ids=["file", "dict"])
def test_a_state_dict_is_loaded_and_saved(norm_first, activation, as_file, tmp_path):
    torch.manual_seed(0)
    options = {
        "num_encoder_layers": 3,
        "num_decoder_layers": 2,
        "norm_first": norm_first,
        "activation": activation,
    }
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

    pretrained.save(
        tmp_path / "again.safetensors", model, params, names=NAMES | {"transformer": "inner"}
    )
    from safetensors.torch import load_file

    again = load_file(tmp_path / "again.safetensors")
    assert again.keys() == state.keys()
    assert all(torch.equal(again[name], x) for name, x in state.items())


def test_what_is_missing_is_named():
    state = Program(num_encoder_layers=1, num_decoder_layers=1).state_dict()
    for names, message in [
        (
            None,
            (
                "names lacks source_embedding, target_embedding, output: .*out.bias, "
                "out.weight, src_embed.weight"
            ),
        ),
        (NAMES | {"output": "head"}, "names has head, expected modules of the tensors out.bias"),
    ]:
        refuses(ValueError, message, pretrained.load, state, names=names, n_heads=H)
    with pytest.raises(
        ValueError, match="missing: decoder.layers.0.norm1.bias, decoder.layers.0.norm1.weight;"
    ):
        pretrained.load(
            {k: v for k, v in state.items() if "decoder.layers.0.norm1" not in k},
            names=NAMES,
            n_heads=H,
        )


SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1}
SRC, TGT = np.array([[3, 4, 5, 1], [6, 7, 0, 0]]), np.array([[1, 3, 4], [1, 9, 8]])


def noisy(program):
    """The program in float64, with random numbers also where PyTorch begins with 0 or 1."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in program.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return program.double().eval()


def assert_same_logits(program, state, names=NAMES, **settings):
    """Ours, loaded from the state, computes what the program computes."""
    model, params, _ = pretrained.load(state, names=names, n_heads=H, dtype="float64", **settings)
    wanted = program(torch.tensor(SRC), torch.tensor(TGT)).detach().numpy()
    np.testing.assert_allclose(model.logits(params, SRC, TGT), wanted, rtol=1e-10, atol=1e-12)
    return model


def test_a_transformer_without_biases_is_loaded():
    program = noisy(Program(bias=False, **SMALL))
    assert_same_logits(program, program.state_dict())


def test_parameters_are_loaded_as_a_state_dict_is():
    program = noisy(Program(**SMALL))
    assert_same_logits(program, dict(program.named_parameters()))


@pytest.mark.parametrize("is_named", [True, False])
def test_the_names_of_a_program_on_several_devices_are_read(is_named):
    program = noisy(Program(**SMALL))
    state = {f"module.{name}": x for name, x in program.state_dict().items()}
    names = {role: f"module.{module}" for role, module in NAMES.items()} if is_named else NAMES
    assert_same_logits(program, state, names)


def test_embeddings_may_stand_in_the_module_of_the_layers():
    program = noisy(Program(**SMALL))
    state = {f"net.{name.removeprefix('inner.')}": x for name, x in program.state_dict().items()}
    assert_same_logits(program, state, {role: f"net.{module}" for role, module in NAMES.items()})


def test_bfloat16_becomes_float32():
    program = Program(**SMALL).to(torch.bfloat16)
    model, params, _ = pretrained.load(program.state_dict(), names=NAMES, n_heads=H)
    wanted = program.src_embed.weight.detach().float().numpy()
    assert_array_equal(params["source_embedding"], wanted)


class WithSines(Program):
    """A program that keeps a table of sines, as PyTorch's tutorial does."""

    def __init__(self, layout, shape, **options):
        super().__init__(**options)
        self.register_buffer("pe", torch.tensor(sinusoidal_encoding(9, D, layout)).reshape(shape))

    def forward(self, src, tgt):
        table = self.pe.reshape(9, D)
        hidden = torch.nn.Transformer.generate_square_subsequent_mask(
            tgt.shape[1], dtype=torch.float64
        )
        is_padding = src == 0
        source = self.src_embed(src) + table[: src.shape[1]]
        source = torch.where(is_padding[..., None], 0.0, source)
        options = {
            "src_key_padding_mask": is_padding,
            "memory_key_padding_mask": is_padding,
            "tgt_mask": hidden,
        }
        return self.out(self.inner(source, self.tgt_embed(tgt) + table[: tgt.shape[1]], **options))


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
@pytest.mark.parametrize("shape", [(9, D), (1, 9, D), (9, 1, D)])
def test_a_table_of_sines_says_which_positions_there_are(layout, shape):
    program = noisy(WithSines(layout, shape, **SMALL))
    model = assert_same_logits(program, program.state_dict())
    assert model.positions == {"interleaved": "sinusoidal"}.get(layout, "sinusoidal_concatenated")


def test_another_buffer_is_named():
    program = Program(**SMALL)
    program.register_buffer("mask", torch.ones(3, 3))
    with pytest.raises(
        CheckpointError,
        match="names says nothing of mask: learned positions are named, .*leave out masks",
    ):
        pretrained.load(program.state_dict(), names=NAMES, n_heads=H)


class OneStack(torch.nn.Module):
    """An embedding, an nn.TransformerEncoder and a linear map."""

    def __init__(self, n_outputs, hides_future, bias):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(
            D, H, F, dropout=0.0, batch_first=True, activation="gelu"
        )
        self.embed = torch.nn.Embedding(V_SRC, D)
        self.pos = torch.nn.Parameter(torch.randn(1, 9, D))
        self.transformer_encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fc = torch.nn.Linear(D, n_outputs, bias=bias)
        self.hides_future = hides_future

    def forward(self, ids):
        T = ids.shape[1]
        mask = torch.nn.Transformer.generate_square_subsequent_mask(T, dtype=torch.float64)
        x = self.embed(ids) + self.pos[:, :T]
        return self.fc(self.transformer_encoder(x, mask=mask if self.hides_future else None))


ONE_STACK = {"embedding": "embed", "positions": "pos", "output": "fc"}


@pytest.mark.parametrize(("model", "n_outputs"), [(LanguageModel, V_SRC), (Encoder, 5)])
def test_one_stack_is_what_the_caller_says(model, n_outputs):
    is_language_model = model is LanguageModel
    program = noisy(OneStack(n_outputs, hides_future=is_language_model, bias=not is_language_model))
    options = {
        "names": ONE_STACK,
        "n_heads": H,
        "dtype": "float64",
        "activation": "gelu_erf",
        "pad_id": None,
    }
    ours, params, _ = pretrained.load(program.state_dict(), model=model, **options)
    ids = np.array([[3, 4, 5, 1], [6, 7, 2, 8]])
    logits = ours.logits(params, ids) if is_language_model else ours.outputs(params, ids)
    wanted = program(torch.tensor(ids)).detach().numpy()
    np.testing.assert_allclose(logits, wanted, rtol=1e-10, atol=1e-12)
    message = r"has only the layers of an nn.TransformerEncoder, transformer_encoder"
    refuses(CheckpointError, message, pretrained.load, program.state_dict(), **options)


def test_the_bias_of_the_output_of_a_language_model_is_refused():
    program = OneStack(V_SRC, hides_future=True, bias=True)
    with pytest.raises(
        CheckpointError, match=r"fc\.bias: the output of a LanguageModel has no bias"
    ):
        pretrained.load(program.state_dict(), names=ONE_STACK, n_heads=H, model=LanguageModel)
