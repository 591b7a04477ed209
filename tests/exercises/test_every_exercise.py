"""What holds for every exercise, alone or of a course: it is complete, right answers pass, and
wrong ones get their explanation.
"""

import ast
import inspect
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tables import table

from npformer.exercises import EXERCISES, check_function, one_word, start, tasks
from npformer.exercises.courses import ALL, PARTS
from npformer.exercises.start import OF_FLOAT32, SHOWS, explained, starting_text, task_text
from tests.exercises import right_answers
from tests.exercises.solving import verdict_on
from tests.tools import mutate_exercises

ROOT = Path(__file__).parents[2]
MISTAKES = table(__file__, "usual_mistakes")
OTHER_ANSWERS = dict(inspect.getmembers(right_answers, inspect.isfunction))
OTHER_ANSWERS |= right_answers.OF_GPT
every = pytest.mark.parametrize("exercise", ALL.values(), ids=ALL)
every_alone = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
every_part = pytest.mark.parametrize("part", PARTS, ids=[part.key for part in PARTS])


# -- the records -----------------------------------------------------------------------------------


def test_each_file_is_an_exercise():
    assert set(EXERCISES) == {path.stem for path in Path(tasks.__file__).parent.glob("[a-z]*.py")}


@every
def test_the_record_is_complete(exercise):
    assert ALL[exercise.key] is exercise
    assert len(exercise.title) <= 58
    assert not exercise.title.endswith(".")
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert exercise.page in index.split()
    assert exercise.results
    assert len(exercise.mistakes) >= 3
    assert len(set(exercise.hints)) == len(exercise.hints) >= 1


@every_alone
def test_an_exercise_alone_tells_all_that_its_file_needs(exercise):
    assert list(inspect.signature(exercise.answer).parameters) == list(exercise.arguments)
    explanations = {mistake.explanation for mistake in exercise.mistakes}
    assert len(explanations) == len(exercise.mistakes) >= 4
    assert len(exercise.hints) >= 2 or not exercise.given
    assert exercise.name not in sys.stdlib_module_names
    spec = find_spec(exercise.name)
    # a file of this name would hide a module; a folder of docs is none
    assert spec is None or spec.origin is None


# What the checker says of a mistake that has no name, and of what is not written.
UNNAMED = ("has shape", "has dtype", "not written", "yours is nan")


@every_part
def test_each_pattern_of_a_hint_is_found_in_what_the_checker_says(part):
    assert 2 <= len(part.hints) <= 4 or part.key == "build/merge_heads"
    assert part.hint_for or len(part.hints) == 1
    said = [mistake.explanation for mistake in part.mistakes]
    said += [wrong.explanation for wrong in part.wrong_answers if wrong.is_slip]
    said += [f"{name} is wrong" for name in part.results]
    for pattern, number in part.hint_for.items():
        assert 1 <= number <= len(part.hints)
        for words in pattern.split("|"):
            assert any(re.search(words, text) for text in (*said, *UNNAMED)), words


@every_alone
def test_the_file_to_begin_with_is_no_answer(exercise):
    text = starting_text(exercise, "npformer exercises")
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
    for number, title in zip(numbers, titles, strict=True):
        assert f"(step {number} back)" in title
    assert len(numbers) == 6
    for row in (one_word.ds2, one_word.dx2, one_word.ds1, one_word.dscores, one_word.dq):
        assert str(np.round(row, 4)) in page


# -- right answers ---------------------------------------------------------------------------------


@every
def test_the_answer_passes(exercise):
    n_cases = len(exercise.cases(np.random.default_rng(0)))
    number = "both" if n_cases == 2 else f"all {n_cases}"
    function = exercise.function_from(exercise.answer_source)
    for seed in range(3):
        lines = check_function(exercise, function, seed).lines
        assert lines == [f"right in {number} cases"]


@every_alone
def test_the_answer_needs_only_what_the_file_imports(exercise):
    names = {}
    exec(exercise.imports, names)
    exec(exercise.answer_source, names)
    assert check_function(exercise, names[exercise.name]).solved


@pytest.mark.parametrize("key", OTHER_ANSWERS)
def test_another_right_answer_passes(key):
    for seed in (0, 1):
        assert verdict_on(key, OTHER_ANSWERS[key], seed).solved


# -- wrong answers ---------------------------------------------------------------------------------


# Those of derive/ are those of build/ with other explanations, and some of gpt/ are taken over.
TAKEN = ("gpt/attention", "gpt/attention_backward", "gpt/adam_step")
OF_MISTAKES = [key for key in ALL if not key.startswith("derive/") and key not in TAKEN]


@pytest.mark.parametrize("key", OF_MISTAKES)
def test_every_typical_mistake_gets_its_explanation(key):
    exercise = ALL[key]
    for mistake in exercise.mistakes:
        verdict = check_function(exercise, exercise.with_mistakes(mistake))
        assert verdict.state == "wrong"
        assert verdict.reason == mistake.explanation, mistake.change


@pytest.mark.parametrize("row", sum(MISTAKES.values(), []), ids=lambda row: row["key"])
def test_a_usual_mistake_is_noticed_and_gets_its_name_or_none(row):
    verdict = verdict_on(row["key"], row.get("changes") or row["function"])
    assert verdict.state == "wrong"
    if "words" in row:
        assert row["words"] in verdict.reason
    else:
        assert verdict.reason == ""


def test_what_the_guide_says_of_usual_mistakes():
    """Sixty in the exercises of ``--derive``, of which 59 are named."""
    of_derive = MISTAKES["derived"] + MISTAKES["others"]
    assert len(of_derive) == 60
    assert sum("words" in row for row in of_derive) == 59
    assert len(MISTAKES["written"]) == 30


def test_where_float32_has_to_stay_the_task_says_so():
    """Float64 that leaks into it is noticed: see odd_answers.toml."""
    rows = table(__file__, "odd_answers")["row"]
    keys = [row["key"] for row in rows if "as its arguments have" in row["line"]]
    assert len(keys) == 6
    for key in keys:
        assert OF_FLOAT32 in task_text(ALL[key]), key


SLOW = "multi_head_attention"


def test_the_checker_notices_mutants_of_the_answers(monkeypatch):
    """A few of some exercises; ``make test-slow`` judges more of them.

    The answers and the cases of derive/ are those of build/.
    """
    monkeypatch.setattr(mutate_exercises, "SECONDS", 1)  # for those that do not end
    rng = np.random.default_rng(1)
    keys = [key for key in ALL if key != SLOW and not key.startswith("derive/")]
    some = {key: ALL[key] for key in rng.choice(keys, 12, replace=False)}
    mutants = mutate_exercises.all_mutants(some)
    n = 100
    chosen = rng.choice(len(mutants), n, replace=False)
    caught, _, survivors = mutate_exercises.judge([mutants[i] for i in chosen], 3, verbose=False)
    assert len(caught) > 0.75 * n
    assert len(caught) >= 0.95 * (len(caught) + len(survivors)), survivors
