import subprocess
import sys

import numpy as np
import pytest

from npformer import StepInfo, plots

PNG = b"\x89PNG"


def test_pictures_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    history = [StepInfo(step, 1 / step, 0.1, 1.0, 10, 0.01) for step in range(1, 60)]
    plots.plot_loss(history, tmp_path / "loss.png")
    plots.plot_loss(history[:1], tmp_path / "one_step.png")
    weights = np.full((2, 3, 5), 0.2)
    plots.plot_attention([weights, weights], tmp_path / "attention.png", list("abcde"), ["<begin>", "b", "c"])
    plots.plot_positional_encoding(tmp_path / "positions.png", length=7, d_model=5)
    for path in tmp_path.iterdir():
        assert path.read_bytes()[:4] == PNG


def test_words_have_to_fit_the_weights(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match=r"weights \(2, 3, 5\): expected \(H, 3, 4\)"):
        plots.plot_attention([np.zeros((2, 3, 5))], tmp_path / "a.png", list("abcd"), list("abc"))


def test_without_matplotlib_the_error_says_what_to_install():
    code = """
import sys
sys.modules["matplotlib"] = sys.modules["matplotlib.figure"] = None
from npformer.plots import plot_positional_encoding
try:
    plot_positional_encoding("x.png")
except ImportError as error:
    print(error)
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'npformer[plot]'" in shown
