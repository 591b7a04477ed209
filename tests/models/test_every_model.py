"""What every model of the catalogue promises."""

import numpy as np
import pytest
from catalogue import CATALOGUE
from promises import (
    THREE_ROWS,
    assert_parts_of_the_gradient_are_the_whole,
    assert_steps_equal_recomputation,
    assert_trees_close,
    params_of,
)
from whole_models import (
    assert_gradient_along_directions,
    assert_gradient_by_central_differences,
    assert_same_gradient,
    loss_of_batch,
    shaken,
)

from npformer import Adam, ByteNet, CopyTask, Recurrent, Trainer, tree
from npformer.models import LowRank, describe, from_description
from npformer.text.copy_task import exact_match

each_model = pytest.mark.parametrize("row", CATALOGUE.values(), ids=list(CATALOGUE))
MODELS = {name: row.model for name, row in CATALOGUE.items()}
WITH_SOURCE = {name: model for name, model in MODELS.items() if hasattr(model, "decode")}
DESCRIBED = {name: model for name, model in MODELS.items() if not isinstance(model, LowRank)}


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
    params = params_of(row.model)
    for dropout_key in (None, 3):
        loss, _, n = row.model.loss_and_grad(params, *row.batch, dropout_key=dropout_key)
        assert (loss, n) == row.model.loss(params, *row.batch, dropout_key=dropout_key)
        assert n == row.model.count(*row.batch)
    assert_parts_of_the_gradient_are_the_whole(row.model, params, row.batch, row.layers)


@pytest.mark.parametrize("model", WITH_SOURCE.values(), ids=list(WITH_SOURCE))
def test_steps_are_the_whole_computation(model, every_backend):
    src = np.vstack([THREE_ROWS % 7, [[0] * 4]])
    assert_steps_equal_recomputation(model, params_of(model), src, every_backend)


@pytest.mark.parametrize("model", DESCRIBED.values(), ids=list(DESCRIBED))
def test_a_description_gives_the_model_back_and_a_seed_the_parameters(model):
    assert from_description(describe(model)) == model
    params = model.init(3)
    tree.check_like(params, model.shapes(), dtypes=False)
    assert {x.dtype for _, x in tree.leaves(params)} == {np.dtype(model.dtype)}
    assert_trees_close(params, model.init(3))
    assert (tree.first_leaf(params) != tree.first_leaf(model.init(4))).any()


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
