"""The mistakes that are planted: in the data, in what depends on what, in layers, in the loss and
its gradient, in the training, in decoding, in adapters, and in what a trained model is given. A
function is what is wrong, and its name the title; changes.py explains the decorators.
"""

import copy
import itertools
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from scripts.measure.diagnosed.cases import (  # needs pip install -e .
    TASK,
    adapted,
    after,
    classes,
    loaded,
    new_rng,
    numbers,
    of_numbers,
    of_task,
    of_text,
    pairs,
    rules,
    rules_of_text,
    text,
    text_of_words,
    trained,
    validated,
    watched,
    words,
)
from scripts.measure.diagnosed.changes import (
    MISTAKES as MISTAKES,
    TESTED as TESTED,
    around,
    in_batch,
    in_decoder,
    in_gradient,
    in_method,
    in_operation,
    in_params,
    mistake,
    nothing,
    tested,
    variant,
    with_arguments,
    with_batch,
    with_ops,
)

import npformer as nf
from npformer import tree
from npformer.decoding.text import LanguageDecoder
from npformer.decoding.translation import TranslationDecoder
from npformer.diagnosis.watch import MATCHED, SAME, UNLIKE
from npformer.models.heads import ClassHead
from npformer.models.low_rank import LowRank
from npformer.models.recurrent import RecurrentDecoder
from npformer.reference import ops as reference

# -- the data


@tested
@in_batch(text_of_words, "targets not shifted")
def targets_are_the_inputs(ids):
    return ids, ids


@in_batch(text_of_words, "targets not shifted")
def targets_two_ahead(ids):
    return ids[:, :-2], ids[:, 2:]


@in_batch(text_of_words, "targets not shifted")
def targets_one_behind(ids):
    return ids[:, 1:], ids[:, :-1]


@in_batch(pairs, "begin token", "targets not shifted")
def no_begin_token(src, tgt):
    return src, tgt[:, 1:]


@in_batch(pairs, "begin token")
def begin_token_twice(src, tgt):
    return src, np.c_[tgt[:, :1], tgt]


@tested
@in_batch(pairs, "end token")
def no_end_token(src, tgt):
    return src, np.where(tgt == 2, 0, tgt)


@in_batch(pairs, "end token", "padding inside")
def words_after_the_end(src, tgt):
    return src, np.c_[tgt, np.full(32, 2)]


@in_batch(pairs, "padding counted", "end token")
def padded_with_another_id(*both):
    return [np.where(x == 0, 12, x) for x in both]


@tested
@mistake("padding counted")
def the_model_knows_no_padding():
    return text(pad_id=None)


@in_batch(pairs, "padding inside")
def padding_at_the_beginning(src, tgt):
    return src[:, ::-1], tgt


@in_batch(partial(pairs, pad_id=5), "padding inside", "end token")
def padding_is_a_word(*both):
    return [np.where(x == 0, 5, x) for x in both]


@in_batch(pairs, "does not run")
def ids_outside(src, tgt):
    return src + 5, tgt


@tested
@mistake("does not run")
def classes_from_1():
    rng = new_rng()
    ids = words(rng)
    return classes(batch=(ids, rng.integers(1, 4, 16)))


@mistake("does not run")
def positions_end_too_early():
    return pairs(max_len=6)


@in_batch(numbers, "scale of the data")
def measurements_in_thousands(x, y):
    return 1000 * x + 3000, y


@in_batch(numbers, "scale of the data")
def predicted_numbers_in_thousands(x, y):
    return x, 1000 * y


@in_batch(pairs, "nothing to learn")
def all_padding(src, tgt):
    return 0 * src, tgt


@mistake("nothing to learn")
def one_class():
    return classes(batch=(words(new_rng()), np.ones(16, int)))


@tested
@in_batch(pairs, "nothing to learn")
def most_words_are_unknown(*both):
    return [np.where(x > 4, 3, x) for x in both]


