"""What every model of the catalogue promises."""

from dataclasses import replace

import numpy as np
import pytest
from catalogue import CATALOGUE
from numpy.testing import assert_array_equal
from oracles import assert_close
from promises import assert_trees_close, drawn_steps, params_of
from tables import each_of
from trainings import reversed_order
from whole_models import (
    assert_gradient_along_directions,
    assert_gradient_by_central_differences,
    assert_same_gradient,
    loss_of_batch,
    shaken,
)

from npformer import (
    Adam,
    ByteNet,
    CopyTask,
    Encoder,
    LanguageModel,
    Recurrent,
    Trainer,
    Transformer,
    greedy_decode,
    tree,
)
from npformer.models import LowRank, describe, from_description
from npformer.text.copy_task import exact_match

each_model = each_of("row", CATALOGUE)
MODELS = {name: row.model for name, row in CATALOGUE.items()}
WITH_SOURCE = {name: model for name, model in MODELS.items() if hasattr(model, "decode")}
DESCRIBED = {name: model for name, model in MODELS.items() if not isinstance(model, LowRank)}
PADDED = {}  # by its id, or an encoder's mask
for name, model in DESCRIBED.items():
    if model.pad_id is not None or isinstance(model, Encoder):
        PADDED[name] = model, CATALOGUE[name].batch
each_padded = each_of(("model", "batch"), PADDED)
LANGUAGE_MODELS = [name for name, model in MODELS.items() if isinstance(model, LanguageModel)]
TELLING_NO_FUTURE = [*WITH_SOURCE, *LANGUAGE_MODELS]
SRC = np.array([[3, 4, 5, 6, 2], [3, 2, 1, 0, 0]])
TGT = np.array([[1, 5, 6, 8, 7, 2], [1, 4, 2, 0, 0, 0]])
EXAMPLES = [  # of each kind that has a source and a target
    "Transformer, pre-norm, n_layers=(2, 3), activation=relu",
    "Transformer, post-norm, n_layers=(2, 3), activation=relu",
    "ByteNet, kernel_sizes=(5, 2), unfold=(1.2, 0)",
    "Recurrent, gru, attention=None",
    "Recurrent, lstm, attention=dot",
    "Recurrent, gru, attention=general",
    "Recurrent, lstm, attention=additive",
]
each_example = pytest.mark.parametrize("model", [MODELS[name] for name in EXAMPLES], ids=EXAMPLES)


@each_model
def test_every_gradient_by_complex_step(row):
    """With dropout, padding and, if it is a loss of words, label smoothing."""
    params = shaken(row.model.init(0))
    f, f_backward = loss_of_batch(row.model, params, row.batch, dropout_key=5)
    assert_gradient_along_directions(f, f_backward, params)
    _, of_kernels = loss_of_batch(row.model, params, row.batch, 5, "cpu")
    assert_same_gradient(f_backward, of_kernels, params)


@each_model
def test_gradients_by_central_differences(row):
    """A second opinion that knows no complex numbers."""
    params = shaken(row.model.init(0))
    functions = loss_of_batch(row.model, params, row.batch, dropout_key=None)
    assert_gradient_by_central_differences(*functions, params)


@each_model
def test_loss_gradient_and_number_of_tokens_belong_together(row):
    """Dropout is off without a key."""
    model, batch, _ = row
    params = params_of(model)
    losses = []
    for dropout_key in (None, 3):
        loss, n = model.loss(params, *batch, dropout_key=dropout_key)
        again, _, n_again = model.loss_and_grad(params, *batch, dropout_key=dropout_key)
        assert (again, n_again) == (loss, n)
        losses.append(loss)
    plain, dropped = losses
    other, _ = model.loss(params, *batch, dropout_key=4)
    assert len({plain, dropped, other}) == 3
    assert model.loss(params, *batch) == (plain, model.count(*batch))


@each_model
def test_the_loss_is_the_mean_over_rows_that_do_not_see_each_other(row):
    model, batch, _ = row
    params = params_of(model)
    rows = [[x if x is None else x[[i]] for x in batch] for i in range(len(batch[0]))]
    losses, counts = np.transpose([model.loss(params, *each) for each in rows])
    whole, n = model.loss(params, *batch)
    assert np.dot(losses, counts) == pytest.approx(whole * n, rel=1e-13)


