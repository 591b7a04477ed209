"""The page index.html, in a browser.

Numbers are npformer's, and all works by keyboard on any screen.
"""

import re
from contextlib import contextmanager
from functools import cache
from itertools import count, cycle

import numpy as np
import pytest

from scripts import make_playground

import npformer as nf
from npformer.layers import sublayer
from npformer.tokens.marks import mark, unmark

pytest.importorskip("selenium")
from selenium.webdriver.common.keys import Keys  # noqa: E402

WORDS = ["attention", "a", "zebra", "abcdefghijklmnop"]
SENTENCES = ["A man is riding a bicycle.", "Two dogs play in the snow.", "Quick: (l'été), 2 TVs!"]
LINES = [
    "L'homme parle à Paul. Il dit « bonjour » !",
    "A young man's T-shirt isn't red, it's 100% blue...",
    "Jusqu'à l’école, qu'il aime; aujourd'hui",
    "IBM and TV. école Élan. un ↑ mark_ed ‿ line",
    "ﬁne print ½ ① x²  two  spaces",
]
TRACED = "trace(state.name, state.src, read_tokens())"
PAGE = "index.html"
both_models = pytest.mark.parametrize("name", ["reverse", "en-fr"])


@pytest.fixture
def browser(look, path):
    """The page just after it was opened."""
    return look(path)


@cache
class Model:
    """A trained model of the page, as npformer computes it for one source and one target."""

    def __init__(self, name):
        self.model, self.params, self.content = make_playground.read(name)
        self.calls_of_encoder = self.model.n_layers  # of attention; the decoder's come later

    def _call(self, method, *ids):
        return method(self.params, *(np.array([each]) for each in ids), backend="reference")

    def memory(self, src):
        return self._call(self.model.encode, src)[0]

    def logits(self, src, tgt_in):
        return self._call(self.model.logits, src, tgt_in)[0]

    def shares(self, src, tgt_in):
        """The probabilities of the tokens at each step."""
        return nf.softmax(self.logits(src, tgt_in))

    def weights(self, src, tgt_in):
        """The attention weights of every kind and layer, as (H, T, S)."""
        weights = self._call(self.model.attention_weights, src, tgt_in)
        return {kind: [layer[0] for layer in layers] for kind, layers in weights.items()}


@contextmanager
def changed_call(monkeypatch, name, number, change):
    """Let a call of a function of the sublayers return what ``change`` makes of its result and its
    arguments. Those of the encoder come first; ``numbers`` counts the calls.
    """
    original = getattr(sublayer, name)
    numbers = count()

    def function(*args, **kwargs):
        y, backward = original(*args, **kwargs)
        if next(numbers) == number:
            y = change(y, *args)
        return y, backward

    with monkeypatch.context() as patch:
        patch.setattr(sublayer, name, function)
        yield numbers


def assert_close(found, expected, atol=1e-9):
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def choose(browser, name):
    browser.click(f"[name=model][value={name}]")


def show_text(browser, text):
    browser.js("show_text(arguments[0])", text)


def paste(browser, text):
    browser.fill("#text", text)


def shown(piece):
    """A subword as the page writes it."""
    if piece in ("<s>", "</s>"):
        return {"<s>": "<begin>", "</s>": "<end>"}[piece]
    bare = piece.replace("▁", "", 1).replace("‿", "", 1) or piece.replace("▁", "(space)")
    return bare if piece.startswith("▁") or re.match("<.*>$", piece) else f"·{bare}"


def as_number(text):
    return float(text.replace("−", "-").replace(",", ""))


# -- the numbers of the trained models -------------------------------------------------------------


@both_models
def test_logits_distribution_and_weights_of_every_head_are_npformers(browser, name):
    model = Model(name)
    for text in {"reverse": WORDS, "en-fr": SENTENCES}[name]:
        src = browser.js("return source_of(...arguments)", name, text)
        tgt_in = [1, *src[::-1]]
        traced = browser.js("return trace(...arguments)", name, src, tgt_in)
        assert_close(traced["decoded"]["logits"], model.logits(src, tgt_in))
        assert_close(traced["probabilities"], model.shares(src, tgt_in)[-1])
        assert_close(traced["encoded"]["memory"], model.memory(src))
        for kind, layers in model.weights(src, tgt_in).items():
            assert len(layers) == model.model.n_layers
            for layer, heads in zip(layers, traced["heads"][kind], strict=True):
                assert_close([head["weights"] for head in heads], layer)


@both_models
def test_the_page_decodes_what_greedy_decode_does(browser, name):
    model = Model(name)
    choose(browser, name)
    texts, written, longer = {"reverse": (WORDS[:3], str, 5), "en-fr": (SENTENCES, shown, 50)}[name]
    for text in texts:
        paste(browser, text)
        src = np.array([browser.js("return state.src")])
        options = {"bos_id": 1, "eos_id": 2, "backend": "reference"}
        limit = src.shape[1] + longer
        [found] = nf.greedy_decode(model.model, model.params, src, max_len=limit, **options)
        ids = [1, *found]
        assert browser.js("return state.tgt_in") == ids
        tokens = [text.split("\n")[0] for text in browser.texts("#target li")]
        assert tokens == [written(model.content["tokens"][id_]) for id_ in ids]
    if name == "reverse":
        assert browser.text("#said") == "arbez <end>"


def test_a_hidden_token_is_masked_as_padding_is_and_its_effect_is_told(browser):
    model = Model("en-fr")
    place = browser.js("return state.src.findIndex(id => token(id) === 'yellow')")
    browser.click(f"#source li:nth-child({place + 1}) button")
    assert browser.js("return document.activeElement.textContent") == "yellowhidden"
    src, tgt_in = browser.js("return [state.src, read_tokens()]")
    step, id_ = browser.js("return [state.step, state.tgt_in[state.step + 1]]")
    masked = [*src[:place], 0, *src[place + 1 :]]
    script = "return trace('en-fr', state.src, read_tokens(), state.hidden).decoded.logits"
    assert_close(browser.js(script), model.logits(masked, tgt_in))
    was, now = (model.shares(ids, tgt_in)[step, id_] for ids in (src, masked))
    assert was > 0.9 and now < 0.1
    effect = (
        f"‘jaune’ at the selected step is {now:.3f} with ‘yellow’ hidden, and {was:.3f} without"
    )
    assert f"{effect} hiding" in browser.text("#hidden-text")
    assert "Press Write again" in browser.text("#verdict")
    browser.click("#target li:nth-child(2) button")
    assert "changes by less than 0.01 if ‘yellow’ is hidden" in browser.text("#hidden-text")
    browser.click("#end")
    assert "‘jaune’ is missing" in browser.text("#verdict")
    assert not browser.find("#end").is_enabled()  # it would write the same
    browser.click("#begin")
    hidden = "Now ‘yellow’ is hidden: press To the end to write without it."
    assert browser.text("#hidden-text") == hidden
    hide = (
        "for (const s of state.src.keys()) "
        "state.hidden.includes(s) || $('source').children[s].firstChild.click()"
    )
    browser.js(hide)
    assert "looks at nothing, as all source tokens are hidden" in browser.text("#step-text")
    assert "all weights are 0" in browser.text("#part-text")
    browser.click("#end")
    assert browser.text("#verdict").endswith("It was written without reading any source token.")


