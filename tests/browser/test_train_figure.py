"""The figure that trains in the browser.

Its gradients and steps are the one-page model's, and all of it works.
"""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from in_browser import CONTRAST, press, tab_to

from scripts import make_playground

from npformer import tree

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

SMALL = "D=8&H=2&F=8&letters=5&length=3"
ONE_PAGE = Path(__file__).parents[2] / "docs" / "one_page_transformer.py"
SIZES = {"task": "reverse", "d_model": 16, "n_heads": 2}
SIZES |= {"n_layers": 1, "d_ff": 32, "letters": 26, "length": 6}
MODELS = {
    "the default": {},
    "two layers, three heads": {
        "d_model": 9,
        "n_heads": 3,
        "n_layers": 2,
        "d_ff": 7,
        "letters": 5,
        "length": 4,
    },
    "one head, odd widths": {
        "d_model": 5,
        "n_heads": 1,
        "d_ff": 11,
        "letters": 3,
        "length": 3,
        "task": "sort",
    },
}
# What each change does to the lines of the one-page model.
CHANGES = {
    "": [],
    "mask": [("is_past & is_tgt", "is_tgt")],
    "scale": [("scale = q.shape[-1] ** -0.5", "scale = 1.0")],
    "residual": [
        ("x0 + attended", "attended"),
        ("x1 + fed", "fed"),
        ("x1 + read", "read"),
        ("x2 + fed", "fed"),
        ("dsum + dfed", "dfed"),
        ("dsum + dread", "dread"),
        ("dsum + dattended", "dattended"),
    ],
    "positions": [(" + sinusoidal_encoding(ids.shape[1], table.shape[1])", "")],
    "merge": [
        ("merge_heads(heads))", "heads.reshape(x.shape))"),
        (
            "attention_backward(split_heads(dheads, n_heads))",
            "attention_backward(dheads.reshape(heads.shape))",
        ),
    ],
    "memory": [("dmemory += dmemory_of_layer", "pass")],
    "rate": [],
}


def one_page(change):
    """The module one_page_transformer with changed lines."""
    text = ONE_PAGE.read_text(encoding="utf-8")
    for line, changed in CHANGES[change]:
        assert line in text
        text = text.replace(line, changed)
    module = ModuleType("one_page")
    exec(compile(text, str(ONE_PAGE), "exec"), module.__dict__)
    return module


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "train.html"
    path.write_text(make_playground.page("train.html"), encoding="utf-8")
    return path


@pytest.fixture
def opened(look, errors, path):
    """``opened(address, until)`` opens the figure.

    Nothing that is done to it may write to the console.
    """

    def opened(address="", until="!state.running", **screen):
        browser = look(path, address=address, **screen)
        wait_for(browser, f"state.saved.length > 0 && {until}")
        return browser

    yield opened
    assert errors() == []


@pytest.fixture
def browser(opened):
    """A small figure at step 0."""
    return opened(SMALL)


@pytest.fixture
def functions(chromium, opened):
    """Any figure, for tests that only call its functions.

    What the test before has opened, if it was one.
    """
    return (
        chromium if chromium.execute_script("return typeof tiny !== 'undefined'") else opened(SMALL)
    )


def wait_for(browser, condition, seconds=60):
    script = """const [condition, ms, done] = arguments, end = Date.now() + ms;
    (function look() {
      eval(condition) ? done(true) : Date.now() > end ? done(false) : setTimeout(look, 30);
    })();"""
    browser.set_script_timeout(seconds + 5)
    assert browser.execute_async_script(script, condition, 1000 * seconds), condition


def find(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector)


HELPERS = """
const plain = (params) => {
  const found = {};
  tiny.for_each_array((path, x) => { found[path] = [x.n, x.m, [...x.data]]; }, params);
  return found;
};
const ids = (x) => [x.n, x.m, [...x.data]];
const drawn = (sizes) => { // parameters of which none is 0 or 1, and a batch with padding
  const random = tiny.generator(1);
  const params = tiny.init(random, sizes);
  tiny.for_each_array((path, x) => x.data.forEach((_, i) => {
    x.data[i] += 0.2 * random() - 0.1;
  }), params);
  const [src, tgt] = tiny.batch_of(tiny.random_words(random, 4, sizes), sizes.task);
  src.data[src.m - 1] = tgt.data[tgt.m - 1] = 0;
  return [params, src, tgt];
};
"""


