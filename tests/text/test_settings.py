"""``TranslationSettings``: what each field takes, and the way to a checkpoint and back."""

import inspect
import json
import re
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
from corpus import SETTINGS
from refusals import refuses

from npformer import ByteNet
from npformer.models import describe
from npformer.operations.options import AT_LEAST_1, option_of
from npformer.text import TranslationRun, TranslationSettings
from npformer.text.settings import PRESETS

FIELDS = [field.name for field in fields(TranslationSettings)]
CHOICES = {
    field.name: get_args(field.type)
    for field in fields(TranslationSettings)
    if get_origin(field.type) is Literal
}
TEXTS = ("data", "src", "tgt", "preset")
RANGES = {field.name: option_of(field.name, field.type) for field in fields(TranslationSettings)}
COUNTS = [name for name, of in RANGES.items() if of in (AT_LEAST_1, RANGES["vocab_size"])]
RATES = ("dropout", "inner_dropout", "label_smoothing")
OF_TYPE = [  # a value of another type for each field
    *((name, 3, "a int, expected a str") for name in TEXTS),
    ("skip_empty", 2, "a int, expected True or False"),
    ("model", "Transformer", "a str, expected a dict"),
    ("frozen", "encoder", "a str, expected a sequence of paths: try ['encoder']"),
    ("lr", None, "a NoneType, expected a number"),
]
OF_RANGE = [
    ("seed", -1, "expected at least 0 and below 2**64"),
    ("seed", 2**64, "expected at least 0 and below 2**64"),
    ("vocab_size", 4, "expected at least 5"),
    ("consistency", -1.0, "expected a finite number of 0 or more"),
    ("consistency", np.nan, "expected a finite number of 0 or more"),
]
for name in ("seed", *COUNTS):
    OF_TYPE += [(name, 3.0, "a float, expected an int"), (name, True, "a bool, expected an int")]
OF_RANGE += [(name, 0, f"expected {RANGES[name].expected}") for name in COUNTS]
for name in ("lr", "consistency", "clip_norm", *RATES):
    OF_TYPE += [
        (name, "0.1", "a str, expected a number"),
        (name, True, "a bool, expected a number"),
    ]
for name in RATES:
    OF_RANGE += [(name, value, f"expected 0 <= {name} < 1") for value in (-0.1, 1.0, np.nan)]
for name in ("lr", "clip_norm"):
    OF_RANGE += [(name, value, "expected a finite number above 0") for value in (0.0, np.inf)]
for name, choices in CHOICES.items():
    *others, last = map(repr, choices)
    expected = f"expected {', '.join(others)} or {last}"
    OF_RANGE += [(name, "x", expected), (name, None, expected)]


def test_every_field_is_checked():
    without_a_range = {*TEXTS, "model", "skip_empty", "frozen"}
    assert {name for name, *_ in OF_TYPE} == set(FIELDS) - CHOICES.keys()
    assert {name for name, *_ in OF_RANGE} == set(FIELDS) - without_a_range


@pytest.mark.parametrize("name, value, message", OF_TYPE)
def test_another_type_is_named(name, value, message):
    whole = f"^{re.escape(f'{name}={value!r} is {message}')}$"
    refuses(TypeError, whole, TranslationSettings, **{"data": "x", name: value})


@pytest.mark.parametrize("name, value, message", OF_RANGE)
def test_a_value_out_of_range_is_named(name, value, message):
    shown = repr(value) if isinstance(value, str) else str(value)
    whole = f"^{re.escape(f'{name}={shown}, {message}')}$"
    refuses(ValueError, whole, TranslationSettings, **{"data": "x", name: value})


def test_changes_and_models_are_checked_too():
    settings = TranslationSettings(data="x")
    refuses(ValueError, "^steps=0, expected at least 1$", replace, settings, steps=0)
    no_json = r"^model=\{'d_model': array\(8\)\}, expected what JSON can hold: .* ndarray"
    refuses(TypeError, no_json, replace, settings, model={"d_model": np.array(8)})


def through_json(settings):
    return TranslationSettings(**json.loads(json.dumps(asdict(settings), allow_nan=False)))


@pytest.mark.parametrize("preset", PRESETS)
def test_settings_go_through_json_unchanged(preset):
    settings = TranslationSettings.from_preset(preset, data="x", clip_norm=1.5, skip_empty=True)
    assert through_json(settings) == settings


def test_paths_tuples_and_numbers_of_numpy_go_through_json_as_well():
    model = {"name": "ByteNet", "kernel_sizes": (5, 3)}
    numbers = {"lr": np.float32(0.5), "steps": np.int64(7), "clip_norm": 1}
    settings = TranslationSettings(data=Path("x", "y"), model=model, **numbers, skip_empty=np.True_)
    assert through_json(settings) == settings
    assert settings.data == str(Path("x", "y"))
    assert repr((settings.lr, settings.steps, settings.clip_norm)) == "(0.5, 7, 1.0)"
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
    unknown = r"^preset='large', expected one of \('tiny', 'small', 'base'\)$"
    refuses(ValueError, unknown, TranslationSettings.from_preset, "large", data="x")


def test_settings_from_before_some_fields_get_what_was_done_then():
    settings = TranslationSettings(**SETTINGS, data="x")
    assert {"consistency", "precision"}.isdisjoint(SETTINGS)
    assert (settings.consistency, settings.precision) == (0.0, "float32")


def test_every_field_is_documented():
    parameters = inspect.getdoc(TranslationSettings).split("Parameters\n")[1].split("Raises\n")[0]
    documented = re.findall(r"^(\w[\w, ]*) : ", parameters, re.MULTILINE)
    assert sorted(", ".join(documented).split(", ")) == sorted(FIELDS)


def test_a_dict_in_their_place_is_refused(tmp_path):
    message = "^settings is a dict, expected TranslationSettings$"
    refuses(TypeError, message, TranslationRun.start, tmp_path, SETTINGS | {"data": "x"})