def test_what_the_page_says_of_a_step_is_what_its_weights_are(browser):
    src, tgt_in, step = browser.js("return [state.src, read_tokens(), state.step]")
    weights = Model("en-fr").weights(src, tgt_in)["memory"][-1].mean(0)
    source, target = browser.js("return [state.src, state.tgt_in].map(ids => ids.map(token))")
    best, most = weights.argmax(-1), weights.max(-1)
    back = [
        t
        for t in range(1, len(best))
        if best[t] == best[t - 1] - 1 and min(most[[t - 1, t]]) >= 0.5
    ]
    assert back == [step] and target[step + 1] == "jaune"
    selected = f"Selected: step {step + 1}, after ‘{target[step]}’, because here two words change"
    share = f"{100 * most[step]:.1f} % of its attention (mean of the 4 heads of layer 2)"
    text = browser.text("#step-text").replace("\u00a0", " ")
    assert text.startswith(f"{selected} places.")
    looks = f"It looks most at ‘{source[best[step]]}’, with {share}, and writes ‘jaune’."
    assert text.endswith(looks)
    swap = (
        "the step that wrote ‘jouet’ looks at ‘toy’, and the step that wrote ‘jaune’, "
        "the next one, at ‘yellow’"
    )
    assert swap in browser.text("#picture-text")
    for text in ["Two dogs play by a tree.", "Three men are cooking in a kitchen.", "A big dog."]:
        paste(browser, text)
        assert browser.text("#picture-text") == "" and "<end>" not in browser.text("#step-text")

    choose(browser, "reverse")
    assert "At 9 of the 9 steps" in browser.text("#picture-text")
    show_text(browser, "transformer")  # longer than those in training
    lesson = "has 11 letters, and no word of the training had more than 10"
    assert lesson in browser.text("#lesson")
    should = "Step 1 should look at the 3rd ‘r’, and looks most at "
    assert browser.text("#picture-text").startswith(should)
    # the text was right when it was written
    browser.js("show_text('hello'); state.hidden = [2]; show()")
    assert "should" not in browser.text("#picture-text")


def test_an_earlier_step_can_be_chosen_and_written_differently(browser):
    browser.click("#target li:nth-child(4) button")
    assert browser.js("return [state.step, document.activeElement.firstChild.data]") == [2, "chien"]
    first, other, *_ = browser.texts("#distribution button")
    assert first == "chien"
    browser.all("#distribution button")[1].click()
    assert browser.js("return state.tgt_in.slice(1).map(token)")[2:] == [other]
    picture = browser.find("#picture svg")
    browser.js("arguments[0].scrollIntoView({block: 'center'})", picture)
    picture.click()
    assert browser.js("return state.step") < 3


def test_what_a_decoder_that_ended_after_a_box_would_write_is_computed_by_its_last_norm_and_output(
    browser,
):
    traced, step, ids = browser.js(f"return [{TRACED}.decoded, state.step, state.tgt_in]")
    boxes = {"embedding-target-0": traced["embedded"]["x"]}
    for i, layer in enumerate(traced["layers"]):
        boxes[f"decoder-target-{i}"] = layer["attention"]["x"]
        boxes[f"memory-target-{i}"] = layer["memory_attention"]["x"]
        boxes[f"feed_forward-target-{i}"] = layer["x"]
    assert len(boxes) == 7
    params = Model("en-fr").params
    norm = params["decoder"]["norm"]
    x = np.array([rows[step] for rows in boxes.values()])
    hidden, _, _ = nf.layer_norm(x, norm["gain"], norm["bias"], 1e-5)
    shares = nf.softmax(hidden @ params["embedding"].T + params["output"]["bias"])
    names = browser.js("return arguments[0].map(told)", shares.argmax(-1).tolist())
    # cross-attention of layer 2 finds the colour
    assert names[-2:] == ["‘jaune’", "‘jaune’"] and names[-3] != "‘jaune’"
    before = None
    for key, name, share in zip(boxes, names, shares, strict=True):
        box = browser.find(f"#part-{key}")
        said = f"{name} {share.max():.2f}"
        word = "would write" if before is None else "still" if before[0] == name else "now"
        assert f"{word} {said}" in box.text
        assert bool(box.find_elements("tag name", "mark")) == (word == "now")
        followed = share[ids[step + 1]]
        style = "return parseFloat(arguments[0].querySelector('.share').style.width)"
        assert abs(browser.js(style, box) - 100 * followed) < 0.06
        box.click()
        text = browser.text("#part-effect")
        assert f"If the decoder ended here, it would write {said}" in text
        if before:
            moved = f"from {before[1]:.3f} to {followed:.3f}"
            moved = f"rises {moved}" if followed > before[1] else f"falls {moved}"
            if abs(followed - before[1]) < 5e-4:
                moved = f"stays {followed:.3f}"
            assert f"The probability of ‘jaune’, which follows, {moved}." in text
        before = name, followed
    browser.click("#part-feed_forward-source-0")
    # the text does not end in the encoder
    assert "the decoder ended" not in browser.text("#part-effect")


# The boxes of the sublayers, in the order of their calls.
OF_ENCODER = [f"{kind}-source-{i}" for i in (0, 1) for kind in ("encoder", "feed_forward")]
OF_DECODER = [
    f"{kind}-target-{i}" for i in (0, 1) for kind in ("decoder", "memory", "feed_forward")
]
TITLES = {
    "decoder": "causal self-attention",
    "memory": "cross-attention",
    "feed_forward": "feed-forward",
}


def what_a_box_was_given(box):
    """Its input in the place of its sum with the result: of all source tokens, or of the last
    target token.
    """
    place = np.s_[:] if box in OF_ENCODER else np.s_[:, -1]

    def change(y, ops, params, norm_params, z, x, *others):
        y[place] = x[place]
        return y

    return change


@both_models
def test_a_box_is_credited_by_leaving_out_what_it_adds(browser, monkeypatch, name):
    """The probabilities without each box are npformer's with that residual addition set to 0
    in the last row.
    """
    choose(browser, name)
    text, steps = {
        "reverse": ("attention", [0, 4]),
        "en-fr": ("There is a big white dog.", [0, 1, 7]),
    }[name]
    show_text(browser, text)
    turns = set()
    for step in steps:
        browser.js("choose_step(arguments[0]), show()", step)
        src, tgt_in = browser.js("return [state.src, state.tgt_in]")
        args, id_ = (src, tgt_in[: step + 1]), tgt_in[step + 1]
        whole = Model(name).shares(*args)[-1]
        left = {}
        for number, box in enumerate([*OF_ENCODER, *OF_DECODER]):
            change = what_a_box_was_given(box)
            with changed_call(monkeypatch, "add_and_norm", number, change) as numbers:
                shares = Model(name).shares(*args)[-1]
            assert next(numbers) == 10
            left[box] = shares[id_]
            kind, side, layer = box.split("-")
            described = {"kind": kind, "side": side, "layer": int(layer)}
            script = f"return shares_without(arguments[0], {TRACED})"
            assert_close(browser.js(script, described), shares)
            browser.js("$(`part-${arguments[0]}`).click()", box)
            text = browser.text("#part-effect")
            assert text.startswith("Without this box")
            assert f" {shares[id_]:.2f} instead of {whole[id_]:.2f}" in text
            assert ("the most probable would be" in text) == (shares.argmax() != id_)

        falls = {box: whole[id_] - left[box] for box in OF_DECODER}
        most = max(falls.values())
        needed = [box for box in sorted(falls, key=falls.get)[::-1] if 2 * falls[box] > most]
        told = []
        for kind, _, layer in (box.split("-") for box in needed):
            told.append(f"the {TITLES[kind]} of layer {int(layer) + 1}")
        turn = browser.text("#turn")
        if most < whole[id_] / 4:
            turns.add("none")
            assert turn.startswith("No box alone decides on ") and told[0] in turn
        elif len(told) == 1:
            turns.add("one")
            assert turn.startswith(f"Without what {told[0]} adds, ")
            would = f"would have {left[needed[0]]:.2f} instead of {whole[id_]:.2f}."
            assert turn.endswith(would)
        else:
            turns.add("several")
            assert turn.startswith("Several boxes are needed for ")
            assert turn.count("the ") == len(told) and all(box in turn for box in told)
    assert len(turns) > 1


# -- heads that are left out -----------------------------------------------------------------------


