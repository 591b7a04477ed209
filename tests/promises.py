"""Properties that all models should have.

Each function checks one; the tests of the models call it.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from npformer import beam_search, greedy_decode, log_probability, sample, tree

SRC = np.array([[3, 4, 5, 6, 7], [3, 9, 8, 0, 0]])
TGT = np.array([[1, 5, 6, 8, 9, 2], [1, 4, 2, 0, 0, 0]])
THREE_ROWS = np.array([[3, 4, 5, 6], [7, 8, 0, 0], [9, 0, 0, 0]])


def params_of(model, seed=0):
    """Parameters without any zero, so that a parameter that is not used is noticed."""
    params, rng = model.init(seed), np.random.default_rng(seed)
    for _, x in tree.leaves(params):
        x += 0.3 * rng.standard_normal(x.shape)
    return params


def all_zero(grads):
    return not any(x.any() for _, x in tree.leaves(grads))


def assert_trees_close(given, expected, atol=0.0):
    """Trees with the same names have the same numbers, up to rounding."""
    leaves = dict(tree.leaves(given))
    wanted = dict(tree.leaves(expected))
    assert list(leaves) == list(wanted)
    for path, x in leaves.items():
        assert_allclose(x, wanted[path], rtol=0, atol=atol, equal_nan=False, err_msg=path)


def assert_parts_of_the_gradient_are_the_whole(model, params, batch, layers):
    """They are told layer by layer, as the model computes them: the last one first."""
    parts = []
    _, grads, _ = model.loss_and_grad(params, *batch)
    model.loss_and_grad(params, *batch, ready=lambda path, part: parts.append((path, part)))
    assert [path for path, _ in parts if path in layers] == layers
    told = dict(leaf for path, part in parts for leaf in tree.leaves(part, path))
    for path, grad in tree.leaves(grads):
        assert_array_equal(told[path], grad)


def surprise_at(targets, logits):
    """Minus the logarithm of the probability of each target."""
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]


def assert_weights_are_of_what_is_seen(weights, sees):
    """Of each layer: positive there and 0 elsewhere, with the sum 1 where anything is seen."""
    for x in weights:
        seen = np.broadcast_to(sees, x.shape).astype(bool)
        assert_array_equal(x > 0, seen)
        assert_allclose(x.sum(axis=-1), seen.any(axis=-1), atol=1e-14)


def assert_padding_has_no_influence_even_if_it_is_nan(model, params, batch, wide):
    """On the loss, its gradient and the number of tokens; ``wide`` is the batch with more of it."""
    loss, grads, n = model.loss_and_grad(params, *batch)
    if model.vocab:
        params["embedding"][0] = np.nan
    wide_loss, wide_grads, wide_n = model.loss_and_grad(params, *wide)
    assert wide_n == n
    assert wide_loss == pytest.approx(loss, rel=1e-13)
    assert_trees_close(wide_grads, grads, 1e-13)


def drawn_steps(begun, n_steps, words, max_rows=6):
    """Of each step of decoding its tokens, the rows that they extend, and of each row the number
    of its source and its text.

    Rows extend randomly drawn rows of the step before: some change places, some are duplicated,
    some dropped. A step begins from any source any number of times.
    """
    rng = np.random.default_rng(0)
    sources = np.arange(len(begun))
    texts = [text[:-1] for text in begun]
    parents = np.append(sources[::-1], [0, 0])
    tokens = np.array([begun[parent][-1] for parent in parents])
    for _ in range(n_steps):
        sources = sources[parents]
        texts = [[*texts[i], int(token)] for i, token in zip(parents, tokens, strict=True)]
        yield tokens, parents, sources, texts
        parents = rng.integers(0, len(tokens), size=rng.integers(1, max_rows + 1))
        tokens = rng.choice(words, size=len(parents))


# --- of models with an encoder and a decoder; the rows of src have five and three words ---


def assert_the_past_does_not_see_the_future(model, params):
    """Changing a target token changes no logits before it, bit for bit; V is at least 11."""
    tgt = np.array([[1, 5, 6, 8, 9, 3], [1, 4, 7, 7, 3, 10]])
    before = model.logits(params, SRC, tgt)
    for t in range(1, tgt.shape[1]):
        for other in (3, 4, 10):
            changed = tgt.copy()
            changed[:, t] = other
            after = model.logits(params, SRC, changed)
            assert_array_equal(after[:, :t], before[:, :t])
            assert (after[:, t:] != before[:, t:]).any()


def assert_the_decoder_sees_the_whole_source(model, params, src, tgt):
    """A change of the first row's last word changes all logits of that row, from the first on,
    and no others.
    """
    before = model.logits(params, src, tgt)
    changed = src.copy()
    changed[0, -1] = 10
    after = model.logits(params, changed, tgt)
    assert (after[0] != before[0]).any(axis=-1).all()
    assert_array_equal(after[1], before[1])


def assert_padding_columns_change_nothing(model, params, src, tgt, n_src=9, n_tgt=7):
    """More columns of padding change no logit, no gradient and no number of tokens."""
    wide_src = np.pad(src, ((0, 0), (0, n_src)))
    wide_tgt = np.pad(tgt, ((0, 0), (0, n_tgt)))
    logits = model.logits(params, src, tgt)
    wider = model.logits(params, wide_src, wide_tgt)
    assert_allclose(wider[:, : tgt.shape[1]], logits, rtol=0, atol=1e-12)
    _, before, n = model.loss_and_grad(params, src, tgt)
    _, after, n_wider = model.loss_and_grad(params, wide_src, wide_tgt)
    assert n == n_wider
    assert_trees_close(after, before, 1e-12)


def assert_nan_and_infinity_in_the_embedding_of_the_padding_change_nothing(model, params, src, tgt):
    """Neither the loss nor a gradient nor what is decoded."""

    def results(params):
        loss, grads, _ = model.loss_and_grad(params, src, tgt, dropout_key=1)
        said = greedy_decode(model, params, src, bos_id=1, eos_id=2, max_len=4)
        return [loss, said, *(grad for _, grad in tree.leaves(grads))]

    before = results(params)
    for poison in (np.nan, np.inf):
        params["source_embedding"][0] = params["target_embedding"][0] = poison
        for x, y in zip(before, results(params), strict=True):
            assert_array_equal(x, y)


def assert_rows_do_not_see_each_other(model, params, src, tgt):
    together = model.logits(params, src, tgt)
    alone = model.logits(params, src[1:, :3], tgt[1:, :2])
    assert_allclose(together[1, :2], alone[0], rtol=0, atol=1e-12)


def assert_dropout_is_off_without_a_key_and_repeats_with_one(model, params, src, tgt):
    def loss(**options):
        value, _ = model.loss(params, src, tgt, **options)
        return value

    plain, first, again, other = (loss(dropout_key=key) for key in (None, 1, 1, 2))
    assert plain == loss()
    assert first == again
    assert len({plain, first, other}) == 3


def assert_nothing_to_count_is_loss_zero_gradient_zero(model, params, src, tgt):
    """In an empty batch, with targets of padding only, in a batch of padding only,
    with targets of length zero.
    """
    padding = 0 * tgt
    for batch in (src[:0], tgt[:0]), (src, padding), (0 * src, padding), (src, tgt[:, :1]):
        with pytest.warns(UserWarning, match="no target is counted"):
            loss, grads, n_tokens = model.loss_and_grad(params, *batch)
        assert loss == 0
        assert n_tokens == 0
        assert all_zero(grads)
    assert model.logits(params, src, tgt[:, :0]).shape == (2, 0, model.tgt_vocab)


def assert_a_source_without_words_is_finite_and_leaves_the_encoder_alone(model, params, src, tgt):
    """Of padding only, or of length zero."""
    nothing = 0 * src, src[:, :0]
    both = [model.logits(params, no_words, tgt) for no_words in nothing]
    assert_allclose(*both, rtol=0, atol=1e-14)
    for no_words in nothing:
        loss, grads, _ = model.loss_and_grad(params, no_words, tgt, dropout_key=1)
        assert np.isfinite(loss)
        assert all(np.isfinite(x).all() for _, x in tree.leaves(grads))
        assert all_zero(grads["encoder"])
        assert not all_zero(grads["decoder"])


def assert_steps_equal_recomputation(model, params, src, ops):
    words = [word for word in range(1, model.tgt_vocab) if word != model.pad_id]
    decoder = model.decoder(params, src, max_rows=6, max_len=7, backend=ops)
    for tokens, parents, sources, texts in drawn_steps([[1]] * len(src), 7, words):
        expected = model.logits(params, src[sources], np.array(texts), backend="reference")
        assert_allclose(decoder.step(tokens, parents), expected[:, -1], rtol=0, atol=1e-12)


def assert_all_ways_of_decoding_agree(model, params, src, tgt):
    """Greedy decoding is a beam of one, scores are those of the targets, and draws repeat."""
    options = {"bos_id": 1, "eos_id": 2, "max_len": 8}
    said = greedy_decode(model, params, src, **options)
    narrow = beam_search(model, params, src, beam_size=1, **options)
    for row, [best] in zip(said, narrow, strict=True):
        assert row[row != 0].tolist() == list(best.tokens)
    wide = beam_search(model, params, src, beam_size=4, n_best=4, **options)
    for row, hypotheses in zip(src, wide, strict=True):
        for hypothesis in hypotheses:
            target = np.array([[1, *hypothesis.tokens]])
            [wanted] = log_probability(model, params, row[None], target)
            np.testing.assert_allclose(hypothesis.log_probability, wanted, rtol=1e-10)
    drawn, again = (sample(model, params, src, seed=3, **options) for _ in range(2))
    np.testing.assert_array_equal(drawn, again)
