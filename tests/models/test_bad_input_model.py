"""Bad input to model, trainer and optimizers.

A defined result, or an error that says what to change.
"""

from dataclasses import asdict

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import refuses

from npformer import (
    SGD,
    Adam,
    AdamW,
    ByteNet,
    CopyTask,
    LanguageModel,
    Recurrent,
    SequenceAutoencoder,
    Trainer,
    Transformer,
    derive_key,
    noam,
    split_key,
    tree,
    warmup_cosine,
)

HUGE = 10**5000  # which Python refuses to print
SMALL = {"d_model": 14, "n_heads": 2, "n_layers": 1, "d_ff": 17}
MODEL = Transformer(13, 11, **SMALL)
PARAMS = MODEL.init(0)
SRC = np.array([[3, 4, 5, 6, 12], [3, 9, 8, 0, 0]])
TGT = np.array([[1, 5, 6, 8, 9, 2], [1, 4, 2, 0, 0, 0]])


def replaced(ids, value):
    ids = ids.copy()
    ids[0, 2] = value
    return ids


def test_settings():
    def refused(message, error=ValueError, **arguments):
        refuses(error, message, Transformer, 13, 11, **{**SMALL, **arguments})

    refused("d_model=510 is not divisible by n_heads=8", d_model=510, n_heads=8)
    refused("d_model=14 is not divisible by n_heads=an int of 16610 bits", n_heads=HUGE)
    refused("n_heads=an int of .*odd width 3", d_model=3 * HUGE, n_heads=HUGE, positions="rotary")
    refused("n_kv_heads=an int of 16610 bits, expected a divisor of n_heads=2", n_kv_heads=HUGE)
    refused("d_model=0, expected at least 1", d_model=0)
    refused("d_model=14.0 is a float, expected an int", TypeError, d_model=14.0)
    refused("n_layers=-1, expected at least 0", n_layers=-1)
    refused(r"n_layers=\(1, 2, 3\), expected an int or \(encoder, decoder\)", n_layers=(1, 2, 3))
    refused("dropout=1.0, expected 0 <= dropout < 1", dropout=1.0)
    refused("dropout=-0.1, expected 0 <= dropout < 1", dropout=-0.1)
    refused("norm='both', expected 'pre' or 'post'", norm="both")
    refused(
        "activation='swish', expected 'relu', 'gelu', 'gelu_erf', 'silu' or 'swiglu'",
        activation="swish",
    )
    refused("tie_embeddings=True with src_vocab=13, tgt_vocab=11", tie_embeddings=True)
    refused("pad_id=11, expected an id of both vocabularies", pad_id=11)
    refused("dtype='int32', expected 'float32' or 'float64'", dtype="int32")


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        (Transformer, {"d_model": 200, "n_heads": 8, "n_layers": (2, 1), "d_ff": 200}),
        (
            ByteNet,
            {
                "d_model": 200,
                "n_sets": (1, 1),
                "dilations": (1, 2),
                "kernel_sizes": (3, 2),
                "unfold": (1, 2),
            },
        ),
        (Recurrent, {"d_model": 200, "n_layers": 2}),
        (SequenceAutoencoder, {"d_model": 200, "code_size": 200}),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_sizes_of_8_bits_give_the_model_of_these_sizes(kind, sizes):
    """They were once computed with, and overflowed."""

    def narrow(size):
        return tuple(map(narrow, size)) if isinstance(size, tuple) else np.uint8(size)

    vocabularies = (200,) if kind is SequenceAutoencoder else (200, 210)
    model = kind(*map(narrow, vocabularies), **narrow_all(sizes, narrow))
    wanted = kind(*vocabularies, **sizes)
    assert repr(asdict(model)) == repr(asdict(wanted))
    shapes = [
        [(path, x.shape) for path, x in tree.leaves(made.shapes())] for made in (model, wanted)
    ]
    assert shapes[0] == shapes[1]


def narrow_all(sizes, narrow):
    return {name: narrow(size) for name, size in sizes.items()}