def fewest_changes(a, b):
    """The edit distance of two lists."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        new = [i]
        for j, y in enumerate(b, 1):
            new.append(min(new[-1] + 1, row[j] + 1, row[j - 1] + (x != y)))
        row = new
    return row[-1]


@both_models
def test_what_is_written_without_a_head_is_npformers_with_the_output_of_this_head_set_to_zero(
    browser, monkeypatch, name
):
    choose(browser, name)
    text = {"reverse": "transformer", "en-fr": "A dog runs outside with a yellow toy."}[name]
    show_text(browser, text)
    browser.click("#each")
    browser.wait_for("$('each-text').innerText")
    model = Model(name)
    src, whole = browser.js("return [state.src, without.own.ids]")
    limit = browser.js("return task().limit(state.src.length)")

    def logits_without(head, tgt_in):
        """npformer's logits with the output of one head set to 0."""
        width = model.model.d_model // model.model.n_heads
        columns = np.s_[..., head["head"] * width : (head["head"] + 1) * width]

        def change(heads, *args):  # (B, T, D), side by side
            heads = heads.copy()
            heads[columns] = 0
            return heads

        patched = "cross_attention_heads" if head["kind"] == "memory" else "self_attention_heads"
        before = model.model.n_layers if head["kind"] == "decoder" else 0
        with changed_call(monkeypatch, patched, before + head["layer"], change):
            return model.logits(src, tgt_in)

    def loss_of(logits):
        shares = nf.softmax(logits)
        return -np.mean([np.log(shares[t, id_]) for t, id_ in enumerate(whole[1:])])

    def units(ids):
        text = browser.js("return text_of(arguments[0])", ids)
        return list(text) if name == "reverse" else re.findall(r"[\w-]+['’]?", text.lower())

    loss_of_all = loss_of(model.logits(src, whole[:-1]))
    heads = browser.js("return all_heads().flat()")
    assert len(heads) == 3 * model.model.n_layers * model.model.n_heads
    n_changed = {}
    for head in heads:
        id_of_head = head["name"]
        script = "return output_without([arguments[0]], state.src, [], without.own.ids)"
        output = browser.js(script, id_of_head)
        loss = loss_of(logits_without(head, whole[:-1]))
        assert abs(output["loss"] - loss) < 1e-9
        ids = output["ids"]
        assert ids[-1] == 2 or len(ids) == limit + 1
        best = 1 + logits_without(head, ids[:-1])[:, 1:].argmax(-1)  # padding is never written
        assert ids == [1, *best]
        changed = n_changed[id_of_head] = fewest_changes(units(ids), units(whole))
        word, *_, told = browser.text(f"[id='without-{id_of_head}'] span").split()
        assert word == (str(changed) if changed else "same")
        assert abs(as_number(told) - (loss - loss_of_all)) < 0.005 + 1e-9
    most = max(heads, key=lambda head: n_changed[head["name"]])
    n_most = n_changed[most["name"]]
    told = browser.text("#each-text")
    assert n_most > 0 and f"head {most['head'] + 1} of the " in told
    assert f": {n_most} of {len(units(whole))}." in told
    n_idle = list(n_changed.values()).count(0)
    assert (f" {n_idle} of the {len(heads)} heads change no " in told) == (n_idle > 0)


def effects_of(browser, press="#each"):
    """What the page has measured without each head, after a button was pressed."""
    browser.find(press).send_keys(Keys.SPACE)
    browser.wait_for("$('each-text').innerText")
    return browser.js("return Object.fromEntries(without.effects)")


def test_heads_that_are_left_out_are_shown_beside_the_whole_model_and_can_be_put_back(browser):
    head, said = "[id='without-memory.1.0']", "#without-said"
    assert "Press a head" in browser.text(said)
    browser.find(head).send_keys(Keys.ENTER)
    assert browser.all(f"{head}[aria-pressed=true]") and browser.all(f"{said} mark")
    with_all, other = browser.texts(f"{said} .said")
    assert with_all == browser.text("#said").removesuffix(" <end>") and other != with_all
    assert "Without head 1 of the cross-attention, layer 2" in browser.text(said)
    browser.find(f"{said} button").send_keys(Keys.ENTER)  # where it looks
    assert browser.js("return [state.kind, state.layer, state.head]") == ["memory", 1, 0]
    assert browser.text("#heads [aria-pressed=true]") == "head 1"

    show_text(browser, "Two dogs play by a tree.")  # the head stays left out
    assert browser.all(f"{head}[aria-pressed=true]") and "Without head 1" in browser.text(said)
    browser.find("#all-heads").send_keys(Keys.ENTER)
    assert browser.focused() == "without-memory.1.0" and "Press a head" in browser.text(said)

    effects = effects_of(browser)
    idle = {f"without-{name}" for name, effect in effects.items() if not effect["changed"]}
    browser.find("#idle").send_keys(Keys.ENTER)
    pressed = browser.all("#without-heads [aria-pressed=true]")
    assert {button.get_attribute("id") for button in pressed} == idle
    assert f"Without {len(idle)} heads" in browser.text(said)

    choose(browser, "reverse")  # which has other heads
    assert len(browser.all("#without-heads td button")) == 12
    effect = effects_of(browser, "[name=measured][value=examples]")["memory.1.0"]
    script = """
        const texts = [...$('examples').options].map(({ value }) => value).filter(Boolean);
        return texts.map((text) => {
          const src = source_of(state.name, text);
          const whole = output_without([], src, []);
          const output = output_without(['memory.1.0'], src, [], whole.ids);
          return [changed_units(output).length, output.loss - whole.loss, whole.ids.length - 1];
        });
    """
    changed, losses, n_tokens = np.transpose(browser.js(script))
    assert effect["changed"] == changed.sum() > 1
    assert abs(effect["loss"] - np.average(losses, weights=n_tokens)) < 1e-9


def test_a_guess_which_head_is_needed_most_is_judged(browser):
    def measured():
        effects = effects_of(browser)
        harm = {name: (effect["changed"], effect["loss"]) for name, effect in effects.items()}
        return [(name, effects[name]) for name in sorted(harm, key=harm.get, reverse=True)]

    def signed(effect):
        return f"{effect['loss']:+.2f}".replace("-", "−")

    def guessing():
        return browser.find("#guessed-head").is_enabled(), browser.text("#guess-text")

    order = measured()
    assert guessing() == (False, "")  # nothing was guessed, and the answer stands there
    for rank in (0, 3):
        show_text(browser, "Two dogs play by a tree.")
        assert browser.text("#each-text") == "" and guessing() == (True, "")
        show_text(browser, "A dog runs outside with a yellow toy.")
        name, own = order[rank]
        browser.click(f"#guessed-head option[value='{name}']")
        assert "my guess" in browser.text(f"[id='without-{name}']")
        assert guessing() == (True, "")
        assert measured() == order
        text = f"{browser.text('#guess-result')} {browser.text('#guess-text')}"
        (_, most), (_, second) = order[:2]
        if rank:
            fewer = most["changed"] - own["changed"]
            less = most["loss"] - own["loss"]
            assert text == (
                "✗ Your guess was not right. It is number 4 of 24. "
                f"Without it, {own['changed']} of {own['of']} words change, {fewer} fewer than "
                f"without the first, and the loss changes by {signed(own)}, {less:.2f} less than "
                "without the first."
            )
        else:
            right = "✓ Your guess was right. Without the head that comes next, head "
            words = f"{second['changed']} of {second['of']} words change"
            assert text.startswith(right)
            assert text.endswith(f"{words}, and the loss changes by {signed(second)}.")
    choose(browser, "reverse")
    assert browser.value("#guessed-head") == browser.text("#guess-text") == ""
    assert len(browser.all("#guessed-head option")) == 13


def test_the_address_keeps_the_heads_that_are_left_out(browser, look, path):
    for name in ("memory.1.0", "encoder.0.3"):
        browser.click(f"[id='without-{name}']")
    said, address = browser.text("#without-said"), browser.address()
    assert address.endswith("&without=memory.1.0+encoder.0.3")
    look(path, address=address)
    assert browser.text("#without-said") == said and "Without 2 heads" in said
    assert browser.text("#message") == ""
    choose(browser, "reverse")  # which has no fourth head
    assert browser.address().endswith("&without=memory.1.0")
    browser.click("#all-heads")
    assert "without" not in browser.address()

    browser.follow("model=reverse&text=level&without=decoder.1.1")
    assert "decoder, layer 2" in browser.text("#without-said")
    assert browser.text("#said") == "level <end>"


