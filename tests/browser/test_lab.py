"""The page lab.html: its numbers and reasons are npformer's, it asks before it shows,
and all works by keyboard.
"""

import re
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from in_browser import BACKGROUNDS

from scripts import make_playground

import npformer as nf

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.keys import Keys  # noqa: E402

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


def field(name):
    """The field of a number, as q₂₁."""
    return f'[aria-label^="{name},"]'


def raise_(browser, name):
    """Make a number a little larger by a key."""
    browser.find(field(name)).send_keys(Keys.ARROW_UP)


STATE = """
const matrix = (rows, read) => rows.map((row) => row.map(read));
const tables = Object.entries(outputs).map(([name, rows]) => [name, {
  values: matrix(rows, (cell) => Number(cell.dataset.value)),
  differences: matrix(rows, (cell) => Number(cell.dataset.difference)),
  texts: matrix(rows, (cell) => cell.firstChild.data),
}]);
const names = (kind) => [...document.querySelectorAll(`#flow g${kind}`)].map((x) => x.dataset.name);
const reason = [...$("why").querySelectorAll("data")];
return {
  bench: lab.bench, inputs: lab.inputs, settled: lab.settled, is_whole: !lab.shows,
  tables: Object.fromEntries(tables),
  drawn: names(""), moved: names(".moved"), changed: names(".changed"),
  reason: reason.map((x) => [Number(x.value), x.textContent, x.dataset.of, x.dataset.when]),
};
"""


def state_of(browser):
    """What the page holds and shows at one moment, and what npformer makes of its numbers."""
    state = SimpleNamespace(**browser.js(STATE))
    state.before = npformers(state.bench, state.settled)
    state.after = npformers(state.bench, state.inputs)
    return state


def check_shown(state, expected):
    """The numbers that stand in the page are these."""
    for name, table in state.tables.items():
        np.testing.assert_allclose(
            table["values"], expected[name], rtol=1e-12, atol=1e-9, err_msg=name
        )


def assign(browser, inputs):
    """Put arrays in the place of inputs."""
    browser.js("Object.assign(lab.inputs, arguments[0]); update()", inputs)


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
    inputs = {name: np.array(x) for name, x in inputs.items()}
    numbers = {name: x if x.dtype == bool else x.astype(float) for name, x in inputs.items()}
    computed = BENCHES[bench](**numbers)
    return inputs | {
        name: np.array(x, float).reshape(-1, np.shape(x)[-1]) for name, x in computed.items()
    }


def as_number(text):
    return float(text.replace("−", "-"))


def rounding(value):
    """How far a number may be from how it is written in a cell,
    which has less digits for a large one.
    """
    size = abs(value)
    return 5.1e-5 if size < 100 else 5.1e-3 if size < 1e4 else 0.05 * size


def check(browser):
    """Every number that is shown is npformer's, and every gradient its finite difference."""
    state = state_of(browser)
    check_shown(state, state.after)
    if state.is_whole:
        assert set(state.tables) == set(state.after) - set(state.inputs)
    for name, table in state.tables.items():
        wanted = state.after[name]
        if name in GRADIENTS[state.bench]:
            error = abs(table["differences"] - wanted).max()
            assert error <= 2e-6 * max(1, abs(wanted).max()), name
        for value, text in zip(wanted.ravel(), sum(table["texts"], []), strict=True):
            assert text == "masked" or abs(as_number(text) - value) <= rounding(value), name
    check_reason(state)
    check_flow(state)
    return state


def check_flow(state):
    """The drawing marks the arrays that the change has moved."""
    for name in state.drawn:
        distance = abs(np.subtract(state.after[name], state.before[name], dtype=float)).max()
        if 1e-9 < distance < 1e-4:
            continue  # whether it is seen in four digits depends on them
        assert (name in state.moved + state.changed) == (distance > 0.5e-4), name
    assert set(state.changed) <= set(state.after) - set(state.tables)


