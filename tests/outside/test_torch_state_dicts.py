"""Programs with PyTorch's ``nn.Transformer``.

Their state dicts load, compute the same, loss and gradients too, and are saved as they were.
"""

import copy
import re
from collections import defaultdict
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_close
from promises import assert_trees_close
from refusals import refuses

from npformer import Encoder, LanguageModel, pretrained, sinusoidal_encoding, tree
from npformer.training import CheckpointError

torch = pytest.importorskip("torch")
functional = torch.nn.functional

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")

V_SRC, V_TGT, D, H, F = 11, 13, 12, 3, 17
NAMES = {"source_embedding": "src_embed", "target_embedding": "tgt_embed", "output": "out"}
SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1}
SRC = np.array([[3, 4, 5, 1], [6, 7, 0, 0]])
TGT = np.array([[1, 3, 4], [1, 9, 8]])


class Program(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.src_embed = torch.nn.Embedding(V_SRC, D)
        self.tgt_embed = torch.nn.Embedding(V_TGT, D)
        sizes = {"dim_feedforward": F, "batch_first": True, "dropout": 0.0}
        self.inner = torch.nn.Transformer(D, H, **sizes, **options)
        self.out = torch.nn.Linear(D, V_TGT)

    def positions(self, length):
        return 0.0

    def forward(self, src, tgt):
        is_padding = src == 0
        T = tgt.shape[1]
        source = self.src_embed(src) + self.positions(src.shape[1])
        source = torch.where(is_padding[..., None], 0.0, source)
        target = self.tgt_embed(tgt) + self.positions(T)
        options = {"src_key_padding_mask": is_padding, "memory_key_padding_mask": is_padding}
        options["tgt_key_padding_mask"] = tgt == 0
        return self.out(self.inner(source, target, tgt_mask=future(T), **options))


def future(T):
    return torch.ones(T, T, dtype=torch.bool).triu(1)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("as_file", [True, False], ids=["file", "dict"])
def test_a_state_dict_is_loaded_and_saved(norm, as_file, tmp_path):
    from safetensors.torch import load_file, save_file

    activation = "gelu" if norm == "pre" else "relu"
    options = {"norm_first": norm == "pre", "activation": activation}
    program = noisy(Program(num_encoder_layers=3, num_decoder_layers=2, **options))
    state = program.state_dict()
    path = tmp_path / "state.safetensors"
    save_file(state, path)
    settings = {"norm": norm, "activation": "gelu_erf" if activation == "gelu" else activation}
    model, params = assert_same_logits(program, path if as_file else state, **settings)

    names = NAMES | {"transformer": "inner"}
    pretrained.save(tmp_path / "again.safetensors", model, params, names=names)
    again = load_file(tmp_path / "again.safetensors")
    assert again.keys() == state.keys()
    assert all(torch.equal(again[name], x) for name, x in state.items())


def test_what_is_missing_is_named():
    def refused(message, state, names):
        refuses(ValueError, message, pretrained.load, state, names=names, n_heads=H)

    state = Program(**SMALL).state_dict()
    roles = "source_embedding, target_embedding, output"
    refused(f"names lacks {roles}: .*out.bias, out.weight, src_embed.weight", state, None)
    unknown = "names has head, expected modules of the tensors out.bias"
    refused(unknown, state, NAMES | {"output": "head"})
    norm = "decoder.layers.0.norm1"
    without = {name: x for name, x in state.items() if norm not in name}
    refused(f"missing: {norm}.bias, {norm}.weight;", without, NAMES)


def noisy(program):
    """The program in float64, with random numbers also where PyTorch begins with 0 or 1."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in program.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return program.double().eval()


def assert_same_logits(program, state, names=NAMES, **settings):
    """Ours, loaded from the state, computes what the program computes."""
    settings |= {"n_heads": H, "dtype": "float64"}
    model, params, tokenizer = pretrained.load(state, names=names, **settings)
    assert tokenizer is None
    wanted = program(torch.tensor(SRC), torch.tensor(TGT)).detach().numpy()
    assert_close(model.logits(params, SRC, TGT), wanted, 1e-10)
    return model, params


@pytest.mark.parametrize("bias", [True, False])
def test_parameters_are_loaded_as_a_state_dict_is(bias):
    program = noisy(Program(bias=bias, **SMALL))
    assert_same_logits(program, dict(program.named_parameters()))


ACTIVATIONS = {"relu": "relu", "gelu_erf": "gelu", "silu": functional.silu}
ACTIVATIONS["gelu"] = partial(functional.gelu, approximate="tanh")


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_loss_and_all_parameter_gradients(norm, activation):
    options = {"norm_first": norm == "pre", "activation": ACTIVATIONS[activation]}
    program = noisy(Program(num_encoder_layers=2, num_decoder_layers=1, **options)).train()
    tgt = np.array([[1, 3, 4, 5, 2], [1, 9, 8, 2, 0]])
    ids = torch.tensor(tgt)
    logits = program(torch.tensor(SRC), ids[:, :-1])
    options = {"ignore_index": 0, "label_smoothing": 0.1}
    their_loss = functional.cross_entropy(logits.mT, ids[:, 1:], **options)
    their_loss.backward()

    settings = {"n_heads": H, "norm": norm, "activation": activation, "dtype": "float64"}
    load = partial(pretrained.load, names=NAMES, **settings)
    model, params, _ = load(program.state_dict())
    _, wanted, _ = load({name: x.grad for name, x in program.named_parameters()})
    loss, grads, _ = model.loss_and_grad(params, SRC, tgt, label_smoothing=0.1)
    assert_close(loss, their_loss.item(), 1e-10)
    assert_trees_close(grads, wanted, 1e-10)
    for path, grad in tree.leaves(grads):
        assert np.abs(grad).max() > 1e-6 or path.endswith("bias"), path


@pytest.mark.parametrize("is_named", [True, False])
def test_the_names_of_a_program_on_several_devices_are_read(is_named):
    program = noisy(Program(**SMALL))
    state = {f"module.{name}": x for name, x in program.state_dict().items()}
    names = NAMES
    if is_named:
        names = {role: f"module.{module}" for role, module in NAMES.items()}
    assert_same_logits(program, state, names)


def test_embeddings_may_stand_in_the_module_of_the_layers():
    program = noisy(Program(**SMALL))
    state = {f"net.{name.removeprefix('inner.')}": x for name, x in program.state_dict().items()}
    names = {role: f"net.{module}" for role, module in NAMES.items()}
    assert_same_logits(program, state, names)


def test_bfloat16_becomes_float32():
    program = Program(**SMALL).to(torch.bfloat16)
    model, params, _ = pretrained.load(program.state_dict(), names=NAMES, n_heads=H)
    wanted = program.src_embed.weight.detach().float().numpy()
    assert_array_equal(params["source_embedding"], wanted)


class WithSines(Program):
    """A program that keeps a table of sines, as PyTorch's tutorial does."""

    def __init__(self, layout, shape, **options):
        super().__init__(**options)
        table = torch.tensor(sinusoidal_encoding(9, D, layout))
        self.register_buffer("pe", table.reshape(shape))

    def positions(self, length):
        return self.pe.reshape(9, D)[:length]


LAYOUTS = {"interleaved": "sinusoidal", "concatenated": "sinusoidal_concatenated"}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(9, D), (1, 9, D), (9, 1, D)])
def test_a_table_of_sines_says_which_positions_there_are(layout, shape):
    program = noisy(WithSines(layout, shape, **SMALL))
    model, _ = assert_same_logits(program, program.state_dict())
    assert model.positions == LAYOUTS[layout]


