"""The options of everything in npformer: their types and ranges, and the checks that follow from
them.

An option that one place has says its range beside its type, as ``Annotated[float, ABOVE_0]``. A
table has the names that operations, layers and models share. Whoever reads an option, a command
line, too, asks ``option_of``. What is given is converted to the type of the option, so that NumPy's
scalars are accepted like Python's numbers and flags.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, lru_cache, partial, wraps
from inspect import signature
from types import MappingProxyType, NoneType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import numpy as np

from npformer.arrays import is_cupy
from npformer.checks import check_choice, check_flag, check_int, check_key, check_number, shown
from npformer.errors import UserError

CONVERSIONS = {bool: check_flag, int: check_int, float: check_number}
WIDEST = np.dtype(np.complex128).itemsize  # bytes of a number
SMALLEST, LARGEST = -(2**63), 2**63 - 1  # range of the ints that a kernel takes

# Names in PyTorch, transformers and nanoGPT that do not resemble ours: an error names ours.
NAMES_ELSEWHERE = {
    "attn_mask": "keep_mask",
    "block_size": "max_len",
    "d_hid": "d_ff",
    "dim": "axis",
    "dim_feedforward": "d_ff",
    "embed_dim": "d_model",
    "embedding_dim": "d_model",
    "hidden_dropout_prob": "dropout",
    "hidden_size": "d_model",
    "ignore_index": "ignore_id",
    "intermediate_size": "d_ff",
    "is_causal": "causal",
    "layer_norm_eps": "eps",
    "learning_rate": "lr",
    "mask": "keep_mask",
    "max_grad_norm": "clip_norm",
    "max_norm": "clip_norm",
    "max_position_embeddings": "max_len",
    "n_ctx": "max_len",
    "n_embd": "d_model",
    "n_inner": "d_ff",
    "n_positions": "max_len",
    "norm_first": "norm",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
    "num_key_value_heads": "n_kv_heads",
    "vocab_size": "vocab",
}

T = TypeVar("T")


class Option(NamedTuple):
    """The type of an option, and its range: a predicate, and what is expected."""

    kind: type
    fits: Callable[[Any], bool] = lambda value: True
    expected: str = ""

    def __repr__(self):
        # ``help`` shows it beside the type.
        return f"<{self.expected.format(name='x') or self.kind.__name__}>"

    def check(self, name, value):
        """Return the value as a Python number or flag, or raise an error that names it."""
        if type(value) is self.kind and self.fits(value):
            return value
        converted = CONVERSIONS[self.kind](name, value)
        if not self.fits(converted):
            text = shown(converted) if self.kind is int else f"{value!s:.80}"
            raise UserError(f"{name}={text}, expected {self.expected.format(name=name)}")
        return converted


FLAG = Option(bool)
AT_LEAST_0 = Option(int, lambda x: x >= 0, "at least 0")
AT_LEAST_1 = Option(int, lambda x: x >= 1, "at least 1")
Count = Annotated[int, AT_LEAST_1]  # a type hint
# As the keys that are derived from it.
SEED = Option(int, lambda x: 0 <= x < 2**64, "at least 0 and below 2**64")
ABOVE_0 = Option(float, lambda x: 0 < x < math.inf, "a finite number above 0")
NOT_NEGATIVE = Option(float, lambda x: 0 <= x < math.inf, "a finite number of 0 or more")
FRACTION = Option(float, lambda x: 0 <= x < 1, "0 <= {name} < 1")
SHARE = Option(float, lambda x: 0 <= x <= 1, "0 <= {name} <= 1")
PROBABILITY = Option(float, lambda x: 0 < x <= 1, "0 < {name} <= 1")
IN_FLOAT32 = Option(float, lambda x: 1e-30 <= x <= 1e30, "from 1e-30 to 1e30")
TEMPERATURE = Option(
    float, ABOVE_0.fits, f"{ABOVE_0.expected}; top_k=1 takes the most probable token"
)


# The names of the options that several places have, by their type and range: whatever has such a
# name and this type is checked. Flags need no range.
NAMES = {
    Option(int): "bos_id eos_id forced_eos_id pad_id",
    SEED: "seed",
    AT_LEAST_0: "min_len n_plain n_steps n_types",
    AT_LEAST_1: """
        beam_size code_size d_ff d_head d_model dilation k length max_len max_rows n_best n_heads
        n_inputs n_kv_heads n_layers n_outputs n_shards n_tokens original_max_len rank share_layers
        src_vocab step steps tgt_vocab total vocab warmup window
    """,
    Option(float): "grad_scale",
    FRACTION: "beta1 beta2 dropout dropout_rate hidden_dropout_rate inner_dropout momentum",
    SHARE: "label_smoothing",
    NOT_NEGATIVE: "consistency floor length_penalty lr weight_decay",
    ABOVE_0: """
        alpha base clip_norm delta eps factor high_freq_factor loss_scale low_freq_factor peak
        qk_norm_eps scale scaling
    """,
    IN_FLOAT32: "softcap",
}
OPTIONS = {name: option for option, names in NAMES.items() for name in names.split()}


def option_of(name, hint):
    """The type and range of an option with this name and type hint; None if there is none.

    >>> option_of("patience", Count) == option_of("n_heads", int | None) == AT_LEAST_1
    True
    """
    kind, _ = _kind_of(hint)
    if get_origin(kind) is Annotated:
        return next((each for each in kind.__metadata__ if isinstance(each, Option)), None)
    option = FLAG if kind is bool else OPTIONS.get(name)
    return option if option and option.kind is kind else None


def check_option(name, value):
    """Return the value of the option with this name as a Python number or flag, or raise an error
    that names it.

    >>> check_option("n_best", np.int8(3))
    3
    >>> check_option("n_best", 0)
    Traceback (most recent call last):
    npformer.UserError: n_best=0, expected at least 1
    """
    return OPTIONS[name].check(name, value)


@lru_cache(4096)
def changed_fields(settings: Any) -> frozenset[str]:
    """The names of the fields of a record that do not have their default, or that have none.

    A kernel, or a hook, that does not know one of them must not compute with the record: it would
    ignore the field.

    >>> from npformer.layers import Rotary
    >>> sorted(changed_fields(Rotary(base=5000.0)))
    ['base']
    """
    return frozenset(_changed(settings))


def _changed(settings):
    """The values, by name, of the fields that do not have their default, or that have none."""
    values = {field: getattr(settings, field.name) for field in fields(settings)}
    return {field.name: value for field, value in values.items() if value != _default(field)}


def _default(field):
    return field.default if field.default_factory is MISSING else field.default_factory()


def check_fields(settings):
    """Check the fields of a dataclass that are options, choices or other settings; numbers become
    Python's.

    A field is an option if its type hint says so, or if it has the name and the type of one of the
    table. It may be None if its type hint says so. The dataclass may be frozen.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Sizes:
    ...     d_ff: int
    ...     patience: Count | None = None
    ...     norm: Literal["pre", "post"] = "pre"
    ...     def __post_init__(self):
    ...         check_fields(self)
    >>> Sizes(d_ff=np.uint8(200)).d_ff * 2
    400
    >>> Sizes(d_ff=8, patience=0)
    Traceback (most recent call last):
    npformer.UserError: patience=0, expected at least 1
    """
    for name, check in _checks_of(type(settings)):
        object.__setattr__(settings, name, check(getattr(settings, name)))


def brief(settings):
    """The text of a dataclass without the fields that have their defaults: for its ``__repr__``."""
    changed = ", ".join(f"{name}={value!r}" for name, value in _changed(settings).items())
    return f"{type(settings).__name__}({changed})"


def check_expressed(settings, names, owner=""):
    """Check that only these fields of a dataclass have other values than their defaults.

    What writes settings in a form that others read calls it with the fields that this form has. So
    a field that is added to them later is refused there, and not lost, until somebody writes it.

    >>> from npformer.layers import Rotary
    >>> check_expressed(Rotary(base=5000.0, pairs="interleaved"), ["base", "scaling"], "rotary.")
    Traceback (most recent call last):
    npformer.UserError: rotary.pairs='interleaved', expected 'halves'
    """
    defaults = {field.name: _default(field) for field in fields(settings)}
    for name, value in _changed(settings).items():
        if name not in names:
            expected = "no such setting" if defaults[name] is MISSING else shown(defaults[name])
            raise UserError(f"{owner}{name}={shown(value)}, expected {expected}")


def settings_from(dataclass, values, owner, others=()):
    """A dataclass made of the settings that are given by name, or an error that lists the names
    that there are.

    ``others`` are arguments of the same function that are no settings.
    """
    _check_names(values, [field.name for field in fields(dataclass)], owner, others=others)
    return dataclass(**values)


def names_checked(
    dataclass: type[T],
    checks: Mapping[str, Callable[[str, Any], None]] = MappingProxyType({}),
    advice: Mapping[str, str] = MappingProxyType({}),
) -> type[T]:
    """Decorate a dataclass: the error for a setting that it does not have lists those that it has.

    A setting that is given by its place and by its name is an error, too. ``checks`` has functions
    of (name, value) by the names of settings, whose errors about what is at their place come first.
    ``advice`` says, by names that other libraries have, where such a value goes here.

    >>> from dataclasses import dataclass
    >>> @names_checked
    ... @dataclass
    ... class Settings:
    ...     lr: float
    >>> Settings(rate=0.1)
    Traceback (most recent call last):
    TypeError: rate=0.1 is no setting of Settings, expected lr
    """
    init = dataclass.__init__
    names = list(signature(dataclass).parameters)

    @wraps(init)
    def checked_init(self, *args, **settings):
        kinds = dataclass.__subclasses__()
        _check_names(settings, names, dataclass.__name__, kinds=kinds, advice=advice)
        for name, value in zip(names, args, strict=False):
            if name in settings:
                if name in checks:
                    checks[name](name, value)
                both = f"{shown(value)}, by its place, and {name}={shown(settings[name])}"
                raise TypeError(f"{dataclass.__name__} got {both}: expected one of them")
        init(self, *args, **settings)

    dataclass.__init__ = checked_init  # type: ignore[method-assign]
    return dataclass


def _check_names(values, names, owner, *, others=(), kinds=(), advice=MappingProxyType({})):
    """Check that settings are among these names; ``kinds`` are classes that have more of them."""
    for name, value in values.items():
        if name in names:
            continue
        have_it = [kind.__name__ for kind in kinds if name in signature(kind).parameters]
        if have_it:
            instead = f": try {have_it[0]}, which has it"
        elif name in advice:
            instead = f"; {advice[name]}"
        else:
            instead = advice_on_name(name, names)
        expected = ", ".join([*others, *names]) + instead
        raise TypeError(f"{name}={shown(value)} is no setting of {owner}, expected {expected}")


def advice_on_name(name, names):
    """The name that was meant, if it can be guessed.

    >>> names = ["d_model", "n_layers"]
    >>> advice_on_name("num_layers", names), advice_on_name("n_embd", names)
    (': try n_layers', ': try d_model')
    """
    from difflib import get_close_matches  # which only an error needs

    meant = NAMES_ELSEWHERE.get(name)
    close = [meant] if meant in names else get_close_matches(str(name), names, 1, 0.75)
    return f": try {close[0]}" if close else ""


@cache  # as settings are made in each step of decoding
def _checks_of(dataclass):
    """(name, check) of each field that has a check."""
    checks = []
    for field in fields(dataclass):
        kind, optional = _kind_of(field.type)
        check = _check_of_kind(field.name, kind)
        if check is not None:
            checks.append((field.name, _or_none(check) if optional else check))
    return checks


def _kind_of(hint):
    """(the type of a hint, or the whole hint if it has several, whether it includes None)."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    optional = NoneType in get_args(hint)
    return (kinds[0] if optional and len(kinds) == 1 else hint), optional


