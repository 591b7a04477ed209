"""Plant mistakes into models, batches, trainers and decoders, and count which of them
npformer.diagnose finds.

python scripts/measure/diagnose_mistakes.py             # minutes
python scripts/measure/diagnose_mistakes.py --only causal

A mistake is found if there is any finding, and named rightly if one of the first two has a name
that a user would call right; no finding has a name for those without one. Some are seen only while
a model trains, with ``watch``. Beside them are healthy trainings and new models, in which every
finding is a false alarm.
"""

import copy
import inspect
import itertools
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from npformer.commands.arguments import new_parser  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import add_json, write_json
from scripts.bench.report import print_table

import npformer as nf
from npformer import tree
from npformer.decoding.text import LanguageDecoder
from npformer.decoding.translation import TranslationDecoder
from npformer.diagnosis.watch import MATCHED, SAME, UNLIKE
from npformer.models.encoder_decoder import EncoderDecoder
from npformer.models.low_rank import LowRank
from npformer.models.recurrent import RecurrentDecoder
from npformer.reference import ops as reference

TASK = nf.CopyTask(vocab=13, min_len=3, max_len=9)
SMALL = {"d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 64, "dropout": 0.0}
RNG = np.random.default_rng(5)


class Planted(NamedTuple):
    """A mistake: the names that are right, and a function that returns the arguments of
    ``diagnose`` that have it.
    """

    title: str
    names: set
    make: object


MISTAKES: list = []


def plant(*names, **makes):
    """Add mistakes of which these names are right: for each title, a function that makes the
    arguments.
    """
    MISTAKES.extend(
        Planted(title.replace("_", " "), set(names), make) for title, make in makes.items()
    )


def mistake(*names):
    """Add the decorated function, whose name is the title."""
    return lambda make: plant(*names, **{make.__name__: make})


# -- what is healthy


def new(model, batch):
    return {"model": model, "params": model.init(0), "batch": batch}


def pairs(kind=nf.Transformer, batch=None, **settings):
    shape = SMALL if issubclass(kind, nf.Transformer) else {"d_model": 32, "dropout": 0.0}
    shape = (
        shape
        | ({"n_sets": 1, "dilations": (1, 2)} if issubclass(kind, nf.ByteNet) else {})
        | settings
    )
    return new(kind(13, 13, **shape), batch or TASK.batch(0, 32))


def text(kind=nf.LanguageModel, batch=None, **settings):
    return new(kind(13, **SMALL | {"pad_id": 0} | settings), batch or (TASK.batch(0, 32)[1],))


def autoencoder(**settings):
    return new(nf.SequenceAutoencoder(13, **{"d_model": 32} | settings), TASK.batch(0, 32))


def words(n=16, T=10):
    ids = RNG.integers(1, 13, (n, T))
    ids[::2, 7:] = 0
    return ids


def classes(kind=nf.Encoder, batch=None, **settings):
    model = kind(13, **SMALL | {"task": "classes", "n_outputs": 3} | settings)
    return new(model, batch or (words(), RNG.integers(0, 3, 16)))


def numbers(**settings):
    model = nf.Encoder(
        None, **SMALL | {"n_inputs": 5, "task": "numbers", "n_outputs": 1} | settings
    )
    return new(
        model,
        (RNG.standard_normal((16, 8, 5), np.float32), RNG.standard_normal((16, 1), np.float32)),
    )


def trained(case, optimizer=None, **settings):
    trainer = nf.Trainer(case["model"], optimizer or nf.Adam(1e-3), **settings)
    return case | {"trainer": trainer, "params": trainer.params}


# -- how it is changed


def with_batch(case, change):
    """The same with the batch ``change(*batch)``."""
    return case | {"batch": tuple(map(np.ascontiguousarray, change(*case["batch"])))}


def changed(tree_of, path, change):
    """A copy of parameters, or of a gradient, with those arrays changed whose path ends so."""
    return tree.from_leaves(
        (p, change(x.copy()) if p.endswith(path) else x) for p, x in tree.leaves(tree_of)
    )


def with_params(case, path, change):
    """The same with some parameters changed."""
    return case | {"params": changed(case["params"], path, change)}


def around(inherited, change):
    """The function that calls ``change(inherited, …)``."""
    return lambda *args, **options: change(inherited, *args, **options)


def given(**arguments):
    """What calls the function that it is given, with other arguments: a function of them, or what
    is in their place.
    """

    def call(inherited, *args, **options):
        bound = inspect.signature(inherited).bind(*args, **options)
        bound.apply_defaults()
        for name, new in arguments.items():
            bound.arguments[name] = new(bound.arguments[name]) if callable(new) else new
        return inherited(*bound.args, **bound.kwargs)

    return call


def with_ops(case, **changes):
    """The same on a backend some of whose operations are changed, as in ``around``."""
    ops = nf.get_backend("auto")
    return case | {
        "backend": ops.replaced(
            **{name: around(getattr(ops, name), f) for name, f in changes.items()}
        )
    }


def variant(base, **members):
    """A subclass with other members; functions are changed, as in ``around``."""
    own = {
        name: around(getattr(base, name), f) if callable(f) else f for name, f in members.items()
    }
    return type(base.__name__, (base,), own)


def with_gradient(base, path, change):
    """A class of models whose gradients by some parameters are changed."""

    def loss_and_grad(compute, *args, **options):
        loss, grads, n = compute(*args, **options)
        return loss, grads and changed(grads, path, change), n

    return variant(base, loss_and_grad=loss_and_grad)


def with_decoder(base, decoder, **changes):
    """A class of models that decode with a variant of a decoder."""

    def make(inherited, *args, **options):
        made = inherited(*args, **options)
        made.__class__ = variant(decoder, **changes)
        return made

    return variant(base, decoder=make)


def watched(case, batches, *args, **options):
    """The arguments of ``fit`` with ``watch``, instead of those of ``diagnose``."""
    options |= {"watch": True, "progress": False}
    return {"trainer": case["trainer"], "fit": (batches, *args), "options": options}


# -- the data


plant(
    "targets not shifted",
    targets_are_the_inputs=lambda: with_batch(text(batch=(words(),)), lambda ids: (ids, ids)),
    targets_two_ahead=lambda: with_batch(
        text(batch=(words(),)), lambda ids: (ids[:, :-2], ids[:, 2:])
    ),
    targets_one_behind=lambda: with_batch(
        text(batch=(words(),)), lambda ids: (ids[:, 1:], ids[:, :-1])
    ),
)
plant(
    *("begin token", "targets not shifted"),
    no_begin_token=lambda: with_batch(pairs(), lambda src, tgt: (src, tgt[:, 1:])),
)
plant(
    "begin token",
    begin_token_twice=lambda: with_batch(pairs(), lambda src, tgt: (src, np.c_[tgt[:, :1], tgt])),
)
plant(
    "end token",
    no_end_token=lambda: with_batch(pairs(), lambda src, tgt: (src, np.where(tgt == 2, 0, tgt))),
)
plant(
    *("end token", "padding inside"),
    words_after_the_end=lambda: with_batch(
        pairs(), lambda src, tgt: (src, np.c_[tgt, np.full(32, 2)])
    ),
)
plant(
    *("padding counted", "end token"),
    padded_with_another_id=lambda: with_batch(
        pairs(), lambda *both: (np.where(x == 0, 12, x) for x in both)
    ),
)
plant("padding counted", the_model_knows_no_padding=lambda: text(pad_id=None))
plant(
    "padding inside",
    padding_at_the_beginning=lambda: with_batch(pairs(), lambda src, tgt: (src[:, ::-1], tgt)),
)
plant(
    *("padding inside", "end token"),
    padding_is_a_word=lambda: with_batch(
        pairs(pad_id=5), lambda *both: (np.where(x == 0, 5, x) for x in both)
    ),
)
plant(
    "does not run",
    ids_outside=lambda: with_batch(pairs(), lambda src, tgt: (src + 5, tgt)),
    classes_from_1=lambda: classes(batch=(words(), RNG.integers(1, 4, 16))),
    positions_end_too_early=lambda: pairs(max_len=6),
)
plant(
    "scale of the data",
    measurements_in_thousands=lambda: with_batch(numbers(), lambda x, y: (1000 * x + 3000, y)),
    predicted_numbers_in_thousands=lambda: with_batch(numbers(), lambda x, y: (x, 1000 * y)),
)
plant(
    "nothing to learn",
    all_padding=lambda: with_batch(pairs(), lambda src, tgt: (0 * src, tgt)),
    one_class=lambda: classes(batch=(words(), np.ones(16, int))),
    most_words_are_unknown=lambda: with_batch(
        pairs(), lambda *both: (np.where(x > 4, 3, x) for x in both)
    ),
)
plant(
    "copied rows",
    one_row_again_and_again=lambda: with_batch(
        pairs(), lambda *both: (np.repeat(x[:1], 32, axis=0) for x in both)
    ),
)
plant(
    one_long_row=lambda: with_batch(
        pairs(), lambda src, tgt: (np.pad(src, ((0, 0), (0, 60))), tgt)
    ),
)
plant(
    "one batch again and again",
    the_same_batch_in_each_step=lambda: watched(
        trained(pairs()), itertools.repeat(TASK.batch(0, 32)), SAME
    ),
)


@mistake("not finite")
def nan_in_the_measurements():
    case = numbers()
    case["batch"][0][3, 2, 1] = np.nan
    return case


@mistake("answers in the input", "start far from ln V")
def masked_words_are_shown():
    ids = words()
    return classes(
        task="words", n_outputs=None, batch=(ids, np.where(RNG.random(ids.shape) < 0.2, ids, -1))
    )


@mistake("rows do not match")
def sources_shuffled():
    shuffled = (
        (np.roll(src, 5, axis=0), tgt)
        for src, tgt in (TASK.batch(i, 16) for i in itertools.count())
    )
    return watched(trained(pairs(d_model=16, n_layers=1)), shuffled, MATCHED)


@mistake("rows do not match")
def sources_of_other_batches():
    others = ((TASK.batch(i + 1, 16)[0], TASK.batch(i, 16)[1]) for i in itertools.count())
    return watched(trained(pairs(d_model=16, n_layers=1)), others, UNLIKE)


@mistake("overfitting")
def few_rows_learned_by_heart():
    few, held_out = [TASK.batch(i, 4) for i in range(5)], [TASK.held_out(50)]
    return watched(
        trained(pairs(), nf.Adam(3e-3)), itertools.cycle(few), 300, validate=held_out, every=20
    )


@mistake("answers in the input")
def value_to_predict_among_the_inputs():
    case = numbers()
    x, y = case["batch"]
    x[:, -1, 0] = y[:, 0]
    return case


# -- what depends on what


not_causal = given(settings=lambda settings: replace(settings, causal=False))


def causal_but_one_too_far(attend, qkv, settings, keep_mask=None, **options):
    mask = np.tril(np.ones((qkv.shape[1], qkv.shape[1]), bool), 1)
    mask = mask if keep_mask is None else mask & keep_mask
    return attend(qkv, replace(settings, causal=False), mask, **options)


@mistake("later tokens leak")
def no_causal_mask_in_training_alone():
    def encode(inherited, self, ops, params, ids, dropout_key=None, train=False):
        ops = ops.replaced(self_attention=around(ops.self_attention, not_causal)) if train else ops
        return inherited(self, ops, params, ids, dropout_key, train)

    return text(
        variant(nf.LanguageModel, _encode=encode, loss_and_grad=given())
    )  # which does not tell of with_grad


plant(
    "later tokens leak",
    no_causal_mask_in_the_operation=lambda: with_ops(pairs(), self_attention=not_causal),
    no_causal_mask_in_the_text=lambda: text(variant(nf.LanguageModel, causal=False)),
    causal_mask_one_too_far=lambda: with_ops(text(), self_attention=causal_but_one_too_far),
    convolution_that_sees_the_future=lambda: pairs(
        variant(nf.ByteNet, _stack=given(causal=False)), kernel_sizes=(3, 3)
    ),
)


def masking(change):
    return given(keep_mask=lambda mask: None if mask is None else change(mask))


def all_kept(_, self, ids):
    return np.ones(ids.shape, bool)[:, None, None]


plant(
    "padding leaks",
    mask_of_padding_is_lost=lambda: with_ops(pairs(), self_attention=masking(np.ones_like)),
    padding_is_not_masked_by_the_model=lambda: pairs(variant(nf.Transformer, keep_mask=all_kept)),
    mean_over_padding=lambda: classes(variant(nf.Encoder, _before_output=given(keep_mask=None))),
)
plant(
    *("padding leaks", "input ignored"),
    mask_is_inverted=lambda: with_ops(pairs(), self_attention=masking(np.logical_not)),
)


@mistake("rows leak")
def batch_is_normalised():
    def embed(inherited, *args, **options):
        x, backward = inherited(*args, **options)
        return x - x.mean(axis=0), lambda dx, gradients: backward(dx - dx.mean(axis=0), gradients)

    return pairs(variant(nf.Transformer, embed=embed))


@mistake("rows leak")
def positions_along_the_rows():
    def embed(inherited, self, ops, params, side, ids, *args):
        x, backward = inherited(self, ops, params, side, ids, *args)
        table = nf.sinusoidal_encoding(99, self.d_model).astype(x.dtype)
        return x - table[: ids.shape[1]] + table[: len(ids), None], backward

    return text(variant(nf.LanguageModel, embed=embed))


def without_states(memory):
    return 0 * memory[0], [tuple(0 * x for x in layer) for layer in memory[1]]


plant(
    "input ignored",
    memory_is_zero=lambda: pairs(
        variant(nf.Transformer, _decode=given(memory=lambda memory: 0 * memory))
    ),
    states_of_the_encoder_are_not_used=lambda: pairs(
        variant(nf.Recurrent, _decode=given(memory=without_states))
    ),
)


def all_positions(number):
    return property(lambda self: np.full((self.max_len, self.d_model), number, np.float32))


plant(
    "no positions",
    positions_are_zeros=lambda: pairs(variant(nf.Transformer, position_table=all_positions(0))),
    all_positions_are_equal=lambda: classes(variant(nf.Encoder, position_table=all_positions(1))),
)
plant(
    "input ignored",
    positions_30_times_too_large=lambda: pairs(
        variant(
            nf.Transformer,
            position_table=property(lambda self: 30 * nf.sinusoidal_encoding(99, self.d_model)),
        )
    ),
)


def heads_split_without_a_transpose(attend, qkv, settings, keep_mask=None, **options):
    B, T, H = *qkv.shape[:2], settings.n_heads
    mixed = [
        x.reshape(B, H, T, -1).swapaxes(1, 2).reshape(B, T, -1) for x in np.split(qkv, 3, axis=-1)
    ]
    y, *saved = attend(np.concatenate(mixed, axis=-1), settings, keep_mask, **options)
    return y.reshape(B, T, H, -1).swapaxes(1, 2).reshape(y.shape), *saved


@mistake("input ignored")
def heads_are_split_without_a_transpose():
    case = text(pad_id=None, batch=(RNG.integers(0, 13, (8, 25)),))
    return with_ops(case, self_attention=heads_split_without_a_transpose) | {
        "quick": True
    }  # its gradient is not made


plant("input ignored", encoder_with_a_causal_mask=lambda: classes(variant(nf.Encoder, causal=True)))


def drawn(_):
    return int(np.random.default_rng().integers(1 << 30))


plant(
    "not repeatable",
    dropout_is_always_on=lambda: pairs(
        variant(nf.Transformer, _decode=given(dropout_key=drawn)), dropout=0.2
    ),
)
plant(
    "dropout has no effect",
    dropout_key_is_lost=lambda: text(
        variant(nf.LanguageModel, loss_and_grad=given(dropout_key=None)), dropout=0.2
    ),
)


# -- parameters and layers


def equal_heads(x):
    return np.concatenate([np.tile(part[:, :8], 4) for part in np.split(x, 3, axis=1)], axis=1)


def equal_layers():
    case = text()
    layers = case["params"]["layers"]
    layers["1"] = copy.deepcopy(layers["0"])
    return case


def layer_in_two_places():
    case = pairs()
    case["params"]["encoder"]["1"] = case["params"]["encoder"]["0"]
    return case


QKV = "attention.qkv.weight"
plant(
    "equal weights",
    queries_are_zero=lambda: with_params(
        pairs(), f"encoder.0.{QKV}", lambda x: x * (np.arange(96) >= 32)
    ),
    values_are_zero=lambda: with_params(text(), f"0.{QKV}", lambda x: x * (np.arange(96) < 64)),
    heads_are_equal=lambda: with_params(text(), f"1.{QKV}", equal_heads),
    layers_are_equal=equal_layers,
    one_layer_twice=layer_in_two_places,
    all_weights_are_equal=lambda: with_params(
        classes(), "hidden.weight", lambda x: np.full_like(x, 0.1)
    ),
)


@mistake("scale of scores")
def no_scale_in_the_settings():
    class Unscaled(nf.LanguageModel):
        @property
        def layer_settings(self):
            settings = super().layer_settings
            return replace(settings, attention=replace(settings.attention, scale=1.0))

    return text(Unscaled)


plant(
    *("scale of weights", "start far from ln V"),
    weights_ten_times_too_large=lambda: with_params(
        pairs(), "", lambda x: 10 * x if x.ndim > 1 else x
    ),
    output_layer_too_large=lambda: with_params(pairs(), "output.weight", lambda x: 20 * x),
)
plant(
    "scale of weights",
    weights_much_too_small=lambda: with_params(text(), "", lambda x: x / 100 if x.ndim > 1 else x),
    no_scale_in_the_operation=lambda: with_ops(
        pairs(), self_attention=given(settings=lambda settings: replace(settings, scale=1.0))
    ),
)


def with_nan(x):
    x[3, 3] = np.nan
    return x


plant(
    no_residual_connection=lambda: with_ops(
        text(), linear_dropout_residual=given(residual=np.zeros_like)
    )
)
plant(
    "no gradient",
    units_never_wake_up=lambda: with_params(
        pairs(), "encoder.0.feed_forward.hidden.bias", lambda x: x - 9
    ),
)
plant(
    "not finite",
    one_weight_is_nan=lambda: with_params(pairs(), "decoder.1.memory_attention.q.weight", with_nan),
)


# -- loss and gradient


def loss_with_padding(compute, self, params, *batch, **options):
    src, tgt = batch[0], batch[1]
    given, told = (tgt[:, :-1], tgt[:, 1:]) if len(batch) == 2 else batch[1:]
    ops = nf.get_backend(options.get("backend", "auto"), params)
    logits = self.logits(params, src, given, backend=ops)
    loss, _ = reference.cross_entropy(logits, told, n_tokens=options.get("n_tokens"))
    _, grads, n = compute(self, params, *batch, **options)
    return loss, grads, n


def summed(compute, *args, n_tokens=None, **options):
    loss, grads, n = compute(*args, n_tokens=n_tokens, **options)
    f = n if n_tokens is None else 1
    return loss * f, grads and tree.map_leaves(lambda g: g * f, grads), n


def loss_of_the_inputs(compute, self, params, *batch, **options):
    ids = batch[0][:, :-1] if len(batch) == 1 else batch[0]
    return compute(self, params, ids, ids, **options)


def loss_given_the_targets(compute, self, params, *batch, **options):
    told = batch[1][:, 1:] if len(batch) == 2 else batch[2]
    return compute(self, params, batch[0], told, told, **options)


without_n_tokens = variant(nf.Transformer, loss_and_grad=given(n_tokens=None))


def all_counted(_, self, ids, targets=None):
    return ids[:, 1:].size


plant(
    "padding counted",
    padding_is_in_the_loss=lambda: pairs(variant(nf.Transformer, loss_and_grad=loss_with_padding)),
)
plant("not the mean", loss_is_a_sum=lambda: text(variant(nf.LanguageModel, loss_and_grad=summed)))
plant(
    "targets not shifted",
    loss_of_the_inputs=lambda: text(variant(nf.LanguageModel, loss_and_grad=loss_of_the_inputs)),
    decoder_is_given_the_targets=lambda: pairs(
        variant(nf.Transformer, loss_and_grad=loss_given_the_targets)
    ),
)
plant(
    "n_tokens ignored",
    n_tokens_is_ignored=lambda: pairs(without_n_tokens),
    n_tokens_is_ignored_with_two_shards=lambda: trained(pairs(without_n_tokens), n_shards=2),
)
plant(
    "wrong count",
    padding_is_in_the_count=lambda: text(variant(nf.LanguageModel, count=all_counted)),
)


def cut_from_the_encoder(decode, *args):
    y, backward = decode(*args)
    return y, lambda dy, gradients: 0 * backward(dy, gradients)


plant(
    "no gradient",
    bias_gets_no_gradient=lambda: pairs(
        with_gradient(nf.Recurrent, "combine.bias", lambda g: 0 * g)
    ),
    encoder_gets_no_gradient=lambda: pairs(variant(nf.Transformer, _decode=cut_from_the_encoder)),
)


class WithoutTables:
    """Gradients of which those of tables are zeros."""

    def __init__(self, gradients):
        self.gradients = gradients

    def give(self, path, grads):
        """Pass gradients on."""
        self.gradients.give(path, grads if isinstance(grads, dict) else 0 * grads)


def encode_without_gradient(encode, *args):
    y, backward = encode(*args)
    return y, lambda dmemory, gradients: backward(dmemory, WithoutTables(gradients))


def norm_backward_of_constants(backward, dy, x, gain, mean, rstd):
    dx = dy * gain * (rstd[..., None] if rstd.ndim < x.ndim else rstd)
    return dx, *backward(dy, x, gain, mean, rstd)[1:]


def embed_with_another_key(embed, self, ops, params, side, ids, dropout_key=None, at=None):
    x, _ = embed(self, ops, params, side, ids, dropout_key, at)
    return x, embed(self, ops, params, side, ids, dropout_key and dropout_key + 1, at)[1]


plant(
    "wrong gradient",
    sign_of_a_gradient=lambda: pairs(
        with_gradient(nf.Transformer, "decoder.0.feed_forward.out.weight", np.negative)
    ),
    gradient_of_keys_too_large=lambda: text(
        with_gradient(nf.LanguageModel, f"0.{QKV}", lambda g: g * np.repeat([1, 2, 1], 32))
    ),
    tied_table_gets_half_of_its_gradient=lambda: pairs(
        variant(nf.Transformer, _encode=encode_without_gradient), tie_embeddings=True
    ),
    softmax_term_is_missing_in_the_backward_pass=lambda: with_ops(
        text(), layer_norm_backward=norm_backward_of_constants
    ),
    dropout_is_not_in_the_backward_pass=lambda: with_ops(
        text(dropout=0.3),
        dropout_backward=lambda _, dy, *dropout: dy,
        embed_tokens_backward=given(dropout_rate=0.0, dropout_key=None),
    ),
    dropout_of_another_key_in_the_backward_pass=lambda: text(
        variant(nf.LanguageModel, embed=embed_with_another_key), dropout=0.3
    ),
)


def with_buffers(write):
    """``loss_and_grad`` whose gradients are ``write(buffer, gradient)``, where buffers are kept
    between calls.
    """
    buffers = {}

    def loss_and_grad(compute, *args, **options):
        loss, grads, n = compute(*args, **options)
        for path, g in tree.leaves(grads) if grads else ():
            buffers[path, g.dtype] = write(buffers.get((path, g.dtype), np.zeros_like(g)), g)
        return (
            loss,
            grads and tree.from_leaves((p, buffers[p, g.dtype]) for p, g in tree.leaves(grads)),
            n,
        )

    return loss_and_grad


def overwritten(buffer, g):
    buffer[...] = g
    return buffer


plant(
    "gradients overwritten",
    one_buffer_for_all_gradients=lambda: pairs(
        variant(nf.Recurrent, loss_and_grad=with_buffers(overwritten))
    ),
)
plant(
    "not repeatable",
    gradients_are_added_up=lambda: text(
        variant(nf.LanguageModel, loss_and_grad=with_buffers(np.add))
    ),
)


@mistake("not repeatable")
def forward_pass_writes_into_parameters():
    def encode(inherited, self, ops, params, *args):
        params["layers"]["0"]["feed_forward"]["out"]["bias"] += 1e-3
        return inherited(self, ops, params, *args)

    return text(variant(nf.LanguageModel, _encode=encode))


# -- the training


plant(
    "rate too large",
    rate_100_times_too_large=lambda: trained(pairs(), nf.Adam(0.1)),
    peak_100_times_too_large=lambda: trained(text(), nf.Adam(nf.warmup_cosine(0.3, 100, 1000))),
    rate_10_times_too_large=lambda: trained(pairs(d_model=128, n_heads=8, d_ff=256), nf.Adam(1e-2)),
    rate_of_sgd_for_another_loss=lambda: trained(classes(), nf.SGD(30.0)),
)
plant(
    "rate too small",
    warm_up_of_a_million_steps=lambda: trained(pairs(), nf.Adam(nf.noam(32, 1_000_000))),
    epochs_are_given_for_steps=lambda: watched(
        trained(pairs(), nf.Adam(nf.warmup_cosine(1e-3, 1, 10))),
        map(TASK.batch, range(14), [32] * 14),
        14,
    ),
    warm_up_is_longer_than_the_training=lambda: (
        trained(pairs(), nf.Adam(nf.noam(32))) | {"n_steps": 300}
    ),
    decay_of_epochs_in_each_step=lambda: trained(pairs(), nf.Adam(lambda step: 6e-3 * 0.9**step)),
    rate_a_million_times_too_small=lambda: trained(pairs(), nf.Adam(1e-9)),
)
plant("frozen", new_layers_are_frozen=lambda: trained(pairs(), frozen=["encoder", "decoder"]))
plant("dropout", dropout_09=lambda: pairs(dropout=0.9))
plant(
    "unusual setting",
    label_smoothing_09=lambda: trained(pairs(), label_smoothing=0.9),
    betas_exchanged=lambda: trained(text(), nf.Adam(1e-3, betas=(0.999, 0.9))),
    weights_decay_to_nothing=lambda: trained(pairs(), nf.AdamW(1e-3, weight_decay=30.0)),
    clipped_to_nothing=lambda: trained(pairs(), nf.SGD(0.1), clip_norm=1e-4),
)
plant("unusual setting", "rate too small", eps_1=lambda: trained(pairs(), nf.Adam(1e-3, eps=1.0)))


@mistake("wrong update")
def optimizer_forgets_half():
    @dataclass(frozen=True)
    class Half(nf.Adam):
        def update(self, ops, param, grad, state, *args, **options):
            n = len(param) // 2
            super().update(
                ops, param[:n], grad[:n], {k: v[:n] for k, v in state.items()}, *args, **options
            )

    return trained(pairs(), Half(1e-3))


@mistake("stale parameters")
def parameters_of_before_the_training():
    case = trained(pairs())
    stale = tree.map_leaves(np.copy, case["params"])
    for i in range(5):
        case["trainer"].step(*TASK.batch(i, 32))
    return case | {"params": stale}


# -- decoding


def rotary_from_0(cache_of, self, part):
    cache = cache_of(self, part)
    return cache._replace(positions=np.full_like(cache.positions, self.n_steps - 1))


def over_the_last_step(extend, self, parents, first):
    return extend(self, parents, max(self.n_prompt_entries, first - self.max_rows))


def each_its_own(parents):
    return np.arange(len(parents))


plant(
    "cache differs",
    position_is_one_off=lambda: pairs(
        with_decoder(nf.Transformer, TranslationDecoder, _newest=given(t=lambda t: t + 1))
    ),
    parents_are_ignored=lambda: pairs(
        with_decoder(nf.Transformer, TranslationDecoder, step=given(parents=each_its_own))
    ),
    cache_is_written_over=lambda: text(
        with_decoder(nf.LanguageModel, LanguageDecoder, _extend=over_the_last_step)
    ),
    rotary_positions_begin_again=lambda: text(
        with_decoder(nf.LanguageModel, LanguageDecoder, _cache=rotary_from_0), positions="rotary"
    ),
    state_of_the_last_step_is_lost=lambda: pairs(
        with_decoder(nf.Recurrent, RecurrentDecoder, _newest=given(t=0))
    ),
)
plant(
    "begin token", decoding_begins_with_another_token=lambda: pairs() | {"bos_id": 2, "eos_id": 2}
)
plant(
    "end token",
    decoding_ends_with_another_token=lambda: pairs() | {"bos_id": 1, "eos_id": 3},
    decoding_is_cut_off=lambda: pairs() | {"bos_id": 1, "eos_id": 2, "max_len": 5},
)
plant(
    *("end token", "padding inside"),
    end_token_is_padding=lambda: pairs() | {"bos_id": 1, "eos_id": 0},
)


# -- deep models


DEEP = {"n_layers": 6, "d_model": 16, "d_ff": 32, "norm": "post"}
plant(
    "later tokens leak",
    no_causal_mask_in_a_deep_text=lambda: text(variant(nf.LanguageModel, causal=False), **DEEP),
)
plant(
    "padding leaks",
    mask_of_padding_is_lost_in_deep_layers=lambda: with_ops(
        pairs(**DEEP), self_attention=masking(np.ones_like)
    ),
)
plant(
    "input ignored",
    memory_is_zero_in_deep_layers=lambda: pairs(
        variant(nf.Transformer, _decode=given(memory=lambda memory: 0 * memory)), **DEEP
    ),
    deep_text_of_one_token=lambda: text(window=1, **DEEP),
)
plant(
    "no positions",
    positions_are_zeros_in_deep_layers=lambda: classes(
        variant(nf.Encoder, position_table=all_positions(0)), **DEEP
    ),
)


# -- adapters


def adapted(case, kind=LowRank, **options):
    """New adapters of a model."""
    return new(kind(case["model"], case["params"], **{"rank": 2} | options), case["batch"])


def equal_columns(x):
    return np.tile(x[:, :1], x.shape[1])


plant(
    *("equal weights", "no gradient"),
    both_matrices_of_adapters_are_zero=lambda: with_params(adapted(text()), ".A", np.zeros_like),
    columns_of_adapters_are_equal=lambda: with_params(adapted(text()), ".A", equal_columns),
)
plant(
    "scale of weights",
    adapters_are_far_too_large=lambda: with_params(adapted(text()), ".A", lambda x: 100 * x),
)
plant(
    "later tokens leak",
    adapters_of_a_text_without_a_mask=lambda: adapted(
        text(variant(nf.LanguageModel, causal=False))
    ),
)
plant(
    "targets not shifted",
    adapters_learn_the_inputs=lambda: with_batch(adapted(text()), lambda ids: (ids, ids)),
)
plant(
    "rate too large",
    rate_of_adapters_is_too_large=lambda: trained(adapted(text()), nf.Adam(3.0)),
)
plant(
    "rate too small",
    rate_of_adapters_is_too_small=lambda: trained(adapted(text()), nf.Adam(1e-8)),
)
plant(
    *("no gradient", "wrong gradient"),
    adapters_get_no_gradient=lambda: adapted(
        text(), with_gradient(LowRank, "qkv.weight.B", np.zeros_like)
    ),
    adapters_get_half_of_their_gradient=lambda: adapted(
        text(), with_gradient(LowRank, ".B", lambda g: g / 2)
    ),
)


# -- a trained model, and another vocabulary, order or preparation


def rules(n=32):
    """Rows (n, 10) in which each word is at most three after that before it, and a class for each
    row.
    """
    first = RNG.choice(10, (n, 1), p=np.arange(10, 0, -1) / 55)
    return 3 + (first + np.cumsum(RNG.integers(0, 4, (n, 10)), axis=1)) % 10, first[:, 0] % 3


def rules_of_text():
    return text(batch=rules()[:1])


def after(case, n_steps=150, optimizer=None, **settings):
    """The same with a trainer, which has made steps with new rows of the task, or with the same
    batch.
    """
    case = trained(case, optimizer or nf.Adam(5e-3), **settings)
    for i in range(n_steps):
        case["trainer"].step(
            *(TASK.batch(i, 32) if isinstance(case["model"], EncoderDecoder) else case["batch"])
        )
    return case


def loaded(case, n_steps=150):
    """The same after a training, without its trainer."""
    return {name: after(case, n_steps)[name] for name in ("model", "params", "batch")}


def in_another_order(ids):
    """The same words by the ids of another vocabulary; special tokens keep theirs."""
    return np.r_[0:3, 3 + np.random.default_rng(0).permutation(10)][ids]


def all_in_another_order(*batch):
    return map(in_another_order, batch)


plant(
    "worse than chance",
    sources_in_another_order=lambda: with_batch(
        loaded(pairs(), 400), lambda src, tgt: (in_another_order(src), tgt)
    ),
    text_in_another_order=lambda: with_batch(loaded(rules_of_text()), all_in_another_order),
    deep_text_in_another_order=lambda: with_batch(
        loaded(text(batch=rules()[:1], n_layers=4, norm="post")), all_in_another_order
    ),
    training_goes_on_in_another_order=lambda: with_batch(
        after(rules_of_text()), all_in_another_order
    ),
    new_adapters_for_another_vocabulary=lambda: with_batch(
        adapted(loaded(rules_of_text())), all_in_another_order
    ),
    trained_adapters_for_another_vocabulary=lambda: with_batch(
        after(adapted(loaded(rules_of_text()), whole=("norm",)), 60), all_in_another_order
    ),
    classes_in_another_order=lambda: with_batch(
        loaded(classes(batch=rules())), lambda x, y: (x, (y + 1) % 3)
    ),
    words_of_a_classifier_in_another_order=lambda: with_batch(
        loaded(classes(batch=rules(64))), lambda x, y: (in_another_order(x), y)
    ),
    targets_of_a_trained_model_are_negated=lambda: with_batch(
        loaded(numbers()), lambda x, y: (x, -y)
    ),
)
plant(
    *("worse than chance", "scale of the data"),
    targets_of_a_trained_model_have_other_units=lambda: with_batch(
        loaded(numbers()), lambda x, y: (x, 1000 + 30 * y)
    ),
)


def in_order(case, arrays, key, size=16):
    """A watched training with the rows of some arrays in the order of their keys."""
    order = np.argsort(key, kind="stable")
    parts = np.split(order, len(order) // size)
    return watched(trained(case, nf.Adam(5e-3)), (tuple(x[part] for x in arrays) for part in parts))


def rows_in_the_order_of_their_classes():
    ids, labels = rules(1920)
    return in_order(classes(), (ids, labels), labels)


def texts_in_the_order_of_their_subjects():
    subjects = np.arange(1920) // 640
    ids = RNG.integers(1, 5, (1920, 12)) + 4 * subjects[:, None]
    return in_order(text(), (ids,), subjects)


def numbers_in_the_order_of_their_targets():
    x = RNG.standard_normal((1920, 8, 5)).astype(np.float32)
    y = x[:, :, :1].mean(axis=1) * 3
    return in_order(numbers(), (x, y), y[:, 0])


plant(
    *("rows in order", "nothing to learn"),
    rows_in_the_order_of_their_classes=rows_in_the_order_of_their_classes,
)
plant(
    "rows in order",
    texts_in_the_order_of_their_subjects=texts_in_the_order_of_their_subjects,
    numbers_in_the_order_of_their_targets=numbers_in_the_order_of_their_targets,
)


def of_task(size=32):
    return (TASK.batch(i, size) for i in itertools.count())


def of_text(size=32):
    return (rules(size)[:1] for _ in itertools.count())


def of_classes(size=32):
    return (rules(size) for _ in itertools.count())


def of_numbers(size=32):
    while True:
        x = RNG.standard_normal((size, 8, 5)).astype(np.float32)
        yield x, 3 * x[:, :, :1].mean(axis=1)


def validated(case, batches, change=None, n_steps=200, optimizer=None):
    """A watched training whose validation may be prepared in another way."""
    held_out = list(itertools.islice(batches, 8))
    if change:
        held_out = [tuple(map(np.ascontiguousarray, change(*batch))) for batch in held_out]
    trainer = trained(case, optimizer or nf.Adam(5e-3))
    return watched(trainer, itertools.islice(batches, n_steps), validate=held_out, every=20)


plant(
    "validation differs",
    sources_of_the_validation_have_another_vocabulary=lambda: validated(
        pairs(), of_task(), lambda src, tgt: (in_another_order(src), tgt)
    ),
    text_of_the_validation_has_another_vocabulary=lambda: validated(
        text(), of_text(), all_in_another_order
    ),
    validation_is_padded_with_another_id=lambda: validated(
        pairs(), of_task(), lambda src, tgt: (np.where(src == 0, 12, src), tgt)
    ),
    validation_has_other_units=lambda: validated(
        numbers(), of_numbers(), lambda x, y: (1000 + 30 * x, y)
    ),
    targets_of_the_validation_have_other_units=lambda: validated(
        numbers(), of_numbers(), lambda x, y: (x, 1000 + 30 * y)
    ),
)


# -- what is healthy


OPTIONS = [
    {},
    {"norm": "post"},
    {"norm_type": "rms_norm", "activation": "swiglu"},
    {"positions": "learned", "max_len": 40},
    {"positions": "rotary", "n_kv_heads": 2},
    {"bias": False, "activation": "gelu"},
    {"d_model": 64, "d_ff": 128},
    {"window": 4},
    {"n_layers": 4, "d_model": 16},
    {"dropout": 0.2},
    {"tie_embeddings": True},
    {"dtype": "float64"},
]
OF_ENCODERS = [each for each in OPTIONS[:8] if "window" not in each]
POOLED = [
    {"pooling": "first"},
    {"pooling": "max", "pooler": True},
    {"n_outputs": 7},
    {"positions": "none"},
]
CELLS = [{}, {"cell": "lstm"}, {"attention": "additive"}, {"attention": None}]
CELLS += [{"bidirectional": False}, {"n_layers": 2}]
BLOCKS = [
    {},
    {"dilations": (1, 2, 4)},
    {"kernel_sizes": (3, 2)},
    {"tie_embeddings": True},
    {"dropout": 0.1},
]
GPT2 = {
    "positions": "learned",
    "max_len": 40,
    "activation": "gelu",
    "tie_embeddings": True,
    "scale_embeddings": False,
}
LLAMA = {
    "positions": "rotary",
    "n_kv_heads": 2,
    "norm_type": "rms_norm",
    "activation": "swiglu",
    "bias": False,
}
BERT = {
    "norm": "post",
    "positions": "learned",
    "max_len": 40,
    "activation": "gelu",
    "pooling": "first",
}


def without_padding(**settings):
    return text(pad_id=None, batch=(RNG.integers(0, 13, (16, 14)),), **settings)


def masked(**settings):
    ids = words()
    hidden = (RNG.random(ids.shape) < 0.2) & (ids != 0)
    batch = np.where(hidden, 12, ids), np.where(hidden, ids, -1)
    return classes(task="words", n_outputs=None, batch=batch, **settings)


FAMILIES = {
    "Transformer": (pairs, OPTIONS),
    "LanguageModel": (text, OPTIONS[:10]),
    "LanguageModel without padding": (without_padding, [{}]),
    "SequenceAutoencoder": (autoencoder, [{}, {"code_size": 8}]),
    "Encoder": (classes, OF_ENCODERS + POOLED),
    "Encoder of numbers": (numbers, [{}, {"norm": "post"}, {"pooling": "max"}]),
    "Encoder of words": (masked, [{}]),
    "Recurrent": (partial(pairs, nf.Recurrent), CELLS),
    "ByteNet": (partial(pairs, nf.ByteNet), BLOCKS),
}
OPTIMIZERS = [
    nf.Adam(1e-3),
    nf.Adam(nf.warmup_cosine(5e-3, 10, 200)),
    nf.AdamW(2e-3),
    nf.SGD(0.1, momentum=0.9),
    nf.Adam(nf.noam(32, 400), betas=(0.9, 0.98), eps=1e-9),
    nf.Adam(3e-4),
]
TRAININGS = list(
    zip(
        OPTIMIZERS,
        [0, 5, 30, 0, 60, 15],
        [{}, {"clip_norm": 1.0}, {"n_shards": 2}] * 2,
        strict=True,
    )
)
SHAPES = [{}, {"d_model": 16, "d_ff": 32}, {"d_model": 64, "d_ff": 256}, {"tie_embeddings": True}]
OF_DEPTHS = {
    "Transformer": pairs,
    "LanguageModel": text,
    "Encoder": classes,
    "Encoder of words": masked,
}
ADAPTED = {
    "Transformer": (pairs, {}),
    "Transformer of the paper": (partial(pairs, norm="post"), {}),
    "GPT-2": (partial(text, **GPT2), {"targets": ("qkv",)}),
    "Llama": (partial(text, **LLAMA), {"rank": 4, "alpha": 8.0}),
    "BERT": (partial(classes, **BERT), {"whole": ("output",)}),
    "Encoder of numbers": (numbers, {"targets": ("feed_forward",)}),
}
LEARNED = {
    "Transformer": pairs,
    "Transformer of the paper": partial(pairs, norm="post"),
    "GPT-2": partial(text, **GPT2),
    "Llama": partial(text, **LLAMA),
    "BERT": partial(classes, **BERT),
    "BERT of words": partial(masked, norm="post"),
    "Encoder of numbers": numbers,
    "rules": rules_of_text,
}
WATCHED = {
    "Transformer": (pairs, of_task),
    "Transformer of the paper": (partial(pairs, norm="post"), of_task),
    "Recurrent": (partial(pairs, nf.Recurrent), of_task),
    "GPT-2": (partial(text, **GPT2), of_text),
    "Llama": (partial(text, **LLAMA), of_text),
    "Encoder": (classes, of_classes),
    "BERT": (partial(classes, **BERT), of_classes),
    "Encoder of numbers": (numbers, of_numbers),
}


def healthy():
    """(title, function that returns arguments of ``diagnose``) of trainings without a mistake, and
    of new models.
    """
    yield from trainings()
    yield from new_models()
    for (name, (make, options)), n_before, n_steps in itertools.product(
        ADAPTED.items(), (0, 100), (0, 30)
    ):
        title = f"LowRank of {name} after {n_before} steps, {n_steps} steps"
        yield title, partial(trained_adapters, make, options, n_before, n_steps)
    for name, make in LEARNED.items():
        yield f"{name}, learned", partial(learned, make)
    for (name, (make, batches)), rate in itertools.product(WATCHED.items(), (5e-3, 1e-3)):
        yield f"{name}, watched at {rate}", partial(watched_training, make, batches, rate)


def trainings():
    """Trainings of different lengths."""
    cases = ((name, make, settings) for name, (make, each) in FAMILIES.items() for settings in each)
    for (name, make, settings), (optimizer, n_steps, options) in zip(
        cases, itertools.cycle(TRAININGS)
    ):
        title = f"{name} {settings}, {n_steps} steps of {optimizer}"
        yield title, partial(training, make, settings, n_steps, optimizer, options)


def training(make, settings, n_steps, optimizer, options):
    return after(make(**settings), n_steps, optimizer, **options)


def new_models():
    """Models of 1 to 12 layers before their training, each with another seed."""
    kinds = itertools.product((1, 2, 3, 4, 6, 8, 10, 12), ("pre", "post"), OF_DEPTHS.items())
    for seed, (n_layers, norm, (name, make)) in enumerate(kinds):
        settings = {"n_layers": n_layers, "norm": norm} | SHAPES[(seed + n_layers) % len(SHAPES)]
        if make is classes:
            settings.pop("tie_embeddings", None)
        yield f"new {name} {settings}", partial(with_seed, make, settings, seed)


def with_seed(make, settings, seed):
    case = make(**settings)
    return case | {"params": case["model"].init(seed)}


def trained_adapters(make, options, n_before, n_steps):
    return after(adapted(after(make(), n_before), **options), n_steps)


def learned(make):
    return loaded(make(), 300)


def watched_training(make, batches, rate):
    return validated(make(), batches(), optimizer=nf.Adam(rate))


@command
def main(argv=None):
    parser = new_parser(__doc__)
    only = "mistakes and healthy models whose title has this word"
    parser.add_argument("--only", default="", metavar="WORD", help=only)
    parser.add_argument("--verbose", action="store_true", help="print each report")
    add_json(parser)
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    mistakes = diagnosed_mistakes(options)
    alarms = false_alarms(options)
    write_json(options.json, {"mistakes": mistakes, "healthy": alarms})


def diagnosed_mistakes(options):
    """The findings for each mistake; prints a table of them, and how many were found."""
    figures, rows = {}, []
    counts = Counter()
    for title, names, make in MISTAKES:
        if options.only not in title:
            continue
        findings = examined(make(), options.verbose).names
        is_named = bool(names & set(findings[:2]))
        outcome = "named" if is_named else "found" if findings else "MISSED"
        counts[outcome] += 1
        figures[title] = {"findings": findings, "named": is_named}
        rows.append((title, outcome, ", ".join(findings[:4])))
    print_table(["mistake", "", "findings"], rows)
    n_found = counts["named"] + counts["found"]
    named = f"{counts['named']} named rightly, {counts['MISSED']} missed"
    print(f"{len(rows)} mistakes: {n_found} found, {named}\n")
    return figures


def false_alarms(options):
    """The findings for each healthy training and new model; prints those that have any."""
    figures = {}
    for title, make in healthy():
        if options.only not in title:
            continue
        figures[title] = findings = examined(make(), options.verbose).names
        if findings:
            print(f"false alarm: {title}: {', '.join(findings)}")
    n_alarms = sum(map(bool, figures.values()))
    print(f"{n_alarms} false alarms in {len(figures)} healthy trainings and new models")
    return figures


def examined(case, verbose):
    """The findings for the arguments of ``diagnose``, or of ``fit``."""
    start = time.perf_counter()
    if "fit" in case:
        with warnings.catch_warnings(action="ignore"):
            case["trainer"].fit(*case["fit"], **case["options"])
        found = case["trainer"].watched.findings
    else:
        found = nf.diagnose(**case)
    if verbose:
        print(found, f"\n{time.perf_counter() - start:.1f} s\n")
    return found


if __name__ == "__main__":
    sys.exit(main())
