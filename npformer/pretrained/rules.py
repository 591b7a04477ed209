"""Tables in texts: what keys of files mean, and names of ours with those of others.

A table of rules says one of four things of a key. It is read: npformer computes with it. It is
harmless: no number that npformer computes depends on it. A file is refused unless the key has one
of its supported values, usually its default. Or a warning names the key unless it has one of its
usual values: with another one only a training, or a search for a text, would be different. Whatever
a table does not know is named in a warning, as it may change numbers.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from npformer.checks import shown, warn
from npformer.errors import UserError

Rules = dict[str, "Rule"]
MOST_NAMES = 6  # in an error
SILENT = "read", "harmless"  # kinds of keys that need no particular value
WITH_VALUES = "refused", "warned"  # those that need one of a few values


class Rule(NamedTuple):
    """What a table says of a key."""

    kind: str  # "read", "harmless", "refused" or "warned"
    values: tuple = ()  # those that are supported, or usual


def parse_rules(text: str) -> Rules:
    r"""What a text says of keys, in lines: "read" or "harmless" with some keys, or "refused" or
    "warned" with a key and its supported or usual values in JSON, "1 or 2". "a.*" stands for all
    keys that begin with "a.".

    >>> parse_rules("harmless use_cache\nrefused logit_scale 1.0")["logit_scale"]
    Rule(kind='refused', values=(1.0,))
    """
    table: Rules = {}
    for line in text.strip().splitlines():
        kind, words = line.split(maxsplit=1)
        if kind in SILENT:
            table |= dict.fromkeys(words.split(), Rule(kind))
        elif kind not in WITH_VALUES:
            raise UserError(f"{kind!r} begins a line, expected one of {SILENT + WITH_VALUES}")
        else:
            key, value = words.split(maxsplit=1)
            table[key] = Rule(kind, tuple(map(json.loads, value.split(" or "))))
    return table


def refused_unless(values: dict[str, Any]) -> Rules:
    """A file is refused if it has a key with another value."""
    return {key: Rule("refused", (value,)) for key, value in values.items()}


def warned_unless(values: dict[str, Any]) -> Rules:
    """A warning names each key that has another value."""
    return {key: Rule("warned", (value,)) for key, value in values.items()}


UNKNOWN = Rule("warned")


def parse_table(text: str) -> dict[str, str]:
    r"""A name of ours and one of theirs in a line; more names of theirs have lines of their own.

    >>> parse_table("hidden gate\n up\nout down")
    {'hidden': 'gate up', 'out': 'down'}
    """
    names: dict[str, str] = {}
    for line in text.strip().splitlines():
        *ours, theirs = line.split()
        if ours:
            [name] = ours
            names[name] = theirs
        else:
            names[name] += f" {theirs}"
    return names


class Settings(NamedTuple):
    """What config.json says of the models of a family: all that is no name of a parameter."""

    key_of: dict[str, str]  # settings of ours, and the keys of theirs
    converted: set[str]  # settings that the code of the family makes of several keys
    constants: dict[str, Any]  # settings that all models have
    defaults: dict[str, Any]  # what keys of theirs mean where they are missing
    supported: dict[str, Any]  # keys of theirs that always have this value
    rules: Rules  # of all these keys, and of those that change no setting


def parse_settings(*tables: str) -> Settings:
    r"""What tables say of settings of ours, keys of theirs, and values in JSON.

    A line has a setting and its key, and then the value that the key means where it is missing::

        eps     layer_norm_eps  1e-5
        rotary  -                      no single key: the code of the family makes it
        -       rope_theta      1e4    no single setting: the code of the family reads it
        norm    =               "pre"  no key: all models have this value
        =       hidden_act      "silu" no setting: all files have this value, or are refused

    A later line for a setting or a key takes the place of an earlier one. Lines as those of
    ``parse_rules``, "harmless use_cache", say what other keys mean.

    >>> settings = parse_settings("vocab n\nd_ff m null\neps = 0.1\nharmless use_cache")
    >>> settings.key_of, settings.defaults, settings.constants
    ({'vocab': 'n', 'd_ff': 'm'}, {'m': None}, {'eps': 0.1})
    >>> settings.rules["use_cache"].kind
    'harmless'
    """
    settings = Settings({}, set(), {}, {}, {}, {})
    lines = "\n".join(tables).splitlines()
    for line in filter(str.strip, lines):
        ours, key, *values = line.split(maxsplit=2)
        if ours in (*SILENT, *WITH_VALUES):
            settings.rules.update(parse_rules(line))
            continue
        value = json.loads(values[0]) if values else None
        if ours == "=":
            settings.supported[key] = value
            settings.rules.update(refused_unless({key: value}))
            continue
        settings.key_of.pop(ours, None)
        settings.constants.pop(ours, None)
        if key == "=":
            settings.constants[ours] = value
        elif key == "-":
            settings.converted.add(ours)
        else:
            settings.rules[key] = Rule("read")
            if ours != "-":
                settings.key_of[ours] = key
            if values:
                settings.defaults[key] = value
    return settings


def check_keys(about: dict, table: Rules, file: str) -> None:
    r"""Raise if a file says something that is not supported; warn of what it says that is not read.

    >>> table = parse_rules("refused head_dim 32\nharmless use_cache")
    >>> check_keys({"head_dim": 64, "use_cache": True}, table, "x")
    Traceback (most recent call last):
    npformer.UserError: x has head_dim=64, supported is 32
    """
    ignored = []
    for key, value in about.items():
        rule = rule_of(key, table)
        if rule.kind in SILENT or value is None or value in rule.values:
            continue
        setting = f"{key:.80}={shown(value)}"
        if rule.kind == "refused":
            supported = " or ".join(map(repr, rule.values))
            raise UserError(f"{file} has {setting}, supported is {supported}")
        ignored.append(setting)
    if ignored:
        warn(f"{file} has keys that npformer does not read: {listed(ignored)}. Results may differ")


def check_complete(about: dict, keys: Iterable[str], file: str) -> None:
    """Raise if a file does not have all of these keys."""
    missing = sorted({*keys} - about.keys())
    if missing:
        raise UserError(f"{file} has no {', '.join(missing)}")


def check_supported(setting: str, value, supported: Iterable[str]) -> None:
    """Raise unless a value is one of these texts; ``setting`` says where it stands.

    >>> check_supported("x.json has kind", 3, ["a", "b"])
    Traceback (most recent call last):
    npformer.UserError: x.json has kind=3, supported are a, b
    """
    if value not in list(supported):
        raise UserError(f"{setting}={shown(value)}, supported are {', '.join(supported)}")


def rule_of(key: str, table: Rules) -> Rule:
    """What a table says of a key, by its name or by that of its group."""
    group = key.rpartition(".")[0]
    while key not in table and group:  # "a.b.c" is of the groups "a.b.*" and "a.*"
        key = f"{group}.*"
        group = group.rpartition(".")[0]
    return table.get(key, UNKNOWN)


def listed(names: list[str]) -> str:
    """Some of many names, for an error.

    >>> listed(["a", "b"])
    'a, b'
    """
    text = ", ".join(f"{name:.80}" for name in names[:MOST_NAMES])
    n_more = len(names) - MOST_NAMES
    return f"{text} and {n_more:,} more" if n_more > 0 else text
