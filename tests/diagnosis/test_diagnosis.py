"""Mistakes are found by name, healthy models have none, and nothing is changed by looking."""

import copy
import pickle
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refuses

from scripts.measure.diagnose_mistakes import examined
from scripts.measure.diagnosed import changes
from scripts.measure.diagnosed.cases import (
    adapted,
    after,
    classes,
    loaded,
    numbers,
    pairs,
    rules_of_text,
    text,
    trained,
)
from scripts.measure.diagnosed.mistakes import MISTAKES, TESTED

import npformer as nf
from npformer import tree
from npformer.diagnosis import doctor
from npformer.diagnosis.finding import CONSEQUENCES, TABLE
from npformer.diagnosis.questions import dependence
from npformer.diagnosis.questions.pairs import fits_by_shift

TASK = nf.CopyTask(vocab=13, min_len=3, max_len=9)
ALONE = {
    "positions are zeros": "no positions",
    "both matrices of adapters are zero": "equal weights",
}


@pytest.fixture(autouse=True)
def every_bug_of_a_check_is_raised(monkeypatch):
    """Without it a check with a bug would count as one that could not be made."""
    monkeypatch.setattr(doctor, "FAILURES", (nf.UserError,))


def planted(title):
    (mistake,) = (mistake for mistake in MISTAKES if mistake.title == title)
    return mistake


def names_after(mistake):
    """The names of what is found after a mistake was planted."""
    return examined(mistake.make(), verbose=False).names


@pytest.mark.parametrize("mistake", TESTED, ids=[mistake.title for mistake in TESTED])
def test_a_mistake_is_named(mistake):
    assert mistake.names & {*names_after(mistake)[:2]}


def test_what_is_tested_was_added_as_a_mistake():
    def no_mistake():
        return text()

    assert TESTED  # else the test above would be skipped
    with pytest.raises(ValueError, match="no_mistake is no mistake yet"):
        changes.tested(no_mistake)


@pytest.mark.parametrize("title", ALONE)
def test_a_mistake_is_named_alone(title):
    assert names_after(planted(title)) == [ALONE[title]]


def test_names_are_those_of_the_table_and_of_the_guide():
    assert {name for mistake in MISTAKES for name in mistake.names} <= set(TABLE)
    assert {name for names in CONSEQUENCES.values() for name in names} <= set(TABLE)
    path = Path(__file__).parents[2] / "docs/guides/it-does-not-learn.md"
    guide = path.read_text(encoding="utf-8")
    assert re.findall(r"^\| `([^`]+)` \|", guide, re.MULTILINE) == list(TABLE)


def test_what_the_checks_find_is_in_the_table():
    """A check with a misspelt name would count as one that could not be made."""
    folder = Path(nf.__file__).parent / "diagnosis"
    text = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    assert {*re.findall(r'\b(?:sign|Wrong)\(\s*"([^"]+)"', text)} == set(TABLE)


def found_in(case, **options):
    return nf.diagnose(**case | options)


def names_in(case, **options):
    """The names that a quick diagnosis finds."""
    return found_in(case, quick=True, **options).names


def test_a_check_that_fails_is_raised_here_and_is_not_examined_elsewhere(monkeypatch):
    def fails(subject):
        """Whether there is a bug."""
        raise KeyError("bug")

    monkeypatch.setattr(doctor, "QUICK", (fails,))
    with pytest.raises(KeyError, match="bug"):
        found_in(text(), quick=True)
    monkeypatch.setattr(doctor, "FAILURES", (Exception,))
    line = "not examined, which is no mistake: Whether there is a bug: KeyError: 'bug'"
    assert found_in(text(), quick=True).not_examined == [line]


def test_a_check_that_does_not_say_why_it_cannot_be_made_says_nothing_of_outputs(monkeypatch):
    def fails(subject):
        """Whether it says why."""
        raise ValueError

    monkeypatch.setattr(doctor, "FAILURES", (Exception,))
    monkeypatch.setattr(doctor, "QUICK", (fails,))
    line = "not examined, which is no mistake: Whether it says why: ValueError"
    assert found_in(text(), quick=True).not_examined == [line]


