"""``Trainer.fit``: validation, saving, the best checkpoint, when it ends, and how it goes on."""

import functools
import inspect
import os
import signal
import sys
import time
import weakref

import numpy as np
import pytest
from promises import assert_trees_close
from refusals import refuses
from trainings import MODEL, assert_same, each_copy, log_of, make, outcome, pickled, steps_of

from npformer import (
    Adam,
    CopyTask,
    LanguageModel,
    NonFiniteError,
    ParameterAverage,
    Trainer,
    Transformer,
    noam,
    reference,
    warmup_cosine,
)
from npformer.diagnosis import Findings
from npformer.models.description import MODELS
from npformer.models.low_rank import LowRank
from npformer.operations.options import NAMES_ELSEWHERE
from npformer.training import OPTIMIZERS, inverse_sqrt, load_checkpoint
from npformer.training.schedules import Schedule

pytest.importorskip("safetensors")
TASK = CopyTask(vocab=11, max_len=5)
HELD_OUT = [TASK.held_out(10), TASK.longer(3)]


def batches(first=0, n=100):
    return (TASK.batch(i, 8) for i in range(first, n))


def fit(trainer, n_steps, **options):
    return trainer.fit(batches(trainer.n_steps), n_steps, progress=False, **options)


def validated(trainer):
    """The steps after which it was validated."""
    return steps_of(trainer.state.validations)


def steps_saved(folder, name="last"):
    """The number of steps that a checkpoint has."""
    return load_checkpoint(folder / f"{name}.safetensors")[1]["n_steps"]


def at_step(step, act):
    """A callback that calls ``act(trainer)`` after this step, and returns its result."""
    return lambda trainer, info: act(trainer) if info.step == step else None


@pytest.mark.filterwarnings("ignore:batches ended after 4 of 9")
def test_it_validates_after_every_so_many_steps_and_after_the_last():
    trainer = make()
    fit(trainer, 8, validate=HELD_OUT, every=3)
    assert validated(trainer) == [3, 6, 8]
    for n_steps, n_batches in ((4, 100), (None, 4), (9, 4)):
        trainer = make()
        trainer.fit(batches(n=n_batches), n_steps, validate=HELD_OUT, progress=False)
        assert validated(trainer) == [4]


def test_the_loss_of_a_validation_is_the_mean_over_all_targets_without_dropout():
    trainer, without = (make(label_smoothing=0.1) for _ in range(2))
    fit(trainer, 3, validate=HELD_OUT, every=2)
    fit(without, 3)
    assert trainer.flat_params.tobytes() == without.flat_params.tobytes()
    results = [MODEL.loss(trainer.params, *batch) for batch in HELD_OUT]
    losses, counts = np.transpose(results)
    expected = np.average(losses, weights=counts)
    assert trainer.state.validations[-1]["val_loss"] == pytest.approx(expected, rel=1e-6)
    assert abs(np.mean(losses) - expected) > 1e-4  # what a mean of means would be


def scored(*scores, name="val_loss"):
    """A validation with these results."""
    scores = iter(scores)
    return {"validate": lambda trainer: {name: next(scores)}, "every": 1, "monitor": name}


@pytest.mark.parametrize("mode, best, last", [("min", 2, 4), ("max", 1, 3)])
def test_it_ends_when_validations_do_not_get_better(tmp_path, mode, best, last):
    trainer = make()
    rules = scored(3.0, 1.0, 2.0, 2.0, 5.0, 5.0, 5.0, name="score")
    rules |= {"mode": mode, "patience": 2, "save": tmp_path}
    fit(trainer, 20, **rules)
    assert trainer.n_steps == last
    assert steps_saved(tmp_path, "best") == best
    fit(trainer, 5, **rules)
    assert trainer.n_steps == last  # nor does it go on


def test_a_training_that_goes_on_from_its_checkpoint_is_the_same_bit_for_bit(tmp_path):
    rules = {"validate": HELD_OUT, "every": 3, "save_every": 2, "patience": 4}
    whole, first, again = (make(Adam(warmup_cosine(0.01, 3, 12))) for _ in range(3))
    fit(whole, 12, save=tmp_path / "whole", **rules)
    stop_after_5 = at_step(5, lambda trainer: True)
    fit(first, 12, save=tmp_path / "parts", callbacks=[stop_after_5], **rules)
    again.load(tmp_path / "parts" / "last.safetensors")
    assert again.n_steps == 5
    assert validated(again) == [3]
    fit(again, 7, save=tmp_path / "parts", **rules)
    assert_same(outcome(tmp_path / "parts"), outcome(tmp_path / "whole"))
    steps = steps_of(log_of(tmp_path / "whole"))
    assert steps == [1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12, 12]