@pytest.mark.parametrize("buffer", [torch.ones(3, 3), torch.arange(9)[None]], ids=["mask", "ids"])
def test_another_buffer_is_named(buffer):
    program = Program(**SMALL)
    program.register_buffer("mask", buffer)
    message = "names says nothing of mask: learned positions are named, .*leave out masks"
    options = {"names": NAMES, "n_heads": H}
    refuses(CheckpointError, message, pretrained.load, program.state_dict(), **options)


class OneStack(torch.nn.Module):
    """An embedding, an nn.TransformerEncoder and a linear map."""

    def __init__(self, n_outputs, hides_future=False, bias=True, D=D, H=H, n_layers=2, T=9):
        super().__init__()
        options = {"dropout": 0.0, "batch_first": True, "activation": "gelu"}
        layer = torch.nn.TransformerEncoderLayer(D, H, F, **options)
        self.embed = torch.nn.Embedding(V_SRC, D)
        self.pos = torch.nn.Parameter(torch.randn(1, T, D))
        stack = torch.nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)
        self.transformer_encoder = stack
        self.fc = torch.nn.Linear(D, n_outputs, bias=bias)
        self.hides_future = hides_future

    def forward(self, ids):
        T = ids.shape[1]
        x = self.embed(ids) + self.pos[:, :T]
        mask = future(T) if self.hides_future else None
        return self.fc(self.transformer_encoder(x, mask=mask))


