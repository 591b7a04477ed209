"""The trainer: what a step does, and that nothing but the seed and the data decides it."""

import io
import re
from dataclasses import asdict, replace
from functools import partial
from inspect import signature
from itertools import count, repeat
from types import SimpleNamespace

import numpy as np
import pytest
import trainings
from numpy.testing import assert_allclose, assert_array_equal
from promises import assert_trees_close
from refusals import refuses
from trainings import SRC, TGT, Terminal, shown_by

import npformer
from npformer import (
    SGD,
    Adam,
    AdamW,
    Encoder,
    NonFiniteError,
    ParameterAverage,
    Trainer,
    derive_key,
    noam,
    progress,
    tree,
    warmup_cosine,
)
from npformer.runtime.blas_threads import blas_threads
from npformer.training import inverse_sqrt
from npformer.training.checkpoint import contents_of, save_checkpoint

EXACT = replace(trainings.MODEL, dropout=0.0, dtype="float64")
DEEP = replace(EXACT, n_layers=2)
DROPPING = replace(EXACT, dropout=0.2)
IN_FLOAT32 = replace(EXACT, dtype="float32")


def make(optimizer=None, model=EXACT, **settings):
    return trainings.make(optimizer, model, **settings)


def narrow(ids):
    """As many columns as the longest row needs."""
    n = (ids != 0).sum(axis=1).max()
    return ids[:, :n]


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("cuts", [[2], [1, 2, 3, 4], [3]])
def test_accumulation_equals_the_large_batch(cuts, label_smoothing):
    """Micro-batches of uneven sizes and lengths, padded only as far as each needs."""
    options = {"label_smoothing": label_smoothing, "clip_norm": 0.5}
    whole, parts = (make(SGD(0.1, momentum=0.9), **options) for _ in range(2))
    sources = map(narrow, np.split(SRC, cuts))
    targets = map(narrow, np.split(TGT, cuts))
    batches = list(zip(sources, targets, strict=True))
    assert len({tgt.shape for _, tgt in batches}) > 1
    for _ in range(3):
        loss = whole.step(SRC, TGT)
        assert abs(parts.step(batches=batches) - loss) <= 1e-12
        assert_allclose(parts.state.flat_grads, whole.state.flat_grads, rtol=0, atol=1e-12)
    assert_allclose(parts.flat_params, whole.flat_params, rtol=0, atol=1e-12)
    assert parts.last.n_tokens == whole.last.n_tokens == np.count_nonzero(TGT[:, 1:])


@pytest.mark.parametrize("n_shards", [2, 3, 99])
def test_shards_compute_what_the_whole_batch_does(every_backend, n_shards):
    """Without dropout, whose bits depend on shards; rows differ in length, and a shard has some."""
    options = {"optimizer": SGD(0.1, momentum=0.9), "backend": every_backend}
    whole = make(**options, n_shards=1)
    sharded = make(**options, n_shards=n_shards)
    with blas_threads(2):
        for _ in range(3):
            assert abs(sharded.step(SRC, TGT) - whole.step(SRC, TGT)) <= 1e-12
    assert_allclose(sharded.flat_params, whole.flat_params, rtol=0, atol=1e-13)
    assert sharded.last.n_tokens == whole.last.n_tokens


def test_small_steps_are_not_split_and_large_ones_are_over_the_threads_there_are(monkeypatch):
    monkeypatch.setattr("npformer.operations.host.n_threads", lambda: 2)
    trainer = make()
    assert len(trainer.sharding.shards((SRC, TGT), 0)) == 1
    trainer.sharding.worth_a_shard = 1
    batches = [shard.batch for shard in trainer.sharding.shards((SRC, TGT), 0)]
    assert [len(tgt) for _, tgt in batches] == [3, 2]
    assert_array_equal(np.concatenate([src for src, _ in batches]), SRC)


def test_each_step_and_each_micro_batch_draws_its_own_dropout():
    keys = []

    class Spy(Steep):
        def loss_and_grad(self, *args, dropout_key, **options):
            keys.append(dropout_key)
            return 0.0, self.init(0), 1

    trainer = Trainer(Spy(), SGD(0.1))
    for _ in range(3):
        trainer.step(batches=[(SRC,), (SRC,)])
    assert len(keys) == len(set(keys)) >= 6


def test_given_parameters_are_copied_not_changed():
    model = make().model
    params = model.init(5)
    make(params=params).step(SRC, TGT)
    assert_trees_close(params, model.init(5))