def test_only_a_question_of_outputs_is_listed_under_those(monkeypatch):
    def fails(subject):
        """Whether it has no word of a reason."""
        raise nf.UserError

    monkeypatch.setattr(doctor, "QUICK", (fails,))
    findings = found_in(text(), quick=True)
    line = "not examined, which is no mistake: Whether it has no word of a reason: "
    assert findings.has_outputs and findings.not_examined == [line]


# -- what is healthy, or was chosen


HEALTHY = {
    "post": lambda: trained(pairs(norm="post", dropout=0.1)),
    "grouped heads": lambda: trained(text(n_kv_heads=2, norm_type="rms_norm")),
    "classes": lambda: classes(pooling="first"),
    "numbers": numbers,
    "recurrent": lambda: pairs(nf.Recurrent),
    "ByteNet": lambda: pairs(nf.ByteNet),
    "float64": lambda: pairs(dtype="float64") | {"backend": "reference"},
    "larger steps after a warm-up": lambda: trained(pairs(), nf.Adam(nf.noam(32, warmup=60))),
    "new adapters": lambda: after(adapted(pairs(norm="post")), 0),
    "trained adapters": lambda: after(adapted(pairs(norm="post")), 30),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_found_where_nothing_is_wrong(name):
    assert found_in(HEALTHY[name]()).names == []


def test_another_task_with_the_same_words_is_no_mistake():
    case = loaded(rules_of_text())
    backwards = {"batch": (case["batch"][0][:, ::-1].copy(),)}
    assert names_in(case | backwards) == ["worse than chance"]
    assert names_in(trained(case, params=case["params"]) | backwards) == []
    assert names_in(adapted(case) | backwards) == []


def test_no_positions_are_a_choice_if_they_are_set_so():
    found = found_in(classes(positions="none"))
    assert found.names == []
    assert any("positions=" in why for why in found.not_examined)


def test_few_symbols_are_no_padding():
    ids = np.random.default_rng(0).integers(3, 5, (32, 12))
    assert "padding counted" not in names_in(text(batch=(ids,)))


def test_a_table_of_variance_1_is_usual():
    case = text()
    table = case["params"]["embedding"]
    table[...] = np.random.default_rng(0).standard_normal(table.shape)
    assert "scale of weights" not in names_in(case)
    table *= 40
    assert "scale of weights" in names_in(case)


def learned(case, rate, least):
    """The same after a training up to a small loss."""
    case = trained(case, nf.Adam(rate))
    while case["trainer"].step(*case["batch"]) > least:
        pass
    return case


def test_a_batch_of_numbers_that_is_learned_already_is_no_finding():
    found = found_in(learned(numbers(), 3e-3, 1e-3))
    assert "one batch is not learned" not in found.names


@pytest.mark.parametrize("rows", [1, 3])
def test_a_few_rows_and_no_padding(rows):
    src = np.random.default_rng(0).integers(3, 13, (rows, 6))
    tgt = np.insert(src, 0, 1, axis=1)
    tgt = np.insert(tgt, 7, 2, axis=1)
    found = found_in(pairs(batch=(src, tgt)))
    assert found.names == []
    assert any("one row" in why for why in found.not_examined) == (rows == 1)
    assert "finite" not in repr(found)


def test_what_a_mask_hides_never_matters():
    x, y = numbers()["batch"]
    mask = np.random.default_rng(0).random((16, 8)) < 0.8
    for hidden, name in ((np.nan, "not finite"), (999.0, "scale of the data")):
        poisoned = np.where(mask[..., None], x, hidden)
        assert names_in(numbers(), batch=(poisoned, y, mask)) == []
        assert names_in(numbers(), batch=(poisoned, y)) == [name]


def test_a_diagnosis_changes_nothing_and_is_the_same_again():
    case = trained(text(dropout=0.1))
    trainer = case["trainer"]
    state = np.random.get_state()[1].copy()
    trainer.step(*case["batch"])
    before = pickle.dumps(trainer.__reduce__()[1][3:])
    batch = copy.deepcopy(case["batch"])
    bits = trainer.flat_params.tobytes()
    assert repr(trainer.diagnose(*case["batch"])) == repr(trainer.diagnose(*case["batch"]))
    assert trainer.flat_params.tobytes() == bits
    assert pickle.dumps(trainer.__reduce__()[1][3:]) == before
    assert all(map(np.array_equal, batch, case["batch"]))
    assert np.array_equal(np.random.get_state()[1], state)


# -- models of your own


class Bigram:
    """A model with the methods of the protocol, whose batch is one array."""

    def init(self, seed):
        return {"table": np.random.default_rng(seed).standard_normal((13, 13)) / 4}

    def loss_and_grad(self, params, ids, *, dropout_key=None, n_tokens=None, backend="auto"):
        x = ids[:, :-1].ravel()
        y = ids[:, 1:].ravel()
        n = n_tokens or x.size
        dlogits = nf.reference.softmax(params["table"][x])
        p = dlogits[np.arange(x.size), y]
        dlogits[np.arange(x.size), y] -= 1
        grad = np.zeros((13, 13))
        np.add.at(grad, x, dlogits / n)
        return -np.log(p).sum() / n, {"table": grad}, x.size

    def count(self, ids):
        return ids[:, 1:].size


class BigramWithLogits(Bigram):
    """The same, which can be asked for its outputs."""

    def logits(self, params, ids):
        return params["table"][ids]


class WrongBigram(Bigram):
    """The same with a gradient that is wrong."""

    def loss_and_grad(self, params, ids, **options):
        loss, grads, n = super().loss_and_grad(params, ids, **options)
        return loss, {"table": 1.1 * grads["table"]}, n


class NeedsItsNumber(Bigram):
    """The same, which has to be given the number of targets, as a trainer gives it."""

    def loss_and_grad(self, params, ids, *, dropout_key, n_tokens, backend):
        return super().loss_and_grad(params, ids, n_tokens=n_tokens + 0)


class Weighted(Bigram):
    """The same with an array that is not a number for each row."""

    def count(self, ids, weights):
        return weights.missing if len(weights) < 2 else ids[:, 1:].size

    def loss_and_grad(self, params, ids, weights, **options):
        return super().loss_and_grad(params, ids, **options)


class Delegating:
    """A model that has another, and only the methods of the protocol, and others that are named."""

    def __init__(self, model, *others, **renamed):
        for name in ("init", "count", "loss_and_grad", *others):
            setattr(self, name, getattr(model, name))
        vars(self).update({new: getattr(model, name) for new, name in renamed.items()})


class NotCausal(nf.LanguageModel):
    """A language model without the causal mask."""

    causal = False


class Blind(nf.LanguageModel):
    """A language model that sees the position alone."""

    def embed(self, ops, params, side, ids, dropout_key=None, at=None):
        return super().embed(ops, params, side, np.ones_like(ids), dropout_key, at)


ASCENDING = (np.arange(12)[:, None] + np.arange(9)) % 13
BIGRAM = {"model": Bigram(), "params": Bigram().init(0), "batch": (ASCENDING,)}


DELEGATING = text() | {"model": Delegating(text()["model"])}


@pytest.mark.parametrize("case", [BIGRAM, BIGRAM | {"model": NeedsItsNumber()}, DELEGATING])
def test_a_batch_of_one_array_of_a_model_of_your_own(case):
    found = found_in(case)
    assert found.names == []
    assert "has no logits" in found.not_examined[0]
    assert "Which outputs depend on a token" in found.not_examined[0]
    assert "the batch" not in repr(found)


def test_what_was_not_asked_of_a_model_without_outputs_comes_first_and_what_to_add():
    shown = repr(found_in(BIGRAM))
    first, _, question, *lines = shown.splitlines()
    assert first.startswith("The outputs were not examined: a Bigram has no logits(params, …)")
    assert question == "  Whether an output is finite, and the same again"
    assert any(line.startswith("  logits(params, *inputs), which returns") for line in lines)
    assert max(map(len, [first, question, *lines[:8]])) < 100
    assert "Nothing is wrong" not in shown
    assert lines[-1] == "No mistake was found in the rest."
    assert repr(found_in(BIGRAM, model=BigramWithLogits())).startswith("input ignored")
    shown = repr(found_in(BIGRAM, model=WrongBigram()))
    assert shown.startswith("wrong gradient")
    assert "\nThe outputs were not examined" in shown
    assert "No mistake" not in shown


def test_a_wrong_gradient_of_a_model_of_your_own():
    [wrong] = found_in(BIGRAM, model=WrongBigram())
    pattern = r"at table \[\d+, \d+\] the slope of the loss is (\S+), the gradient (\S+)"
    entry = re.search(pattern, wrong.seen)
    by_loss, by_gradient = map(float, entry.groups())
    assert wrong.name == "wrong gradient"
    assert by_gradient == pytest.approx(1.1 * by_loss, rel=0.05)
    assert "own-model.md" in wrong.what_to_do


class ForgetfulBigram(Bigram):
    """The same without the gradient."""

    def loss_and_grad(self, params, ids, **options):
        loss, _, n = super().loss_and_grad(params, ids, **options)
        return loss, {}, n


def test_a_gradient_that_is_not_returned_is_not_said_to_be_0():
    [found] = found_in(BIGRAM, model=ForgetfulBigram())
    assert found.name == "no gradient"
    assert found.seen == "loss_and_grad returns no gradient of table"


def raising(params, ids):
    raise KeyError("w9")


WHY_NO_OUTPUTS = {
    "logits of BigramWithLogits does not run: KeyError: 'w9'": raising,
    "logits of a BigramWithLogits returns a tuple, expected an array": lambda params, ids: (ids,),
}


@pytest.mark.parametrize("why", WHY_NO_OUTPUTS)
def test_outputs_that_cannot_be_examined_are_told_with_the_reason(why):
    model = BigramWithLogits()
    model.logits = WHY_NO_OUTPUTS[why]
    found = found_in(BIGRAM, model=model, quick=True)
    assert found.not_examined[0].startswith(f"The outputs were not examined: {why}.\n")


OWN_KINDS = {nf.LanguageModel: [], NotCausal: ["later tokens leak"], Blind: ["input ignored"]}


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_logits_of_a_model_of_your_own_are_examined(kind):
    case = text(kind)
    own = Delegating(case["model"], "logits")  # it has neither vocab nor pad_id
    assert names_in(case, model=own) == OWN_KINDS[kind]


def test_logits_of_a_source_and_a_target_are_examined():
    for make, names in ((planted("memory is zero").make, ["input ignored"]), (pairs, [])):
        case = make()
        assert names_in(case, model=Delegating(case["model"], "logits", "pad_id")) == names


def test_a_model_of_one_token_may_be_meant_so():
    (found,) = found_in(BIGRAM, model=BigramWithLogits(), quick=True)
    assert (found.name, found.sure) == ("input ignored", "likely")
    assert "this is no mistake" in found.seen


def test_a_label_of_each_token_may_depend_on_later_tokens():
    ids, labels = np.random.default_rng(0).integers(1, 13, (2, 16, 9))
    case = classes(n_outputs=13, pooling="none", batch=(ids, labels))
    tagger = Delegating(case["model"], "pad_id", logits="outputs")
    assert names_in(case, model=tagger) == []


def test_only_an_error_of_the_model_says_that_it_does_not_run():
    case = BIGRAM | {"model": Weighted()}
    assert found_in(case, batch=(ASCENDING, np.arange(13.0))).names == []
    assert found_in(case, batch=(ASCENDING, np.ones(1))).names == ["does not run"]


# -- what is said of a mistake


def test_a_small_loss_without_the_causal_mask_is_a_leak():
    case = learned(text(NotCausal), 1e-2, 0.03)
    assert found_in(case).names[0] == "later tokens leak"


class OwnLoss(nf.LanguageModel):
    """A language model whose loss compares outputs with the tokens that are read."""

    def loss_and_grad(self, params, ids, **options):
        return super().loss_and_grad(params, ids, ids, **options)


class Sorted(nf.Transformer):
    """A Transformer that sorts sources by length, and not their targets."""

    def loss_and_grad(self, params, src, tgt, **options):
        order = np.argsort((src != self.pad_id).sum(axis=1), kind="stable")
        return super().loss_and_grad(params, src[order], tgt, **options)


def test_a_loss_of_other_targets_says_of_which():
    found = found_in(text(OwnLoss), quick=True)[0]
    loss = float(re.search(r"loss_and_grad gives ([\d.]+),", found.seen)[1])
    assert (found.name, found.sure) == ("targets not shifted", "certain")
    assert found.seen.endswith(f"with the input as targets {loss:.4g}")


@pytest.mark.parametrize("rows", [2, 32])
def test_rows_that_are_mixed_in_the_loss_are_named(rows):
    batch = tuple(x[:rows] for x in TASK.batch(0, 32))
    (found,) = found_in(pairs(Sorted, batch=batch), quick=True)
    assert found.name == "loss differs"
    assert "each row alone agrees" in found.seen


def test_one_id_may_begin_and_end_a_target():
    src, tgt = TASK.batch(0, 32)
    case = pairs(batch=(src, np.where(tgt == 1, 2, tgt))) | {"eos_id": 2, "quick": True}
    assert found_in(case, bos_id=2).names == []
    (found,) = found_in(case, bos_id=1)
    assert found.name == "begin token"
    assert found.seen == "all targets begin with 2, and you decode with bos_id=1"


def small_trainer(rate, n_made=0):
    trainer = trained(text(d_model=16, n_layers=1), nf.Adam(rate))["trainer"]
    trainer.state.n_steps = n_made
    return trainer


OVER = [(10, 0), (10, 15), (150, 160)]
NOT_OVER = [(40, 0), (120, 60), (150, 150)]


@pytest.mark.parametrize(("total", "n_made"), OVER + NOT_OVER)
def test_a_schedule_that_is_over_is_named(total, n_made):
    trainer = small_trainer(nf.warmup_cosine(3e-3, 1, total), n_made)
    batch = text()["batch"]
    assert trainer.diagnose(*batch, n_steps=total).names == []
    found = trainer.diagnose(*batch)
    assert found.names == ["rate too small"] * ((total, n_made) in OVER)
    for each in found:
        assert int(re.search(r"spent by step (\d+)", each.seen)[1]) < total
        assert "steps, not epochs" in each.what_to_do


def falling(factor, every=1):
    """A schedule that multiplies the rate again and again."""
    return lambda step: 3e-3 * factor ** (step // every)


def test_a_schedule_for_another_number_of_steps_is_named():
    def is_too_small(rate, n_steps=None):
        names = small_trainer(rate).diagnose(*text()["batch"], n_steps=n_steps).names
        assert names in ([], ["rate too small"])
        return bool(names)

    assert is_too_small(nf.noam(32), 300)
    assert not is_too_small(nf.noam(32), 4000)
    assert not is_too_small(nf.noam(32), 1)
    assert not is_too_small(nf.noam(32))
    assert is_too_small(falling(0.9))
    assert not is_too_small(falling(0.9, every=30), 300)
    assert is_too_small(falling(0.95), 300)


def test_the_batch_is_one_tuple_of_what_the_model_takes():
    case = pairs()
    src, tgt = case["batch"]
    of_model = case["model"], case["params"]
    several = "params is followed by 2 arguments, expected one batch, a tuple of arrays"
    refuses(TypeError, several, nf.diagnose, *of_model, src, tgt)
    method = r"params is a Trainer, expected a dict .*: trainer.diagnose\(\*batch\)"
    trainer = nf.Trainer(case["model"], nf.Adam(0.1))
    refuses(TypeError, method, nf.diagnose, case["model"], trainer, (src, tgt))
    of_class = r"model is the class LanguageModel, expected LanguageModel\(…\)"
    refuses(TypeError, of_class, nf.diagnose, nf.LanguageModel, case["params"], (src, tgt))
    nothing = "batch is a NoneType, expected a tuple of arrays"
    refuses(TypeError, nothing, nf.diagnose, *of_model, None)
    no_mask = r"batch\[2\] is None, expected an array: leave it out"
    refuses(TypeError, no_mask, nf.diagnose, *of_model, (src, tgt, None))
    array = r"array of shape \(12, 9\), expected a tuple of arrays: batch=\(x,\)"
    refuses(TypeError, array, found_in, BIGRAM, batch=ASCENDING)
    expected = "expected those that Transformer takes: (src, tgt)"
    for batch, problem in (
        ((src, tgt, tgt), f"a batch has 3 items, {expected}"),
        ((src,), f"a batch has 1 item, {expected}"),
        ((src, tgt[:5]), "rows"),
    ):
        found = found_in(case, batch=batch)
        assert found.names == ["does not run"]
        assert problem in found[0].seen
        assert found.not_examined


@pytest.mark.parametrize("width", [0, 4])
def test_any_integers_can_be_compared_as_pairs(width):
    x = np.zeros((8, width), int)
    for y in (-100, np.uint8(255), 2**40):
        assert np.isfinite(fits_by_shift(x, np.full((8, 3), y))).all()


@pytest.mark.parametrize("n", [0, 1, 7])
def test_rows_that_are_off_by_some_rows_are_named_before_the_training(n):
    case = pairs()
    src, tgt = case["batch"]
    found = found_in(case, quick=True, batch=(np.roll(src, n, axis=0), tgt))
    assert found.names == ["rows do not match"] * (n > 0)
    assert all(f"of row i+{n} of" in each.seen for each in found)


def test_a_gradient_is_not_compared_with_a_loss_that_does_not_change():
    found = found_in(changes.with_batch(numbers(), lambda x, y: (x, 1e9 * y)))
    assert "wrong gradient" not in found.names
    assert any("less than it is rounded" in why for why in found.not_examined)


@pytest.mark.parametrize("leak", [0.0, 1e-3])
def test_rounding_in_a_row_of_small_outputs_is_no_leak(leak):
    x = np.array([[1e-4], [1.0], [-1.0]])

    def outputs(inputs):
        [rows] = inputs
        place = np.arange(len(rows))[:, None]
        # 1e-7 is the rounding of numbers near 1 in float32
        return rows + (1e-7 + leak) * place

    case = SimpleNamespace(inputs=[x], outputs=outputs, outputs_of_rows=outputs([x]))
    names = [finding.name for finding in dependence.rows(case)]
    assert names == (["rows leak"] if leak else [])


def test_a_setting_that_is_unusual_is_named_alone():
    (found,) = found_in(trained(pairs(), nf.SGD(0.1), clip_norm=1e-4))
    assert found.name == "unusual setting"
    assert found.seen.startswith("clip_norm=0.0001; the gradient has")


def test_numbers_are_said_of_the_input_and_of_the_targets():
    (found,) = found_in(
        changes.with_batch(numbers(), lambda x, y: (x + 300, y + 40_000)), quick=True
    )
    assert found.name == "scale of the data"
    assert "input: mean 300" in found.seen
    assert "targets: mean 4e+04" in found.seen


def test_parameters_are_compared_with_those_of_the_trainer():
    case = trained(pairs())
    other = tree.map_leaves(lambda x: x + 0.01, case["params"])
    assert "stale parameters" in found_in(case, params=other).names


class NoNumbers(nf.LanguageModel):
    """A language model whose gradient is not finite."""

    def loss_and_grad(self, params, *batch, **options):
        loss, grads, n = super().loss_and_grad(params, *batch, **options)
        return loss, tree.map_leaves(lambda g: g * np.nan, grads), n


def test_a_gradient_that_is_not_finite_is_named_as_such():
    found = found_in(text(NoNumbers))
    assert found[0].name == "not finite"
    assert "gradient holds NaN or infinity, the loss is 3" in found[0].seen
    assert "gradients overwritten" not in found.names


# -- padding, and what may follow from it


@pytest.mark.parametrize("pad_id", [None, 3])
def test_padding_that_is_no_padding_to_the_model_is_named(pad_id):
    case = text(pad_id=pad_id)
    [ids] = case["batch"]
    seen = {each.name: each.seen for each in found_in(case, quick=True)}
    share = (ids == 0).sum() / ids[:, 1:].size
    assert f", {share:.0%} of all targets" in seen["padding counted"]


@pytest.mark.parametrize("which", ["bos_id", "eos_id"])
def test_padding_has_an_id_of_its_own(which):
    case = pairs()
    assert "padding inside" in names_in(case, **{which: case["model"].pad_id})


class WrongCache(nf.LanguageModel):
    """A language model whose decoder computes something else."""

    def decoder(self, *args, **options):
        return self

    def step(self, ids, parents):
        return np.full((len(ids), self.vocab), 9.0)


@pytest.mark.parametrize("pad_id, cause", [(None, "padding counted"), (0, "cache differs")])
def test_a_cache_that_differs_may_follow_from_padding(pad_id, cause):
    (found,) = found_in(text(WrongCache, pad_id=pad_id))
    assert (found.name, found.sure) == (cause, "likely")


def test_tokens_at_the_ends_may_follow_from_padding():
    case = pairs()
    src, tgt = case["batch"]
    begins_with_padding = np.where(tgt < 2, 1 - tgt, tgt)
    found = found_in(case, batch=(src, begins_with_padding), bos_id=0, eos_id=2)
    assert found.names == ["padding counted"]
    assert found_in(pairs(), bos_id=1, eos_id=0).names == ["padding inside"]


def test_what_may_explain_a_finding_comes_before_it_and_the_report_says_so():
    found = found_in(pairs(), bos_id=2, eos_id=2, max_len=5)
    assert found.names == ["begin token", "end token"]
    assert repr(found).startswith("Mend the first one first")
    assert "Mend" not in repr(found[:1])


# -- a training that is watched


def watched(trainer, batches, **options):
    """What is found while it trains."""
    trainer.fit(batches, **{"watch": True, "progress": False} | options)
    return trainer.watched.findings.names


def of_text(n_steps, size):
    for i in range(n_steps):
        _, tgt = TASK.batch(i, size)
        yield (tgt,)


def test_a_batch_that_is_no_tuple_is_refused_before_it_is_examined():
    message = r"batches\[0\] is a ndarray, expected a tuple"
    refuses(ValueError, message, watched, trained(text())["trainer"], [text()["batch"][0]])


def test_a_watched_training_warns_once_by_name_and_writes_it_to_the_log(tmp_path):
    trainer = nf.Trainer(text(NotCausal)["model"], nf.Adam(0.3))
    with pytest.warns(UserWarning) as warned:
        names = watched(trainer, [text()["batch"]] * 4, save=tmp_path)
    told = "\n".join(str(warning.message) for warning in warned)
    assert told.count("later tokens leak (certain)") == told.count("rate too large") == 1
    records = nf.training.JsonLog.read(tmp_path / "log.jsonl")
    assert [record["finding"] for record in records if "finding" in record] == names
    assert "layers.1" in trainer.report()
    assert "rate too large" in trainer.report()


def test_watching_changes_no_bit_of_a_training():
    model = pairs(dropout=0.1, tie_embeddings=True)["model"]
    alone, other = (nf.Trainer(model, nf.Adam(1e-3)) for _ in range(2))
    batches = [TASK.batch(i, 16) for i in range(3)]
    alone.fit(batches, progress=False)
    assert watched(other, batches) == []
    assert alone.flat_params.tobytes() == other.flat_params.tobytes()
    assert "decoder.1" in other.report()


MIXED = {None: ("UNLIKE", 1e-3), 1: ("UNLIKE", 1e-3), 2: ("MATCHED", 1e-2)}


@pytest.mark.parametrize("seed", MIXED)
def test_rows_that_do_not_match_are_named_after_a_while(seed, monkeypatch):
    sign, rate = MIXED[seed]
    for each in ("UNLIKE", "MATCHED"):
        monkeypatch.setattr(f"npformer.diagnosis.watch.{each}", 150 if each == sign else 10**6)
    trainer = nf.Trainer(pairs(d_model=16, n_layers=1)["model"], nf.Adam(rate))
    batches = [TASK.batch(i, 32) for i in range(150)]
    if seed:
        rng = np.random.default_rng(seed)
        batches = [(rng.permutation(src), tgt) for src, tgt in batches]
    with warnings.catch_warnings(action="ignore"):
        assert watched(trainer, batches) == ["rows do not match"] * (seed is not None)


def test_a_batch_without_a_target_has_no_loss_to_compare(monkeypatch):
    monkeypatch.setattr("npformer.diagnosis.watch.MATCHED", 1)
    src, tgt = TASK.batch(0, 16)
    trainer = nf.Trainer(pairs()["model"], nf.Adam(1e-3))
    with warnings.catch_warnings(action="ignore"):
        assert "rows do not match" not in watched(
            trainer, [(src, 0 * tgt)], watch=doctor.Findings()
        )


def test_what_was_examined_is_not_examined_again(monkeypatch):
    trainer = nf.Trainer(text(NotCausal)["model"], nf.Adam(1e-3))
    found = trainer.diagnose(*text()["batch"])
    monkeypatch.setattr(trainer, "diagnose", None)
    # It warns of nothing that is known.
    assert watched(trainer, [text()["batch"]], watch=found) == found.names
    assert found.names[0] == "later tokens leak"


@pytest.mark.parametrize("watch", [[], [1, 2], ["later tokens leak"]], ids=str)
def test_a_list_of_anything_else_is_not_taken_for_what_was_examined(watch):
    trainer = nf.Trainer(text()["model"], nf.Adam(1e-3))
    message = "is a list, expected True, False or the result of diagnose"
    refuses(TypeError, message, trainer.fit, [text()["batch"]], watch=watch, progress=False)


@pytest.mark.parametrize("name", ["watch", "progress"])
def test_a_word_in_place_of_a_flag_of_fit_is_refused(name):
    trainer = nf.Trainer(text()["model"], nf.Adam(1e-3))
    message = f"{name}='no' is a str, expected True or False"
    refuses(TypeError, message, trainer.fit, [text()["batch"]], **{name: "no"})


def test_a_training_that_is_stuck_is_named():
    trainer = nf.Trainer(text(d_model=8, n_layers=1)["model"], nf.Adam(1e-9))
    with pytest.warns(UserWarning, match="stuck"):
        watched(trainer, of_text(200, 32))


def test_a_watched_schedule_that_is_over_and_the_update_at_the_highest_rate():
    schedule = nf.warmup_cosine(1e-2, 2, 54)
    trainer = nf.Trainer(text(d_model=8, n_layers=1)["model"], nf.Adam(schedule))
    is_over = (
        r"the rate is 0 since step 54: the schedule is over.\n.* Try: schedules for your steps"
    )
    with pytest.warns(UserWarning, match=is_over):
        watched(trainer, of_text(56, 8))
    last = trainer.watched.parts["layers.0"]  # of step 52
    (line,) = (line for line in trainer.report().splitlines() if line.startswith("layers.0"))
    assert float(line.split()[-1]) > 10 * last.ratio > 0


def test_a_report_needs_a_watched_training_and_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    trainer = nf.Trainer(pairs()["model"], nf.Adam(1e-3))
    refuses(ValueError, "watch=True", trainer.report)
    watched(trainer, (TASK.batch(i, 16) for i in range(3)))
    steps = [info._replace(loss=3.5 + 0.1 * i) for i, info in enumerate(trainer.watched.steps)]
    above, _ = nf.plots.plot_loss(steps, tmp_path / "loss.png")
    ticks = above.get_yticklabels() + above.get_yticklabels(minor=True)
    labels = [label.get_text() for label in ticks]
    assert "3.6" in labels
    assert "^" not in "".join(labels)
    trainer.report(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 10_000