def check_reason(state):
    """Every number of the reason is npformer's number of that name."""
    for value, text, of, when in state.reason:
        arrays = getattr(state, when) | {"exp": np.exp}
        expected = eval(of, {"__builtins__": {}}, arrays)
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9, err_msg=of)
        if "10" not in text or "·" not in text:
            assert abs(as_number(text) - expected) <= 5.1e-5, of


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bench", "start"), STARTS)
def test_every_number_is_npformers_and_every_gradient_its_finite_difference(
    look, path, bench, start
):
    browser = look(path, address=f"bench={bench}&start={start}")
    assert browser.js("return [lab.bench, lab.start]") == [bench, start]
    check(browser)


def test_a_changed_number_changes_all_that_depends_on_it(lab):
    for bench, names in {
        "attention": ["q₃₂", "k₃₂", "v₃₂", "dout₃₂"],
        "softmax": ["x₁", "dy₃"],
        "layer_norm": ["x₁", "gain₂", "bias₃", "dy₄"],
    }.items():
        lab.click(f"[name=bench][value={bench}]")
        for name in names:
            lab.replace(field(name), "-1.75")
            script = "return lab.inputs[arguments[0]].flat()"
            assert -1.75 in lab.js(script, name.rstrip("₁₂₃₄"))
            check(lab)
    lab.click("[name=bench][value=attention]")
    lab.click('[aria-label="whether query 2 may read key 4"]')
    check(lab)
    lab.click("#causal")
    weights = state_of(lab).tables["weights"]["values"]
    np.testing.assert_array_equal(weights, np.tril(weights))
    lab.replace("#scale", "1.25")
    assert lab.js("return lab.inputs.scale[0][0]") == 1.25
    check(lab)
    lab.click("#default-scale")
    lab.click("#all-keys")
    check(lab)


@pytest.mark.parametrize("bench", BENCHES)
def test_random_numbers_have_npformers_results(lab, bench):
    lab.click(f"[name=bench][value={bench}]")
    random = np.random.default_rng(0)
    for _ in range(4):
        inputs = {}
        for name, x in lab.js("return lab.inputs").items():
            shape = np.shape(x)
            inputs[name] = random.normal(size=shape).tolist()
            if name == "keep_mask":
                inputs[name] = (np.eye(*shape) + random.random(shape) > 0.5).tolist()
        assign(lab, inputs)
        check(lab)


def test_a_number_can_be_dragged_and_a_wrong_one_changes_nothing(lab):
    def state():
        opacity = lab.find("#forward").value_of_css_property("opacity")
        return box.get_attribute("value"), box.get_attribute("aria-invalid"), opacity

    box = lab.find(field("v₁₁"))
    webdriver.ActionChains(lab.driver).drag_and_drop_by_offset(box, 50, 0).perform()
    assert lab.js("return lab.inputs.v[0][0]") == 2
    check(lab)
    lab.replace(field("v₁₁"), "-")
    assert state()[1:] == ("true", "0.4")
    box.send_keys(Keys.TAB)
    assert state() == ("2", "false", "1")
    check(lab)


def test_no_number_that_can_be_given_overflows_or_is_too_wide_for_its_cell(lab):
    for text, taken in {
        "1000": 1000,
        "1e308": 1000,
        "-1000.5": -1000,
        "0.12345678": 0.123457,
    }.items():
        lab.replace(field("v₁₁"), text, Keys.TAB)
        assert lab.js("return lab.inputs.v[0][0]") == float(lab.value(field("v₁₁"))) == taken

    random = np.random.default_rng(0)
    for scale in (-1000, 0.5, 1000):
        q, k, v = random.choice([-1000, 999.875, 1000], size=(3, 4, 3)).tolist()
        dout = random.choice([-1000.0, 1000.0], size=(4, 3)).tolist()
        assign(lab, {"q": q, "k": k, "v": v, "dout": dout, "scale": [[scale]]})
        state = state_of(lab)
        for name in ("out", "dq", "dk", "dv"):
            expected = state.after[name]
            error = abs(state.tables[name]["values"] - expected).max()
            assert error <= 1e-12 * abs(expected).max()
        for name in GRADIENTS["attention"]:
            assert None not in sum(state.tables[name]["differences"], [])  # as infinity arrives
        check_reason(state)
        assert state.reason
        assert max(lab.overflows("td.value")) <= 0


