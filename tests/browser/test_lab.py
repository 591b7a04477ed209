"""The page lab.html: its numbers and reasons are npformer's, it asks before it shows,
and all works by keyboard.
"""

import json
import re

import numpy as np
import pytest

from scripts import make_playground

import npformer as nf

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.keys import Keys  # noqa: E402

SCREENS = [(width, theme) for width in (320, 380, 1200) for theme in ("light", "dark")]
CONTENT = make_playground.lab()
QUESTIONS = {
    question["id"]: (bench, question)
    for bench, list_ in CONTENT["QUESTIONS"].items()
    for question in list_
}
STARTS = [(bench, start["id"]) for bench, list_ in CONTENT["STARTS"].items() for start in list_]
# What the page asks after each of its questions, as it was found by hand and not by the page.
ANSWERS = {
    "value": 0, "key": -1, "longer": -1, "unseen": 0, "alone": 1, "slope": 1, "sharp": -1,
    "shift": 0, "others": -1, "double": -1, "certain": -1, "constant": 0, "pays": -1,
    "higher": 0, "tenfold": -1, "outlier": 1, "untouched": -1, "gain": -1, "alike": 0,
}  # fmt: skip


PAGE = "lab.html"


@pytest.fixture
def lab(look, path):
    """The page as it answers at once, without asking."""
    return look(path, address="ask=off&bench=attention")


@pytest.fixture
def asking(look, path):
    """The page with the numbers of the first start."""
    return look(path, address="bench=attention")


def field(browser, name):
    """The field of a number, as q₂₁."""
    return browser.find(f'[aria-label^="{name},"]')


def replace(box, *keys):
    """Type in the place of what is in a field."""
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(*keys)


def numbers(browser, name, key="value"):
    """An array of the lab, as it stands in the page."""
    script = (
        "const number = cell => Number(cell.dataset[arguments[1]]);"
        "return outputs[arguments[0]].map(row => row.map(number))"
    )
    return np.array(browser.js(script, name, key))


def inputs_of(browser, which="inputs"):
    """The bench and its inputs, or those before the change."""
    bench, inputs = browser.js("return [lab.bench, lab[arguments[0]]]", which)
    return bench, {name: np.array(x) for name, x in inputs.items()}


# -- what npformer says ----------------------------------------------------------------------------


def attention(q, k, v, dout, keep_mask, scale):
    (scale,) = scale.ravel()
    sign, size = np.sign(scale) or 1.0, abs(scale)  # a scale below 0 is not npformer's
    out, weights = nf.attention(sign * q, k, v, keep_mask=keep_mask, scale=size)
    dq, dk, dv = nf.attention_backward(dout, sign * q, k, v, weights, scale=size)
    dweights = dout @ v.T
    scores = scale * q @ k.T
    grads = {
        "dv": dv,
        "dweights": dweights,
        "dscores": nf.softmax_backward(dweights, weights),
        "dq": sign * dq,
        "dk": dk,
    }
    return {
        "scores": scores,
        "weights": weights,
        "out": out,
        "loss": [[(dout * out).sum()]],
        **grads,
    }


def softmax(x, dy):
    y = nf.softmax(x)
    mean = [[(dy * y).sum()]]
    return {"e": np.exp(x), "y": y, "loss": mean, "mean": mean, "dx": nf.softmax_backward(dy, y)}


def layer_norm(x, gain, bias, dy):
    y, mean, rstd = nf.layer_norm(x, gain[0], bias[0])
    dx, dgain, dbias = nf.layer_norm_backward(dy, x, gain[0], mean, rstd)
    x_hat, dx_hat = (x - mean) * rstd, dy * gain
    forward = {"mean": mean, "variance": x.var(keepdims=True), "rstd": rstd, "x_hat": x_hat, "y": y}
    means = {"shift": dx_hat.mean(keepdims=True), "along": (dx_hat * x_hat).mean(keepdims=True)}
    grads = {"dx_hat": dx_hat, **means, "dx": dx, "dgain": dgain[None], "dbias": dbias[None]}
    return {**forward, "loss": [[(dy * y).sum()]], **grads}


BENCHES = {"attention": attention, "softmax": softmax, "layer_norm": layer_norm}
GRADIENTS = {
    "attention": ["dv", "dweights", "dscores", "dq", "dk"],
    "softmax": ["dx"],
    "layer_norm": ["dx", "dgain", "dbias"],
}