def test_what_is_kept_is_chosen(tmp_path):
    both = tmp_path / "both"
    last = tmp_path / "last"
    fit(make(), 4, validate=HELD_OUT, save=both)
    fit(make(), 4, validate=HELD_OUT, save=last, keep="last")
    assert {*os.listdir(both)} == {"best.safetensors", "last.safetensors", "log.jsonl"}
    assert {*os.listdir(last)} == {"last.safetensors", "log.jsonl"}


def fail(trainer):
    raise ZeroDivisionError("mine")


def spoil(trainer):
    trainer.flat_params[...] = np.nan


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_an_error_loses_no_step(tmp_path):
    def n_saved(name, error, **options):
        with pytest.raises(error):
            fit(make(), 9, save=tmp_path / name, **options)
        return steps_saved(tmp_path / name)

    assert n_saved("callback", ZeroDivisionError, callbacks=[at_step(3, fail)]) == 3
    assert n_saved("validation", ZeroDivisionError, validate=fail, every=4) == 4
    # What went wrong is not saved.
    spoiled = {"callbacks": [at_step(3, spoil)], "save_every": 2}
    assert n_saved("spoiled", NonFiniteError, **spoiled) == 2


@pytest.mark.usefixtures("signals_of_the_foreground")
def test_ctrl_c_loses_no_step(tmp_path, monkeypatch):
    whole = Transformer.loss_and_grad

    @functools.wraps(whole)
    def interrupt(*arguments, **options):
        if trainer.n_steps == 3:
            signal.raise_signal(signal.SIGINT)  # in the middle of the fourth step
        return whole(*arguments, **options)

    monkeypatch.setattr(Transformer, "loss_and_grad", interrupt)
    trainer = make()
    with pytest.raises(KeyboardInterrupt):
        fit(trainer, 9, save=tmp_path)
    assert steps_saved(tmp_path) == 4
    assert steps_of(log_of(tmp_path)) == [1, 2, 3, 4]


def test_a_result_that_is_nan_is_not_the_best(tmp_path):
    trainer = make()
    fit(trainer, 4, **scored(np.nan, 3.0, np.nan, 2.0), save=tmp_path, patience=2)
    assert validated(trainer) == [1, 2, 3, 4]
    assert steps_saved(tmp_path, "best") == 4


def test_a_validation_is_noted_logged_and_kept_or_not_made_at_all(tmp_path, monkeypatch):
    trainer = make()
    whole = Trainer.save

    def save(self, path, *given):
        if path.name == "best.safetensors":
            raise OSError("the disk is full")
        whole(self, path, *given)

    with monkeypatch.context() as full:
        full.setattr(Trainer, "save", save)
        with pytest.raises(OSError, match="the disk is full"):
            fit(trainer, 4, validate=HELD_OUT, every=2, save=tmp_path)
    assert trainer.n_steps == 2
    assert validated(trainer) == []
    fit(trainer, 2, validate=HELD_OUT, every=2, save=tmp_path)
    assert validated(trainer) == [2, 4]
    assert steps_of(log_of(tmp_path)) == [1, 2, 2, 3, 4, 4]
    assert (tmp_path / "best.safetensors").exists()


def test_another_fit_begins_its_patience_anew():
    trainer = make()
    for n_steps in (3, 6):
        fit(trainer, 9, **scored(1.0, 2.0, 3.0), patience=2)
        assert trainer.n_steps == n_steps


def test_one_may_go_back_to_the_best_checkpoint(tmp_path):
    rules = scored(2.0, 1.0, 3.0, 4.0, 0.5) | {"save": tmp_path}
    fit(make(), 4, **rules)
    back = make()
    back.load(tmp_path / "best.safetensors")
    assert back.n_steps == 2
    assert back.last is None
    fit(back, 1, **rules)
    assert steps_of(log_of(tmp_path)) == [1, 1, 2, 2, 3, 3]
    assert steps_saved(tmp_path, "best") == 3


def test_a_callback_may_change_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    leave = at_step(1, lambda trainer: os.chdir(tmp_path / "elsewhere"))
    fit(make(), 3, save="run", save_every=1, callbacks=[leave])
    assert steps_saved(tmp_path / "run") == 3


def test_an_average_goes_on_in_a_copy():
    trainer = make()
    average = ParameterAverage(1)
    fit(trainer, 2, callbacks=[average])
    twin = pickled(average)
    fit(trainer, 1, callbacks=[average, twin])
    assert_trees_close(twin.params, average.params)


def test_a_training_that_no_file_can_keep_is_refused_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.delitem(sys.modules, "safetensors.numpy", raising=False)
    trainer = make()
    refuses(ImportError, r"pip install .*\[checkpoint\]'", fit, trainer, 2, save=tmp_path)
    assert trainer.n_steps == 0


