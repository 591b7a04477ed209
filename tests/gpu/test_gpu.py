"""Whole models on the GPU. on_gpu.py describes what runs without a GPU."""

import functools
import sys
import threading
import warnings

import numpy as np
import pytest
from corpus import SETTINGS, write_corpus
from numpy.testing import assert_allclose, assert_array_equal
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
from results import FIRST, arguments_of, attend, normal, run

from npformer.commands import copy

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
OutOfMemory = recording.OutOfMemory
rounded_up = recording.rounded_up

pytestmark = pytest.mark.skipif(bool(MISSING), reason=str(MISSING))
SRC = np.array([[3, 4, 5, 6, 7], [8, 3, 4, 0, 0]])
TGT = np.array([[1, 3, 4, 5, 2], [1, 8, 3, 2, 0]])


def transformer(d_model=8, d_ff=12, n_layers=1, **options):
    sizes = {"d_model": d_model, "n_heads": 2, "n_layers": n_layers, "d_ff": d_ff}
    return Transformer(11, 11, **sizes, **options)


def recurrent(attention, cell):
    return Recurrent(11, 11, d_model=8, attention=attention, cell=cell)


MODELS = {
    "pre-norm": transformer(n_layers=2, activation="gelu"),
    "post-norm, tied": transformer(norm="post", tie_embeddings=True),
    "rotary": transformer(positions="rotary"),
    "learned positions": transformer(positions="learned", max_len=9),
    "GRU": recurrent("general", "gru"),
    "LSTM": recurrent("additive", "lstm"),
    "GRU, dot": recurrent("dot", "gru"),
    "LSTM alone": recurrent(None, "lstm"),
    "ByteNet": ByteNet(11, 11, d_model=8, n_sets=1, dilations=(1, 4)),
    "auto-encoder": SequenceAutoencoder(11, d_model=8, code_size=4),
}
# the reference computes a product, or reads a value
NOT_RECORDED = {"GRU", "GRU, dot", "LSTM", "ByteNet"}
SMALL = transformer(16, 16, dropout=0.0)
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

    def results(ops, params):
        options = {"dropout_key": 3, "label_smoothing": 0.1, "backend": ops}
        return model.loss_and_grad(params, SRC, TGT[:, :-1], TGT[:, 1:], **options)

    loss, grads, n = take(results(gpu, put(params)))
    expected, expected_grads, n_expected = results(reference, params)
    assert n == n_expected
    assert_allclose(float(loss), expected, rtol=1e-12)
    wanted = dict(tree.leaves(expected_grads))
    for path, x in tree.leaves(grads):
        atol = 1e-11 * np.abs(wanted[path]).max()
        assert_allclose(x, wanted.pop(path), rtol=0, atol=atol, err_msg=path)
    assert not wanted


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


def on_both(model, optimizer, **options):
    """A trainer on the GPU, and one on the reference."""
    return [Trainer(model, optimizer, backend=ops, **options) for ops in (gpu, reference)]


def assert_same_step(trainers, *batch, rtol=1e-5, **options):
    losses = [trainer.step(*batch, **options) for trainer in trainers]
    assert_allclose(*losses, rtol=rtol)


def test_training_is_that_of_the_reference_and_goes_on_anywhere(tmp_path):
    task = CopyTask(max_len=5)
    options = {"clip_norm": 1.0, "label_smoothing": 0.1}
    trainers = on_both(SMALL, Adam(0.01), **options)
    for step in range(4):
        assert_same_step(trainers, *task.batch(step, 4))
    assert isinstance(trainers[0].flat_params, cupy.ndarray)
    losses = []
    for trainer in trainers:
        trainer.save(tmp_path / "last.safetensors")
        for gone_on in on_both(SMALL, Adam(0.01), **options):
            gone_on.load(tmp_path / "last.safetensors")
            assert_close(take(gone_on.flat_params), take(trainer.flat_params), 0)
            losses.append(gone_on.step(*task.batch(4, 4)))
    assert_allclose(losses, losses[0], rtol=1e-5)