def npformers(bench, inputs):
    """All arrays of a bench, inputs too."""
    computed = BENCHES[bench](
        **{name: x if x.dtype == bool else x.astype(float) for name, x in inputs.items()}
    )
    return inputs | {
        name: np.array(x, float).reshape(-1, np.shape(x)[-1]) for name, x in computed.items()
    }


def rounding(value):
    """How far a number may be from how it is written in a cell,
    which has less digits for a large one.
    """
    size = abs(value)
    return 5.1e-5 if size < 100 else 5.1e-3 if size < 1e4 else 0.05 * size


def check(browser):
    """Every number that is shown is npformer's, and every gradient its finite difference."""
    bench, inputs = inputs_of(browser)
    expected = npformers(bench, inputs)
    names = browser.js("return Object.keys(outputs)")
    if browser.js("return !lab.shows"):
        assert set(names) == set(expected) - set(inputs)
    for name in names:
        tolerance = {"rtol": 1e-12, "atol": 1e-9, "err_msg": name}
        np.testing.assert_allclose(numbers(browser, name), expected[name], **tolerance)
        if name in GRADIENTS[bench]:
            tolerance = {
                "rtol": 0,
                "atol": 2e-6 * max(1, abs(expected[name]).max()),
                "err_msg": name,
            }
            np.testing.assert_allclose(
                numbers(browser, name, "difference"), expected[name], **tolerance
            )
        script = "return outputs[arguments[0]].map(row => row.map(cell => cell.firstChild.data))"
        for value, text in zip(
            expected[name].ravel(), sum(browser.js(script, name), []), strict=True
        ):
            assert text == "masked" or abs(float(text.replace("−", "-")) - value) <= rounding(
                value
            ), name
    check_reason(browser)
    check_flow(browser)


def check_flow(browser):
    """The drawing marks the arrays that the change has moved."""
    before, after = (npformers(*inputs_of(browser, which)) for which in ("settled", "inputs"))
    names = "return [...document.querySelectorAll(arguments[0])].map(box => box.dataset.name)"
    drawn, moved, changed = (
        set(browser.js(names, f"#flow g{kind}")) for kind in ("", ".moved", ".changed")
    )
    for name in drawn:
        distance = abs(np.subtract(after[name], before[name], dtype=float)).max()
        if 1e-9 < distance < 1e-4:
            continue  # whether it is seen in four digits depends on them
        assert (name in moved | changed) == (distance > 0.5e-4), name
    assert changed <= set(after) - set(browser.js("return Object.keys(outputs)"))


def check_reason(browser):
    """Every number of the reason is npformer's number of that name."""
    arrays = {}
    for when, which in (("before", "settled"), ("after", "inputs")):
        arrays[when] = npformers(*inputs_of(browser, which)) | {"exp": np.exp}
    script = (
        "return [...$('why').querySelectorAll('data')].map(x => "
        "[x.value, x.textContent, x.dataset.of, x.dataset.when])"
    )
    found = browser.js(script)
    for value, text, of, when in found:
        expected = eval(of, {"__builtins__": {}}, arrays[when])
        np.testing.assert_allclose(float(value), expected, rtol=1e-9, atol=1e-9, err_msg=of)
        if "10" not in text or "·" not in text:
            assert abs(float(text.replace("−", "-")) - expected) <= 5.1e-5, of
    return len(found)


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bench", "start"), STARTS)
def test_every_number_is_npformers_and_every_gradient_its_finite_difference(
    look, path, bench, start
):
    browser = look(path, address=f"bench={bench}&start={start}")
    assert browser.js("return [lab.bench, lab.start]") == [bench, start]
    check(browser)