def test_a_model_that_cannot_be_saved_is_refused_before_the_first_step_and_no_file_is_blamed(
    tmp_path,
):
    class Mine:
        init, loss_and_grad, count = MODEL.init, MODEL.loss_and_grad, MODEL.count

    trainer = Trainer(Mine(), Adam(0.01))
    message = "the model is a Mine, expected a dataclass"
    refuses(TypeError, message, fit, trainer, 2, save=tmp_path)
    assert trainer.n_steps == 0
    make().save(tmp_path / "x")
    refuses(TypeError, message, trainer.load, tmp_path / "x")


@pytest.mark.parametrize(
    "count, message", [(-3, "at least 0"), (2.5, "is a float, expected an int")]
)
def test_a_number_of_targets_that_is_none_is_refused(count, message, monkeypatch):
    monkeypatch.setattr(Transformer, "count", lambda self, src, tgt: count)
    message = f"Transformer.count.*{message}"
    refuses((TypeError, ValueError), message, make().step, *TASK.batch(0, 2))


def test_another_result_is_monitored_from_there_on():
    trainer = make()
    fit(trainer, 2, validate=HELD_OUT, every=1)
    fit(trainer, 2, **scored(-2, -3, -4, name="score"), patience=1)
    assert trainer.n_steps == 4


def test_no_other_training_is_written_over(tmp_path):
    fit(make(), 3, save=tmp_path)
    before = outcome(tmp_path)
    other = make(seed=1)
    for n_steps in (0, 3):  # it is another one from the beginning
        fit(other, n_steps)
        message = "holds another training: load its last.safetensors"
        refuses(ValueError, message, fit, other, 3, save=tmp_path)
    assert outcome(tmp_path) == before
    other.save(tmp_path / "other")
    mine = make()
    mine.load(tmp_path / "last.safetensors")
    for _ in range(2):
        fit(mine, 1, save=tmp_path)
    assert len(log_of(tmp_path)) == 5


def test_a_signal_handler_that_steps_in_the_middle_of_a_save_is_refused(tmp_path, monkeypatch):
    trainer = make()
    fit(trainer, 2)
    monkeypatch.setattr("npformer.training.trainer.save_checkpoint", lambda *given: fit(trainer, 1))
    refuses(RuntimeError, "in the middle of a step or a save", trainer.save, tmp_path / "x")


def test_what_makes_no_sense_is_refused_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer = make()

    def refused(message, error=ValueError, **options):
        refuses(error, message, fit, trainer, 3, **options)
        assert trainer.n_steps == 0

    refused("validate is empty, expected one or more tuples", validate=[])
    src, _ = HELD_OUT[0]
    refused(r"validate\[0\] is a ndarray, expected a tuple", validate=[src])
    bleu = "monitor='bleu' of batches, expected 'val_loss'"
    refused(bleu, validate=HELD_OUT, monitor="bleu")
    refused("patience=2 without validate: give validate=batches", patience=2)
    refused("every=2 without validate: give validate=batches", every=2)
    refused("patience=0, expected at least 1", validate=HELD_OUT, patience=0)
    refused("mode='best', expected 'min' or 'max'", validate=HELD_OUT, mode="best")
    refused("keep='all', expected 'best and last' or 'last'", save="here", keep="all")
    refused("minutes=0, expected a finite number above 0", minutes=0)
    unmade = r"cannot be made \(.+\), expected a folder"
    refused(f"save='.*test_loop.py' {unmade} or a new name", save=__file__)
    for name in (f"{__file__}/sub", "x" * 5000, "a\0b"):
        refused(f"save='.* {unmade}", save=name)
    refused("save=5 is a int, expected a str or a Path", TypeError, save=5)


def test_a_result_of_a_validation_that_is_none_is_named():
    def refused(message, result, monitor="val_loss", error=ValueError):
        options = {"validate": lambda trainer: result, "monitor": monitor}
        refuses(error, message, fit, make(), 1, **options)

    names = r"expected one of what validate returns: \['val_loss'\]"
    refused(f"monitor='bleu', {names}", 1.0, "bleu")
    refused("result 'step', expected names that are texts", {"val_loss": 1.0, "step": 3})
    refused("validate: val_loss='3' is a str, expected a number", "3", error=TypeError)


def test_a_time_limit_leaves_time_for_a_last_validation(monkeypatch):
    """On a clock of one second a step and ten a validation, a limit of a minute."""
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def pass_a_second(trainer, info):
        nonlocal now
        now += 1

    def validate(trainer):
        nonlocal now
        now += 10
        return 1.0

    trainer = make()
    fit(trainer, 1000, validate=validate, minutes=1, callbacks=[pass_a_second])
    # the first when more than half a minute is over, to know how long one takes
    assert validated(trainer) == [32, 41]
    assert now == 61  # a step is finished before the last one begins


