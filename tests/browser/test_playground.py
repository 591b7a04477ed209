"""The page index.html, in a browser.

Numbers are npformer's, and all works by keyboard on any screen.
"""

import re
from itertools import count

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
SCREENS = [(width, theme) for width in (320, 1200) for theme in ("light", "dark")]


PAGE = "index.html"


@pytest.fixture
def browser(look, path):
    """The page just after it was opened."""
    return look(path)


class Model:
    """A trained model of the page, as npformer computes it for one source and one target."""

    def __init__(self, name):
        self.model, self.params, self.content = make_playground.read(name)

    def logits(self, src, tgt_in):
        arrays = np.array([src]), np.array([tgt_in])
        return self.model.logits(self.params, *arrays, backend="reference")[0]

    def shares(self, src, tgt_in):
        """The probabilities of the tokens at each step."""
        return nf.softmax(self.logits(src, tgt_in))

    def weights(self, src, tgt_in):
        """The attention weights of every kind and layer, as (H, T, S)."""
        arrays = np.array([src]), np.array([tgt_in])
        weights = self.model.attention_weights(self.params, *arrays, backend="reference")
        return {kind: [layer[0] for layer in layers] for kind, layers in weights.items()}


def assert_close(found, expected, atol=1e-9):
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def choose(browser, name):
    browser.click(f"[name=model][value={name}]")


def shown(piece):
    """A subword as the page writes it."""
    if piece in ("<s>", "</s>"):
        return {"<s>": "<begin>", "</s>": "<end>"}[piece]
    bare = piece.replace("▁", "", 1).replace("‿", "", 1) or piece.replace("▁", "(space)")
    return bare if piece.startswith("▁") or re.match("<.*>$", piece) else f"·{bare}"


def paste(browser, text):
    browser.fill("#text", text)


# -- the numbers of the trained models -------------------------------------------------------------


@pytest.mark.parametrize("name", ["reverse", "en-fr"])
def test_logits_distribution_and_weights_of_every_head_are_npformers(browser, name):
    model = Model(name)
    for text in {"reverse": WORDS, "en-fr": SENTENCES}[name]:
        src = browser.js("return source_of(...arguments)", name, text)
        tgt_in = [1, *src[::-1]]
        traced = browser.js("return trace(...arguments)", name, src, tgt_in)

        assert_close(traced["decoded"]["logits"], model.logits(src, tgt_in))
        assert_close(traced["probabilities"], model.shares(src, tgt_in)[-1])
        memory = model.model.encode(model.params, np.array([src]), backend="reference")
        assert_close(traced["encoded"]["memory"], memory[0])
        for kind, layers in model.weights(src, tgt_in).items():
            assert len(layers) == model.model.n_layers
            for layer, heads in zip(layers, traced["heads"][kind], strict=True):
                assert_close([head["weights"] for head in heads], layer)


@pytest.mark.parametrize("name", ["reverse", "en-fr"])
def test_the_page_decodes_what_greedy_decode_does(browser, name):
    model = Model(name)
    choose(browser, name)
    written = {"reverse": str, "en-fr": shown}[name]
    for text in {"reverse": WORDS[:3], "en-fr": SENTENCES}[name]:
        paste(browser, text)
        src = np.array([browser.js("return state.src")])
        limit = src.shape[1] + {"reverse": 5, "en-fr": 50}[name]
        options = {"bos_id": 1, "eos_id": 2, "max_len": limit, "backend": "reference"}
        [expected] = nf.greedy_decode(model.model, model.params, src, **options)
        assert browser.js("return state.tgt_in") == [1, *expected]
        tokens = [item.text.split("\n")[0] for item in browser.all("#target li")]
        assert tokens == [written(model.content["tokens"][id_]) for id_ in [1, *expected]]
    if name == "reverse":
        assert browser.text("#said") == "arbez <end>"


def test_a_hidden_token_is_masked_as_padding_is_and_its_effect_is_told(browser):
    model = Model("en-fr")
    place = browser.js("return state.src.findIndex(id => token(id) === 'yellow')")
    before = browser.js("return softmax(trace('en-fr', state.src, read_tokens()).logits)")
    browser.click(f"#source li:nth-child({place + 1}) button")
    assert browser.js("return document.activeElement.textContent") == "yellowhidden"
    src, tgt_in = browser.js("return [state.src, read_tokens()]")
    step, id_ = browser.js("return [state.step, state.tgt_in[state.step + 1]]")
    masked = [*src[:place], 0, *src[place + 1 :]]
    traced = browser.js(
        "return trace('en-fr', state.src, read_tokens(), state.hidden).decoded.logits"
    )
    assert_close(traced, model.logits(masked, tgt_in))
    assert_close(before, model.shares(src, tgt_in)[-1])
    was, now = (model.shares(ids, tgt_in)[step, id_] for ids in (src, masked))
    assert was > 0.9 and now < 0.1
    effect = (
        f"‘jaune’ at the selected step is {now:.3f} with ‘yellow’ hidden, "
        f"and {was:.3f} without hiding"
    )
    assert effect in browser.text("#hidden-text")
    assert "Press Write again" in browser.text("#verdict")
    browser.click("#target li:nth-child(2) button")
    assert "changes by less than 0.01 if ‘yellow’ is hidden" in browser.text("#hidden-text")
    browser.click("#end")
    assert "‘jaune’ is missing" in browser.text("#verdict")
    assert not browser.find("#end").is_enabled()  # it would write the same
    browser.click("#begin")
    hidden = browser.text("#hidden-text")
    assert hidden == "Now ‘yellow’ is hidden: press To the end to write without it."
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
    model = Model("en-fr")
    src, tgt_in, step = browser.js("return [state.src, read_tokens(), state.step]")
    weights = model.weights(src, tgt_in)["memory"][-1].mean(0)
    words = browser.js("return [state.src, state.tgt_in].map(ids => ids.map(token))")
    best = weights.argmax(-1)
    back = [
        t
        for t in range(1, len(best))
        if best[t] == best[t - 1] - 1 and min(weights.max(-1)[[t - 1, t]]) >= 0.5
    ]
    assert [words[1][t + 1] for t in back] == ["jaune"] and step == back[0]
    text = browser.text("#step-text")
    assert text.startswith(
        f"Selected: step {step + 1}, after ‘{words[1][step]}’, "
        "because here two words change places."
    )
    share = (
        f"{100 * weights[step].max():.1f}\u00a0% of its attention "
        "(mean of the 4 heads of layer 2), and writes ‘jaune’."
    )
    assert text.replace(" %", "\u00a0%").endswith(
        f"It looks most at ‘{words[0][best[step]]}’, with {share}"
    )
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
    browser.js("show_text('transformer')")  # longer than those in training
    lesson = browser.text("#lesson")
    assert "has 11 letters, and no word of the training had more than 10" in lesson
    assert browser.text("#picture-text").startswith(
        "Step 1 should look at the 3rd ‘r’, and looks most at "
    )
    # the text was right when it was written
    browser.js("show_text('hello'); state.hidden = [2]; show()")
    assert "should" not in browser.text("#picture-text")


def test_an_earlier_step_can_be_chosen_and_written_differently(browser):
    browser.click("#target li:nth-child(4) button")
    assert browser.js("return [state.step, document.activeElement.firstChild.data]") == [2, "chien"]
    assert browser.text("#distribution button") == "chien"
    other = browser.all("#distribution button")[1]
    name = other.text
    other.click()
    assert browser.js("return state.tgt_in.slice(1).map(token)")[2:] == [name]
    picture = browser.find("#picture svg")
    browser.js("arguments[0].scrollIntoView({block: 'center'})", picture)
    picture.click()
    assert browser.js("return state.step") < 3


