"""Whole models on the GPU. on_gpu.py describes what runs without a GPU."""

import functools
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from corpus import SETTINGS, write_corpus
from numpy.testing import assert_array_equal
from on_gpu import (
    MISSING,
    NO_GPU,
    ON_GPU,
    ON_PROCESSOR,
    cupy,
    cupy_installed,
    gpu,
    put,
    small_blocks,
    take,
)
from oracles import assert_all_close, assert_close
from refusals import refuses
from results import FIRST, arguments_of, run

from npformer.commands import copy

import npformer
from npformer import (
    SGD,
    Adam,
    AdamW,
    ByteNet,
    CopyTask,
    NonFiniteError,
    Recurrent,
    SequenceAutoencoder,
    Trainer,
    Transformer,
    beam_search,
    get_backend,
    greedy_decode,
    layers,
    reference,
    tree,
)
from npformer.models import LowRank
from npformer.training.precision import LossScale

recording = sys.modules["npformer.gpu.recording"]
rounded_up = recording.rounded_up

pytestmark = pytest.mark.skipif(bool(MISSING), reason=str(MISSING))
SRC = np.array([[3, 4, 5, 6, 7], [8, 3, 4, 0, 0]])
TGT = np.array([[1, 3, 4, 5, 2], [1, 8, 3, 2, 0]])
SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 12}
MODELS = {
    "pre-norm": Transformer(11, 11, **{**SIZES, "n_layers": 2}, activation="gelu"),
    "post-norm, tied": Transformer(11, 11, **SIZES, norm="post", tie_embeddings=True),
    "rotary": Transformer(11, 11, **SIZES, positions="rotary"),
    "learned positions": Transformer(11, 11, **SIZES, positions="learned", max_len=9),
    "GRU": Recurrent(11, 11, d_model=8, attention="general", cell="gru"),
    "LSTM": Recurrent(11, 11, d_model=8, attention="additive", cell="lstm"),
    "GRU, dot": Recurrent(11, 11, d_model=8, attention="dot", cell="gru"),
    "LSTM alone": Recurrent(11, 11, d_model=8, attention=None, cell="lstm"),
    "ByteNet": ByteNet(11, 11, d_model=8, n_sets=1, dilations=(1, 4)),
    "auto-encoder": SequenceAutoencoder(11, d_model=8, code_size=4),
}
# the reference computes a product, or reads a value
NOT_RECORDED = {"GRU", "GRU, dot", "LSTM", "ByteNet"}
WIDER = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 16}
SMALL = Transformer(11, 11, **WIDER, dropout=0.0)
TRAINED = MODELS | {"low rank": LowRank(SMALL, SMALL.init(0), rank=2, whole=("output",))}
SAME = np.full((4, 8), 3), np.full((4, 8), 4)  # a batch
IDS = {"bos_id": 1, "eos_id": 2, "max_len": 6}


@pytest.fixture(autouse=True)
def cupy_is_installed():
    with cupy_installed():
        yield


@pytest.fixture(autouse=True)
def blocks_are_small():
    """256 threads are tested operation by operation."""
    with small_blocks():
        yield


