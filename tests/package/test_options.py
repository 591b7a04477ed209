"""The types and ranges of all options: ``npformer.operations.options``."""

from dataclasses import fields
from functools import partial
from inspect import signature

import numpy as np
import pytest

from npformer import (
    SGD,
    Adam,
    AdamW,
    ByteNet,
    Recurrent,
    SequenceAutoencoder,
    Trainer,
    Transformer,
    reference,
)
from npformer.operations.options import OPTIONS, check_option, option_of
from npformer.operations.settings import AttentionSettings, LayerSettings, Rotary
from npformer.reference import Ops
from npformer.text import CopyTask, LanguageSettings, TranslationSettings
from npformer.training.schedules import inverse_sqrt, noam
from npformer.training.settings import LoopSettings

SETTINGS = [SGD, Adam, AdamW, ByteNet, Recurrent, SequenceAutoencoder]
SETTINGS += [Transformer, CopyTask, TranslationSettings, LanguageSettings, LoopSettings]
SETTINGS += [AttentionSettings, LayerSettings, Rotary]
NUMBERS = {kind: kind for kind in (int, float)} | {kind | None: kind for kind in (int, float)}


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_number_of_settings_has_a_range(settings):
    for field in fields(settings):
        if field.type in NUMBERS:
            assert option_of(field.name, field.type), field.name


def test_operations_and_the_table_agree_on_types():
    for name in Ops.names():
        for parameter in getattr(reference, name).record.parameters.values():
            if parameter.annotation in NUMBERS and parameter.name in OPTIONS:
                kind = OPTIONS[parameter.name].kind
                assert kind is NUMBERS[parameter.annotation], f"{parameter.name} of {name}"


def error_of(f, *args, **options):
    with pytest.raises((TypeError, ValueError)) as error:
        f(*args, **options)
    return f"{type(error.value).__name__}: {error.value}"


@pytest.mark.parametrize("lr", [True, np.True_, "0.1", -0.1, np.nan, np.inf])
def test_a_rate_is_refused_with_the_same_words_wherever_it_is_given(lr):
    x = np.ones(3)
    doors = [Adam, SGD, partial(reference.sgd_update, x, x, None)]
    doors.append(partial(reference.adam_update, x, x, x, x, step=1))
    [message] = {error_of(door, lr=lr) for door in doors}
    kind = "UserError" if isinstance(lr, float) else "TypeError"
    assert message.startswith(f"{kind}: lr=")


@pytest.mark.parametrize("weight", [True, -0.1, np.nan])
def test_a_weight_is_refused_with_the_same_words_wherever_it_is_given(weight):
    model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    doors = [
        partial(Trainer, model, Adam()),
        partial(TranslationSettings, data="x"),
        partial(reference.paired_cross_entropy, np.ones((2, 1, 2)), np.array([1])),
    ]
    assert len({error_of(door, consistency=weight) for door in doors}) == 1


def test_steps_are_counted():
    for schedule in (noam, inverse_sqrt):
        message = "TypeError: warmup=2.5 is a float, expected an int"
        assert error_of(schedule, 8, 2.5) == message


def test_what_is_given_becomes_a_number_of_python():
    assert type(check_option("lr", np.float32(0.5))) is float
    assert type(check_option("n_best", np.uint8(3))) is int
    for causal in (np.True_, 1):
        assert AttentionSettings(1, causal=causal).causal is True


def test_the_range_beside_a_type_is_shown_as_it_is_told_in_errors():
    assert "patience: Optional[Annotated[int, <at least 1>]]" in str(
        signature(LoopSettings)
    ).replace("typing.", "")