@in_batch(pairs, "copied rows")
def one_row_again_and_again(*both):
    return [np.repeat(x[:1], 32, axis=0) for x in both]


@in_batch(pairs)
def one_long_row(src, tgt):
    return np.pad(src, ((0, 0), (0, 60))), tgt


@tested
@mistake("one batch again and again")
def the_same_batch_in_each_step():
    same = itertools.repeat(TASK.batch(0, 32))
    return watched(trained(pairs()), same, SAME)


@tested
@mistake("not finite")
def nan_in_the_measurements():
    case = numbers()
    case["batch"][0][3, 2, 1] = np.nan
    return case


@mistake("answers in the input", "start far from ln V")
def masked_words_are_shown():
    rng = new_rng()
    ids = words(rng)
    targets = np.where(rng.random(ids.shape) < 0.2, ids, -1)
    return classes(task="words", n_outputs=None, batch=(ids, targets))


@mistake("rows do not match")
def sources_shuffled():
    batches = (TASK.batch(i, 16) for i in itertools.count())
    shuffled = ((np.roll(src, 5, axis=0), tgt) for src, tgt in batches)
    return watched(trained(pairs(d_model=16, n_layers=1)), shuffled, MATCHED)


@mistake("rows do not match")
def sources_of_other_batches():
    sources = (TASK.batch(i + 1, 16)[0] for i in itertools.count())
    targets = (TASK.batch(i, 16)[1] for i in itertools.count())
    others = zip(sources, targets, strict=True)
    return watched(trained(pairs(d_model=16, n_layers=1)), others, UNLIKE)


@tested
@mistake("overfitting")
def few_rows_learned_by_heart():
    few = itertools.cycle([TASK.batch(i, 4) for i in range(5)])
    case = trained(pairs(), nf.Adam(3e-3))
    return watched(case, few, 300, validate=[TASK.held_out(50)], every=20)


@tested
@mistake("answers in the input")
def value_to_predict_among_the_inputs():
    case = numbers()
    x, y = case["batch"]
    x[:, -1, 0] = y[:, 0]
    return case


# -- what depends on what


@mistake("later tokens leak")
def no_causal_mask_in_training_alone():
    not_causal = with_arguments(settings=no_causal_mask_in_the_operation)

    def encode(inherited, self, ops, params, ids, dropout_key=None, train=False):
        ops = ops.replaced(self_attention=around(ops.self_attention, not_causal)) if train else ops
        return inherited(self, ops, params, ids, dropout_key, train)

    # One whose loss_and_grad does not tell of with_grad.
    return text(variant(nf.LanguageModel, _encode=encode, loss_and_grad=with_arguments()))


@in_operation(pairs, "self_attention(settings)", "later tokens leak")
def no_causal_mask_in_the_operation(settings):
    return replace(settings, causal=False)


@tested
@mistake("later tokens leak")
def no_causal_mask_in_the_text(**settings):
    return text(variant(nf.LanguageModel, causal=False), **settings)


@in_operation(text, "self_attention", "later tokens leak")
def causal_mask_one_too_far(attend, qkv, settings, keep_mask=None, **options):
    T = qkv.shape[1]
    mask = np.tril(np.ones((T, T), bool), 1)
    mask = mask if keep_mask is None else mask & keep_mask
    return attend(qkv, no_causal_mask_in_the_operation(settings), mask, **options)


@in_method(pairs, "ByteNet._stack(causal)", "later tokens leak", kernel_sizes=(3, 3))
def convolution_that_sees_the_future(_):
    return False


@in_operation(pairs, "self_attention(keep_mask)", "padding leaks")
def mask_of_padding_is_lost(mask):
    return None if mask is None else np.ones_like(mask)


@tested
@in_method(pairs, "Transformer.keep_mask", "padding leaks")
def padding_is_not_masked_by_the_model(_, self, ids):
    return np.ones(ids.shape, bool)[:, None, None]


