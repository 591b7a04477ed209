"""The old path of `npformer.commands.shared.ending`."""

from npformer.commands.shared.ending import *  # noqa: F403