def test_a_changed_number_changes_all_that_depends_on_it(lab):
    for name in ("q₃₂", "k₃₂", "v₃₂", "dout₃₂"):
        box = field(lab, name)
        replace(box, "-1.75")
        assert lab.js("return lab.inputs[arguments[0]][2][1]", name[:-2]) == -1.75
        check(lab)
    lab.click('[aria-label="whether query 2 may read key 4"]')
    check(lab)
    lab.click("#causal")
    assert (numbers(lab, "weights") == np.tril(numbers(lab, "weights"))).all()
    check(lab)
    replace(lab.find("#scale"), "1.25")
    assert lab.js("return lab.inputs.scale[0][0]") == 1.25
    check(lab)
    lab.click("#default-scale")
    lab.click("#all-keys")
    check(lab)
    for bench, names in {
        "softmax": ["x₁", "dy₃"],
        "layer_norm": ["x₁", "gain₂", "bias₃", "dy₄"],
    }.items():
        lab.click(f"[name=bench][value={bench}]")
        for name in names:
            box = field(lab, name)
            replace(box, "2.5")
            check(lab)


@pytest.mark.parametrize("bench", BENCHES)
def test_random_numbers_have_npformers_results(lab, bench):
    lab.click(f"[name=bench][value={bench}]")
    random = np.random.default_rng(0)
    for _ in range(4):
        inputs = {}
        for name, x in inputs_of(lab)[1].items():
            inputs[name] = random.normal(size=x.shape).tolist()
            if x.dtype == bool:
                inputs[name] = (np.eye(*x.shape) + random.random(x.shape) > 0.5).tolist()
        lab.js("Object.assign(lab.inputs, arguments[0]); update()", inputs)
        check(lab)


def test_a_number_can_be_dragged_and_a_wrong_one_changes_nothing(lab):
    box = field(lab, "v₁₁")
    webdriver.ActionChains(lab.driver).drag_and_drop_by_offset(box, 50, 0).perform()
    assert lab.js("return lab.inputs.v[0][0]") == 2
    check(lab)
    replace(box, "-")
    assert box.get_attribute("aria-invalid") == "true"
    assert lab.find("#forward").value_of_css_property("opacity") == "0.4"
    box.send_keys(Keys.TAB)
    assert lab.find("#forward").value_of_css_property("opacity") == "1"
    assert (box.get_attribute("value"), box.get_attribute("aria-invalid")) == ("2", "false")
    check(lab)


def test_no_number_that_can_be_given_overflows_or_is_too_wide_for_its_cell(lab):
    box = field(lab, "v₁₁")
    for text, taken in [
        ("1000", 1000),
        ("1e308", 1000),
        ("-1000.5", -1000),
        ("0.12345678", 0.123457),
    ]:
        replace(box, text, Keys.TAB)
        assert lab.js("return lab.inputs.v[0][0]") == float(box.get_attribute("value")) == taken

    random = np.random.default_rng(0)
    for scale in (-1000, 0.5, 1000):
        inputs = dict(
            zip("qkv", random.choice([-1000, 999.875, 1000], size=(3, 4, 3)).tolist(), strict=True)
        )
        inputs |= {
            "dout": random.choice([-1000.0, 1000.0], size=(4, 3)).tolist(),
            "scale": [[scale]],
        }
        lab.js("Object.assign(lab.inputs, arguments[0]); update()", inputs)
        expected = npformers(*inputs_of(lab))
        for name in ("out", "dq", "dk", "dv"):
            np.testing.assert_allclose(
                numbers(lab, name), expected[name], rtol=0, atol=1e-12 * abs(expected[name]).max()
            )
        for name in GRADIENTS["attention"]:
            assert np.isfinite(numbers(lab, name, "difference")).all()
        assert check_reason(lab) > 0
        cells = (
            "return [...document.querySelectorAll('td.value')].map(cell => "
            "cell.scrollWidth - cell.clientWidth)"
        )
        assert max(lab.js(cells)) <= 0


def test_only_the_main_button_drags_and_a_wheel_scrolls(lab):
    box = field(lab, "v₁₁")
    box.send_keys("")  # gives it the focus
    place = lab.js("return arguments[0].getBoundingClientRect()", box)
    at = {"x": place["x"] + place["width"] / 2, "y": place["y"] + place["height"] / 2}
    drag = webdriver.ActionChains(lab.driver)
    drag.w3c_actions.pointer_action.move_to(box).pointer_down(button=2).move_by(50, 0).pointer_up(
        button=2
    )
    drag.perform()
    assert lab.js("return lab.inputs.v[0][0]") == 1
    before = lab.js("return scrollY")
    lab.cdp("Input.dispatchMouseEvent", type="mouseWheel", deltaX=0, deltaY=100, **at)
    lab.wait(300)  # as long as a scroll may take
    assert lab.js("return scrollY") > before
    assert lab.js("return lab.inputs.v[0][0]") == 1