class MeanOverPadding(ClassHead):
    """The head of classes, which counts padding, too."""

    def before_output(self, ops, params, y, keep_mask):
        """What the output layer reads."""
        return super().before_output(ops, params, y, None)


@mistake("padding leaks")
def mean_over_padding():
    return classes(variant(nf.Encoder, _head=property(MeanOverPadding)))


@in_operation(pairs, "self_attention(keep_mask)", "padding leaks", "input ignored")
def mask_is_inverted(mask):
    return None if mask is None else ~mask


@tested
@in_method(pairs, "Transformer.embed", "rows leak")
def batch_is_normalised(inherited, *args, **options):
    x, backward = inherited(*args, **options)

    def normalised_backward(dx, gradients):
        return backward(dx - dx.mean(axis=0), gradients)

    return x - x.mean(axis=0), normalised_backward


@tested
@in_method(text, "LanguageModel.embed", "rows leak")
def positions_along_the_rows(inherited, self, ops, params, side, ids, *args):
    x, backward = inherited(self, ops, params, side, ids, *args)
    table = nf.sinusoidal_encoding(99, self.d_model).astype(x.dtype)
    B, T = ids.shape
    return x - table[:T] + table[:B, None], backward


@tested
@in_method(pairs, "Transformer._decode(memory)", "input ignored")
def memory_is_zero(memory):
    return 0 * memory


@in_method(pairs, "Recurrent._decode(memory)", "input ignored")
def states_of_the_encoder_are_not_used(memory):
    return 0 * memory[0], [tuple(0 * x for x in layer) for layer in memory[1]]


def with_positions(kind, table):
    """A class of models with another table of positions, ``table(model)``."""
    return type(kind.__name__, (kind,), {"position_table": property(table)})


def equal_positions(kind, number):
    """A class of models all of whose positions have this number everywhere."""

    def table(model):
        return np.full((model.max_len, model.d_model), number, "f4")

    return with_positions(kind, table)


@mistake("no positions")
def positions_are_zeros():
    return pairs(equal_positions(nf.Transformer, 0))


@tested
@mistake("no positions")
def all_positions_are_equal():
    return classes(equal_positions(nf.Encoder, 1))


@tested
@mistake("input ignored")
def positions_30_times_too_large():
    def too_large(model):
        return 30 * nf.sinusoidal_encoding(99, model.d_model)

    return pairs(with_positions(nf.Transformer, too_large))


def heads_split_without_a_transpose(attend, qkv, settings, keep_mask=None, **options):
    B, T, _ = qkv.shape
    H = settings.n_heads
    parts = np.split(qkv, 3, axis=-1)
    mixed = [x.reshape(B, H, T, -1).swapaxes(1, 2).reshape(B, T, -1) for x in parts]
    qkv = np.concatenate(mixed, axis=-1)
    y, *saved = attend(qkv, settings, keep_mask, **options)
    heads = y.reshape(B, T, H, -1)
    return heads.swapaxes(1, 2).reshape(y.shape), *saved


@tested
@mistake("input ignored")
def heads_are_split_without_a_transpose():
    ids = new_rng().integers(0, 13, (8, 25))
    case = text(pad_id=None, batch=(ids,))
    case["quick"] = True  # its gradient is not made
    return with_ops(case, self_attention=heads_split_without_a_transpose)


@mistake("input ignored")
def encoder_with_a_causal_mask():
    return classes(variant(nf.Encoder, causal=True))


@in_method(pairs, "Transformer._decode(dropout_key)", "not repeatable", dropout=0.2)
def dropout_is_always_on(_):
    return int(np.random.default_rng().integers(1 << 30))


@in_method(text, "LanguageModel.loss_and_grad(dropout_key)", "dropout has no effect", dropout=0.2)
def dropout_key_is_lost(_):
    return None


# -- parameters and layers


