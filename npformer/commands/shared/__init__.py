"""What the commands share with each other and with the scripts of a clone.

Here: how a command ends, its arguments, and the files that it writes. They need only the standard
library. ``lines`` has texts that are answered, ``models`` what is loaded, ``decoding`` sampling and
search, ``training`` what commands that train do, ``compiling`` the kernels that they compile first.
"""

from npformer.commands.shared.arguments import (
    LARGEST_SEED,
    UsageError,
    in_range,
    new_parser,
    one_of,
    positive,
    shown_as_written,
    utf_8,
)
from npformer.commands.shared.ending import command, message_or_raise, print_error, print_note
from npformer.commands.shared.on_ranks import rank
from npformer.commands.shared.output import (
    Pictures,
    checked_folder,
    refuse_overwriting,
    why_no_pictures,
    write_json,
    write_whole,
)
from npformer.commands.shared.signature import (
    Backend,
    Fields,
    JsonFile,
    OutputFile,
    OutputFolder,
    Picture,
    Positive,
    Reading,
    Text,
    Words,
    command_line,
)