# -- questions -------------------------------------------------------------------------------------


def test_the_answers_are_of_all_questions():
    assert list(ANSWERS) == list(QUESTIONS)


@pytest.mark.parametrize("id_", QUESTIONS)
def test_a_question_is_asked_before_it_is_answered_with_its_reason(look, path, id_):
    bench, question = QUESTIONS[id_]
    name, i, j = question["watch"]
    for guess in (-1, 0, 1):
        browser = look(path, address=f"question={id_}")
        before = npformers(*inputs_of(browser, "settled"))
        after = npformers(*inputs_of(browser))
        for array in browser.js("return Object.keys(outputs)"):
            np.testing.assert_allclose(numbers(browser, array), before[array], rtol=1e-9, atol=1e-9)
        assert question["story"] in browser.text("#change")
        assert browser.text("#question").endswith("What will it do?")
        shown = "#verdict, #lesson, #why"
        assert "".join(node.text for node in browser.all(shown)) == ""
        browser.click(f"#guess button[value='{guess}']")
        check(browser)
        change = after[name][i, j] - before[name][i, j]
        direction = 0 if abs(change) < 5e-5 else np.sign(change)
        assert direction == ANSWERS[id_]
        verdict = browser.text("#verdict")
        assert verdict.startswith("Right: " if guess == direction else "No (you said: ")
        assert browser.text("#lesson") == question["lesson"]
        assert browser.text("#why")
        assert browser.text("#count") == f"Predicted so far: {int(guess == direction)} of 1."


def test_the_first_question_is_asked_when_the_page_is_opened_and_each_leads_to_the_next(look, path):
    browser = look(path)
    for bench, question in QUESTIONS.values():
        assert browser.js("return [lab.bench, lab.question.id, lab.is_pending]") == [
            bench,
            question["id"],
            True,
        ]
        tables = browser.js("return [...Object.keys(fields), ...Object.keys(outputs)]")
        shown = set(tables) | ({"scale"} if browser.shows("#controls") else set())
        assert shown == set(question["shows"])
        browser.click("#guess button[value='0']")
        if browser.shows("#next"):
            browser.click("#next")
    assert (
        browser.text("#count")
        == f"Predicted so far: {list(ANSWERS.values()).count(0)} of {len(ANSWERS)}."
    )
    browser.click("#all")
    assert browser.js("return [lab.shows === null || lab.shows === undefined, location.hash]")[0]
    check(browser)
    assert browser.text("#lesson") == question["lesson"]


def test_what_the_questions_tell_of_numbers_is_so(look, path):
    """The numbers of stories and lessons that the page does not compute."""
    script = "ask(question_named(arguments[0])); answer(0); return [lab.before, lab.shown]"
    browser = look(path)
    before, after = browser.js(script, "longer")
    np.testing.assert_allclose([before["scores"][0][1], after["scores"][0][1]], [1.5, 3])
    before, after = browser.js(script, "unseen")
    assert before["q"] == [[1, 0, 1]] and before["k"][3] == [0, 2, 0] and after["k"][3] == [0, 6, 0]
    before, after = browser.js(script, "alone")
    assert (
        after["weights"][0] == [1, 0, 0, 0] and after["dq"][0] == [0, 0, 0] and any(before["dq"][0])
    )
    before, after = browser.js(script, "others")
    np.testing.assert_allclose([sum(before["e"][0]), sum(after["e"][0])], [8, 13], atol=1e-5)
    _, after = browser.js(script, "double")
    np.testing.assert_allclose(after["e"][0], [1, 4, 25], atol=1e-4)
    before, after = browser.js(script, "outlier")
    assert 1.7315 < after["x_hat"][0][3] < 3**0.5
    before, after = browser.js(script, "tenfold")
    np.testing.assert_allclose(before["y"], after["y"], atol=5e-5)
    np.testing.assert_allclose(before["dx"], 10 * np.array(after["dx"]), atol=5e-5)
    _, after = browser.js(script, "pays")
    assert abs(sum(after["dx"][0])) < 1e-12