def test_only_the_main_button_drags_and_a_wheel_scrolls(lab):
    box = lab.find(field("v₁₁"))
    box.send_keys("")  # gives it the focus
    place = lab.js("return arguments[0].getBoundingClientRect()", box)
    at = {"x": place["x"] + place["width"] / 2, "y": place["y"] + place["height"] / 2}
    drag = webdriver.ActionChains(lab.driver)
    mouse = drag.w3c_actions.pointer_action.move_to(box)
    mouse.pointer_down(button=2).move_by(50, 0).pointer_up(button=2)
    drag.perform()
    assert lab.js("return lab.inputs.v[0][0]") == 1
    before = lab.js("return scrollY")
    lab.cdp("Input.dispatchMouseEvent", type="mouseWheel", deltaX=0, deltaY=100, **at)
    lab.wait_for(f"scrollY > {before}")
    assert lab.js("return lab.inputs.v[0][0]") == 1


# -- questions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", QUESTIONS)
def test_a_question_is_asked_before_it_is_answered_with_its_reason(look, path, id_):
    bench, question = QUESTIONS[id_]
    browser = look(path, address=f"question={id_}")
    n_right = 0
    for n, guess in enumerate((-1, 0, 1), 1):
        state = state_of(browser)
        check_shown(state, state.before)
        assert question["story"] in browser.text("#change")
        assert browser.text("#question").endswith("What will it do?")
        assert "".join(browser.texts("#verdict, #lesson, #why")) == ""
        browser.click(f"#guess button[value='{guess}']")
        check(browser)
        is_right = guess == ANSWERS[id_]
        n_right += is_right
        assert browser.text("#verdict").startswith("Right: " if is_right else "No (you said: ")
        assert browser.text("#lesson") == question["lesson"]
        assert browser.text("#why")
        assert browser.text("#count") == f"Predicted so far: {n_right} of {n}."
        browser.click(f"#question-{id_}")  # asks it again
    name, i, j = question["watch"]
    change = state.after[name][i, j] - state.before[name][i, j]
    assert ANSWERS[id_] == (0 if abs(change) < 5e-5 else np.sign(change))


def test_the_first_question_is_asked_when_the_page_is_opened_and_each_leads_to_the_next(look, path):
    browser = look(path)
    for bench, question in QUESTIONS.values():
        state = browser.js("return [lab.bench, lab.question.id, lab.is_pending]")
        assert state == [bench, question["id"], True]
        tables = browser.js("return [...Object.keys(fields), ...Object.keys(outputs)]")
        shown = set(tables) | ({"scale"} if browser.shows("#controls") else set())
        assert shown == set(question["shows"])
        browser.click("#guess button[value='0']")
        if browser.shows("#next"):
            browser.click("#next")
    n_right = list(ANSWERS.values()).count(0)
    assert browser.text("#count") == f"Predicted so far: {n_right} of {len(ANSWERS)}."
    browser.click("#all")
    assert browser.js("return lab.shows === null || lab.shows === undefined")
    check(browser)
    assert browser.text("#lesson") == question["lesson"]


def test_what_the_questions_tell_of_numbers_is_so(look, path):
    """The numbers of stories and lessons that the page does not compute."""
    browser = look(path)
    script = "ask(question_named(arguments[0])); answer(0); return [lab.before, lab.shown]"

    def of(id_, name):
        """An array before and after the change."""
        return (np.array(state[name]) for state in browser.js(script, id_))

    scores, new_scores = of("longer", "scores")
    assert [scores[0, 1], new_scores[0, 1]] == pytest.approx([1.5, 3])
    (q, _), (k, new_k) = of("unseen", "q"), of("unseen", "k")
    assert [*q[0], *k[3], *new_k[3]] == [1, 0, 1, 0, 2, 0, 0, 6, 0]
    (_, weights), (dq, new_dq) = of("alone", "weights"), of("alone", "dq")
    assert [*weights[0], *new_dq[0]] == [1, 0, 0, 0, 0, 0, 0] and dq[0].any()
    assert [e.sum() for e in of("others", "e")] == pytest.approx([8, 13], abs=1e-5)
    _, e = of("double", "e")
    assert e[0] == pytest.approx([1, 4, 25], abs=1e-4)
    _, x_hat = of("outlier", "x_hat")
    assert 1.7315 < x_hat[0, 3] < 3**0.5
    for name, times in (("y", 1), ("dx", 10)):
        before, after = of("tenfold", name)
        assert before == pytest.approx(times * after, abs=5e-5)
    _, dx = of("pays", "dx")
    assert abs(dx.sum()) < 1e-12


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
        state = state_of(asking)
        check_shown(state, state.before)
        asking.js("answer(arguments[0])", n % 3 - 1)
        n_numbers += len(check(asking).reason)
        assert re.match(r"(Right|No \(you said: .*\)): ", asking.text("#verdict"))
    assert n_numbers > 300


