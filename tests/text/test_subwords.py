"""Subwords: sentences as ids and back."""

import sys

import pytest
from corpus import sentence_pairs

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
    assert all(
        3 < id_ < len(subwords) for row in ids for id_ in row
    )  # nothing unknown, no begin or end


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


def test_the_vocabulary_has_the_size_that_was_asked_for(subwords):
    assert len(subwords) == SIZE


def test_the_first_ids_are_special(subwords):
    assert (subwords.pad_id, subwords.bos_id, subwords.eos_id) == (0, 1, 2)
    assert subwords.pieces(range(4)) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert subwords.encode(["日"])[0][-1] == 3


def test_learning_repeats_bit_for_bit_from_any_iterable(kind):
    learned = [
        Subwords.learn(lines, size=SIZE, kind=kind).model for lines in (LINES * 4, iter(LINES * 4))
    ]
    assert learned[0] == learned[1]


def test_a_model_comes_back_from_its_bytes_and_from_a_file(subwords, tmp_path):
    (tmp_path / "x.model").write_bytes(subwords.model)
    for again in (Subwords(subwords.model), Subwords.read(str(tmp_path / "x.model"))):
        assert again.model == subwords.model
        assert list(map(list, again.encode(LINES))) == list(map(list, subwords.encode(LINES)))


def test_decoding_ends_at_the_end_token_and_leaves_padding_out(subwords):
    [ids], [more] = subwords.encode(LINES[:1]), subwords.encode(LINES[1:2])
    rows = [[1, *ids, 2, *more, 2], [*ids, 0, 0], [0, 0, *ids], [2, *ids], []]
    assert subwords.decode(rows) == [LINES[0]] * 3 + ["", ""]


def test_one_string_in_place_of_lines_is_refused(subwords):
    for take in (subwords.encode, lambda lines: Subwords.learn(lines, size=SIZE)):
        with pytest.raises(
            TypeError, match=r"lines is one string, 'a cat', expected a list of them: try \[lines\]"
        ):
            take("a cat")
        with pytest.raises(TypeError, match=r"lines\[1\]=3 is a int, expected a str"):
            take(["a cat", 3])


def test_a_path_in_place_of_a_model_is_told_how_to_read_it(tmp_path):
    for path in ("x.model", tmp_path / "x.model"):
        with pytest.raises(
            TypeError,
            match=r"expected the bytes of a .* model: Subwords\.read\(path\) reads a file",
        ):
            Subwords(path)
    with pytest.raises(
        TypeError, match="model=None is a NoneType, expected the bytes of a sentencepiece model$"
    ):
        Subwords(None)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"there is no sentencepiece model .*nothing\.model"
    ):
        Subwords.read(tmp_path / "nothing.model")
    (tmp_path / "folder.model").mkdir()
    with pytest.raises(ValueError, match=r"folder\.model is a folder, expected a file"):
        Subwords.read(tmp_path / "folder.model")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x00" * 100])
def test_a_file_that_is_no_model_is_named(tmp_path, content):
    (tmp_path / "x.model").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.model: .*sentencepiece model"):
        Subwords.read(tmp_path / "x.model")


def test_a_model_without_padding_is_refused(tmp_path):
    prefix = tmp_path / "x"
    lines = [line for pair in sentence_pairs(30) for line in pair]
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(prefix),
        vocab_size=40,
        model_type="bpe",
        minloglevel=2,
    )
    with pytest.raises(ValueError, match=r"x\.model: .* has no \['pad'\] piece"):
        Subwords.read(prefix.with_suffix(".model"))


@pytest.mark.parametrize("size", [10, 5000])
def test_a_size_that_the_text_does_not_allow_is_named(kind, size):
    why = r".*--subwords or --vocab-size\): expected at (most|least) \d+$"
    with pytest.raises(
        ValueError, match=f"no vocabulary of size={size} could be learned from this text" + why
    ):
        Subwords.learn(LINES, size=size, kind=kind)


def test_a_text_with_fewer_pieces_gives_those_if_that_is_wanted(kind):
    with pytest.raises(ValueError, match="expected at most") as refused:
        Subwords.learn(LINES, size=5000, kind=kind)
    most = int(str(refused.value).split()[-1])
    assert len(Subwords.learn(LINES, size=5000, kind=kind, at_most=True)) == most


def test_a_text_with_enough_pieces_gives_the_same_ones(kind, subwords):
    learned = Subwords.learn(LINES * 4, size=SIZE, kind=kind, at_most=True)
    assert learned.pieces(range(SIZE)) == subwords.pieces(range(SIZE))


def test_a_line_of_any_length_is_learned_from(kind):
    long = "zebras " * 1000  # sentencepiece would leave it out, and not say so
    subwords = Subwords.learn([*LINES, long], size=SIZE, kind=kind)
    assert subwords.unknown_id not in subwords.encode(["zebras"])[0]


def test_no_text_is_refused(kind):
    with pytest.raises(
        ValueError, match="no vocabulary of size=40 could be learned from this text"
    ):
        Subwords.learn([], size=40, kind=kind)


@pytest.mark.parametrize(
    "options, message",
    [({"size": 4}, "size=4"), ({"size": 40, "kind": "words"}, "kind='words', expected 'bpe' or")],
)
def test_options_that_make_no_sense_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Subwords.learn(LINES, **options)


def test_without_sentencepiece_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ImportError, match=r"pip install .*\[translation\]'"):
        Subwords.learn(LINES, size=SIZE)


def test_an_interrupt_while_a_vocabulary_is_learned_is_an_interrupt():
    def interrupted():
        yield "a line"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Subwords.learn(interrupted(), size=20)


def test_what_is_wrong_with_the_text_is_said_as_it_is():
    def broken():
        yield "a line"
        raise ValueError("train.en, line 2 is empty")

    with pytest.raises(ValueError, match=r"^train\.en, line 2 is empty$"):
        Subwords.learn(broken(), size=20)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_text_without_marks_is_used_as_it_is(kind):
    program = ["def f(x):", "    if x:", "\treturn  x", "ﬁ ½", " "] * 50
    subwords = Subwords.learn(program, 40, kind=kind, marks=False, at_most=True)
    assert subwords.decode(subwords.encode(program)) == program
