"""The check that a checkpoint is one that ``Trainer.save`` can have written, before a trainer takes anything from it.

What is refused here is malformed, for every trainer; ``Trainer.restore`` then compares it with its own settings.
"""

from npformer.checks import check_fraction, check_int, check_not_negative, check_positive
from npformer.models.description import MODELS, describe, from_description
from npformer.options import LARGEST
from npformer.training.optimizers import SGD, Adam, AdamW
from npformer.training.precision import ScaleState

OPTIMIZERS = {optimizer.__name__: optimizer for optimizer in (SGD, Adam, AdamW)}
ADDED_LATER = {"consistency": 0.0, "frozen": []}  # settings that older checkpoints do not have
SETTINGS = {"seed", "label_smoothing", "consistency", "clip_norm", "frozen", "optimizer"}
ADDED_TO_OPTIMIZERS = {"AdamW": {"decay_all": True}}


def check_training(arrays, info, model):
    """Check everything in a checkpoint that ``Trainer.restore`` uses.

    Parameters
    ----------
    arrays, info
        From ``load_checkpoint``.
    model
        The trainer's: only the description of one of npformer's own classes can be checked.

    Returns
    -------
    settings : dict
        The settings of the trainer that was saved, with the defaults of those that are newer.

    Raises
    ------
    TypeError, ValueError
        With the first thing that is missing or malformed.
    """
    own = type(model)
    if "model" not in info:
        raise ValueError(f"name=None, expected {own.__name__!r}, the model's: it holds no training of Trainer.save")
    if lacking := [name for name in ("trainer", "n_steps") if name not in info]:
        raise ValueError(f"info lacks {lacking}, so it holds no training of Trainer.save")
    if not isinstance(info["model"], dict) or not isinstance(info["model"].get("name"), str):
        raise TypeError(f"model={info['model']!r:.60}, expected a dict with its name and settings")
    name = info["model"]["name"]
    if info["model"] != describe(model) and name in MODELS and (name != own.__name__ or own is MODELS[name]):
        from_description(info["model"], arrays)
    settings = _checked_settings(info["trainer"])
    check_int("n_steps", info["n_steps"], at_least=0, at_most=LARGEST)
    loss_scale_in(info)
    return settings


def loss_scale_in(info):
    """Return the loss scale of float16 in a checkpoint, None if it was trained without one."""
    if "loss_scale" not in info:
        return None
    given = info["loss_scale"]
    if not isinstance(given, list) or len(given) != 2:
        raise ValueError(f"loss_scale={given!r:.60}, expected a scale and a number of steps")
    check_positive(**{"loss_scale[0]": given[0]})
    check_int("loss_scale[1]", given[1], at_least=0)
    return ScaleState(*given)


def check_keys(what, given, expected):
    """Check that a dict from a file has these keys and no others."""
    if not isinstance(given, dict):
        raise TypeError(f"{what}={given!r:.60}, expected a dict")
    if lacking := sorted(expected - given.keys()):
        raise ValueError(f"{what} lacks {lacking}, expected the keys {sorted(expected)}")
    if unknown := sorted(given.keys() - expected):
        raise ValueError(f"{what} has keys that this npformer does not know, {unknown!s:.200}")


def _checked_settings(trainer):
    """Return the settings of a trainer, with the defaults of newer ones."""
    if not isinstance(trainer, dict):
        raise TypeError(f"trainer={trainer!r:.60}, expected a dict of settings")
    settings = ADDED_LATER | trainer
    check_keys("trainer", settings, SETTINGS)
    check_int("seed", settings["seed"], at_least=0)
    check_fraction(label_smoothing=settings["label_smoothing"])
    check_not_negative(consistency=settings["consistency"])
    if settings["clip_norm"] is not None:
        check_positive(clip_norm=settings["clip_norm"])
    frozen = settings["frozen"]
    if not isinstance(frozen, str) and not (isinstance(frozen, list) and all(isinstance(x, str) for x in frozen)):
        raise TypeError(f"frozen={frozen!r:.60}, expected a list of names")
    return settings | {"optimizer": _checked_optimizer(settings["optimizer"])}


def _checked_optimizer(optimizer):
    if not isinstance(optimizer, dict) or not isinstance(optimizer.get("name"), str):
        raise TypeError(f"optimizer={optimizer!r:.60}, expected a dict with its name and settings")
    settings = ADDED_TO_OPTIMIZERS.get(optimizer["name"], {}) | optimizer
    if optimizer["name"] in OPTIMIZERS:
        OPTIMIZERS[optimizer["name"]](**{"lr": 0.0} | {k: v for k, v in settings.items() if k != "name"})
    return settings