def test_an_estimate_is_compared(asking):
    asking.js("ask(question_named('others'))")
    for estimate, guess, verdict in [
        ("0,1", -1, "Right: y₁ falls from 0.125 to 0.0769. Your number 0.1 is 0.0231 away."),
        ("0.1333", 1, "No (you said: rises): y₂ falls from 0.25 to 0.1333. Your number is exact."),
    ]:
        assert asking.value("#estimate") == ""
        asking.find("#estimate").send_keys(estimate)
        asking.click(f"#guess button[value='{guess}']")
        assert asking.text("#verdict") == verdict
        asking.click("#next")


def test_asking_can_be_switched_off_and_on(asking):
    raise_(asking, "q₁₁")
    assert asking.shows("#guess") and not asking.text("#why")
    asking.click("#asking")
    assert not asking.shows("#guess") and asking.text("#why")
    rises = "weights₁₁, the weight of key 1 for query 1, rises from"
    assert asking.text("#verdict").startswith(rises) and asking.text("#count") == ""
    raise_(asking, "q₁₁")
    check(asking)
    assert "ask=off" in asking.address()
    asking.click("#asking")
    raise_(asking, "q₁₁")
    assert asking.shows("#guess")


def test_a_change_can_be_taken_back_and_another_number_asked_about(asking):
    raise_(asking, "k₂₁")
    asking.says({"#question": "weights₁₂"})  # follows the key
    asking.js("outputs.out[2][1].click()")
    asking.says({"#question": "out₃₂, component 2 of output 3,"})
    asking.click("#undo")
    assert asking.js("return [lab.inputs.k[1][0], lab.is_pending]") == [0, False]
    raise_(asking, "k₃₁")
    asking.says({"#question": "out₃₂"})  # what was chosen stays
    asking.click("#guess button[value='1']")
    assert asking.all("#verdict:is(.right, .other)")
    asking.js("outputs.dv[0][0].click()")
    assert asking.all("#verdict:not(.right, .other)")  # it was not predicted
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
        # an arrow for each array, and one more for each comma and each "and" between them
        n_arrows = arrows.count(" from ") + arrows.count(", ") + arrows.count(" and ")
        assert len(asking.all("#flow svg > path")) == n_arrows
        sides = "[box.x, box.y, box.width, box.height].map(side => side.baseVal.value)"
        script = f"return [...document.querySelectorAll('#flow rect')].map(box => {sides})"
        for one, other in combinations(asking.js(script), 2):
            (x, y, w, h), (a, b, c, d) = one, other
            assert not (x < a + c and a < x + w and y < b + d and b < y + h)


def test_why_a_number_does_not_change_is_said(asking):
    for place, shown in {"'v', 0, 0": "v₁₁", "'q', 1, 0": "q₂₁"}.items():
        change = f"lab.is_pinned = true; change([[{place}, 3]]); answer(0);"
        asking.js(f"begin('attention', 'mixed'); {change}")
        reason = "weights₁₁ is computed from scale, q₁, k and mask₁."
        assert asking.text("#why") == f"{reason} {shown} is not among them."
    asking.js("ask(question_named('unseen')); answer(0)")
    asking.says({"#why": "There is a way to it, but no number on it changes"})
    before = "before: 0.5774 · (1 · 0 + 0 · 2 + 1 · 0) = 0"
    asking.says({"#why": f"{before}\nafter: 0.5774 · (1 · 0 + 0 · 6 + 1 · 0) = 0"})


