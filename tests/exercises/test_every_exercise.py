"""Each record is sound: the answer passes, and every typical mistake fails with its explanation."""

import ast
import inspect
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from npformer.exercises import EXERCISES, check_function, one_word, start, tasks
from npformer.exercises.child import ALL
from npformer.exercises.start import SHOWS, explained, starting_text
from tests.tools import mutate_exercises
from tests.tools.mutate_exercises import all_mutants, judge

ROOT = Path(__file__).parents[2]
every_exercise = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)


def test_each_file_is_an_exercise():
    assert set(EXERCISES) == {path.stem for path in Path(tasks.__file__).parent.glob("[a-z]*.py")}


@every_exercise
def test_the_record_is_complete(exercise):
    assert EXERCISES[exercise.name] is exercise
    assert list(inspect.signature(exercise.answer).parameters) == list(exercise.arguments)
    assert exercise.results
    assert len(exercise.hints) >= (2 if exercise.given else 1)
    assert len(exercise.mistakes) >= 4
    assert len({mistake.explanation for mistake in exercise.mistakes}) == len(exercise.mistakes)
    assert len(exercise.title) <= 58
    assert exercise.page in (ROOT / "docs" / "index.md").read_text(encoding="utf-8").split()
    assert exercise.name not in sys.stdlib_module_names
    spec = find_spec(exercise.name)
    # a file of this name would hide a module; a folder of docs is none
    assert spec is None or spec.origin is None


@every_exercise
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_answer_passes(exercise, seed):
    number = f"all {len(cases_of(exercise))}".replace("all 2", "both")
    assert check_function(exercise, exercise.answer, seed).lines == [f"right in {number} cases"]


def cases_of(exercise):
    return exercise.cases(np.random.default_rng(0))


@every_exercise
def test_the_answer_needs_only_what_the_file_imports(exercise):
    names = {}
    exec(exercise.imports, names)
    exec(exercise.answer_source, names)
    assert check_function(exercise, names[exercise.name]).solved


@every_exercise
def test_every_typical_mistake_fails_with_its_explanation(exercise):
    for mistake in exercise.mistakes:
        verdict = check_function(exercise, exercise.with_mistakes(mistake))
        assert verdict.state == "wrong", mistake.change
        assert f"perhaps: {mistake.explanation}" in verdict.lines or mistake_is_named_already(
            verdict
        ), mistake.change


def mistake_is_named_already(verdict):
    return "in place" in verdict.lines[1]


@every_exercise
def test_the_file_to_begin_with_is_no_answer(exercise):
    text = starting_text(exercise)
    assert max(len(line) for line in text.splitlines() if "Explained in " not in line) <= 120
    ast.parse(text)
    names = {}
    exec(text, names)
    verdict = check_function(exercise, names[exercise.name])
    assert verdict.state == ("wrong" if exercise.given else "not written")


def test_where_it_is_explained_is_a_path_from_anywhere_or_an_address(monkeypatch):
    file = ROOT / "docs" / "attention" / "one-head.md"
    assert explained(EXERCISES["attention"]) == f"Explained in {file}"
    monkeypatch.setattr(start, "PAGES", "https://x")
    line = "Explained in https://x/attention/masks.md (its code is close to the answer)"
    assert explained(EXERCISES["causal_mask"]) == line
    assert {exercise.page for exercise in ALL.values()} >= SHOWS


def test_the_six_steps_back_have_the_numbers_of_the_page():
    page = (ROOT / "docs" / "gradients" / "residual.md").read_text(encoding="utf-8")
    titles = [exercise.title for name, exercise in EXERCISES.items() if name.startswith("back_")]
    numbers = re.findall(r"^\*\*Step (\d) back", page, re.MULTILINE)
    assert [
        f"(step {number} back)" in title for number, title in zip(numbers, titles, strict=True)
    ] == [True] * 6
    for row in (one_word.ds2, one_word.dx2, one_word.ds1, one_word.dscores, one_word.dq):
        assert str(np.round(row, 4)) in page


def test_the_checker_notices_mutants_of_the_answers(monkeypatch):
    monkeypatch.setattr(mutate_exercises, "SECONDS", 1)  # for those that do not end
    # multi_head_attention is slow
    mutants = [mutant for mutant in all_mutants(EXERCISES) if mutant[0] != "multi_head_attention"]
    chosen = [mutants[i] for i in np.random.default_rng(1).choice(len(mutants), 80, replace=False)]
    caught, _, survivors = judge(chosen, n_seeds=3, verbose=False)
    assert len(caught) > 60
    assert len(caught) >= 0.95 * (len(caught) + len(survivors)), survivors