@pytest.mark.parametrize(
    ("src", "tgt", "error", "message"),
    [
        (replaced(SRC, -1), TGT, ValueError, r"src\[0, 2\] is -1, expected 0 <= id < 13"),
        (replaced(SRC, 13), TGT, ValueError, r"src\[0, 2\] is 13, expected 0 <= id < 13"),
        (SRC, replaced(TGT, 11), ValueError, r"tgt_in\[0, 2\] is 11, expected 0 <= id < 11"),
        (SRC.astype(float), TGT, TypeError, "src has dtype float64, expected integers"),
        (SRC, TGT.astype(float), TypeError, "tgt_in has dtype float64, expected integers"),
        (SRC.tolist(), TGT, TypeError, "src is a list, expected an array"),
        (SRC[0], TGT, ValueError, r"src has shape \(5,\), expected \(B, length\)"),
        (SRC[:1], TGT, ValueError, "src has 1 rows, the target 2: expected the same number"),
    ],
)
@pytest.mark.parametrize("consistency", [0.0, 0.7])
def test_ids(src, tgt, error, message, consistency):
    with pytest.raises(error, match=message):
        MODEL.loss_and_grad(PARAMS, src, tgt[:, :-1], tgt[:, 1:], consistency=consistency)


def test_unequal_targets():
    message = r"tgt_in \(2, 5\), tgt_out \(2, 4\): expected equal shapes"
    refuses(ValueError, message, MODEL.loss_and_grad, PARAMS, SRC, TGT[:, :-1], TGT[:, 2:])


@pytest.mark.parametrize("name", ["tgt_in", "tgt_out"])
def test_a_target_that_is_a_list_is_named(name):
    targets = {"tgt_in": TGT[:, :-1], "tgt_out": TGT[:, 1:]}
    targets[name] = targets[name].tolist()
    message = f"{name} is a list, expected an array"
    refuses(TypeError, message, MODEL.loss_and_grad, PARAMS, SRC, **targets)


def test_ids_with_one_axis_more_are_told_what_to_try():
    one_hot = np.eye(11, dtype=int)
    trainer = Trainer(MODEL, Adam())
    texts = LanguageModel(11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    for call, name in [
        (lambda: trainer.step(SRC, one_hot[TGT]), "tgt"),
        (lambda: trainer.step(SRC, one_hot[TGT].astype("float32")), "tgt"),
        (lambda: MODEL.loss_and_grad(PARAMS, SRC, one_hot[TGT]), "tgt_in"),
        (lambda: trainer.step(np.eye(13, dtype=int)[SRC], TGT), "src"),
        (lambda: Trainer(texts, Adam()).step(one_hot[TGT]), "ids"),
    ]:
        refuses(ValueError, rf"^{name} has shape .*: try {name}\.argmax\(axis=-1\) if its", call)
    refuses(ValueError, r": try tgt\[\.\.\., 0\]", trainer.step, SRC, TGT[..., None])


def test_a_target_out_of_range_is_named():
    tgt_out = TGT[:, 1:].copy()
    tgt_out[1, 1] = 11
    message = r"tgt_out\[1, 1\] is 11, expected 0 <= id < 11"
    refuses(ValueError, message, MODEL.loss_and_grad, PARAMS, SRC, TGT[:, :-1], tgt_out)


def test_sequences_longer_than_max_len():
    model = Transformer(13, 11, **SMALL, max_len=4)
    message = "src has length 5, expected at most max_len=4"
    refuses(ValueError, message, model.logits, model.init(0), SRC, TGT[:, :-1])


def test_an_odd_width_works():
    model = Transformer(13, 11, d_model=15, n_heads=3, n_layers=1, d_ff=7)
    assert np.isfinite(model.logits(model.init(0), SRC, TGT[:, :-1])).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Adam(lr=-1e-3), "lr=-0.001, expected a finite number of 0 or more"),
        (lambda: SGD(lr=float("nan")), "lr=nan, expected"),
        (lambda: Adam(lr=lambda step: -1.0).learning_rate(3), r"lr\(3\)=-1.0, expected"),
        (lambda: SGD(0.1, momentum=1.0), "momentum=1.0, expected 0 <= momentum < 1"),
        (lambda: Trainer(MODEL, Adam(), seed=-1), "seed=-1, expected at least 0"),
        (lambda: Adam(betas=0.9), "betas=0.9, expected two numbers"),
        (lambda: SGD(0.1, nesterov=True), "nesterov=True with momentum=0"),
        (lambda: Adam(betas=(0.9, 1.0)), r"betas\[1\]=1.0, expected"),
        (lambda: Adam(eps=0.0), "eps=0.0, expected a finite number above 0"),
        (lambda: AdamW(weight_decay=-1), "weight_decay=-1, expected"),
        (lambda: noam(512, warmup=0), "warmup=0, expected at least 1"),
        (lambda: warmup_cosine(1e-3, warmup=10, total=10),
         "warmup=10, total=10: expected 0 <= warmup < total"),
        (lambda: Trainer(MODEL, Adam(), clip_norm=0),
         "clip_norm=0, expected a finite number above 0"),
        (lambda: Trainer(MODEL, Adam(), label_smoothing=1.5),
         "label_smoothing=1.5, expected 0 <= label_smoothing"),
        (lambda: Trainer(MODEL, Adam(), consistency=-1.0),
         "consistency=-1.0, expected a finite number of 0 or more"),
        (lambda: Trainer(MODEL, Adam(), backend="fast"), "backend='fast', expected one of"),
        (lambda: split_key(7, 10**400), "n=an int of 1329 bits, expected at most 1000000"),
    ],
)  # fmt: skip
def test_training_settings(make, message):
    refuses(ValueError, message, make)


