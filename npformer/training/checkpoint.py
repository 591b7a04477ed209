"""What a checkpoint holds of a trainer, and has to hold so that one can go on from it."""

from dataclasses import MISSING, asdict, fields

from npformer import tree
from npformer.checks import check_int
from npformer.errors import UserError
from npformer.files.checkpoint import (  # their path before
    CheckpointError as CheckpointError,
    joined,
    load_checkpoint as load_checkpoint,
    save_checkpoint as save_checkpoint,
)
from npformer.models.description import as_json, describe
from npformer.operations.options import LARGEST, OPTIONS, check_instance

OF_TRAINER = "params.", "optimizer."  # how the names of its arrays begin in a checkpoint

# The settings of a training that its checkpoint has to agree with.
SETTINGS = "seed", "label_smoothing", "consistency", "clip_norm", "frozen"
# What older checkpoints, which do not have these settings, were computed with.
ADDED_LATER = {"consistency": 0.0, "frozen": []}
ADDED_TO_OPTIMIZERS = {"AdamW": {"decay_all": True}}
FACTS_ADDED_LATER = {"n_logged": 0, "validations": []}


def settings_of(trainer):
    """The settings that a checkpoint has to agree with: a dict that JSON can hold."""
    optimizer = {"name": type(trainer.optimizer).__name__, **asdict(trainer.optimizer)}
    del optimizer["lr"]  # a schedule is a function
    settings = {name: getattr(trainer.settings, name) for name in SETTINGS}
    return as_json(settings | {"optimizer": optimizer})


def contents_of(trainer, info=None, arrays=None):
    """The arrays of a checkpoint, and what else it says, with what somebody adds to both.

    All ranks have to call this.
    """
    info = {} if info is None else check_instance("info", info, dict, "a dict")
    arrays = {} if arrays is None else check_instance("arrays", arrays, dict, "a dict")
    for name in arrays:
        if isinstance(name, str) and name.startswith(OF_TRAINER):
            expected = f"names that do not begin with {' or '.join(map(repr, OF_TRAINER))}"
            raise UserError(f"arrays has {name!r}, expected {expected}")
    moments = {name: trainer.flat_optimizer.whole(x) for name, x in trainer.state.moments.items()}
    ours = tree.to_arrays(trainer.params, "params") | tree.to_arrays(moments, "optimizer")
    facts = {"model": describe(trainer.model), "trainer": settings_of(trainer)}
    return ours | arrays, joined("info", facts | trainer.state.facts, info)


def checked_contents(arrays, info, trainer):
    """What ``TrainState.set`` takes of a checkpoint, if all of it fits a trainer.

    These are the parameters and the moments by their names, and the facts. The error names the
    first thing that is missing, malformed or different.
    """
    defaults = {f.name: f.default for f in fields(trainer.model) if f.default is not MISSING}
    _check_settings("model", info.get("model", {}), describe(trainer.model), as_json(defaults))
    _check_settings("trainer", info.get("trainer", {}), settings_of(trainer), ADDED_LATER)
    facts = checked_facts(info)
    params = tree.leaves_under(arrays, "params")
    moments = tree.leaves_under(arrays, "optimizer")
    tree.check_like(params, dict(tree.leaves(trainer.params)))
    # The moments in a file are whole, also if this process has a part of them.
    tree.check_like(moments, dict.fromkeys(trainer.state.moments, trainer.flat_params))
    return params, moments, facts


def checked_facts(info):
    """The facts in ``info`` that are ``TrainState.facts``, with those that older files lack."""
    facts = FACTS_ADDED_LATER | info
    check_int("n_steps", facts.get("n_steps"), at_least=0, at_most=LARGEST)
    check_int("n_logged", facts["n_logged"], at_least=0, at_most=LARGEST)
    validations = facts["validations"]
    if not isinstance(validations, list):
        raise TypeError(f"validations={validations!r:.60}, expected a list")
    for record in validations:
        if not isinstance(record, dict):
            raise TypeError(f"a validation is {record!r:.60}, expected a dict")
        check_int("the step of a validation", record.get("step"), at_least=0, at_most=LARGEST)
    loss_scale = facts.get("loss_scale", [1.0, 0])
    if not isinstance(loss_scale, list) or len(loss_scale) != 2:
        raise UserError(f"loss_scale={loss_scale!r:.60}, expected a scale and a number of steps")
    OPTIONS["loss_scale"].check("loss_scale[0]", loss_scale[0])
    check_int("loss_scale[1]", loss_scale[1], at_least=0)
    return facts


def _check_settings(owner, settings, expected, defaults):
    """Check that settings of a checkpoint, or the defaults of those it lacks, are as expected."""
    if not isinstance(settings, dict):
        raise TypeError(f"{owner}={settings!r:.60}, expected a dict of settings")
    settings = _as_written_now(defaults | settings)
    for name, value in expected.items():
        there = settings.get(name)
        if there != value:
            if isinstance(there, dict) and isinstance(value, dict):
                there, value = _different(there, value), _different(value, there)
            raise UserError(f"{name} is {there!r:.200} in the file and {value!r} in the {owner}")
    if unknown := sorted(settings.keys() - expected.keys()):
        raise UserError(f"{owner} has settings that this npformer does not know: {unknown!s:.200}")


def _different(settings, others):
    """The settings that others do not have, or have with another value."""
    missing = object()
    return {name: value for name, value in settings.items() if others.get(name, missing) != value}


def _as_written_now(settings):
    """The settings of an older file in the form that a new file has."""
    if isinstance(settings.get("frozen"), list):
        settings["frozen"] = sorted(settings["frozen"], key=str)  # older files have any order
    if isinstance(settings.get("optimizer"), dict):
        name = str(settings["optimizer"].get("name"))
        settings["optimizer"] = ADDED_TO_OPTIMIZERS.get(name, {}) | settings["optimizer"]
    return settings
