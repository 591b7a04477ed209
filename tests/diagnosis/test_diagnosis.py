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
from scripts.measure.diagnosed.cases import adapted, after, classes, numbers, pairs, text, trained
from scripts.measure.diagnosed.changes import with_batch
from scripts.measure.diagnosed.mistakes import MISTAKES

import npformer as nf
from npformer import tree
from npformer.diagnosis.finding import CONSEQUENCES, TABLE
from npformer.diagnosis.questions import dependence
from npformer.diagnosis.questions.pairs import fits_by_shift

TASK = nf.CopyTask(vocab=13, min_len=3, max_len=9)
USUAL = """
    rate 100 times too large, targets are the inputs, the model knows no padding
    new layers are frozen, dropout 09, no causal mask in the text
    n tokens is ignored with two shards
"""
OTHERS = """
    nan in the measurements, padding is not masked by the model, batch is normalised
    memory is zero, heads are equal, all positions are equal, sign of a gradient
    encoder gets no gradient, wrong count, no end token, classes from 1
    most words are unknown, value to predict among the inputs, warm up of a million steps
    epochs are given for steps, the same batch in each step, few rows learned by heart
    rate 10 times too large, mask is inverted, positions 30 times too large
    loss of the inputs, position is one off, rotary positions begin again
    one buffer for all gradients, positions along the rows
    heads are split without a transpose, gradients are added up, adapters get no gradient
    texts in the order of their subjects, numbers in the order of their targets
    validation has other units, text in another order, trained adapters for another vocabulary
"""


class NotCausal(nf.LanguageModel):
    """A language model without the causal mask."""

    causal = False


def named(titles):
    wanted = [title.strip() for line in titles.strip().splitlines() for title in line.split(",")]
    return [mistake for mistake in MISTAKES if mistake.title in wanted]


@pytest.mark.parametrize("mistake", named(USUAL) + named(OTHERS), ids=lambda mistake: mistake.title)
def test_a_mistake_is_named(mistake):
    assert mistake.names & set(examined(mistake.make(), verbose=False).names[:2])


def test_all_seven_usual_mistakes_are_planted():
    assert len(named(USUAL)) == 7


def test_a_small_loss_without_the_causal_mask_is_a_leak():
    case = trained(text(NotCausal), nf.Adam(1e-2))
    while case["trainer"].step(*case["batch"]) > 0.03:
        pass
    assert nf.diagnose(**case).names[0] == "later tokens leak"


@pytest.mark.parametrize(
    "case",
    [
        lambda: trained(pairs(norm="post", dropout=0.1)),
        lambda: trained(text(n_kv_heads=2, norm_type="rms_norm")),
        lambda: classes(pooling="first"),
        numbers,
        lambda: pairs(nf.Recurrent),
        lambda: pairs(nf.ByteNet),
        lambda: pairs(dtype="float64") | {"backend": "reference"},
    ],
)
def test_nothing_is_found_where_nothing_is_wrong(case):
    assert nf.diagnose(**case()).names == []


def test_a_diagnosis_changes_nothing_and_is_the_same_again():
    case = trained(text(dropout=0.1))
    trainer = case["trainer"]
    state = np.random.get_state()[1].copy()
    trainer.step(*case["batch"])
    before = pickle.dumps(trainer.__reduce__()[1][3:])
    batch = copy.deepcopy(case["batch"])
    bits = trainer.flat_params.tobytes()
    first, second = (repr(trainer.diagnose(*case["batch"])) for _ in range(2))
    assert first == second
    assert trainer.flat_params.tobytes() == bits
    assert pickle.dumps(trainer.__reduce__()[1][3:]) == before
    assert all(map(np.array_equal, batch, case["batch"]))
    assert np.array_equal(np.random.get_state()[1], state)


