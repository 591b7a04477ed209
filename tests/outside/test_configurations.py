"""Every configuration of the library transformers: of the families it is known key by key, another one is refused."""

import json
import warnings

import pytest

from npformer import pretrained
from npformer.pretrained.keys import GENERATION, check_keys, rule_of
from npformer.pretrained.loading import FAMILIES
from npformer.training import CheckpointError

transformers = pytest.importorskip("transformers")
pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:transformers", "ignore::UserWarning:torch")


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
    return rule_of(key, GENERATION) is not rule_of("a key that nobody has", GENERATION)


def test_other_configurations_are_refused_by_name(tmp_path):
    others = transformers.CONFIG_MAPPING.keys() - FAMILIES.keys()
    assert len(others) > 300
    for name in others:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": name}))
        with pytest.raises(CheckpointError, match=f"config.json has model_type='{name}', supported are gpt2"):
            pretrained.load(tmp_path)