def array(stored):
    n, m, data = stored
    return np.array(data, float).reshape(n, m)


def params_of(stored):
    """The nested parameters of the one-page model; gains and biases are vectors there."""
    params = {"encoder": {}, "decoder": {}}
    for name, value in stored.items():
        *folders, last = name.split(".")
        place = params
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = array(value)[0] if last in ("bias", "gain") else array(value)
    return params


def assert_same(found, expected):
    found, expected = dict(tree.leaves(found)), dict(tree.leaves(expected))
    assert found.keys() == expected.keys()
    largest = max(abs(x).max() for x in expected.values())
    for name, x in expected.items():
        assert abs(found[name] - x).max() <= 1e-12 * max(abs(x).max(), 1e-3 * largest), name


# -- the numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_loss_and_gradients_are_those_of_the_one_page_model(functions, model):
    script = f"""{HELPERS}
    const [sizes, changes] = arguments, [params, src, tgt] = drawn(sizes);
    const results = changes.map((broken) => {{
      const [loss, grads] = tiny.loss_and_grad(params, src, tgt, {{ ...sizes, broken }});
      return [loss, plain(grads)];
    }});
    return [plain(params), ids(src), ids(tgt), results];"""
    sizes = SIZES | MODELS[model]
    stored, src, tgt, results = functions.execute_script(script, sizes, list(CHANGES))
    params, src, tgt = params_of(stored), array(src).astype(int), array(tgt).astype(int)
    assert (src == 0).any() and (tgt == 0).any()
    losses = {}
    for change, (loss, grads) in zip(CHANGES, results, strict=True):
        expected_loss, expected = one_page(change).loss_and_grad(params, src, tgt, sizes["n_heads"])
        assert abs(loss - expected_loss) <= 1e-12 * expected_loss, change
        assert_same(params_of(grads), expected)
        losses[change] = loss
    same = {change for change in CHANGES if losses[change] == losses[""]}
    assert same == {"", "memory", "rate"} | ({"merge"} if sizes["n_heads"] == 1 else set())


def test_steps_are_those_of_adam_in_the_one_page_model(functions):
    script = f"""{HELPERS}
    const [sizes, changes] = arguments;
    return changes.map((broken) => {{
      const random = tiny.generator(3), params = tiny.init(random, sizes);
      const first = plain(params), batches = [];
      const settings = {{ ...sizes, broken }}, means = {{}};
      for (let step = 1; step <= 3; step++) {{
        const [src, tgt] = tiny.batch_of(tiny.random_words(random, 4, settings), settings.task);
        const [loss, grads] = tiny.loss_and_grad(params, src, tgt, settings);
        tiny.adam_step(params, grads, means, step, tiny.learning_rate(step, settings));
        batches.push([ids(src), ids(tgt)]);
      }}
      return [first, batches, plain(params)];
    }});"""
    for change, result in zip(
        ["", "rate"], functions.execute_script(script, SIZES, ["", "rate"]), strict=True
    ):
        first, batches, last = result
        page = one_page(change)
        params = params_of(first)
        means = {}
        rate = 100 if change == "rate" else 1
        for step, (src, tgt) in enumerate(batches, 1):
            arrays = array(src).astype(int), array(tgt).astype(int)
            _, grads = page.loss_and_grad(params, *arrays, SIZES["n_heads"])
            page.adam_step(params, grads, means, step, lr=rate * 0.01 * step / 50)
        found = dict(tree.leaves(params_of(last)))
        # of the keys' biases, the gradient is 0 but for rounding
        for name, x in tree.leaves(params):
            assert abs(found[name] - x).max() <= rate * (
                1e-9 if name.endswith("bias") else 1e-12
            ), name


def test_new_parameters_and_greedy_decoding(functions):
    script = f"""{HELPERS}
    const [params, src] = drawn(arguments[0]);
    return [plain(params), ids(src),
      tiny.greedy_decode(params, src, {{ ...arguments[0], broken: "" }}, 7),
      plain(tiny.init(tiny.generator(0), arguments[0]))];"""
    stored, src, said, new = functions.execute_script(script, SIZES)
    page = one_page("")
    expected = page.greedy_decode(params_of(stored), array(src).astype(int), SIZES["n_heads"], 7)
    assert said == expected.tolist()
    new = dict(tree.leaves(params_of(new)))
    theirs = dict(tree.leaves(page.init(np.random.default_rng(0), 29, 16, 1, 32)))
    assert new.keys() == theirs.keys()
    for name, x in theirs.items():
        assert new[name].shape == x.shape
        assert abs(new[name].std() - x.std()) <= 0.15 * x.std(), name


