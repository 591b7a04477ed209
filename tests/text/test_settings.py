"""``TranslationSettings``: what each field takes, and the way to a checkpoint and back."""

import inspect
import json
import re
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest
from corpus import SETTINGS

from npformer import ByteNet
from npformer.models import describe
from npformer.operations.options import AT_LEAST_1, OPTIONS, choices_of
from npformer.text import TranslationRun, TranslationSettings
from npformer.text.settings import PRESETS

CHOICES = choices_of(TranslationSettings)
NAMES = [field.name for field in fields(TranslationSettings) if field.name not in CHOICES]
COUNTS = [name for name in NAMES if OPTIONS.get(name) in (AT_LEAST_1, OPTIONS["vocab_size"])]
RATES = ("dropout", "inner_dropout", "label_smoothing")
TEXTS = ("data", "src", "tgt", "preset")
OF_TYPE = [  # a value of another type for each field
    *((name, 3, "an int, expected a str") for name in TEXTS),
    *((name, 3.0, "a float, expected an int") for name in ("seed", *COUNTS)),
    *((name, True, "a bool, expected an int") for name in ("seed", *COUNTS)),
    *(
        (name, "0.1", "a str, expected a number")
        for name in ("lr", "consistency", "clip_norm", *RATES)
    ),
    *(
        (name, True, "a bool, expected a number")
        for name in ("lr", "consistency", "clip_norm", *RATES)
    ),
    ("lr", None, "a NoneType, expected a number"),
    ("skip_empty", 2, "an int, expected True or False"),
    ("model", "Transformer", "a str, expected a dict"),
    ("frozen", "encoder", "a str, expected a sequence of paths: try ['encoder']"),
]


def listed(choices):
    *others, last = map(repr, choices)
    return f"expected {', '.join(others)} or {last}"


OF_RANGE = [
    *(("seed", seed, "expected at least 0 and below 2**64") for seed in (-1, 2**64)),
    *((name, 0, f"expected {OPTIONS[name].expected}") for name in COUNTS),
    ("vocab_size", 4, "expected at least 5"),
    *(
        (name, value, f"expected 0 <= {name} < 1")
        for name in RATES
        for value in (-0.1, 1.0, np.nan)
    ),
    *(
        (name, value, "expected a finite number above 0")
        for name in ("lr", "clip_norm")
        for value in (0.0, np.inf)
    ),
    *(("consistency", value, "expected a finite number of 0 or more") for value in (-1.0, np.nan)),
    *((name, value, listed(choices)) for name, choices in CHOICES.items() for value in ("x", None)),
]


def test_every_field_is_checked():
    names = {field.name for field in fields(TranslationSettings)}
    assert {name for name, *_ in OF_TYPE} == names - CHOICES.keys()
    assert {name for name, *_ in OF_RANGE} == names - {*TEXTS, "model", "skip_empty", "frozen"}


@pytest.mark.parametrize("name, value, message", OF_TYPE)
def test_another_type_is_named(name, value, message):
    message = f"{name}={value!r} is " + re.sub(r"^an? ", "a ", message)
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        TranslationSettings(**{"data": "x", name: value})


@pytest.mark.parametrize("name, value, message", OF_RANGE)
def test_a_value_out_of_range_is_named(name, value, message):
    shown = repr(value) if isinstance(value, str) else str(value)
    with pytest.raises(ValueError, match=f"^{re.escape(f'{name}={shown}, {message}')}$"):
        TranslationSettings(**{"data": "x", name: value})


def test_a_model_that_json_cannot_hold_is_named():
    with pytest.raises(
        TypeError,
        match=r"^model=\{'d_model': array\(8\)\}, expected what JSON can hold: .* ndarray",
    ):
        TranslationSettings(data="x", model={"d_model": np.array(8)})


def test_changes_are_checked_too():
    with pytest.raises(ValueError, match="^steps=0, expected at least 1$"):
        replace(TranslationSettings(data="x"), steps=0)


@pytest.mark.parametrize("preset", PRESETS)
def test_settings_go_through_json_unchanged(preset):
    settings = TranslationSettings.from_preset(preset, data="x", clip_norm=1.5, skip_empty=True)
    assert (
        TranslationSettings(**json.loads(json.dumps(asdict(settings), allow_nan=False))) == settings
    )


def test_paths_tuples_and_numbers_of_numpy_go_through_json_as_well():
    model = {"name": "ByteNet", "kernel_sizes": (5, 3)}
    given = {
        "data": Path("x", "y"),
        "model": model,
        "lr": np.float32(0.5),
        "steps": np.int64(7),
        "clip_norm": 1,
    }
    settings = TranslationSettings(**given, skip_empty=np.True_)
    assert TranslationSettings(**json.loads(json.dumps(asdict(settings)))) == settings
    assert (settings.data, settings.lr, settings.steps) == (str(Path("x", "y")), 0.5, 7)
    assert [type(x) for x in (settings.lr, settings.steps, settings.clip_norm)] == [
        float,
        int,
        float,
    ]
    assert settings.skip_empty is True
    described = describe(ByteNet(11, 11, d_model=8, kernel_sizes=(5, 3)))
    assert TranslationSettings(data="x", model=described).model == described


def test_the_model_belongs_to_the_settings_alone():
    model = {"d_model": 8}
    settings = TranslationSettings(data="x", model=model)
    model["d_model"] = 16
    asdict(settings)["model"]["d_model"] = 32
    assert settings.model == {"d_model": 8}
    assert TranslationSettings(data="x").model is not TranslationSettings(data="x").model


def test_a_preset_is_the_defaults_but_for_what_it_says():
    assert TranslationSettings.from_preset(data="x") == TranslationSettings(data="x")
    base = TranslationSettings.from_preset("base", data="x", lr=2.0)
    assert (base.preset, base.schedule, base.model["n_layers"], base.lr) == ("base", "noam", 6, 2.0)
    assert base.patience == TranslationSettings.patience
    with pytest.raises(
        ValueError, match=r"^preset='large', expected one of \('tiny', 'small', 'base'\)$"
    ):
        TranslationSettings.from_preset("large", data="x")


def test_settings_from_before_some_fields_get_what_was_done_then():
    settings = TranslationSettings(**SETTINGS, data="x")
    assert {"consistency", "precision"}.isdisjoint(SETTINGS)
    assert (settings.consistency, settings.precision) == (0.0, "float32")


def test_every_field_is_documented():
    parameters = inspect.getdoc(TranslationSettings).split("Parameters\n")[1].split("Raises\n")[0]
    documented = re.findall(r"^(\w[\w, ]*) : ", parameters, re.MULTILINE)
    assert sorted(", ".join(documented).split(", ")) == sorted(
        field.name for field in fields(TranslationSettings)
    )


def test_a_dict_in_their_place_is_refused(tmp_path):
    with pytest.raises(TypeError, match="^settings is a dict, expected TranslationSettings$"):
        TranslationRun.start(tmp_path, SETTINGS | {"data": "x"})