@in_params(pairs, "encoder.0.attention.qkv.weight", "equal weights")
def queries_are_zero(x):
    return x * (np.arange(96) >= 32)


@in_params(text, "0.attention.qkv.weight", "equal weights")
def values_are_zero(x):
    return x * (np.arange(96) < 64)


@tested
@in_params(text, "1.attention.qkv.weight", "equal weights")
def heads_are_equal(x):
    parts = np.split(x, 3, axis=1)
    equal = [np.tile(part[:, :8], 4) for part in parts]
    return np.concatenate(equal, axis=1)


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


@in_params(classes, "hidden.weight", "equal weights")
def all_weights_are_equal(x):
    return np.full_like(x, 0.1)


@mistake("scale of scores")
def no_scale_in_the_settings():
    class Unscaled(nf.LanguageModel):
        @property
        def layer_settings(self):
            settings = super().layer_settings
            return replace(settings, attention=replace(settings.attention, scale=1.0))

    return text(Unscaled)


@in_params(pairs, "", "scale of weights", "start far from ln V")
def weights_ten_times_too_large(x):
    return 10 * x if x.ndim > 1 else x


@in_params(pairs, "output.weight", "scale of weights", "start far from ln V")
def output_layer_too_large(x):
    return 20 * x


@in_params(text, "", "scale of weights")
def weights_much_too_small(x):
    return x / 100 if x.ndim > 1 else x


@in_operation(pairs, "self_attention(settings)", "scale of weights")
def no_scale_in_the_operation(settings):
    return replace(settings, scale=1.0)


@in_operation(text, "linear_dropout_residual(residual)")
def no_residual_connection(residual):
    return np.zeros_like(residual)


@in_params(pairs, "encoder.0.feed_forward.hidden.bias", "no gradient")
def units_never_wake_up(x):
    return x - 9


@in_params(pairs, "decoder.1.memory_attention.q.weight", "not finite")
def one_weight_is_nan(x):
    x[3, 3] = np.nan
    return x


# -- loss and gradient


@in_method(pairs, "Transformer.loss_and_grad", "padding counted")
def padding_is_in_the_loss(compute, self, params, *batch, **options):
    src = batch[0]
    tgt = batch[1]
    if len(batch) == 2:
        inputs = tgt[:, :-1]
        targets = tgt[:, 1:]
    else:
        _, inputs, targets = batch
    ops = nf.get_backend(options.get("backend", "auto"), params)
    logits = self.logits(params, src, inputs, backend=ops)
    loss, _ = reference.cross_entropy(logits, targets, n_tokens=options.get("n_tokens"))
    _, grads, n = compute(self, params, *batch, **options)
    return loss, grads, n


@in_method(text, "LanguageModel.loss_and_grad", "not the mean")
def loss_is_a_sum(compute, *args, n_tokens=None, **options):
    loss, grads, n = compute(*args, n_tokens=n_tokens, **options)
    factor = n if n_tokens is None else 1
    return loss * factor, grads and tree.map_leaves(lambda g: g * factor, grads), n


@tested
@in_method(text, "LanguageModel.loss_and_grad", "targets not shifted")
def loss_of_the_inputs(compute, self, params, *batch, **options):
    ids = batch[0][:, :-1] if len(batch) == 1 else batch[0]
    return compute(self, params, ids, ids, **options)


@in_method(pairs, "Transformer.loss_and_grad", "targets not shifted")
def decoder_is_given_the_targets(compute, self, params, *batch, **options):
    targets = batch[1][:, 1:] if len(batch) == 2 else batch[2]
    return compute(self, params, batch[0], targets, targets, **options)


@in_method(pairs, "Transformer.loss_and_grad(n_tokens)", "n_tokens ignored")
def n_tokens_is_ignored(_):
    return None


@tested
@mistake("n_tokens ignored")
def n_tokens_is_ignored_with_two_shards():
    without = variant(nf.Transformer, loss_and_grad=with_arguments(n_tokens=n_tokens_is_ignored))
    return trained(pairs(without), n_shards=2)


