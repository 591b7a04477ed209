"""Properties that all encoder-decoder models should have. Each function checks one; the tests of the models call it."""

import numpy as np

from npformer import tree


def assert_the_past_does_not_see_the_future(model, params, src):
    """Changing a target token changes no logits before it, bit for bit; src has two rows, V is at least 11."""
    tgt = np.array([[1, 5, 6, 8, 9, 3], [1, 4, 7, 7, 3, 10]])
    before = model.logits(params, src, tgt)
    for t in range(1, tgt.shape[1]):
        for other in (3, 4, 10):
            changed = tgt.copy()
            changed[:, t] = other
            after = model.logits(params, src, changed)
            np.testing.assert_array_equal(after[:, :t], before[:, :t])
            assert (after[:, t:] != before[:, t:]).any() or (changed == tgt).all()


def assert_the_decoder_sees_the_whole_source(model, params, src, tgt):
    """A change of the first row's last word changes all logits of that row, from the first on, and no others."""
    before = model.logits(params, src, tgt[:, :-1])
    changed = src.copy()
    changed[0, -1] = 10
    after = model.logits(params, changed, tgt[:, :-1])
    assert (after[0] != before[0]).any(axis=-1).all()
    np.testing.assert_array_equal(after[1], before[1])


def assert_padding_columns_change_nothing(model, params, src, tgt, n_src, n_tgt):
    """More columns of padding change no logit, no gradient and no number of tokens."""
    wide_src, wide_tgt = np.pad(src, ((0, 0), (0, n_src))), np.pad(tgt, ((0, 0), (0, n_tgt)))
    logits = model.logits(params, src, tgt[:, :-1])
    wider = model.logits(params, wide_src, np.pad(tgt[:, :-1], ((0, 0), (0, n_tgt))))
    np.testing.assert_allclose(wider[:, : tgt.shape[1] - 1], logits, rtol=0, atol=1e-12)
    _, before, n = model.loss_and_grad(params, src, tgt[:, :-1], tgt[:, 1:])
    _, after, n_wider = model.loss_and_grad(params, wide_src, wide_tgt[:, :-1], wide_tgt[:, 1:])
    assert n == n_wider
    for (path, x), (_, y) in zip(tree.leaves(before), tree.leaves(after), strict=True):
        np.testing.assert_allclose(y, x, rtol=0, atol=1e-12, err_msg=path)


def params_of(model, seed=0):
    """Parameters without any zero, so that a parameter that is not used is noticed."""
    params, rng = model.init(seed), np.random.default_rng(seed)
    for _, x in tree.leaves(params):
        x += 0.3 * rng.standard_normal(x.shape)
    return params


def assert_steps_equal_recomputation(model, params, src, ops, n_steps=7, max_rows=6):
    """Rows extend randomly drawn rows of the step before: some change places, some are duplicated, some dropped."""
    rng = np.random.default_rng(0)
    decoder = model.decoder(params, src, max_rows=max_rows, max_len=n_steps, backend=ops)
    sources, said = np.arange(len(src)), np.empty((len(src), 0), int)
    parents, tokens = np.arange(len(src)), np.ones(len(src), int)
    for _ in range(n_steps):
        sources, said = sources[parents], np.column_stack([said[parents], tokens])
        expected = model.logits(params, src[sources], said, backend="reference")[:, -1]
        np.testing.assert_allclose(decoder.step(tokens, parents), expected, rtol=0, atol=1e-12)
        parents = rng.integers(0, len(tokens), size=rng.integers(1, max_rows + 1))
        tokens = rng.integers(1, model.tgt_vocab, size=len(parents))