@each_copy
@pytest.mark.parametrize(
    "schedule", [0.01, noam(8, 3), inverse_sqrt(0.01, 3), warmup_cosine(0.01, 2, 9)], ids=str
)
def test_a_copy_makes_the_same_steps_and_is_on_its_own(copied, schedule, monkeypatch):
    trainer = make(Adam(schedule), seed=5, clip_norm=0.5, frozen=["encoder"], n_shards=2)
    fit(trainer, 3, validate=HELD_OUT, every=2)
    # A copy has parameters: none are drawn.
    monkeypatch.setattr(Transformer, "init", lambda *_: pytest.fail("parameters were drawn"))
    (twin,) = copied([trainer])
    assert twin.last == trainer.last
    assert twin.state.validations == trainer.state.validations
    before = trainer.flat_params.tobytes()
    losses = [info.loss for info in fit(twin, 2)]
    assert trainer.flat_params.tobytes() == before
    assert [info.loss for info in fit(trainer, 2)] == losses
    assert twin.flat_params.tobytes() == trainer.flat_params.tobytes()


@pytest.mark.parametrize("watch", [False, True, Findings()], ids=str)
def test_the_memory_of_a_trainer_is_free_as_soon_as_nobody_has_it(watch):
    trainer = make()
    fit(trainer, 3, validate=HELD_OUT, every=2, watch=watch)
    assert bool(trainer.watched) == (watch is not False)
    flat_params = weakref.ref(trainer.flat_params)
    assert flat_params() is not None
    del trainer
    assert flat_params() is None


def test_the_text_of_a_trainer_and_of_its_parts_is_short():
    trainer = make(Adam(noam(8)))
    average = ParameterAverage(2)
    n = f"{trainer.flat_params.size:,}"
    assert repr(trainer) == f"<Trainer of a Transformer, {n} parameters, after 0 steps>"
    assert repr(fit(trainer, 0)) == "<History of 0 steps>"
    history = fit(trainer, 3, callbacks=[average])
    first, second, last = (f"{info.loss:.4f}" for info in history)
    assert repr(history) == f"<History of 3 steps, loss {first} to {last}>"
    turned = repr(history[1:] + history[:1])
    assert turned == f"<History of 3 steps, loss {second} to {first}>"
    assert repr(average) == "<ParameterAverage of 2 steps, from step 2 on>"
    assert repr(trainer.optimizer) == (
        "Adam(lr=noam(d_model=8, warmup=4000, factor=1.0), betas=(0.9, 0.999), eps=1e-08)"
    )


def test_an_unknown_setting_is_named_with_the_known_ones():
    message = "clip=1.0 is no setting of a training, expected seed, label_smoothing, "
    refuses(TypeError, message, make, clip=1.0)
    message = "valid=5 is no setting of fit, expected n_steps, validate, save, callbacks, .*every"
    refuses(TypeError, message, make().fit, [], valid=5)


def test_an_optimizer_that_is_given_parameters_says_where_they_belong():
    message = "expected a number or a schedule; parameters are given to Trainer, or to init"
    weight = np.ones(2)
    for params in ({"w": weight}, [weight], {"w": weight}.values(), iter([weight])):
        refuses(TypeError, message, Adam, params)
        refuses(TypeError, message, Adam, params, lr=0.1)
    message = "^params=a dict is no setting of Adam.*; parameters are given"
    refuses(TypeError, message, Adam, params={"w": np.ones((2, 2))})
    message = "expected lr, betas, eps: try AdamW, which has it"
    refuses(TypeError, message, Adam, weight_decay=0.1)
    message = r"Adam got 0\.1, by its place, and lr=0\.2: expected one of them"
    refuses(TypeError, message, Adam, 0.1, lr=0.2)
    refuses(TypeError, "Adam got an int of 16610 bits, by its place", Adam, 10**5000, lr=1)


def test_a_name_of_another_library_is_answered_with_ours():
    has_it = {"lr": Adam, "clip_norm": make, "axis": reference.softmax}
    has_it |= dict.fromkeys(["keep_mask", "causal"], reference.attention)
    has_it["ignore_id"] = reference.cross_entropy
    for name, ours in {"nhead": "n_heads", "num_layers": "n_layers", **NAMES_ELSEWHERE}.items():
        message = f"{name}.*, expected .*: try {ours}$"
        refuses(TypeError, message, has_it.get(ours, LanguageModel), **{name: 1})


CLASSES = [*OPTIMIZERS.values(), *Schedule.__subclasses__(), *MODELS.values(), LowRank]


@pytest.mark.parametrize("kind", CLASSES)
def test_an_unknown_setting_is_named_with_those_of_the_signature(kind):
    names = list(inspect.signature(kind).parameters)
    advice = ": try lr" if "lr" in names else ""
    message = f"learning_rate=0.1 is no setting of {kind.__name__}, expected {', '.join(names)}"
    refuses(TypeError, f"^{message}{advice}$", kind, learning_rate=0.1)
