"""Plant mistakes into models, batches, trainers and decoders, and count which of them npformer.diagnose finds.

python scripts/measure/diagnose_mistakes.py             # minutes
python scripts/measure/diagnose_mistakes.py --only causal

A mistake is found if there is any finding, and named rightly if one of the first two has a name that a user would call
right; no finding has a name for those without one. Some are seen only while a model trains, with ``watch``. Beside them
are 50 healthy trainings, in which every finding is a false alarm.
"""

import copy
import itertools
import sys
import time
import warnings
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from npformer.commands.arguments import new_parser  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import add_json, write_json
from scripts.bench.report import print_table

import npformer as nf
from npformer import tree
from npformer.models.incremental import IncrementalDecoder, LanguageDecoder
from npformer.models.recurrent import RecurrentDecoder
from npformer.reference import ops as reference
from npformer.training.watch import MATCHED, SAME

TASK = nf.CopyTask(vocab=13, min_len=3, max_len=9)
SMALL = {"d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 64, "dropout": 0.0}
RNG = np.random.default_rng(5)


class Planted(NamedTuple):
    """A mistake: the names that are right, and the arguments of ``diagnose`` that have it."""

    title: str
    names: set
    make: object


MISTAKES: list = []


def mistake(*names):
    """Add a function that returns the arguments of ``diagnose`` to the list, with the names that are right."""

    def add(make):
        MISTAKES.append(Planted(make.__name__.replace("_", " "), set(names), make))
        return make

    return add


# -- what is healthy


def pairs(kind=nf.Transformer, batch=None, params=None, **settings):
    shape = SMALL if issubclass(kind, nf.Transformer) else {"d_model": 32, "dropout": 0.0}
    shape = shape | ({"n_sets": 1, "dilations": (1, 2)} if issubclass(kind, nf.ByteNet) else {}) | settings
    model = kind(13, 13, **shape)
    return {"model": model, "params": params or model.init(0), "batch": batch or TASK.batch(0, 32)}


def text(kind=nf.LanguageModel, batch=None, **settings):
    model = kind(13, **SMALL | {"pad_id": 0} | settings)
    return {"model": model, "params": model.init(0), "batch": batch or (TASK.batch(0, 32)[1],)}


def autoencoder(**settings):
    model = nf.SequenceAutoencoder(13, **{"d_model": 32} | settings)
    return {"model": model, "params": model.init(0), "batch": TASK.batch(0, 32)}


def words(n=16, T=10):
    ids = RNG.integers(1, 13, (n, T))
    ids[::2, 7:] = 0
    return ids


def classes(kind=nf.Encoder, batch=None, **settings):
    model = kind(13, **SMALL | {"task": "classes", "n_outputs": 3} | settings)
    return {"model": model, "params": model.init(0), "batch": batch or (words(), RNG.integers(0, 3, 16))}


def numbers(batch=None, **settings):
    model = nf.Encoder(None, **SMALL | {"n_inputs": 5, "task": "numbers", "n_outputs": 1} | settings)
    x, y = RNG.standard_normal((16, 8, 5), np.float32), RNG.standard_normal((16, 1), np.float32)
    return {"model": model, "params": model.init(0), "batch": batch or (x, y)}


def trained(case, optimizer=None, **settings):
    trainer = nf.Trainer(case["model"], optimizer or nf.Adam(1e-3), **settings)
    return case | {"trainer": trainer, "params": trainer.params}


def watched(case, batches, *args, **options):
    """The arguments of ``fit`` with ``watch``, instead of those of ``diagnose``."""
    return {
        "trainer": case["trainer"],
        "fit": (batches, *args),
        "options": options | {"watch": True, "progress": False},
    }


def replaced(case, **operations):
    ops = nf.get_backend("auto")
    changed = {name: make(getattr(ops, name)) for name, make in operations.items()}
    return case | {"backend": ops.replaced(**changed)}


def changed(tree_of, path, change):
    """A copy of parameters with one array changed."""
    return tree.from_leaves((p, change(x.copy()) if p.endswith(path) else x) for p, x in tree.leaves(tree_of))


# -- the data


@mistake("targets not shifted")
def targets_are_the_inputs():
    ids = words()
    return text(batch=(ids, ids))


@mistake("targets not shifted")
def targets_two_ahead():
    ids = words()
    return text(batch=(np.ascontiguousarray(ids[:, :-2]), np.ascontiguousarray(ids[:, 2:])))


@mistake("targets not shifted")
def targets_one_behind():
    ids = words()
    return text(batch=(np.ascontiguousarray(ids[:, 1:]), np.ascontiguousarray(ids[:, :-1])))


@mistake("begin token", "targets not shifted")
def no_begin_token():
    src, tgt = TASK.batch(0, 32)
    return pairs(batch=(src, np.ascontiguousarray(tgt[:, 1:])))


@mistake("end token")
def no_end_token():
    src, tgt = TASK.batch(0, 32)
    return pairs(batch=(src, np.where(tgt == 2, 0, tgt)))


@mistake("begin token")
def begin_token_twice():
    src, tgt = TASK.batch(0, 32)
    return pairs(batch=(src, np.concatenate([tgt[:, :1], tgt], axis=1)))


@mistake("end token")
def words_after_the_end():
    src, tgt = TASK.batch(0, 32)
    return pairs(batch=(src, np.concatenate([tgt, np.full((32, 1), 2)], axis=1)))


@mistake("padding counted", "end token")
def padded_with_another_id():
    return pairs(batch=tuple(np.where(x == 0, 12, x) for x in TASK.batch(0, 32)))


@mistake("padding counted")
def the_model_knows_no_padding():
    return text(pad_id=None)


@mistake("padding inside")
def padding_at_the_beginning():
    src, tgt = TASK.batch(0, 32)
    return pairs(batch=(np.ascontiguousarray(src[:, ::-1]), tgt))


@mistake("padding inside", "end token")
def padding_is_a_word():
    src, tgt = TASK.batch(0, 32)
    return pairs(batch=(np.where(src == 0, 5, src), np.where(tgt == 0, 5, tgt)), pad_id=5)


@mistake("does not run")
def ids_outside():
    src, tgt = TASK.batch(0, 32)
    return pairs(batch=(src + 5, tgt))


@mistake("does not run")
def classes_from_1():
    return classes(batch=(words(), RNG.integers(1, 4, 16)))


@mistake("not finite")
def nan_in_the_measurements():
    x = RNG.standard_normal((16, 8, 5), np.float32)
    x[3, 2, 1] = np.nan
    return numbers(batch=(x, np.ones((16, 1), np.float32)))


@mistake("scale of the data")
def measurements_in_thousands():
    case = numbers()
    x, y = case["batch"]
    return case | {"batch": (1000 * x + 3000, y)}


@mistake("scale of the data")
def predicted_numbers_in_thousands():
    case = numbers()
    x, y = case["batch"]
    return case | {"batch": (x, 1000 * y)}


@mistake("nothing to learn")
def all_padding():
    src, tgt = TASK.batch(0, 32)
    return pairs(batch=(np.zeros_like(src), tgt))


@mistake("nothing to learn")
def one_class():
    return classes(batch=(words(), np.ones(16, int)))


@mistake("start far from ln V")
def masked_words_are_shown():
    ids = words()
    return classes(task="words", n_outputs=None, batch=(ids, np.where(RNG.random(ids.shape) < 0.2, ids, -1)))


@mistake()
def one_row_again_and_again():
    return pairs(batch=tuple(np.repeat(x[:1], 32, axis=0) for x in TASK.batch(0, 32)))


@mistake("rows do not match")
def sources_shuffled():
    shuffled = ((np.roll(src, 5, axis=0), tgt) for src, tgt in (TASK.batch(i, 16) for i in itertools.count()))
    return watched(trained(pairs(d_model=16, n_layers=1)), shuffled, MATCHED)


@mistake("one batch again and again")
def the_same_batch_in_each_step():
    return watched(trained(pairs()), itertools.repeat(TASK.batch(0, 32)), SAME)


@mistake("overfitting")
def few_rows_learned_by_heart():
    few, held_out = [TASK.batch(i, 4) for i in range(5)], [TASK.held_out(50)]
    return watched(trained(pairs(), nf.Adam(3e-3)), itertools.cycle(few), 300, validate=held_out, every=20)


@mistake("nothing to learn")
def most_words_are_unknown():
    return pairs(batch=tuple(np.where(x > 4, 3, x) for x in TASK.batch(0, 32)))


@mistake("answers in the input")
def value_to_predict_among_the_inputs():
    case = numbers()
    x, y = case["batch"]
    x[:, -1, 0] = y[:, 0]
    return case


@mistake()
def one_long_row():
    src, tgt = TASK.batch(0, 32)
    return pairs(batch=(np.pad(src, ((0, 0), (0, 60))), tgt))


@mistake("does not run")
def positions_end_too_early():
    return pairs(max_len=6)


# -- what depends on what


def not_causal(attend):
    def self_attention(qkv, settings, keep_mask=None, *, bias=None, dropout_key=None):
        return attend(qkv, replace(settings, causal=False), keep_mask, bias=bias, dropout_key=dropout_key)

    return self_attention


@mistake("later tokens leak")
def no_causal_mask_in_the_operation():
    return replaced(pairs(), self_attention=not_causal)


@mistake("later tokens leak")
def no_causal_mask_in_the_text():
    class NotCausal(nf.LanguageModel):
        causal = False

    return text(NotCausal)


@mistake("later tokens leak")
def causal_mask_one_too_far():
    def make(attend):
        def self_attention(qkv, settings, keep_mask=None, *, bias=None, dropout_key=None):
            T = qkv.shape[1]
            mask = np.tril(np.ones((T, T), bool), 1)
            mask = mask if keep_mask is None else mask & keep_mask
            return attend(qkv, replace(settings, causal=False), mask, bias=bias, dropout_key=dropout_key)

        return self_attention

    return replaced(text(), self_attention=make)


@mistake("later tokens leak")
def no_causal_mask_in_training_alone():
    class Leaking(nf.LanguageModel):
        def _read(self, ops, params, ids, dropout_key=None, train=False):
            ops = ops.replaced(self_attention=not_causal(ops.self_attention)) if train else ops
            return super()._read(ops, params, ids, dropout_key, train)

        def loss_and_grad(self, params, ids, targets=None, **options):
            options.pop("with_grad", None)
            return super().loss_and_grad(params, ids, targets, **options)

    return text(Leaking)


@mistake("later tokens leak")
def convolution_that_sees_the_future():
    class Centred(nf.ByteNet):
        def _stack(self, ops, params, x, keep_mask, keys, train, causal):
            return super()._stack(ops, params, x, keep_mask, keys, train, causal=False)

    return pairs(Centred, kernel_sizes=(3, 3))


def masking(change):
    def make(attend):
        def self_attention(qkv, settings, keep_mask=None, *, bias=None, dropout_key=None):
            keep_mask = None if keep_mask is None else change(keep_mask)
            return attend(qkv, settings, keep_mask, bias=bias, dropout_key=dropout_key)

        return self_attention

    return make


@mistake("padding leaks")
def mask_of_padding_is_lost():
    return replaced(pairs(), self_attention=masking(np.ones_like))


@mistake("padding leaks", "input ignored")
def mask_is_inverted():
    return replaced(pairs(), self_attention=masking(np.logical_not))


@mistake("padding leaks")
def padding_is_not_masked_by_the_model():
    class Unmasked(nf.Transformer):
        def _keep_mask(self, ids):
            return np.ones(ids.shape, bool)[:, None, None]

    return pairs(Unmasked)


@mistake("padding leaks")
def mean_over_padding():
    class WithPadding(nf.Encoder):
        def _before_output(self, ops, params, y, keep_mask):
            return super()._before_output(ops, params, y, None)

    return classes(WithPadding)


@mistake("rows leak")
def batch_is_normalised():
    class Mixed(nf.Transformer):
        def _embed(self, ops, params, side, ids, dropout_key=None, at=None):
            x, backward = super()._embed(ops, params, side, ids, dropout_key, at)
            return x - x.mean(axis=0), lambda dx: backward(dx - dx.mean(axis=0))

    return pairs(Mixed)


@mistake("input ignored")
def memory_is_zero():
    class Blind(nf.Transformer):
        def _decode(self, ops, params, memory, src, tgt_in, dropout_key=None, train=False):
            return super()._decode(ops, params, 0 * memory, src, tgt_in, dropout_key, train)

    return pairs(Blind)


@mistake("input ignored")
def states_of_the_encoder_are_not_used():
    class Blind(nf.Recurrent):
        def _decode(self, ops, params, memory, src, tgt_in, dropout_key=None, train=False):
            memory = 0 * memory[0], [tuple(0 * x for x in layer) for layer in memory[1]]
            return super()._decode(ops, params, memory, src, tgt_in, dropout_key, train)

    return pairs(Blind)


@mistake("no positions")
def positions_are_zeros():
    class Bag(nf.Transformer):
        position_table = property(lambda self: np.zeros((self.max_len, self.d_model), np.float32))

    return pairs(Bag)


@mistake("no positions")
def all_positions_are_equal():
    class Bag(nf.Encoder):
        position_table = property(lambda self: np.ones((self.max_len, self.d_model), np.float32))

    return classes(Bag)


@mistake()
def encoder_with_a_causal_mask():
    class Causal(nf.Encoder):
        causal = True

    return classes(Causal)


@mistake("not repeatable")
def dropout_is_always_on():
    class Noisy(nf.Transformer):
        def _decode(self, ops, params, memory, src, tgt_in, dropout_key=None, train=False):
            key = int(np.random.default_rng().integers(1 << 30))
            return super()._decode(ops, params, memory, src, tgt_in, key, train)

    return pairs(Noisy, dropout=0.2)


@mistake("dropout has no effect")
def dropout_key_is_lost():
    class Dry(nf.LanguageModel):
        def loss_and_grad(self, params, ids, targets=None, **options):
            return super().loss_and_grad(params, ids, targets, **options | {"dropout_key": None})

    return text(Dry, dropout=0.2)


# -- parameters and layers


@mistake("equal weights")
def queries_are_zero():
    case = pairs()
    return case | {
        "params": changed(case["params"], "encoder.0.attention.qkv.weight", lambda x: x * (np.arange(96) >= 32))
    }


@mistake("equal weights")
def values_are_zero():
    case = text()
    return case | {"params": changed(case["params"], "0.attention.qkv.weight", lambda x: x * (np.arange(96) < 64))}


@mistake("equal weights")
def heads_are_equal():
    case = text()
    same = lambda x: np.concatenate([np.tile(part[:, :8], 4) for part in np.split(x, 3, axis=1)], axis=1)
    return case | {"params": changed(case["params"], "1.attention.qkv.weight", same)}


@mistake("equal weights")
def layers_are_equal():
    case = text()
    layers = case["params"]["layers"]
    layers["1"] = copy.deepcopy(layers["0"])
    return case


@mistake("equal weights")
def one_layer_twice():
    case = pairs()
    case["params"]["encoder"]["1"] = case["params"]["encoder"]["0"]
    return case


@mistake("equal weights")
def all_weights_are_equal():
    case = classes()
    return case | {"params": changed(case["params"], "hidden.weight", lambda x: np.full_like(x, 0.1))}


@mistake("scale of weights", "start far from ln V")
def weights_ten_times_too_large():
    case = pairs()
    return case | {"params": tree.map_leaves(lambda x: 10 * x if x.ndim > 1 else x, case["params"])}


@mistake("scale of weights")
def weights_much_too_small():
    case = text()
    return case | {"params": tree.map_leaves(lambda x: x / 100 if x.ndim > 1 else x, case["params"])}


@mistake("scale of weights", "start far from ln V")
def output_layer_too_large():
    case = pairs()
    return case | {"params": changed(case["params"], "output.weight", lambda x: 20 * x)}


@mistake()
def no_scale_in_the_settings():
    class Unscaled(nf.LanguageModel):
        @property
        def layer_settings(self):
            settings = super().layer_settings
            return replace(settings, attention=replace(settings.attention, scale=1.0))

    return text(Unscaled)


@mistake("scale of weights")
def no_scale_in_the_operation():
    def make(attend):
        def self_attention(qkv, settings, keep_mask=None, *, bias=None, dropout_key=None):
            return attend(qkv, replace(settings, scale=1.0), keep_mask, bias=bias, dropout_key=dropout_key)

        return self_attention

    return replaced(pairs(), self_attention=make)


@mistake()
def no_residual_connection():
    def make(add):
        return lambda z, weight, bias, x, rate=0.0, key=None: add(z, weight, bias, np.zeros_like(x), rate, key)

    case = text()
    inner = make(nf.get_backend("auto").linear_dropout_residual)

    def linear_dropout_residual(*args, **options):
        return inner(*args, **options)

    return case | {"backend": nf.get_backend("auto").replaced(linear_dropout_residual=linear_dropout_residual)}


@mistake("no gradient")
def units_never_wake_up():
    case = pairs()
    return case | {"params": changed(case["params"], "encoder.0.feed_forward.hidden.bias", lambda x: x - 9)}


@mistake("not finite")
def one_weight_is_nan():
    def spoil(x):
        x[3, 3] = np.nan
        return x

    case = pairs()
    return case | {"params": changed(case["params"], "decoder.1.memory_attention.q.weight", spoil)}


# -- loss and gradient


def with_loss(base, change):
    """A model whose loss, gradient and number of targets are ``change(compute, model, params, batch, options)``."""

    class Changed(base):
        def loss_and_grad(self, params, *batch, **options):
            return change(super().loss_and_grad, self, params, batch, options)

    return Changed


@mistake("padding counted")
def padding_is_in_the_loss():
    def change(compute, model, params, batch, options):
        src, tgt = batch[0], batch[1]
        given, told = (tgt[:, :-1], tgt[:, 1:]) if len(batch) == 2 else batch[1:]
        ops = nf.get_backend(options.get("backend", "auto"), params)
        logits = model.logits(params, src, given, backend=ops)
        loss, _ = reference.cross_entropy(logits, told, n_tokens=options.get("n_tokens"))
        _, grads, n = compute(params, *batch, **options)
        return loss, grads, n

    return pairs(with_loss(nf.Transformer, change))


@mistake("not the mean")
def loss_is_a_sum():
    def change(compute, model, params, batch, options):
        loss, grads, n = compute(params, *batch, **options)
        f = n if options.get("n_tokens") is None else 1
        return loss * f, grads and tree.map_leaves(lambda g: g * f, grads), n

    return text(with_loss(nf.LanguageModel, change))


@mistake("targets not shifted")
def loss_of_the_inputs():
    def change(compute, model, params, batch, options):
        ids = batch[0][:, :-1] if len(batch) == 1 else batch[0]
        return compute(params, ids, ids, **options)

    return text(with_loss(nf.LanguageModel, change))


@mistake("targets not shifted")
def decoder_is_given_the_targets():
    def change(compute, model, params, batch, options):
        told = batch[1][:, 1:] if len(batch) == 2 else batch[2]
        return compute(params, batch[0], told, told, **options)

    return pairs(with_loss(nf.Transformer, change))


@mistake("n_tokens ignored")
def n_tokens_is_ignored():
    return pairs(
        with_loss(
            nf.Transformer, lambda compute, m, params, batch, o: compute(params, *batch, **o | {"n_tokens": None})
        )
    )


@mistake("wrong count")
def padding_is_in_the_count():
    class Counts(nf.LanguageModel):
        def count(self, ids, targets=None):
            return ids[:, 1:].size

    return text(Counts)


def with_gradient(path, change):
    def changed_gradient(compute, model, params, batch, options):
        options.pop("ready", None)
        loss, grads, n = compute(params, *batch, **options)
        return loss, grads and changed(grads, path, change), n

    return changed_gradient


@mistake("wrong gradient")
def sign_of_a_gradient():
    return pairs(with_loss(nf.Transformer, with_gradient("decoder.0.feed_forward.out.weight", lambda g: -g)))


@mistake("wrong gradient")
def gradient_of_keys_too_large():
    return text(
        with_loss(nf.LanguageModel, with_gradient("0.attention.qkv.weight", lambda g: g * np.repeat([1, 2, 1], 32)))
    )


@mistake("no gradient")
def bias_gets_no_gradient():
    return pairs(with_loss(nf.Recurrent, with_gradient("combine.bias", lambda g: 0 * g)))


@mistake("no gradient")
def encoder_gets_no_gradient():
    class Cut(nf.Transformer):
        def _decode(self, *args, **options):
            y, backward = super()._decode(*args, **options)

            def cut(dy, ready):
                dmemory, grads = backward(dy, ready)
                return 0 * dmemory, grads

            return y, cut

    return pairs(Cut)


@mistake("wrong gradient")
def tied_table_gets_half_of_its_gradient():
    class Half(nf.Transformer):
        def _encode(self, *args, **options):
            y, backward = super()._encode(*args, **options)
            return y, lambda dy, ready: {name: 0 * g for name, g in backward(dy, ready).items()}

    return pairs(Half, tie_embeddings=True)


@mistake("wrong gradient")
def softmax_term_is_missing_in_the_backward_pass():
    def make(backward):
        def layer_norm_backward(dy, x, gain, mean, rstd):
            return (
                dy * gain * rstd[..., None] if rstd.ndim < x.ndim else dy * gain * rstd,
                *backward(dy, x, gain, mean, rstd)[1:],
            )

        return layer_norm_backward

    return replaced(text(), layer_norm_backward=make)


@mistake("wrong gradient")
def dropout_is_not_in_the_backward_pass():
    make = lambda backward: lambda *args, **options: args[0]
    case = text(dropout=0.3)
    through = make(None)

    def dropout_backward(*args, **options):
        return through(*args, **options)

    def embed(backward):
        def embed_tokens_backward(*args, **options):
            dx, ids, shape, pad_id, *_ = args
            return backward(dx, ids, shape, pad_id, 0.0, None, **options)

        return embed_tokens_backward

    case = replaced(case, embed_tokens_backward=embed)
    return case | {"backend": case["backend"].replaced(dropout_backward=dropout_backward)}


@mistake("wrong gradient")
def dropout_of_another_key_in_the_backward_pass():
    class Other(nf.LanguageModel):
        def _embed(self, ops, params, side, ids, dropout_key=None, at=None):
            x, _ = super()._embed(ops, params, side, ids, dropout_key, at)
            _, backward = super()._embed(ops, params, side, ids, dropout_key and dropout_key + 1, at)
            return x, backward

    return text(Other, dropout=0.3)


@mistake("gradients overwritten")
def one_buffer_for_all_gradients():
    buffers = {}

    def change(compute, model, params, batch, options):
        options.pop("ready", None)
        loss, grads, n = compute(params, *batch, **options)
        for path, g in tree.leaves(grads) if grads else ():
            buffers.setdefault((path, g.dtype), np.empty_like(g))[...] = g
        return loss, grads and tree.from_leaves((p, buffers[p, g.dtype]) for p, g in tree.leaves(grads)), n

    return pairs(with_loss(nf.Recurrent, change))


@mistake("not repeatable")
def forward_pass_writes_into_parameters():
    class Writes(nf.LanguageModel):
        def _read(self, ops, params, ids, dropout_key=None, train=False):
            params["layers"]["0"]["feed_forward"]["out"]["bias"] += 1e-3
            return super()._read(ops, params, ids, dropout_key, train)

    return text(Writes)


# -- the training


@mistake("rate too large")
def rate_100_times_too_large():
    return trained(pairs(), nf.Adam(0.1))


@mistake("rate too large")
def peak_100_times_too_large():
    return trained(text(), nf.Adam(nf.warmup_cosine(0.3, 100, 1000)))


@mistake("rate too large")
def rate_10_times_too_large():
    return trained(pairs(d_model=128, n_heads=8, d_ff=256), nf.Adam(1e-2))


@mistake("rate too small")
def warm_up_of_a_million_steps():
    return trained(pairs(), nf.Adam(nf.noam(32, 1_000_000)))


@mistake("rate too small")
def epochs_are_given_for_steps():
    return watched(trained(pairs(), nf.Adam(nf.warmup_cosine(1e-3, 1, 10))), map(TASK.batch, range(14), [32] * 14), 14)


@mistake("rate too small")
def rate_a_million_times_too_small():
    return trained(pairs(), nf.Adam(1e-9))


@mistake("rate too large")
def rate_of_sgd_for_another_loss():
    return trained(classes(), nf.SGD(30.0))


@mistake("frozen")
def new_layers_are_frozen():
    return trained(pairs(), frozen=["encoder", "decoder"])


@mistake("dropout")
def dropout_09():
    return pairs(dropout=0.9)


@mistake("unusual setting")
def label_smoothing_09():
    return trained(pairs(), label_smoothing=0.9)


@mistake("unusual setting")
def betas_exchanged():
    return trained(text(), nf.Adam(1e-3, betas=(0.999, 0.9)))


@mistake("unusual setting", "rate too small")
def eps_1():
    return trained(pairs(), nf.Adam(1e-3, eps=1.0))


@mistake("unusual setting")
def weights_decay_to_nothing():
    return trained(pairs(), nf.AdamW(1e-3, weight_decay=30.0))


@mistake("unusual setting")
def clipped_to_nothing():
    return trained(pairs(), nf.SGD(0.1), clip_norm=1e-4)


@mistake()
def optimizer_forgets_half():
    @dataclass(frozen=True)
    class Half(nf.Adam):
        def update(self, ops, param, grad, state, *args, **options):
            n = len(param) // 2
            super().update(ops, param[:n], grad[:n], {k: v[:n] for k, v in state.items()}, *args, **options)

    return trained(pairs(), Half(1e-3))


@mistake("stale parameters")
def parameters_of_before_the_training():
    case = trained(pairs())
    stale = tree.map_leaves(np.copy, case["params"])
    for i in range(5):
        case["trainer"].step(*TASK.batch(i, 32))
    return case | {"params": stale}


@mistake("n_tokens ignored")
def n_tokens_is_ignored_with_two_shards():
    case = n_tokens_is_ignored()
    return trained(case, n_shards=2)


# -- decoding


def decoding(base, kind, **settings):
    class Decodes(base):
        decoder_type = kind

        def decoder(self, params, src, *, max_rows, max_len=None, backend="auto"):
            made = super().decoder(params, src, max_rows=max_rows, max_len=max_len, backend=backend)
            made.__class__ = kind
            return made

    return (text if issubclass(base, nf.LanguageModel) else pairs)(Decodes, **settings)


@mistake("cache differs")
def position_is_one_off():
    class Late(IncrementalDecoder):
        def _newest(self, tokens, t, part):
            return super()._newest(tokens, t + 1, part)

    return decoding(nf.Transformer, Late)


@mistake("cache differs")
def parents_are_ignored():
    class Alone(IncrementalDecoder):
        def step(self, tokens, parents, then=None):
            return super().step(tokens, np.arange(len(tokens)), then)

    return decoding(nf.Transformer, Alone)


@mistake("cache differs")
def cache_is_written_over():
    class Over(LanguageDecoder):
        def _first_entry(self, t):
            return super()._first_entry(max(0, t - 1))

    return decoding(nf.LanguageModel, Over)


@mistake("cache differs")
def rotary_positions_begin_again():
    class Again(LanguageDecoder):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)

        def _newest(self, tokens, t, part):
            self.lengths, kept = self.lengths * 0, self.lengths
            try:
                return super()._newest(tokens, t, part)
            finally:
                self.lengths = kept

    return decoding(nf.LanguageModel, Again, positions="rotary")


