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
Elsewhere, a limit on the size of files takes its place. Needs ``npformer[pretrained]``.
"""

import collections
import contextlib
import errno
import math
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

from npformer import LanguageModel, pretrained, tree
from npformer.files import folders
from npformer.pretrained.files import INDEX_FILE
from npformer.training import CheckpointError
from tests.tools.forge_pretrained import small_tokenizer
from tests.tools.tool import Natural, Seed, in_child, tool

SIZES = {"d_model": 64, "n_heads": 2, "n_layers": 2, "max_len": 16}
SIZES |= {"scale_embeddings": False, "positions": "learned"}
OF_A_PERSON = {"README.md": "Mine.", "notes.md": "Mine, too."}
ROOM = 64 * 2**20  # bytes of the tmpfs
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


class Folder:
    """A folder to which two models are saved in turn."""

    def __init__(self, path, models):
        self.path = path
        self.older, self.newer = models
        self.outcomes = []
        path.mkdir(parents=True)
        for name, text in OF_A_PERSON.items():
            (path / name).write_text(text)
        # Another program has left it: it goes with the first save.
        (path / INDEX_FILE).write_text("{}")
        self.older.save(path)

    def save(self):
        """Save the newer model over the older one."""
        self.newer.save(self.path)

    def look(self):
        """Note what the folder holds after a save that may have been interrupted."""
        self.outcomes.append(self.outcome())
        if self.outcomes[-1] == "newer model":
            self.older, self.newer = self.newer, self.older
        elif self.outcomes[-1] != "older model":
            self.older.save(self.path)

    def outcome(self):
        """What the folder holds: one of the models, or why it holds none."""
        for name, text in OF_A_PERSON.items():
            if (self.path / name).read_text() != text:
                return f"{name} IS LOST"
        try:
            loaded = pretrained.load(self.path)
        except CheckpointError as error:
            return "refused" if "saving them was interrupted" in str(error) else f"REFUSED: {error}"
        if self.older.is_in(loaded):
            return "older model"
        return "newer model" if self.newer.is_in(loaded) else "A MIXTURE"

    def leftovers(self):
        """What one more save leaves but the files of the model and of the person, or does not."""
        self.older.save(self.path)
        wanted = {"config.json", "model.safetensors", *self.older.tokenizer.files, *OF_A_PERSON}
        there = {path.name for path in self.path.iterdir()}
        beside = {path.name for path in self.path.parent.iterdir()} - {self.path.name}
        return sorted(f"left: {name}" for name in (there ^ wanted) | beside)


def killed_after(seconds, save):
    """Kill a process that saves after some time."""
    child = in_child(save)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


class Calls:
    """Counts the calls that open, rename or delete something, and kills the process before one."""

    def __init__(self):
        self.n = 0
        self.last = math.inf
        sys.addaudithook(self.count)  # which stays until the process ends

    def count(self, event, arguments):
        if event in CALLS:
            if self.n == self.last:
                os.kill(os.getpid(), signal.SIGKILL)
            self.n += 1

    def of(self, save):
        """How many a save makes."""
        before = self.n
        save()
        return self.n - before

    def killed_at(self, number, save):
        """Let a process that saves kill itself before the call with this number."""

        def work():
            self.last = self.n + number
            save()

        os.waitpid(in_child(work), 0)


def kill(folder, n, draw):
    """Kill n processes that save."""
    calls, begin = Calls(), time.perf_counter()
    n_calls = calls.of(folder.save)
    seconds = time.perf_counter() - begin
    folder.look()
    for i in range(n):
        if i % 2:
            calls.killed_at(draw.randrange(n_calls), folder.save)
        else:
            killed_after(draw.uniform(0, 1.5 * seconds), folder.save)
        folder.look()


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


def fill(folder, leave, n, draw):
    """Save n times where there is too little room, or just enough."""
    needed = sum(path.stat().st_size for path in folder.path.iterdir() if path.is_file())
    for i in range(n):
        free = round(draw.uniform(i, i + 1) / n * 1.2 * needed)

        def work(free=free):
            leave(free)
            with contextlib.suppress(CheckpointError, OSError):
                folder.save()

        os.waitpid(in_child(work), 0)
        (folder.path.parent / "ballast").unlink(missing_ok=True)
        folder.look()


def cannot_exchange(one, other):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


@tool
def main(*, kills: Natural = 200, full: Natural = 30, no_exchange: bool = False, seed: Seed = 0):
    """Kill processes that save.

    Parameters
    ----------
    kills
        processes to kill
    full
        full disks
    no_exchange
        as if two folders could not be exchanged
    """
    draw = random.Random(seed)
    models = Saved(0), Saved(1)
    outcomes = {"older model", "newer model"}
    if no_exchange:
        folders._exchange = cannot_exchange
        outcomes.add("refused")
    with TemporaryDirectory() as place, contextlib.ExitStack() as disks:
        killed = Folder(Path(place) / "killed" / "model", models)
        kill(killed, kills, draw)
        disk = Path(place) / "full"
        disk.mkdir()
        leave = disks.enter_context(small_disk(disk))
        filled = Folder(disk / "model", models)
        fill(filled, leave, full, draw)
        failures = killed.leftovers() + filled.leftovers()
    for what, folder in (("kills", killed), ("full disks", filled)):
        found = collections.Counter(folder.outcomes)
        print(f"{len(folder.outcomes)} {what}: {dict(found)}")
        failures += sorted(found.keys() - outcomes)
    return failures


if __name__ == "__main__":
    sys.exit(main())
