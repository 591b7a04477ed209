"""The figure that trains in the browser.

Its gradients and steps are the one-page model's, and all of it works.
"""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from in_browser import BACKGROUNDS, Page

from npformer import tree

pytest.importorskip("selenium")
from selenium.webdriver.common.keys import Keys  # noqa: E402

SMALL = "D=8&H=2&F=8&letters=5&length=3"
ONE_PAGE = Path(__file__).parents[2] / "docs" / "one_page_transformer.py"
SIZES = {"task": "reverse", "d_model": 16, "n_heads": 2}
SIZES |= {"n_layers": 1, "d_ff": 32, "letters": 26, "length": 6}
MODELS = {
    "the default": {},
    "two layers, three heads": {"d_model": 9, "n_heads": 3, "n_layers": 2, "d_ff": 7,
                                "letters": 5, "length": 4},
    "one head, odd widths": {"d_model": 5, "n_heads": 1, "d_ff": 11, "letters": 3, "length": 3,
                             "task": "sort"},
}  # fmt: skip
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


PAGE = "train.html"
FOCUS = "document.activeElement"


@pytest.fixture
def opened(look, path):
    """``opened(address, until)`` opens the figure."""

    def opened(address="", until="!state.running", **screen):
        browser = look(path, address=address, **screen)
        browser.wait_for(f"state.saved.length > 0 && {until}")
        return browser

    return opened


@pytest.fixture
def browser(opened):
    """A small figure at step 0."""
    return opened(SMALL)


@pytest.fixture
def functions(chromium, opened):
    """Any figure, for tests that only call its functions.

    What the test before has opened, if it was one.
    """
    page = Page(chromium)
    return page if page.js("return typeof tiny !== 'undefined'") else opened(SMALL)


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


def ids_of(stored):
    return array(stored).astype(int)


def leaves_of(stored):
    """The parameters by name; gains and biases are vectors in the one-page model."""
    arrays = {name: array(value) for name, value in stored.items()}
    return {name: x[0] if name.endswith(("bias", "gain")) else x for name, x in arrays.items()}


def params_of(stored):
    """The nested parameters of the one-page model."""
    params = {"encoder": {}, "decoder": {}}
    for name, value in leaves_of(stored).items():
        *folders, last = name.split(".")
        place = params
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = value
    return params


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
    stored, src, tgt, results = functions.js(script, sizes, list(CHANGES))
    params, src, tgt = params_of(stored), ids_of(src), ids_of(tgt)
    assert (src == 0).any() and (tgt == 0).any()
    losses = {}
    for change, (loss, found) in zip(CHANGES, results, strict=True):
        expected_loss, grads = one_page(change).loss_and_grad(params, src, tgt, sizes["n_heads"])
        assert abs(loss - expected_loss) <= 1e-12 * expected_loss, change
        found, expected = leaves_of(found), dict(tree.leaves(grads))
        assert found.keys() == expected.keys()
        largest = max(abs(x).max() for x in expected.values())
        for name, x in expected.items():
            bound = 1e-12 * max(abs(x).max(), 1e-3 * largest)
            assert abs(found[name] - x).max() <= bound, name
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
    page, results = one_page(""), functions.js(script, SIZES, ["", "rate"])
    for rate, (first, batches, last) in zip((1, 100), results, strict=True):
        params, means, found = params_of(first), {}, leaves_of(last)
        for step, ids in enumerate(batches, 1):
            _, grads = page.loss_and_grad(params, *map(ids_of, ids), SIZES["n_heads"])
            page.adam_step(params, grads, means, step, lr=rate * 0.01 * step / 50)
        for name, x in tree.leaves(params):
            # of the keys' biases, the gradient is 0 except for rounding
            bound = 1e-9 if name.endswith("bias") else 1e-12
            assert abs(found[name] - x).max() <= rate * bound, name