OPTIMIZERS = [
    SGD(0.5),
    SGD(0.1, momentum=0.9),
    SGD(0.1, momentum=0.9, nesterov=True),
    Adam(0.01, betas=(0.8, 0.95), eps=1e-7),
    AdamW(0.01, weight_decay=0.1, decay_all=True),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_optimizers_agree_with_torch(optimizer):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    param = rng.standard_normal(7)
    tensor = torch.tensor(param, requires_grad=True)
    kind = getattr(torch.optim, type(optimizer).__name__)
    names = signature(kind).parameters
    settings = {name: x for name, x in asdict(optimizer).items() if name in names}
    theirs = kind([tensor], **settings)
    state = optimizer.init(param)
    for step in range(1, 11):
        grad = rng.standard_normal(7)
        optimizer.update(npformer.reference, param, grad, state, step)
        tensor.grad = torch.tensor(grad)
        theirs.step()
        assert_allclose(param, tensor.detach().numpy(), rtol=1e-12)


def test_schedules():
    rate = noam(d_model=64, warmup=10)
    values = [rate(step) for step in range(1, 41)]
    assert max(values) == values[9] == pytest.approx(64**-0.5 * 10**-0.5)
    assert values[0] == pytest.approx(values[9] / 10)
    assert values[39] == pytest.approx(values[9] / 2)
    rate = warmup_cosine(peak=2.0, warmup=4, total=20, floor=0.5)
    values = [rate(step) for step in (1, 2, 4, 12, 20, 99)]
    assert values == pytest.approx([0.5, 1.0, 2.0, 1.25, 0.5, 0.5])
    assert warmup_cosine(peak=2.0, warmup=0, total=2)(1) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "rate", [noam(512), inverse_sqrt(0.01, 10), warmup_cosine(0.01, 10, 20)], ids=str
)
def test_the_first_step_of_a_schedule_is_1(rate):
    assert rate(np.int8(1)) == rate(1) > 0
    for step in (0, -1):
        refuses(ValueError, f"step={step}, expected at least 1", rate, step)
    refuses(TypeError, "step='x' is a str, expected an int", rate, "x")


def test_a_loss_that_is_not_finite_stops_the_training_and_says_why():
    trainer = make()
    trainer.step(SRC, TGT)
    trainer.params["decoder"]["0"]["memory_attention"]["kv"]["weight"][3, 4] = np.nan
    before = trainer.flat_params.copy()
    message = (
        r"step 2: the loss is nan.*decoder\.0\.memory_attention\.kv\.weight.*lower learning rate"
    )
    refuses(NonFiniteError, message, trainer.step, SRC, TGT)
    assert_array_equal(trainer.flat_params, before)
    assert trainer.n_steps == 1


def test_data_that_is_not_finite_where_it_counts_is_named():
    sizes = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 8, "dropout": 0.0}
    trainer = Trainer(Encoder(None, n_inputs=2, **sizes, task="numbers", n_outputs=3), Adam(0.01))
    inputs = np.ones((2, 3, 2))
    targets = np.ones((2, 3))
    keep_mask = np.ones((2, 3), bool)

    def is_refused(message, *batch):
        refuses(NonFiniteError, message, trainer.step, *batch)

    inputs[0, 0] = np.nan
    keep_mask[0, 0] = False
    assert np.isfinite(trainer.step(inputs, targets, keep_mask))
    message = r"the loss is nan; inputs\[0, 0, 0\] is nan\. .*Mask what is missing"
    is_refused(message, inputs, targets)
    inputs[1, 2, 1] = np.inf
    is_refused(r"; inputs\[1, 2, 1\] is inf where keep_mask is True\.", inputs, targets, keep_mask)
    inputs[1, 2, 1] = 1
    targets[1, 0] = np.nan
    is_refused(r"; targets\[1, 0\] is nan\.", inputs, targets, keep_mask)
    assert repr(trainer).startswith("<Trainer of an Encoder, ")