@mistake("cache differs")
def state_of_the_last_step_is_lost():
    class Forgets(RecurrentDecoder):
        def _newest(self, tokens, t, part):
            return super()._newest(tokens, 0, part)

    return decoding(nf.Recurrent, Forgets)


@mistake("begin token")
def decoding_begins_with_another_token():
    return pairs() | {"bos_id": 2, "eos_id": 2}


@mistake("end token")
def decoding_ends_with_another_token():
    return pairs() | {"bos_id": 1, "eos_id": 3}


@mistake("end token")
def end_token_is_padding():
    return pairs() | {"bos_id": 1, "eos_id": 0}


@mistake("end token")
def decoding_is_cut_off():
    return pairs() | {"bos_id": 1, "eos_id": 2, "max_len": 5}


# -- healthy trainings


def healthy():
    """(title, arguments of ``diagnose``) of 50 trainings without a mistake, of different lengths."""
    options = [
        {},
        {"norm": "post"},
        {"norm_type": "rms_norm", "activation": "swiglu"},
        {"positions": "learned", "max_len": 40},
    ]
    options += [
        {"positions": "rotary", "n_kv_heads": 2},
        {"bias": False, "activation": "gelu"},
        {"d_model": 64, "d_ff": 128},
    ]
    options += [
        {"window": 4},
        {"n_layers": 4, "d_model": 16},
        {"dropout": 0.2},
        {"tie_embeddings": True},
        {"dtype": "float64"},
    ]
    cases = [("Transformer", pairs, o) for o in options]
    cases += [("LanguageModel", text, o) for o in options[:10]] + [
        ("LanguageModel", text, {"pad_id": None, "batch": full()})
    ]
    cases += [("SequenceAutoencoder", autoencoder, o) for o in ({}, {"code_size": 8})]
    cases += [("Encoder", classes, o) for o in options[:8] if "window" not in o]
    cases += [
        ("Encoder", classes, o) for o in ({"pooling": "first"}, {"pooling": "max", "pooler": True}, {"n_outputs": 7})
    ]
    cases += [("Encoder of numbers", numbers, o) for o in ({}, {"norm": "post"}, {"pooling": "max"})]
    ids = words()
    hidden = (RNG.random(ids.shape) < 0.2) & (ids != 0)
    masked = {"task": "words", "n_outputs": None, "batch": (np.where(hidden, 12, ids), np.where(hidden, ids, -1))}
    cases += [("Encoder of words", classes, masked)]
    recurrent = [
        {},
        {"cell": "lstm"},
        {"attention": "additive"},
        {"attention": None},
        {"bidirectional": False},
        {"n_layers": 2},
    ]
    cases += [("Recurrent", lambda **o: pairs(nf.Recurrent, **o), o) for o in recurrent]
    bytenet = [{}, {"dilations": (1, 2, 4)}, {"kernel_sizes": (3, 2)}, {"tie_embeddings": True}, {"dropout": 0.1}]
    cases += [("ByteNet", lambda **o: pairs(nf.ByteNet, **o), o) for o in bytenet]
    optimizers = [nf.Adam(1e-3), nf.Adam(nf.warmup_cosine(5e-3, 10, 200)), nf.AdamW(2e-3), nf.SGD(0.1, momentum=0.9)]
    optimizers += [nf.Adam(nf.noam(32, 400), betas=(0.9, 0.98), eps=1e-9), nf.Adam(3e-4)]
    rates = itertools.cycle(
        zip(optimizers, [0, 5, 30, 0, 60, 15], [{}, {"clip_norm": 1.0}, {"n_shards": 2}] * 2, strict=True)
    )
    for (name, make, settings), (optimizer, n_steps, of_trainer) in zip(cases, rates, strict=False):
        case = trained(make(**settings), optimizer, **of_trainer)
        batches = (TASK.batch(i, 32) for i in itertools.count()) if case["model"].__class__.__name__ in PAIRS else None
        for _, batch in zip(range(n_steps), batches or itertools.repeat(case["batch"]), strict=False):
            case["trainer"].step(*batch)
        told = {k: v for k, v in settings.items() if k != "batch"}
        yield f"{name} {told}, {n_steps} steps of {optimizer}", case