@tested
@in_method(text, "LanguageModel.count", "wrong count")
def padding_is_in_the_count(_, self, ids, targets=None):
    return ids[:, 1:].size


@in_gradient(pairs, nf.Recurrent, "combine.bias", "no gradient")
def bias_gets_no_gradient(g):
    return 0 * g


@in_method(pairs, "Transformer._decode", "no gradient")
def encoder_gets_no_gradient(decode, *args):
    y, backward = decode(*args)
    return y, lambda dy, gradients: 0 * backward(dy, gradients)


@in_gradient(pairs, nf.Transformer, "decoder.0.feed_forward.out.weight", "wrong gradient")
def sign_of_a_gradient(g):
    return -g


@in_gradient(text, nf.LanguageModel, "0.attention.qkv.weight", "wrong gradient")
def gradient_of_keys_too_large(g):
    return g * np.repeat([1, 2, 1], 32)


class WithoutTables:
    """Gradients of which those of tables are zeros."""

    def __init__(self, gradients):
        self.gradients = gradients

    def give(self, path, grads):
        """Pass gradients on."""
        self.gradients.give(path, grads if isinstance(grads, dict) else 0 * grads)


@in_method(pairs, "Transformer._encode", "wrong gradient", tie_embeddings=True)
def tied_table_gets_half_of_its_gradient(encode, *args):
    y, backward = encode(*args)
    return y, lambda dmemory, gradients: backward(dmemory, WithoutTables(gradients))


@in_operation(text, "layer_norm_backward", "wrong gradient")
def softmax_term_is_missing_in_the_backward_pass(backward, dy, x, gain, mean, rstd):
    dx = dy * gain * (rstd[..., None] if rstd.ndim < x.ndim else rstd)
    return dx, *backward(dy, x, gain, mean, rstd)[1:]


@mistake("wrong gradient")
def dropout_is_not_in_the_backward_pass():
    without = with_arguments(dropout_rate=lambda _: 0.0, dropout_key=nothing)
    backward = {"dropout_backward": lambda _, dy, *dropout: dy, "embed_tokens_backward": without}
    return with_ops(text(dropout=0.3), **backward)


@in_method(text, "LanguageModel.embed", "wrong gradient", dropout=0.3)
def dropout_of_another_key_in_the_backward_pass(
    embed, self, ops, params, side, ids, dropout_key=None, at=None
):
    x, _ = embed(self, ops, params, side, ids, dropout_key, at)
    another_key = dropout_key and dropout_key + 1
    _, backward = embed(self, ops, params, side, ids, another_key, at)
    return x, backward


def with_buffers(write):
    """``loss_and_grad`` whose gradients are ``write(buffer, gradient)``, where buffers are kept
    between calls.
    """
    buffers = {}

    def kept(path, g):
        key = path, g.dtype
        buffers[key] = write(buffers.get(key, np.zeros_like(g)), g)
        return path, buffers[key]

    def loss_and_grad(compute, *args, **options):
        loss, grads, n = compute(*args, **options)
        if grads:
            grads = tree.from_leaves(kept(*leaf) for leaf in tree.leaves(grads))
        return loss, grads, n

    return loss_and_grad


def overwritten(buffer, g):
    buffer[...] = g
    return buffer


@tested
@mistake("gradients overwritten")
def one_buffer_for_all_gradients():
    return pairs(variant(nf.Recurrent, loss_and_grad=with_buffers(overwritten)))


@tested
@mistake("not repeatable")
def gradients_are_added_up():
    return text(variant(nf.LanguageModel, loss_and_grad=with_buffers(np.add)))


@in_method(text, "LanguageModel._encode", "not repeatable")
def forward_pass_writes_into_parameters(inherited, self, ops, params, *args):
    params["layers"]["0"]["feed_forward"]["out"]["bias"] += 1e-3
    return inherited(self, ops, params, *args)