@each_model
def test_parts_of_the_gradient_are_the_whole_in_any_order_of_parameters(row):
    """They are told layer by layer, as the model computes them: the last one first."""
    model, batch, layers = row
    params = params_of(model)
    parts = []
    _, grads, _ = model.loss_and_grad(params, *batch)
    tell = lambda path, part: parts.append((path, part))
    model.loss_and_grad(reversed_order(params), *batch, ready=tell)
    assert [path for path, _ in parts if path in layers] == layers
    told = dict(leaf for path, part in parts for leaf in tree.leaves(part, path))
    for path, grad in tree.leaves(grads):
        assert_array_equal(told[path], grad)


def widened(x, pad_id, value):
    """With two more columns of padding, if it has columns; among floats it has this value."""
    if x is None or x.ndim == 1 or (x.ndim == 2 and x.dtype.kind == "f"):
        return x
    fill = {"f": value, "b": False}.get(x.dtype.kind, pad_id or 0)
    return np.pad(x, [(0, 0), (0, 2)] + [(0, 0)] * (x.ndim - 2), constant_values=fill)


def poison(model, params, value):
    """Write a number into the embeddings of the padding."""
    for name in ("embedding", "source_embedding", "target_embedding"):
        if name in params and model.pad_id is not None:
            params[name][model.pad_id] = value


@each_padded
def test_padding_has_no_influence_even_if_it_is_not_finite(model, batch):
    """More of it changes neither the loss nor its gradient nor the number of tokens."""
    if getattr(model, "tie_embeddings", False):
        model = replace(model, tie_embeddings=False)
    params = params_of(model)
    loss, grads, n = model.loss_and_grad(params, *batch)
    for value in (np.nan, np.inf):
        poison(model, params, value)
        wide = [widened(x, model.pad_id, value) for x in batch]
        wide_loss, wide_grads, wide_n = model.loss_and_grad(params, *wide)
        assert wide_n == n
        assert wide_loss == pytest.approx(loss, rel=1e-13)
        assert_trees_close(wide_grads, grads, 1e-12)


@pytest.mark.parametrize("name", TELLING_NO_FUTURE)
def test_the_past_does_not_see_the_future(name, default_backend):
    """Changing a token changes no logits before it, bit for bit."""
    model, batch, _ = CATALOGUE[name]
    params = params_of(model)
    sources = [x[:2] for x in batch[:1] if name in WITH_SOURCE]
    tgt = np.array([[1, 6, 2, 8, 7, 3], [1, 4, 7, 7, 3, 2]])
    before = model.logits(params, *sources, tgt)
    for t in (1, 3, 5):
        changed = tgt.copy()
        changed[:, t] = tgt[:, t] - 1
        after = model.logits(params, *sources, changed)
        assert_array_equal(after[:, :t], before[:, :t])
        assert (after[:, t:] != before[:, t:]).any()


@each_of("model", WITH_SOURCE)
def test_steps_are_the_whole_computation(model, every_backend):
    src = np.vstack([SRC, 0 * SRC[:1]])
    params = params_of(model)
    words = [word for word in range(1, model.tgt_vocab) if word != model.pad_id]
    decoder = model.decoder(params, src, max_rows=6, max_len=7, backend=every_backend)
    for tokens, parents, sources, texts in drawn_steps([[1]] * len(src), 7, words):
        expected = model.logits(params, src[sources], np.array(texts), backend="reference")
        assert_close(decoder.step(tokens, parents), expected[:, -1], 1e-12)


@each_of("model", DESCRIBED)
def test_a_description_gives_the_model_back_and_a_seed_the_parameters(model):
    assert from_description(describe(model)) == model
    params = model.init(3)
    tree.check_like(params, model.shapes())
    assert {x.dtype for _, x in tree.leaves(params)} == {np.dtype(model.dtype)}
    assert_trees_close(params, model.init(3))
    assert (tree.first_leaf(params) != tree.first_leaf(model.init(4))).any()


# --- of models with a source and a target ---


@each_example
def test_the_decoder_sees_the_whole_source(model, default_backend):
    """A change of the first row's last word changes all logits of that row, from the first on,
    and no others.
    """
    params = params_of(model)
    src = SRC.copy()
    before = model.logits(params, src, TGT)
    src[0, -1] = 1
    after = model.logits(params, src, TGT)
    assert (after[0] != before[0]).any(axis=-1).all()
    assert_array_equal(after[1], before[1])


