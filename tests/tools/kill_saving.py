"""Kill processes that save a model over another one, and fill their disk.

The folder has to hold one of the two, whole.

    python tests/tools/kill_saving.py
    python tests/tools/kill_saving.py --kills 2000 --full 100 --seed 1
    python tests/tools/kill_saving.py --no-exchange  # as if no disk could exchange two folders

Two models with different settings, weights and tokenizers are saved in turn to one folder, which
also has files of a person. One half of the processes is killed at a random time, the other half
just before a random one of all the calls that open, rename or delete something. Then the folder is
loaded. It may hold the older model or the newer one; without an exchange it may also be refused,
with a line that says that saving was interrupted. In the end one more save has to leave nothing but
the files of the model and of the person.

The disk is a tmpfs with room for a random part of what a save writes, which needs Linux and root.
Elsewhere, a limit on the size of files takes its place. The exit status is 1 if anything else
happened. Needs ``npformer[pretrained]``.
"""

import collections
import contextlib
import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from npformer.commands.arguments import natural, new_parser, positive  # needs pip install -e .
from npformer.commands.command import command

from npformer import LanguageModel, pretrained, tree
from npformer.files import folders
from npformer.pretrained.loading import INDEX
from npformer.training import CheckpointError
from tests.tools.forge_pretrained import small_tokenizer

SIZES = {"d_model": 64, "n_heads": 2, "n_layers": 2, "max_len": 16}
SIZES |= {"scale_embeddings": False, "positions": "learned"}
OF_A_PERSON = {"README.md": "Mine.", "notes.md": "Mine, too."}
ROOM = 64 * 2**20  # bytes of the tmpfs
WHOLE = "older model", "newer model"
CALLS = {"open", "os.link", "os.mkdir", "os.rename"}
CALLS |= {"os.remove", "os.rmdir", "os.chmod", "ctypes.dlsym"}


class Saved:
    """A model with its parameters and tokenizer, and how they are saved and recognised."""

    def __init__(self, seed):
        self.model = LanguageModel(300, **SIZES, d_ff=100 + seed)
        self.params, self.tokenizer = self.model.init(seed), small_tokenizer()
        if seed:
            self.tokenizer.files["special_tokens_map.json"] = b"{}"
        with TemporaryDirectory() as folder:
            self.save(folder)
            self.model = pretrained.load(folder)[0]  # whose settings are all as a file has them

    def save(self, folder):
        pretrained.save(folder, self.model, self.params, self.tokenizer)

    def is_in(self, loaded):
        """Whether this is what was loaded."""
        model, params, tokenizer = loaded
        if model != self.model or tokenizer.files != self.tokenizer.files:
            return False
        pairs = zip(tree.leaves(params), tree.leaves(self.params), strict=True)
        return all(np.array_equal(x, y) for (_, x), (_, y) in pairs)


def outcome(folder, older, newer):
    """What a folder holds: one of the models, or why it holds none."""
    for name, text in OF_A_PERSON.items():
        if (folder / name).read_text() != text:
            return f"{name} IS LOST"
    try:
        loaded = pretrained.load(folder)
    except CheckpointError as error:
        return "refused" if "saving them was interrupted" in str(error) else f"REFUSED: {error}"
    return next(
        (name for name, saved in zip(WHOLE, (older, newer), strict=True) if saved.is_in(loaded)),
        "A MIXTURE",
    )


def in_child(work):
    """Start a process that does some work; its number."""
    child = os.fork()
    if child:
        return child
    with contextlib.suppress(BaseException):
        work()
        os._exit(0)
    os._exit(1)


def killed_after(seconds, save):
    """Kill a process that saves after some time."""
    child = in_child(save)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def killed_at(number, save):
    """Let a process that saves kill itself before the call with this number."""

    def work():
        left = number

        def count(event, arguments):
            nonlocal left
            left -= event in CALLS
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        save()

    os.waitpid(in_child(work), 0)


def n_calls(save):
    """The number of calls of a save.

    (An audit hook stays until the process ends, so this is another process.)
    """
    read, write = os.pipe()

    def work():
        seen = []
        sys.addaudithook(lambda event, arguments: seen.append(event) if event in CALLS else None)
        save()
        os.write(write, str(len(seen)).encode())

    os.waitpid(in_child(work), 0)
    os.close(write)
    with open(read) as pipe:
        return int(pipe.read())