# -- the training


@mistake("rate too large")
def rate_100_times_too_large():
    return trained(pairs(), nf.Adam(0.1))


@mistake("rate too large")
def peak_100_times_too_large():
    rate = nf.warmup_cosine(0.3, 100, 1000)
    return trained(text(), nf.Adam(rate))


@tested
@mistake("rate too large")
def rate_10_times_too_large():
    case = pairs(d_model=128, n_heads=8, d_ff=256)
    return trained(case, nf.Adam(1e-2))


@mistake("rate too large")
def rate_of_sgd_for_another_loss():
    return trained(classes(), nf.SGD(30.0))


@tested
@mistake("rate too small")
def warm_up_of_a_million_steps():
    return trained(pairs(), nf.Adam(nf.noam(32, 1_000_000)))


@tested
@mistake("rate too small")
def epochs_are_given_for_steps():
    rate = nf.warmup_cosine(1e-3, 1, 10)
    case = trained(pairs(), nf.Adam(rate))
    return watched(case, itertools.islice(of_task(), 14), 14)


@mistake("rate too small")
def warm_up_is_longer_than_the_training():
    case = trained(pairs(), nf.Adam(nf.noam(32)))
    return case | {"n_steps": 300}


@mistake("rate too small")
def decay_of_epochs_in_each_step():
    def rate(step):
        return 6e-3 * 0.9**step

    return trained(pairs(), nf.Adam(rate))


@mistake("rate too small")
def rate_a_million_times_too_small():
    return trained(pairs(), nf.Adam(1e-9))


@tested
@mistake("frozen")
def new_layers_are_frozen():
    return trained(pairs(), frozen=["encoder", "decoder"])


@tested
@mistake("dropout")
def dropout_09():
    return pairs(dropout=0.9)


@mistake("unusual setting")
def label_smoothing_09():
    return trained(pairs(), label_smoothing=0.9)


@mistake("unusual setting")
def betas_exchanged():
    return trained(text(), nf.Adam(1e-3, betas=(0.999, 0.9)))


@mistake("unusual setting")
def weights_decay_to_nothing():
    return trained(pairs(), nf.AdamW(1e-3, weight_decay=30.0))


@mistake("unusual setting")
def clipped_to_nothing():
    return trained(pairs(), nf.SGD(0.1), clip_norm=1e-4)


@mistake("unusual setting", "rate too small")
def eps_1():
    return trained(pairs(), nf.Adam(1e-3, eps=1.0))


@tested
@mistake("wrong update")
def optimizer_forgets_half():
    @dataclass(frozen=True)
    class Half(nf.Adam):
        def update(self, ops, param, grad, state, *args, **options):
            n = len(param) // 2
            state = {name: x[:n] for name, x in state.items()}
            super().update(ops, param[:n], grad[:n], state, *args, **options)

    return trained(pairs(), Half(1e-3))


@mistake("stale parameters")
def parameters_of_before_the_training():
    case = trained(pairs())
    stale = tree.map_leaves(np.copy, case["params"])
    for i in range(5):
        case["trainer"].step(*TASK.batch(i, 32))
    return case | {"params": stale}


# -- decoding


@tested
@in_decoder(pairs, nf.Transformer, TranslationDecoder, "_newest(t)", "cache differs")
def position_is_one_off(t):
    return t + 1


@in_decoder(pairs, nf.Transformer, TranslationDecoder, "step(parents)", "cache differs")
def parents_are_ignored(parents):
    return np.arange(len(parents))


@in_decoder(text, nf.LanguageModel, LanguageDecoder, "_extend", "cache differs")
def cache_is_written_over(extend, self, parents, first):
    return extend(self, parents, max(self.entries.n_of_prompts, first - self.max_rows))