class Linear:
    """A model that has the methods of the protocol, and no others."""

    def init(self, seed):
        return {"weight": np.random.default_rng(seed).standard_normal((4, 1)) / 2}

    def loss_and_grad(self, params, x, y, *, dropout_key=None, n_tokens=None, backend="auto"):
        error = x @ params["weight"] - y
        n = n_tokens or len(x)
        return (error**2).sum() / n, {"weight": 2 * x.T @ error / n}, len(x)

    def count(self, x, y):
        return len(x)


class WrongLinear(Linear):
    """The same with a gradient that is wrong."""

    def loss_and_grad(self, params, x, y, **options):
        loss, grads, n = super().loss_and_grad(params, x, y, **options)
        return loss, {"weight": 1.1 * grads["weight"]}, n


def test_what_cannot_be_examined_is_said():
    rng = np.random.default_rng(0)
    batch = rng.standard_normal((8, 4)), rng.standard_normal((8, 1))
    found = nf.diagnose(Linear(), Linear().init(0), batch)
    assert found.names == []
    assert any("has no logits" in why for why in found.not_examined)
    (wrong,) = nf.diagnose(WrongLinear(), Linear().init(0), batch)
    of_entry = re.search(r"its entry \[\d, 0\], by (\S+) and (\S+)", wrong.seen).groups()
    assert wrong.name == "wrong gradient"
    assert float(of_entry[1]) == pytest.approx(1.1 * float(of_entry[0]), rel=0.05)
    assert "own-model.md" in wrong.what_to_do


class Bigram:
    """A model with the methods of the protocol, whose batch is one array."""

    def init(self, seed):
        return {"table": np.random.default_rng(seed).standard_normal((13, 13)) / 4}

    def loss_and_grad(self, params, ids, *, dropout_key=None, n_tokens=None, backend="auto"):
        x = ids[:, :-1].ravel()
        y = ids[:, 1:].ravel()
        n = n_tokens or ids[:, 1:].size
        p = nf.reference.softmax(params["table"][x])
        grad = np.zeros((13, 13))
        np.add.at(grad, x, (p - np.eye(13)[y]) / n)
        return -np.log(p[np.arange(len(x)), y]).sum() / n, {"table": grad}, x.size

    def count(self, ids):
        return ids[:, 1:].size


class Delegating:
    """A model that has another, and only the methods of the protocol, and others that are named."""

    def __init__(self, model, *others):
        for name in ("init", "count", "loss_and_grad", *others):
            setattr(self, name, getattr(model, name))


ASCENDING = (np.arange(12)[:, None] + np.arange(9)) % 13


@pytest.mark.parametrize(
    "model, ids", [(Bigram(), ASCENDING), (Delegating(text()["model"]), text()["batch"][0])]
)
def test_a_batch_of_one_array_of_a_model_of_your_own(model, ids):
    found = nf.diagnose(model, model.init(0), (ids,))
    assert found.names == []
    assert "has no logits" in found.not_examined[0]
    assert "Which outputs depend on a token" in found.not_examined[0]
    assert "the batch" not in repr(found)


class Blind(nf.LanguageModel):
    """A language model that sees the position alone."""

    def embed(self, ops, params, side, ids, dropout_key=None, at=None):
        return super().embed(ops, params, side, np.ones_like(ids), dropout_key, at)


def named_of(model, batch, **options):
    return nf.diagnose(model, model.init(0), batch, quick=True, **options).names


@pytest.mark.parametrize(
    "kind, names",
    [(nf.LanguageModel, []), (NotCausal, ["later tokens leak"]), (Blind, ["input ignored"])],
)
def test_logits_of_a_model_of_your_own_are_examined(kind, names):
    model, batch = text(kind)["model"], text()["batch"]
    assert named_of(Delegating(model, "logits"), batch) == names  # it has neither vocab nor pad_id


def test_logits_of_a_source_and_a_target_are_examined():
    (mistake,) = named("memory is zero")
    case = mistake.make()
    assert named_of(Delegating(case["model"], "logits", "pad_id"), case["batch"]) == [
        "input ignored"
    ]
    assert named_of(Delegating(pairs()["model"], "logits", "pad_id"), case["batch"]) == []