def test_new_parameters_and_greedy_decoding(functions):
    script = f"""{HELPERS}
    const [params, src] = drawn(arguments[0]);
    return [plain(params), ids(src),
      tiny.greedy_decode(params, src, {{ ...arguments[0], broken: "" }}, 7),
      plain(tiny.init(tiny.generator(0), arguments[0]))];"""
    stored, src, said, new = functions.js(script, SIZES)
    page = one_page("")
    expected = page.greedy_decode(params_of(stored), ids_of(src), SIZES["n_heads"], 7)
    assert said == expected.tolist()
    new = leaves_of(new)
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
    sizes = SIZES | {"d_model": 6, "n_layers": 2, "d_ff": 5, "letters": 4, "length": 3}
    for change in CHANGES:
        n, wrong = functions.js(script, sizes | {"broken": change})
        assert n > 200
        # What was left out is seen where it was left out, and nowhere else.
        left_out = {"memory": {"encoder.1.feed_forward_norm.y"}}
        assert set(wrong) == left_out.get(change, set()), change


# -- training in the page --------------------------------------------------------------------------


TO_STEP = """
$("saved").value = state.saved.findIndex(({ step }) => step === arguments[0]);
$("saved").dispatchEvent(new Event("input"));"""


def test_500_steps_of_the_default_draw_the_anti_diagonal(opened):
    browser = opened()
    browser.click("#train")
    # The page looks at the first step at which it is learned, whenever it hears of it.
    learned = "state.measured.find((x) => x.right > 0.95 && Math.max(...x.shares) > 0.9)"
    browser.wait_for(learned)
    browser.click("#pause")
    browser.wait_for("!state.running")
    step = browser.js(f"return {learned}.step")
    assert step < 500
    browser.js(TO_STEP, step)
    browser.says({"#at-text": f"Step {step} of"})
    assert browser.text("#said").startswith("tenalp")
    assert browser.texts("#task-text, #wanted") == ["write the word backwards", "tenalp"]
    strongest = browser.find("#maps svg").get_attribute("aria-label")
    assert all(f"→ {letter} from {letter}" in strongest for letter in "planet")
    browser.js(TO_STEP, 0)
    browser.says({"#at-text": "Step 0 of"})
    assert not browser.text("#said").startswith("tenalp")


@pytest.mark.parametrize("workers", [True, False])
def test_the_worker_and_the_page_itself_take_the_same_steps(look, path, workers):
    browser = look(path, address=SMALL)
    if not workers:
        script = "window.Worker = undefined; trainer = start_training(tiny, hear); read_address();"
        browser.js(script)
    browser.wait_for("state.saved.length > 0")
    assert ("no workers" in browser.text("#message")) == (not workers)
    browser.js("train(20)")
    browser.wait_for("!state.running")
    browser.js("$('train').click(); $('pause').click()")
    browser.wait_for("!state.running")
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
    losses, theirs, params, their_params = browser.js(script)
    assert 20 <= len(losses) < 520
    assert losses == theirs and params == their_params


def test_a_page_that_may_not_start_a_worker_trains_itself(look, path):
    browser = look(path, address=f"{SMALL}&step=7")  # such a page is told so only by an event
    browser.js("""window.Worker = class {
      constructor() { setTimeout(() => this.onerror(new Event("error"))); }
      postMessage() {}
    };
    trainer = start_training(tiny, hear);
    read_address();""")
    browser.wait_for("state.saved.at(-1)?.step === 7")
    assert "no workers" in browser.text("#message")


def test_the_address_restores_everything(opened):
    address = f"{SMALL}&task=copy&seed=3&break=merge&guess=learns&step=12&of=20&view=gradients"
    browser = opened(address, "!state.running && !state.again")
    browser.js("choose(['decoder.0.memory_attention.weights', 5, 1], [])")
    browser.wait_for("location.hash.includes('at=')")
    script = "return [location.hash, ...shown().params.output.weight.data]"
    before = browser.js(script)
    opened(browser.address(), "state.losses.length === 20 && !state.running && !state.again")
    assert browser.js(script) == before
    assert "Step 12 of 20" in browser.text("#at-text") and not browser.text("#message")
    chosen = browser.js("return [settings.task, settings.broken, state.guess]")
    assert chosen == ["copy", "merge", "learns"]
    assert browser.all("#box-decoder\\.0\\.memory_attention[aria-expanded=true]")
    assert browser.all("[value=gradients]:checked") and browser.all("td.chosen")


# -- following a number ----------------------------------------------------------------------------