@tested
@in_decoder(text, nf.LanguageModel, LanguageDecoder, "_cache", "cache differs", positions="rotary")
def rotary_positions_begin_again(cache_of, self, part):
    cache = cache_of(self, part)
    return cache._replace(positions=np.full_like(cache.positions, self.n_steps - 1))


@in_decoder(pairs, nf.Recurrent, RecurrentDecoder, "_newest(t)", "cache differs")
def state_of_the_last_step_is_lost(_):
    return 0


@mistake("begin token")
def decoding_begins_with_another_token():
    return pairs() | {"bos_id": 2, "eos_id": 2}


@mistake("end token")
def decoding_ends_with_another_token():
    return pairs() | {"bos_id": 1, "eos_id": 3}


@mistake("end token")
def decoding_is_cut_off():
    return pairs() | {"bos_id": 1, "eos_id": 2, "max_len": 5}


@mistake("end token", "padding inside")
def end_token_is_padding():
    return pairs() | {"bos_id": 1, "eos_id": 0}


# -- deep models


DEEP = {"n_layers": 6, "d_model": 16, "d_ff": 32, "norm": "post"}
deep_pairs = partial(pairs, **DEEP)


@mistake("later tokens leak")
def no_causal_mask_in_a_deep_text():
    return no_causal_mask_in_the_text(**DEEP)


@in_operation(deep_pairs, "self_attention(keep_mask)", "padding leaks")
def mask_of_padding_is_lost_in_deep_layers(mask):
    return mask_of_padding_is_lost(mask)


@in_method(deep_pairs, "Transformer._decode(memory)", "input ignored")
def memory_is_zero_in_deep_layers(memory):
    return 0 * memory


@mistake("input ignored")
def deep_text_of_one_token():
    return text(window=1, **DEEP)


@mistake("no positions")
def positions_are_zeros_in_deep_layers():
    return classes(equal_positions(nf.Encoder, 0), **DEEP)


# -- adapters


def adapted_text(kind=LowRank):
    return adapted(text(), kind)


@in_params(adapted_text, ".A", "equal weights", "no gradient")
def both_matrices_of_adapters_are_zero(x):
    return 0 * x


@in_params(adapted_text, ".A", "equal weights", "no gradient")
def columns_of_adapters_are_equal(x):
    return np.tile(x[:, :1], x.shape[1])


@in_params(adapted_text, ".A", "scale of weights")
def adapters_are_far_too_large(x):
    return 100 * x


@mistake("later tokens leak")
def adapters_of_a_text_without_a_mask():
    return adapted(no_causal_mask_in_the_text())


@in_batch(adapted_text, "targets not shifted")
def adapters_learn_the_inputs(ids):
    return ids, ids


@mistake("rate too large")
def rate_of_adapters_is_too_large():
    return trained(adapted_text(), nf.Adam(3.0))


@mistake("rate too small")
def rate_of_adapters_is_too_small():
    return trained(adapted_text(), nf.Adam(1e-8))


@tested
@in_gradient(adapted_text, LowRank, "qkv.weight.B", "no gradient", "wrong gradient")
def adapters_get_no_gradient(g):
    return 0 * g


@in_gradient(adapted_text, LowRank, ".B", "no gradient", "wrong gradient")
def adapters_get_half_of_their_gradient(g):
    return g / 2


# -- a trained model, and another vocabulary, order or preparation


def in_another_order(ids):
    """The same words by the ids of another vocabulary; special tokens keep theirs."""
    words = np.random.default_rng(0).permutation(10)
    return np.r_[0:3, 3 + words][ids]


def all_in_another_order(*batch):
    return map(in_another_order, batch)


def with_other_sources(src, tgt):
    return in_another_order(src), tgt


def with_other_units(x, y):
    return x, 1000 + 30 * y


@mistake("worse than chance")
def sources_in_another_order():
    return with_batch(loaded(pairs(), 400), with_other_sources)


@tested
@mistake("worse than chance")
def text_in_another_order():
    return with_batch(loaded(rules_of_text()), all_in_another_order)


