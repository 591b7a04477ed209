"""``compare_commits.py``: processes of two checkouts in turns, and what it makes of their times."""

import json
from pathlib import Path

import pytest
from refusals import refuses

from scripts.measure import compare_commits

ROOT = str(Path(__file__).parents[2])


def test_processes_take_turns_and_medians_are_over_them(tmp_path, monkeypatch, capsys):
    """The second checkout is twice as slow,
    and one of three processes of each has a bad place in memory.
    """
    started = []

    def timed(checkout, case, seconds):
        if seconds:
            started.append((checkout, *case))
        n = sum(each == (checkout, *case) for each in started)
        return (0.002 if checkout == "/after" else 0.001) * (1.14 if n == 2 else 1)

    monkeypatch.setattr(compare_commits, "timed", timed)
    arguments = ["/before", "/after", "--steps", "tiny"]
    arguments += ["--batches", "4", "--beams", "1", "--processes", "3"]
    compare_commits.main([*arguments, "--json", str(tmp_path / "x.json")])
    assert [checkout for checkout, kind, *_ in started if kind == "step"] == [
        *("/before", "/after"),
        *("/after", "/before"),
        *("/before", "/after"),
    ]
    cases = json.loads((tmp_path / "x.json").read_text())["cases"]
    assert list(cases) == ["step tiny", "decode base 4 1"]
    for case in cases.values():
        assert case["seconds"]["before"] == [0.001, 0.001 * 1.14, 0.001]
        assert case["ratio"] == 2
    assert "1.00 (1.00 … 1.14)" in capsys.readouterr().out


def test_a_size_of_a_batch_that_is_no_number_is_refused(capsys):
    refuses(SystemExit, "2", compare_commits.main, [ROOT, ROOT, "--batches", "4,x"])
    assert "argument --batches: x, expected a whole number" in capsys.readouterr().err


@pytest.mark.parametrize("case", [("step", "tiny", []), ("decode", "tiny", [1, 2])])
def test_a_process_of_a_checkout_says_how_long_a_call_takes(case):
    assert compare_commits.timed(ROOT, case, 0.001) > 0


def test_a_folder_without_the_benchmarks_is_named(tmp_path):
    message = "ModuleNotFoundError: No module named 'bench_decode'"
    case = "step", "tiny", []
    refuses(SystemExit, message, compare_commits.timed, str(tmp_path), case, 0.001)
