"""Position vectors that are parameters: where they end, checkpoints and shards."""

import numpy as np
import whole_models
from numpy.testing import assert_array_equal
from promises import assert_trees_close
from whole_models import SRC, V_TGT, S, T

from npformer import Transformer, tree

MAX_LEN = 13
TGT = np.insert(whole_models.TGT[:, 1:], 0, 1, axis=1)  # every target begins with the same token
TABLES = ["source_positions", "target_positions"]


def make(positions="learned", **options):
    sizes = {"d_model": 6, "n_heads": 2, "n_layers": 1, "d_ff": 8, "max_len": MAX_LEN}
    return Transformer(V_TGT, V_TGT, positions=positions, dropout=0.3, **sizes | options)


def test_what_lies_beyond_the_sentences_does_not_matter():
    model = make()
    params = model.init(0)
    loss, grads, _ = model.loss_and_grad(params, SRC, TGT, dropout_key=1)
    for name, length in zip(TABLES, (S, T), strict=True):
        params[name][length:] = np.nan
    other_loss, other_grads, _ = model.loss_and_grad(params, SRC, TGT, dropout_key=1)
    assert other_loss == loss
    assert_trees_close(other_grads, grads)


def test_the_option_changes_nothing_but_the_positions():
    sinusoidal = make("sinusoidal")
    learned = make()
    params = learned.init(0)
    assert [params[name].shape for name in TABLES] == [(MAX_LEN, 6)] * 2
    assert learned.position_table is None
    assert tree.map_leaves(np.shape, learned.shapes()) == tree.map_leaves(np.shape, params)
    for name in TABLES:
        params[name][...] = sinusoidal.position_table
    alike = {name: x for name, x in params.items() if name not in TABLES}
    assert_array_equal(learned.logits(params, SRC, TGT), sinusoidal.logits(alike, SRC, TGT))


def test_they_begin_as_large_as_sines_and_cosines():
    params = make(d_model=256, max_len=100).init(0)
    for name in TABLES:
        assert abs(np.square(params[name]).mean() - 0.5) < 0.02