def test_any_change_is_asked_about_and_explained(asking):
    script = """
        let n_calls = 0;
        Math.random = () => (Math.sin(99 * arguments[0] + 7 * n_calls++) + 1) / 2.001;
    """
    n_numbers = 0
    for n in range(36):
        if n % 12 == 0:
            asking.click(f"[name=bench][value={list(BENCHES)[n // 12]}]")
        asking.js(script, n)
        asking.click("#random")
        assert asking.js("return lab.is_pending")
        before = npformers(*inputs_of(asking, "settled"))
        for array in asking.js("return Object.keys(outputs)"):
            np.testing.assert_allclose(numbers(asking, array), before[array], rtol=1e-9, atol=1e-9)
        asking.js("answer(arguments[0])", n % 3 - 1)
        check(asking)
        n_numbers += len(asking.all("#why data"))
        assert re.match(r"(Right|No \(you said: .*\)): ", asking.text("#verdict"))
    assert n_numbers > 300


def test_an_estimate_is_compared(asking):
    asking.js("ask(question_named('others'))")
    asking.find("#estimate").send_keys("0,1")
    asking.click("#guess button[value='-1']")
    assert (
        asking.text("#verdict")
        == "Right: y₁ falls from 0.125 to 0.0769. Your number 0.1 is 0.0231 away."
    )
    asking.click("#next")
    assert asking.find("#estimate").get_attribute("value") == ""
    asking.find("#estimate").send_keys("0.1333")
    asking.click("#guess button[value='1']")
    verdict = asking.text("#verdict")
    assert verdict == "No (you said: rises): y₂ falls from 0.25 to 0.1333. Your number is exact."


def test_asking_can_be_switched_off_and_on(asking):
    field(asking, "q₁₁").send_keys(Keys.ARROW_UP)
    assert asking.shows("#guess") and not asking.text("#why")
    asking.click("#asking")
    assert not asking.shows("#guess") and asking.text("#why")
    assert asking.text("#verdict").startswith(
        "weights₁₁, the weight of key 1 for query 1, rises from"
    )
    assert asking.text("#count") == ""
    field(asking, "q₁₁").send_keys(Keys.ARROW_UP)
    check(asking)
    assert asking.js("return location.hash.includes('ask=off')")
    asking.click("#asking")
    field(asking, "q₁₁").send_keys(Keys.ARROW_UP)
    assert asking.shows("#guess")


def test_a_change_can_be_taken_back_and_another_number_asked_about(asking):
    field(asking, "k₂₁").send_keys(Keys.ARROW_UP)
    assert "weights₁₂" in asking.text("#question")  # follows the key
    asking.js("outputs.out[2][1].click()")
    assert "out₃₂, component 2 of output 3," in asking.text("#question")
    asking.click("#undo")
    assert asking.js("return [lab.inputs.k[1][0], lab.is_pending]") == [0, False]
    field(asking, "k₃₁").send_keys(Keys.ARROW_UP)
    assert "out₃₂" in asking.text("#question")  # what was chosen stays
    asking.click("#guess button[value='1']")
    assert asking.find("#verdict").get_attribute("class") in ("right", "other")
    asking.js("outputs.dv[0][0].click()")
    assert asking.find("#verdict").get_attribute("class") == ""  # it was not predicted
    assert asking.text("#verdict").startswith("dv₁₁, the gradient of component 1 of value 1,")
    check(asking)