def test_batches_that_end_too_soon_are_told():
    trainer = make()
    batches = iter([(SRC, TGT)] * 3)
    trainer.fit(batches, 2, progress=False)
    message = "batches ended after 1 of 2 steps: a generator can be read only once"
    with pytest.warns(UserWarning, match=message):
        trainer.fit(batches, 2, progress=False)
    with pytest.warns(UserWarning, match="batches ended after 0 steps"):
        trainer.fit(batches, progress=False)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_training_that_diverges_stops():
    trainer = make(SGD(1e30), IN_FLOAT32)
    trainer.step(SRC, TGT)
    message = r"step 2: .*; the gradient of .* holds NaN or inf.* learning rate \(now 1e\+30\)"
    refuses(NonFiniteError, message, trainer.step, SRC, TGT)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_an_update_that_overflows_is_noticed_in_the_next_step():
    trainer = make(SGD(1e38, momentum=0.5), IN_FLOAT32)
    trainer.flat_params *= 10
    assert np.isfinite(trainer.step(SRC, TGT))
    assert not np.isfinite(trainer.flat_params).all()
    arrays = [trainer.flat_params, trainer.state.moments["velocity"]]
    before = np.copy(arrays)
    message = "step 2: .* parameters are those of step 1"
    refuses(NonFiniteError, message, trainer.step, SRC, TGT)
    assert_array_equal(arrays, before)


class Steep:
    """The loss is 10²⁰ times the sum of the parameters."""

    def init(self, seed):
        return {"weight": np.ones(3, np.float32)}

    def count(self, x):
        return 1

    def loss_and_grad(self, params, x, *, dropout_key, n_tokens, backend):
        slope = np.float32(1e20)
        return float(slope * params["weight"].sum()), {"weight": np.full(3, slope)}, 1


def test_a_gradient_whose_square_overflows_is_no_step_without_clipping_and_a_step_with_it():
    """Adam would keep a mean of squares that is infinite, and never change the parameter again."""
    trainer = Trainer(Steep(), Adam(0.1))
    message = "the square of the gradient's norm is too large .*clip_norm"
    refuses(NonFiniteError, message, trainer.step, np.ones(1))
    assert trainer.n_steps == 0
    assert (trainer.flat_params == 1).all()
    trainer = Trainer(Steep(), Adam(0.1), clip_norm=1.0)
    trainer.step(np.ones(1))
    assert_allclose(trainer.flat_params, 0.9, rtol=1e-6)


def test_fit_reports_each_step_and_callbacks_can_stop_it(capsys):
    seen = []

    def stop_after_three(trainer, info):
        seen.append((trainer.n_steps, info.step, info.loss))
        return info.step == 3

    make(SGD(0.1)).step(SRC, TGT)  # a slow machine tells of the kernels that it compiles
    capsys.readouterr()

    trainer = make(SGD(lambda step: 0.1 / step))
    history = trainer.fit(repeat((SRC, TGT)), callbacks=[stop_after_three], progress=False)
    assert [info.step for info in history] == [1, 2, 3]
    assert [info.lr for info in history] == [0.1, 0.05, 0.1 / 3]
    assert seen == [(info.step, info.step, info.loss) for info in history]
    assert min(info.n_tokens for info in history) > 0
    assert min(info.seconds for info in history) > 0
    assert capsys.readouterr() == ("", "")


def test_fit_stops_after_n_steps_and_draws_no_batch_more():
    batches = repeat((SRC, TGT), 100)
    assert len(make().fit(batches, 2, progress=False)) == 2
    assert len(list(batches)) == 98


@pytest.mark.parametrize("watch", [False, True])
def test_the_number_of_batches_of_a_list_is_known(monkeypatch, watch):
    pytest.importorskip("tqdm")
    trainer = make()
    batches = [(SRC, TGT)] * 3

    def shown(*arguments):
        fit = partial(trainer.fit, *arguments, watch=watch)
        return shown_by(monkeypatch, Terminal(), fit)

    of_list = shown(batches)
    for text in ("loss ", "lr 0.01", "targets/s", "3/3"):
        assert text in of_list
    assert "5/5" in shown(batches, 2)
    of_iterator = shown(iter(batches))  # it goes on where it was
    assert "8/8" in of_iterator
    assert "0/8" not in of_iterator
    of_unknown = shown(batch for batch in batches)
    assert "11step" in of_unknown
    assert "11/" not in of_unknown


def test_without_a_terminal_there_is_a_line_each_minute(monkeypatch):
    make().step(SRC, TGT)  # so that no line tells of kernels that are compiled
    trainer = make()

    def shown(batches):
        return shown_by(monkeypatch, io.StringIO(), partial(trainer.fit, batches))

    line = r"step 30 of 30: loss \d\.\d{4}, lr 0\.01, [\d,]+ targets/s\n"
    assert re.fullmatch(line, shown([(SRC, TGT)] * 30))
    seconds = count(step=20.0)  # at each look at the clock
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    lines = shown((SRC, TGT) for _ in range(10))
    assert re.findall("^step (.*?):", lines, re.MULTILINE) == ["33", "36", "39", "40"]
    assert shown([(SRC, TGT)] * 2).startswith("step 42 of 42: ")  # it goes on where it was
    monkeypatch.setenv("TQDM_DISABLE", "1")
    assert shown([(SRC, TGT)] * 2) == ""