@mistake("worse than chance")
def deep_text_in_another_order():
    case = text(batch=rules(new_rng())[:1], n_layers=4, norm="post")
    return with_batch(loaded(case), all_in_another_order)


@mistake("worse than chance")
def training_goes_on_in_another_order():
    return with_batch(after(rules_of_text()), all_in_another_order)


def text_of_four_words():
    """A text in which each word is followed by itself or by the next of four."""
    rng = np.random.default_rng(0)
    steps = rng.integers(0, 2, (32, 10))
    ids = 3 + np.cumsum(steps, axis=1) % 4
    return text(batch=(ids,))


def with_other_words(case):
    return with_batch(case, lambda ids: (ids + 5,))


@tested
@mistake("worse than chance")
def new_adapters_for_another_vocabulary():
    return with_other_words(adapted(loaded(text_of_four_words())))


@tested
@mistake("worse than chance")
def new_training_with_another_vocabulary():
    case = loaded(text_of_four_words())
    return with_other_words(trained(case, params=case["params"]))


@mistake("worse than chance")
def trained_adapters_for_another_vocabulary():
    adapters = adapted(loaded(rules_of_text()), whole=("norm",))
    return with_batch(after(adapters, 60), all_in_another_order)


@mistake("worse than chance")
def classes_in_another_order():
    def next_class(ids, labels):
        return ids, (labels + 1) % 3

    case = loaded(classes(batch=rules(new_rng())))
    return with_batch(case, next_class)


@mistake("worse than chance")
def words_of_a_classifier_in_another_order():
    case = loaded(classes(batch=rules(new_rng(), 64)))
    return with_batch(case, with_other_sources)


@mistake("worse than chance")
def targets_of_a_trained_model_are_negated():
    def negated(x, y):
        return x, -y

    return with_batch(loaded(numbers()), negated)


@mistake("worse than chance", "scale of the data")
def targets_of_a_trained_model_have_other_units():
    return with_batch(loaded(numbers()), with_other_units)


def in_order(case, arrays, key, size=16):
    """A watched training with the rows of some arrays in the order of their keys."""
    order = np.argsort(key, kind="stable")
    parts = np.split(order, len(order) // size)
    batches = (tuple(x[part] for x in arrays) for part in parts)
    return watched(trained(case, nf.Adam(5e-3)), batches)


@mistake("rows in order", "nothing to learn")
def rows_in_the_order_of_their_classes():
    ids, labels = rules(new_rng(), 1920)
    return in_order(classes(), (ids, labels), labels)


@mistake("rows in order")
def texts_in_the_order_of_their_subjects():
    subjects = np.arange(1920) // 640
    ids = new_rng().integers(1, 5, (1920, 12)) + 4 * subjects[:, None]
    return in_order(text(), (ids,), subjects)


@tested
@mistake("rows in order")
def numbers_in_the_order_of_their_targets():
    x = new_rng().standard_normal((1920, 8, 5)).astype(np.float32)
    y = x[:, :, :1].mean(axis=1) * 3
    return in_order(numbers(), (x, y), y[:, 0])


@mistake("validation differs")
def sources_of_the_validation_have_another_vocabulary():
    return validated(pairs(), of_task(), with_other_sources)


@mistake("validation differs")
def text_of_the_validation_has_another_vocabulary():
    return validated(text(), of_text(), all_in_another_order)


@mistake("validation differs")
def validation_is_padded_with_another_id():
    def padded_with_12(src, tgt):
        return np.where(src == 0, 12, src), tgt

    return validated(pairs(), of_task(), padded_with_12)


@tested
@mistake("validation differs")
def validation_has_other_units():
    def measured_otherwise(x, y):
        return 1000 + 30 * x, y

    return validated(numbers(), of_numbers(), measured_otherwise)


@mistake("validation differs")
def targets_of_the_validation_have_other_units():
    return validated(numbers(), of_numbers(), with_other_units)