NO_HEADS = ["constructor", "__proto__", "memory.9.9", "memory.-1.0", "<b>x</b>", "memory.0"]
NO_HEADS += ["memory.1.0,encoder.0.0", "memory.1.0+memory.1.0+attic"]


def test_heads_in_an_address_are_looked_up_in_the_table_of_the_model(browser):
    for names in NO_HEADS:
        browser.follow(f"model=reverse&text=level&without={names}")
        known = ["memory.1.0"] if "attic" in names else []
        assert browser.js("return without.heads") == known
        assert "heads that this model does not have" in browser.text("#message")
        assert ("without" in browser.address()) == bool(known)
        assert browser.text("#said").endswith("<end>")


# -- a weight that is worked out -------------------------------------------------------------------


@both_models
def test_a_weight_that_is_worked_out_is_that_of_the_model(browser, name):
    """q · k, the score and the weight as text,
    and the columns that add up to the output of the head.
    """
    choose(browser, name)
    src, tgt_in, step = browser.js("return [state.src, read_tokens(), state.step]")
    weights = Model(name).weights(src, tgt_in)
    traced = browser.js(f"return {TRACED}.heads")

    def numbers_of(table):
        rows = f"#head .worked .scroll:nth-of-type({table}) tbody tr"
        texts = browser.texts(f"{rows} .value")
        return np.reshape([as_number(text) for text in texts], (len(browser.all(rows)), -1))

    for kind, side, layer, head in [
        ("memory", "target", 1, 0),
        ("memory", "target", 0, 1),
        ("decoder", "target", 1, 1),
        ("encoder", "source", 0, 0),
    ]:
        browser.click(f"#part-{kind}-{side}-{layer}")
        browser.click(f"#heads button:nth-child({head + 1})")
        row = browser.js(f"return framed({TRACED}, state.side)")
        assert side == "source" or row == step
        expected = weights[kind][layer][head, row]
        q, k, v = (np.array(traced[kind][layer][head][x]) for x in "qkv")
        # of the strongest key
        assert browser.text("#worked-weight") == f"{expected.max():.4f}"
        for key in (0, len(expected) - 1):
            script = "$('key').value = arguments[0]; $('key').dispatchEvent(new Event('change'))"
            browser.js(script, key)
            assert browser.focused() == "key"
            text = browser.text("#head .worked").replace("−", "-")
            if kind == "decoder" and key > row:
                assert "This key is masked" in text and not browser.all("#worked-weight")
                continue
            assert browser.text("#worked-weight") == f"{expected[key]:.4f}"
            dot = q[row] @ k[key]
            assert f"q · k = {dot:.6f}" in text
            assert f"the score is {dot:.6f} / 4.000 = {dot / 4:.6f}" in text
            said = r"exp\((.*?)\) = (.*?), and .*, ([\d.,e+-]+)\. The weight is (.*?) / (.*?) ="
            score, e, total, *again = map(as_number, re.search(said, text).groups())
            np.testing.assert_allclose(np.exp(score), e, rtol=5.1e-8)  # as a calculator finds it
            assert again == [e, total] and f"{e / total:.4f}" == browser.text("#worked-weight")
            assert_close(numbers_of(1), [q[row], k[key], q[row] * k[key]], atol=0.00501)
            *parts, output = numbers_of(2)
            assert_close(output, expected @ v, atol=0.00501)
            # each part is rounded
            assert_close(np.sum(parts, axis=0), expected @ v, atol=0.021)
    assert name == "reverse" or len(expected) == 11


def test_a_weight_is_worked_out_without_scrolling_then_that_of_a_cell_that_is_pressed(browser):
    assert [wide <= 0 for wide in browser.overflows(".worked .scroll")] == [True, True]
    browser.js("$('head').querySelector('svg').focus()")
    browser.press(Keys.ARROW_UP, Keys.ARROW_LEFT, Keys.ENTER)
    row, key, step = browser.js(f"return [framed({TRACED}, 'target'), state.key, state.step]")
    assert row == step == 7 and browser.value("#key") == str(key)
    assert "Query ‘un → jouet’" in browser.text("#head .worked")
    browser.click("#part-encoder-source-1")
    browser.js("$('head').querySelector('svg').focus()")
    browser.press(Keys.HOME, *[Keys.ARROW_UP] * 11, Keys.ENTER)
    assert browser.js("return [state.row, state.key, state.step]") == [0, 0, 7]
    assert "The source token ‘↑’ attends" in browser.text("#part-text")
    browser.js("$('target').querySelectorAll('button')[1].click()")
    assert browser.js("return [state.row ?? null, state.key ?? null]") == [None, None]
    assert "at which the selected step looks most" in browser.text("#part-text")


# -- who decided on a token ------------------------------------------------------------------------


def test_texts_know_which_tokens_the_reader_chose(browser):
    browser.js("write(state.tgt_in.slice(0, 9)), write([...state.tgt_in, id_of('rouge')], true)")
    assert "and has not written yet: ‘.’ is the most probable" in browser.text("#step-text")
    browser.click("#end")
    browser.click("#target li:nth-child(10) button")
    said = browser.text("#step-text")
    assert "which you selected." in said
    assert said.endswith("and would write ‘jaune’. You chose ‘rouge’ instead.")
    browser.says(
        {
            "#picture-text": "and the step at which you chose ‘rouge’, the next one, at ‘yellow’",
            "#part-output-target-0": "you chose ‘rouge’, which is read next",
        }
    )
    browser.click("#part-feed_forward-target-1")
    browser.says(
        {
            "#part-effect": "The probability of ‘rouge’, which you chose,",
            "#lesson": "the lowest at ‘rouge’, which you chose",
        }
    )
    assert "wrote ‘rouge’" not in browser.text("main")
    browser.js(
        "take_all(), write([...state.tgt_in.slice(0, 9), id_of('jaune')], true), "
        "choose_step(8), show()"
    )
    assert browser.text("#step-text").endswith("and would write ‘jaune’. You chose the same.")


def test_texts_know_which_letters_are_hidden(browser):
    choose(browser, "reverse")
    show_text(browser, "level")
    browser.click("#source li:last-child button")
    browser.says({"#hidden-text": "with the 2nd ‘l’ hidden", "#step-text": "which stays selected"})
    browser.says({"#step-text": "‘l’ was written before you changed what is hidden"})
    browser.click("#end")
    assert browser.text("#said") == "evel <end>"
    assert browser.text("#verdict").endswith("It was written without reading the 2nd ‘l’.")
    browser.click("#begin")
    assert browser.text("#hidden-text").startswith("Now the 2nd ‘l’ is hidden")
    assert browser.text("#picture-text") == "Step 1 cannot look at the 2nd ‘l’, which is hidden."
    choose(browser, "en-fr")
    browser.js("state.hidden = [0], show()")
    browser.says({"#verdict": "Hiding ‘↑’ changes none of its tokens."})


def test_drawing_at_random_waits_until_one_writes(browser):
    before = browser.text("#said")
    browser.click("#draw")
    assert browser.text("#said") == before and browser.text("#end") == "Write again"
    browser.says({"#temperature-text": "What is written stays."})
    browser.js("Math.random = () => 0.97")
    browser.click("#end")
    script = "state.tgt_in.map((id, t) => t && id !== state.best[t - 1] ? t : 0).filter(t => t)"
    drawn, n = browser.js(f"return [{script}, state.tgt_in.length - 1]")
    browser.click(f"#target li:nth-child({drawn[0] + 1}) button")
    assert browser.text("#step-text").endswith("was drawn at random.")
    browser.says({"#lesson": f"At {len(drawn)} of {n} tokens, chance drew another one"})


