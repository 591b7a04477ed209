"""Marks for capitals of sentences and missing spaces: words are alike, and the text comes back."""

import random
import unicodedata
from types import SimpleNamespace

import pytest

from npformer.tokens import marks
from npformer.tokens.marks import CAPITAL, JOINED, mark, unmark

ALPHABET = [*"aÉßİǅZ7_-'’.«(  日\t\u0301", "l'", "QU'"]


MARKED = {
    "L'homme d'à côté.": "↑ l'‿ homme d'‿ à côté ‿.",
    "Qu’il dise « Ça va ? » Oui ! Là": "↑ qu’‿ il dise « Ça va ? » Oui ! ↑ là",
    "The man's T-shirt isn't red, (USA)": "↑ the man ‿'s T-shirt isn ‿'t red ‿, (‿ USA ‿)",
    "Ein Mann um 8:30": "↑ ein Mann um 8 ‿:‿ 30",
    "Jusqu'à l'eau. TV ! A": "↑ jusqu'‿ à l'‿ eau ‿. TV ! ↑ a",
    'S.C.U.B.A. "Nein"': '↑ s ‿.‿ C ‿.‿ U ‿.‿ B ‿.‿ A ‿. "‿ Nein ‿"',
    "": "",
}


@pytest.mark.parametrize("line", MARKED)
def test_a_word_is_the_same_wherever_it_stands(line):
    assert mark(line) == MARKED[line]
    assert unmark(MARKED[line]) == line


def test_any_text_comes_back_with_single_spaces():
    draw = random.Random(0)
    for _ in range(5000):
        line = "".join(draw.choices(ALPHABET, k=draw.randint(0, 12)))
        assert unmark(mark(line)) == " ".join(unicodedata.normalize("NFKC", line).split()), line


def test_accents_stay_on_their_letters_and_spaces_of_no_width_are_spaces():
    decomposed = unicodedata.normalize("NFD", "Le café à la crème")
    assert mark(decomposed) == "↑ le café à la crème"
    assert mark("un\u200bhomme\ufeff") == "un homme"


def test_many_accents_on_one_letter_are_not_normalised_together(monkeypatch):
    """To sort them takes a time that grows with the square of their number."""
    lengths = []

    def normalize(form, text, normalize=unicodedata.normalize):
        lengths.append(len(text))
        return normalize(form, text)

    monkeypatch.setattr(marks, "unicodedata", SimpleNamespace(normalize=normalize))
    line = "le cafe" + "\u0301\u0323" * 10_000
    assert mark(line).startswith("le caf\u1eb9")
    assert max(lengths) < 100 and sum(lengths) == len(line)


def test_signs_that_are_marks_are_written_otherwise():
    assert unmark(mark("a ↑b c‿d")) == "a ^b c_d"


def test_what_mark_never_wrote_loses_its_marks_and_nothing_else():
    draw = random.Random(1)
    for _ in range(5000):
        line = "".join(draw.choices(["a", "b", " ", ".", CAPITAL, JOINED], k=draw.randint(0, 12)))
        given = unmark(line)
        assert given.lower().replace(" ", "") == "".join(
            letter for letter in line if letter in "ab."
        )
    assert unmark("↑ ‿ ↑") == ""