@pytest.fixture(autouse=True)
def batches_stay_small(monkeypatch):
    """Their rows and columns are filled up to multiples of 4, not of 8."""
    monkeypatch.setattr(recording, "rounded_up", lambda n: -(-n // 4) * 4)


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradient_are_those_of_the_reference(name):
    model = MODELS[name]
    params = tree.map_leaves(lambda x: x.astype("float64"), model.init(0))
    batch = SRC, TGT[:, :-1], TGT[:, 1:]
    results = []
    for ops, given in ((gpu, put(params)), (reference, params)):
        options = {"dropout_key": 3, "label_smoothing": 0.1, "backend": ops}
        results.append(take(model.loss_and_grad(given, *batch, **options)))
    (loss, grads, n), (expected, expected_grads, n_expected) = results
    assert n == n_expected
    np.testing.assert_allclose(float(loss), expected, rtol=1e-12)
    pairs = zip(tree.leaves(grads), tree.leaves(expected_grads), strict=True)
    for (path, x), (_, wanted) in pairs:
        atol = 1e-11 * np.abs(wanted).max()
        np.testing.assert_allclose(x, wanted, rtol=0, atol=atol, err_msg=path)


@pytest.mark.parametrize("name", MODELS)
def test_decoding_finds_what_the_reference_finds(name):
    model = MODELS[name]
    params = model.init(1)
    expected = greedy_decode(model, params, SRC, **IDS, backend=reference)
    assert_array_equal(greedy_decode(model, put(params), SRC, **IDS), expected)
    options = {**IDS, "beam_size": 3, "n_best": 3}
    found = beam_search(model, put(params), SRC, **options, backend=gpu)
    wanted = beam_search(model, params, SRC, **options, backend=reference)
    assert [[h.tokens for h in row] for row in found] == [[h.tokens for h in row] for row in wanted]


def trainer_on(backend):
    return Trainer(SMALL, Adam(0.01), clip_norm=1.0, label_smoothing=0.1, backend=backend)


def test_training_is_that_of_the_reference_and_goes_on_anywhere(tmp_path):
    task = CopyTask(max_len=5)
    on_gpu, on_cpu = trainer_on(gpu), trainer_on(reference)
    for step in range(4):
        losses = [trainer.step(*task.batch(step, 4)) for trainer in (on_gpu, on_cpu)]
        np.testing.assert_allclose(*losses, rtol=1e-5)
    assert isinstance(on_gpu.flat_params, cupy.ndarray)
    for trainer in (on_gpu, on_cpu):
        trainer.save(tmp_path / "last.safetensors")
        for backend in (gpu, reference):
            gone_on = trainer_on(backend)
            gone_on.load(tmp_path / "last.safetensors")
            assert_close(take(gone_on.flat_params), take(trainer.flat_params), 0)
            losses.append(gone_on.step(*task.batch(4, 4)))
    np.testing.assert_allclose(losses[2:], losses[2], rtol=1e-5)


@pytest.mark.parametrize("consistency", [0.0, 0.7])
def test_a_recorded_step_is_the_step_itself(consistency):
    """Of the batches of one shape, the first is computed normally, the second is recorded,
    the third is a replay.
    """
    model = Transformer(11, 11, **WIDER, dropout=0.3, tie_embeddings=True)
    rng = np.random.default_rng(0)
    options = {"clip_norm": 0.5, "consistency": consistency}
    on_gpu, on_cpu = (
        Trainer(model, Adam(0.01), backend=ops, **options) for ops in (gpu, reference)
    )
    for step in range(4):
        src, tgt = rng.integers(3, 11, (4, 8)), rng.integers(3, 11, (4, 9))
        tgt[:, 0], tgt[:step, 6:] = 1, 0
        reads = cupy.n_reads if NO_GPU else 0
        np.testing.assert_allclose(on_gpu.step(src, tgt), on_cpu.step(src, tgt), rtol=1e-4)
        if NO_GPU and step >= 2:  # the host waits once, for the loss and the norm
            assert cupy.n_reads - reads == 1
    assert all(on_gpu._run_step.recordings.values())
    message = r"src\[0, 0\] is 11, expected 0 <= id < 11"
    refuses(ValueError, message, on_gpu.step, src + 11 - src[0, 0], tgt)


@pytest.mark.parametrize(
    "optimizer", [SGD(0.01, momentum=np.float32(0.9)), AdamW(0.01, eps=np.float32(1e-8))], ids=str
)
def test_a_replay_whose_gradient_is_not_finite_changes_nothing(optimizer):
    trainers = [Trainer(SMALL, optimizer, clip_norm=1.0, backend=ops) for ops in (gpu, reference)]
    for _ in range(3):  # the third is a replay
        losses = [trainer.step(*SAME) for trainer in trainers]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    on_gpu, row = trainers[0], trainers[0].params["source_embedding"][3]
    good = row.copy()
    row[5] = np.nan
    before = [take(x) for x in on_gpu.state.arrays]
    refuses(NonFiniteError, "parameters are those of step 3", on_gpu.step, *SAME)
    for x, y in zip(on_gpu.state.arrays, before, strict=True):
        assert_array_equal(take(x), y)
    assert on_gpu.n_steps == 3
    row[...] = good
    for _ in range(2):  # recorded and accumulated steps follow each other
        np.testing.assert_allclose(*(trainer.step(*SAME) for trainer in trainers), rtol=1e-5)
        np.testing.assert_allclose(
            *(trainer.step(batches=[SAME, SAME]) for trainer in trainers), rtol=1e-5
        )


def test_a_replay_that_overflows_is_tried_again():
    trainers = [Trainer(SMALL, Adam(0.01), backend=gpu, precision="float16") for _ in range(2)]
    for _ in range(3):
        for trainer in trainers:
            trainer.step(*SAME)
    precisions = [trainer.state.precision for trainer in trainers]
    precisions[0].loss_scale = LossScale(2.0**18, 0)
    trainers[0].step(*SAME)
    lower = precisions[0].loss_scale.value
    assert lower < 2.0**18
    precisions[1].loss_scale = LossScale(lower, 0)
    trainers[1].step(*SAME)
    assert_array_equal(*(take(trainer.flat_params) for trainer in trainers))


@pytest.mark.parametrize("precision", ["tf32", "bfloat16", "float16"])
def test_lower_precision_goes_where_full_precision_goes(precision, tmp_path):
    if precision == "bfloat16":
        pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(0)
    full, lower = (
        Trainer(SMALL, Adam(0.01), backend=gpu, precision=name) for name in ("float32", precision)
    )
    # the third is a replay
    batches = [(rng.integers(3, 11, (4, 8)), rng.integers(3, 11, (4, 8))) for _ in range(3)]
    for src, tgt in batches:
        tgt[:, 0] = 1
        np.testing.assert_allclose(lower.step(src, tgt), full.step(src, tgt), rtol=0.02)
    assert lower.flat_params.dtype == np.float32
    lower.save(tmp_path / "last.safetensors")
    gone_on = Trainer(SMALL, Adam(0.01), backend=gpu, precision=precision)
    gone_on.load(tmp_path / "last.safetensors")
    assert gone_on.state.precision.loss_scale == lower.state.precision.loss_scale
    assert gone_on.step(*batches[0]) == lower.step(*batches[0])


def padded_batches():
    rng = np.random.default_rng(0)
    for step in range(3):
        src, tgt = rng.integers(3, 11, (4, 8)), rng.integers(3, 11, (4, 9))
        tgt[:, 0], src[:step, 5:], tgt[:step, 6:] = 1, 0, 0
        yield src, tgt


@functools.cache
def losses_of_the_reference(name):
    trainer = Trainer(TRAINED[name], Adam(0.01), backend=reference)
    return [trainer.step(*batch) for batch in padded_batches()]


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", TRAINED)
def test_every_model_trains_in_every_precision(name, precision):
    """With dropout and padding.

    The first step is computed, the second recorded if it can be, the third a replay.
    """
    if precision == "bfloat16":
        pytest.importorskip("ml_dtypes")
    on_gpu = Trainer(TRAINED[name], Adam(0.01), backend=gpu, precision=precision)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        losses = [on_gpu.step(*batch) for batch in padded_batches()]
    np.testing.assert_allclose(losses, losses_of_the_reference(name), rtol=0.02)
    messages = [str(warning.message) for warning in caught]
    assert len(on_gpu._run_step.recordings) == (name not in NOT_RECORDED), messages
    assert len(caught) == (name in NOT_RECORDED)
    assert tree.not_finite(on_gpu.state.grads) == []


def test_half_precision_stays_half_precision_under_a_mask():
    """CuPy's ``where`` returns float32 for bfloat16,
    with which the convolution would be computed.
    """
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    weight, x = put(np.ones((3, 4, 4), bfloat16)), put(np.ones((2, 5, 4), bfloat16))
    keep_mask = put(np.arange(5) < np.array([[5], [3]]))
    y, backward = layers.masked_conv1d(
        gpu, {"weight": weight}, x, keep_mask, dilation=1, causal=True
    )
    assert y.dtype == backward(y)[0].dtype == bfloat16


def test_attention_of_more_heads_than_a_grid_has_rows():
    """The leading axes become one."""
    shape = 257, 256, 1, 2, 4
    rng = np.random.default_rng(0)
    q, k, v, dout = (rng.normal(size=shape).astype("float32") for _ in range(4))
    results = []
    for ops in (ON_GPU, reference):
        out, logsumexp = ops.flash_attention(q, k, v)
        gradients = ops.flash_attention_backward(dout, q, k, v, out, logsumexp)
        results.append((out, logsumexp, *gradients))
    assert_all_close(*results, 1e-5)


def test_an_overflow_halves_the_scale_and_is_tried_again():
    trainer = Trainer(SMALL, Adam(0.01), backend=gpu, precision="float16")
    trainer.state.precision.loss_scale = LossScale(2.0**18, 0)
    assert np.isfinite(trainer.step(*SAME))
    assert trainer.state.precision.loss_scale.value < 2.0**18
    trainer.flat_params[...] = np.nan
    refuses(NonFiniteError, "parameter .* holds NaN", trainer.step, *SAME)


def test_lower_precision_is_for_the_gpu():
    refused = functools.partial(Trainer, SMALL, Adam(0.01))
    message = "precision='bfloat16' on the backend reference, expected 'float32'"
    refuses(ValueError, message, refused, backend=reference, precision="bfloat16")
    message = "precision='half', expected 'float32', 'tf32', 'bfloat16' or 'float16'"
    refuses(ValueError, message, refused, backend=gpu, precision="half")


def test_lengths_are_filled_up_to_few_others():
    rounded = [rounded_up(n) for n in range(1, 1025)]
    assert rounded[:3] == [8, 8, 8]
    assert rounded[127:130] == [128, 144, 144]
    assert len(set(rounded)) == 40
    assert all(n <= up <= max(n + 7, 1.13 * n) for n, up in enumerate(rounded, start=1))


def test_what_is_filled_up_changes_nothing():
    """Padding changes only the bits of dropout, which is off here.

    Lengths are max_len, and rows no multiple of 8.
    """
    model = Transformer(11, 11, **WIDER, dropout=0.0, max_len=11, dtype="float64")
    rng = np.random.default_rng(0)
    trainers = [Trainer(model, Adam(0.01), backend=ops) for ops in (gpu, reference)]
    for dtype in ("int64", "int32", "int64"):
        src = rng.integers(3, 11, (5, 11)).astype(dtype)
        tgt = rng.integers(3, 11, (5, 12)).astype(dtype)
        tgt[:, 0] = 1
        np.testing.assert_allclose(*(trainer.step(src, tgt) for trainer in trainers), rtol=1e-12)
    refuses(ValueError, "src has 4 rows, the target 5", trainers[0].step, src[:4], tgt)
    refuses(ValueError, "n_shards=2 on a GPU", Trainer, model, Adam(0.01), backend=gpu, n_shards=2)


def test_a_step_that_cannot_be_recorded_is_computed_as_ever():
    model = MODELS["GRU"]
    trainer = Trainer(model, Adam(0.01), backend=gpu)
    task = CopyTask(max_len=5)
    trainer.step(*task.batch(0, 8))
    with pytest.warns(UserWarning, match="cannot be recorded"):
        trainer.step(*task.batch(0, 8))
    loss = trainer.step(*task.batch(0, 8))
    assert np.isfinite(loss)


def test_auto_is_the_gpu_for_parameters_that_are_there():
    params = SMALL.init(0)
    assert get_backend("auto", put(params)) is gpu.ops
    assert get_backend("auto", params) is not gpu.ops
    assert get_backend("gpu") is gpu.ops


def test_arrays_here_and_there_do_not_mix():
    for name in FIRST:
        arguments = arguments_of(name, "float32")
        arrays = [
            key for key, x in arguments.items() if isinstance(x, np.ndarray) and x.dtype.kind == "f"
        ]
        if len(arrays) > 1:
            mixed = put(arguments) | {arrays[1]: arguments[arrays[1]]}
            for ops in (gpu, reference):
                message = "arrays of different libraries: "
                refuses(TypeError, message, getattr(ops, name), **mixed)


@pytest.mark.skipif(NO_GPU is None, reason="threads of a GPU run as they like")
def test_the_order_of_threads_changes_nothing(monkeypatch):
    """If it does, a barrier is missing."""
    in_order = {name: run(ON_GPU, name, arguments_of(name, "float32")) for name in gpu.ops.kernels}
    monkeypatch.setattr(cupy, "threads_run_in_reverse", True)
    for name, expected in in_order.items():
        for x, y in zip(run(ON_GPU, name, arguments_of(name, "float32")), expected, strict=True):
            assert_array_equal(x, y, err_msg=name)


def test_the_package_binds_its_kernels_and_not_the_reference():
    folder = Path(npformer.__file__).parent / "gpu"
    code = "".join(path.read_text() for path in folder.glob("*.py"))
    written = re.findall(r"^def (\w+)\(", code, re.MULTILINE)
    for name in {*written} & {*reference.Ops.names()}:
        assert getattr(gpu, name).__module__.startswith("npformer.gpu."), name


@pytest.mark.skipif(bool(ON_PROCESSOR), reason="without a GPU a training would take hours")
def test_the_copy_task_from_its_script(tmp_path, capsys):
    options = ["--backend", "gpu", "--steps", "2", "--quiet", "--no-plots"]
    copy.main([*options, "--json", str(tmp_path / "x.json")])
    assert "backend gpu" in capsys.readouterr().out


def test_a_translation_trained_on_the_gpu_translates_on_either(tmp_path, monkeypatch):
    for package in ("sentencepiece", "safetensors", "sacrebleu", "sacremoses"):
        pytest.importorskip(package)
    from npformer.text import TranslationRun, TranslationSettings, Translator

    # what has learned little does not end
    monkeypatch.setattr("npformer.text.translator.EXTRA_LEN", 5)
    data = str(write_corpus(tmp_path / "data", n_val=2))
    settings = {**SETTINGS, "data": data, "steps": 2, "validate_every": 1}
    run = TranslationRun.start(tmp_path / "run", TranslationSettings(**settings), "gpu")
    run.train(progress=False)
    run.finish()
    translators = [Translator.load(tmp_path / "run", backend) for backend in ("gpu", "reference")]
    assert isinstance(translators[0].params["embedding"], cupy.ndarray)
    lines = ["a man sees the horse", "the old man eats bread"]
    assert translators[0].greedy(lines) == translators[1].greedy(lines)
    resumed = TranslationRun.resume(tmp_path / "run", {"steps": 3}, "reference")
    resumed.train(progress=False)
    assert resumed.trainer.n_steps == 3