def test_the_average_is_the_mean_of_the_parameters_from_a_step_on():
    average = ParameterAverage(first_step=3)
    kept = []

    def keep(trainer, info):
        kept.append(trainer.flat_params.copy())

    make(model=DROPPING).fit([(SRC, TGT)] * 6, callbacks=[keep, average], progress=False)
    mean, _ = tree.flatten(average.params)
    assert_allclose(mean, np.mean(kept[2:], axis=0), rtol=0, atol=1e-14)
    assert average.n == 4


def test_parameters_have_to_fit_the_model():
    params = make().model.init(0)
    params["output"]["bias"] = np.zeros(12)
    message = r"output.bias: given float64 of shape \(12,\), expected float64 .* \(11,\)"
    refuses(ValueError, message, make, params=params)
    params = make(model=IN_FLOAT32).params
    refuses(ValueError, "given float32 .*, expected float64", make, params=params)


def test_a_batch_of_padding_has_no_gradient_and_counts_as_a_step():
    trainer = make(SGD(0.1))
    before = trainer.flat_params.copy()
    with pytest.warns(UserWarning, match="no target is counted"):
        assert trainer.step(SRC, TGT * 0) == 0
    assert trainer.n_steps == 1
    assert_array_equal(trainer.flat_params, before)


def test_explain_leaves_the_training_as_it_was():
    trainer = make()
    trainer.step(SRC, TGT)
    before = [x.copy() for x in trainer.state.arrays]
    facts = trainer.state.facts
    trainer.explain(SRC, TGT)
    for x, old in zip(trainer.state.arrays, before, strict=True):
        assert_array_equal(x, old)
    assert trainer.state.facts == facts


def test_the_mean_loss_of_batches_without_a_target_is_refused():
    """It would be 0, the best of all."""
    padding = SRC, TGT * 0
    refuses(ValueError, "the batches have no target", make().mean_loss, [padding] * 2)


def test_the_mean_loss_of_batches_that_can_be_read_once():
    trainer = make()
    batches = [(SRC, TGT), (TGT, TGT), (SRC, TGT * 0)]
    assert trainer.mean_loss(iter(batches)) == trainer.mean_loss(batches)


def test_a_step_with_consistency_has_the_loss_of_the_model_that_is_asked_for_it():
    trainer = make(model=DROPPING, consistency=0.7, label_smoothing=0.1)
    options = {"dropout_key": derive_key(trainer.state.key, 0), "label_smoothing": 0.1}

    def loss(consistency):
        value, _ = trainer.model.loss(trainer.params, SRC, TGT, **options, consistency=consistency)
        return value

    expected = loss(0.7)
    assert abs(expected - loss(1e-9)) > 1e-3
    assert_allclose(trainer.step(SRC, TGT), expected, rtol=1e-6)


def test_a_missing_begin_token_is_suspected():
    trainer = make()
    batch = SRC, TGT[:, 1:]
    with pytest.warns(UserWarning, match="is the begin token missing") as caught:
        trainer.step(*batch)
        trainer.step(batches=[batch])
        trainer.fit([batch], progress=False)
        trainer.model.count(*batch)
    assert [warning.filename for warning in caught] == [__file__] * 4


@pytest.mark.parametrize("batches", [(SRC, TGT), [SRC], [None, (SRC, TGT)]])
def test_batches_are_tuples(batches):
    kind = type(batches[0]).__name__
    message = rf"batches\[0\] is a {kind}, expected a tuple such as \(src, tgt\)"
    refuses(ValueError, message, make().step, batches=batches)
    refuses(ValueError, message, make().fit, batches, progress=False)


def test_a_batch_is_what_the_model_takes():
    expected = r"expected those that Transformer takes: \(src, tgt\)"
    for batch, items in (((SRC,), "1 item"), ((SRC, TGT, SRC), "3 items")):
        message = f"a batch has {items}, {expected}"
        refuses(TypeError, message, make().step, *batch)
        refuses(TypeError, message, make().fit, [batch], progress=False)
    message = r"a batch has 1 item, .*: unpack the tuple, as in step\(\*batch\)"
    refuses(TypeError, message, make().step, (SRC, TGT))


