"""The log of a training, and what an interruption does to it."""

import json
import os
from unittest.mock import patch

import pytest
from programs import WITH_PIPES
from refusals import refuses
from tables import each_of
from trainings import SRC, TGT, make

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


def test_each_record_is_a_line_that_can_be_read_at_once(tmp_path):
    path = tmp_path / "new" / "log.jsonl"
    records = []
    with JsonLog(path) as log:
        for step in (1, 2):
            record = {"step": step, "note": "é\n\u2028"}
            records.append(record)
            log.write(record)
            lines = path.read_text(encoding="utf-8").split("\n")
            assert [json.loads(line) for line in lines[:-1]] == records
    assert JsonLog.read(str(path)) == records


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


NO_RECORDS = {"zeros": b"\0" * 30, "cut": b'{"step": 2, "lo', "a list": b"[1]", "a number": b"3"}
NO_RECORDS |= {"no text": b"\xff\xfe", "deep": b"[" * 100_000}
NO_RECORDS["a huge number"] = b'{"a": ' + b"9" * 5000 + b"}"


@each_of("line", NO_RECORDS)
def test_a_damaged_line_is_told_of_and_the_file_kept_aside(path, line):
    lines = path.read_bytes().split(b"\n")
    lines[1] = line
    before = b"\n".join(lines)
    message = r"log.jsonl: line 2 is damaged, .* is now .*log.jsonl.damaged"
    for n in ("", 1):  # the second damage does not replace what the first left
        path.write_bytes(before)
        with pytest.warns(UserWarning, match=message):
            log = JsonLog(path, keep=4)
        with log:
            assert log.n_records == 3
            log.write({"step": 4})
        assert steps(path) == [1, 2, 3, 4]
        assert path.with_name(f"log.jsonl.damaged{n}").read_bytes() == before


def test_a_warning_of_a_damaged_line_has_the_line_that_called_npformer(path):
    path.write_bytes(b"[1]\n")
    trainer = make()
    trainer.state.n_logged = 1  # as after a training that has written it
    with pytest.warns(UserWarning, match="line 1 is damaged") as caught:
        JsonLog.read(path)
        JsonLog(path, keep=1).__exit__()
        path.write_bytes(b"[1]\n")
        trainer.fit([(SRC, TGT)], save=path.parent, progress=False)
    assert [warning.filename for warning in caught] == [__file__] * 3


def test_no_negative_number_of_records_is_kept(path):
    before = path.read_bytes()
    refuses(ValueError, "keep=-1, expected at least 0", JsonLog, path, keep=-1)
    assert path.read_bytes() == before


def test_damaged_lines_are_told_of_when_a_log_is_read(path):
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[3] = b"?"
    path.write_bytes(b"\n".join(lines))
    with pytest.warns(UserWarning, match="line 2 and 1 others are damaged"):
        assert steps(path) == [1, 2, 4]


@WITH_PIPES
def test_a_pipe_is_not_replaced_and_a_link_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refuses(ValueError, "pipe is a pipe, expected a file, or a new name", JsonLog, pipe)
    refuses(ValueError, "pipe is a pipe, expected a file", JsonLog.read, pipe)
    file = tmp_path / "log"
    file.write_text("")
    link = tmp_path / "link"
    link.symlink_to(file)
    with JsonLog(link) as log:
        log.write({"step": 1})
    assert link.is_symlink()
    assert JsonLog.read(file) == [{"step": 1}]


def test_a_record_that_could_not_be_read_again_is_refused(path):
    with JsonLog(path) as log:
        for record in ([1, 2], None, {1: 2}, {"a": (1,)}, {"a": 10**700}, {"a": object()}):
            refuses((TypeError, ValueError), "^record", log.write, record)
        log.write({"step": 1})
    assert JsonLog.read(path) == [{"step": 1}]


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="it has no links")
def test_a_link_that_leads_to_itself_is_named(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(link)
    refuses(ValueError, "link is a link that leads to itself, expected a file", JsonLog, link)
    assert link.is_symlink()