def kill(folder, models, n, draw):
    """Kill n processes; how often each outcome was seen, and what is left over in the end."""
    older, newer = models
    begin = time.perf_counter()
    newer.save(folder)
    older.save(folder)
    seconds, calls = (time.perf_counter() - begin) / 2, n_calls(lambda: older.save(folder))
    outcomes = collections.Counter()
    for i in range(n):
        save = lambda newer=newer: newer.save(folder)
        if i % 2:
            killed_at(draw.randrange(calls), save)
        else:
            killed_after(draw.uniform(0, 1.5 * seconds), save)
        outcomes[found := outcome(folder, older, newer)] += 1
        if found == WHOLE[1]:
            older, newer = newer, older
        elif found != WHOLE[0]:
            older.save(folder)
    return outcomes, leftovers(folder, older)


@contextlib.contextmanager
def small_disk(folder):
    """A disk in a folder; a function that leaves so many bytes free on it,
    or that limits the size of a file.
    """
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", folder]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        yield lambda free: resource.setrlimit(resource.RLIMIT_FSIZE, (free, resource.RLIM_INFINITY))
        return

    def leave(free):
        disk = os.statvfs(folder)
        with open(folder / "ballast", "wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, disk.f_bavail * disk.f_bsize - free)

    try:
        yield leave
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(disk, models, n, draw):
    """Save n times where there is too little room, or just enough; what ``kill`` returns."""
    older, newer = models
    folder, outcomes = disk / "model", collections.Counter()
    with small_disk(disk) as leave:
        prepare(folder, older)
        needed = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        for i in range(n):
            free = round(draw.uniform(i, i + 1) / n * 1.2 * needed)

            def work(free=free, newer=newer):
                leave(free)
                newer.save(folder)

            os.waitpid(in_child(work), 0)
            (disk / "ballast").unlink(missing_ok=True)
            outcomes[found := outcome(folder, older, newer)] += 1
            if found == WHOLE[1]:
                older, newer = newer, older
        return outcomes, leftovers(folder, older)


def prepare(folder, older):
    """A folder with a model and files of a person.

    An index, which another program left, goes with the first save.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in OF_A_PERSON.items():
        (folder / name).write_text(text)
    (folder / INDEX).write_text("{}")
    older.save(folder)


def leftovers(folder, saved):
    """What one more save leaves but the files of the model and of the person, or does not leave."""
    saved.save(folder)
    wanted = {"config.json", "model.safetensors", *saved.tokenizer.files}
    wanted |= OF_A_PERSON.keys()
    there = {path.name for path in folder.iterdir()}
    beside = {path.name for path in folder.parent.iterdir()} - {folder.name}
    return sorted((there ^ wanted) | beside)


def no_exchange(one, other):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


@command
def main(argv=None):
    options = parse_arguments(argv)
    draw, models, start = random.Random(options.seed), (Saved(0), Saved(1)), time.perf_counter()
    if options.no_exchange:
        folders._exchange = no_exchange
    with TemporaryDirectory() as place:
        folder, disk = Path(place) / "killed" / "model", Path(place) / "full"
        disk.mkdir()
        prepare(folder, models[0])
        kills, left = kill(folder, models, options.kills, draw)
        fulls, left_there = fill(disk, models, options.full, draw)
    print(f"{options.kills} kills: {dict(kills)}")
    print(f"{options.full} full disks: {dict(fulls)}")
    print(
        f"{time.perf_counter() - start:.0f} s; "
        f"files too many or too few in the end: {left + left_there or 'none'}"
    )
    may_be = {*WHOLE, "refused"} if options.no_exchange else {*WHOLE}
    return int(not {*kills, *fulls} <= may_be or bool(left + left_there))


def parse_arguments(argv):
    parser = new_parser(__doc__)
    parser.add_argument(
        "--kills", type=positive, default=200, metavar="N", help="processes to kill (default: 200)"
    )
    parser.add_argument(
        "--full", type=positive, default=30, metavar="N", help="full disks (default: 30)"
    )
    parser.add_argument("--seed", type=natural, default=0)
    parser.add_argument(
        "--no-exchange", action="store_true", help="as if two folders could not be exchanged"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
