"""``npformer exercises build --derive``: no formulas of gradients, but hints and derivations."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npformer.commands.exercises import main

from npformer.exercises import check_function
from npformer.exercises.exercise import Mistake
from npformer.exercises.progress import Progress
from npformer.exercises.track.file import starting_text
from npformer.exercises.track.track import track_of
from npformer.exercises.tracks import TRACKS
from npformer.exercises.transformer import BUILD
from npformer.exercises.transformer.derive import DERIVE, FORWARD, INSTEAD
from tests.exercises.solving import solve
from tests.exercises.usual_mistakes import OTHERS, USUAL
from tests.tools import mutate_exercises

FILE = Path("exercises/transformer.py")
BEGUN = "npformer exercises build --derive"
ONE_MORE = "the same command again gives one more"


@pytest.fixture(autouse=True)
def folder(exercises_folder):
    return exercises_folder


@pytest.fixture
def run(exercises):
    return lambda text: exercises(f"build {text}")


# -- the exercises ---------------------------------------------------------------------------------


def test_the_exercises_are_those_of_build():
    assert list(DERIVE.parts) == list(BUILD.parts)
    for label, part in DERIVE.parts.items():
        other = BUILD.parts[label]
        assert (part.answer, part.cases, part.title) == (other.answer, other.cases, other.title)
        assert [each.change for each in part.mistakes] == [each.change for each in other.mistakes]
        assert part.derivation and part.hints and part.key == f"derive/{label}"


def exercises_of(text):
    """The part of a file in which the exercises stand."""
    return text.partition("# The exercises")[2].partition("# Given.")[0]


def test_the_file_tells_no_formula_of_a_gradient():
    text = exercises_of(starting_text(DERIVE))
    told = exercises_of("# The exercises" + starting_text(BUILD))
    formulas = ["dy Wᵀ", "xᵀ dy", "dx̂", "dout vᵀ", "dweights"]
    formulas += ["dscores", "(p - wanted)", "two\n    gradients"]
    assert [formula for formula in formulas if formula in text] == []
    # the file of build tells them
    assert sum(formula in told for formula in formulas) == len(formulas)
    for name in {part.function_name for part in DERIVE.parts.values()}:
        for line in DERIVE.page.backward_of(name).splitlines()[1:]:
            assert line.strip() not in text


def test_no_explanation_tells_what_is_to_be_derived():
    words = [mistake.explanation for part in DERIVE.parts.values() for mistake in part.mistakes]
    assert set(INSTEAD) <= {
        each.explanation for part in BUILD.parts.values() for each in part.mistakes
    }
    for formula in ("dy Wᵀ", "xᵀ dy", "mean(dx̂", "dx̂ =", "weightsᵀ dout", "p - wanted"):
        assert not any(formula in text for text in words)


def test_exercise_1_stands_at_the_top_and_the_others_in_their_order():
    text = starting_text(DERIVE)
    places = [text.index(f"def {part.function_name}(") for part in DERIVE.parts.values()]
    firsts = list(dict.fromkeys(places))
    assert firsts == sorted(firsts)
    given = [
        text.index(DERIVE.page.source_of(name)) for name in ("embed", "decoder_layer", "train")
    ]
    assert min(given) > max(places) and text.index("def ") == places[0]


@pytest.mark.parametrize("part", DERIVE.parts.values(), ids=DERIVE.parts)
def test_the_last_hint_is_nearly_the_answer_and_the_first_is_an_idea(part):
    assert 2 <= len(part.hints) <= 4
    answer = set(re.findall(r"\w{3,}", part.answer_source))
    shared = [
        len(set(re.findall(r"\w{3,}", hint)) & answer)
        for hint in (part.hints[0], " ".join(part.hints[1:]))
    ]
    assert shared[1] > 0 and part.answer_source not in "".join(part.hints)
    if part.name not in FORWARD:
        lines = [
            line.strip() for line in part.one_page.backward_of(part.function_name).splitlines()
        ]
        assert not any(line in part.hints[0] for line in lines if line)


# What a hint says in code is run. The names of a hint's formulas are those of the derivation
# that follows.
CODE_OF_HINTS = {
    "softmax": ["x.max(axis=-1, keepdims=True)", "np.exp(x - maximum)"],
    "attention": ["k.swapaxes(-1, -2)", "np.where(keep_mask, scores, -np.inf)"],
    "split_heads": ["transpose(0, 2, 1, 3)"],
    "layer_norm": [
        "1 / np.sqrt((deviation**2).mean(axis=-1, keepdims=True) + eps)",
        "deviation * rstd",
    ],
    "cross_entropy": [
        "np.eye(V)[targets]",
        "(targets != PAD)[..., None]",
        "counted / counted.sum()",
    ],
    "linear": ["x.reshape(-1, x.shape[-1])"],
    "layer_norm_backward": ["tuple(range(dy.ndim - 1))"],
    "feed_forward": ['linear(params["hidden"], x)', "np.maximum(h, 0)", "out_backward(dy)"],
    "self_attention": [
        "np.split(qkv, 3, axis=-1)",
        "split_heads(part, n_heads)",
        "out_backward(dy)",
    ],
    "encoder_layer": ["norm2_backward(dx2)"],
    "transformer": [
        "(src != PAD)[:, None, None, :]",
        "np.tri(tgt_in.shape[1], dtype=bool)",
        "np.zeros_like(memory)",
        "reversed(range(",
    ],
    "adam_step": [
        "isinstance(g, dict)",
        "means.get(name, (0.0, 0.0))",
        "means.setdefault(name, {})",
    ],
}


@pytest.mark.parametrize(("label", "codes"), CODE_OF_HINTS.items())
def test_the_code_of_a_hint_is_of_the_answer(label, codes):
    part = DERIVE.parts[label]
    for code in codes:
        assert code in " ".join(part.hints)
        assert (
            code.replace("x - maximum", "x - x.max(axis=-1, keepdims=True)") in part.answer_source
        )


def test_the_jacobians_of_the_hints_hold():
    """Of softmax and of the normalisation, as the hints write them, by differences."""
    rng = np.random.default_rng(0)
    x, step, same = rng.standard_normal(4), 1e-6, np.eye(4)
    softmax = DERIVE.page.module.softmax
    layer_norm = lambda x: DERIVE.page.module.layer_norm({"gain": 1.0, "bias": 0.0}, x)[0]
    y, x_hat, r = softmax(x), layer_norm(x), 1 / np.sqrt(x.var() + 1e-5)
    of_softmax = [[y[j] * (same[i, j] - y[i]) for i in range(4)] for j in range(4)]
    of_norm = [
        [r * (same[i, j] - 1 / 4 - x_hat[i] * x_hat[j] / 4) for i in range(4)] for j in range(4)
    ]
    for f, jacobian in ((softmax, of_softmax), (layer_norm, of_norm)):
        differences = [(f(x + step * e) - f(x - step * e)) / (2 * step) for e in same]
        np.testing.assert_allclose(np.transpose(differences), jacobian, atol=1e-8)


# -- the checker -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mistakes", "n_named"), [(USUAL, 30), (OTHERS, 29)], ids=["usual", "others"]
)
def test_usual_mistakes_are_named_and_none_wrongly(mistakes, n_named):
    n_right = 0
    for label, change, words in mistakes:
        part = DERIVE.parts[label]
        verdict = check_function(part, part.with_mistakes(Mistake(change, "")))
        assert verdict.state == "wrong"
        perhaps = [line for line in verdict.lines if line.startswith("perhaps: ")]
        assert all(words in line for line in perhaps), (label, change, perhaps)
        n_right += bool(perhaps)
    assert (len(mistakes), n_right) == (30, n_named)


def test_a_position_that_does_not_see_itself_is_not_called_the_other_way_round():
    part = DERIVE.parts["transformer"]
    change = {
        "np.tri(tgt_in.shape[1], dtype=bool)": (
            "np.tril(np.ones((tgt_in.shape[1],) * 2, dtype=bool), k=-1)"
        )
    }
    verdict = check_function(part, part.with_mistakes(Mistake(change, "")))
    assert "each position sees itself" in verdict.lines[-1]


def test_the_checker_notices_mutants_of_the_answers(monkeypatch):
    monkeypatch.setattr(mutate_exercises, "SECONDS", 1)  # for those that do not end
    labels = (
        "cross_entropy",
        "linear",
        "layer_norm_backward",
        "attention_backward",
        "feed_forward",
    )
    mutants = mutate_exercises.all_mutants(
        {f"derive/{label}": DERIVE.parts[label] for label in labels}
    )
    chosen = [mutants[i] for i in np.random.default_rng(1).choice(len(mutants), 40, replace=False)]
    caught, _, survivors = mutate_exercises.judge(chosen, n_seeds=3, verbose=False)
    assert len(caught) > 30
    assert len(caught) >= 0.97 * (len(caught) + len(survivors)), survivors


# -- the commands ----------------------------------------------------------------------------------


def test_from_the_first_exercise_to_a_derivation(run):
    code, said = run("--derive")
    assert code == 0 and "Your file: exercises/transformer.py" in said and "--hint 1\n" in said
    assert track_of(FILE.read_text(encoding="utf-8"), TRACKS.values()) is DERIVE
    assert run("check")[1].startswith("softmax: not written yet\n")
    solve(DERIVE, "softmax")
    code, said = run("check")
    assert (
        code == 0
        and "softmax: solved" in said
        and "\nWhy softmax is so (a == b: equal but for rounding):\n\n    exp(x - c) = " in said
    )
    assert "Exercise 2, attention: " in said
    assert "Why softmax" not in run("check")[1]  # of those that are checked for the first time
    assert "Why softmax" in run("check softmax")[1]
    code, said = run("answer softmax")
    assert "def softmax(x):" in said and "Why softmax is so" in said
    rest = [label for label in list(DERIVE.parts)[1:] if not DERIVE.parts[label].has_later_backward]
    solve(DERIVE, *rest)
    code, said = run("check")
    assert (
        code == 0
        and said.count("\nWhy ") == 13
        and "so the model is yours: npformer exercises build train" in said
    )
    assert run("train Ada --steps 1")[1].startswith("14 of 14 exercises are yours: softmax, ")
    # the check writes nothing into it
    assert "raise" not in FILE.read_text(encoding="utf-8").partition("# Given")[0]


def test_each_hint_is_shown_once_and_none_is_lost(run):
    run("--derive")
    hints = DERIVE.parts["attention_backward"].hints
    for number, hint in enumerate(hints, 1):
        code, said = run("--hint 9" if number % 2 else "--hint attention_backward")
        assert (
            code == 0
            and f"exercise 9, attention_backward, hint {number} of {len(hints)}:\n" in said
        )
        shown = " ".join(said.partition(":\n")[2].split())
        assert shown.startswith(" ".join(hint.split()))
        assert Progress().hints["derive/attention_backward"] == [*range(1, number + 1)]
    assert said.endswith("that was the last hint; the answer: npformer exercises build answer 9\n")
    again = (
        "npformer exercises build hint 9 shows them again, "
        "npformer exercises build answer 9 the answer"
    )
    line = (
        "error: exercise 9, attention_backward, has no more hints, "
        f"all {len(hints)} were shown: {again}\n"
    )
    assert run("--hint 9") == (1, line)
    assert run("hint 9")[1].count("\n") == len(hints) + 2
    assert run("--hint 8")[1].startswith("exercise 8, layer_norm_backward, hint 1 of 4:\n")


def answer_with(label, old, new):
    """Put an answer with a mistake into the file."""
    solve(DERIVE, label)
    text = FILE.read_text(encoding="utf-8")
    assert old in text
    FILE.write_text(text.replace(old, new), encoding="utf-8")


def test_a_hint_about_the_mistake_that_was_found_comes_first(run):
    run("--derive")
    hints = DERIVE.parts["attention_backward"].hints
    answer_with("attention_backward", "scale * dscores @ k", "dscores @ k")
    reason = "the factor 1/√K is missing in dq"
    assert run("check 9")[1].splitlines()[-2] == f"    perhaps: {reason}"
    said = run("--hint 9")[1]
    assert said.startswith(
        "exercise 9, attention_backward, hint 4 of 4:\n"
        f"about what the last check said: {reason}\n    dscores = "
    )
    assert "1/√K" in hints[3] and said.endswith("the next one: npformer exercises build --hint 9\n")
    # then those that were left out, in their order
    said = run("hint 9")[1]
    assert said == f"attention_backward:\n4. {hints[3]}\n1. {hints[0]}\n{ONE_MORE}\n"
    assert run("--hint 9")[1].startswith("exercise 9, attention_backward, hint 2 of 4:\n    ")
    assert "that was the last hint" in run("--hint 9")[1]
    assert Progress().hints == {"derive/attention_backward": [4, 1, 2, 3]}


def test_what_is_wrong_without_a_name_has_a_hint_too(run):
    run("--derive")
    answer_with("linear", "dy_rows.sum(axis=0)", "dy_rows.sum(axis=0, keepdims=True)")
    assert 'grads["bias"] has shape (1, 1), expected (1,)' in run("check linear")[1]
    said = run("hint linear")[1]
    about = 'about what the last check said: grads["bias"] has shape (1, 1), expected (1,)\n3. '
    assert said.startswith(f"linear:\n{about}")


def test_an_error_chooses_no_hint(run):
    run("--derive")
    answer_with("linear", "dy_rows.sum(axis=0)", "dy_rows.bias")
    assert "it raises AttributeError" in run("check linear")[1]
    hints = DERIVE.parts["linear"].hints
    assert run("hint linear")[1] == f"linear:\n1. {hints[0]}\n{ONE_MORE}\n"


def test_a_mistake_that_is_mended_is_forgotten(run):
    run("--derive")
    answer_with("linear", "dy_rows.sum(axis=0)", "dy_rows.mean(axis=0)")
    run("check linear")
    assert "sum, not the mean" in Progress().diagnoses["derive/linear"]
    solve(DERIVE, "linear")
    run("check linear")
    assert Progress().diagnoses == {}


def test_a_solved_exercise_needs_no_hint(run):
    run("--derive")
    solve(DERIVE, "softmax")
    run("check")
    code, said = run("--hint 1")
    assert code == 1 and said == (
        "error: exercise 1, softmax, is solved, and needs no hint: "
        "npformer exercises build answer 1 shows the answer, "
        "and npformer exercises build hint 1 its hints\n"
    )
    assert "derive/softmax" not in Progress().hints


@pytest.mark.parametrize("name", ["15", "0", "-1"])
def test_a_hint_of_an_exercise_that_is_not_there(run, name):
    run("--derive")
    line = f"error: there is no exercise '{name}': they are 1 to 14, see npformer exercises build\n"
    assert run(f"--hint {name}") == (1, line)
    assert (
        run("--hint softmx")[1] == "error: there is no exercise 'softmx', did you mean softmax?\n"
    )


def test_a_hint_is_a_command_of_its_own(run):
    run("--derive")
    for command in ("check", "hint", "answer", "train Ada"):
        assert run(f"--hint 3 {command}") == (
            1,
            "error: --hint stands alone: npformer exercises build --hint 3\n",
        )


@pytest.mark.parametrize("command", ["--hint 9", "--derive check", "--derive --hint 9"])
def test_without_a_file_nothing_is_begun(run, folder, command):
    code, said = run(command)
    assert code == 1 and said.startswith(
        f"error: there is no exercises/transformer.py in {folder}: if you have begun"
    )
    assert list(folder.iterdir()) == []


def test_a_file_with_the_formulas_is_left_as_it_is(run):
    run("")
    solve(DERIVE, "softmax")
    run("check")
    before = FILE.read_text(encoding="utf-8")
    for command in ("--derive", "--derive check", "--derive --hint 9"):
        assert run(command) == (
            1,
            "error: exercises/transformer.py is there already, and was not begun with --derive: "
            "go on with it without "
            f"--derive, or move it out of exercises, and begin a new one with {BEGUN}\n",
        )
    assert FILE.read_text(encoding="utf-8") == before
    assert run("--hint 2")[1].startswith("exercise 2, attention, hint 1 of 3:\n")  # those of build
    assert Progress().hints == {"build/attention": [1]}


def test_the_file_says_of_which_kind_it_is(run):
    run("--derive")
    solve(DERIVE, "softmax")
    run("check")
    before = FILE.read_text(encoding="utf-8")
    assert "Hints: npformer exercises build --hint 2" in run("")[1]  # also without the option
    assert run("--derive")[1] == run("")[1] and FILE.read_text(encoding="utf-8") == before
    FILE.rename("mine.py")
    code, said = run("")  # a new one of the other kind: what was solved there belongs to it
    assert "no longer marked" not in said and "solved\n" not in said
    FILE.unlink()
    Path("mine.py").rename(FILE)
    assert run("")[1].count("  solved\n") == 1
    without_docstring = before.partition('"""\n\nimport')[2]
    FILE.write_text(f"import{without_docstring}", encoding="utf-8")
    assert run("")[1].count("  solved\n") == 1


