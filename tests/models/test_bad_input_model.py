"""Bad input to model, trainer and optimizers.

A defined result, or an error that says what to change.
"""

import re
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from functools import partial
from inspect import signature
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from promises import SRC, TGT
from refusals import refuses, refusing

from npformer import (
    SGD,
    Adam,
    AdamW,
    ByteNet,
    CopyTask,
    Encoder,
    LanguageModel,
    Recurrent,
    SequenceAutoencoder,
    Trainer,
    Transformer,
    beam_search,
    derive_key,
    greedy_decode,
    layers,
    noam,
    sample,
    split_key,
    tree,
    warmup_cosine,
)
from npformer.decoding.sampling import SamplingOptions
from npformer.operations.options import option_of
from npformer.training.settings import TrainingSettings

HUGE = 10**5000  # which Python refuses to print
SMALL = {"d_model": 14, "n_heads": 2, "n_layers": 1, "d_ff": 17}
MODEL = Transformer(13, 11, **SMALL)
PARAMS = MODEL.init(0)


def made(**settings):
    return Transformer(11, 11, **{**SMALL, **settings})


def replaced(ids, value):
    ids = ids.copy()
    ids[0, 2] = value
    return ids


def test_settings():
    refused = refusing(Transformer, 13, 11, **SMALL)
    refused("d_model=510 is not divisible by n_heads=8", d_model=510, n_heads=8)
    refused("d_model=14 is not divisible by n_heads=an int of 16610 bits", n_heads=HUGE)
    refused("n_heads=an int of .*odd width 3", d_model=3 * HUGE, n_heads=HUGE, positions="rotary")
    refused("n_kv_heads=an int of 16610 bits, expected a divisor of n_heads=2", n_kv_heads=HUGE)
    refused("n_layers=-1, expected at least 0", n_layers=-1)
    refused(r"n_layers=\(1, 2, 3\), expected an int or \(encoder, decoder\)", n_layers=(1, 2, 3))
    refused("tie_embeddings=True with src_vocab=13, tgt_vocab=11", tie_embeddings=True)
    refused("pad_id=11, expected an id of both vocabularies", pad_id=11)
    refused("dtype='int32', expected 'float32' or 'float64'", dtype="int32")


OF_SETTINGS = [MODEL, LanguageModel(11, d_model=8, n_heads=2), ByteNet(11, 11), Recurrent(11, 11)]
OF_SETTINGS += [Encoder(11, d_model=8, n_heads=2), SequenceAutoencoder(11), CopyTask()]
OF_SETTINGS += [SGD(0.1), Adam(), AdamW(), TrainingSettings(), layers.Rotary()]
OF_SETTINGS += [layers.AttentionSettings(2), layers.LayerSettings(layers.AttentionSettings(2))]
HINTS = {}  # the types of the options of each
for settings in OF_SETTINGS:
    hints = {field.name: field.type for field in fields(settings)}
    HINTS[type(settings).__name__] = partial(replace, settings), hints
DECODE = {"bos_id": 1, "eos_id": 2, "max_len": 3}
for decode, more in ((greedy_decode, {}), (beam_search, {}), (sample, {"seed": 1})):
    hints = {name: x.annotation for name, x in signature(decode).parameters.items()}
    if decode is sample:
        hints |= {field.name: field.type for field in fields(SamplingOptions)}
    call = partial(decode, MODEL, PARAMS, SRC, **DECODE, **more)
    HINTS[decode.__name__] = call, hints
# What is checked otherwise: inputs of an encoder, seeds of any sign, flags of language models, and
# a smoothing that is not 1.
SPECIAL = {"n_inputs of Encoder", "seed of sample", "slide of sample", "slide of greedy_decode"}
SPECIAL |= {"label_smoothing of TrainingSettings"}