def test_the_drawing_has_an_arrow_for_each_array_that_a_formula_names(asking):
    expected = {
        "attention": "scores from scale, q and k; weights from scores and mask; "
        "out from weights and v; loss from dout and out; dv from weights and dout; "
        "dweights from dout and v; dscores from weights and dweights; "
        "dq from scale, dscores and k; dk from scale, dscores and q",
        "softmax": "e from x; y from e; loss from dy and y; mean from dy and y; "
        "dx from y, dy and mean",
        "layer_norm": "mean from x; variance from x and mean; rstd from variance; "
        "x̂ from x, mean and rstd; y from x̂, gain and bias; loss from dy and y; "
        "dx̂ from dy and gain; mean(dx̂) from dx̂; "
        "mean(dx̂ · x̂) from dx̂ and x̂; dx from rstd, dx̂, mean(dx̂), x̂ and mean(dx̂ · x̂); "
        "dgain from dy and x̂; dbias from dy",
    }
    for bench, arrows in expected.items():
        asking.click(f"[name=bench][value={bench}]")
        drawing = asking.find("#flow svg")
        told = drawing.get_attribute("aria-label").removeprefix("What is computed from what: ")
        assert sorted(told.split("; ")) == sorted(arrows.split("; "))
        n_arrows = sum(
            len(re.split(", | and ", arrow.split(" from ")[1])) for arrow in arrows.split("; ")
        )
        assert len(asking.all("#flow svg > path")) == n_arrows
        sides = "[box.x, box.y, box.width, box.height].map(side => side.baseVal.value)"
        rectangles = asking.js(
            f"return [...document.querySelectorAll('#flow rect')].map(box => {sides})"
        )
        for n, (x, y, w, h) in enumerate(rectangles):
            assert not any(
                x < a + c and a < x + w and y < b + d and b < y + h for a, b, c, d in rectangles[:n]
            )


def test_why_a_number_does_not_change_is_said(asking):
    cases = {
        "v.0.0": "weights₁₁ is computed from scale, q₁, k and mask₁. v₁₁ is not among them.",
        "q.1.0": "weights₁₁ is computed from scale, q₁, k and mask₁. q₂₁ is not among them.",
    }
    for place, reason in cases.items():
        name, i, j = place.split(".")
        script = """
            begin('attention', 'mixed');
            lab.is_pinned = true;
            change([[arguments[0], arguments[1], arguments[2], 3]]);
            answer(0);
        """
        asking.js(script, name, int(i), int(j))
        assert asking.text("#why") == reason
    asking.js("ask(question_named('unseen')); answer(0)")
    assert "There is a way to it, but no number on it changes" in (text := asking.text("#why"))
    assert (
        "before: 0.5774 · (1 · 0 + 0 · 2 + 1 · 0) = 0\nafter: 0.5774 · (1 · 0 + 0 · 6 + 1 · 0) = 0"
        in text
    )


def test_the_address_keeps_the_numbers_and_what_is_asked_about(asking, look, path):
    field(asking, "q₁₁").send_keys(Keys.ARROW_UP)
    asking.click("#guess button[value='1']")
    asking.js("outputs.dk[1][2].click()")
    asking.click('[aria-label="whether query 2 may read key 4"]')
    asking.click("#guess button[value='1']")
    address = asking.address()
    assert address == "bench=attention&start=mixed&q.0.0=1.1&keep_mask.1.3=0&watch=dk.1.2"
    look(path, address=address)
    check(asking)
    assert asking.js("return [lab.inputs.q[0][0], lab.inputs.keep_mask[1][3]]") == [
        1.1,
        False,
    ]
    assert asking.js("return [lab.watched, lab.is_pending]") == [["dk", 1, 2], False]
    for wrong in (
        "bench=none",
        "bench=constructor",
        "question=none&start=nothing",
        "q.9.9=1",
        "q.0.0=x",
        "watch=q.0.0",
        "watch=out",
    ):
        look(path, address=wrong)
        assert asking.js("return [lab.bench, lab.start]") == ["attention", "mixed"]
        check(asking)


# -- keyboard, screens and readers -----------------------------------------------------------------


def test_it_works_by_keyboard_alone(asking):
    asking.tab_to("[name=bench]")
    asking.press(Keys.ARROW_RIGHT)
    assert asking.js("return lab.bench") == "softmax"
    asking.press(Keys.ARROW_LEFT)
    asking.tab_to("#scale-range")
    asking.press(Keys.ARROW_RIGHT)
    asking.tab_to("#undo")
    asking.press(Keys.ENTER)
    assert asking.focused() == "scale-range"
    asking.tab_to('[aria-label^="q₁₁,"]')
    asking.press(Keys.ARROW_UP, Keys.ARROW_UP, Keys.ENTER)
    assert asking.js("return document.activeElement.value") == "-1"
    asking.press(Keys.ESCAPE)
    assert asking.js("return document.activeElement.value") == "1.2"
    asking.press(Keys.ENTER, Keys.TAB, Keys.TAB, Keys.ENTER)  # rises
    assert asking.text("#verdict").startswith("Right: weights₁₁ rises from")
    assert asking.focused() == "verdict"
    asking.press(Keys.ESCAPE)
    assert asking.js("return document.activeElement.value") == "1.2"
    asking.tab_to('[aria-label="whether query 1 may read key 1"]')
    asking.press(Keys.SPACE, Keys.ENTER, Keys.SPACE)
    assert asking.js("return lab.inputs.keep_mask[0][0]") is False
    assert asking.text("#verdict").startswith("Right: weights₁₁ falls from")
    asking.tab_to("#forward [aria-label=weights] td")
    asking.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ENTER)
    assert asking.js("return lab.watched") == ["weights", 1, 1]
    asking.tab_to("#next")
    asking.press(Keys.ENTER)
    assert "ten times as large" in asking.text("#change")
    asking.press(Keys.TAB, Keys.ENTER)
    assert asking.text("#verdict").startswith("Right: weights₂₄ stays 0.1577")
    check(asking)