def test_a_word_without_which_the_same_is_written_is_told(browser):
    for text, word, pieces in [
        ("Two men dressed in green are preparing food in a restaurant.", "food", ["food"]),
        ("A man is not running.", "not", ["n", "·ot"]),
        ("A police car is parked.", "police", ["police"]),
        ("The man who is wearing a blue shirt is eating an apple.", None, []),
    ]:
        show_text(browser, text)
        if not word:
            assert "is hidden" not in browser.text("#lesson")
            continue
        same = f"The same words are written if ‘{word}’ is hidden. Hide it to see how their"
        browser.says({"#lesson": f"{same} probabilities change."})
        before = browser.text("#said")
        hide = (
            "state.src.forEach((id, s) => arguments[0].includes(token(id)) && state.hidden.push(s))"
        )
        browser.js(f"{hide}; write([BOS]), take_all()", pieces)
        assert browser.js("return state.hidden.length") == len(pieces)
        assert browser.text("#said") == before
    for button in browser.all("#hint button"):
        browser.js("arguments[0].click()", button)
        assert browser.text("#verdict") == "Right."


def test_temperature_changes_the_distribution_and_what_is_drawn(browser):
    every, step = browser.js(f"return [{TRACED}.decoded.logits, state.step]")
    every = np.array(every)
    logits = every[step]
    browser.find("#temperature").send_keys(Keys.ARROW_RIGHT * 10)
    assert browser.text("#temperature-shown") == "2.0"
    expected = np.sort(nf.softmax(logits / 2))[::-1]
    # how sure the model is does not depend on the temperature
    assert "Low p" not in browser.text("#lesson")
    column = browser.texts("#distribution td:nth-child(3)")
    assert column == [f"{p:.4f}" for p in expected[:6]]
    n = int((np.cumsum(expected) < 0.9).sum()) + 1
    browser.says({"#temperature-text": f"here {n} together have at least 90 %"})
    ids = browser.js("return state.tgt_in.slice(1)")
    shares = nf.softmax(every)[np.arange(len(ids)), ids]
    assert browser.texts("#target small") == [f"p {share:.2f}" for share in shares]
    browser.says({"#part-feed_forward-target-1": f"{nf.softmax(logits).max():.2f}"})

    uniform = (np.arange(4000) + 0.5) / 4000
    script = "const [logits, u] = arguments; return u.map(x => sample(logits, 2, x))"
    drawn = browser.js(script, logits.tolist(), uniform.tolist())
    without_padding = nf.softmax(np.where(np.arange(len(logits)) == 0, -np.inf, logits / 2))
    n_drawn = np.bincount(drawn, minlength=len(logits))
    assert_close(n_drawn / 4000, without_padding, atol=1 / 4000)
    browser.click("#draw")
    browser.js("Math.random = () => 0.999999")  # an improbable token each time
    browser.click("#begin")
    browser.click("#next")
    assert browser.js("return state.tgt_in[1] !== 10")  # the most probable one


def test_the_numbers_in_the_tables_are_those_that_were_computed(browser):
    choose(browser, "reverse")
    src = [3 + ord(letter) - ord("a") for letter in "model"]
    paste(browser, "model")
    browser.click("#begin")
    logits = Model("reverse").logits(src, [1])[-1]
    cells = iter(browser.texts("#distribution td"))
    rows = list(
        zip(*[cells] * (len(browser.all("#distribution tbody tr:first-child td"))), strict=True)
    )
    assert len(rows) > 3
    for row, id_ in zip(rows, np.argsort(-logits), strict=False):
        name = ["<pad>", "<begin>", "<end>"][id_] if id_ < 3 else chr(ord("a") + id_ - 3)
        logit = f"{logits[id_]:.3f}".replace("-", "−")
        assert row[:3] == (name, logit, f"{nf.softmax(logits)[id_]:.4f}")

    weights = Model("reverse").weights(src, [1])["memory"][-1][0]
    browser.js("document.querySelector('#head summary').click()")
    cells = browser.texts("#head details[open]:not(.worked) td:not(:empty)")
    assert cells == [f"{weight:.4f}" for weight in weights.ravel()]


def test_the_page_says_how_good_the_models_are(browser):
    about = Model("en-fr").content["about"]
    browser.says({"#about": f"BLEU {about['bleu_lower']}"})
    browser.says({"#about": f"it translates {about['n_exact']} exactly"})
    choose(browser, "reverse")
    browser.says({"#about": "It reverses 100.0 %"})


def test_the_examples_are_translated_as_the_page_says_and_the_lesson_tells_why_one_fails(browser):
    for example in Model("en-fr").content["examples"]:
        show_text(browser, example["text"])
        assert browser.text("#said") == f"{example['translation']} <end>"
        verdict = browser.text("#verdict")
        is_right = example["translation"] == example["reference"]
        assert verdict.startswith("Right: ") == is_right
        if not is_right:
            assert f"“{example['reference']}”" in verdict
            assert " differ." in verdict or "instead of" in verdict
        for word, n in example["rare"].items():
            browser.says({"#lesson": f"{n} have ‘{word}’"})
    show_text(browser, "A pretty woman plays a harpsichord.")
    shares = [float(text[2:]) for text in browser.texts("#target small")]
    n_unsure = sum(p < 0.5 for p in shares)
    assert len(browser.all("#target .unsure")) == n_unsure > 0
    for words in (
        "0 have ‘harpsichord’",
        "h·ar·ps·ich·ord",
        f"at {n_unsure} of {len(shares)} tokens",
    ):
        browser.says({"#lesson": words})


# -- text to tokens --------------------------------------------------------------------------------


def test_marks_are_npformers(browser):
    lines = [*LINES, *SENTENCES, "𐐀b İ"]
    marked = [mark(line) for line in lines]
    assert browser.js("return arguments[0].map(mark)", lines) == marked
    unmarked = [unmark(line) for line in marked]
    assert browser.js("return arguments[0].map(unmark)", marked) == unmarked


def test_tokens_are_npformers(browser):
    for example in Model("en-fr").content["examples"]:
        ids = browser.js("return source_of('en-fr', arguments[0])", example["text"])
        assert ids == [*example["ids"], 2]

    pytest.importorskip("sentencepiece")
    subwords = nf.data.Subwords.learn([*LINES, *SENTENCES] * 2, size=140)
    pieces = subwords.pieces(range(len(subwords)))
    script = """
        const [pieces, lines] = arguments, subwords = new Subwords(pieces);
        return lines.map(line => [subwords.encode(line), subwords.decode(subwords.encode(line))]);
    """
    lines = [*LINES, *SENTENCES, "Unknown: ЖЖ, z"]
    expected = subwords.encode(lines)
    for (ids, text), ours in zip(browser.js(script, pieces, lines), expected, strict=True):
        assert ids == ours.tolist()
        assert text.split() == subwords.decode([ours])[0].split()


# -- keyboard, screens and readers -----------------------------------------------------------------

FOCUS = "document.activeElement"
UP, DOWN, LEFT, RIGHT = Keys.ARROW_UP, Keys.ARROW_DOWN, Keys.ARROW_LEFT, Keys.ARROW_RIGHT
# Where Tab goes, what is pressed, and what is then so.
BY_KEYBOARD = [
    ("[name=model]", [RIGHT], "state.name", "reverse"),
    ("", [LEFT], "state.name", "en-fr"),
    ("#text", [Keys.CONTROL, "a"], f"{FOCUS}.id", "text"),
    ("", ["Two dogs play.", Keys.ENTER], "$('said').innerText.endsWith('jouent. <end>')", True),
    ("", [Keys.TAB, DOWN], "$('said').innerText.startsWith('Un chien court')", True),
    ("", [DOWN], "$('said').innerText.startsWith('Une fille blonde')", True),
    ("#picture svg", [DOWN], "row_read_out() - state.step", 2),
    ("", [UP, UP, Keys.ENTER], f"[row_read_out() - state.step, {FOCUS}.localName]", [1, "svg"]),
    ("#source button", [Keys.TAB, Keys.SPACE, Keys.SPACE], "state.hidden", []),
    ("", [Keys.SPACE], "state.hidden", [1]),
    ("#target button", [Keys.TAB, Keys.ENTER], "state.step", 1),
    ("#temperature", [LEFT], "state.temperature", 0.9),
    ("#draw", [Keys.SPACE, Keys.SPACE], "state.draw", False),
    ("#begin", [Keys.ENTER], "state.tgt_in.length", 1),
    ("#distribution button", [Keys.ENTER], "state.tgt_in.length", 2),
    ("", [], f"{FOCUS}.matches('#distribution button')", True),
    ("#part-encoder-source-0", [Keys.SPACE], f"{FOCUS}.id", "part-encoder-source-0"),
    ("", [], "$('part-title').innerText", "Encoder, layer 1: self-attention"),
    ("#heads button[aria-pressed=false]", [Keys.SPACE], "state.head", 1),
    ("#head svg", [RIGHT, DOWN], "/[(]2[)]: /.test($('head').innerText)", True),
    ("#next", [Keys.ENTER, Keys.ENTER], "state.tgt_in.length", 4),
    # the button itself is disabled now
    ("#end", [Keys.SPACE], f"[$('said').innerText.slice(-5), {FOCUS}.id]", ["<end>", "begin"]),
    ("", [Keys.ENTER], f"[state.tgt_in, {FOCUS}.id]", [[1], "next"]),
]