def test_the_address_keeps_the_numbers_and_what_is_asked_about(asking, look, path):
    raise_(asking, "q₁₁")
    asking.click("#guess button[value='1']")
    asking.js("outputs.dk[1][2].click()")
    asking.click('[aria-label="whether query 2 may read key 4"]')
    asking.click("#guess button[value='1']")
    address = asking.address()
    assert address == "bench=attention&start=mixed&q.0.0=1.1&keep_mask.1.3=0&watch=dk.1.2"
    look(path, address=address)
    check(asking)
    assert asking.js("return [lab.inputs.q[0][0], lab.inputs.keep_mask[1][3]]") == [1.1, False]
    assert asking.js("return [lab.watched, lab.is_pending]") == [["dk", 1, 2], False]
    for wrong in ("bench=none", "bench=constructor", "question=none&start=nothing", "q.9.9=1",
                  "q.0.0=x", "watch=q.0.0", "watch=out"):  # fmt: skip
        asking.js("begin('softmax', STARTS.softmax[0].id)")
        asking.follow(wrong)
        assert asking.js("return [lab.bench, lab.start]") == ["attention", "mixed"]
        check(asking)


# -- keyboard, screens and readers -----------------------------------------------------------------


FOCUS = "document.activeElement"
VERDICT = "$('verdict').innerText"
UP, DOWN, RIGHT, ENTER, TAB = Keys.ARROW_UP, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ENTER, Keys.TAB
# Where Tab goes, what is pressed, and what is then so.
BY_KEYBOARD = [
    ("[name=bench]", [RIGHT], "lab.bench", "softmax"),
    ("", [Keys.ARROW_LEFT], "lab.bench", "attention"),
    ("#scale-range", [RIGHT], "lab.is_pending", True),
    ("#undo", [ENTER], f"{FOCUS}.id", "scale-range"),
    (field("q₁₁"), [UP, UP, ENTER], f"{FOCUS}.value", "-1"),
    ("", [Keys.ESCAPE], f"{FOCUS}.value", "1.2"),
    ("", [ENTER, TAB, TAB, ENTER], f"{VERDICT}.slice(0, 22)", "Right: weights₁₁ rises"),
    ("", [], f"{FOCUS}.id", "verdict"),
    ("", [Keys.ESCAPE], f"{FOCUS}.value", "1.2"),
    (
        '[aria-label="whether query 1 may read key 1"]',
        [Keys.SPACE, ENTER, Keys.SPACE],
        f"[lab.inputs.keep_mask[0][0], {VERDICT}.slice(0, 22)]",
        [False, "Right: weights₁₁ falls"],
    ),
    ("#forward [aria-label=weights] td", [DOWN, RIGHT, ENTER], "lab.watched", ["weights", 1, 1]),
    ("#next", [ENTER], "$('change').innerText.includes('ten times as large')", True),
    ("", [TAB, ENTER], f"{VERDICT}.startsWith('Right: weights₂₄ stays 0.1577')", True),
]


def test_it_works_by_keyboard_alone(asking):
    asking.by_keyboard(BY_KEYBOARD)
    check(asking)


@pytest.mark.parametrize("width", [320, 380, 1200])
def test_it_fits_every_screen_and_theme(look, path, width):
    browser = look(path, width)
    for bench in BENCHES:
        browser.follow(f"bench={bench}")
        browser.check_screens(width, f"lab {bench}")
    for id_ in QUESTIONS:
        browser.js("ask(question_named(arguments[0]))", id_)
        browser.check_screens(width, f"lab {id_} asked")
        browser.js("answer(1)")
        browser.check_screens(width, f"lab {id_} answered")
        assert max(browser.overflows("input[type=number]")) <= 1  # no number is cut off
        assert max(browser.overflows("td.value")) <= 0