def test_what_a_decoder_that_ended_after_a_box_would_write_is_computed_by_its_last_norm_and_output(
    browser,
):
    traced, step, ids = browser.js(
        "return [trace('en-fr', state.src, read_tokens()).decoded, state.step, state.tgt_in]"
    )
    keys, x = ["embedding-target-0"], [traced["embedded"]["x"][step]]
    for i, layer in enumerate(traced["layers"]):
        keys += [f"{kind}-target-{i}" for kind in ("decoder", "memory", "feed_forward")]
        x += [part["x"][step] for part in (layer["attention"], layer["memory_attention"], layer)]
    params = Model("en-fr").params
    norm = params["decoder"]["norm"]
    hidden, _, _ = nf.layer_norm(np.array(x), norm["gain"], norm["bias"], 1e-5)
    shares = nf.softmax(hidden @ params["embedding"].T + params["output"]["bias"])
    names = browser.js("return arguments[0].map(told)", shares.argmax(-1).tolist())
    # cross-attention of layer 2 finds the colour
    assert names[-2:] == ["‘jaune’", "‘jaune’"] and names[-3] != "‘jaune’"
    assert len(set(keys)) == 7
    for i, (key, name, share) in enumerate(zip(keys, names, shares, strict=True)):
        box = browser.find(f"#part-{key}")
        said = f"{name} {share.max():.2f}"
        word = "would write" if not i else "still" if names[i - 1] == name else "now"
        assert f"{word} {said}" in box.text
        assert bool(box.find_elements("tag name", "mark")) == (word == "now")
        followed = share[ids[step + 1]]
        width = browser.js(
            "return parseFloat(arguments[0].querySelector('.share').style.width)", box
        )
        assert abs(width - 100 * followed) < 0.06
        box.click()
        text = browser.text("#part-effect")
        assert f"If the decoder ended here, it would write {said}" in text
        if i:
            before = shares[i - 1][ids[step + 1]]
            moved = (
                f"{'rises' if followed > before else 'falls'} from {before:.3f} to {followed:.3f}"
            )
            moved = f"stays {followed:.3f}" if abs(followed - before) < 5e-4 else moved
            assert f"The probability of ‘jaune’, which follows, {moved}." in text
    browser.click("#part-feed_forward-source-0")
    # the text does not end in the encoder
    assert "the decoder ended" not in browser.text("#part-effect")


@pytest.mark.parametrize("name", ["reverse", "en-fr"])
def test_a_box_is_credited_by_leaving_out_what_it_adds(browser, monkeypatch, name):
    """The probabilities without each box are npformer's with that residual addition set to 0
    in the last row.
    """
    choose(browser, name)
    browser.js(
        "show_text(arguments[0])",
        {"reverse": "attention", "en-fr": "There is a big white dog."}[name],
    )
    model = Model(name)
    add_and_norm = sublayer.add_and_norm
    kinds = [
        f"{kind}-target-{layer}"
        for layer in (0, 1)
        for kind in ("decoder", "memory", "feed_forward")
    ]
    of_encoder = [
        f"{kind}-source-{layer}" for layer in (0, 1) for kind in ("encoder", "feed_forward")
    ]
    turns = set()
    for step in {"reverse": [0, 4], "en-fr": [0, 1, 7]}[name]:
        browser.js("choose_step(arguments[0]), show()", step)
        src, tgt_in = browser.js("return [state.src, state.tgt_in]")
        shares = []
        for left_out in [None, *range(6), *range(-4, 0)]:
            calls = count(-2 * model.model.n_layers)  # the sublayers of the encoder come first

            def without(
                ops, params, norm_params, z, x, *args, calls=calls, left_out=left_out, **kwargs
            ):
                y, backward = add_and_norm(ops, params, norm_params, z, x, *args, **kwargs)
                if next(calls) == left_out:
                    # of all source tokens, or of the last target token
                    place = np.s_[:] if left_out < 0 else np.s_[:, -1]
                    y[place] = x[place]
                return y, backward

            monkeypatch.setattr(sublayer, "add_and_norm", without)
            shares.append(model.shares(src, tgt_in[: step + 1])[-1])
            assert next(calls) == 3 * model.model.n_layers
        all_, *others = shares
        id_ = tgt_in[step + 1]
        for kind, expected in zip(kinds + of_encoder, others, strict=True):
            script = (
                "return shares_without(arguments[0], trace(state.name, state.src, read_tokens()))"
            )
            box = dict(zip(("kind", "side", "layer"), kind.split("-"), strict=True))
            found = browser.js(script, box | {"layer": int(box["layer"])})
            assert_close(found, expected)
            browser.js("$(`part-${arguments[0]}`).click()", kind)
            said = f" {expected[id_]:.2f} instead of {all_[id_]:.2f}"
            text = browser.text("#part-effect")
            assert text.startswith("Without this box") and said in text
            assert ("the most probable would be" in text) == (expected.argmax() != id_)

        falls = all_[id_] - np.array([x[id_] for x in others[:6]])
        needed = [kinds[i] for i in np.argsort(-falls) if 2 * falls[i] > falls.max()]
        turn = browser.text("#turn")
        titles = {
            "decoder": "causal self-attention",
            "memory": "cross-attention",
            "feed_forward": "feed-forward",
        }
        told = [f"the {titles[kind.split('-')[0]]} of layer {int(kind[-1]) + 1}" for kind in needed]
        if falls.max() < all_[id_] / 4:
            turns.add("none")
            assert turn.startswith("No box alone decides on ") and told[0] in turn
        elif len(told) == 1:
            turns.add("one")
            assert turn.startswith(f"Without what {told[0]} adds, ")
            assert turn.endswith(
                f"would have {others[kinds.index(needed[0])][id_]:.2f} instead of {all_[id_]:.2f}."
            )
        else:
            turns.add("several")
            assert turn.startswith("Several boxes are needed for ") and turn.count("the ") == len(
                told
            )
            assert all(box in turn for box in told)
    assert len(turns) > 1


@pytest.fixture
def logits_without(monkeypatch):
    """npformer's logits with the output of one head set to 0.

    Its kind is "encoder", "decoder" or "memory".
    """
    originals = {
        name: getattr(sublayer, name) for name in ("self_attention_heads", "cross_attention_heads")
    }

    def logits_without(model, src, tgt_in, kind, layer, head):
        patched = "cross_attention_heads" if kind == "memory" else "self_attention_heads"
        # the layers of the encoder come first
        calls = count(-model.model.n_layers if kind == "decoder" else 0)

        def without(*args, **kwargs):
            # (B, T, D), the heads side by side
            heads, backward = originals[patched](*args, **kwargs)
            if next(calls) == layer:
                width = model.model.d_model // model.model.n_heads
                heads = heads.copy()
                heads[..., head * width : (head + 1) * width] = 0
            return heads, backward

        with monkeypatch.context() as patch:
            patch.setattr(sublayer, patched, without)
            return model.logits(src, tgt_in)

    return logits_without