def wrong_values(name, hint):
    """What an option of this name and type refuses: values, errors, and what these say.

    ``option_of`` knows the ranges of numbers.
    """
    kind = hint
    if get_origin(hint) in (Union, UnionType):
        kinds = [x for x in get_args(hint) if x is not NoneType and get_origin(x) is not Callable]
        kind = kinds[0] if len(kinds) == 1 else None
    if get_origin(kind) is Literal:
        yield "x", ValueError, f"{name}='x', expected {get_args(kind)[0]!r}"
    elif kind is bool:
        yield "no", TypeError, f"{name}='no' is a str, expected True or False"
    elif option := option_of(name, kind):
        yield "x", TypeError, f"{name}='x' is a str, expected a"
        expected = option.expected.format(name=name)
        values = [-1, 0, 1] if option.kind is int else [-1.0, 0.0, 1.0, np.nan]
        for value in values:
            if not option.fits(value):
                yield value, ValueError, f"{name}={value}, expected {expected}"


@pytest.mark.parametrize("owner", HINTS)
def test_options_of_another_type_or_out_of_their_range_are_named(owner):
    call, hints = HINTS[owner]
    for name, hint in hints.items():
        if f"{name} of {owner}" in SPECIAL:
            continue
        for value, error, message in wrong_values(name, hint):
            refuses(error, re.escape(message), call, **{name: value})


OF_BYTENET = {"n_sets": (1, 1), "dilations": (1, 2), "kernel_sizes": (3, 2), "unfold": (1, 2)}
SIZES = {
    Transformer: {"d_model": 200, "n_heads": 8, "n_layers": (2, 1), "d_ff": 200},
    ByteNet: {"d_model": 200, **OF_BYTENET},
    Recurrent: {"d_model": 200, "n_layers": 2},
    SequenceAutoencoder: {"d_model": 200, "code_size": 200},
}


@pytest.mark.parametrize("kind", SIZES)
def test_sizes_of_8_bits_give_the_model_of_these_sizes(kind):
    """They were once computed with, and overflowed."""

    def narrow(size):
        return tuple(map(narrow, size)) if isinstance(size, tuple) else np.uint8(size)

    vocabularies = (200,) if kind is SequenceAutoencoder else (200, 210)
    sizes = SIZES[kind]
    narrow_sizes = {name: narrow(size) for name, size in sizes.items()}
    model = kind(*narrow(vocabularies), **narrow_sizes)
    wanted = kind(*vocabularies, **sizes)
    assert repr(asdict(model)) == repr(asdict(wanted))
    shapes, wanted_shapes = (tree.map_leaves(np.shape, x.shapes()) for x in (model, wanted))
    assert shapes == wanted_shapes


@pytest.mark.parametrize("consistency", [0.0, 0.7])
def test_batches(consistency):
    tgt_in, tgt_out = TGT[:, :-1], TGT[:, 1:]

    def refused(message, src=SRC, tgt_in=tgt_in, tgt_out=tgt_out, error=ValueError):
        batch = src, tgt_in, tgt_out
        refuses(error, message, MODEL.loss_and_grad, PARAMS, *batch, consistency=consistency)

    refused(r"src\[0, 2\] is -1, expected 0 <= id < 13", replaced(SRC, -1))
    refused(r"src\[0, 2\] is 13, expected 0 <= id < 13", replaced(SRC, 13))
    refused(r"tgt_in\[0, 2\] is 11, expected 0 <= id < 11", tgt_in=replaced(tgt_in, 11))
    refused(r"tgt_out\[0, 2\] is 11, expected 0 <= id < 11", tgt_out=replaced(tgt_out, 11))
    refused(r"src has shape \(5,\), expected \(B, length\)", SRC[0])
    refused(r"src has shape \(\), expected \(B, length\)", np.array(3))
    refused("src has 1 rows, the target 2: expected the same number", SRC[:1])
    refused(r"tgt_in \(2, 5\), tgt_out \(2, 4\): expected equal shapes", tgt_out=TGT[:, 2:])
    integers = "has dtype float64, expected integers"
    refused(f"src {integers}", SRC.astype(float), error=TypeError)
    refused(f"tgt_in {integers}", tgt_in=tgt_in.astype(float), error=TypeError)
    refused("src is a list, expected an array", SRC.tolist(), error=TypeError)
    refused("tgt_in is a list, expected an array", tgt_in=tgt_in.tolist(), error=TypeError)
    refused("tgt_out is a list, expected an array", tgt_out=tgt_out.tolist(), error=TypeError)


