"""The old path of `npformer.commands.shared.arguments`."""

from npformer.commands.shared.arguments import *  # noqa: F403