def test_the_terms_of_every_number_sum_to_its_gradient(functions):
    """The terms are local derivatives of the forward pass.

    This checks them and the backward pass by each other.
    """
    script = """
    const [sizes, word, wrong] = [arguments[0], [3, 5, 4], []];
    const traced = trace(tiny, tiny.init(tiny.generator(2), sizes), word, sizes);
    const steps = steps_of(traced, sizes);
    let [n, named] = [0, 0];
    for (const key of new Set(steps.flatMap((step) => step.from))) {
      const [x, dx] = [traced.seen[key], traced.seen[gradient_name(key)]];
      const most = Math.max(...dx.data.map(Math.abs));
      for (let i = 0; i < x.data.length; i += 11) {
        const terms = comes_from(traced, steps, key, Math.floor(i / x.m), i % x.m);
        for (const { factor, what: [name, r, c, form = ""] } of terms) {
          if (r === undefined || form.includes("p[]")) continue;
          const value = traced.seen[name].data[r * traced.seen[name].m + c];
          named += 1;
          const scale = form.includes("√K") ? Math.sqrt(1 / 3) : 1;
          if (Math.abs(value * scale - factor) > 1e-12) wrong.push(`a factor of ${key}`);
        }
        const sum = terms.reduce((total, term) => total + term.part, 0);
        n += 1;
        if (!(Math.abs(sum - dx.data[i]) <= 1e-12 * most + 1e-15)) wrong.push(key);
      }
    }
    return [Math.min(n, named), wrong];"""
    sizes = SIZES | {
        "d_model": 6,
        "n_heads": 2,
        "n_layers": 2,
        "d_ff": 5,
        "letters": 4,
        "length": 3,
    }
    for change in CHANGES:
        n, wrong = functions.execute_script(script, sizes | {"broken": change})
        assert n > 200
        # What was left out is seen where it was left out, and nowhere else.
        assert set(wrong) == ({"encoder.1.feed_forward_norm.y"} if change == "memory" else set()), (
            change
        )


# -- training in the page --------------------------------------------------------------------------


def test_500_steps_of_the_default_draw_the_anti_diagonal(opened):
    browser = opened()
    find(browser, "#train").click()
    wait_for(
        browser,
        (
            "!state.running || (state.measured.at(-1).right > 0.8 && "
            "Math.max(...state.measured.at(-1).shares) > 0.8)"
        ),
    )
    # so much is reached before the 500 steps are over
    assert browser.execute_script("return state.running")
    find(browser, "#pause").click()
    wait_for(browser, "!state.running")
    assert find(browser, "#said").text.startswith("tenalp")
    assert [find(browser, f"#{id_}").text for id_ in ("task-text", "wanted")] == [
        "write the word backwards",
        "tenalp",
    ]
    strongest = find(browser, "#maps svg").get_attribute("aria-label")
    assert all(f"→ {letter} from {letter}" in strongest for letter in "planet")
    browser.execute_script("$('saved').value = 0; $('saved').dispatchEvent(new Event('input'))")
    assert "Step 0 of" in find(browser, "#at-text").text
    assert not find(browser, "#said").text.startswith("tenalp")


@pytest.mark.parametrize("workers", [True, False])
def test_the_worker_and_the_page_itself_take_the_same_steps(look, errors, path, workers):
    browser = look(path, address=SMALL)
    if not workers:
        script = "window.Worker = undefined; trainer = start_training(tiny, hear); read_address();"
        browser.execute_script(script)
    wait_for(browser, "state.saved.length > 0")
    assert ("no workers" in find(browser, "#message").text) == (not workers)
    find(browser, "#train").click()
    wait_for(browser, "state.losses.length >= 20")
    find(browser, "#pause").click()
    wait_for(browser, "!state.running")
    script = f"""{HELPERS}
    const [random, n] = [tiny.generator(settings.seed), state.losses.length];
    const [params, means, losses] = [tiny.init(random, settings), {{}}, []];
    for (let step = 1; step <= n; step++) {{
      const words = tiny.random_words(random, settings.batch, settings);
      const [src, tgt] = tiny.batch_of(words, settings.task);
      const [loss, grads] = tiny.loss_and_grad(params, src, tgt, settings);
      tiny.adam_step(params, grads, means, step, tiny.learning_rate(step, settings));
      losses.push(loss);
    }}
    return [losses, state.losses, plain(params), plain(state.saved.at(-1).params)];"""
    losses, theirs, params, their_params = browser.execute_script(script)
    assert len(losses) < 500 and losses == theirs and params == their_params
    assert errors() == []