@pytest.mark.parametrize(("width", "theme"), SCREENS)
@pytest.mark.parametrize("bench", BENCHES)
def test_it_fits_every_screen_and_theme(look, path, tmp_path, bench, width, theme):
    browser = look(path, width, theme == "dark", f"bench={bench}")
    browser.check_screen(width, theme, tmp_path, f"lab {bench}")
    for id_ in [question["id"] for question in CONTENT["QUESTIONS"][bench]]:
        browser.js("ask(question_named(arguments[0]))", id_)
        browser.check_screen(width, theme, tmp_path, f"lab {id_} asked")
        browser.js("answer(1)")
        browser.check_screen(width, theme, tmp_path, f"lab {id_} answered")
        fields = (
            "return [...document.querySelectorAll('input[type=number]')].map(x => "
            "x.scrollWidth - x.clientWidth)"
        )
        assert max(browser.js(fields)) <= 1  # no number is cut off
        cells = (
            "return [...document.querySelectorAll('td.value')].map(cell => "
            "cell.scrollWidth - cell.clientWidth)"
        )
        assert max(browser.js(cells)) <= 0


@pytest.mark.parametrize(("width", "height"), [(320, 700), (360, 640), (412, 900)])
def test_on_a_telephone_a_question_can_be_answered_without_scrolling(look, path, width, height):
    browser = look(path, width)
    browser.resize(width, height)
    for id_ in [
        question["id"] for questions in CONTENT["QUESTIONS"].values() for question in questions
    ]:
        browser.js("ask(question_named(arguments[0]))", id_)
        script = """
            const panel = $("panel").getBoundingClientRect();
            return [...$("guess").querySelectorAll("button")].map((button) => {
              const { top, bottom } = button.getBoundingClientRect();
              return top >= panel.top && bottom <= Math.min(panel.bottom, innerHeight);
            });
        """
        assert browser.js(script) == [True] * 3
        chosen, row = browser.js("""
            return [$(`question-${lab.question.id}`), $("questions")].map((node) => {
              const { left, right } = node.getBoundingClientRect();
              return [left, right];
            });
        """)
        assert (
            row[0] <= chosen[0] and chosen[1] <= row[1]
        )  # the list has scrolled to the question that is asked
    assert browser.js("return scrollY") == 0


def test_on_a_telephone_the_options_are_folded(look, path):
    browser = look(path, 380)
    assert not browser.shows("#starts") and not browser.shows("#asking")
    browser.tab_to(".fold > summary")
    browser.press(Keys.ENTER)
    assert browser.shows("#starts")
    browser.tab_to("#asking")
    browser.press(Keys.SPACE)
    assert not browser.js("return lab.is_asking")
    browser = look(path)
    assert browser.shows("#starts") and not browser.shows(".fold > summary")


@pytest.mark.parametrize("bench", BENCHES)
def test_whatever_can_have_the_focus_has_a_name(look, path, bench):
    look(path, address=f"bench={bench}").check_names(at_least=20)


def test_it_also_opens_without_being_put_together(look):
    browser = look(make_playground.FOLDER / "lab.html")
    assert browser.text("#question")
    browser.check_links("#links a", make_playground.FOLDER)


# -- as a part of a page of the book ---------------------------------------------------------------

EMBEDDED = ["longer", "certain", "tenfold"]