@pytest.mark.parametrize("consistency", [0.0, 0.7])
def test_a_recorded_step_is_the_step_itself(consistency):
    """Of the batches of one shape, the first is computed normally, the second is recorded,
    the third is a replay.
    """
    model = transformer(16, 16, dropout=0.3, tie_embeddings=True)
    rng = np.random.default_rng(0)
    trainers = on_both(model, Adam(0.01), clip_norm=0.5, consistency=consistency)
    for step in range(4):
        src = rng.integers(3, 11, (4, 8))
        tgt = rng.integers(3, 11, (4, 9))
        tgt[:, 0] = 1
        tgt[:step, 6:] = 0
        reads = cupy.n_reads if NO_GPU else 0
        assert_same_step(trainers, src, tgt, rtol=1e-4)
        if NO_GPU and step >= 2:  # the host waits once, for the loss and the norm
            assert cupy.n_reads - reads == 1
    on_gpu = trainers[0]
    assert all(on_gpu._recorded_step.recordings.values())
    src[0, 0] = 11
    message = r"src\[0, 0\] is 11, expected 0 <= id < 11"
    refuses(ValueError, message, on_gpu.step, src, tgt)


OPTIMIZERS = [SGD(0.01, momentum=np.float32(0.9)), AdamW(0.01, eps=np.float32(1e-8))]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_a_replay_whose_gradient_is_not_finite_changes_nothing(optimizer):
    trainers = on_both(SMALL, optimizer, clip_norm=1.0)
    for _ in range(3):  # the third is a replay
        assert_same_step(trainers, *SAME)
    on_gpu = trainers[0]
    row = on_gpu.params["source_embedding"][3]
    good = row.copy()
    row[5] = np.nan
    before = take(list(on_gpu.state.arrays))
    refuses(NonFiniteError, "parameters are those of step 3", on_gpu.step, *SAME)
    np.testing.assert_equal(take(list(on_gpu.state.arrays)), before)
    assert on_gpu.n_steps == 3
    row[...] = good
    for _ in range(2):  # recorded and accumulated steps follow each other
        assert_same_step(trainers, *SAME)
        assert_same_step(trainers, batches=[SAME, SAME])


def test_an_overflow_halves_the_scale_and_is_tried_again():
    """In a replay, too."""
    trainer, other = (
        Trainer(SMALL, Adam(0.01), backend=gpu, precision="float16") for _ in range(2)
    )
    for _ in range(3):
        trainer.state.precision.loss_scale = LossScale(2.0**18, 0)
        trainer.step(*SAME)
        lower = trainer.state.precision.loss_scale.value
        assert lower < 2.0**18
        other.state.precision.loss_scale = LossScale(lower, 0)
        other.step(*SAME)
        assert_array_equal(take(trainer.flat_params), take(other.flat_params))
    trainer.flat_params[...] = np.nan
    refuses(NonFiniteError, "parameter .* holds NaN", trainer.step, *SAME)


@pytest.mark.parametrize("precision", ["tf32", "bfloat16", "float16"])
def test_lower_precision_goes_where_full_precision_goes(precision, tmp_path):
    if precision == "bfloat16":
        pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(0)
    options = {"model": SMALL, "optimizer": Adam(0.01), "backend": gpu}
    full = Trainer(**options)
    lower = Trainer(**options, precision=precision)
    # the third is a replay
    batches = [(rng.integers(3, 11, (4, 8)), rng.integers(3, 11, (4, 8))) for _ in range(3)]
    for src, tgt in batches:
        tgt[:, 0] = 1
        assert_same_step([lower, full], src, tgt, rtol=0.02)
    assert lower.flat_params.dtype == np.float32
    lower.save(tmp_path / "last.safetensors")
    gone_on = Trainer(**options, precision=precision)
    gone_on.load(tmp_path / "last.safetensors")
    assert gone_on.state.precision.loss_scale == lower.state.precision.loss_scale
    assert gone_on.step(*batches[0]) == lower.step(*batches[0])