def test_a_page_that_may_not_start_a_worker_trains_itself(look, path):
    browser = look(path, address=f"{SMALL}&step=7")  # such a page is told so only by an event
    browser.execute_script("""window.Worker = class {
      constructor() { setTimeout(() => this.onerror(new Event("error"))); }
      postMessage() {}
    };
    trainer = start_training(tiny, hear);
    read_address();""")
    wait_for(browser, "state.saved.at(-1)?.step === 7")
    assert "no workers" in find(browser, "#message").text


def test_the_address_restores_everything(opened):
    address = f"{SMALL}&task=copy&seed=3&break=merge&guess=learns&step=12&of=20&view=gradients"
    browser = opened(address, "!state.running && !state.again")
    browser.execute_script("choose(['decoder.0.memory_attention.weights', 5, 1], [])")
    wait_for(browser, "location.hash.includes('at=')")
    address = browser.execute_script("return location.hash")
    params = browser.execute_script("return [...shown().params.output.weight.data]")
    opened(address[1:], "state.losses.length === 20 && !state.running && !state.again")
    assert browser.execute_script("return location.hash") == address
    assert browser.execute_script("return [...shown().params.output.weight.data]") == params
    assert "Step 12 of 20" in find(browser, "#at-text").text and not find(browser, "#message").text
    chosen = browser.execute_script("return [settings.task, settings.broken, state.guess]")
    assert chosen == ["copy", "merge", "learns"]
    box = find(browser, "#box-decoder\\.0\\.memory_attention")
    assert box.get_attribute("aria-expanded") == "true"
    assert find(browser, "[value=gradients]").is_selected() and find(browser, "td.chosen")


# -- following a number ----------------------------------------------------------------------------


def test_a_gradient_is_followed_back_to_the_loss(opened):
    browser = opened()
    browser.execute_script("choose(['encoder.0.attention.qkv.weight', 2, 3], [])")
    cards = browser.execute_script("""const cards = [];
    for (let i = 0; i < 40; i++) {
      cards.push($("number").textContent);
      if (state.at[0] === "loss.loss") return cards;
      document.querySelector("#number ol button").click();
    }""")
    assert [card for card in cards if "✓ Measured" not in card] == []
    assert (
        "here the backward pass begins" in cards[-1] and "Loss" in find(browser, "#panel h3").text
    )
    n = browser.execute_script("return state.trail.length")
    assert n == len(cards) - 1 > 10
    browser.execute_script("[...document.querySelectorAll('#number button')].at(-1).click()")
    assert browser.execute_script("return state.trail.length") == n - 1


def test_why_a_gradient_is_zero_is_told(browser):
    for key, negative, text in [
        ("decoder.0.feed_forward.h", True, "h is negative, so relu cuts the gradient off"),
        ("decoder.0.attention.scores", False, "The mask makes its weight 0"),
        ("target_embedding", False, "Your word does not use it"),
    ]:
        script = """
        const [key, negative] = arguments;
        const [x, dx] = [traced.seen[key], traced.seen[gradient_name(key)]];
        const at = [...dx.data].findIndex(
          (slope, i) => slope === 0 && (!negative || x.data[i] < 0));
        choose([key, Math.floor(at / x.m), at % x.m], []);
        return $("number").textContent;"""
        assert text in browser.execute_script(script, key, negative)
        ways = browser.find_elements(By.CSS_SELECTOR, "#number .ways div:first-child button")
        links = [link.text for link in ways]
        assert all(link.endswith("× 0 = 0") for link in links)
        assert bool(links) == ("does not use" not in text)


def test_each_box_and_each_row_has_one_name(opened):
    browser = opened(f"{SMALL}&N=2")
    names, rows = browser.execute_script("""
      const views = boxes.filter((box) => box.side === "decoder").flatMap((box) => box.views);
      const rows = views.map(({ rows }) => rows.join());
      return [boxes.map((box) => box.name), rows.filter((text) => text.includes("start"))]""")
    assert len(set(names)) == len(names) and "Add & norm 3 (decoder)" in names
    rows = [row for row in rows if "," in row]
    assert len(set(rows)) == 1 < len(rows) and all(" → " in row for row in rows[0].split(","))
    script = "return described(boxes, 'decoder.1.memory_attention.weights', 4, 2).text"
    assert browser.execute_script(script).startswith("head 2: weights[start → ")


