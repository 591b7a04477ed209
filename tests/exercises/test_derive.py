"""``npformer exercises build --derive`` tells no formulas of gradients, but has hints to them."""

import re

import numpy as np
import pytest
from tables import table

from npformer.exercises.course.file import starting_text
from npformer.exercises.transformer import BUILD
from npformer.exercises.transformer.derive import DERIVE, FORWARD


def test_the_exercises_are_those_of_build():
    assert list(DERIVE.parts) == list(BUILD.parts)
    for label, part in DERIVE.parts.items():
        other = BUILD.parts[label]
        assert part.key == f"derive/{label}"
        assert part.answer == other.answer
        assert part.cases == other.cases
        assert part.title == other.title
        assert part.derivation
        assert part.hints
        # what has one explanation there has one here: so their tests are those of build
        explanations = {}
        for mistake, of_build in zip(part.mistakes, other.mistakes, strict=True):
            assert mistake.change == of_build.change
            explanations[of_build.explanation] = mistake.explanation
        assert len(set(explanations.values())) == len(explanations)


def exercises_of(text):
    """The part of a file in which the exercises stand."""
    _, _, text = text.partition("# The exercises")
    exercises, _, _ = text.partition("# Given.")
    return exercises


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
    mistakes = [mistake for part in DERIVE.parts.values() for mistake in part.mistakes]
    text = "\n".join(mistake.explanation for mistake in mistakes)
    for formula in ("dy Wᵀ", "xᵀ dy", "mean(dx̂", "dx̂ =", "weightsᵀ dout", "p - wanted"):
        assert formula not in text


def test_exercise_1_stands_at_the_top_and_the_others_in_their_order():
    text = starting_text(DERIVE)
    places = [text.index(f"def {part.function_name}(") for part in DERIVE.parts.values()]
    firsts = list(dict.fromkeys(places))
    assert firsts == sorted(firsts)
    assert text.index("def ") == places[0]
    for name in ("embed", "decoder_layer", "train"):
        assert text.index(DERIVE.page.source_of(name)) > max(places)


def words_of(text):
    return set(re.findall(r"\w{3,}", text))


@pytest.mark.parametrize("part", DERIVE.parts.values(), ids=DERIVE.parts)
def test_the_last_hint_is_nearly_the_answer_and_the_first_is_an_idea(part):
    first, *others = part.hints
    assert words_of(" ".join(others)) & words_of(part.answer_source)
    assert part.answer_source not in "".join(part.hints)
    if part.name not in FORWARD:
        backward = part.one_page.backward_of(part.function_name)
        for line in backward.split("\n"):
            assert not line or line.strip() not in first


@pytest.mark.parametrize("label, codes", table(__file__, "code_of_hints").items())
def test_the_code_of_a_hint_is_of_the_answer(label, codes):
    part = DERIVE.parts[label]
    for code in codes:
        assert code in " ".join(part.hints)
        code = code.replace("x - maximum", "x - x.max(axis=-1, keepdims=True)")
        assert code in part.answer_source


def test_the_jacobians_of_the_hints_hold():
    """Of softmax and of the normalisation, as the hints write them, by differences."""
    x = np.random.default_rng(0).standard_normal(4)
    same = np.eye(4)
    page = DERIVE.page.module

    def layer_norm(x):
        y, _ = page.layer_norm({"gain": 1.0, "bias": 0.0}, x)
        return y

    def jacobian(f, step=1e-6):
        columns = [(f(x + step * e) - f(x - step * e)) / (2 * step) for e in same]
        return np.transpose(columns)

    y = page.softmax(x)
    np.testing.assert_allclose(jacobian(page.softmax), y[:, None] * (same - y), atol=1e-8)
    x_hat = layer_norm(x)
    r = 1 / np.sqrt(x.var() + 1e-5)
    of_norm = r * (same - 1 / 4 - x_hat[:, None] * x_hat / 4)
    np.testing.assert_allclose(jacobian(layer_norm), of_norm, atol=1e-8)
