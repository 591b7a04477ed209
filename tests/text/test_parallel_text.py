"""Aligned text: what the files may look like, and the stream of batches that is made of them."""

import gzip
import os
import socket
import threading
import tracemalloc
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from corpus import sentence_pairs
from programs import WITH_PIPES
from refusals import refuses

from npformer.text import lines
from npformer.text.lines import find_text, read_lines
from npformer.text.parallel_text import ParallelText, Place, TokenBatches, ahead
from npformer.tokens.subwords import Subwords

pytest.importorskip("sentencepiece")


def text_of(tmp_path, source=b"a\nb\n", target=b"c\nd\n", **options):
    (tmp_path / "train.en").write_bytes(source)
    (tmp_path / "train.fr").write_bytes(target)
    return ParallelText.find(tmp_path, "train", "en", "fr", **options)


def not_read(path, message, error=ValueError):
    refuses(error, message, list, read_lines(path))


# ---- reading ----


@WITH_PIPES
def test_a_pipe_is_a_text(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=["a\nb\n"])
    writer.start()
    assert list(read_lines(tmp_path / "pipe")) == ["a", "b"]
    writer.join()


def test_a_folder_or_nothing_is_named(tmp_path):
    not_read(tmp_path, "is a folder: expected a text", FileNotFoundError)
    for name in ("x" * 5000, "a\0b", tmp_path / "nothing"):
        not_read(name, "is missing: expected a text", FileNotFoundError)
    (tmp_path / "nothing.gz").touch()
    packed = r"nothing is missing: take .*nothing\.gz"
    not_read(tmp_path / "nothing", packed, FileNotFoundError)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs the devices of Unix")
def test_a_line_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 1000)
    not_read("/dev/zero", "/dev/zero has a line of more than 1,000 bytes, expected a text")


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs sockets that are files")
def test_a_socket_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # as the name of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        not_read("socket", "socket is a socket: expected a text", FileNotFoundError)


LINES = {
    "Un vélo.\n\nà  la mer \n": ["Un vélo.", "", "à  la mer "],
    "a\r\nb c\r\n": ["a", "b c"],  # as on Windows
    "a\nb": ["a", "b"],
}
for sign in "\u2028\u2029\u0085\x0b\x0c\x1c\r":  # only a line feed ends a line
    LINES[f"a{sign}b\nc\n"] = [f"a{sign}b", "c"]


@pytest.mark.parametrize("content", LINES)
def test_plain_and_gzip_files_give_the_same_lines(tmp_path, content):
    (tmp_path / "plain").write_bytes(content.encode())
    (tmp_path / "packed.gz").write_bytes(gzip.compress(content.encode()))
    assert list(read_lines(tmp_path / "plain")) == LINES[content]
    assert list(read_lines(str(tmp_path / "packed.gz"))) == LINES[content]


def test_a_text_can_be_iterated_over_again_and_gives_its_lines_in_turn(tmp_path):
    text = text_of(tmp_path)
    assert list(text) == list(text) == [("a", "c"), ("b", "d")]
    assert list(text.lines()) == ["a", "c", "b", "d"]


def test_the_plain_file_comes_before_the_packed_one(tmp_path):
    (tmp_path / "val.en.gz").touch()
    assert find_text(tmp_path, "val", "en").name == "val.en.gz"
    (tmp_path / "val.en").touch()
    assert find_text(str(tmp_path), "val", "en").name == "val.en"


# ---- files that are not as they should be ----


def test_a_missing_file_is_named_with_what_is_there(tmp_path):
    (tmp_path / "train.de").touch()
    there = r"expected train\.en or train\.en\.gz, found \['train\.de'\]"
    refuses(FileNotFoundError, there, find_text, tmp_path, "train", "en")
    nowhere = r"nowhere: expected train\.en or .* found no such folder"
    refuses(FileNotFoundError, nowhere, find_text, tmp_path / "nowhere", "train", "en")


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    mark = b"\xef\xbb\xbf"  # which some editors write
    text = text_of(tmp_path, mark + b"a\nb\n", b"c\n" + mark + b"d\n")
    assert list(text) == [("a", "c"), ("b", "\ufeffd")]


def test_bytes_that_are_not_utf_8_are_found_by_line(tmp_path):
    text = text_of(tmp_path, b"a\nb\n", "c\nforêt\n".encode("latin-1"))
    refuses(ValueError, r"train\.fr, line 2: .* expected UTF-8", list, text)


PACKED = gzip.compress(b"".join(b"line %d\n" % i for i in range(1000)))


