"""``study_descendants.py`` in small: what it changes in the model of 2017."""

import json

from scripts.measure import study_descendants


def test_the_study_in_small(tmp_path, capsys):
    short = ["--quick", "--steps", "2", "--seeds", "2", "--changes", "2017,tied output"]
    study_descendants.main([*short, "--json", str(tmp_path / "x.json")])
    before, tied = json.loads((tmp_path / "x.json").read_text())["changes"]
    assert before["name"] == "2017" and tied["n_parameters"] < before["n_parameters"]
    assert before["bits"] != tied["bits"] and len(tied["bits"]) == 2
    assert "| tied output | " in capsys.readouterr().out


def test_all_of_todays_changes_are_made_together():
    assert list(study_descendants.changes_of(["rotary"])) == ["rotary"]
    together = study_descendants.changes_of(None)["all of today's"]
    assert together["norm"] == "pre" and together["positions"] == "rotary" and not together["bias"]
    assert "n_kv_heads" not in together