@each_example
def test_nan_and_infinity_in_the_padding_change_no_bit_and_no_text(model, default_backend):
    params = params_of(model)

    def results():
        loss, grads, _ = model.loss_and_grad(params, SRC, TGT, dropout_key=1)
        said = greedy_decode(model, params, SRC, bos_id=1, eos_id=2, max_len=4)
        return {"loss": loss, "said": said, **grads}

    before = results()
    for value in (np.nan, np.inf):
        poison(model, params, value)
        assert_trees_close(results(), before)


def is_zero(grads):
    return not any(x.any() for _, x in tree.leaves(grads))


@each_example
def test_nothing_to_count_is_loss_zero_gradient_zero(model, default_backend):
    """In an empty batch, with targets of padding only, in a batch of padding only,
    with targets of length zero.
    """
    params = params_of(model)
    padding = 0 * TGT
    for batch in (SRC[:0], TGT[:0]), (SRC, padding), (0 * SRC, padding), (SRC, TGT[:, :1]):
        with pytest.warns(UserWarning, match="no target is counted"):
            loss, grads, n_tokens = model.loss_and_grad(params, *batch)
        assert (loss, n_tokens) == (0, 0)
        assert is_zero(grads)
    assert model.logits(params, SRC, TGT[:, :0]).shape == (2, 0, model.tgt_vocab)


@each_example
def test_a_source_without_words_is_finite_and_leaves_the_encoder_alone(model, default_backend):
    """Of padding only, or of length zero."""
    params = params_of(model)
    nothing = 0 * SRC, SRC[:, :0]
    assert_close(*(model.logits(params, no_words, TGT) for no_words in nothing), 1e-14)
    for no_words in nothing:
        loss, grads, _ = model.loss_and_grad(params, no_words, TGT, dropout_key=1)
        assert np.isfinite(loss)
        assert all(np.isfinite(x).all() for _, x in tree.leaves(grads))
        assert is_zero(grads["encoder"])
        assert not is_zero(grads["decoder"])


def assert_it_learns(task, model, lr, n_steps):
    trainer = Trainer(model, Adam(lr), clip_norm=1.0)
    for i in range(n_steps):
        trainer.step(*task.batch(i, 32))
    matched, *_ = exact_match(model, trainer.params, *task.held_out(100))
    assert matched > 0.9


def test_a_bytenet_learns_to_copy():
    model = ByteNet(11, 11, 48, 1, (1, 2), kernel_sizes=(3, 3), dropout=0.0)
    assert_it_learns(CopyTask(max_len=5), model, lr=4e-3, n_steps=90)


def test_a_recurrent_model_learns_to_reverse():
    model = Recurrent(11, 11, d_model=32, attention="general", dropout=0.0)
    assert_it_learns(CopyTask(max_len=5, reverse=True), model, lr=0.01, n_steps=400)


SMALL = {"d_model": 4, "n_heads": 1, "n_layers": 1, "d_ff": 4, "max_len": 16}
IDS = np.ones((3, 14), int)
IDS_WITH_ONE_MORE = np.ones((3, 15), int)
FILLED_UP = {  # a model, a batch, and the shapes of what it is filled up to
    "Transformer": (Transformer(9, 9, **SMALL), (IDS, IDS_WITH_ONE_MORE), [(10, 16), (10, 17)]),
    "LanguageModel": (LanguageModel(9, **SMALL, pad_id=0), (IDS_WITH_ONE_MORE,), [(10, 17)]),
    "LanguageModel, targets": (
        LanguageModel(9, **SMALL, pad_id=0),
        (IDS, IDS),
        [(10, 16), (10, 16)],
    ),
}


@each_of(("model", "batch", "shapes"), FILLED_UP)
def test_a_batch_is_filled_up_with_padding_but_not_beyond_max_len(model, batch, shapes):
    """To ten rows; to 16 columns, where multiples of ten would be 20."""
    filled = model.fill_up(batch, lambda n: -(-n // 10) * 10)
    assert [x.shape for x in filled] == shapes
    assert [x.sum() for x in filled] == [x.sum() for x in batch]