def test_batches_of_a_trainer():
    step = Trainer(MODEL, Adam()).step
    for tgt in (TGT[0], TGT[:, :1]):
        refuses(ValueError, r"tgt has shape .*, expected ids \(B, T\+1\)", step, SRC, tgt)
    message = r"tgt is a list, expected an array: try numpy.asarray\(tgt\)"
    refuses(TypeError, message, step, SRC, TGT.tolist())


def test_ids_with_one_axis_more_are_told_what_to_try():
    def advised(name, call, *batch):
        message = rf"^{name} has shape .*: try {name}\.argmax\(axis=-1\) if its"
        refuses(ValueError, message, call, *batch)

    one_hot = np.eye(11, dtype=int)[TGT]
    texts = LanguageModel(11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    step = Trainer(MODEL, Adam()).step
    advised("tgt", step, SRC, one_hot)
    advised("tgt", step, SRC, one_hot.astype("float32"))
    advised("src", step, np.eye(13, dtype=int)[SRC], TGT)
    advised("tgt_in", MODEL.loss_and_grad, PARAMS, SRC, one_hot)
    advised("ids", Trainer(texts, Adam()).step, one_hot)
    refuses(ValueError, r": try tgt\[\.\.\., 0\]", step, SRC, TGT[..., None])


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_sequences_longer_than_max_len(positions):
    model = Transformer(13, 11, **SMALL, max_len=4, positions=positions)
    message = "src has length 5, expected at most max_len=4"
    refuses(ValueError, message, model.logits, model.init(0), SRC, TGT[:, :-1])
    refuses(ValueError, message, model.count, SRC, TGT)
    message = "tgt without its last token has length 5, expected at most max_len=4"
    refuses(ValueError, message, model.count, SRC[:, :4], np.ones((len(SRC), 6), int))


def test_the_mask_of_ids_that_are_none_is_refused():
    model = Transformer(13, 11, **SMALL)
    refuses(TypeError, "ids is a list, expected", model.keep_mask, [[1, 0]])
    refuses(TypeError, "ids has dtype float64, expected integers", model.keep_mask, SRC + 0.5)


def test_an_odd_width_works():
    model = Transformer(13, 11, d_model=15, n_heads=3, n_layers=1, d_ff=7, dtype=np.float64)
    assert model.dtype == "float64"
    assert np.isfinite(model.logits(model.init(0), SRC, TGT[:, :-1])).all()


def test_settings_of_optimizers():
    refused = partial(refuses, ValueError)
    refused(r"lr\(3\)=-1.0, expected", Adam(lr=lambda step: -1.0).learning_rate, 3)
    huge = "lr=an int of 16610 bits, expected a number in the range of a float"
    refused(huge, Adam, lr=HUGE)
    refused("betas=0.9, expected two numbers", Adam, betas=0.9)
    refused("nesterov=True with momentum=0", SGD, 0.1, nesterov=True)
    refused(r"betas\[1\]=1.0, expected", Adam, betas=(0.9, 1.0))
    refused("warmup=0, expected at least 1", noam, 512, warmup=0)
    over = "warmup=10, total=10: expected 0 <= warmup < total"
    refused(over, warmup_cosine, 1e-3, warmup=10, total=10)


def test_settings_of_a_trainer():
    refused = partial(refuses, ValueError)
    trainer = partial(Trainer, MODEL, Adam())
    smoothing = "label_smoothing=1.5, expected 0 <= label_smoothing"
    refused(smoothing, trainer, label_smoothing=1.5)
    refused("backend='fast', expected one of", trainer, backend="fast")
    refused("n=an int of 1329 bits, expected at most 1000000", split_key, 7, 10**400)


def test_settings_that_the_dtype_of_the_parameters_cannot_hold():
    """Adam once divided by an eps of 0: NaN in rows of embeddings that no batch has used."""
    in_float64 = replace(MODEL, dtype="float64")

    def refused(message, optimizer, **options):
        refuses(ValueError, f"{message} in float32, expected", Trainer, MODEL, optimizer, **options)
        Trainer(in_float64, optimizer, **options).step(SRC, TGT)

    refused("eps=1e-46 is 0.0", Adam(eps=1e-46))
    refused("lr=1e.39 is inf", SGD(lr=1e39))
    refused("lr=1e-46 is 0.0", SGD(lr=1e-46))
    refused("momentum=1e-50 is 0.0", SGD(0.1, momentum=1e-50))
    refused("weight_decay=1e.39 is inf", AdamW(weight_decay=1e39))
    refused("clip_norm=1e-46 is 0.0", SGD(0.1), clip_norm=1e-46)


def test_a_scheduled_rate_that_is_too_large_changes_nothing():
    trainer = Trainer(MODEL, AdamW(lambda step: 1e-50 if step == 1 else 1e39))
    trainer.step(SRC, TGT)  # a schedule may end in 0
    before = trainer.flat_params.copy()
    refuses(ValueError, r"lr\(2\)=1e.39 is inf in float32, expected", trainer.step, SRC, TGT)
    assert_array_equal(trainer.flat_params, before)
    assert (trainer.n_steps, trainer.state.moments["m"].any()) == (1, True)


def test_settings_of_the_wrong_type():
    refused = partial(refuses, TypeError)
    refused("optimizer=.*Adam.*, expected an optimizer such as Adam", Trainer, MODEL, Adam)
    refused("lr=True is a bool, expected a number", Adam, lr=True)
    refused("lr=masked is a MaskedConstant, expected a number", Adam, lr=np.ma.masked)
    model = partial(Recurrent, 13, 13, 8)
    refused("bidirectional=.* is a ndarray, expected True", model, bidirectional=np.array(True))
    refused("key='7' is a str, expected an int", derive_key, "7", 1)
    refused("key=7.9 is a float, expected an int", split_key, 7.9, 2)
    refused("n='2' is a str, expected an int", split_key, 7, "2")


OTHERS = [{"tie_embeddings": True}, {"n_layers": 2}, {"n_layers": (1, 2)}, {"d_model": 16}]
OTHERS += [{"norm": "post"}, {"norm_type": "rms_norm"}, {"activation": "swiglu"}]


@pytest.mark.parametrize("settings", OTHERS, ids=str)
def test_parameters_of_another_model(settings, every_backend):
    model = made()
    params = made(**settings).init(0)
    refused = partial(refuses, ValueError, "parameter .*: given .*, expected .*")
    refused(model.encode, params, SRC, backend=every_backend)
    refused(model.decoder, params, SRC, max_rows=4, max_len=3, backend=every_backend)


def test_parameters_that_do_not_fit_are_named():
    model = made()
    src = SRC
    refused = partial(refuses, ValueError)
    transposed = model.init(0)
    transposed["output"]["weight"] = transposed["output"]["weight"].T
    advice = r"parameter output\.weight: given shape .*: try its \.T"
    refused(advice, model.encode, transposed, src)
    missing = r"parameter embedding: given nothing, expected shape \(11, "
    refused(missing, made(tie_embeddings=True).encode, model.init(0), src)
    grown = model.init(0)
    grown["encoder"]["0"]["attention"]["q"] = grown["encoder"]["0"]["attention"]["out"]
    unknown = "parameter encoder.0.attention.q.weight: given shape .*, expected nothing"
    refused(unknown, model.loss, grown, src, src)
    message = "params is a Trainer, expected a nested dict"
    refuses(TypeError, message, model.encode, Trainer(model, Adam()), src)


def test_parameters_that_fitted_once_are_checked_again():
    model = made()
    params = model.init(0)
    model.encode(params, SRC)
    del params["decoder"]["0"]["feed_forward"]
    message = "parameter decoder.0.feed_forward.hidden.weight: given nothing, expected"
    refuses(ValueError, message, model.encode, params, SRC)
    params["decoder"] = model.init(0)["decoder"]
    model.encode(params, SRC)
    params["output"]["bias"] = np.zeros(12, "float32")
    message = r"parameter output.bias: given shape \(12,\), expected shape \(11,\)"
    refuses(ValueError, message, model.encode, params, SRC)
