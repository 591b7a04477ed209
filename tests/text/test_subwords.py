"""Subwords: sentences as ids and back."""

import sys

import pytest
from corpus import sentence_pairs
from refusals import refuses

from npformer.tokens.marks import mark
from npformer.tokens.subwords import Subwords

spm = pytest.importorskip("sentencepiece")

LINES = [
    "L'été dernier, l'homme d'à côté s'est écrié : Ça va ?",
    "It's 8:30; the O'Neills won't wait 12 or 307 days!",
    "Où est le garçon ? Noël, maïs, œuf, übel.",
]
SIZE = 60  # room for all their characters and a few longer pieces


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def subwords(kind):
    return Subwords.learn(LINES * 4, size=SIZE, kind=kind)


def test_text_comes_back(subwords):
    ids = subwords.encode(LINES)
    assert subwords.decode(ids) == LINES
    assert len(subwords) == SIZE
    # nothing unknown, no begin or end
    assert all(3 < id_ < SIZE for row in ids for id_ in row)


def test_pieces_join_to_the_text(subwords, kind):
    unmarked = Subwords.learn(LINES * 4, size=SIZE, kind=kind, marks=False)
    for vocabulary, text in ((subwords, mark(LINES[0])), (unmarked, LINES[0])):
        [ids] = vocabulary.encode(LINES[:1])
        assert "".join(vocabulary.pieces(ids)).replace("▁", " ").strip() == text
        assert vocabulary.decode([ids]) == LINES[:1]
    assert (subwords.marked, unmarked.marked) == (True, False)


def test_capitals_apostrophes_and_full_stops_leave_words_alone():
    subwords = Subwords.learn(["L'homme. Un homme, un autre. Homme ?"] * 4, size=40)
    lines = ["homme", "L'homme.", "Homme ?"]
    assert [subwords.pieces(ids).count("▁homme") for ids in subwords.encode(lines)] == [1, 1, 1]


def test_the_first_ids_are_special(subwords):
    assert (subwords.pad_id, subwords.bos_id, subwords.eos_id) == (0, 1, 2)
    assert subwords.pieces(range(4)) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert subwords.encode(["日"])[0][-1] == 3


@pytest.mark.parametrize("at_most", [False, True])
def test_learning_repeats_bit_for_bit_from_any_iterable(kind, subwords, at_most):
    learned = Subwords.learn(iter(LINES * 4), size=SIZE, kind=kind, at_most=at_most)
    assert learned.pieces(range(SIZE)) == subwords.pieces(range(SIZE))
    assert (learned.model == subwords.model) == (not at_most)


def test_a_model_comes_back_from_its_bytes_and_from_a_file(subwords, tmp_path):
    (tmp_path / "x.model").write_bytes(subwords.model)
    expected = [list(ids) for ids in subwords.encode(LINES)]
    for again in (Subwords(subwords.model), Subwords.read(str(tmp_path / "x.model"))):
        assert again.model == subwords.model
        assert [list(ids) for ids in again.encode(LINES)] == expected


def test_decoding_ends_at_the_end_token_and_leaves_padding_out(subwords):
    ids, more = subwords.encode(LINES[:2])
    rows = [[1, *ids, 2, *more, 2], [*ids, 0, 0], [0, 0, *ids], [2, *ids], []]
    assert subwords.decode(rows) == [LINES[0]] * 3 + ["", ""]


def test_one_string_in_place_of_lines_is_refused(subwords):
    one = r"lines is one string, 'a cat', expected a list of them: try \[lines\]"
    number = r"lines\[1\]=3 is a int, expected a str"
    for take in (subwords.encode, lambda lines: Subwords.learn(lines, size=SIZE)):
        refuses(TypeError, one, take, "a cat")
        refuses(TypeError, number, take, ["a cat", 3])


def test_what_is_no_model_is_named(tmp_path):
    path = tmp_path / "x.model"
    advice = r"expected the bytes of a .* model: Subwords\.read\(path\) reads a file"
    refuses(TypeError, advice, Subwords, path)
    refuses(TypeError, advice, Subwords, "x.model")
    nothing = "model=None is a NoneType, expected the bytes of a sentencepiece model$"
    refuses(TypeError, nothing, Subwords, None)
    missing = r"there is no sentencepiece model .*x\.model"
    refuses(FileNotFoundError, missing, Subwords.read, path)
    for content in (b"", b"hello", b"\x00" * 100):
        path.write_bytes(content)
        refuses(ValueError, r"x\.model: .*sentencepiece model", Subwords.read, path)
    refuses(ValueError, "is a folder, expected a file", Subwords.read, tmp_path)


def test_a_model_without_padding_is_refused(tmp_path):
    lines = (line for pair in sentence_pairs(30) for line in pair)
    options = {"vocab_size": 40, "model_type": "bpe", "minloglevel": 2}
    prefix = str(tmp_path / "x")
    spm.SentencePieceTrainer.train(sentence_iterator=lines, model_prefix=prefix, **options)
    message = r"x\.model: .* has no \['pad'\] piece"
    refuses(ValueError, message, Subwords.read, tmp_path / "x.model")


@pytest.mark.parametrize("size", [10, 5000])
def test_a_size_that_the_text_does_not_allow_is_named(kind, size):
    message = f"no vocabulary of size={size} could be learned from this text"
    message += r": expected at (most|least) \d+$"
    refuses(ValueError, message, Subwords.learn, LINES, size=size, kind=kind)


def test_a_text_with_fewer_pieces_gives_those_if_that_is_wanted(kind):
    with pytest.raises(ValueError, match="expected at most") as refused:
        Subwords.learn(LINES, size=5000, kind=kind)
    most = int(str(refused.value).split()[-1])
    assert len(Subwords.learn(LINES, size=5000, kind=kind, at_most=True)) == most


def test_a_line_of_any_length_is_learned_from(kind):
    long = "zebras " * 1000  # sentencepiece would leave it out, and not say so
    subwords = Subwords.learn([*LINES, long], size=SIZE, kind=kind)
    assert subwords.unknown_id not in subwords.encode(["zebras"])[0]


def test_what_cannot_be_learned_is_named(kind, monkeypatch):
    none = "no vocabulary of size=40 could be learned from this text"
    refuses(ValueError, none, Subwords.learn, [], size=40, kind=kind)
    refuses(ValueError, "size=4", Subwords.learn, LINES, size=4)
    refuses(ValueError, "kind='words', expected 'bpe' or", Subwords.learn, LINES, 40, kind="words")
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    refuses(ImportError, r"pip install .*\[translation\]'", Subwords.learn, LINES, size=SIZE)


def broken(error):
    yield "a line"
    raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("train.en, line 2 is empty")])
def test_what_is_wrong_with_the_text_and_an_interrupt_come_as_they_are(error):
    with pytest.raises(type(error)) as caught:
        Subwords.learn(broken(error), size=20)
    assert caught.value is error


def test_text_without_marks_is_used_as_it_is(kind):
    program = ["def f(x):", "    if x:", "\treturn  x", "ﬁ ½", " "] * 50
    subwords = Subwords.learn(program, 40, kind=kind, marks=False, at_most=True)
    assert subwords.decode(subwords.encode(program)) == program