@pytest.mark.parametrize(
    ("optimizer", "options", "message"),
    [
        (
            Adam(eps=1e-46),
            {},
            "eps=1e-46 is 0.0 in float32, expected a number that float32 can hold",
        ),
        (SGD(lr=1e39), {}, "lr=1e.39 is inf in float32, expected"),
        (SGD(lr=1e-46), {}, "lr=1e-46 is 0.0 in float32, expected"),
        (SGD(0.1, momentum=1e-50), {}, "momentum=1e-50 is 0.0 in float32, expected"),
        (AdamW(weight_decay=1e39), {}, "weight_decay=1e.39 is inf in float32, expected"),
        (SGD(0.1), {"clip_norm": 1e-46}, "clip_norm=1e-46 is 0.0 in float32, expected"),
    ],
)
def test_settings_that_the_dtype_of_the_parameters_cannot_hold(optimizer, options, message):
    """Adam once divided by an eps of 0: NaN in rows of embeddings that no batch has used."""
    refuses(ValueError, message, Trainer, MODEL, optimizer, **options)
    in_float64 = Transformer(13, 11, **SMALL, dtype="float64")
    Trainer(in_float64, optimizer, **options).step(SRC, TGT)


def test_a_scheduled_rate_that_is_too_large_changes_nothing():
    trainer = Trainer(MODEL, AdamW(lambda step: 1e-50 if step == 1 else 1e39))
    trainer.step(SRC, TGT)  # a schedule may end in 0
    before = trainer.flat_params.copy()
    refuses(ValueError, r"lr\(2\)=1e.39 is inf in float32, expected", trainer.step, SRC, TGT)
    assert_array_equal(trainer.flat_params, before)
    assert (trainer.n_steps, trainer.state.moments["m"].any()) == (1, True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Trainer(MODEL, Adam(), seed=None), "seed=None is a NoneType, expected an int"),
        (lambda: Trainer(MODEL, Adam), "optimizer=.*Adam.*, expected an optimizer such as Adam"),
        (lambda: Adam("0.1"), "lr='0.1' is a str, expected a number"),
        (lambda: Adam(lr=True), "lr=True is a bool, expected a number"),
        (lambda: Adam(lr=np.ma.masked), "lr=masked is a MaskedConstant, expected a number"),
        (lambda: AdamW(0.1, decay_all="no"), "decay_all='no' is a str, expected True or False"),
        (
            lambda: Transformer(13, 13, **SMALL, tie_embeddings="no"),
            "tie_embeddings='no' is a str, expected True",
        ),
        (
            lambda: Recurrent(13, 13, 8, bidirectional=np.array(True)),
            "bidirectional=.* is a ndarray, expected True or",
        ),
        (lambda: CopyTask(reverse="no"), "reverse='no' is a str, expected True or False"),
        (lambda: derive_key("7", 1), "key='7' is a str, expected an int"),
        (lambda: split_key(7.9, 2), "key=7.9 is a float, expected an int"),
        (lambda: split_key(7, "2"), "n='2' is a str, expected an int"),
    ],
)
def test_settings_of_the_wrong_type(make, message):
    refuses(TypeError, message, make)