def test_everything_works_by_keyboard(browser):
    read_out = "document.querySelector('#picture .readout').innerText"
    browser.js(f"row_read_out = () => Number(/[(](\\d+)[)], looks at/.exec({read_out})[1])")
    browser.by_keyboard(BY_KEYBOARD)


def test_the_focus_and_open_tables_stay_while_decoding(browser):
    choose(browser, "reverse")
    browser.click("#begin")
    for summary in browser.all("#head summary"):
        summary.send_keys(Keys.ENTER)  # what is inside of the second one comes after it
    for _ in range(20):
        if browser.js("return is_finished()"):
            break
        browser.tab_to("#distribution button")
        browser.press(Keys.ENTER)
    assert browser.js(f"return {FOCUS}.matches('#distribution button')")
    assert len(browser.all("#head details[open]:not(.worked)")) == 4


@pytest.mark.parametrize("width", [320, 1200])
@both_models
def test_it_fits_every_screen_and_theme(look, path, name, width):
    browser = look(path, width, address=f"model={name}")
    script = """
        const widths = [];
        $('begin').click();
        while (!is_finished()) { $('next').click(); widths.push(document.body.scrollWidth); }
        return widths;
    """
    assert max(browser.js(script)) <= width  # at every step, as the tokens differ
    browser.js("document.querySelectorAll('.fold').forEach(node => { node.open = true; })")
    browser.js("for (let i = 0; i < 4; i++) $('back').click()")
    for box in ["embedding-target-0", "feed_forward-source-0", "encoded-source-0",
                "decoder-target-1", "memory-target-1"]:  # fmt: skip
        browser.click(f"#part-{box}")
        inner = "document.querySelectorAll('details:not(.fold) > summary')"
        browser.js(f"{inner}.forEach(summary => summary.click())")
        browser.check_screens(width, f"{name} {box}")


def test_a_telephone_folds_what_is_secondary(look, path):
    browser = look(path, 380)
    n_folds = len(browser.all(".fold"))
    assert n_folds and not browser.all(".fold[open]")
    assert browser.js("return document.documentElement.scrollHeight") <= 4500
    browser.check_screens(380, "folded")
    for summary in browser.all(".fold > summary"):
        browser.js("arguments[0].focus()", summary)
        browser.press(Keys.ENTER)
    assert len(browser.all(".fold[open]")) == n_folds
    browser.check_screens(380, "unfolded")


def test_what_a_link_or_the_guide_shows_is_unfolded(look, path):
    browser = look(path, 380, address="model=en-fr&without=memory.1.0")
    assert browser.shows("#without-said") and not browser.shows("#part")
    browser.click("#without-said button")  # where the head looks
    assert browser.shows("#part")
    browser = look(path, 380)
    browser.js("document.querySelector('#guide li button').click()")
    assert browser.shows(".pointed") and browser.shows("#part")


def test_a_wide_screen_folds_nothing(browser):
    assert len(browser.all(".fold")) == len(browser.all(".fold[open]")) > 0
    assert not any(node.is_displayed() for node in browser.all(".fold > summary"))


@both_models
def test_any_text_is_taken_or_refused_with_a_message(browser, name):
    choose(browser, name)
    for text in ("", "  ", "123", "x" * 100):
        browser.click("#begin")
        paste(browser, text)
        assert browser.text("#message") or name == "en-fr"
        browser.click("#next" if name == "reverse" else "#end")
    for text in ("constructor", "toString"):  # names that every object of the language has
        paste(browser, text)
        assert browser.text("#said")


LEFT_OUT = [
    ("reverse", "h3llo", "Only the letters from a to z are taken."),
    ("reverse", "hello", ""),
    ("reverse", "a" * 21, "Only the first 20 tokens are taken."),
    ("en-fr", "Two dogs play.", ""),
    ("en-fr", "", "Type an English sentence: the page still shows the last source."),
    ("en-fr", "日本 play",
     "It does not know the characters 日 本; each run of them becomes ‘<unk>’."),
    ("en-fr", "日 play", "It does not know the character 日; it becomes ‘<unk>’."),
    ("en-fr", "a " * 41, "Only the first 40 tokens are taken."),
]  # fmt: skip


def test_what_is_left_out_of_a_text_is_told(browser):
    for name, text, message in LEFT_OUT:
        choose(browser, name)
        paste(browser, text)
        assert browser.text("#message") == message
        signs = browser.text("#signs")
        assert ("<unk>: unknown" in signs) == ("日" in browser.value("#text"))
        if text == "日本 play":
            assert browser.text("#read") == "<unk> play" and "(space): a word begins" in signs
            browser.says({"#verdict": "the page cannot say what is right"})
    src = browser.js("return state.src")
    assert len(src) == 41 and src[-1] == 2  # the end token, which the model was trained on
    paste(browser, "A man has xylophones")  # without a full stop, the end token follows the word
    parts = r"Cut into parts: [\w·]+\. English and French share one table"
    assert re.search(parts, browser.text("#lesson"))


def test_each_box_of_the_drawing_shows_what_it_computes(browser):
    titles = {}
    for id_ in browser.js("return [...$('diagram').querySelectorAll('button')].map(box => box.id)"):
        browser.click(f"#{id_}")
        pressed = browser.all("#diagram [aria-pressed=true]")
        assert [box.get_attribute("id") for box in pressed] == [id_]
        assert browser.all("#head svg") or "tokens" in id_
        titles[id_] = browser.text("#part-title")
    assert len(set(titles.values())) == len(titles) == 16
    assert titles["part-memory-target-0"] == "Decoder, layer 1: cross-attention"


# -- verdicts --------------------------------------------------------------------------------------


OF_LETTERS = [
    ("", "It should write ‘oof’."),
    ("oo", "Right so far. Missing: ‘f’."),
    ("oof", "All letters are right. The end is missing."),
    ("oof.", "Right: ‘oof’ is ‘foo’ backwards."),
    ("of", "Wrong: letter 2 is ‘f’ instead of ‘o’. ‘foo’ backwards is ‘oof’."),
    ("oo.", "Wrong: it ends after 2 of 3 letters; next should come ‘f’. "
            "‘foo’ backwards is ‘oof’."),
    ("ooff.", "Wrong: letter 4 is ‘f’ and should not be there. ‘foo’ backwards is ‘oof’."),
    ("emroffsnart.", "Wrong: ‘r’ is skipped, ‘f’ is doubled. "
                     "‘transformer’ backwards is ‘remrofsnart’."),
    ("oofooooo", "Wrong: letter 4 is ‘o’ and should not be there. ‘foo’ backwards is ‘oof’. "
                 "The page stops after 8 tokens without an end."),
]  # fmt: skip


def test_the_verdict_names_the_first_wrong_letter(browser):
    choose(browser, "reverse")
    for written, verdict in OF_LETTERS:
        show_text(browser, "transformer" if "transformer" in verdict else "foo")
        ids = [2 if letter == "." else ord(letter) - ord("a") + 3 for letter in written]
        browser.js("write([1, ...arguments[0]])", ids)
        assert browser.text("#verdict") == verdict
        is_wrong = verdict.startswith("Wrong")
        assert len(browser.all("#target .wrong")) == is_wrong
        assert ("red border" in browser.text("#signs")) == is_wrong