def fewest_changes(a, b):
    """The edit distance of two lists."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


@pytest.mark.parametrize("name", ["reverse", "en-fr"])
def test_what_is_written_without_a_head_is_npformers_with_the_output_of_this_head_set_to_zero(
    browser, logits_without, name
):
    choose(browser, name)
    text = {"reverse": "transformer", "en-fr": "A dog runs outside with a yellow toy."}[name]
    browser.js("show_text(arguments[0])", text)
    browser.click("#each")
    browser.wait_for("$('each-text').innerText")
    model = Model(name)
    src, whole = browser.js("return [state.src, without.own.ids]")
    limit = browser.js("return task().limit(state.src.length)")
    steps = range(len(whole) - 1)

    def loss_of(logits):
        shares = nf.softmax(logits)
        return -np.mean([np.log(shares[t, whole[t + 1]]) for t in steps])

    def units(ids):
        text = browser.js("return text_of(arguments[0])", ids)
        return list(text) if name == "reverse" else re.findall(r"[\w-]+['’]?", text.lower())

    loss_of_all = loss_of(model.logits(src, whole[:-1]))
    heads = browser.js("return all_heads().flat()")
    assert len(heads) == 3 * model.model.n_layers * model.model.n_heads
    effects = {}
    for head in heads:
        place = head["kind"], head["layer"], head["head"]
        output = browser.js(
            "return output_without([arguments[0]], state.src, [], without.own.ids)", head["name"]
        )
        loss = loss_of(logits_without(model, src, whole[:-1], *place))
        assert abs(output["loss"] - loss) < 1e-9
        ids = [1]
        while ids[-1] != 2 and len(ids) <= limit:
            logits = logits_without(model, src, ids, *place)[-1]
            logits[0] = -np.inf  # padding is never written
            ids.append(int(logits.argmax()))
        assert output["ids"] == ids
        changed = fewest_changes(units(ids), units(whole))
        effects[head["name"]] = changed, loss - loss_of_all
        said = browser.js(
            "return $(`without-${arguments[0]}`).querySelector('span').innerText", head["name"]
        )
        word, loss = said.split()[0], float(said.split()[-1].replace("−", "-"))
        assert (word == "same" and not changed) or int(word) == changed
        assert abs(loss - effects[head["name"]][1]) < 0.005 + 1e-9
    most = max(heads, key=lambda head: effects[head["name"]])
    assert effects[most["name"]][0] > 0
    told = browser.text("#each-text")
    assert (
        f"head {most['head'] + 1} of the " in told
        and f": {effects[most['name']][0]} of {len(units(whole))}." in told
    )
    idle = sum(not changed for changed, _ in effects.values())
    assert (f" {idle} of the {len(heads)} heads change no " in told) == bool(idle)


def test_heads_that_are_left_out_are_shown_beside_the_whole_model_and_can_be_put_back(browser):
    head = browser.find("[id='without-memory.1.0']")
    assert "Press a head" in browser.text("#without-said")
    head.send_keys(Keys.ENTER)
    assert head.get_attribute("aria-pressed") == "true" and browser.all("#without-said mark")
    with_all, other = (x.text for x in browser.all("#without-said .said"))
    assert with_all == browser.text("#said").removesuffix(" <end>") and other != with_all
    assert "Without head 1 of the cross-attention, layer 2" in browser.text("#without-said")
    browser.find("#without-said button").send_keys(Keys.ENTER)  # where it looks
    assert browser.js("return [state.kind, state.layer, state.head]") == [
        "memory",
        1,
        0,
    ]
    assert browser.text("#heads [aria-pressed=true]") == "head 1"

    browser.js("show_text('Two dogs play by a tree.')")  # the head stays left out
    assert browser.find("[id='without-memory.1.0']").get_attribute("aria-pressed") == "true"
    assert "Without head 1" in browser.text("#without-said")
    browser.find("#all-heads").send_keys(Keys.ENTER)
    assert browser.focused() == "without-memory.1.0"
    assert "Press a head" in browser.text("#without-said")

    browser.find("#each").send_keys(Keys.ENTER)
    browser.wait_for("$('each-text').innerText")
    effects = browser.js("return Object.fromEntries(without.effects)")
    idle = [name for name, effect in effects.items() if not effect["changed"]]
    browser.find("#idle").send_keys(Keys.ENTER)
    pressed = browser.all("#without-heads [aria-pressed=true]")
    assert {f"without-{name}" for name in idle} == {x.get_attribute("id") for x in pressed}
    assert f"Without {len(idle)} heads" in browser.text("#without-said")

    browser.find("[name=measured][value=examples]").send_keys(Keys.SPACE)
    browser.wait_for("$('each-text').innerText")
    effects = browser.js("return Object.fromEntries(without.effects)")
    script = """
        const texts = [...$('examples').options].map(({ value }) => value).filter(Boolean);
        return texts.map((text) => {
          const src = source_of(state.name, text);
          const whole = output_without([], src, []);
          const output = output_without(['memory.1.0'], src, [], whole.ids);
          return [changed_units(output).length, output.loss - whole.loss, whole.ids.length - 1];
        });
    """
    of_each = browser.js(script)
    changed, losses, n_tokens = np.array(of_each).T
    assert effects["memory.1.0"]["changed"] == changed.sum() > 1
    assert abs(effects["memory.1.0"]["loss"] - np.average(losses, weights=n_tokens)) < 1e-9
    choose(browser, "reverse")  # which has other heads
    assert len(browser.all("#without-heads td button")) == 12


def test_a_guess_which_head_is_needed_most_is_judged(browser):
    def measured():
        browser.click("#each")
        browser.wait_for("$('each-text').innerText")
        effects = browser.js("return Object.fromEntries(without.effects)")
        return sorted(
            effects.items(), key=lambda item: (item[1]["changed"], item[1]["loss"]), reverse=True
        )

    def guess(name):
        browser.click(f"#guessed-head option[value='{name}']")
        assert "my guess" in browser.text(f"[id='without-{name}']")

    def signed(loss):
        return f"{loss:+.2f}".replace("-", "−")

    browser.click("#each")
    browser.wait_for("$('each-text').innerText")
    assert browser.text("#guess-text") == ""  # nothing was guessed
    assert not browser.find("#guessed-head").is_enabled()  # the answer stands there
    for rank in (0, 3):
        browser.js("show_text(FIRST)")
        order = measured()
        browser.js("show_text('Two dogs play by a tree.')")
        assert browser.text("#each-text") == "" and browser.find("#guessed-head").is_enabled()
        browser.js("show_text(FIRST)")
        guess(order[rank][0])
        assert browser.text("#guess-text") == ""
        assert measured() == order
        text = f"{browser.text('#guess-result')} {browser.text('#guess-text')}"
        (_, most), (_, own), (_, second) = order[0], order[rank], order[1]
        if rank:
            assert text == (
                "✗ Your guess was not right. It is number 4 of 24. "
                f"Without it, {own['changed']} of {own['of']} words change, "
                f"{most['changed'] - own['changed']} fewer than without the first, and the loss "
                f"changes by {signed(own['loss'])}, {most['loss'] - own['loss']:.2f} less than "
                "without the first."
            )
        else:
            assert text.startswith(
                "✓ Your guess was right. Without the head that comes next, head "
            )
            words = f"{second['changed']} of {second['of']} words change"
            assert text.endswith(f"{words}, and the loss changes by {signed(second['loss'])}.")
    choose(browser, "reverse")
    assert (
        browser.find("#guessed-head").get_attribute("value") == ""
        and browser.text("#guess-text") == ""
    )
    assert len(browser.all("#guessed-head option")) == 13


def test_the_address_keeps_the_heads_that_are_left_out(browser, look, path):
    for name in ("memory.1.0", "encoder.0.3"):
        browser.click(f"[id='without-{name}']")
    said = browser.text("#without-said")
    address = browser.address()
    assert address.endswith("&without=memory.1.0+encoder.0.3")
    look(path, address=address)
    assert browser.text("#without-said") == said and "Without 2 heads" in said
    assert browser.text("#message") == ""
    choose(browser, "reverse")  # which has no fourth head
    assert browser.address().endswith("&without=memory.1.0")
    browser.click("#all-heads")
    assert "without" not in browser.address()

    browser.js("location.hash = 'model=reverse&text=level&without=decoder.1.1'")
    browser.wait_for("$('without-said').innerText.includes('decoder, layer 2')")
    assert browser.text("#said") == "level <end>"


def test_heads_in_an_address_are_looked_up_in_the_table_of_the_model(browser, look, path):
    for names in (
        "constructor",
        "__proto__",
        "memory.9.9",
        "memory.-1.0",
        "<b>x</b>",
        "memory.0",
        "memory.1.0,encoder.0.0",
    ):
        look(path, address=f"model=en-fr&without={names}")
        assert browser.js("return without.heads") == []
        assert "heads that this model does not have" in browser.text("#message")
        assert "without" not in browser.address() and browser.text("#said").endswith("<end>")
    look(path, address="model=en-fr&without=memory.1.0+memory.1.0+attic")
    assert browser.js("return without.heads") == ["memory.1.0"]
    assert "heads that this model does not have" in browser.text("#message")


@pytest.mark.parametrize("name", ["reverse", "en-fr"])
def test_a_weight_that_is_worked_out_is_that_of_the_model(browser, name):
    """q · k, the score and the weight as text,
    and the columns that add up to the output of the head.
    """
    choose(browser, name)
    model = Model(name)
    src, tgt_in, step = browser.js("return [state.src, read_tokens(), state.step]")
    weights = model.weights(src, tgt_in)

    def numbers_of(table):
        rows = browser.all(f"#head .worked .scroll:nth-of-type({table}) tbody tr")
        texts = [
            [cell.text for cell in row.find_elements("css selector", ".value")] for row in rows
        ]
        return np.array([[float(text.replace("−", "-")) for text in row] for row in texts])

    for kind, side, layer, head in [
        ("memory", "target", 1, 0),
        ("memory", "target", 0, 1),
        ("decoder", "target", 1, 1),
        ("encoder", "source", 0, 0),
    ]:
        browser.click(f"#part-{kind}-{side}-{layer}")
        browser.click(f"#heads button:nth-child({head + 1})")
        row = browser.js("return framed(trace(state.name, state.src, read_tokens()), state.side)")
        assert side == "source" or row == step
        expected = weights[kind][layer][head, row]
        # of the strongest key
        assert browser.text("#worked-weight") == f"{expected.max():.4f}"
        for key in (0, len(expected) - 1):
            browser.js(
                "$('key').value = arguments[0]; $('key').dispatchEvent(new Event('change'))", key
            )
            assert browser.focused() == "key"
            text = browser.text("#head .worked")
            if kind == "decoder" and key > row:
                assert "This key is masked" in text and not browser.all("#worked-weight")
                continue
            assert browser.text("#worked-weight") == f"{expected[key]:.4f}"
            traced = browser.js("return trace(state.name, state.src, read_tokens()).heads")[kind][
                layer
            ][head]
            q, k, v = (np.array(traced[x]) for x in "qkv")
            dot = q[row] @ k[key]
            assert f"q · k = {dot:.6f}" in (minus := text.replace("−", "-"))
            assert f"the score is {dot:.6f} / 4.000 = {dot / 4:.6f}" in minus
            said = re.search(
                r"exp\((.*?)\) = (.*?), and .*, ([\d.,e+-]+)\. The weight is (.*?) / (.*?) =", minus
            )
            score, e, total, *again = (float(x.replace(",", "")) for x in said.groups())
            np.testing.assert_allclose(np.exp(score), e, rtol=5.1e-8)  # as a calculator finds it
            assert again == [e, total] and f"{e / total:.4f}" == browser.text("#worked-weight")
            assert_close(numbers_of(1), [q[row], k[key], q[row] * k[key]], atol=0.00501)
            parts = numbers_of(2)
            assert_close(parts[-1], expected @ v, atol=0.00501)
            # each part is rounded
            assert_close(parts[:-1].sum(0), expected @ v, atol=0.021)
    assert name == "reverse" or len(expected) == 11


def test_the_weight_that_is_shown_first_is_worked_out_without_scrolling(browser):
    tables = browser.js(
        "return [...document.querySelectorAll('.worked .scroll')].map(box => "
        "box.scrollWidth - box.clientWidth)"
    )
    assert len(tables) == 2 and max(tables) <= 0


def test_a_cell_that_is_pressed_is_worked_out(browser):
    browser.js("$('head').querySelector('svg').focus()")
    browser.press(Keys.ARROW_UP, Keys.ARROW_LEFT, Keys.ENTER)
    row, key, step = browser.js(
        "return [framed(trace('en-fr', state.src, read_tokens()), 'target'), state.key, state.step]"
    )
    assert row == step == 7 and browser.find("#key").get_attribute("value") == str(key)
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
    assert "which you selected." in said and said.endswith(
        "and would write ‘jaune’. You chose ‘rouge’ instead."
    )
    assert "and the step at which you chose ‘rouge’, the next one, at ‘yellow’" in browser.text(
        "#picture-text"
    )
    assert "you chose ‘rouge’, which is read next" in browser.text("#part-output-target-0")
    browser.click("#part-feed_forward-target-1")
    assert "The probability of ‘rouge’, which you chose," in browser.text("#part-effect")
    assert "the lowest at ‘rouge’, which you chose" in browser.text("#lesson")
    assert "wrote ‘rouge’" not in browser.text("main")
    browser.js(
        "take_all(), write([...state.tgt_in.slice(0, 9), id_of('jaune')], true), "
        "choose_step(8), show()"
    )
    assert browser.text("#step-text").endswith("and would write ‘jaune’. You chose the same.")


def test_texts_know_which_letters_are_hidden(browser):
    choose(browser, "reverse")
    browser.js("show_text('level')")
    browser.click("#source li:last-child button")
    assert "with the 2nd ‘l’ hidden" in browser.text("#hidden-text")
    assert "which stays selected" in browser.text("#step-text")
    assert "‘l’ was written before you changed what is hidden" in browser.text("#step-text")
    browser.click("#end")
    assert browser.text("#said") == "evel <end>"
    assert browser.text("#verdict").endswith("It was written without reading the 2nd ‘l’.")
    browser.click("#begin")
    assert browser.text("#hidden-text").startswith("Now the 2nd ‘l’ is hidden")
    assert browser.text("#picture-text") == "Step 1 cannot look at the 2nd ‘l’, which is hidden."
    choose(browser, "en-fr")
    browser.js("state.hidden = [0], show()")
    assert "Hiding ‘↑’ changes none of its tokens." in browser.text("#verdict")


def test_drawing_at_random_waits_until_one_writes(browser):
    before = browser.text("#said")
    browser.click("#draw")
    assert browser.text("#said") == before and browser.text("#end") == "Write again"
    assert "What is written stays." in browser.text("#temperature-text")
    browser.js("Math.random = () => 0.97")
    browser.click("#end")
    ids = browser.js(
        "return state.tgt_in.map((id, t) => t && id !== state.best[t - 1] ? t : 0).filter(t => t)"
    )
    browser.click(f"#target li:nth-child({ids[0] + 1}) button")
    assert browser.text("#step-text").endswith("was drawn at random.")
    n = browser.js("return state.tgt_in.length - 1")
    assert f"At {len(ids)} of {n} tokens, chance drew another one" in browser.text("#lesson")


def test_a_word_without_which_the_same_is_written_is_told(browser):
    for text, word in [
        ("Two men dressed in green are preparing food in a restaurant.", "food"),
        ("A man is not running.", "not"),
        ("A police car is parked.", "police"),
        ("The man who is wearing a blue shirt is eating an apple.", None),
    ]:
        browser.js("show_text(arguments[0])", text)
        said = (
            f"The same words are written if ‘{word}’ is hidden. "
            "Hide it to see how their probabilities change."
        )
        lesson = browser.text("#lesson")
        assert said in lesson if word else "is hidden" not in lesson
        if word:
            before = browser.text("#said")
            hide = (
                "state.src.forEach((id, s) => "
                "arguments[0].includes(token(id)) && state.hidden.push(s))"
            )
            browser.js(hide, {"not": ["n", "·ot"]}.get(word, [word]))
            browser.js("write([BOS]), take_all()")
            assert browser.js("return state.hidden.length") == (2 if word == "not" else 1)
            assert browser.text("#said") == before
    for button in browser.all("#hint button"):
        browser.js("arguments[0].click()", button)
        assert browser.text("#verdict") == "Right."


def test_temperature_changes_the_distribution_and_what_is_drawn(browser):
    logits = np.array(
        browser.js("return trace('en-fr', state.src, read_tokens()).decoded.logits[state.step]")
    )
    browser.find("#temperature").send_keys(Keys.ARROW_RIGHT * 10)
    assert browser.text("#temperature-shown") == "2.0"
    expected = nf.softmax(logits / 2)
    column = browser.texts("#distribution td:nth-child(3)")
    # how sure the model is does not depend on the temperature
    assert "Low p" not in browser.text("#lesson")
    assert column == [f"{p:.4f}" for p in np.sort(expected)[::-1][:6]]
    n = int((np.cumsum(np.sort(expected)[::-1]) < 0.9).sum()) + 1
    assert f"here {n} together have at least 90 %" in browser.text("#temperature-text")
    script = (
        "return [trace('en-fr', state.src, read_tokens()).decoded.logits, state.tgt_in.slice(1)]"
    )
    shares = [nf.softmax(np.array(row))[id_] for row, id_ in zip(*browser.js(script), strict=True)]
    notes = browser.texts("#target small")
    assert notes == [f"p {share:.2f}" for share in shares]
    last = browser.text("#part-feed_forward-target-1")
    assert f"{nf.softmax(logits).max():.2f}" in last

    uniform = (np.arange(4000) + 0.5) / 4000
    script = "const [logits, u] = arguments; return u.map(x => sample(logits, 2, x))"
    drawn = np.bincount(
        browser.js(script, logits.tolist(), uniform.tolist()), minlength=len(logits)
    )
    without_padding = nf.softmax(np.where(np.arange(len(logits)) == 0, -np.inf, logits / 2))
    assert_close(drawn / 4000, without_padding, atol=1 / 4000)
    browser.click("#draw")
    browser.js("Math.random = () => 0.999999")  # an improbable token each time
    browser.click("#begin")
    browser.click("#next")
    assert browser.js("return state.tgt_in[1] !== 10")  # the most probable one


def test_the_numbers_in_the_tables_are_those_that_were_computed(browser):
    choose(browser, "reverse")
    model = Model("reverse")
    src, tgt_in = [3 + "abcdefghijklmnopqrstuvwxyz".index(letter) for letter in "model"], [1]
    paste(browser, "model")
    browser.click("#begin")
    logits = model.logits(src, tgt_in)[-1]
    rows = browser.all("#distribution tbody tr")
    table = [[cell.text for cell in row.find_elements("tag name", "td")] for row in rows]
    for row, id_ in zip(table, np.argsort(-logits), strict=False):
        assert row[:3] == [
            ["<pad>", "<begin>", "<end>"][id_] if id_ < 3 else chr(ord("a") + id_ - 3),
            f"{logits[id_]:.3f}".replace("-", "−"),
            f"{nf.softmax(logits)[id_]:.4f}",
        ]

    weights = model.weights(src, tgt_in)["memory"][-1][0]
    summaries = browser.all("#head summary")
    browser.js("arguments[0].click()", summaries[0])
    cells = browser.all("#head details[open]:not(.worked) td:not(:empty)")
    assert [cell.text for cell in cells] == [f"{weight:.4f}" for weight in weights.ravel()]


def test_the_page_says_how_good_the_models_are(browser):
    content = Model("en-fr").content
    about = content["about"]
    assert f"BLEU {about['bleu_lower']}" in (text := browser.text("#about"))
    assert f"it translates {about['n_exact']} exactly" in text
    choose(browser, "reverse")
    assert "It reverses 100.0 %" in browser.text("#about")


def test_the_examples_are_translated_as_the_page_says_and_the_lesson_tells_why_one_fails(browser):
    content = Model("en-fr").content
    for example in content["examples"]:
        browser.js("show_text(arguments[0])", example["text"])
        assert browser.text("#said") == f"{example['translation']} <end>"
        verdict = browser.text("#verdict")
        assert verdict.startswith("Right: ") == (example["translation"] == example["reference"])
        if not verdict.startswith("Right: "):
            assert f"“{example['reference']}”" in verdict
            assert " differ." in verdict or "instead of" in verdict
        text = browser.text("#lesson")
        assert all(f"{n} have ‘{word}’" in text for word, n in example["rare"].items())
    browser.js("show_text('A pretty woman plays a harpsichord.')")
    assert "0 have ‘harpsichord’" in (text := browser.text("#lesson")) and "h·ar·ps·ich·ord" in text
    shares = [float(small.text[2:]) for small in browser.all("#target small")]
    unsure = sum(p < 0.5 for p in shares)
    assert f"at {unsure} of {len(shares)} tokens" in text
    assert len(browser.all("#target .unsure")) == unsure > 0


# -- text to tokens --------------------------------------------------------------------------------


def test_marks_are_npformers(browser):
    for line in [*LINES, *SENTENCES, "𐐀b İ"]:
        assert browser.js("return mark(arguments[0])", line) == mark(line)
        assert browser.js("return unmark(arguments[0])", mark(line)) == unmark(mark(line))


def test_tokens_are_npformers(browser):
    content = Model("en-fr").content
    for example in content["examples"]:
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
    for line, (ids, text) in zip(lines, browser.js(script, pieces, lines), strict=True):
        [expected] = subwords.encode([line])
        assert ids == expected.tolist()
        assert text.split() == subwords.decode([expected])[0].split()


# -- keyboard, screens and readers -----------------------------------------------------------------


def test_everything_works_by_keyboard(browser):
    browser.tab_to("[name=model]")
    browser.press(Keys.ARROW_RIGHT)
    assert browser.js("return state.name") == "reverse"
    browser.press(Keys.ARROW_LEFT)
    assert browser.js("return state.name") == "en-fr"
    browser.tab_to("#text")
    browser.press(Keys.CONTROL, "a")
    browser.press("Two dogs play.", Keys.ENTER)
    assert browser.text("#said").endswith("chiens jouent. <end>")
    browser.press(Keys.TAB, Keys.ARROW_DOWN)
    assert browser.text("#said").startswith("Un chien court")
    browser.press(Keys.ARROW_DOWN)
    assert browser.text("#said").startswith("Une fille blonde")
    browser.tab_to("#picture svg")
    browser.press(Keys.ARROW_DOWN)
    row = browser.js("return state.step") + 1
    assert f"({row + 1}), looks at" in browser.text("#picture .readout")
    browser.press(Keys.ARROW_UP, Keys.ARROW_UP, Keys.ENTER)
    assert browser.js("return [state.step, document.activeElement.localName]") == [
        row - 2,
        "svg",
    ]
    browser.tab_to("#source button")
    browser.press(Keys.TAB, Keys.SPACE, Keys.SPACE)
    assert browser.js("return state.hidden") == []
    browser.press(Keys.SPACE)
    assert browser.js("return state.hidden") == [1]
    browser.tab_to("#target button")
    browser.press(Keys.TAB, Keys.ENTER)
    assert browser.js("return state.step") == 1
    browser.tab_to("#temperature")
    browser.press(Keys.ARROW_LEFT)
    browser.tab_to("#draw")
    browser.press(Keys.SPACE, Keys.SPACE)
    assert browser.js("return [state.temperature, state.draw]") == [0.9, False]
    browser.find("#begin").send_keys(Keys.ENTER)
    browser.tab_to("#distribution button")
    browser.press(Keys.ENTER)
    assert browser.js("return state.tgt_in.length") == 2
    assert browser.js("return document.activeElement.matches('#distribution button')")
    browser.tab_to("#part-encoder-source-0")
    browser.press(Keys.SPACE)
    assert browser.text("#part-title") == "Encoder, layer 1: self-attention"
    assert browser.focused() == "part-encoder-source-0"
    browser.tab_to("#heads button[aria-pressed=false]")
    browser.press(Keys.SPACE)
    assert "weights of head 2" in browser.text("#head figcaption")
    browser.tab_to("#head svg")
    before = browser.text("#head .readout")
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    after = browser.text("#head .readout")
    assert before != after and "(2): " in after
    browser.find("#next").send_keys(Keys.ENTER)
    browser.press(Keys.ENTER)
    assert browser.js("return state.tgt_in.length") == 4
    browser.tab_to("#end")
    browser.press(Keys.SPACE)
    assert browser.text("#said").endswith("<end>")
    # the button itself is disabled now
    assert browser.focused() == "begin"
    browser.find("#begin").send_keys(Keys.ENTER)
    # the button itself is disabled now
    assert browser.focused() == "next"
    assert browser.js("return state.tgt_in") == [1]


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
    assert browser.js("return document.activeElement.matches('#distribution button')")
    assert len(browser.all("#head details[open]:not(.worked)")) == 4


@pytest.mark.parametrize(("width", "theme"), SCREENS)
@pytest.mark.parametrize("name", ["reverse", "en-fr"])
def test_it_fits_every_screen_and_theme(look, path, tmp_path, name, width, theme):
    browser = look(path, width, dark=theme == "dark")
    choose(browser, name)
    script = """
        const widths = [];
        $('begin').click();
        while (!is_finished()) { $('next').click(); widths.push(document.body.scrollWidth); }
        return widths;
    """
    assert max(browser.js(script)) <= width  # at every step, as the tokens differ
    browser.js("document.querySelectorAll('.fold').forEach(node => { node.open = true; })")
    browser.js("for (let i = 0; i < 4; i++) $('back').click()")
    for box in [
        "embedding-target-0",
        "feed_forward-source-0",
        "encoded-source-0",
        "decoder-target-1",
        "memory-target-1",
    ]:
        browser.click(f"#part-{box}")
        inner = "document.querySelectorAll('details:not(.fold) > summary')"
        browser.js(f"{inner}.forEach(summary => summary.click())")
        browser.check_screen(width, theme, tmp_path, name)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_telephone_folds_what_is_secondary(look, path, tmp_path, theme):
    browser = look(path, 380, dark=theme == "dark")
    folds = browser.all(".fold")
    assert folds and not any(node.get_attribute("open") for node in folds)
    assert browser.js("return document.documentElement.scrollHeight") <= 4500
    browser.check_screen(380, theme, tmp_path, "folded")
    for summary in browser.all(".fold > summary"):
        browser.js("arguments[0].focus()", summary)
        browser.press(Keys.ENTER)
    assert all(node.get_attribute("open") for node in folds)
    browser.check_screen(380, theme, tmp_path, "unfolded")


def test_what_a_link_or_the_guide_shows_is_unfolded(look, path):
    browser = look(path, 380, address="model=en-fr&without=memory.1.0")
    assert browser.shows("#without-said") and not browser.shows("#part")
    browser.click("#without-said button")  # where the head looks
    assert browser.shows("#part")
    browser = look(path, 380)
    browser.js("document.querySelector('#guide li button').click()")
    assert browser.shows(".pointed") and browser.shows("#part")


def test_a_wide_screen_folds_nothing(browser):
    folds = browser.all(".fold")
    assert folds and all(node.get_attribute("open") for node in folds)
    assert not any(node.is_displayed() for node in browser.all(".fold > summary"))


def test_whatever_can_have_the_focus_has_a_name(browser):
    browser.check_names(at_least=50)


@pytest.mark.parametrize("text", ["", "  ", "123", "x" * 100])
def test_any_text_is_taken_or_refused_with_a_message(browser, text):
    choose(browser, "reverse")
    browser.click("#begin")
    paste(browser, text)
    assert browser.text("#message")
    browser.click("#next")
    choose(browser, "en-fr")
    browser.click("#begin")
    paste(browser, text)
    browser.click("#end")


def test_what_is_left_out_of_a_text_is_told(browser):
    def message(text):
        paste(browser, text)
        return browser.text("#message")

    choose(browser, "reverse")
    assert message("h3llo") == "Only the letters from a to z are taken."
    assert message("hello") == ""
    assert message("a" * 21) == "Only the first 20 tokens are taken."
    choose(browser, "en-fr")
    assert message("a " * 41) == "Only the first 40 tokens are taken."
    src = browser.js("return state.src")
    assert len(src) == 41 and src[-1] == 2  # the end token, which the model was trained on
    assert message("Two dogs play.") == ""
    assert "<unk>" not in browser.text("#signs")
    assert (
        message("日本 play")
        == "It does not know the characters 日 本; each run of them becomes ‘<unk>’."
    )
    assert browser.text("#read") == "<unk> play"
    assert "the page cannot say what is right" in browser.text("#verdict")
    assert (
        "<unk>: unknown" in (signs := browser.text("#signs")) and "(space): a word begins" in signs
    )
    assert message("日 play") == "It does not know the character 日; it becomes ‘<unk>’."
    message("A man has xylophones")  # without a full stop, the end token follows the word
    assert re.search(
        r"Cut into parts: [\w·]+\. English and French share one table",
        browser.text("#lesson"),
    )
    assert message("") == "Type an English sentence: the page still shows the last source."


def test_it_also_opens_without_being_put_together(look):
    browser = look(make_playground.FOLDER / "index.html")
    assert browser.text("#said")
    browser.check_links("a", make_playground.FOLDER)


def test_each_box_of_the_drawing_shows_what_it_computes(browser):
    titles = {}
    for id_ in browser.js("return [...$('diagram').querySelectorAll('button')].map(box => box.id)"):
        box = browser.find(f"#{id_}")
        box.click()
        assert box.get_attribute("aria-pressed") == "true"
        assert len(browser.all("#diagram [aria-pressed=true]")) == 1
        assert browser.all("#head svg") or "tokens" in id_
        titles[id_] = browser.text("#part-title")
    assert len(set(titles.values())) == len(titles) == 16
    assert titles["part-memory-target-0"] == "Decoder, layer 1: cross-attention"


# -- verdicts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "verdict"),
    [
        ([], "It should write ‘oof’."),
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
    ],
)  # fmt: skip
def test_the_verdict_names_the_first_wrong_letter(browser, written, verdict):
    choose(browser, "reverse")
    paste(browser, "transformer" if "transformer" in verdict else "foo")
    ids = [2 if letter == "." else ord(letter) - ord("a") + 3 for letter in written]
    browser.js("write([1, ...arguments[0]])", ids)
    assert browser.text("#verdict") == verdict
    wrong = [button.text[0] for button in browser.all("#target .wrong")]
    assert len(wrong) == verdict.startswith("Wrong")
    assert ("red border" in browser.text("#signs")) == verdict.startswith("Wrong")


@pytest.mark.parametrize(
    ("written", "difference"),
    [
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
    ],
)  # fmt: skip
def test_the_verdict_compares_words(browser, written, difference):
    script = """
        const [text, has_ended] = arguments, ids = chosen('en-fr').vocabulary.encode(text);
        write([1, ...ids, ...(has_ended ? [2] : [])]);
    """
    browser.js(script, written, not difference.startswith("So far"))
    translation = "the translation in the data set, “Un chien court dehors avec un jouet jaune.”"
    assert browser.text("#verdict").startswith(difference.format(translation))


def test_the_lesson_names_why_a_sentence_of_ones_own_fails(browser):
    for text, reason in [
        ("A cat and a dog.", "Cut into parts: c·at."),
        ("THE DOG RUNS", "Words in capital letters (THE, DOG, RUNS)"),
        ("I love you.", "Cut into parts: lo·ve, y·ou. "),
        ("A crowd is present at a bar.", "It repeats ‘·ir’"),
    ]:
        browser.js("show_text(arguments[0])", text)
        assert reason in browser.text("#lesson")
    browser.js("show_text('Wow !!!')")
    assert "repeats" not in browser.text("#lesson")  # as the source does
    browser.js("show_text('A crowd is present at a bar.')")
    # not all have a high p
    assert "does not say that it is right" not in browser.text("#lesson")


def test_each_experiment_asks_and_then_shows_what_it_says(browser):
    seen, verdicts = [], []
    cells = [[(3, 4), (4, 3)], [(8, 7)], [(8, 7)], [(2, 6)], [(0, 9)]]
    browser.click("#try-0")
    for i in range(5):
        asked = browser.text("#try-text").removesuffix(
            " The picture is covered until you press a button."
        )
        assert asked.endswith("?")
        assert browser.text("#try-answer") == ""
        browser.click("#try-see")
        assert browser.text("#try-text") == asked  # the answer does not replace it
        seen.append(f"{browser.text('#said')} {browser.text('#try-answer')}")
        verdicts.append(browser.text("#verdict"))
        assert not browser.shows("#try-see")
        assert "stored" not in verdicts[-1]
        text = browser.text("#step-text")
        looked = re.search(r"([\d.]+)\s%", text)[1]
        assert i == 1 or looked in seen[-1]
        outlined = (
            "return [...document.querySelectorAll('#picture .mark')].map(x => "
            "[x.y, x.x].map(at => at.baseVal.value))"
        )
        cursor = browser.find("#picture .cursor")
        width, height = (float(cursor.get_attribute(side)) for side in ("width", "height"))
        expected = [(row * height - 1, col * width - 1) for row, col in cells[i]]
        assert [tuple(at) for at in browser.js(outlined)] == expected
        browser.click("#try-show")
        assert browser.js("return document.activeElement.matches('#picture svg')")
        row, col = cells[i][0]
        assert re.search(
            rf"\({row + 1}\), looks at .* \({col + 1}\): ", browser.text("#picture .readout")
        )
        if i < 4:
            assert browser.text("#try-next").startswith(f"Next experiment: {i + 2}.")
            browser.click("#try-next")
            assert browser.js(
                "return document.activeElement.matches('#try-guess button:first-of-type')"
            )
    assert not browser.shows("#try-next")
    assert (
        "Un petit chien noir court. <end> The first passes over ‘black’" in seen[0]
        and "(96." in seen[0]
    )
    assert seen[1].startswith("Un chien court dehors avec un jouet. <end> None")
    assert (
        "you chose ‘rouge’ instead of ‘jaune’." in verdicts[2]
        and "good translation" not in verdicts[2]
    )
    assert (
        "jouet rouge. <end> The step at which ‘rouge’ was chosen still looks at ‘yellow’" in seen[2]
    )
    assert seen[3].startswith("Un chien et un chien. <end>") and "a probability of 0.9" in seen[3]
    assert (
        verdicts[3]
        == "Wrong: ‘chien’ instead of ‘chat’. A correct translation is “Un chat et un chien.”"
    )
    assert seen[4].startswith(
        "emroffsnart <end> No: one letter is skipped, one doubled, “emroffsnart” instead of “remrof"
    )
    assert verdicts[4].startswith("Wrong: ‘r’ is skipped, ‘f’ is doubled.")
    browser.click("#back")
    assert browser.text("#try-answer") == "" and browser.shows(
        "#try-see"
    )  # it was of another state
    assert not browser.all("#picture .mark")
    paste(browser, "hello")
    assert browser.text("#try-text") == "" and not browser.shows("#try-see")


def guess_in_experiment(browser, i, guess):
    """Open an experiment, press one of its guesses. Returns what the page says of the guess."""
    browser.click(f"#try-{i}")
    browser.click(f"#try-guess button:nth-of-type({guess + 1})")
    assert not browser.shows("#try-guess") and browser.text("#try-answer")
    top = browser.js("return $('try-result').getBoundingClientRect().top")
    assert 0 <= top < 900  # what is said of the guess is in sight
    return f"{browser.text('#try-result')} {browser.text('#try-judged')}"


def test_a_guess_in_an_experiment_is_judged(browser):
    n_right = 0
    for i, right in enumerate(browser.js("return TRIES.map(({ right }) => right)")):
        browser.click(f"#try-{i}")
        guesses = browser.texts("#try-guess button")
        assert len(guesses) >= 3 and browser.text("#try-judged") == ""
        order = [right, *(guess for guess in range(len(guesses)) if guess != right)]
        for guess in order if i % 2 else order[::-1]:
            judged = guess_in_experiment(browser, i, guess)
            wrong = f"✗ You guessed “{guesses[guess]}”, and it is “{guesses[right]}”: "
            assert judged.startswith("✓ Your guess was right: " if guess == right else wrong)
            assert not re.search("NaN|undefined|Infinity", judged) and re.search(r"\d", judged)
        n_right += i % 2  # the first guess counts
        if i:
            assert judged.endswith(f" Right so far: {n_right} of {i + 1}.")
    browser.click("#back")
    assert browser.text("#try-judged") == ""  # it was of another state
    browser.click("#try-see")
    assert browser.text("#try-judged") == "" and browser.text("#try-answer")  # without a guess


def test_how_far_off_a_guess_is_said_in_npformers_numbers(browser):
    model = Model("en-fr")

    def computed():
        """The probabilities, and the mean weights of the last cross-attention, of the page."""
        src, tgt_in, hidden = browser.js("return [state.src, read_tokens(), state.hidden]")
        masked = [0 if s in hidden else id_ for s, id_ in enumerate(src)]
        weights = model.weights(masked, tgt_in)
        return model.shares(masked, tgt_in), weights["memory"][-1].mean(0)

    def places(*names):
        """A step by the token that it writes, or a place of the source."""
        place = "source_place(name) < 0 ? step_of(name) : source_place(name)"
        return browser.js(f"return arguments[0].map((name) => {place})", names)

    def ids(*names):
        return browser.js("return arguments[0].map(id_of)", names)

    judged = guess_in_experiment(browser, 0, 0)
    _, weights = computed()
    first, second, dog, black = places("chien", "noir", "dog", "black")
    assert weights[first].argmax() == dog and weights[second].argmax() == black
    to_dog, to_black = 100 * weights[first, [dog, black]]
    told = f"‘chien’ gives ‘dog’ {to_dog:.1f} % and ‘black’ {to_black:.1f} %"
    assert told in judged.replace(" %", " %")

    judged = guess_in_experiment(browser, 1, 0)
    shares, _ = computed()
    step = browser.js("return state.step")
    colour = max(shares[step, id_] for id_ in browser.js("return COLOURS.map(id_of)") if id_ >= 0)
    end = shares[step, ids(".")[0]]
    assert (
        end > colour
        and f"‘.’ has a probability of {end:.2f}, and" in judged
        and f" has {colour:.2f}" in judged
    )

    judged = guess_in_experiment(browser, 2, 1)
    shares, weights = computed()
    step, yellow = places("rouge", "yellow")
    end, word = shares[step + 1, ids(".", "jaune")]
    assert weights[step].argmax() == yellow and end == shares[step + 1].max()
    assert f"‘.’ has a probability of {end:.2f}, and ‘jaune’ has {word:.2f}" in judged

    judged = guess_in_experiment(browser, 3, 1)
    shares, _ = computed()
    share = shares[places("chien")[0], ids("chien")[0]]
    assert share > 0.9 and f"‘chien’ has a probability of {share:.2f}" in judged
    assert f"your guess is too low by at least {share - 0.5:.2f}" in judged

    judged = guess_in_experiment(browser, 4, 0)
    assert f"it takes {fewest_changes('emroffsnart', 'remrofsnart')} changes of letters" in judged


def test_an_experiment_covers_the_picture_that_would_answer_it(browser):
    def covered():
        nodes = "['picture', 'step-text', 'picture-text'].map($)"
        return browser.js(f"return {nodes}.map(x => [x.classList.contains('covered'), x.inert])")

    for i in (0, 2):
        browser.click(f"#try-{i}")
        assert covered() == [[True, True]] * 3
        assert "covered until you press a button." in browser.text("#try-text")
        browser.click("#next")
        assert covered() == [[True, True]] * 3
        browser.click("#try-see")
        assert covered() == [[False, False]] * 3
        assert "covered" not in browser.text("#try-text")
    browser.click("#try-0")
    paste(browser, "A dog runs.")
    assert covered() == [[False, False]] * 3


# -- the guide -------------------------------------------------------------------------------------


def test_the_guide_says_what_npformer_computes(browser):
    text = browser.text("#guide")
    model = Model("en-fr")
    weights = model.weights(*browser.js("return [state.src, read_tokens()]"))
    yellow, toy, step = 7, 8, 8  # the step after ‘jouet’
    assert f"{100 * weights['memory'][-1][:, step, yellow].mean():.1f} % from ‘yellow’" in text
    own = weights["encoder"][0][:, yellow, toy]
    assert (
        f"in head {own.argmax() + 1} of 4, "
        f"‘yellow’ gives {100 * own.max():.1f} % of its attention to ‘toy’"
    ) in text


def test_the_guide_points_from_any_state(browser):
    shows = browser.all("#guide li button")
    assert len(shows) == 9
    for i, show in enumerate(shows):
        choose(browser, "reverse")
        browser.js("arguments[0].click()", show)
        said = (
            "Deux chiens courent sur la plage. <end>"
            if i == 7
            else "Un chien court dehors avec un jouet jaune. <end>"
        )
        assert browser.text("#said") == said
        [pointed] = browser.all(".pointed")
        assert pointed.is_displayed()
        assert browser.js("return told_written(state.step)") == (
            "‘courent’" if i == 7 else "‘jaune’"
        )
        assert shows[i].find_element("xpath", "..").text.removesuffix(" show") in browser.text(
            "#guide-bar"
        )
        browser.click("#guide-bar button:last-child")
        assert not browser.shows("#guide-bar")
        assert not browser.all(".pointed")
        assert browser.js("return document.activeElement === arguments[0]", show)


def test_the_guide_can_be_walked_through(browser):
    titles, effects = [], []
    browser.js("document.querySelector('#guide li button').click()")
    while True:
        titles.append(browser.text("#guide-bar b"))
        effects.append(browser.text("#part-effect"))
        if "Next" not in browser.texts("#guide-bar button"):
            break
        active = browser.driver.switch_to.active_element
        assert active.text == "Next"
        if len(titles) == 2:
            assert browser.text("#part-title") == "Encoder, layer 1: self-attention"
            assert browser.js("return [state.row, state.head]") == [7, 0]
        active.send_keys(Keys.ENTER)
    assert [title.split(".")[0] for title in titles] == [str(i + 1) for i in range(9)]
    script = """
      choose_step(step_of("dehors"));
      const traced = trace(state.name, state.src, read_tokens());
      const without = shares_without({ kind: "encoder", side: "source", layer: 1 }, traced);
      const all = shares_at(traced.decoded.logits[state.step]);
      return [without, all].map((shares) => number(shares[id_of("dehors")], 2));
    """
    browser.js("show_text(FIRST)")
    assert " instead of ".join(browser.js(script)) in browser.all("#guide li")[1].text
    for chance in re.findall(r"0\.\d\d", browser.all("#guide li")[6].text):
        assert chance in effects[6]  # as the box says it
    assert "the most probable would be ‘chiens’" in effects[7]  # as the guide says
    paste(browser, "A dog runs.")
    assert not browser.shows("#guide-bar")  # it speaks of another text


def test_the_frame_begins_where_there_is_something_to_see(browser):
    def framed():
        return browser.js("return told_written(state.step)")

    assert framed() == "‘jaune’"  # the step that looks back
    paste(browser, "A man plays the guitar.")
    weights = browser.js(
        "return mean_of(trace('en-fr', state.src, read_tokens()).heads.memory.at(-1))"
    )
    step = browser.js("return state.step")
    assert max(weights[step]) >= 0.5 and len(framed()) > 5
    browser.js("show_text('A pretty woman plays a harpsichord.')")
    assert framed() == "‘femme’"  # in the data set: "jolie"
    browser.js(
        "show_text('A cat and a dog.'); state.hidden = [source_place('dog')]; "
        "write([BOS]); take_all()"
    )
    assert framed() == "‘c’" and "a correct translation goes on with ‘ch’" in browser.text(
        "#step-text"
    )
    choose(browser, "reverse")
    paste(browser, "transformer")
    assert (
        "Wrong: ‘r’ is skipped" in browser.text("#verdict") and browser.js("return state.step") == 0
    )


@pytest.mark.parametrize(
    "button",
    ["#source li:nth-child(2)", "#target li:nth-child(2)", "#distribution tr:nth-child(2)"],
)
def test_the_first_click_after_typing_is_not_lost(browser, button):
    field = browser.find("#text")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("Two dogs.")
    browser.wait_for("state.text === 'Two dogs.'")
    script = "return JSON.stringify([state.hidden, state.step, state.tgt_in])"
    before = browser.js(script)
    selector = f"{button.replace('#distribution', '#distribution tbody')} button"
    browser.click(selector)  # the field loses the focus when the button is pressed
    assert browser.js(script) != before


def test_what_is_typed_is_read_without_enter_and_the_address_keeps_it(browser, look, path):
    browser.find("#text").send_keys(Keys.CONTROL, "a")
    browser.find("#text").send_keys("Two dogs.")
    browser.wait_for("state.text === 'Two dogs.'")
    assert browser.text("#read") == "Two dogs."
    assert browser.address() == "model=en-fr&text=Two+dogs."
    look(path, address="model=reverse&text=hello")
    assert browser.text("#said") == "olleh <end>"
    for address in ["model=none", "model=constructor", "model=reverse&text=123", "text=%20"]:
        look(path, address=address)  # nothing that can be read: the first example
        assert browser.text("#said").endswith("<end>")


def test_a_text_may_be_a_name_that_every_object_of_the_language_has(browser):
    for model in ("reverse", "en-fr"):
        choose(browser, model)
        for text in ("constructor", "toString"):
            paste(browser, text)
            assert browser.text("#said")