PAIRS = {"SequenceAutoencoder", "Transformer", "Recurrent", "ByteNet"}


def full():
    return (RNG.integers(0, 13, (16, 14)),)


@command
def main(argv=None):
    parser = new_parser(__doc__)
    parser.add_argument("--only", metavar="WORD", help="mistakes whose title has this word, and no healthy training")
    parser.add_argument("--verbose", action="store_true", help="print each report")
    add_json(parser)
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    rows, figures = [], {"mistakes": {}, "healthy": {}}
    for title, names, make in MISTAKES:
        if options.only and options.only not in title:
            continue
        found = examined(make(), options.verbose)
        named = bool(names & set(found.names[:2]))
        figures["mistakes"][title] = {"findings": found.names, "named": named}
        rows.append((title, "named" if named else "found" if found else "MISSED", ", ".join(found.names[:4])))
    print_table(["mistake", "", "findings"], rows)
    if not options.only:
        for title, case in healthy():
            figures["healthy"][title] = found = examined(case, options.verbose).names
            if found:
                print(f"false alarm: {title}: {', '.join(found)}")
        alarms = [title for title, found in figures["healthy"].items() if found]
        print(f"\n{len(alarms)} false alarms in {len(figures['healthy'])} healthy trainings")
    n, of = len(rows), lambda *kinds: sum(kind in kinds for _, kind, _ in rows)
    print(f"{n} mistakes: {of('named', 'found')} found, {of('named')} named rightly, {of('MISSED')} missed")
    write_json(options.json, figures)


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
