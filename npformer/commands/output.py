"""The old path of `npformer.commands.shared.output`."""

from npformer.commands.shared.output import *  # noqa: F403