@pytest.mark.parametrize(("width", "height"), [(320, 700), (360, 640), (412, 900)])
def test_on_a_telephone_a_question_can_be_answered_without_scrolling(look, path, width, height):
    browser = look(path, width)
    browser.resize(width, height)
    for id_ in QUESTIONS:
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
        # the list has scrolled to the question that is asked
        assert row[0] <= chosen[0] and chosen[1] <= row[1]
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


# -- as a part of a page of the book ---------------------------------------------------------------

EMBEDDED = ["longer", "certain", "tenfold"]


@pytest.mark.parametrize("width", [380, 700])
@pytest.mark.parametrize("id_", EMBEDDED)
def test_embedded_it_shows_one_question_and_its_arrays(look, path, id_, width):
    browser = look(path, width, address=f"embed={id_}&question={id_}")
    _, question = QUESTIONS[id_]
    tables = browser.js("return [...Object.keys(fields), ...Object.keys(outputs)]")
    assert sorted(tables) == sorted(question["shows"])
    assert not browser.shows("#lab-title") and not browser.shows("#links")
    browser.check_screens(width, f"embedded {id_}")
    browser.click("#guess button[value='-1']")
    assert browser.text("#verdict").startswith("Right: ")
    check_reason(state_of(browser))
    browser.check_screens(width, f"embedded {id_} answered")
    link = browser.find("#whole a").get_attribute("href")
    assert link.endswith(f"lab.html#question={id_}")


@pytest.fixture(scope="module")
def pages_of_the_book(site):
    """The built pages with a lab in them, and their questions."""
    found = {}
    for path in site.rglob("*.html"):
        if "_modules" not in path.parts:
            text = path.read_text(encoding="utf-8")
            found[path] = re.findall(r'data-page="[^"]*#embed=(\w+)', text)
    return {path: ids for path, ids in found.items() if ids}


@pytest.mark.parametrize(("width", "theme"), [(380, "light"), (1200, "dark")])
def test_the_book_has_three_labs_that_are_the_pages_own(look, pages_of_the_book, width, theme):
    assert sorted(sum(pages_of_the_book.values(), [])) == sorted(EMBEDDED)
    for path in pages_of_the_book:
        browser = look(path, width, theme)
        frame = browser.find(".embedded iframe")
        browser.wait_for("document.querySelector('.embedded').classList.contains('runs')")
        assert not browser.shows(".embedded img")
        assert browser.js("return scrollY") == 0  # it leaves the page where it is
        browser.js("arguments[0].scrollIntoView()", frame)
        browser.driver.switch_to.frame(frame)
        browser.js("arguments[0].click()", browser.find("#guess button[value='-1']"))
        assert browser.text("#verdict").startswith("Right: ")
        color = browser.js("return getComputedStyle(document.body).backgroundColor")
        assert color == BACKGROUNDS[theme]
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
def test_where_the_lab_is_blocked_its_picture_is_shown(
    look, site, pages_of_the_book, tmp_path, blocked
):
    policy = f'<meta http-equiv="Content-Security-Policy" content="{blocked}">'
    folder = tmp_path / "blocked"  # beside the folders to which the page's links lead
    folder.mkdir()
    for each in site.iterdir():
        (tmp_path / each.name).symlink_to(each)
    for path in pages_of_the_book:
        text = path.read_text(encoding="utf-8").replace("<head>", f"<head>{policy}")
        (folder / path.name).write_text(text, encoding="utf-8")
        browser = look(folder / path.name)
        browser.wait_for_error(blocked)
        picture = browser.find(".embedded img")
        assert picture.is_displayed() and picture.size["height"] > 100
        assert not browser.all(".embedded.runs")
        browser.leave()


def test_a_question_changes_a_number_and_tells_a_story_of_its_own():
    for bench, question in QUESTIONS.values():
        starts = {start["id"]: start for start in CONTENT["STARTS"][bench]}
        start = starts[question["start"]]
        for name, i, j, value in question["change"]:
            assert name not in start or start[name][i][j] != value
    assert len({question["story"] for _, question in QUESTIONS.values()}) == len(QUESTIONS)