def test_a_gradient_is_followed_back_to_the_loss(opened):
    browser = opened()
    browser.js("choose(['encoder.0.attention.qkv.weight', 2, 3], [])")
    cards = browser.js("""const cards = [];
    for (let i = 0; i < 40; i++) {
      cards.push($("number").textContent);
      if (state.at[0] === "loss.loss") return cards;
      document.querySelector("#number ol button").click();
    }""")
    assert [card for card in cards if "✓ Measured" not in card] == []
    assert "here the backward pass begins" in cards[-1] and "Loss" in browser.text("#panel h3")
    n = browser.js("return state.trail.length")
    assert n == len(cards) - 1 > 10
    browser.js("[...document.querySelectorAll('#number button')].at(-1).click()")
    assert browser.js("return state.trail.length") == n - 1


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
        assert text in browser.js(script, key, negative)
        links = browser.texts("#number .ways div:first-child button")
        assert all(link.endswith("× 0 = 0") for link in links)
        assert bool(links) == ("does not use" not in text)


def test_each_box_and_each_row_has_one_name(opened):
    browser = opened(f"{SMALL}&N=2")
    names, rows = browser.js("""
      const views = boxes.filter((box) => box.side === "decoder").flatMap((box) => box.views);
      const rows = views.map(({ rows }) => rows.join());
      return [boxes.map((box) => box.name), rows.filter((text) => text.includes("start"))]""")
    assert len(set(names)) == len(names) and "Add & norm 3 (decoder)" in names
    rows = [row for row in rows if "," in row]
    assert len(set(rows)) == 1 < len(rows) and all(" → " in row for row in rows[0].split(","))
    script = "return described(boxes, 'decoder.1.memory_attention.weights', 4, 2).text"
    assert browser.js(script).startswith("head 2: weights[start → ")


def test_weights_are_drawn_from_0_to_1(browser):
    script = """
    const context = $("box-encoder.0.attention").querySelector("canvas").getContext("2d");
    const weight = traced.seen["encoder.0.attention.weights"].data[0];
    return [[...context.getImageData(0, 0, 1, 1).data], colour(weight)]"""
    drawn, expected = browser.js(script)
    assert drawn[:3] == expected


def test_a_forgotten_gradient_is_found_by_measuring(opened):
    browser = opened(
        f"{SMALL}&break=memory&at=encoder.0.feed_forward_norm.y:0:1&box=encoder.0.feed_forward_norm"
    )
    browser.says({"#number": "The backward pass is wrong here"})
    browser.says({"#number": "has left out a part of it"})


def test_what_a_change_did_is_told_after_500_steps(opened):
    smallest = "D=4&H=1&F=4&letters=3&length=2"
    browser = opened(f"{smallest}&break=rate")
    for button in ("step", "train", "try"):  # they lead to the question that comes first
        browser.click(f"#{button}[aria-disabled=true]")
        assert browser.js(f"return {FOCUS}.name") == "guess"
    assert all(node.is_displayed() for node in browser.all(".first"))
    assert browser.js("return state.losses.length") == 0
    browser.click("[name=guess][value=learns]")
    browser.click("#try")
    browser.wait_for("!state.running && state.saved.at(-1).step === 500")
    share = round(100 * browser.js("return state.measured.at(-1).right"))
    text = browser.text("#verdict")
    assert "You expected: “It learns all the same" in text and "After 500 steps" in text
    assert f"{share} % of the words that it writes by itself are right" in text
    assert not browser.shows(".first")


def test_every_change_has_its_sentences(opened):
    browser = opened(SMALL + "&step=5", "state.losses.length === 5 && state.measured.length === 2")
    script = """
    const [first, last] = [state.saved[0].params, state.saved.at(-1).params];
    const [start, end] = state.measured;
    return Object.keys(BREAKS).map((broken) => verdict(tiny, broken, "fails", {
      start, end, nan: null, step: 5, losses: state.losses, settings: { ...settings, broken },
      first_params: first, last_params: last, word: [3, 4, 5],
    }));"""
    told = browser.js(script)
    assert len(told) == len(CHANGES) - 1
    for paragraphs in told:
        assert not any(word in " ".join(paragraphs) for word in ("NaN", "undefined", "Infinity"))
    script = """
    const ends = [[0.01, 1], [0.01, 0], [1.6, 0], [3.5, 0], [NaN, 0]];
    return ends.map(([loss, right]) => outcome_of({ loss, right }, { loss: 3.8 }));"""
    assert browser.js(script) == ["learns", "useless", "partly", "fails", "fails"]


