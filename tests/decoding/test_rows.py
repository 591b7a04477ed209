"""A text that is decoded beside others is the text that is decoded alone, in random groups."""

import json

import numpy as np

from npformer.decoding.text import LanguageDecoder
from tests.tools.compare_rows import compared, main


def test_a_text_beside_others_is_the_text_alone(tmp_path):
    file = tmp_path / "rows.json"
    assert main(["--groups", "20", "--seed", "1", "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert figures["different"] == 0
    assert figures["beyond the context"] > 10


def test_the_comparison_sees_rows_that_go_on_together(monkeypatch):
    """As soon as one row is full, all are cut."""
    read = LanguageDecoder._read_kept_tokens
    monkeypatch.setattr(
        LanguageDecoder,
        "_read_kept_tokens",
        lambda decoder, rows: read(decoder, np.arange(len(decoder.positions))),
    )
    assert compared(12, seed=1)["different"] > 2
