"""What a checkpoint has to hold so that a trainer can go on from it, checked before anything is taken from it."""

from dataclasses import MISSING, asdict, fields

from npformer import tree
from npformer.checks import check_int
from npformer.files.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from npformer.models.description import as_json, describe
from npformer.operations.options import LARGEST, OPTIONS

__all__ = ["CheckpointError", "check_facts", "check_training", "load_checkpoint", "save_checkpoint", "settings_of"]

SETTINGS = ("seed", "label_smoothing", "consistency", "clip_norm", "frozen")  # which a checkpoint has to agree with
ADDED_LATER = {"consistency": 0.0, "frozen": []}  # settings that older checkpoints do not have
ADDED_TO_OPTIMIZERS = {"AdamW": {"decay_all": True}}


def settings_of(trainer):
    """The settings that a checkpoint has to agree with: a dict that JSON can hold."""
    optimizer = {k: v for k, v in asdict(trainer.optimizer).items() if k != "lr"}  # a schedule is a function
    settings = {name: getattr(trainer.settings, name) for name in SETTINGS}
    return as_json(settings | {"optimizer": {"name": type(trainer.optimizer).__name__} | optimizer})


def check_training(arrays, info, trainer):
    """Check what ``Trainer.restore`` uses of a checkpoint: its settings, counts and arrays have to fit the trainer.

    The error names the first thing that is missing, malformed or different.
    """
    newer = {f.name: f.default for f in fields(trainer.model) if f.default is not MISSING}
    _check_settings("model", info.get("model", {}), describe(trainer.model), as_json(newer))
    _check_settings("trainer", info.get("trainer", {}), settings_of(trainer), ADDED_LATER)
    check_facts(info)
    moments = dict.fromkeys(trainer.state.moments, trainer.flat_params)  # whole, also if this process has a part of it
    for prefix, own in (("params", trainer.params), ("optimizer", moments)):
        tree.check_like(tree.leaves_under(arrays, prefix), dict(tree.leaves(own)))


def check_facts(info):
    """Check what ``TrainState.set`` takes of ``info``."""
    for name, value in (("n_steps", info.get("n_steps")), ("n_logged", info.get("n_logged", 0))):
        check_int(name, value, at_least=0, at_most=LARGEST)
    validations, loss_scale = info.get("validations", []), info.get("loss_scale", [1.0, 0])
    if not isinstance(validations, list):
        raise TypeError(f"validations={validations!r:.60}, expected a list")
    for record in validations:
        if not isinstance(record, dict):
            raise TypeError(f"a validation is {record!r:.60}, expected a dict")
        check_int("the step of a validation", record.get("step"), at_least=0, at_most=LARGEST)
    if not isinstance(loss_scale, list) or len(loss_scale) != 2:
        raise ValueError(f"loss_scale={loss_scale!r:.60}, expected a scale and a number of steps")
    OPTIONS["loss_scale"].check("loss_scale[0]", loss_scale[0])
    check_int("loss_scale[1]", loss_scale[1], at_least=0)


def _check_settings(owner, given, expected, newer):
    """Check that settings from a checkpoint are the expected ones; ``newer`` has defaults of what it may lack."""
    if not isinstance(given, dict):
        raise TypeError(f"{owner}={given!r:.60}, expected a dict of settings")
    given = newer | given
    if isinstance(given.get("frozen"), list):
        given["frozen"] = sorted(given["frozen"], key=str)  # older files have the order in which they were given
    if isinstance(given.get("optimizer"), dict):
        added = ADDED_TO_OPTIMIZERS.get(str(given["optimizer"].get("name")), {})
        given["optimizer"] = added | given["optimizer"]
    for name, value in expected.items():
        if given.get(name) != value:
            raise ValueError(f"{name} is {given.get(name)!r:.200} in the file and {value!r} in the {owner}")
    if unknown := sorted(given.keys() - expected.keys()):
        raise ValueError(f"{owner} has settings that this npformer does not know: {unknown!s:.200}")