# -- keyboard, screens, bad input ------------------------------------------------------------------


UP, DOWN, ENTER, END = Keys.ARROW_UP, Keys.ARROW_DOWN, Keys.ENTER, Keys.END
# Where Tab goes, what is pressed, and what is then so.
OF_THE_WORD = [
    ("#word", [END, *[Keys.BACKSPACE] * 3, "bca"], "state.word", "bca"),
    ("#step", [ENTER] * 4, f"{FOCUS}.id", "step"),
]
OF_THE_FIGURE = [
    ("#saved", [Keys.HOME], "$('at-text').innerText.includes('Step 0 of')", True),
    ("[name=view]", [DOWN], "state.view", "gradients"),
    ("#box-output", [ENTER], f"{FOCUS}.id", "panel"),
    ("", [Keys.ESCAPE], f"[{FOCUS}.id, state.box]", ["box-output", None]),
    ("", [ENTER], "state.box", "output"),
    ("td[data-i]", [Keys.ARROW_RIGHT, DOWN, ENTER], "state.at", ["output.logits", 1, 1]),
    ("", [], f"{FOCUS}.matches('td.chosen')", True),
]
OF_A_CHANGE = [
    ("[name=guess]", [Keys.SPACE], "typeof state.guess", "string"),
    ("#try", [], f"{FOCUS}.id", "try"),
    ("#task", [DOWN], "$('task').value", "copy"),
    (
        "#n_heads",
        [END, Keys.BACKSPACE, "1", ENTER],
        "[settings.task, settings.n_heads]",
        ["copy", 1],
    ),
    ("", [], f"[{FOCUS}.id, location.hash.includes('H=1')]", ["n_heads", True]),
    ("#default", [], f"{FOCUS}.id", "default"),
]


def test_everything_is_reached_by_keyboard(browser):
    browser.by_keyboard(OF_THE_WORD)
    browser.wait_for("state.losses.length === 4 && !state.running")
    browser.by_keyboard([("#train", [ENTER], "state.until", 504)])
    browser.by_keyboard([("#pause", [ENTER], f"{FOCUS}.id", "pause")])
    browser.wait_for("!state.running")
    browser.by_keyboard(OF_THE_FIGURE)
    browser.js("$('box-output').focus()")
    browser.by_keyboard([("#number ol button", [ENTER], "state.at[0]", "loss.loss")])
    browser.tab_to("[name=break]")
    browser.press(DOWN)
    browser.wait_for("settings.broken === 'mask' && state.saved.length")
    browser.by_keyboard(OF_A_CHANGE)


@pytest.mark.parametrize("width", [320, 380, 1280])
def test_it_fits_every_screen_and_theme(opened, width):
    browser = opened(SMALL + "&break=memory&view=gradients", width=width)
    browser.js("choose(['encoder.0.attention.weights', 1, 1], [])")
    browser.check_screens(width, "figure")
    maps = "[...document.querySelectorAll('#maps svg')]"
    bottoms = f"{maps}.map((x) => x.getBoundingClientRect().bottom)"
    # the attention is seen without scrolling
    assert max(browser.js(f"scrollTo(0, 0); return {bottoms}")) < 640


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
    boxes = browser.all("#figure > .box")
    assert len(boxes) == 14
    for box in boxes:
        browser.js("arguments[0].click()", box)
        assert browser.js(covered) == []
    browser.js("open_box('encoder.0.feed_forward')")
    browser.js("document.querySelector('#panel details').open = true")
    browser.wait_for(f"(() => {{ {cut} }})()[0].every((is_so) => is_so)")
    assert all(is_cut == says_so for is_cut, says_so in browser.js(cut))


