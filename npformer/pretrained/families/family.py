"""What config.json says of the models of a family: tables, read in both directions."""

import re
from collections.abc import Container
from typing import Any

from npformer.checks import shown, warn
from npformer.errors import UserError
from npformer.models.language_model import LanguageModel
from npformer.pretrained.families.naming import Naming, check_settings
from npformer.pretrained.files import ends_in
from npformer.pretrained.keys import CONFIG_KEYS
from npformer.pretrained.rules import (
    Rule,
    Rules,
    Settings,
    check_complete,
    check_keys,
    check_supported,
    parse_table,
)

# Names of theirs, and those of ours. Of several with one meaning, the last is written.
ACTIVATIONS = parse_table("""
    gelu               gelu_erf
    gelu_pytorch_tanh  gelu
    gelu_new           gelu
    relu               relu
    silu               silu
    swish              silu
    """)
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
# Sizes of most families: settings of ours, and their keys in config.json.
SIZES = """
    vocab     vocab_size
    d_model   hidden_size
    n_heads   num_attention_heads
    n_layers  num_hidden_layers
    d_ff      intermediate_size
    max_len   max_position_embeddings
    """
LIKE_2017 = """
    norm_type   =  "layer_norm"
    bias        =  true
    n_kv_heads  =  null
    window      =  null
    rotary      =  null
    """


class Family(Naming):
    """One architecture, as the library transformers writes it: the base class."""

    name = ""  # of the family in config.json
    # Classes of theirs that have the same parameters, the first of which ``save`` names.
    architectures: tuple[str, ...] = ()
    settings: Settings  # what config.json says
    # Of these keys of config.json, which generation_config.json decides if it is there.
    of_generation: tuple[str, ...] = ()
    prefix = "model."  # in some files
    heads: tuple[str, ...] = ("lm_head",)
    unneeded = r"$^"  # names of tensors that hold no parameter

    # -- settings

    def rules(self, config: dict) -> Rules:
        """What each key of config.json means, in a file of this family."""
        table = CONFIG_KEYS | self.settings.rules
        if self.architectures:
            listed = tuple([name] for name in self.architectures)
            table["architectures"] = Rule("refused", listed)
        return table | self.extra_rules(self.settings.defaults | config)

    def extra_rules(self, config: dict) -> Rules:
        """What of this depends on other keys."""
        return {}

    def settings_of(self, config: dict, tensors: dict, instead: Container[str] = ()) -> dict:
        """Our settings, of what config.json says and of the tensors by the names of the table.

        A key may be missing if its setting is one of those that are given ``instead``.
        """
        check_keys(config, self.rules(config), "config.json")
        table = self.settings
        config = table.defaults | config
        needed = [key for ours, key in table.key_of.items() if ours not in instead]
        check_complete(config, needed, "config.json")
        settings: dict[str, Any] = {ours: config.get(key) for ours, key in table.key_of.items()}
        if "activation" in settings:
            theirs = settings["activation"]
            check_supported(table.key_of["activation"], theirs, ACTIVATIONS)
            settings["activation"] = ACTIVATIONS[theirs]
        return table.constants | settings | self.extra_settings_from(config, tensors)

    def extra_settings_from(self, config: dict, tensors: dict) -> dict:
        """Settings of ours that are no single keys of config.json."""
        return {}

    def config_of(self, model) -> dict:
        """What config.json says of a model of ours, which has to be of this family."""
        table = self.settings
        check_settings(model, table.constants, {*table.key_of, *table.converted})
        if model.has_final_norm != (model.norm == "pre"):
            raise UserError(f"final_norm={model.final_norm}, expected None")
        config = {"model_type": self.name, "architectures": [*self.architectures[:1]]}
        config |= table.supported
        for ours, key in table.key_of.items():
            config[key] = value_for_others(model, ours)
        return config | self.extra_keys_for(model)

    def extra_keys_for(self, model) -> dict:
        """The keys of config.json that ``extra_settings_from`` reads."""
        return {}

    def padding(self, pad_id: int | None, config: dict, tokenizer) -> int | None:
        """The id that is padding wherever it stands, where config.json says ``pad_id``."""
        return pad_id

    def begin_id(self, config: dict) -> int | None:
        """The id of the begin token that no file of a tokenizer has, or None."""
        return None

    # -- parameters

    def from_file(self, tensors: dict, config: dict) -> dict:
        """The tensors of a file by the names of the table."""
        renamed = {}
        for name, x in tensors.items():
            name = name.removeprefix(self.prefix)
            if not re.fullmatch(self.unneeded, name):
                renamed[name] = x
        return renamed


class LanguageFamily(Family):
    """The families of language models."""

    model = LanguageModel

    def config_of(self, model):
        """Also what is padding wherever it stands, which transformers does not know."""
        config = super().config_of(model)
        return config if model.pad_id is None else config | {"pad_id": model.pad_id}

    def padding(self, pad_id, config, tokenizer):
        """The padding, or None where it may be a token of a text.

        A language model of transformers reads the id ``pad_token_id`` like any other; a mask says
        what is padding. So here it is padding only if texts do not have it, as the tokenizer says.
        """
        if pad_id is None or config.get("pad_id") == pad_id:  # npformer has written the file
            return pad_id
        ends = ends_in(config)
        if tokenizer is not None:
            ends = [*tokenizer.eos_ids, tokenizer.bos_id]
        if pad_id in ends:
            return None  # it ends turns in the middle of a text: there it is read
        why = "it has no tokenizer that says so"
        if tokenizer is not None:
            if tokenizer.pad_id == pad_id and tokenizer.unk_id != pad_id:
                return pad_id
            why = "texts have this token, too"
        warn(
            f"pad_token_id={shown(pad_id)} is not hidden as padding, "
            f"as {why}; load(…, pad_id={shown(pad_id)}) hides it"
        )
        return None


def value_for_others(model, name: str):
    """A setting of ours as others write it: they have no None that stands for another number."""
    value = getattr(model, name)
    if name == "activation":
        if value not in THEIR_ACTIVATIONS:
            raise UserError(f"activation={shown(value)}, expected {', '.join(THEIR_ACTIVATIONS)}")
        return THEIR_ACTIVATIONS[value]
    if value is None and name == "eps":
        return model.layer_settings.norm_eps
    if value is None and name == "inner_dropout":
        return model.dropout
    return value