def padded_batches():
    rng = np.random.default_rng(0)
    for step in range(3):
        src = rng.integers(3, 11, (4, 8))
        tgt = rng.integers(3, 11, (4, 9))
        tgt[:, 0] = 1
        src[:step, 5:] = 0
        tgt[:step, 6:] = 0
        yield src, tgt


@functools.cache
def losses_of_the_reference(name):
    trainer = Trainer(TRAINED[name], Adam(0.01), backend=reference)
    return [trainer.step(*batch) for batch in padded_batches()]


PRECISIONS = [("pre-norm", "float32"), ("pre-norm", "bfloat16"), *((x, "float16") for x in TRAINED)]


@pytest.mark.parametrize(("name", "precision"), PRECISIONS)
def test_every_model_trains_in_lower_precision(name, precision):
    """With dropout and padding.

    The first step is computed, the second recorded if it can be, the third a replay.
    """
    if precision == "bfloat16":
        pytest.importorskip("ml_dtypes")
    on_gpu = Trainer(TRAINED[name], Adam(0.01), backend=gpu, precision=precision)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        losses = [on_gpu.step(*batch) for batch in padded_batches()]
    assert_allclose(losses, losses_of_the_reference(name), rtol=0.02)
    messages = [str(warning.message) for warning in caught]
    assert len(on_gpu._recorded_step.recordings) == (name not in NOT_RECORDED), messages
    assert ["cannot be recorded" in x for x in messages] == [True] * (name in NOT_RECORDED)
    assert tree.not_finite(on_gpu.state.grads) == []


def test_half_precision_stays_half_precision_under_a_mask():
    """CuPy's ``where`` returns float32 for bfloat16,
    with which the convolution would be computed.
    """
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    weight = put(np.ones((3, 4, 4), bfloat16))
    x = put(np.ones((2, 5, 4), bfloat16))
    keep_mask = put(np.arange(5) < np.array([[5], [3]]))
    options = {"dilation": 1, "causal": True}
    y, backward = layers.masked_conv1d(gpu, {"weight": weight}, x, keep_mask, **options)
    assert y.dtype == backward(y)[0].dtype == bfloat16


def test_attention_of_more_heads_than_a_grid_has_rows():
    """The leading axes become one."""
    arrays = [normal(257, 256, 1, 2, 4, seed=seed, dtype="float32") for seed in range(4)]
    expected = attend("flash_attention", *arrays, ops=reference)
    assert_all_close(attend("flash_attention", *arrays, ops=ON_GPU), expected, 1e-5)


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
    model = transformer(16, 16, dropout=0.0, max_len=11, dtype="float64")
    rng = np.random.default_rng(0)
    trainers = on_both(model, Adam(0.01))
    for dtype in ("int64", "int32", "int64"):
        src = rng.integers(3, 11, (5, 11)).astype(dtype)
        tgt = rng.integers(3, 11, (5, 12)).astype(dtype)
        tgt[:, 0] = 1
        assert_same_step(trainers, src, tgt, rtol=1e-12)
    refuses(ValueError, "src has 4 rows, the target 5", trainers[0].step, src[:4], tgt)
    refuses(ValueError, "n_shards=2 on a GPU", Trainer, model, Adam(0.01), backend=gpu, n_shards=2)


def test_arrays_of_another_dtype_are_not_those_of_a_recording():
    """In which they would be rounded."""
    first_number = lambda batches, key, numbers: (batches[0][0][0],)
    recorder = recording.Recorder(first_number, lambda batch, rounded_up: batch)
    x = np.array([1 + 2.0**-40])
    for _ in range(3):
        assert recorder([(x.astype("float32"),)], 0, []) == [1.0]
    assert len(recorder.recordings) == 1
    for _ in range(3):
        assert recorder([(x,)], 0, []) == [1 + 2.0**-40]
    assert len(recorder.recordings) == 2