@pytest.mark.parametrize("n_shards", [None, 1, 2])
def test_a_batch_that_does_not_fit_together_is_refused_in_shards_too(n_shards):
    refuses(ValueError, "src has 5 rows, the target 3", make(n_shards=n_shards).step, SRC, TGT[:3])


# --- what is frozen, what decays, and where a training starts from ---


@pytest.mark.parametrize("optimizer", [SGD(0.1, momentum=0.9), Adam(0.01), AdamW(0.01)], ids=repr)
def test_what_is_frozen_stays_and_all_else_moves(optimizer):
    frozen = ["encoder.0", "decoder.1.attention.qkv", "source_embedding"]
    trainer = make(optimizer, DEEP, frozen=frozen)
    for _ in range(2):
        trainer.step(SRC, TGT)
    before = dict(tree.leaves(DEEP.init(0)))
    n_stayed = 0
    for path, x in tree.leaves(trainer.params):
        stays = path.startswith(("encoder.0.", "decoder.1.attention.qkv.", "source_embedding"))
        assert (x == before[path]).all() == stays, path
        n_stayed += stays
    assert n_stayed > 10


def test_what_is_frozen_does_not_count_in_the_norm():
    frozen = "encoder", "source_embedding"
    whole = make(SGD(0.1))
    part = make(SGD(0.1), frozen=frozen)
    for trainer in (whole, part):
        trainer.step(SRC, TGT)
    counted = [x for path, x in tree.leaves(whole.state.grads) if not path.startswith(frozen)]
    norm = np.sqrt(sum((x**2).sum() for x in counted))
    assert_allclose(part.last.grad_norm, norm, rtol=1e-12)
    assert part.last.grad_norm < whole.last.grad_norm


def test_nothing_frozen_is_one_update():
    for optimizer in (Adam(0.01), AdamW(0.01, decay_all=True)):
        assert len(make(optimizer).flat_optimizer.pieces) == 1


def test_paths_that_cannot_be_frozen():
    def refused(message, frozen, error=ValueError):
        refuses(error, message, make, frozen=frozen)

    sequence = r"is a str, expected a sequence of paths: try \['encoder'\]"
    refused(sequence, "encoder", TypeError)
    refused("frozen has 'encodr', expected paths .* 'source_embedding' or", ["encodr"])
    refused("frozen has 'encoder.0.atten'", ["encoder.0.atten"])
    refused("includes all parameters, expected some that are", list(EXACT.init(0)))


def test_biases_and_gains_do_not_decay():
    """A learning rate times a decay of 1, and no gradient: what decays is gone."""
    for decay_all in (False, True):
        optimizer = AdamW(1.0, weight_decay=1.0, eps=1e30, decay_all=decay_all)
        trainer = make(optimizer)
        trainer.step(SRC, TGT)
        before = dict(tree.leaves(EXACT.init(0)))
        for path, x in tree.leaves(trainer.params):
            expected = 0 if decay_all or x.ndim > 1 else before[path]
            assert_allclose(x, expected, rtol=0, atol=1e-15, err_msg=path)


def test_adamw_of_older_checkpoints_decayed_everything(tmp_path):
    pytest.importorskip("safetensors")
    old = make(AdamW(0.01, decay_all=True))
    new = make(AdamW(0.01))
    arrays, info = contents_of(old)
    settings = info["trainer"]  # of which older files had less
    del settings["optimizer"]["decay_all"]
    del settings["frozen"]
    save_checkpoint(tmp_path / "old", arrays, info)
    old.load(tmp_path / "old")
    refuses(ValueError, "decay_all", new.load, tmp_path / "old")


def test_a_training_starts_from_a_model_with_another_vocabulary():
    trained = make()
    trained.step(SRC, TGT)
    larger = replace(EXACT, tgt_vocab=13)
    params, taken, left = tree.merged(trained.params, larger.init(1))
    assert left == ["target_embedding", "output.weight", "output.bias"]
    trainer = make(None, larger, params=params, frozen=["encoder"])
    start = dict(tree.leaves(larger.init(1)))
    start |= {path: x for path, x in tree.leaves(trained.params) if path in taken}
    for path, x in tree.leaves(trainer.params):
        assert_array_equal(x, start[path])
    trainer.step(SRC, TGT)
    assert_trees_close(trainer.params["encoder"], trained.params["encoder"])