def test_weights_are_drawn_from_0_to_1(browser):
    script = """
    const context = $("box-encoder.0.attention").querySelector("canvas").getContext("2d");
    const weight = traced.seen["encoder.0.attention.weights"].data[0];
    return [[...context.getImageData(0, 0, 1, 1).data], colour(weight)]"""
    drawn, expected = browser.execute_script(script)
    assert drawn[:3] == expected


def test_a_forgotten_gradient_is_found_by_measuring(opened):
    browser = opened(
        f"{SMALL}&break=memory&at=encoder.0.feed_forward_norm.y:0:1&box=encoder.0.feed_forward_norm"
    )
    card = find(browser, "#number").text
    assert "The backward pass is wrong here" in card and "has left out a part of it" in card


def test_what_a_change_did_is_told_after_500_steps(opened):
    smallest = "D=4&H=1&F=4&letters=3&length=2"
    browser = opened(f"{smallest}&break=rate")
    for button in ("step", "train", "try"):  # they lead to the question that comes first
        assert find(browser, f"#{button}").get_attribute("aria-disabled") == "true"
        find(browser, f"#{button}").click()
        assert browser.execute_script("return document.activeElement.name") == "guess"
    assert all(node.is_displayed() for node in browser.find_elements(By.CSS_SELECTOR, ".first"))
    assert browser.execute_script("return state.losses.length") == 0
    find(browser, "[name=guess][value=learns]").click()
    find(browser, "#try").click()
    wait_for(browser, "!state.running && state.saved.at(-1).step === 500")
    text = find(browser, "#verdict").text
    last = browser.execute_script("return state.measured.at(-1)")
    assert "You expected: “It learns all the same" in text and "After 500 steps" in text
    assert not find(browser, ".first").is_displayed()
    assert f"{round(100 * last['right'])} % of the words that it writes by itself are right" in text


def test_every_change_has_its_sentences(opened):
    browser = opened(SMALL + "&step=5", "state.losses.length === 5 && state.measured.length === 2")
    script = """
    const [first, last] = [state.saved[0].params, state.saved.at(-1).params];
    const [start, end] = state.measured;
    return Object.keys(BREAKS).map((broken) => verdict(tiny, broken, "fails", {
      start, end, nan: null, step: 5, losses: state.losses, settings: { ...settings, broken },
      first_params: first, last_params: last, word: [3, 4, 5],
    }));"""
    told = browser.execute_script(script)
    assert len(told) == len(CHANGES) - 1
    for paragraphs in told:
        assert not any(word in " ".join(paragraphs) for word in ("NaN", "undefined", "Infinity"))
    ends = [
        {"loss": loss, "right": right} for loss, right in [(0.01, 1), (0.01, 0), (1.6, 0), (3.5, 0)]
    ]
    script = (
        "const ends = [...arguments[0], { loss: NaN, right: 0 }];"
        "return ends.map((end) => outcome_of(end, { loss: 3.8 }))"
    )
    assert browser.execute_script(script, ends) == ["learns", "useless", "partly", "fails", "fails"]


# -- keyboard, screens, bad input ------------------------------------------------------------------