class BigramWithLogits(Bigram):
    """The same, which can be asked for its outputs."""

    def logits(self, params, ids):
        return params["table"][ids]


def test_a_model_of_one_token_may_be_meant_so():
    (found,) = nf.diagnose(BigramWithLogits(), Bigram().init(0), (ASCENDING,), quick=True)
    assert (found.name, found.sure) == (
        "input ignored",
        "likely",
    )
    assert "this is no mistake" in found.seen


def test_a_label_of_each_token_may_depend_on_later_tokens():
    class Tagger(Delegating):
        def logits(self, params, ids, **options):
            return model.outputs(params, ids, **options)

    model = nf.Encoder(
        13, d_model=16, n_heads=2, n_layers=1, d_ff=32, task="classes", n_outputs=13, pooling="none"
    )
    ids, labels = np.random.default_rng(0).integers(1, 13, (2, 16, 9))
    assert named_of(Tagger(model, "pad_id"), (ids, labels)) == []


def test_only_an_error_of_the_model_says_that_it_does_not_run():
    class Weighted(Bigram):
        def count(self, ids, weights):
            return weights.missing if len(weights) < 2 else ids[:, 1:].size

        def loss_and_grad(self, params, ids, weights, **options):
            return super().loss_and_grad(params, ids, **options)

    params = Weighted().init(0)
    # not a number for each row
    assert nf.diagnose(Weighted(), params, (ASCENDING, np.arange(13.0))).names == []
    assert nf.diagnose(Weighted(), params, (ASCENDING, np.ones(1))).names == ["does not run"]


@pytest.mark.parametrize("hidden", [np.nan, 999.0])
def test_what_a_mask_hides_never_matters(hidden):
    (x, y), mask = numbers()["batch"], np.random.default_rng(0).random((16, 8)) < 0.8
    x = np.where(mask[..., None], x, hidden)
    assert nf.diagnose(**numbers() | {"batch": (x, y, mask)}, quick=True).names == []
    assert nf.diagnose(**numbers() | {"batch": (x, y)}, quick=True).names in (
        ["not finite"],
        ["scale of the data"],
    )


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
    found = nf.diagnose(**text(OwnLoss), quick=True)[0]
    loss = float(re.search(r"loss_and_grad gives ([\d.]+),", found.seen)[1])
    assert (found.name, found.sure) == ("targets not shifted", "certain")
    assert found.seen.endswith(f"with the input as targets {loss:.4g}")


@pytest.mark.parametrize("rows", [2, 32])
def test_rows_that_are_mixed_in_the_loss_are_named(rows):
    found = nf.diagnose(
        **pairs(Sorted, batch=tuple(x[:rows] for x in TASK.batch(0, 32))), quick=True
    )
    assert found.names == ["loss differs"]
    assert "each row alone agrees" in found[0].seen


@pytest.mark.parametrize("rows", [1, 3])
def test_a_few_rows_and_no_padding(rows):
    src = np.random.default_rng(0).integers(3, 13, (rows, 6))
    tgt = np.concatenate([np.full((rows, 1), 1), src, np.full((rows, 1), 2)], axis=1)
    found = nf.diagnose(**pairs(batch=(src, tgt)))
    assert found.names == []
    assert any("one row" in why for why in found.not_examined) == (rows == 1)
    assert "finite" not in repr(found)


def test_one_id_may_begin_and_end_a_target():
    src, tgt = TASK.batch(0, 32)
    case = pairs(batch=(src, np.where(tgt == 1, 2, tgt))) | {"eos_id": 2, "quick": True}
    assert nf.diagnose(**case, bos_id=2).names == []
    (found,) = nf.diagnose(**case, bos_id=1)
    assert found.name == "begin token"
    assert found.seen == "all targets begin with 2, and you decode with bos_id=1"


