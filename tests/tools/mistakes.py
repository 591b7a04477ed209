"""Make the mistakes that users make with the commands and scripts.

Each has to say in one line what is wrong.

python tests/tools/mistakes.py                   # all of them: about a minute
python tests/tools/mistakes.py --quick           # one of each script: some seconds
python tests/tools/mistakes.py --only translate  # those of the scripts whose names begin with this
python tests/tools/mistakes.py --table           # only print the table of docs/guides/bad-input.md

Each mistake is a command in a shell, run in a temporary folder that has a text, a small trained
model, and damaged copies of both; those that can be made with every script and command are made in
one process. Prints a table of what each script wrote. The exit code is 1 if a script prints a
traceback, does not end, or ends otherwise than expected, and if a checkpoint was changed.
"""

import concurrent.futures
import contextlib
import gzip
import io
import multiprocessing
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import traceback
from pathlib import Path
from typing import NamedTuple

import numpy as np

from npformer.commands import COMMANDS
from npformer.commands.shared import Positive

from npformer.__main__ import main as npformer
from npformer.errors import UserError
from npformer.text import Translator
from tests.corpus import sentence_pairs
from tests.tools.tool import tool

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS, TOOLS = ROOT / "scripts", ROOT / "tests" / "tools"
IS_SCRIPT = '\nif __name__ == "__main__":\n'
N_CORES = os.cpu_count()
SECONDS = 120  # until a script counts as hanging: the first run compiles kernels


class Mistake(NamedTuple):
    """A mistake, the command that makes it, and how the script has to end.

    The fields are explained in ``mistakes.toml``.
    """

    script: str  # or "npformer", the command
    what: str  # "" if the page does not list it
    command: str
    code: int
    line: str


WITH_PROGRESS = (
    "--data data --vocab-size 40 --max-tokens 150 --max-len 60 --steps 4 "
    "--validate-every 4 --save-every 2"
)
RECIPE = f"{WITH_PROGRESS} --quiet"
PARTS = {
    "recipe": RECIPE,
    "recipe_with_progress": WITH_PROGRESS,
    "full_disk": "ulimit -f 40;",  # blocks of 1024 bytes: larger files cannot be written
    "interrupted": "timeout --preserve-status --signal INT 3",
}


def read_mistakes():
    """The mistakes that are listed in ``mistakes.toml``."""
    with Path(__file__).with_suffix(".toml").open("rb") as file:
        scripts = tomllib.load(file)
    mistakes = []
    for script, rows in scripts.items():
        for row in rows:
            command = row["command"].format(**PARTS)
            what = row.get("mistake", "")
            mistakes.append(Mistake(script, what, command, row["code"], row["line"]))
    return mistakes


MISTAKES = read_mistakes()
EVERY = "every script and command"
WITH_EVERY = [
    Mistake(EVERY, "an unknown option", "--hepl", 2, "unknown option --hepl, did you mean --help?"),
    Mistake(EVERY, "none: `--help` only shows the help", "--help", 0, ""),
]


@tool
def main(
    *,
    quick: bool = False,
    only: str = "",
    jobs: Positive = N_CORES,
    table: bool = False,
):
    """Make the mistakes.

    Parameters
    ----------
    quick
        only the first mistake of each script
    only
        only scripts whose name begins with this
    jobs
        mistakes at a time
    table
        print the table of what is expected, without any run
    """
    # a shell may have had it ignored, by the scripts as well
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if table:
        print("\n".join(table_of_expected()))
        return []
    mistakes = first_of_each_script() if quick else MISTAKES
    chosen = [mistake for mistake in mistakes if Path(mistake.script).name.startswith(only)]
    names = [name for name in command_lines() if Path(name).name.startswith(only)]
    unexpected = [*run(chosen, jobs), *run_with_every(names, jobs)]
    print(f"\n{len(chosen) + len(names) * len(WITH_EVERY)} mistakes")
    return [f"UNEXPECTED: {each.script}, {each.what}: {why}" for each, why in unexpected]


def first_of_each_script():
    return list({mistake.script: mistake for mistake in reversed(MISTAKES)}.values())[::-1]


def needs_a_shell(mistake):
    return "SCRIPT" in mistake.command


def table_of_expected():
    """The lines of a Markdown table of what is expected, as it is in docs/guides/bad-input.md."""
    listed = [mistake for mistake in [*WITH_EVERY, *MISTAKES] if mistake.what]
    return [*header(), *(row(mistake, mistake.code, mistake.line) for mistake in listed)]