def test_everything_is_reached_by_keyboard(browser):
    tab_to(browser, "#word")
    press(browser, Keys.END, *[Keys.BACKSPACE] * 3, "bca")
    assert browser.execute_script("return state.word") == "bca"
    tab_to(browser, "#step")
    press(browser, Keys.ENTER)
    press(browser, *[Keys.ENTER] * 3)
    wait_for(browser, "state.losses.length === 4 && !state.running")
    assert browser.execute_script("return document.activeElement.id") == "step"
    tab_to(browser, "#train")
    press(browser, Keys.ENTER)
    tab_to(browser, "#pause")
    press(browser, Keys.ENTER)
    wait_for(browser, "!state.running")
    tab_to(browser, "#saved")
    press(browser, Keys.HOME)
    assert "Step 0 of" in find(browser, "#at-text").text
    tab_to(browser, "[name=view]")
    press(browser, Keys.ARROW_DOWN)
    assert browser.execute_script("return state.view") == "gradients"
    tab_to(browser, "#box-output")
    press(browser, Keys.ENTER)
    assert browser.execute_script("return document.activeElement.id") == "panel"
    press(browser, Keys.ESCAPE)
    assert browser.execute_script("return [document.activeElement.id, state.box]") == [
        "box-output",
        None,
    ]
    press(browser, Keys.ENTER)
    tab_to(browser, "td[data-i]")
    press(browser, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ENTER)
    assert browser.execute_script("return state.at") == ["output.logits", 1, 1]
    assert browser.execute_script("return document.activeElement.matches('td.chosen')")
    browser.execute_script("$('box-output').focus()")
    tab_to(browser, "#number ol button")
    press(browser, Keys.ENTER)
    assert browser.execute_script("return state.at[0]") == "loss.loss"
    tab_to(browser, "[name=break]")
    press(browser, Keys.ARROW_DOWN)
    wait_for(browser, "settings.broken === 'mask' && state.saved.length")
    tab_to(browser, "[name=guess]")
    press(browser, Keys.SPACE)
    tab_to(browser, "#try")
    tab_to(browser, "#task")
    press(browser, Keys.ARROW_DOWN)
    tab_to(browser, "#n_heads")
    press(browser, Keys.END, Keys.BACKSPACE, "1", Keys.ENTER)
    script = (
        "return [settings.task, settings.n_heads, document.activeElement.id, "
        "location.hash.includes('H=1')]"
    )
    assert browser.execute_script(script) == ["copy", 1, "n_heads", True]
    tab_to(browser, "#default")


@pytest.mark.parametrize(
    ("width", "dark"), [(320, False), (380, True), (1280, False), (1280, True)]
)
def test_it_fits_every_screen_and_theme(opened, width, dark):
    browser = opened(SMALL + "&break=memory&view=gradients", width=width, dark=dark)
    browser.execute_script("choose(['encoder.0.attention.weights', 1, 1], [])")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(CONTRAST) == []
    bottom = (
        "const maps = [...document.querySelectorAll('#maps svg')];"
        "return Math.max(...maps.map((x) => x.getBoundingClientRect().bottom))"
    )
    browser.execute_script("scrollTo(0, 0)")
    assert browser.execute_script(bottom) < 640  # the attention is seen without scrolling


@pytest.mark.parametrize("width", [380, 1200])
def test_an_open_box_covers_no_text_and_what_is_cut_off_says_so(opened, width):
    browser = opened("D=32&letters=5&length=3", width=width)
    covered = """
        const panel = $("panel").getBoundingClientRect();
        const texts = [...document.querySelectorAll("#figure :is(b, small, label)")];
        return texts.filter((node) => !$("panel").contains(node)).filter((node) => {
          const box = node.getBoundingClientRect();
          return box.bottom > panel.top && box.top < panel.bottom
            && box.right > panel.left && box.left < panel.right;
        }).map((node) => node.textContent);
    """
    cut = """
        return [...document.querySelectorAll("#panel .scroll")]
          .map((x) => [x.scrollWidth > x.clientWidth + 1, x.classList.contains("cut")]);
    """
    boxes = browser.find_elements(By.CSS_SELECTOR, "#figure > .box")
    assert len(boxes) == 14
    for box in boxes:
        browser.execute_script("arguments[0].click()", box)
        assert browser.execute_script(covered) == []
    browser.execute_script("open_box('encoder.0.feed_forward')")
    browser.execute_script("document.querySelector('#panel details').open = true")
    WebDriverWait(browser, 10).until(lambda _: browser.execute_script(cut)[0] == [True, True])
    assert all(is_cut == says_so for is_cut, says_so in browser.execute_script(cut))


def test_the_parameters_of_a_box_are_folded_until_one_is_needed(opened):
    def shown():
        return [
            x.is_displayed()
            for x in browser.find_elements(By.CSS_SELECTOR, "#panel details figure")
        ]

    browser = opened(f"{SMALL}&box=encoder.0.feed_forward")
    assert shown() == [False] * 4
    assert (
        find(browser, "#panel summary").text == "Parameters W₁ 8 × 8, b₁ 1 × 8, W₂ 8 × 8, b₂ 1 × 8"
    )
    tab_to(browser, "#panel summary")
    press(browser, Keys.ENTER)
    assert shown() == [True] * 4
    press(browser, Keys.TAB)
    assert browser.execute_script("return document.activeElement.matches('#panel details td')")
    browser.execute_script("open_box('decoder.0.feed_forward')")
    assert shown() == [False] * 4
    browser.execute_script(
        "choose(['decoder.0.feed_forward.hidden.weight', 2, 3], [])"
    )  # a step of a gradient's way
    assert shown() == [True] * 4 and find(browser, "#panel details td.chosen").is_displayed()
    address = browser.execute_script("return location.hash.slice(1)")
    opened(address)
    assert shown() == [True] * 4 and find(browser, "#panel details td.chosen").is_displayed()
    browser.execute_script("open_box('loss')")
    assert not browser.find_elements(By.CSS_SELECTOR, "#panel details")  # it has no parameters