OF_WORDS = [
    ("Un chien court dehors avec un jouet.", "Different from {}: ‘jaune’ is missing."),
    ("Un chien court dehors avec un jouet rouge.",
     "Different from {}: ‘rouge’ instead of ‘jaune’. This can be"),
    ("Un chien court dehors avec un jouet jaune",
     "The same words as {}. Only signs or capital letters differ."),
    ("Un gros chien court dehors avec un jouet jaune.", "Different from {}: ‘gros’ is added."),
    (
        "Un chien court avec un ballon jaune.",
        "Different from {}: ‘dehors’ is missing, ‘ballon’ instead of ‘jouet’.",
    ),
    ("Deux hommes sont assis.", "Far from {}: 8 words differ."),
    ("Deux hommes sont assis dans un parc", "So far not close to {}: 6 words differ."),
    ("Un chien cou", "So far the same words as the translation in the data set: “"),
    ("Un chien court dehors avec un jouet rouge",
     "So far different from {}: ‘rouge’ instead of ‘jaune’."),
]  # fmt: skip


def test_the_verdict_compares_words(browser):
    script = """
        const [text, has_ended] = arguments, ids = chosen('en-fr').vocabulary.encode(text);
        write([1, ...ids, ...(has_ended ? [2] : [])]);
    """
    translation = "the translation in the data set, “Un chien court dehors avec un jouet jaune.”"
    for written, difference in OF_WORDS:
        browser.js(script, written, not difference.startswith("So far"))
        assert browser.text("#verdict").startswith(difference.format(translation))


def test_the_lesson_names_why_a_sentence_of_ones_own_fails(browser):
    for text, reason in [
        ("A cat and a dog.", "Cut into parts: c·at."),
        ("THE DOG RUNS", "Words in capital letters (THE, DOG, RUNS)"),
        ("I love you.", "Cut into parts: lo·ve, y·ou. "),
        ("A crowd is present at a bar.", "It repeats ‘·ir’"),
    ]:
        show_text(browser, text)
        browser.says({"#lesson": reason})
    show_text(browser, "Wow !!!")
    assert "repeats" not in browser.text("#lesson")  # as the source does
    show_text(browser, "A crowd is present at a bar.")
    # not all have a high p
    assert "does not say that it is right" not in browser.text("#lesson")


# -- experiments -----------------------------------------------------------------------------------

# The outlined cells; what is written, with the beginning of the answer, a number in it, and the
# verdict.
EXPERIMENTS = [
    ([(3, 4), (4, 3)], "Un petit chien noir court. <end> The first passes over ‘black’",
     "(96.", ""),
    ([(8, 7)], "Un chien court dehors avec un jouet. <end> None", "", ""),
    ([(8, 7)], "jouet rouge. <end> The step at which ‘rouge’ was chosen still looks at ‘yellow’",
     "", "you chose ‘rouge’ instead of ‘jaune’."),
    ([(2, 6)], "Un chien et un chien. <end>", "a probability of 0.9",
     "Wrong: ‘chien’ instead of ‘chat’. A correct translation is “Un chat et un chien.”"),
    ([(0, 9)], "emroffsnart <end> No: one letter is skipped, one doubled, “emroffsnart” instead of "
               "“remrof", "", "Wrong: ‘r’ is skipped, ‘f’ is doubled."),
]  # fmt: skip


def test_each_experiment_asks_and_then_shows_what_it_says(browser):
    browser.click("#try-0")
    for i, (cells, said, number, verdict) in enumerate(EXPERIMENTS):
        covered = " The picture is covered until you press a button."
        asked = browser.text("#try-text").removesuffix(covered)
        assert asked.endswith("?") and browser.text("#try-answer") == ""
        browser.click("#try-see")
        assert browser.text("#try-text") == asked  # the answer does not replace it
        assert not browser.shows("#try-see")
        seen = f"{browser.text('#said')} {browser.text('#try-answer')}"
        assert said in seen and number in seen and (i == 2 or seen.startswith(said))
        looked = re.search(r"([\d.]+)\s%", browser.text("#step-text"))[1]
        assert i == 1 or looked in seen
        told = browser.text("#verdict")
        assert verdict in told and "stored" not in told
        assert i != 2 or "good translation" not in told
        outlined = """
            const { width, height } = document.querySelector("#picture .cursor");
            return [...document.querySelectorAll("#picture .mark")].map((x) => [
              (x.y.baseVal.value + 1) / height.baseVal.value,
              (x.x.baseVal.value + 1) / width.baseVal.value,
            ]);
        """
        assert_close(browser.js(outlined), cells)
        browser.click("#try-show")
        assert browser.js(f"return {FOCUS}.matches('#picture svg')")
        row, col = cells[0]
        read_out = rf"\({row + 1}\), looks at .* \({col + 1}\): "
        assert re.search(read_out, browser.text("#picture .readout"))
        if i < 4:
            assert browser.text("#try-next").startswith(f"Next experiment: {i + 2}.")
            browser.click("#try-next")
            assert browser.js(f"return {FOCUS}.matches('#try-guess button:first-of-type')")
    assert not browser.shows("#try-next")
    browser.click("#back")
    # it was of another state
    assert browser.text("#try-answer") == "" and browser.shows("#try-see")
    assert not browser.all("#picture .mark")
    paste(browser, "hello")
    assert browser.text("#try-text") == "" and not browser.shows("#try-see")


def guess_in_experiment(browser, i, guess):
    """Open an experiment, press one of its guesses. Returns what the page says of the guess."""
    browser.click(f"#try-{i}")
    assert browser.text("#try-judged") == ""
    browser.click(f"#try-guess button:nth-of-type({guess + 1})")
    assert not browser.shows("#try-guess") and browser.text("#try-answer")
    top = browser.js("return $('try-result').getBoundingClientRect().top")
    assert 0 <= top < 900  # what is said of the guess is in sight
    return f"{browser.text('#try-result')} {browser.text('#try-judged')}".replace("\u00a0", " ")


def test_a_guess_in_an_experiment_is_judged_by_npformers_numbers(browser):
    model = Model("en-fr")
    experiments = browser.js("return TRIES.map(({ guesses, right }) => [guesses, right])")
    n_asked = 0
    n_right = 0

    def judged(i, guess):
        """What is said of a guess; this one or the right one is pressed, in turn."""
        nonlocal n_asked, n_right
        guesses, right = experiments[i]
        assert len(guesses) >= 3
        pressed = right if i % 2 else guess
        n_asked += 1
        n_right += pressed == right
        told = guess_in_experiment(browser, i, pressed)
        if i:
            assert told.endswith(f" Right so far: {n_right} of {n_asked}.")
        by_page = browser.js(
            "return arguments[1].map((_, n) => judge(arguments[0], n))", i, guesses
        )
        texts = [" ".join(parts).replace("\u00a0", " ") for parts in by_page]
        assert told == texts[pressed]
        for n, text in enumerate(texts):
            said = f"✗ You guessed “{guesses[n]}”, and it is “{guesses[right]}”: "
            if n == right:
                said = "✓ Your guess was right: "
            assert text.startswith(said)
            assert not re.search("NaN|undefined|Infinity", text) and re.search(r"\d", text)
        return texts[guess]

    def computed(*names):
        """The probabilities, the mean weights of the last cross-attention, and for each name its
        id, and its step or its place in the source.
        """
        src, tgt_in, hidden = browser.js("return [state.src, read_tokens(), state.hidden]")
        masked = [0 if s in hidden else id_ for s, id_ in enumerate(src)]
        weights = model.weights(masked, tgt_in)["memory"][-1].mean(0)
        place = "source_place(name) < 0 ? step_of(name) : source_place(name)"
        script = f"return arguments[0].map((name) => [id_of(name), {place}])"
        ids, places = zip(*browser.js(script, names), strict=True)
        return model.shares(masked, tgt_in), weights, ids, places

    told = judged(0, 0)
    _, weights, _, (first, second, dog, black) = computed("chien", "noir", "dog", "black")
    assert weights[first].argmax() == dog and weights[second].argmax() == black
    to_dog, to_black = 100 * weights[first, [dog, black]]
    assert f"‘chien’ gives ‘dog’ {to_dog:.1f} % and ‘black’ {to_black:.1f} %" in told

    told = judged(1, 0)
    colours = browser.js("return COLOURS.map(id_of).filter((id) => id >= 0)")
    shares, _, (end,), _ = computed(".")
    share = shares[browser.js("return state.step")]
    colour = share[colours].max()
    assert share[end] > colour
    assert f"‘.’ has a probability of {share[end]:.2f}, and" in told
    assert f" has {colour:.2f}" in told

    told = judged(2, 1)
    shares, weights, (*_, end, word), (step, yellow, *_) = computed("rouge", "yellow", ".", "jaune")
    share = shares[step + 1]
    assert weights[step].argmax() == yellow and share.argmax() == end
    parts = f"‘.’ has a probability of {share[end]:.2f}, and ‘jaune’ has {share[word]:.2f}"
    assert parts in told

    told = judged(3, 1)
    shares, _, (dog,), (step,) = computed("chien")
    share = shares[step, dog]
    assert share > 0.9 and f"‘chien’ has a probability of {share:.2f}" in told
    assert f"your guess is too low by at least {share - 0.5:.2f}" in told

    told = judged(4, 0)
    n_changes = fewest_changes("emroffsnart", "remrofsnart")
    assert f"it takes {n_changes} changes of letters" in told

    assert 0 < n_right < n_asked
    right_so_far = f" Right so far: {n_right} of {n_asked}."
    for guess in range(3):  # only the first guess counts
        assert guess_in_experiment(browser, 1, guess).endswith(right_so_far)
    browser.click("#back")
    assert browser.text("#try-judged") == ""  # it was of another state
    browser.click("#try-see")
    assert browser.text("#try-judged") == "" and browser.text("#try-answer")  # without a guess


