"""The log of a training, and what an interruption does to it."""

import json
import os
from unittest.mock import patch

import pytest
from programs import WITH_PIPES

from npformer.training import JsonLog


@pytest.fixture
def path(tmp_path):
    """A log of steps 1 to 4, with two records for step 2."""
    path = tmp_path / "log.jsonl"
    with JsonLog(path) as log:
        for step, name in ((1, "loss"), (2, "loss"), (2, "val_loss"), (3, "loss"), (4, "loss")):
            log.write({"step": step, name: step / 3})
    return path


def steps(path):
    return [record["step"] for record in JsonLog.read(path)]


def test_records_come_back_exactly(path):
    records = [{"step": 2, "loss": 2 / 3}, {"step": 2, "val_loss": 2 / 3}]
    assert JsonLog.read(str(path))[1:3] == records


def test_each_record_is_a_line_that_can_be_read_at_once(tmp_path):
    path, records = tmp_path / "new" / "log.jsonl", []
    with JsonLog(path) as log:
        for step in (1, 2):
            records.append({"step": step, "note": "é\n\u2028"})
            log.write(records[-1])
            lines = path.read_text(encoding="utf-8").split("\n")
            assert [json.loads(line) for line in lines[:-1]] == records
    assert JsonLog.read(path) == records


@pytest.mark.parametrize("content", [None, b""])
def test_a_log_that_is_missing_or_empty_is_begun(path, content):
    path.unlink() if content is None else path.write_bytes(content)
    with JsonLog(path, keep=5) as log:
        assert JsonLog.read(path) == []
        log.write({"step": 6})
    assert steps(path) == [6]


@pytest.mark.parametrize(
    "keep, kept", [(0, []), (1, [1]), (2, [1, 2]), (3, [1, 2, 2]), (9, [1, 2, 2, 3, 4])]
)
def test_as_many_records_are_kept_and_new_ones_follow(path, keep, kept):
    before = JsonLog.read(path)
    with JsonLog(path, keep=keep) as log:
        assert log.n_records == len(kept)
        log.write({"step": keep + 1})
        assert log.n_records == len(kept) + 1
    assert steps(path) == [*kept, keep + 1]
    assert JsonLog.read(path)[: len(kept)] == before[: len(kept)]


def test_a_record_that_cannot_be_written_is_not_written_later(path):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with JsonLog(path, keep=4) as log:
        whole = path.read_bytes()
        ten_more = len(whole) + 10  # bytes that the disk takes
        resource.setrlimit(resource.RLIMIT_FSIZE, (ten_more, before[1]))
        try:
            for _ in range(2):
                with pytest.raises(OSError, match="File too large"):
                    log.write({"step": 4, "loss": 1.0})
                assert log.n_records == 4
                assert path.read_bytes() == whole
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        log.write({"step": 5})
        assert log.n_records == 5
    assert steps(path) == [1, 2, 2, 3, 5]


@pytest.mark.parametrize("n_bytes", [1, 5, 20])
def test_a_line_that_was_cut_short_is_left_out_and_written_over(path, n_bytes):
    path.write_bytes(path.read_bytes()[:-n_bytes])
    assert steps(path) == [1, 2, 2, 3]
    with JsonLog(path, keep=4) as log:
        log.write({"step": 4, "loss": 0.5})
    assert steps(path) == [1, 2, 2, 3, 4]


def test_an_interruption_while_old_records_are_kept_loses_none(path):
    before = path.read_bytes()
    with patch("os.replace", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        JsonLog(path, keep=3)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        b"\0" * 30,
        b'{"step": 2, "lo',
        b"[1]",
        b"3",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
    ids=["zeros", "cut", "a list", "a number", "no text", "deep", "a huge number"],
)
def test_a_damaged_line_is_told_of_and_the_file_kept_aside(path, line):
    lines = path.read_bytes().split(b"\n")
    lines[1] = line
    path.write_bytes(before := b"\n".join(lines))
    for n in ("", 1):  # the second damage does not replace what the first left
        path.write_bytes(before)
        with pytest.warns(
            UserWarning, match=r"log.jsonl: line 2 is damaged, .* is now .*log.jsonl.damaged"
        ):
            log = JsonLog(path, keep=4)
        with log:
            assert log.n_records == 3
            log.write({"step": 4})
        assert steps(path) == [1, 2, 3, 4]
        assert path.with_name(f"log.jsonl.damaged{n}").read_bytes() == before


def test_damaged_lines_are_told_of_when_a_log_is_read(path):
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[3] = b"?"
    path.write_bytes(b"\n".join(lines))
    with pytest.warns(UserWarning, match="line 2 and 1 others are damaged"):
        assert steps(path) == [1, 2, 4]


@WITH_PIPES
def test_a_pipe_is_not_replaced_and_a_link_stays_one(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is a pipe, expected a file, or a new name"):
        JsonLog(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is a pipe, expected a file"):
        JsonLog.read(tmp_path / "pipe")
    (tmp_path / "log").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "log")
    with JsonLog(tmp_path / "link") as log:
        log.write({"step": 1})
    assert (tmp_path / "link").is_symlink()
    assert JsonLog.read(tmp_path / "log") == [{"step": 1}]


@pytest.mark.parametrize(
    "record", [[1, 2], None, {1: 2}, {"a": (1,)}, {"a": 10**700}, {"a": object()}]
)
def test_a_record_that_could_not_be_read_again_is_refused(path, record):
    with JsonLog(path) as log:
        with pytest.raises((TypeError, ValueError), match="^record"):
            log.write(record)
        log.write({"step": 1})
    assert JsonLog.read(path) == [{"step": 1}]


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="it has no links")
def test_a_link_that_leads_to_itself_is_named(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(link)
    with pytest.raises(ValueError, match="link is a link that leads to itself, expected a file"):
        JsonLog(link)
    assert link.is_symlink()
