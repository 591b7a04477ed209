"""Every configuration of the library transformers.

Of the families it is known key by key, another one is refused.
"""

import json
import warnings

import numpy as np
import pytest

from npformer import pretrained
from npformer.pretrained.families import FAMILIES
from npformer.pretrained.keys import GENERATION_KEYS
from npformer.pretrained.rules import check_keys, rule_of
from npformer.training import CheckpointError

transformers = pytest.importorskip("transformers")
pytest.importorskip("torch")
from safetensors.numpy import save_file  # noqa: E402, which transformers needs

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning:transformers", "ignore::UserWarning:torch"
)


def written(config):
    """What a file of theirs holds of a configuration, with all its keys."""
    return json.loads(config.to_json_string(use_diff=False))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_tables_know_all_keys_of_a_family(name):
    config = written(transformers.AutoConfig.for_model(name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_keys(config, FAMILIES[name].rules(config), "config.json")


def test_the_table_knows_all_keys_of_generation():
    unknown = [key for key in transformers.GenerationConfig().to_dict() if not known(key)]
    assert not unknown


def known(key):
    return rule_of(key, GENERATION_KEYS) is not rule_of("a key that nobody has", GENERATION_KEYS)


OTHERS = sorted(transformers.CONFIG_MAPPING.keys() - FAMILIES.keys())


def default_of(name):
    """All that a file of theirs holds of a configuration,
    or its name alone if it has no default.
    """
    try:
        return written(transformers.AutoConfig.for_model(name))
    except Exception:  # some need configurations of their parts, or packages
        return {"model_type": name}


def test_most_configurations_have_a_default():
    assert len(OTHERS) > 300
    assert sum(len(default_of(name)) > 5 for name in OTHERS) > 0.9 * len(OTHERS)


@pytest.mark.parametrize("name", OTHERS)
def test_another_configuration_is_refused_by_name(name, tmp_path):
    """Before anything else is said of its folder, with weights or without."""
    config = default_of(name)
    family = config["model_type"]
    if family in FAMILIES:
        pytest.skip(f"it is a {family}")
    (tmp_path / "config.json").write_text(json.dumps(config))
    wanted = f"{tmp_path}: config.json has model_type={family!r}, supported are gpt2, "
    for _ in range(2):
        with warnings.catch_warnings(), pytest.raises(CheckpointError) as caught:
            warnings.simplefilter("error")
            pretrained.load(tmp_path)
        assert str(caught.value).startswith(wanted)
        save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