RECORDED = object()


@pytest.mark.parametrize(
    ("results", "messages"),
    [
        ([RECORDED], []),
        ([OutOfMemory(1, 2), RECORDED], []),
        (["given back", RECORDED], []),
        ([OutOfMemory(1, 2)] * 2, ["too little memory to record a step with arrays of (2,)"]),
        ([ValueError("no graph")], ["this step cannot be recorded: no graph"]),
    ],
    ids=["recorded", "too little memory once", "given back", "too little memory", "an error"],
)
def test_a_step_is_recorded_again_if_there_was_too_little_memory(results, messages, monkeypatch):
    recorder = recording.Recorder(None, None)
    recorder.recordings["another form"] = object()
    untried = list(results)

    def record(work, batch, numbers, stream):
        is_first = len(untried) == len(results)
        assert is_first or not recorder.recordings  # their memory is free
        result = untried.pop(0)
        if isinstance(result, Exception):
            raise result
        recorder.memory.was_given_back = result == "given back"
        return result

    monkeypatch.setattr(recording, "Recording", record)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = recorder._record("a form", [np.zeros(2)], [])
    assert result is (None if messages else RECORDED)
    assert not untried
    was_tried_once = len(results) == 1
    assert ("another form" in recorder.recordings) == was_tried_once
    assert len(caught) == len(messages)
    for warning, message in zip(caught, messages, strict=True):
        assert message in str(warning.message)
    assert recorder.refused == (results[0] is not RECORDED and "no graph" in str(results[0]))
    assert recorder.too_large == ({"a form"} if messages and not recorder.refused else set())


def test_auto_is_the_gpu_for_parameters_that_are_there():
    params = SMALL.init(0)
    assert get_backend("auto", put(params)) is gpu.ops
    assert get_backend("auto", params) is not gpu.ops
    assert get_backend("gpu") is gpu.ops


def test_arrays_here_and_there_do_not_mix():
    message = "arrays of different libraries: "
    for name in FIRST:
        arguments = arguments_of(name, "float32")
        arrays = {key: x for key, x in arguments.items() if isinstance(x, np.ndarray)}
        floats = [key for key, x in arrays.items() if x.dtype.kind == "f"]
        if len(floats) > 1:
            mixed = put(arguments) | {floats[1]: arrays[floats[1]]}
            refuses(TypeError, message, getattr(gpu, name), **mixed)
            refuses(TypeError, message, getattr(reference, name), **mixed)


@pytest.mark.skipif(NO_GPU is None, reason="cuBLAS does not tell how it computes")
def test_tf32_is_for_the_thread_that_asks_for_it(monkeypatch):
    blas = sys.modules["npformer.gpu.blas"]
    compute_types = []
    monkeypatch.setattr(
        blas.library(), "cublasGemmEx", lambda *arguments: compute_types.append(arguments[-2])
    )
    x = put(np.ones((2, 2), "float32"))
    with blas.tf32():
        blas.multiply(x, x)
        thread = threading.Thread(target=blas.multiply, args=(x, x))
        thread.start()
        thread.join()
    blas.multiply(x, x)
    assert compute_types == [blas.FAST_TF32, blas.FLOAT32, blas.FLOAT32]


@pytest.mark.skipif(NO_GPU is None, reason="threads of a GPU run as they like")
def test_the_order_of_threads_changes_nothing(monkeypatch):
    """If it does, a barrier is missing."""

    def results():
        return {name: run(ON_GPU, name, arguments_of(name, "float32")) for name in gpu.ops.kernels}

    in_order = results()
    monkeypatch.setattr(cupy, "threads_run_in_reverse", True)
    np.testing.assert_equal(results(), in_order)


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
    settings = {**SETTINGS, "data": data, "steps": 2, "validate_every": 2}
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