def test_a_hint_that_was_pasted_changes_nothing(run):
    run("")
    text = FILE.read_text(encoding="utf-8")
    FILE.write_text(
        f"{text}\n# the next one: npformer exercises build --hint 2\n", encoding="utf-8"
    )
    assert run("--hint 2")[1].startswith("exercise 2, attention, hint 1 of 3:\n")  # those of build
    assert Progress().hints == {"build/attention": [1]}


def test_a_renamed_file_is_found(run, folder):
    run("--derive")
    FILE.rename("exercises/mine.py")
    other = "exercises/mine.py looks like it: mv exercises/mine.py exercises/transformer.py"
    code, said = run("check")
    assert code == 1 and said.startswith(
        f"error: there is no exercises/transformer.py in {folder} (but {other}): if"
    )
    assert (
        "exercises/mine.py looks like one, too: to go on with it, mv exercises/mine.py exercises/tr"
        in run("")[1]
    )


def test_a_file_of_another_track_is_refused(run, monkeypatch):
    other = replace(
        BUILD,
        name="other",
        command="other",
        file_name="o.py",
        mark="of another track",
        title="your own X",
    )
    monkeypatch.setitem(TRACKS, "other", other)
    FILE.parent.mkdir()
    FILE.write_text('"""This is of another track."""\n')
    line = (
        "exercises/transformer.py is that of your own X: "
        "rename it (mv exercises/transformer.py exercises/o.py), then"
    )
    assert run("check") == (1, f"error: {line} npformer exercises other\n")
    other.file.write_text("")  # which mv would replace
    line = line.replace(
        "rename it (mv exercises/transformer.py exercises/o.py)", "move it out of exercises, as {}"
    )
    line = line.format("exercises/o.py is there, too")
    assert run("check") == (1, f"error: {line} npformer exercises other\n")


def test_the_other_command_leads_here(capsys, run):
    run("--derive")
    assert main(["check", str(FILE)]) == 1
    assert capsys.readouterr().err.endswith(
        "is that of your own Transformer: npformer exercises build check\n"
    )
