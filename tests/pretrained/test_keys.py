"""Each key of a file of another library is read, harmless, refused or named in a warning.

``published.json`` holds what these files say in folders that many people have.
"""

import json
import warnings
from pathlib import Path

import pytest
from refusals import refuses

from npformer.pretrained.families import FAMILIES
from npformer.pretrained.keys import GENERATION_KEYS
from npformer.pretrained.rules import check_keys, parse_rules, parse_settings

PUBLISHED = json.loads((Path(__file__).parent / "published.json").read_text(encoding="utf-8"))
CONFIGS = PUBLISHED["config.json"]
GENERATION_CONFIGS = PUBLISHED["generation_config.json"]
RULES = parse_rules("""
    read      size
    harmless  name note.*
    refused   kind  "a" or "b"
    warned    rate  0.1
    """)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_tables_know_all_keys_of_published_models(name):
    config = CONFIGS[name]
    family = FAMILIES[config["model_type"]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings = family.settings_of(config, {})
        model = family.model(**settings)
    assert model.d_model == config.get("hidden_size", config.get("n_embd", config.get("d_model")))


@pytest.mark.parametrize("name", GENERATION_CONFIGS)
def test_the_tables_know_all_keys_of_generation(name):
    family = FAMILIES[CONFIGS[name]["model_type"]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rules = GENERATION_KEYS | family.rules(CONFIGS[name])
        check_keys(GENERATION_CONFIGS[name], rules, "generation_config.json")


def test_a_rule_of_sampling_that_sample_does_not_have_is_named():
    usual = {"temperature": 0.2, "typical_p": 1.0, "epsilon_cutoff": 0.0, "top_h": None}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_keys(usual, GENERATION_KEYS, "x.json")
    changed = {"typical_p": 0.9, "epsilon_cutoff": 1e-4, "eta_cutoff": 1e-3, "top_h": 0.4}
    named = ", ".join(f"{key}={value}" for key, value in changed.items())
    with pytest.warns(UserWarning, match=f"keys that npformer does not read: {named}"):
        check_keys(changed, GENERATION_KEYS, "x.json")


def test_what_is_read_or_harmless_or_has_its_usual_value_is_silent():
    keys = {"size": 3, "name": "x", "note.of": 1, "kind": "b", "rate": 0.1, "other": None}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_keys(keys, RULES, "x.json")


def test_what_is_not_supported_is_refused_and_what_is_not_read_is_named_in_one_warning():
    message = r"^x\.json has kind='c', supported is 'a' or 'b'$"
    refuses(ValueError, message, check_keys, {"other": 1, "kind": "c"}, RULES, "x.json")
    message = r"^x\.json has keys that npformer does not read: rate=0\.2, other=\[1\]"
    with pytest.warns(UserWarning, match=message):
        check_keys({"rate": 0.2, "size": 3, "other": [1]}, RULES, "x.json")


def test_a_line_of_a_table_with_another_first_word_is_refused():
    refuses(ValueError, "'refussed' begins a line, expected one of", parse_rules, "refussed size 1")


def test_a_word_too_many_in_a_table_of_settings_is_an_error():
    assert parse_settings("a b 1").defaults == {"b": 1}
    with pytest.raises(json.JSONDecodeError):
        parse_settings("a b 1 2")