def _or_none(check):
    """A check that lets None pass."""
    return lambda value: None if value is None else check(value)


def _check_of_kind(name, kind):
    """The check of choices, of a dataclass, or of the option with this name and type; else None."""
    if get_origin(kind) is Literal:
        return partial(check_choice, name, choices=get_args(kind))
    if is_dataclass(kind):
        return partial(check_instance, name, kind=kind)
    option = option_of(name, kind)
    return partial(option.check, name) if option else None


def check_instance(name, value, kind, expected=""):
    """Check that a value is of a class, such as that of settings."""
    if not isinstance(value, kind):
        expected = expected or f"{kind.__name__}(…)"
        raise TypeError(f"{name} is a {type(value).__name__}, expected {expected}")
    return value


def check_of(name, hint):
    """A function that converts an option of an operation to the type of its hint, or raises.

    None if there is nothing to check.

    >>> check_of("eps", float)(np.float32(0.5))
    0.5
    """
    kind, optional = _kind_of(hint)
    check = _check_of_kind(name, kind)
    if name == "dropout_key":
        check = partial(check_key, name)
    elif get_origin(kind) is tuple:
        check = partial(_check_sizes, name, n=len(get_args(kind)))
    elif kind is Callable:
        check = partial(check_instance, name, kind=Callable, expected="a callable")
    elif kind is dict:
        check = partial(check_instance, name, kind=dict, expected="a dict")
    elif kind in CONVERSIONS:
        check = partial(_check_number, name, kind, check or partial(Option(kind).check, name))
    return _or_none(check) if optional and check else check


def _check_number(name, kind, check, value):
    if type(value) is not kind and is_cupy(value) and value.shape == ():
        return value  # a recorded operation reads a number on the GPU when it is replayed
    value = check(value)
    if kind is int and not SMALLEST <= value <= LARGEST:
        raise UserError(f"{name}={shown(value)}, expected an int of 64 bits")
    return value


def _check_sizes(name, value, n):
    if not isinstance(value, tuple):
        expected = f"a tuple of {n} ints"
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}, expected {expected}")
    sizes = tuple(check_int(name, size) for size in value)
    if len(sizes) != n or min(sizes) < 0:
        raise UserError(f"{name}={value}, expected {n} sizes of 0 or more")
    if max(math.prod(sizes), *sizes) > LARGEST // WIDEST:
        raise UserError(f"{name}={value}, expected fewer entries: no array can have as many")
    return sizes


def check_rate_and_key(rate, key):
    """Check that there is a key if the dropout rate is above 0."""
    if rate > 0 and key is None:
        needed = "a dropout_key (an integer) to draw from"
        raise UserError(f"dropout_rate={rate} needs {needed}, got dropout_key=None")