@pytest.mark.parametrize(
    "total, n_steps, names",
    [
        (10, 0, True),
        (10, 15, True),
        (40, 0, False),
        (120, 60, False),
        (150, 160, True),
        (150, 150, False),
    ],
)
def test_a_schedule_that_is_over_is_named(total, n_steps, names):
    trainer = trained(text(d_model=16, n_layers=1), nf.Adam(nf.warmup_cosine(3e-3, 1, total)))[
        "trainer"
    ]
    trainer.state.n_steps = n_steps
    assert trainer.diagnose(*text()["batch"], n_steps=total).names == []
    found = trainer.diagnose(*text()["batch"])
    assert found.names == ["rate too small"] * names
    assert all(
        int(re.search(r"spent by step (\d+)", each.seen)[1]) < total
        and "steps, not epochs" in each.what_to_do
        for each in found
    )


@pytest.mark.parametrize(
    "rate, n_steps, names",
    [
        (nf.noam(32), 300, True),
        (nf.noam(32), 4000, False),
        (nf.noam(32), 1, False),
        (nf.noam(32), None, False),
        (lambda step: 3e-3 * 0.9**step, None, True),
        (lambda step: 3e-3 * 0.9 ** (step // 30), 300, False),
        (lambda step: 3e-3 * 0.95**step, 300, True),
    ],
)
def test_a_schedule_for_another_number_of_steps_is_named(rate, n_steps, names):
    trainer = trained(text(d_model=16, n_layers=1), nf.Adam(rate))["trainer"]
    assert trainer.diagnose(*text()["batch"], n_steps=n_steps).names == ["rate too small"] * names


def test_a_batch_that_is_no_tuple_is_refused_before_it_is_examined():
    trainer = nf.Trainer(text()["model"], nf.Adam(1e-3))
    message = r"batches\[0\] is a ndarray, expected a tuple"
    refuses(ValueError, message, trainer.fit, [text()["batch"][0]], watch=True, progress=False)


def test_a_batch_that_is_refused_is_a_finding():
    case = pairs()
    found = nf.diagnose(case["model"], case["params"], (case["batch"][0], case["batch"][1][:5]))
    assert found.names == ["does not run"]
    assert "rows" in found[0].seen
    assert found.not_examined


def test_the_batch_is_one_tuple_of_what_the_model_takes():
    case = pairs()
    src, tgt = case["batch"]
    message = "params is followed by 2 arguments, expected one batch, a tuple of arrays"
    refuses(TypeError, message, nf.diagnose, case["model"], case["params"], src, tgt)
    message = "batch is a NoneType, expected a tuple of arrays"
    refuses(TypeError, message, nf.diagnose, case["model"], case["params"], None)
    for batch in ((src, tgt, tgt), (src,)):
        found = nf.diagnose(case["model"], case["params"], batch)
        wanted = (
            f"a batch has {len(batch)} items, expected those that Transformer takes: (src, tgt)"
        )
        assert found.names == ["does not run"]
        assert wanted in found[0].seen


def test_a_watched_training_warns_once_by_name_and_writes_it_to_the_log(tmp_path):
    trainer = nf.Trainer(text(NotCausal)["model"], nf.Adam(0.3))
    with pytest.warns(UserWarning) as warned:
        trainer.fit((text()["batch"] for _ in range(4)), watch=True, progress=False, save=tmp_path)
    told = [str(warning.message) for warning in warned]
    assert [
        sum(name in one for one in told)
        for name in ("later tokens leak (certain)", "rate too large")
    ] == [1, 1]
    records = nf.training.JsonLog.read(tmp_path / "log.jsonl")
    assert [
        record["finding"] for record in records if "finding" in record
    ] == trainer.watched.findings.names
    assert "layers.1" in trainer.report()
    assert "rate too large" in trainer.report()


def test_watching_changes_no_bit_of_a_training():
    trainers = [
        nf.Trainer(pairs(dropout=0.1, tie_embeddings=True)["model"], nf.Adam(1e-3))
        for _ in range(2)
    ]
    for watch, trainer in enumerate(trainers):
        trainer.fit((TASK.batch(i, 16) for i in range(3)), watch=bool(watch), progress=False)
    assert trainers[0].flat_params.tobytes() == trainers[1].flat_params.tobytes()
    assert trainers[1].watched.findings == []
    assert "decoder.1" in trainers[1].report()


@pytest.mark.parametrize(
    ("seed", "sign", "rate"), [(None, "UNLIKE", 1e-3), (1, "UNLIKE", 1e-3), (2, "MATCHED", 1e-2)]
)
def test_rows_that_do_not_match_are_named_after_a_while(seed, sign, rate, monkeypatch):
    for each in ("UNLIKE", "MATCHED"):
        monkeypatch.setattr(f"npformer.diagnosis.watch.{each}", 150 if each == sign else 10**6)
    trainer = nf.Trainer(pairs(d_model=16, n_layers=1)["model"], nf.Adam(rate))
    batches = (TASK.batch(i, 32) for i in range(150))
    if seed:
        batches = ((np.random.default_rng(seed).permutation(src), tgt) for src, tgt in batches)
    with warnings.catch_warnings(action="ignore"):
        trainer.fit(batches, watch=True, progress=False)
    assert trainer.watched.findings.names == ["rows do not match"] * (seed is not None)


@pytest.mark.parametrize(
    "y", [np.full((8, 3), -100), np.full((8, 3), 255, np.uint8), np.full((8, 3), 2**40)], ids=str
)
@pytest.mark.parametrize("width", [0, 4])
def test_any_integers_can_be_compared_as_pairs(y, width):
    assert np.isfinite(fits_by_shift(np.zeros((8, width), int), y)).all()


@pytest.mark.parametrize("n", [0, 1, 7])
def test_rows_that_are_off_by_some_rows_are_named_before_the_training(n):
    found = nf.diagnose(
        **with_batch(pairs(), lambda src, tgt: (np.roll(src, n, axis=0), tgt)), quick=True
    )
    assert found.names == ["rows do not match"] * (n > 0)
    assert all(f"of row i+{n} of" in each.seen for each in found)


@pytest.mark.parametrize("times, names", [(1, []), (40, ["scale of weights"])])
def test_a_table_of_variance_1_is_usual(times, names):
    case = text()
    table = case["params"]["embedding"]
    table[...] = times * np.random.default_rng(0).standard_normal(table.shape)
    assert [
        name for name in nf.diagnose(**case, quick=True).names if name == "scale of weights"
    ] == names


def test_a_gradient_is_not_compared_with_a_loss_that_does_not_change():
    found = nf.diagnose(**with_batch(numbers(), lambda x, y: (x, 1e9 * y)))
    assert "wrong gradient" not in found.names
    assert any("less than it is rounded" in why for why in found.not_examined)


@pytest.mark.parametrize("leak", [0.0, 1e-3])
def test_rounding_in_a_row_of_small_outputs_is_no_leak(leak):
    x = np.array([[1e-4], [1.0], [-1.0]])

    def outputs(inputs):
        place = np.arange(len(inputs[0]))[:, None]
        # 1e-7 is the rounding of numbers near 1 in float32
        return inputs[0] + (1e-7 + leak) * place

    case = SimpleNamespace(inputs=[x], outputs=outputs, outputs_of_rows=outputs([x]))
    assert [name for name, _ in dependence.rows(case)] == (["rows leak"] if leak else [])


def test_a_setting_that_is_unusual_is_named_alone():
    (found,) = nf.diagnose(**trained(pairs(), nf.SGD(0.1), clip_norm=1e-4))
    assert found.name == "unusual setting"
    assert found.seen.startswith("clip_norm=0.0001; the gradient has")


def test_a_warm_up_allows_larger_steps():
    assert nf.diagnose(**trained(pairs(), nf.Adam(nf.noam(32, warmup=60)))).names == []


def test_numbers_are_said_of_the_input_and_of_the_targets():
    (found,) = nf.diagnose(**with_batch(numbers(), lambda x, y: (x + 300, y + 400)), quick=True)
    assert found.name == "scale of the data"
    assert "input: mean 300" in found.seen
    assert "targets: mean 400" in found.seen


def test_what_was_examined_is_not_examined_again(monkeypatch):
    trainer = nf.Trainer(text(NotCausal)["model"], nf.Adam(1e-3))
    found = trainer.diagnose(*text()["batch"])
    monkeypatch.setattr(trainer, "diagnose", None)
    trainer.fit([text()["batch"]], watch=found, progress=False)  # warns of nothing that is known
    assert trainer.watched.findings == found
    assert found.names[0] == "later tokens leak"


def test_the_guide_explains_each_finding():
    guide = (Path(__file__).parents[2] / "docs/guides/it-does-not-learn.md").read_text(
        encoding="utf-8"
    )
    assert re.findall(r"^\| `([^`]+)` \|", guide, re.MULTILINE) == list(TABLE)


def test_a_training_that_is_stuck_is_named():
    trainer = nf.Trainer(text(d_model=8, n_layers=1)["model"], nf.Adam(1e-9))
    with pytest.warns(UserWarning, match="stuck"):
        trainer.fit(((TASK.batch(i, 32)[1],) for i in range(200)), watch=True, progress=False)


def test_a_watched_schedule_that_is_over_and_the_update_at_the_highest_rate():
    trainer = nf.Trainer(
        text(d_model=8, n_layers=1)["model"], nf.Adam(nf.warmup_cosine(1e-2, 2, 54))
    )
    with pytest.warns(
        UserWarning,
        match=(
            r"the rate is 0 since step 54: the schedule is over.\n"
            ".* Try: schedules for your steps"
        ),
    ):
        trainer.fit(((TASK.batch(i, 8)[1],) for i in range(56)), watch=True, progress=False)
    size, _, update = trainer.watched.arrays.parts["layers.0"]  # of step 52
    (line,) = (line for line in trainer.report().splitlines() if line.startswith("layers.0"))
    assert float(line.split()[-1]) > 10 * update / size > 0


def test_a_report_needs_a_watched_training_and_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    trainer = nf.Trainer(pairs()["model"], nf.Adam(1e-3))
    refuses(ValueError, "watch=True", trainer.report)
    trainer.fit((TASK.batch(i, 16) for i in range(3)), watch=True, progress=False)
    trainer.watched.steps = [
        info._replace(loss=3.5 + 0.1 * i) for i, info in enumerate(trainer.watched.steps)
    ]
    above, _ = nf.plots.plot_loss(trainer.watched.steps, tmp_path / "loss.png")
    labels = [
        label.get_text() for label in above.get_yticklabels() + above.get_yticklabels(minor=True)
    ]
    assert "3.6" in labels
    assert not any("^" in label for label in labels)
    trainer.report(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 10_000


def test_names_are_those_of_the_table():
    assert {name for mistake in MISTAKES for name in mistake.names} <= set(TABLE)
    assert {name for names in CONSEQUENCES.values() for name in names} <= set(TABLE)


def test_parameters_are_compared_with_those_of_the_trainer():
    case = trained(pairs())
    other = tree.map_leaves(lambda x: x + 0.01, case["params"])
    assert "stale parameters" in nf.diagnose(**case | {"params": other}).names


@pytest.mark.parametrize("pad_id", [None, 3])
def test_padding_that_is_no_padding_to_the_model_is_named(pad_id):
    case = text(pad_id=pad_id)
    (ids,), found = case["batch"], nf.diagnose(**case, quick=True)
    assert "padding counted" in found.names
    assert (
        f", {(ids == 0).sum() / ids[:, 1:].size:.0%} of all targets"
        in found[found.names.index("padding counted")].seen
    )


@pytest.mark.parametrize("which", ["bos_id", "eos_id"])
def test_padding_has_an_id_of_its_own(which):
    case = pairs()
    assert (
        "padding inside" in nf.diagnose(**case, **{which: case["model"].pad_id}, quick=True).names
    )


class WrongCache(nf.LanguageModel):
    """A language model whose decoder computes something else."""

    def decoder(self, *args, **options):
        return self

    def step(self, ids, parents):
        return np.full((len(ids), self.vocab), 9.0)


@pytest.mark.parametrize("pad_id, cause", [(None, "padding counted"), (0, "cache differs")])
def test_a_cache_that_differs_may_follow_from_padding(pad_id, cause):
    found = nf.diagnose(**text(WrongCache, pad_id=pad_id))
    assert found.names == [cause]
    assert found[0].sure == "likely"


def test_tokens_at_the_ends_may_follow_from_padding():
    # a target begins with padding, 0
    inherited = with_batch(pairs(), lambda src, tgt: (src, np.where(tgt < 2, 1 - tgt, tgt)))
    assert nf.diagnose(**inherited, bos_id=0, eos_id=2).names == ["padding counted"]
    assert nf.diagnose(**pairs(), bos_id=1, eos_id=0).names == ["padding inside"]


def test_what_may_explain_a_finding_comes_before_it_and_the_report_says_so():
    found = nf.diagnose(**pairs() | {"bos_id": 2, "eos_id": 2, "max_len": 5})
    assert found.names == ["begin token", "end token"]
    assert repr(found).startswith("Mend the first one first")
    assert "Mend" not in repr(found[:1])


def test_a_batch_that_is_an_array_is_refused():
    message = r"array of shape \(12, 9\), expected a tuple of arrays: batch=\(x,\)"
    refuses(TypeError, message, nf.diagnose, Bigram(), Bigram().init(0), ASCENDING)


class NoNumbers(nf.LanguageModel):
    """A language model whose gradient is not finite."""

    def loss_and_grad(self, params, *batch, **options):
        loss, grads, n = super().loss_and_grad(params, *batch, **options)
        return loss, tree.map_leaves(lambda g: g * np.nan, grads), n


def test_a_gradient_that_is_not_finite_is_named_as_such():
    found = nf.diagnose(**text(NoNumbers))
    assert found[0].name == "not finite"
    assert "gradient holds NaN or infinity, the loss is 3" in found[0].seen
    assert "gradients overwritten" not in found.names


def test_a_batch_of_numbers_that_is_learned_already_is_no_finding():
    case = trained(numbers(), nf.Adam(3e-3))
    while case["trainer"].step(*case["batch"]) > 1e-3:
        pass
    assert "one batch is not learned" not in case["trainer"].diagnose(*case["batch"]).names


def test_few_symbols_are_no_padding():
    ids = np.random.default_rng(0).integers(3, 5, (32, 12))
    assert (
        "padding counted"
        not in nf.diagnose(**with_batch(text(), lambda _: (ids,)), quick=True).names
    )


def test_no_positions_are_a_choice_if_they_are_set_so():
    chosen = nf.diagnose(**classes(positions="none"))
    assert chosen.names == []
    assert any("positions=" in why for why in chosen.not_examined)
    (zeros,) = named("positions are zeros")
    assert examined(zeros.make(), verbose=False).names == ["no positions"]


@pytest.mark.parametrize("n_steps", [0, 30])
def test_adapters_of_a_new_model_are_healthy(n_steps):
    assert nf.diagnose(**after(adapted(pairs(norm="post")), n_steps)).names == []


def test_adapters_of_zeros_are_named_alone():
    (mistake,) = named("both matrices of adapters are zero")
    assert examined(mistake.make(), verbose=False).names == ["equal weights"]
