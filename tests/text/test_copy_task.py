"""The copy task: its sequences, and how many are copied right."""

import numpy as np
import pytest
from refusals import refuses

from npformer import CopyTask, Transformer
from npformer.text.copy_task import BOS, EOS, PAD, exact_match


def sequences(src):
    return {tuple(row[row != PAD]) for row in src}


@pytest.mark.parametrize("reverse", [False, True])
def test_targets_are_the_source_between_begin_and_end(reverse):
    src, tgt = CopyTask(reverse=reverse).batch(0, 50)
    for s, t in zip(src, tgt, strict=True):
        s, t = s[s != PAD], t[t != PAD]
        assert t[0] == BOS
        assert t[-1] == EOS
        assert t[1:-1].tolist() == s.tolist()[:: -1 if reverse else 1]
        assert 1 <= len(s) <= 10
        assert s.min() >= 3
        assert s.max() <= 10


def test_held_out_sequences_are_distinct_and_never_trained_on():
    task = CopyTask()
    held_out = sequences(task.held_out(1000)[0])
    assert len(held_out) == 1000
    trained = set().union(*(sequences(task.batch(step, 64)[0]) for step in range(60)))
    assert len(trained) > 2_400
    assert not trained & held_out


def test_longer_sequences_are_longer_than_any_in_training():
    task = CopyTask(max_len=7)
    lengths = {len(s) for s in sequences(task.longer(100, extra=3)[0])}
    assert lengths == {8, 9, 10}


def test_batches_are_a_pure_function_of_seed_and_step():
    task = CopyTask(seed=1)
    other = CopyTask(seed=1)
    other.batch(0, 5)
    src, _ = task.batch(3, 5)
    np.testing.assert_array_equal(other.batch(3, 5)[0], src)
    for src_of_others, _ in (CopyTask(seed=2).batch(3, 5), task.batch(4, 5)):
        assert sequences(src_of_others) != sequences(src)


def test_settings_out_of_range():
    refuses(ValueError, "vocab=3, expected at least 4", CopyTask, vocab=3)
    refuses(ValueError, "min_len=5, max_len=4: expected", CopyTask, min_len=5, max_len=4)
    few = "there are not 20 held-out sequences"
    refuses(ValueError, few, CopyTask(vocab=4, max_len=3).held_out, 20)


class Oracle(Transformer):
    """A "model" that says what it is told to."""

    def decoder(self, params, src, **options):
        return Script(params)


class Script:
    def __init__(self, said):
        self.said, self.t = said, 0

    def step(self, tokens, parents, then):
        self.said = self.said[parents]
        self.t += 1
        return then(np.eye(11)[self.said[:, self.t - 1]], slice(0, len(tokens)))


def test_exact_match_counts_whole_sequences_with_their_end():
    src, tgt = CopyTask().held_out(8)
    model = Oracle(11, 11)
    said = np.pad(tgt[:, 1:], ((0, 0), (0, 9)), constant_values=PAD)
    share, decoded = exact_match(model, said, src, tgt)
    assert share == 1.0
    assert decoded.shape[1] == tgt.shape[1] - 1

    another_token = 3 + (said[0, 0] - 2) % 8
    ends = np.argmax(said[0] == EOS)
    for place, token in ((0, another_token), (ends, 5), (0, EOS)):  # wrong, without end, too short
        wrong = said.copy()
        wrong[0, place] = token
        assert exact_match(model, wrong, src, tgt)[0] == 7 / 8


def test_numbers_of_8_bits_do_not_overflow():
    task = CopyTask(100, 1, 200)
    of_8_bits = CopyTask(np.uint8(100), np.uint8(1), np.uint8(200))
    for some, wanted in (
        (of_8_bits.batch(np.int8(5), np.int8(100)), task.batch(5, 100)),
        (of_8_bits.longer(np.int8(100), np.uint8(100)), task.longer(100, 100)),
    ):
        np.testing.assert_equal(some, wanted)