def test_parameters_of_another_model():
    def other(**settings):
        return Transformer(11, 11, **{**SMALL, **settings})

    model = other()
    settings = [
        {"tie_embeddings": True},
        {"n_layers": 2},
        {"n_layers": (1, 2)},
        {"d_model": 16},
        {"norm": "post"},
    ]
    settings += [{"norm_type": "rms_norm"}, {"activation": "swiglu"}]
    for params in (other(**x).init(0) for x in settings):
        for backend in ("reference", "cpu"):
            with pytest.raises(ValueError, match="parameter .*: given .*, expected .*"):
                model.encode(params, SRC % 11, backend=backend)
            with pytest.raises(ValueError, match="parameter .*: given .*, expected .*"):
                model.decoder(params, SRC % 11, max_rows=4, max_len=3, backend=backend)
    transposed = model.init(0)
    transposed["output"]["weight"] = transposed["output"]["weight"].T
    message = r"parameter output\.weight: given shape .*: try its \.T"
    refuses(ValueError, message, model.encode, transposed, SRC % 11)
    message = r"parameter embedding: given nothing, expected shape \(11, "
    refuses(ValueError, message, other(tie_embeddings=True).encode, model.init(0), SRC % 11)
    grown = model.init(0)
    grown["encoder"]["0"]["attention"]["q"] = grown["encoder"]["0"]["attention"]["out"]
    message = "parameter encoder.0.attention.q.weight: given shape .*, expected nothing"
    refuses(ValueError, message, model.loss, grown, SRC % 11, SRC % 11)
    message = "params is a Trainer, expected a nested dict"
    refuses(TypeError, message, model.encode, Trainer(model, Adam()), SRC % 11)


def test_parameters_that_fitted_once_are_checked_again():
    model = Transformer(11, 11, **SMALL)
    params = model.init(0)
    model.encode(params, SRC % 11)
    del params["decoder"]["0"]["feed_forward"]
    message = "parameter decoder.0.feed_forward.hidden.weight: given nothing, expected"
    refuses(ValueError, message, model.encode, params, SRC % 11)
    params["decoder"] = model.init(0)["decoder"]
    model.encode(params, SRC % 11)
    params["output"]["bias"] = np.zeros(12, "float32")
    message = r"parameter output.bias: given shape \(12,\), expected shape \(11,\)"
    refuses(ValueError, message, model.encode, params, SRC % 11)


def test_a_dtype_by_its_numpy_type():
    assert Transformer(13, 11, **SMALL, dtype=np.float64).dtype == "float64"


@pytest.mark.parametrize("tgt", [TGT[0], TGT[:, :1]])
def test_targets_need_two_tokens(tgt):
    message = r"tgt has shape .*, expected ids \(B, T\+1\)"
    refuses(ValueError, message, Trainer(MODEL, Adam()).step, SRC, tgt)


def test_targets_are_an_array():
    message = r"tgt is a list, expected an array: try numpy.asarray\(tgt\)"
    refuses(TypeError, message, Trainer(MODEL, Adam()).step, SRC, TGT.tolist())


def test_a_huge_number_is_not_written_out():
    message = "lr=an int of 16610 bits, expected a number in the range of a float"
    refuses(ValueError, message, Adam, lr=10**5000)