@pytest.mark.parametrize("dark", [False, True])
def test_zero_has_the_colour_of_the_page_in_both_schemes(opened, dark):
    browser = opened(SMALL, dark=dark)
    zero, paper = browser.execute_script(
        "return [colour(0), getComputedStyle(document.body).backgroundColor]"
    )
    assert paper == f"rgb({', '.join(map(str, zero))})" and (sum(zero) < 150) == dark
    # the first row does not read the second letter
    masked = """
    const canvas = $("box-decoder.0.attention").querySelector("canvas");
    return [...canvas.getContext("2d").getImageData(1, 0, 1, 1).data].slice(0, 3)"""
    assert browser.execute_script(masked) == zero


def test_sizes_and_words_out_of_range_are_refused_with_a_message(browser):
    run = browser.execute_script("return state.run")
    for name, value, message in [
        ("letters", "1", "nothing to learn"),
        ("letters", "27", "from 2 to 26"),
        ("d_model", "15", "cannot be cut into 2 heads"),
        ("length", "", "from 2 to 10"),
        ("n_layers", "1.5", "whole number"),
        ("seed", "-1", "from 0 to 9999"),
    ]:
        script = """const input = $(arguments[0]), before = input.value;
        input.value = arguments[1];
        $("settings").requestSubmit();
        input.value = before;"""
        browser.execute_script(script, name, value)
        assert message in find(browser, "#settings-message").text
        assert browser.execute_script("return state.run") == run
    for word in ("ab", "a1c", "ÄÖÜ", "abz"):
        browser.execute_script(
            "$('word').value = arguments[0]; $('word').dispatchEvent(new Event('input'))", word
        )
        assert "Type 3 letters from a to e" in find(browser, "#word-message").text
        assert (
            find(browser, "#said").text == "…"
            and browser.execute_script("return state.word") != word
        )


def test_an_address_that_asks_too_much_gives_the_default_and_a_message(browser):
    tried = [
        (part, "shows the default instead")
        for part in ("task=fly", "D=1e9", "H=3", "letters=1", "length=x")
    ]
    tried += [("break=everything", "shows the default instead")]
    odd = (
        "box=attic",
        "at=x:1:2",
        "at=output.logits:z:1",
        "word=planets",
        "step=-1",
        "guess=no",
        "view=all",
        "colour=red",
    )
    tried += [(f"{SMALL}&{part}", "Part of the address was not understood") for part in odd]
    for address, message in tried:
        script = "const run = state.run; location.hash = arguments[0]; return run"
        run = browser.execute_script(script, address)
        wait_for(browser, f"state.run > {run} && state.saved.length && !state.running")
        assert message in find(browser, "#message").text, address
        assert browser.execute_script("return problem(settings)") == ""


def test_the_first_word_has_different_letters_if_there_are_enough(functions):
    script = (
        "return arguments[0].map(([letters, length]) => first_word({ letters, length, seed: 2 }))"
    )
    words = functions.execute_script(script, [[26, 6], [10, 6], [10, 10], [2, 3]])
    assert words[0] == "planet" and [len(set(word)) for word in words[1:]] == [6, 10, 2]
    assert all(max(word) <= last for word, last in zip(words[1:], "jjb", strict=True))


def test_where_a_number_that_is_not_finite_began_is_told(browser):
    message = {"set": {"path": "decoder.0.feed_forward.hidden.weight", "value": 1e308}}
    browser.execute_script("trainer.send(arguments[0]); train(500)", message)
    wait_for(browser, "state.nan")
    text = find(browser, "#message").text
    assert (
        "at step 1" in text
        and "forward pass in “Feed-forward (decoder)” (decoder.0.feed_forward.h)" in text
    )
    assert find(browser, "#train").get_attribute("aria-disabled") == "true"