@pytest.mark.parametrize("width", [380, 700])
@pytest.mark.parametrize("id_", EMBEDDED)
def test_embedded_it_shows_one_question_and_its_arrays(look, path, tmp_path, id_, width):
    browser = look(path, width, address=f"embed={id_}&question={id_}")
    _, question = QUESTIONS[id_]
    tables = browser.js("return [...Object.keys(fields), ...Object.keys(outputs)]")
    assert sorted(tables) == sorted(question["shows"])
    assert not browser.shows("#lab-title") and not browser.shows("#links")
    browser.check_screen(width, "light", tmp_path, f"embedded {id_}")
    browser.click("#guess button[value='-1']")
    assert browser.text("#verdict").startswith("Right: ")
    check_reason(browser)
    browser.check_screen(width, "light", tmp_path, f"embedded {id_} answered")
    link = browser.find("#whole a").get_attribute("href")
    assert link.endswith(f"lab.html#question={id_}")


@pytest.fixture
def pages_of_the_book(site):
    """The built pages with a lab in them, and their questions."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in site.rglob("*.html")
        if "_modules" not in path.parts
    }
    found = {
        path: re.findall(r'data-page="[^"]*#embed=(\w+)', text) for path, text in texts.items()
    }
    return {path: ids for path, ids in found.items() if ids}


@pytest.mark.parametrize(("width", "dark"), [(380, False), (1200, True)])
def test_the_book_has_three_labs_that_are_the_pages_own(look, pages_of_the_book, width, dark):
    assert sorted(sum(pages_of_the_book.values(), [])) == sorted(EMBEDDED)
    for path in pages_of_the_book:
        browser = look(path, width, dark)
        frame = browser.find(".embedded iframe")
        browser.wait_for("document.querySelector('.embedded').classList.contains('runs')")
        assert not browser.shows(".embedded img")
        assert browser.js("return scrollY") == 0  # it leaves the page where it is
        browser.js("arguments[0].scrollIntoView()", frame)
        browser.driver.switch_to.frame(frame)
        browser.js("arguments[0].click()", browser.find("#guess button[value='-1']"))
        assert browser.text("#verdict").startswith("Right: ")
        color = browser.js("return getComputedStyle(document.body).backgroundColor")
        assert (color == "rgb(20, 20, 20)") == dark
        # the page grows with the answer
        browser.wait_for("document.documentElement.scrollHeight <= innerHeight")
        browser.driver.switch_to.default_content()


def test_a_lab_in_the_book_follows_the_theme_that_a_reader_chooses(look, pages_of_the_book):
    browser = look(next(iter(pages_of_the_book)))
    # a lab would follow the media feature instead
    browser.cdp("Emulation.setEmulatedMedia", features=[])
    frame = browser.find(".embedded iframe")
    for theme in ("dark", "light"):
        browser.js("document.body.dataset.theme = arguments[0]", theme)
        browser.driver.switch_to.frame(frame)
        browser.wait_for(f"matchMedia('(prefers-color-scheme: {theme})').matches")
        browser.driver.switch_to.default_content()


@pytest.mark.parametrize("blocked", ["frame-src 'none'", "script-src 'none'"])
def test_where_the_lab_is_blocked_its_picture_is_shown(look, pages_of_the_book, blocked):
    policy = f'<meta http-equiv="Content-Security-Policy" content="{blocked}">'
    for path in pages_of_the_book:
        other = path.with_name(f"blocked {path.name}")
        try:
            other.write_text(
                path.read_text(encoding="utf-8").replace("<head>", f"<head>{policy}"),
                encoding="utf-8",
            )
            browser = look(other)
            browser.wait(500)
            picture = browser.find(".embedded img")
            assert picture.is_displayed() and picture.size["height"] > 100
            assert not browser.all(".embedded.runs")
        finally:
            other.unlink()
    browser.errors()  # which say what was blocked


def test_the_content_is_json_and_names_numbers_that_exist():
    for bench, question in QUESTIONS.values():
        start = next(
            start for start in CONTENT["STARTS"][bench] if start["id"] == question["start"]
        )
        for name, i, j, value in question["change"]:
            if name in start:
                assert start[name][i][j] != value
    assert len(QUESTIONS) == len(
        {json.dumps(question["story"]) for _, question in QUESTIONS.values()}
    )