def test_an_experiment_covers_the_picture_that_would_answer_it(browser):
    def is_covered():
        nodes = "['picture', 'step-text', 'picture-text'].map($)"
        states = browser.js(
            f"return {nodes}.flatMap(x => [x.classList.contains('covered'), x.inert])"
        )
        [state] = set(states)
        return state

    for i in (0, 2):
        browser.click(f"#try-{i}")
        assert is_covered() and "covered until you press a button." in browser.text("#try-text")
        browser.click("#next")
        assert is_covered()
        browser.click("#try-see")
        assert not is_covered() and "covered" not in browser.text("#try-text")
    browser.click("#try-0")
    paste(browser, "A dog runs.")
    assert not is_covered()


# -- the guide -------------------------------------------------------------------------------------


def test_the_guide_says_what_npformer_computes(browser):
    weights = Model("en-fr").weights(*browser.js("return [state.src, read_tokens()]"))
    yellow, toy, step = 7, 8, 8  # the step after ‘jouet’
    from_yellow = weights["memory"][-1][:, step, yellow].mean()
    own = weights["encoder"][0][:, yellow, toy]
    head = f"in head {own.argmax() + 1} of 4"
    browser.says({"#guide": f"{100 * from_yellow:.1f} % from ‘yellow’"})
    told = f"{head}, ‘yellow’ gives {100 * own.max():.1f} % of its attention to ‘toy’"
    browser.says({"#guide": told})


def test_the_guide_points_from_any_state(browser):
    shows = browser.all("#guide li button")
    texts = browser.texts("#guide li")
    assert len(shows) == 9
    states = [
        "show_model('reverse'), show_text('level')",
        "state.hidden = [2], show()",
        "write([BOS])",
    ]
    for i, (show, state) in enumerate(zip(shows, cycle(states), strict=False)):
        browser.js(state)
        browser.js("arguments[0].click()", show)
        said, word = "Un chien court dehors avec un jouet jaune.", "‘jaune’"
        if i == 7:
            said, word = "Deux chiens courent sur la plage.", "‘courent’"
        assert browser.text("#said") == f"{said} <end>"
        assert [pointed.is_displayed() for pointed in browser.all(".pointed")] == [True]
        assert browser.js("return told_written(state.step)") == word
        browser.says({"#guide-bar": texts[i].removesuffix(" show")})
        browser.click("#guide-bar button:last-child")
        assert not browser.shows("#guide-bar") and not browser.all(".pointed")
        assert browser.js(f"return {FOCUS} === arguments[0]", show)


def test_the_guide_can_be_walked_through(browser):
    titles, effects = [], []
    browser.js("document.querySelector('#guide li button').click()")
    while True:
        titles.append(browser.text("#guide-bar b"))
        effects.append(browser.text("#part-effect"))
        if "Next" not in browser.texts("#guide-bar button"):
            break
        assert browser.js(f"return {FOCUS}.innerText") == "Next"
        if len(titles) == 2:
            assert browser.text("#part-title") == "Encoder, layer 1: self-attention"
            assert browser.js("return [state.row, state.head]") == [7, 0]
        browser.press(Keys.ENTER)
    assert [title.split(".")[0] for title in titles] == [str(i + 1) for i in range(9)]
    script = """
      choose_step(step_of("dehors"));
      const traced = trace(state.name, state.src, read_tokens());
      const without = shares_without({ kind: "encoder", side: "source", layer: 1 }, traced);
      const all = shares_at(traced.decoded.logits[state.step]);
      return [without, all].map((shares) => number(shares[id_of("dehors")], 2));
    """
    show_text(browser, "A dog runs outside with a yellow toy.")
    told = browser.texts("#guide li")
    assert " instead of ".join(browser.js(script)) in told[1]
    for chance in re.findall(r"0\.\d\d", told[6]):
        assert chance in effects[6]  # as the box says it
    assert "the most probable would be ‘chiens’" in effects[7]  # as the guide says
    paste(browser, "A dog runs.")
    assert not browser.shows("#guide-bar")  # it speaks of another text


def test_the_frame_begins_where_there_is_something_to_see(browser):
    def framed():
        return browser.js("return told_written(state.step)")

    assert framed() == "‘jaune’"  # the step that looks back
    paste(browser, "A man plays the guitar.")
    weights = browser.js(f"return mean_of({TRACED}.heads.memory.at(-1))[state.step]")
    assert max(weights) >= 0.5 and len(framed()) > 5
    show_text(browser, "A pretty woman plays a harpsichord.")
    assert framed() == "‘femme’"  # in the data set: "jolie"
    browser.js(
        "show_text('A cat and a dog.'); state.hidden = [source_place('dog')]; "
        "write([BOS]); take_all()"
    )
    assert framed() == "‘c’"
    browser.says({"#step-text": "a correct translation goes on with ‘ch’"})
    choose(browser, "reverse")
    paste(browser, "transformer")
    browser.says({"#verdict": "Wrong: ‘r’ is skipped"})
    assert browser.js("return state.step") == 0


@pytest.mark.parametrize("button", ["#source li", "#target li", "#distribution tbody tr"])
def test_the_first_click_after_typing_is_not_lost(browser, button):
    browser.replace("#text", "Two dogs.")
    browser.wait_for("state.text === 'Two dogs.'")
    script = "return JSON.stringify([state.hidden, state.step, state.tgt_in])"
    before = browser.js(script)
    browser.click(f"{button}:nth-child(2) button")  # the field loses the focus when it is pressed
    assert browser.js(script) != before


def test_what_is_typed_is_read_without_enter_and_the_address_keeps_it(browser, look, path):
    browser.replace("#text", "Two dogs.")
    browser.wait_for("state.text === 'Two dogs.'")
    assert browser.text("#read") == "Two dogs."
    assert browser.address() == "model=en-fr&text=Two+dogs."
    look(path, address="model=reverse&text=hello")
    assert browser.text("#said") == "olleh <end>"
    for address in ["model=none", "model=constructor", "model=reverse&text=123", "text=%20"]:
        browser.follow(address)  # nothing that can be read: the first example
        assert browser.text("#said").endswith("<end>")