ONE_STACK = {"embedding": "embed", "positions": "pos", "output": "fc"}


@pytest.mark.parametrize("model", [LanguageModel, Encoder])
def test_one_stack_is_what_the_caller_says(model):
    is_language_model = model is LanguageModel
    n_outputs = V_SRC if is_language_model else 5
    program = noisy(OneStack(n_outputs, hides_future=is_language_model, bias=not is_language_model))
    state = program.state_dict()
    options = {"names": ONE_STACK, "n_heads": H, "pad_id": None, "activation": "gelu_erf"}
    ours, params, _ = pretrained.load(state, model=model, dtype="float64", **options)
    ids = np.array([[3, 4, 5, 1], [6, 7, 2, 8]])
    logits = ours.logits(params, ids) if is_language_model else ours.outputs(params, ids)
    wanted = program(torch.tensor(ids)).detach().numpy()
    assert_close(logits, wanted, 1e-10)
    message = r"has only the layers of an nn.TransformerEncoder, transformer_encoder"
    refuses(CheckpointError, message, pretrained.load, state, **options)


def test_the_bias_of_the_output_of_a_language_model_is_refused():
    program = OneStack(V_SRC, hides_future=True, bias=True)
    message = r"fc\.bias: the output of a LanguageModel has no bias"
    options = {"names": ONE_STACK, "n_heads": H, "model": LanguageModel}
    refuses(CheckpointError, message, pretrained.load, program.state_dict(), **options)


# --- the gradients of a whole encoder in float32 are about as exact as those of PyTorch ---

LONG = {"D": 96, "H": 4, "n_layers": 4, "T": 200}


def hard_program(seed):
    """Parameters like BERT's, with large biases of queries, keys and values.

    What all keys share has to cancel.
    """
    torch.manual_seed(seed)
    program = OneStack(V_SRC, **LONG)
    with torch.no_grad():
        for name, parameter in program.named_parameters():
            if name.endswith("in_proj_bias"):
                parameter.normal_(std=3)
            elif parameter.ndim > 1:
                parameter.normal_(std=0.02)
    return program


def loaded(tensors):
    """A model and its parameters, or their gradients, of the tensors of a program."""
    options = {"names": ONE_STACK, "n_heads": LONG["H"], "pad_id": None, "activation": "gelu_erf"}
    model, params, _ = pretrained.load(tensors, model=Encoder, **options)
    return model, params


def their_gradients(program, ids, targets, dtype):
    """By autograd, in this dtype, with attention step by step."""
    program = copy.deepcopy(program).to(dtype)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        logits = program(torch.tensor(ids))
        functional.cross_entropy(logits.mT, torch.tensor(targets)).backward()
    _, grads = loaded({name: x.grad.double() for name, x in program.named_parameters()})
    return grads


def apart(grads):
    """By their kinds those of all layers; of queries, keys and values apart.

    Without the bias of the keys, whose gradient is 0.
    """
    found = defaultdict(list)
    for path, x in tree.leaves(grads):
        kind = re.sub(r"layers\.\d+\.", "", path)
        parts = dict(zip("qkv", np.split(x, 3, axis=-1), strict=True)) if "qkv" in kind else {"": x}
        for part, y in parts.items():
            found[kind + part].append(y)
    del found["attention.qkv.biask"]
    return found


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_no_kind_of_gradient_is_much_less_exact_than_that_of_pytorch(backend):
    """The layers of four models together.

    The error of one bias of queries is that of a few numbers, one a head. With the order of
    the sums, which processors choose, it varies by a factor of four in both libraries.
    """
    squares = defaultdict(lambda: np.zeros(2))
    for seed in range(4):
        program = hard_program(seed)
        batch = np.random.default_rng(seed).integers(1, V_SRC, (2, 2, LONG["T"]))
        exact = apart(their_gradients(program, *batch, torch.float64))
        theirs = apart(their_gradients(program, *batch, torch.float32))
        model, params = loaded(program.state_dict())
        _, grads, _ = model.loss_and_grad(params, *batch, backend=backend)
        for i, gradients in enumerate((apart(grads), theirs)):
            for kind, arrays in gradients.items():
                for x, wanted in zip(arrays, exact[kind], strict=True):
                    squares[kind][i] += (np.linalg.norm(x - wanted) / np.linalg.norm(wanted)) ** 2
    ratios = {kind: (ours / of_them) ** 0.5 for kind, (ours, of_them) in squares.items()}
    worst = max(ratios, key=ratios.get)
    assert ratios[worst] <= 2.5, (worst, ratios[worst])