def test_the_parameters_of_a_box_are_folded_until_one_is_needed(opened):
    def shown():
        return [x.is_displayed() for x in browser.all("#panel details figure")]

    browser = opened(f"{SMALL}&box=encoder.0.feed_forward")
    assert shown() == [False] * 4
    assert browser.text("#panel summary") == "Parameters W₁ 8 × 8, b₁ 1 × 8, W₂ 8 × 8, b₂ 1 × 8"
    browser.tab_to("#panel summary")
    browser.press(Keys.ENTER)
    assert shown() == [True] * 4
    browser.press(Keys.TAB)
    assert browser.js("return document.activeElement.matches('#panel details td')")
    browser.js("open_box('decoder.0.feed_forward')")
    assert shown() == [False] * 4
    # a step of a gradient's way
    browser.js("choose(['decoder.0.feed_forward.hidden.weight', 2, 3], [])")
    assert shown() == [True] * 4 and browser.shows("#panel details td.chosen")
    opened(browser.address())
    assert shown() == [True] * 4 and browser.shows("#panel details td.chosen")
    browser.js("open_box('loss')")
    assert not browser.all("#panel details")  # it has no parameters


@pytest.mark.parametrize("theme", BACKGROUNDS)
def test_zero_has_the_colour_of_the_page_in_both_schemes(opened, theme):
    browser = opened(SMALL, theme=theme)
    zero = browser.js("return colour(0)")
    assert f"rgb({', '.join(map(str, zero))})" == BACKGROUNDS[theme]
    # the first row does not read the second letter
    masked = """
    const canvas = $("box-decoder.0.attention").querySelector("canvas");
    return [...canvas.getContext("2d").getImageData(1, 0, 1, 1).data].slice(0, 3)"""
    assert browser.js(masked) == zero


REFUSED = [
    ("letters", "1", "nothing to learn"),
    ("letters", "27", "from 2 to 26"),
    ("d_model", "15", "cannot be cut into 2 heads"),
    ("length", "", "from 2 to 10"),
    ("n_layers", "1.5", "whole number"),
    ("seed", "-1", "from 0 to 9999"),
]


def test_sizes_and_words_out_of_range_are_refused_with_a_message(browser):
    run = browser.js("return state.run")
    for name, value, message in REFUSED:
        script = """const input = $(arguments[0]), before = input.value;
        input.value = arguments[1];
        $("settings").requestSubmit();
        input.value = before;"""
        browser.js(script, name, value)
        browser.says({"#settings-message": message})
        assert browser.js("return state.run") == run
    for word in ("ab", "a1c", "ÄÖÜ", "abz"):
        browser.fill("#word", word)
        browser.says({"#word-message": "Type 3 letters from a to e"})
        assert browser.text("#said") == "…" and browser.js("return state.word") != word


DEFAULT = ["task=fly", "D=1e9", "H=3", "letters=1", "length=x", "break=everything"]
ODD = ["box=attic", "at=x:1:2", "at=output.logits:z:1", "word=planets", "step=-1", "guess=no",
       "view=all", "colour=red"]  # fmt: skip


def test_an_address_that_asks_too_much_gives_the_default_and_a_message(browser):
    for address in [*DEFAULT, *(f"{SMALL}&{part}" for part in ODD)]:
        run = browser.js("const run = state.run; location.hash = arguments[0]; return run", address)
        browser.wait_for(f"state.run > {run} && state.saved.length && !state.running")
        message = "Part of the address was not understood"
        if address in DEFAULT:
            message = "shows the default instead"
        browser.says({"#message": message})
        assert browser.js("return problem(settings)") == ""


def test_the_first_word_has_different_letters_if_there_are_enough(functions):
    script = "return first_word({ letters: arguments[0], length: arguments[1], seed: 2 })"
    assert functions.js(script, 26, 6) == "planet"
    for letters, length, n_different in [(10, 6, 6), (10, 10, 10), (2, 3, 2)]:
        word = functions.js(script, letters, length)
        assert len(set(word)) == n_different and max(word) <= "abcdefghij"[letters - 1]


def test_where_a_number_that_is_not_finite_began_is_told(browser):
    message = {"set": {"path": "decoder.0.feed_forward.hidden.weight", "value": 1e308}}
    browser.js("trainer.send(arguments[0]); train(500)", message)
    browser.wait_for("state.nan")
    where = "forward pass in “Feed-forward (decoder)” (decoder.0.feed_forward.h)"
    browser.says({"#message": "at step 1"})
    browser.says({"#message": where})
    assert browser.all("#train[aria-disabled=true]")