@pytest.mark.parametrize("end", [5, 12, -1, -9, None])
def test_a_damaged_gzip_file_is_refused(tmp_path, end):
    content = bytearray(PACKED[:end])
    if end is None:
        content[len(content) // 2] ^= 16  # one bit
    (tmp_path / "x.gz").write_bytes(content)
    not_read(tmp_path / "x.gz", r"x\.gz, after line \d+: .* expected a whole gzip file")


def test_an_empty_line_in_a_gzip_file_may_be_damage(tmp_path):
    stored = gzip.compress(gzip.decompress(PACKED), 0)  # not compressed
    damaged = stored.replace(b"line 500\n", b"        \n")
    (tmp_path / "train.en.gz").write_bytes(damaged)
    (tmp_path / "train.fr").write_bytes(b"a\n" * 1000)
    text = ParallelText.find(tmp_path, "train", "en", "fr")
    refuses(ValueError, r"train\.en\.gz, after line \d+: CRC check failed", list, text)


def test_a_plain_file_with_the_name_of_a_gzip_file_is_refused(tmp_path):
    (tmp_path / "x.gz").write_bytes(b"a\nb\n")
    not_read(tmp_path / "x.gz", r"x\.gz, after line 0: Not a gzipped file")


def test_texts_that_do_not_fit_together_are_refused(tmp_path):
    def bad(source, target, message, **options):
        refuses(ValueError, message, list, text_of(tmp_path, source, target, **options))

    bad(b"a\nb\n", b"c\n", r"train\.en has 2 lines, .*train\.fr 1: expected the same number")
    bad(b"a\n", b"c\nd\ne\n", r"train\.en has 1 lines, .*train\.fr 3: expected the same number")
    bad(b"", b"c\n", r"train\.en has 0 lines, .*train\.fr 1: expected the same number")
    bad(b"a\n\nb\n", b"A\nB\nC\n\n", r"train\.en has 3 lines, .*train\.fr 4", skip_empty=True)
    bad(b"", b"", r"train\.en and .*train\.fr have no pair of sentences, expected one per line")
    bad(b"a\n\n", b"c\nd\n", r"train\.en, line 2 is empty: .*skip_empty=True")
    bad(b"a\nb\n", b" \t\nd\n", r"train\.fr, line 1 is empty: .*skip_empty=True")
    bad(b"a\n\n", b"c\n\n", r"train\.en, line 2 is empty")


def test_skip_empty_leaves_both_sides_of_a_pair_out(tmp_path):
    text = text_of(tmp_path, b"a\n\nb\nc\n\n", b"A\nB\n \nC\n\n", skip_empty=True)
    assert list(text) == [("a", "A"), ("c", "C")]


# ---- batches ----


PAIRS = list(sentence_pairs(60))
MAX_TOKENS, MAX_LEN = 120, 60


class Letters:
    """Quicker than pieces."""

    pad_id, bos_id, eos_id = 0, 1, 2

    def encode(self, lines, **options):
        return [[ord(letter) for letter in line] for line in lines]


@pytest.fixture(scope="module")
def subwords():
    return Subwords.learn([line for pair in PAIRS for line in pair], size=45)


@pytest.fixture
def make(subwords):
    usual = {"max_tokens": MAX_TOKENS, "max_len": MAX_LEN, "seed": 3, "chunk_size": 25}
    return lambda pairs=PAIRS, **options: TokenBatches(pairs, subwords, subwords, **usual | options)


def stream(batches, n, place=None):
    """The next n batches, comparable."""
    following = islice(batches.from_place(place), n)
    return [(place, src.tolist(), tgt.tolist()) for place, src, tgt in following]


def epoch_of(batches, number=0):
    return [(src.tolist(), tgt.tolist()) for _, src, tgt in batches.epoch(Place(number))]


@pytest.fixture
def pairs_of(subwords):
    """A function that counts the pairs of an epoch."""

    def pairs_of(batches, number=0):
        found = Counter()
        for _, src, tgt in batches.epoch(Place(number)):
            found.update(zip(subwords.decode(src), subwords.decode(tgt), strict=True))
        return found

    return pairs_of


@pytest.mark.parametrize(
    "options", [{}, {"chunk_size": 1000}, {"chunk_size": 1}, {"max_tokens": 60}]
)
def test_every_pair_occurs_once_an_epoch(make, pairs_of, options):
    for number in (0, 1):
        assert pairs_of(make(**options), number) == Counter(PAIRS)


def test_pairs_that_are_too_long_are_left_out(make, pairs_of):
    long = ("the man " * 50, "le homme"), ("the man", "le homme " * 50)
    assert pairs_of(make([*long, *PAIRS])) == Counter(PAIRS)


def test_two_epochs_that_are_read_at_once_keep_each_pair_once(make):
    batches = make(chunk_size=100_000)
    assert len(list(zip(batches.epoch(Place()), batches.epoch(Place()), strict=True))) > 1
    assert len(batches._kept) == 1


@pytest.mark.parametrize("chunk_size", [25, 1000])
def test_pieces_that_are_kept_change_no_epoch(make, chunk_size):
    batches, fresh = (make(chunk_size=chunk_size) for _ in range(2))
    assert epoch_of(batches)
    assert epoch_of(batches, 1) == epoch_of(fresh, 1)
    assert not list(batches.epoch(Place(1, 9)))
    assert batches._kept or chunk_size == 25


def test_the_source_has_an_end_and_the_target_begin_and_end(make, subwords):
    [(src, tgt)] = epoch_of(make([PAIRS[0]]))
    source, target = subwords.encode(list(PAIRS[0]))
    assert (src, tgt) == ([[*source, 2]], [[1, *target, 2]])


def test_the_order_follows_from_seed_and_epoch(make):
    assert epoch_of(make(), 1) == epoch_of(make(), 1)
    assert epoch_of(make(), 1) != epoch_of(make(), 2)
    assert epoch_of(make(), 1) != epoch_of(make(seed=4), 1)


@pytest.mark.parametrize("max_tokens", [60, 61, 100, 1000])
def test_no_batch_has_more_than_max_tokens_on_either_side(make, max_tokens):
    long_sources = [(source, target.split()[0]) for source, target in PAIRS]
    for pairs in (PAIRS, long_sources):
        for _, src, tgt in make(pairs, max_tokens=max_tokens).epoch(Place()):
            assert max(src.size, tgt.size) <= max_tokens


def test_batches_hold_sentences_of_similar_length_and_are_nearly_full(make):
    sizes = []
    words = []
    batches = make(list(sentence_pairs(2000)), max_tokens=1000, chunk_size=1000)
    for _, src, tgt in batches.epoch(Place()):
        sizes.append([src.size, tgt.size])
        words.append([np.count_nonzero(src), np.count_nonzero(tgt)])
    padding = 1 - np.sum(words, axis=0) / np.sum(sizes, axis=0)
    assert padding[0] < 0.3
    assert padding[1] < 0.06
    assert np.max(sizes, axis=1).mean() > 0.85 * 1000


def test_neither_order_nor_length_of_batches_follows_the_text(make):
    """Were batches not shuffled, the shortest sentences would always come first."""
    widths = [tgt.shape[1] for _, _, tgt in make(chunk_size=1000).epoch(Place())]
    assert len(widths) > 5
    assert widths != sorted(widths)


def test_sentences_of_one_length_meet_others_each_epoch_and_chunk():
    pairs = [(f"{i:02}", "x") for i in range(60)]
    batches = TokenBatches(pairs * 2, Letters(), Letters(), 20, max_len=20, chunk_size=60)

    def groups(number, chunk):
        found = batches.epoch(Place(number))
        return {frozenset(map(tuple, src)) for place, src, _ in found if place.chunk == chunk}

    assert len(groups(0, 0)) == 10
    assert not groups(0, 0) & groups(0, 1)
    assert not groups(0, 0) & groups(1, 0)


def test_max_len_counts_begin_and_end(make, subwords):
    pair = ("man", "homme homme")
    length = len(subwords.encode([pair[1]])[0]) + 2
    assert len(epoch_of(make([pair], max_len=length))) == 1
    assert epoch_of(make([pair], max_len=length - 1)) == []


def test_a_text_of_which_all_pairs_are_too_long_is_refused(make):
    message = "no pair of .* has at most max_len=2 tokens on both sides"
    refuses(ValueError, message, next, make(max_len=2).from_place())


def test_a_chunk_without_a_short_pair_is_passed_over(make):
    long = [("the man " * 50, "le homme")] * 3
    batches = make([*long, PAIRS[0]], chunk_size=3)
    assert [place for place, _, _ in stream(batches, 2)] == [Place(0, 1, 1), Place(1, 1, 1)]


def test_from_any_place_the_stream_goes_on_as_if_undisturbed(make):
    whole = stream(make(), 40)
    assert {place.epoch for place, _, _ in whole} >= {0, 1}
    assert {place.chunk for place, _, _ in whole} == {0, 1, 2}
    for i, (place, _, _) in enumerate(whole[:30], start=1):
        assert stream(make(), 10, Place(*place)) == whole[i : i + 10]


class ManyPairs:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return ((f"line {i:06}", f"la ligne {i:06}") for i in range(self.n))


def test_memory_does_not_grow_with_the_text():
    def peak(n):
        batches = TokenBatches(ManyPairs(n), Letters(), Letters(), 1000, chunk_size=500)
        tracemalloc.start()
        assert sum(len(src) for _, src, _ in batches.epoch(Place())) == n
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(1000)  # what is imported and cached at first use
    assert peak(10_000) < 1.5 * peak(2000)


def test_options_that_make_no_sense_are_named(make):
    refuses(ValueError, "max_tokens=0", make, max_tokens=0)
    refuses(ValueError, "chunk_size=0", make, chunk_size=0)
    refuses(ValueError, "seed=-1", make, seed=-1)
    refuses(ValueError, "max_len=121, expected at most max_tokens=120", make, max_len=121)
    once = "text is a .*or, which can be read only once: expected a list"  # it has one epoch
    refuses(TypeError, once, make, iter(PAIRS))
    refuses(TypeError, once, make, (pair for pair in PAIRS))


def test_what_goes_wrong_ahead_is_said_in_its_turn():
    def items():
        yield 1
        yield 2
        raise ValueError("no third")

    taken = ahead(items())
    assert [next(taken), next(taken)] == [1, 2]
    with pytest.raises(ValueError, match="no third"):
        next(taken)
    before = threading.active_count()
    stopped = ahead(items())
    assert next(stopped) == 1
    stopped.close()
    assert threading.active_count() == before, "a thread is left behind"