def header():
    return ["| script | mistake | exit code | line |", "| --- | --- | --- | --- |"]


def row(mistake, code, line):
    """A row of the table; a line that is not the same everywhere is shown as it is expected."""
    script = mistake.script if " " in mistake.script else f"`{mistake.script}`"
    return f"| {script} | {mistake.what} | {code} | {f'`{line}`' if line else 'none'} |"


def run(mistakes, jobs=1):
    """Make the mistakes, and print the table.

    Returns a list of (mistake, why it is not as expected).
    """
    unexpected = []
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(jobs) as pool,
    ):
        make_files(Path(folder), " ".join(mistake.command for mistake in mistakes))
        last = Path(folder) / "run" / "last.safetensors"
        before = last.read_bytes() if last.exists() else None
        print("\n".join(header()), flush=True)
        for mistake, found in zip(
            mistakes, pool.map(lambda mistake: make(mistake, folder), mistakes), strict=True
        ):
            code, line, why = found
            print(row(mistake, code, line), flush=True)
            unexpected += [(mistake, why)] if why else []
        if before and last.read_bytes() != before:
            unexpected.append((mistakes[-1], "it or one before has changed the checkpoint"))
    return unexpected


def make(mistake, folder):
    """Run a command. Returns its exit code, the line that it wrote,
    and why this is not as expected or None.
    """
    path = (
        "-m npformer"
        if mistake.script == "npformer"
        else shlex.quote(str(SCRIPTS / mistake.script))
    )
    script = f"{shlex.quote(sys.executable)} {path}"
    text = mistake.command if "SCRIPT" in mistake.command else f"SCRIPT {mistake.command}"
    arguments = ["bash", "-c", "set -o pipefail; " + text.replace("SCRIPT", script)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    done = subprocess.Popen(
        arguments, cwd=folder, env=environment(), start_new_session=True, **pipes
    )
    try:
        _, errors = done.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(done.pid, signal.SIGKILL)
        done.communicate()
        return "none", "", f"has not ended after {SECONDS} seconds"
    return judged(mistake, done.returncode, errors.decode(errors="replace"), folder)


def judged(mistake, code, errors, folder="."):
    """The exit code of a command, the line that it wrote,
    and why this is not as expected or None.
    """
    *above, last = errors.splitlines() or [""]
    # such as that no kernel can be kept, either, or that one is compiled
    above = [line for line in above if not line.startswith(("warning: ", "npformer: compiling "))]
    # a loop names whole paths
    line = re.sub(r"^([\w. -]+: )?error: ", "", last).replace(f"{folder}/", "")
    # a wheel is installed otherwise than a clone
    for name in ("pip install 'npformer", f"pip install -e '{ROOT}"):
        line = line.replace(f"{name}[", "pip install -e '.[")
    if code != mistake.code or not is_as_expected(line, mistake.line):
        return code, line, f"expected {mistake.code}, {mistake.line}\n" + "\n".join([*above, last])
    if above and not (mistake.code == 2 and above[0].startswith("usage: ")):
        return code, line, "more than one line:\n" + "\n".join(above)
    return code, mistake.line, None


def environment():
    """The environment of a script, which finds npformer and the other scripts.

    The folder "without", where there is one, hides the package that WITHOUT names.
    """
    given = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    places = ["without", str(ROOT), given.get("PYTHONPATH", "")]
    return given | {"PYTHONPATH": os.pathsep.join(places)}


def is_as_expected(line, expected):
    return line == expected or (expected.endswith("…") and line.startswith(expected[:-1]))


# -- every script and command, in one process ------------------------------------------------------


def command_lines():
    """Whatever has a command line.

    The scripts and tools that their folders hold, and npformer with its commands.
    """
    files = sorted(path for folder in (SCRIPTS, TOOLS) for path in folder.rglob("*.py"))
    scripts = [path for path in files if IS_SCRIPT in path.read_text(encoding="utf-8")]
    return [
        *(path.relative_to(ROOT).as_posix() for path in scripts),
        *(f"npformer {name}" for name in COMMANDS),
    ]


def run_with_every(names, jobs=1):
    """Make the mistakes that can be made with every command line, as ``run`` does.

    A row is for all of them.
    """
    asked = [mistake._replace(script=name) for mistake in WITH_EVERY for name in names]
    with multiprocessing.get_context("spawn").Pool(jobs, forbid_writing) as pool:
        found = pool.map(ask, asked)
    for mistake in WITH_EVERY:
        print(row(mistake, mistake.code, mistake.line), flush=True)
    return [(mistake, why) for mistake, why in zip(asked, found, strict=True) if why]


def forbid_writing():
    """From now on this process writes no file of the clone, and starts no other."""
    os.chdir(ROOT)
    sys.dont_write_bytecode = True
    sys.addaudithook(refuse)


def refuse(event, arguments):
    """Refuse what nobody expects of ``--help``."""
    if event == "subprocess.Popen":
        raise PermissionError(f"it starts {arguments[0]}")
    if (
        event == "open"
        and not isinstance(arguments[0], int)
        and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    ):
        path = Path(os.fsdecode(arguments[0])).absolute()
        if path.is_relative_to(ROOT) and path.parent.name != "__pycache__":
            raise PermissionError(f"it writes {path}")


def ask(mistake):
    """Run a script, or a command of npformer, in this process.

    Returns why what it says is not as expected, or None.
    """
    name, *command = mistake.script.split(" ")
    code, shown, errors = run_here(name, [*command, mistake.command])
    if mistake.code == 0 and not shown.startswith("usage: "):
        return f"expected its usage, got {shown[:200]!r}"
    return judged(mistake, code, errors)[-1]


def make_here(mistake):
    """Run a command that needs no shell in this process, where the files of ``make_files`` are.

    Returns why what it says is not as expected, or None.
    """
    is_command = mistake.script == "npformer"
    name = "npformer" if is_command else f"scripts/{mistake.script}"
    code, _, errors = run_here(name, shlex.split(mistake.command))
    return judged(mistake, code, errors)[-1]


def run_here(name, arguments):
    """The exit code of a script or of npformer in this process, and what it writes."""
    sys.argv = [name, *arguments]
    shown, errors, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(errors):
        try:
            if name == "npformer":
                code = npformer()
            else:
                runpy.run_path(str(ROOT / name), run_name="__main__")
        except SystemExit as stop:
            code = stop.code or 0
        except Exception:
            traceback.print_exc()
    return code, shown.getvalue(), errors.getvalue()


# -- the folder ------------------------------------------------------------------------------------

# the first that a process runs: an import of a package that is None in this table fails
HIDE = """import os, sys
for name in os.environ.get('WITHOUT', '').split():
    sys.modules[name] = None
"""


def make_files(folder, commands):
    """Write what the commands read, as their arguments name it."""
    for name in ("data", "unequal", "empty", "bomb", "without"):
        (folder / name).mkdir()
    for split, n in (("train", 60), ("val", 6)):
        for language, side in zip(("en", "fr"), zip(*sentence_pairs(n), strict=True), strict=True):
            for place in ("data", "unequal"):
                path = folder / place / f"{split}.{language}"
                path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    short = folder / "unequal" / "train.fr"
    short.write_bytes(short.read_bytes().rstrip(b"\n").rpartition(b"\n")[0] + b"\n")
    (folder / "file").write_text("a file\n")
    (folder / "latin.en").write_bytes(b"for\xeat\n")
    (folder / "cut.en.gz").write_bytes(gzip.compress(b"a man\n" * 1000)[:20])
    (folder / "without" / "sitecustomize.py").write_text(HIDE)
    if "bomb" in commands:
        make_bomb(folder)
    if any(name in commands for name in (" run", "damaged", " nan")):
        train(folder)


def make_bomb(folder):
    """Write small gzip files that hold gigabytes in place of the texts of Multi30k."""
    bomb = gzip.compress(bytes(2**26)) * 100  # gzip files one after another are one: 6.7 GB
    for split in ("train", "val", "test_2016_flickr"):
        for language in ("en", "fr"):
            (folder / "bomb" / f"{split}.{language}.gz").write_bytes(
                bomb if split == "train" else b""
            )


def train(folder):
    """Train the model in the folder run, and copy it to damaged, where it is damaged, and to nan,
    where it is NaN.
    """
    with contextlib.chdir(folder):
        arguments = [*RECIPE.split(), "--out", "run"]
        code, _, errors = run_here("scripts/train_translation.py", arguments)
    if code:
        raise UserError(f"no model could be trained: {errors}")
    shutil.copytree(folder / "run", folder / "damaged")
    for name in ("last", "model"):
        path = folder / "damaged" / f"{name}.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
    shutil.rmtree(folder / "damaged" / "snapshots")
    broken = Translator.load(folder / "run")
    broken.params["output"]["bias"][...] = np.nan
    (folder / "nan").mkdir()
    broken.save(folder / "nan" / "model.safetensors")


if __name__ == "__main__":
    sys.exit(main())
