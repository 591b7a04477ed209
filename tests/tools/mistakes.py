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
import gzip
import io
import multiprocessing
import os
import random
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import numpy as np

from npformer.commands import COMMANDS
from npformer.commands.arguments import new_parser, positive  # needs pip install -e .
from npformer.commands.command import command

from npformer.errors import UserError
from npformer.translation import Translator

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS, TOOLS = ROOT / "scripts", ROOT / "tests" / "tools"
IS_SCRIPT = '\nif __name__ == "__main__":\n'
SECONDS = 120  # until a script counts as hanging: the first run compiles kernels


class Mistake(NamedTuple):
    """A mistake, the command that makes it, and how the script has to end."""

    script: str  # or "npformer", the command
    what: str
    command: str  # in which SCRIPT stands for the script; without SCRIPT, only its arguments
    code: int
    # on standard error, after "error: "; "…" at its end stands for anything, "" for no output
    line: str


RECIPE = (
    "--data data --vocab-size 40 --max-tokens 150 --max-len 60 --quiet --steps 4 "
    "--validate-every 4 --save-every 2"
)
SHORT = "--steps 2 --quiet"
FULL_DISK = "ulimit -f 40;"  # blocks of 1024 bytes: larger files cannot be written
INTERRUPTED = "timeout --preserve-status --signal INT 3"
NO_OPTION = "unknown option --sede, did you mean --seed?"
NO_FILE = "argument --json: file/x.json cannot be written: Not a directory; choose another file"
NO_FOLDER = "argument --out: file cannot be written to: Not a directory; choose another folder"
NO_PICTURES = "pictures need matplotlib: pip install -e '.[plot]'"
EACH_LINE = "expected the same number, each line the translation of the other's"
UNEQUAL = f"unequal/train.en has 60 lines, unequal/train.fr 59: {EACH_LINE}"
NO_CHECKPOINT = "cannot be read as a checkpoint: …"


def without(package):
    """The beginning of a command that runs as if a package were not installed."""
    return f"WITHOUT={package} PYTHONPATH=without:$PYTHONPATH"


def trainings(script, short, no_folder=f"{NO_FOLDER}, or --no-plots"):
    """The mistakes with scripts that train and then write figures and pictures."""
    return [
        Mistake(script, "`--json` cannot be written", "--json file/x.json", 2, NO_FILE),
        Mistake(script, "`--out` is a file", "--out file", 2, no_folder),
        Mistake(
            script,
            "the disk is full when the figures are written",
            f"SCRIPT {short} --no-plots --json /dev/full",
            1,
            "/dev/full: No space left on device",
        ),
        Mistake(script, "Ctrl-C", f"{INTERRUPTED} SCRIPT --quiet --no-plots", 130, ""),
        Mistake(
            script,
            "the reader of the output is gone",
            f"SCRIPT {short} --no-plots | head -1",
            0,
            "",
        ),
        Mistake(script, "no step", "--steps 0", 2, "argument --steps: 0, expected at least 1"),
    ]


MISTAKES = [
    Mistake(
        "npformer",
        "an unknown command",
        "trian-translation --data data",
        2,
        "unknown command 'trian-translation', did you mean train-translation?",
    ),
    Mistake("npformer", "an unknown option of a command", "copy --sede 1", 2, NO_OPTION),
    Mistake(
        "npformer",
        "an option with one dash",
        "copy -seed 1",
        2,
        "unknown option -seed, did you mean --seed?",
    ),
    Mistake(
        "npformer",
        "a mistyped choice",
        "copy --task revrse",
        2,
        "argument --task: 'revrse', did you mean reverse?",
    ),
    Mistake("npformer", "`--json` cannot be written", "info --json file/x.json", 2, NO_FILE),
    Mistake(
        "npformer",
        "an operation that is not there",
        "gradcheck sofmax",
        2,
        "no operation 'sofmax', did you mean softmax?",
    ),
    Mistake(
        "npformer",
        "a mistyped command of the exercises",
        "exercises strat",
        2,
        "argument COMMAND: 'strat', did you mean start?",
    ),
    Mistake(
        "npformer",
        "an exercise that is not there",
        "exercises start sofmax",
        1,
        "there is no exercise 'sofmax', did you mean softmax?",
    ),
    Mistake(
        "npformer",
        "an exercise of one's own Transformer before its file is there",
        "exercises build check",
        1,
        "there is no exercises/transformer.py in …",
    ),
    Mistake(
        "npformer",
        "NumPy is not installed",
        f"{without('numpy')} SCRIPT info",
        1,
        "numpy is not installed for …",
    ),
    Mistake(
        "npformer",
        "CTranslate2 is not installed",
        f"{without('ctranslate2')} SCRIPT export --model run --to new",
        1,
        "an export to CTranslate2 needs its package: pip install ctranslate2",
    ),
    *trainings("train_copy.py", SHORT, no_folder=NO_FOLDER),  # the model needs it, too
    Mistake("train_copy.py", "an unknown option", "--sede 1", 2, NO_OPTION),
    Mistake(
        "train_copy.py",
        "the disk is full when the model is saved",
        f"{FULL_DISK} SCRIPT {SHORT} --out new",
        1,
        "new/model.safetensors could not be saved: …",
    ),
    Mistake(
        "train_copy.py",
        "the disk is full when the pictures are drawn",
        f"{FULL_DISK} {without('safetensors')} SCRIPT {SHORT} --out pictures",
        1,
        "pictures/…",
    ),
    Mistake(
        "train_copy.py",
        "a width that the heads do not divide",
        "--d-model 10 --no-plots",
        1,
        "--d-model 10 is not divisible by n_heads=4",
    ),
    Mistake(
        "train_copy.py",
        "standard output is a file on a full disk",
        f"SCRIPT {SHORT} --no-plots > /dev/full",
        1,
        "standard output: No space left on device",
    ),
    Mistake(
        "train_copy.py",
        "more steps than can be counted",
        "--steps 100000000000000000000",
        2,
        "argument --steps: 100000000000000000000, expected at most 2147483647",
    ),
    Mistake(
        "train_copy.py",
        "a seed that is no number",
        "--seed one",
        2,
        "argument --seed: one, expected a whole number",
    ),
    Mistake(
        "train_copy.py",
        "NumPy is not installed",
        f"{without('numpy')} SCRIPT",
        1,
        "numpy is not installed for …",
    ),
    *trainings("detect_anomalies.py", f"--quick {SHORT}"),
    Mistake(
        "train_translation.py",
        "no `--data`",
        "--out new",
        2,
        "the following arguments are required: --data (or --resume)",
    ),
    Mistake(
        "train_translation.py",
        "a mistyped preset",
        "--out new --preset tiyn",
        2,
        "argument --preset: 'tiyn', did you mean tiny?",
    ),
    Mistake(
        "train_translation.py",
        "`--data` does not exist",
        f"{RECIPE} --out new --data nowhere",
        1,
        "nowhere: expected train.en or train.en.gz, found no such folder",
    ),
    Mistake(
        "train_translation.py",
        "the texts have unequal numbers of lines",
        f"{RECIPE} --out new --data unequal",
        1,
        UNEQUAL,
    ),
    Mistake("train_translation.py", "`--out` is a file", f"{RECIPE} --out file", 2, NO_FOLDER),
    Mistake(
        "train_translation.py",
        "`--out` holds a training",
        f"{RECIPE} --out run",
        1,
        "run holds a training: continue it with --resume, or start another with a new --out",
    ),
    Mistake(
        "train_translation.py",
        "`--json` cannot be written",
        f"{RECIPE} --out new --json file/x.json",
        2,
        NO_FILE,
    ),
    Mistake(
        "train_translation.py",
        "`--json` is a text of `--data`",
        f"{RECIPE} --out new --json data/train.en",
        1,
        "--json data/train.en, which this script reads or writes itself: choose another file",
    ),
    Mistake(
        "train_translation.py",
        "standard error is closed",
        f"SCRIPT {RECIPE.replace('--quiet', '')} --out closed 2>&-",
        0,
        "",
    ),
    Mistake(
        "train_translation.py",
        "a vocabulary that is too large",
        f"{RECIPE} --out new --vocab-size 2147483647",
        2,
        "argument --vocab-size: 2147483647, expected at most 1000000",
    ),
    Mistake(
        "train_translation.py",
        "an absurd length",
        f"{RECIPE} --out new --max-len 1000000000000",
        2,
        "argument --max-len: 1000000000000, expected at most 65536",
    ),
    Mistake(
        "train_translation.py",
        "sacrebleu is not installed",
        f"{without('sacrebleu')} SCRIPT {RECIPE} --out new",
        1,
        "scores need sacrebleu and sacremoses: pip install -e '.[translation]'",
    ),
    Mistake(
        "train_translation.py",
        "sentencepiece is not installed",
        f"{without('sentencepiece')} SCRIPT {RECIPE} --out new",
        1,
        "subwords need sentencepiece: pip install -e '.[translation]'",
    ),
    Mistake(
        "train_translation.py",
        "safetensors is not installed",
        f"{without('safetensors')} SCRIPT {RECIPE} --out new",
        1,
        "checkpoints need safetensors: pip install -e '.[checkpoint]'",
    ),
    Mistake(
        "train_translation.py",
        "the disk is full when the checkpoint is written",
        f"{FULL_DISK} SCRIPT {RECIPE} --out full",
        1,
        "full/last.safetensors could not be saved: …",
    ),
    Mistake(
        "train_translation.py",
        "`--resume` without a checkpoint",
        "--resume --out empty",
        1,
        "there is no checkpoint empty/last.safetensors to resume from: start without --resume",
    ),
    Mistake(
        "train_translation.py",
        "`--resume` with a mistyped `--data`",
        "--resume --out run --data nowhere --steps 6",
        1,
        "nowhere: expected train.en or train.en.gz, found no such folder",
    ),
    Mistake(
        "train_translation.py",
        "`--resume` with another text that is damaged",
        "--resume --out run --data unequal --steps 6",
        1,
        UNEQUAL,
    ),
    Mistake(
        "train_translation.py",
        "`--resume` with another seed",
        "--resume --out run --seed 2",
        1,
        (
            "--seed 2, but run/last.safetensors was begun with 1: leave it out, "
            "or start anew in another folder"
        ),
    ),
    Mistake(
        "train_translation.py",
        "`--resume` with fewer steps than are done",
        "--resume --out run --steps 3",
        1,
        "run/last.safetensors: --steps 3, but 4 are done",
    ),
    Mistake(
        "train_translation.py",
        "`--resume` of a damaged checkpoint",
        "--resume --out damaged",
        1,
        f"damaged/last.safetensors {NO_CHECKPOINT}",
    ),
    Mistake(
        "translate.py",
        "no model in `--model`",
        "--model empty man",
        1,
        "there is no checkpoint empty/model.safetensors",
    ),
    Mistake(
        "translate.py",
        "a damaged model",
        "--model damaged man",
        1,
        f"damaged/model.safetensors {NO_CHECKPOINT}",
    ),
    Mistake(
        "translate.py",
        "a model that holds NaN",
        "--model nan man",
        1,
        (
            "token 1 cannot be chosen: the logits are NaN or infinite; "
            "parameter output.bias holds NaN or inf …"
        ),
    ),
    Mistake(
        "translate.py",
        "standard input is closed",
        "SCRIPT --model run <&-",
        1,
        "there is no standard input: expected a text, or the name of a file, as an argument",
    ),
    Mistake(
        "translate.py",
        "a sentence that is not UTF-8",
        r"SCRIPT --model run $'for\xeat'",
        2,
        r"argument SENTENCE: 'for\udceat', expected UTF-8",
    ),
    Mistake(
        "translate.py",
        "standard input that is not UTF-8",
        "SCRIPT --model run < latin.en",
        1,
        "standard input, line 1: 'utf-8' codec can't decode byte 0xea in position 3: "
        "invalid continuation byte; "
        "expected UTF-8",
    ),
    Mistake(
        "translate.py",
        "a gzip file that is cut short",
        "--model run --file cut.en.gz",
        1,
        "cut.en.gz, after line 0: "
        "Compressed file ended before the end-of-stream marker was reached; expected a whole "
        "gzip file",
    ),
    Mistake(
        "translate.py",
        "`--file` does not exist",
        "--model run --file nowhere",
        1,
        "nowhere is missing: expected a text, or a .gz",
    ),
    Mistake(
        "translate.py",
        "`--file` without its ending .gz",
        "--model run --file cut.en",
        1,
        "cut.en is missing: take cut.en.gz",
    ),
    Mistake(
        "translate.py",
        "an absurd beam",
        "--model run --beam 100000000000 man",
        2,
        "argument --beam: 100000000000, expected at most 1000",
    ),
    Mistake(
        "translate.py",
        "more translations than hypotheses",
        "--model run --n-best 6 man",
        2,
        "argument --n-best: 6, expected at most --beam 5",
    ),
    Mistake(
        "translate.py",
        "a picture without matplotlib",
        f"{without('matplotlib')} SCRIPT --model run --attention x.png man",
        2,
        f"argument --attention: {NO_PICTURES}",
    ),
    Mistake(
        "translate.py",
        "a picture of an unknown format",
        "--model run --attention x.doc man",
        2,
        "argument --attention: x.doc, expected a name that ends with …",
    ),
    Mistake(
        "translate.py",
        "the reader of the output is gone",
        "SCRIPT --model run man on on old | head -1",
        0,
        "",
    ),
    Mistake(
        "evaluate.py",
        "`--json` cannot be written",
        "--model empty --data data --json file/x.json",
        2,
        NO_FILE,
    ),
    Mistake(
        "evaluate.py",
        "`--data` does not exist",
        "--model run --data nowhere --split val",
        1,
        (
            "nowhere: expected val.en or val.en.gz, found no such folder; "
            "--split is the beginning of the names"
        ),
    ),
    Mistake(
        "evaluate.py",
        "`--out` is a folder",
        "--model run --data data --out empty",
        2,
        "argument --out: empty is a folder, expected a file",
    ),
    Mistake(
        "evaluate.py",
        "`--out` is the text of the references",
        "--model run --data data --split val --out data/val.fr",
        1,
        "--out data/val.fr, which this script reads or writes itself: choose another file",
    ),
    Mistake(
        "evaluate.py",
        "`--out` and `--json` are the same file",
        "--model run --data data --split val --out x.txt --json x.txt",
        1,
        "--json x.txt, which is also --out: choose another file",
    ),
    Mistake(
        "evaluate.py",
        "a picture without matplotlib",
        f"{without('matplotlib')} SCRIPT --model run --data data --plot x.png",
        2,
        f"argument --plot: {NO_PICTURES}",
    ),
    Mistake(
        "evaluate.py",
        "sacremoses is not installed",
        f"{without('sacremoses')} SCRIPT --model run --data data",
        1,
        "scores need sacrebleu and sacremoses: pip install -e '.[translation]'",
    ),
    Mistake(
        "evaluate.py",
        "the disk is full when the translations are written",
        "SCRIPT --model run --data data --split val --out /dev/full",
        1,
        "/dev/full: No space left on device",
    ),
    Mistake(
        "generate.py",
        "a text without quotes",
        "--model empty A man is",
        2,
        "put the text in quotes, not only its first word, 'A'",
    ),
    Mistake(
        "generate.py",
        "a temperature of 0",
        "--model empty --temperature 0 a",
        2,
        (
            "argument --temperature: 0, expected a finite number above 0; "
            "--top-k 1 takes the most probable token"
        ),
    ),
    Mistake(
        "generate.py",
        "a model that translates",
        "--model run/last.safetensors a",
        1,
        (
            "run/last.safetensors: it holds no language model, but a Transformer; "
            "expected a file written by train-gpt"
        ),
    ),
    Mistake(
        "get_multi30k.py",
        "an unknown language",
        "--langs en,it",
        2,
        "argument --langs: 'en,it', expected two or three of en,fr,de",
    ),
    Mistake("get_multi30k.py", "`--out` is a file", "--out file", 2, NO_FOLDER),
    Mistake(
        "get_multi30k.py",
        "a copy that lacks files",
        "--from empty --langs en,fr --out multi30k",
        1,
        "empty lacks (as NAME.gz or as NAME): train.en, train.fr, val.en, val.fr, …",
    ),
    Mistake(
        "get_multi30k.py",
        "a folder that is a file",
        "--from file --out multi30k",
        1,
        "file is a file: expected a folder",
    ),
    Mistake(
        "get_multi30k.py",
        "a small gzip file that holds gigabytes",
        "ulimit -v 1000000; SCRIPT --from bomb --langs en,fr --out multi30k",
        1,
        "bomb/train.en.gz is damaged or not the train.en expected, and was not kept: …",
    ),
    Mistake(
        "get_multi30k.py",
        "an address that is none",
        "--url somewhere --out multi30k",
        2,
        "argument --url: 'somewhere', expected an address that begins with https://",
    ),
    Mistake(
        "make_notebook.py",
        "nbclient is not installed",
        f"{without('nbclient')} SCRIPT",
        1,
        "a notebook needs nbclient: pip install -e '.[docs]'",
    ),
    Mistake(
        "make_playground.py",
        "neither a page nor a model",
        "SCRIPT",
        2,
        "nothing to do: give --out for the page, or --train for a model",
    ),
    Mistake(
        "make_playground.py",
        "`--out` cannot be written",
        "--out file/x.html",
        2,
        "argument --out: file/x.html cannot be written: Not a directory; choose another file",
    ),
    Mistake(
        "make_playground.py",
        "a training without text",
        "--train en-fr",
        2,
        "--train en-fr needs --data DIR, a folder of get_multi30k.py",
    ),
    *(
        Mistake(
            f"bench/bench_{name}.py", "`--json` cannot be written", "--json file/x.json", 2, NO_FILE
        )
        for name in ("attention", "decode", "gpu", "ops", "ranks", "recurrent", "train")
    ),
    Mistake(
        "measure/measure_networks.py",
        "`--json` cannot be written",
        "--json file/x.json",
        2,
        NO_FILE,
    ),
    Mistake(
        "measure/measure_networks.py",
        "one rank",
        "--ranks 1",
        2,
        "argument --ranks: 1 rank sends no messages, expected 2 or more",
    ),
    Mistake(
        "bench/bench_attention.py",
        "a mistyped name between commas",
        "--masks full,causl",
        2,
        "argument --masks: 'causl', did you mean causal?",
    ),
    Mistake(
        "figures/draw_figures.py",
        "matplotlib is not installed",
        f"{without('matplotlib')} SCRIPT",
        1,
        NO_PICTURES,
    ),
    Mistake(
        "chat.py",
        "`--model` does not exist",
        "--model nowhere --prompt x",
        1,
        "there is no nowhere: …",
    ),
    Mistake(
        "chat.py",
        "`--model` is no model",
        "--model file --prompt x",
        1,
        (
            "file: it is no GGUF or safetensors file, and no folder with config.json; "
            "see help(npformer.pretrained.load)"
        ),
    ),
    Mistake(
        "chat.py",
        "no model is installed",
        "--prompt x",
        1,
        "there is no model in models/smollm2: npformer get-model smollm2 downloads it",
    ),
    Mistake("chat.py", "`--json` cannot be written", "--json file/x.json", 2, NO_FILE),
    Mistake(
        "npformer",
        "a mistyped model",
        "get-model minlm",
        2,
        "argument NAME: 'minlm', did you mean minilm?",
    ),
    Mistake(
        "npformer",
        "no folder of a classifier",
        "classify nowhere text",
        1,
        "there is no nowhere: …",
    ),
    Mistake(
        "npformer",
        "texts and a file",
        "classify x y --file z",
        2,
        "texts and --file: expected one of them",
    ),
    Mistake(
        "search.py", "no `--query`", "file", 2, "the following arguments are required: --query"
    ),
    Mistake(
        "search.py",
        "no file exists",
        "nowhere --query x",
        1,
        "nowhere is missing: expected a text, or a .gz",
    ),
    Mistake(
        "search.py",
        "no file is a text",
        "latin.en --query x",
        1,
        "latin.en, line 1: 'utf-8' codec …",
    ),
    Mistake(
        "search.py",
        "each file is empty",
        "/dev/null --query x",
        1,
        "/dev/null is empty, expected a text",
    ),
    Mistake(
        "search.py",
        "`--query` is empty",
        'file --query ""',
        2,
        "argument --query: it is empty, expected one or more words",
    ),
    Mistake(
        "search.py",
        "`--index` is another file",
        "file --query x --index file",
        1,
        "--index file, which this script reads or writes itself: choose another file",
    ),
    Mistake(
        "search.py",
        "no model is installed",
        "file --query x",
        1,
        "there is no model in models/minilm: npformer get-model minilm downloads it",
    ),
]
WITH_EVERY = [
    Mistake(
        "every script and command",
        "an unknown option",
        "--hepl",
        2,
        "unknown option --hepl, did you mean --help?",
    ),
    Mistake("every script and command", "none: `--help` only shows the help", "--help", 0, ""),
]


@command
def main(argv=None):
    # a shell may have had it ignored, by the scripts as well
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = parse_arguments(argv)
    if options.table:
        print("\n".join(table()))
        return 0
    mistakes = first_of_each_script() if options.quick else MISTAKES
    chosen = [mistake for mistake in mistakes if Path(mistake.script).name.startswith(options.only)]
    names = [name for name in command_lines() if Path(name).name.startswith(options.only)]
    unexpected = [*run(chosen, options.jobs), *run_with_every(names, options.jobs)]
    for mistake, why in unexpected:
        print(f"UNEXPECTED: {mistake.script}, {mistake.what}: {why}")
    n_made = len(chosen) + len(names) * len(WITH_EVERY)
    print(f"\n{n_made} mistakes, {len(unexpected)} that ended otherwise than expected")
    return 1 if unexpected else 0


def first_of_each_script():
    return list({mistake.script: mistake for mistake in reversed(MISTAKES)}.values())[::-1]


def table():
    """The lines of a Markdown table of what is expected, as it is in docs/guides/bad-input.md."""
    return [
        *header(),
        *(row(mistake, mistake.code, mistake.line) for mistake in [*WITH_EVERY, *MISTAKES]),
    ]


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
    # such as that no kernel can be kept, either
    above = [line for line in above if not line.startswith("warning: ")]
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
    """The environment of a script, which finds npformer and the other scripts."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return given | {
        "PYTHONPATH": os.pathsep.join([str(SCRIPTS.parent), given.get("PYTHONPATH", "")])
    }


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
    sys.argv = [name, *command, mistake.command]
    shown, errors, code = io.StringIO(), io.StringIO(), None
    with redirect_stdout(shown), redirect_stderr(errors):
        try:
            if command:
                runpy.run_module(name, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(str(ROOT / name), run_name="__main__")
        except SystemExit as stop:
            code = stop.code or 0
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    if mistake.code == 0 and not shown.getvalue().startswith("usage: "):
        return f"expected its usage, got {shown.getvalue()[:200]!r}"
    return judged(mistake, code, errors.getvalue())[-1]


# -- the folder ------------------------------------------------------------------------------------

WORDS = {"a": "un", "the": "le", "man": "homme", "sees": "voit"}
WORDS |= {"horse": "cheval", "on": "sur", "old": "âgé"}


def make_files(folder, commands):
    """Write what the commands read, as their arguments name it."""
    for name in ("data", "unequal", "empty", "bomb", "without"):
        (folder / name).mkdir()
    draw = random.Random(0)
    for split, n in (("train", 60), ("val", 6)):
        lines = [draw.choices(list(WORDS), k=draw.randint(2, 8)) for _ in range(n)]
        translated = [[WORDS[word] for word in line] for line in lines]
        for language, side in (("en", lines), ("fr", translated)):
            text = "".join(" ".join(line) + "\n" for line in side)
            (folder / "data" / f"{split}.{language}").write_text(text, encoding="utf-8")
            (folder / "unequal" / f"{split}.{language}").write_text(text, encoding="utf-8")
    short = folder / "unequal" / "train.fr"
    short.write_bytes(short.read_bytes().rstrip(b"\n").rpartition(b"\n")[0] + b"\n")
    (folder / "file").write_text("a file\n")
    (folder / "latin.en").write_bytes(b"for\xeat\n")
    (folder / "cut.en.gz").write_bytes(gzip.compress(b"a man\n" * 1000)[:20])
    (folder / "without" / "sitecustomize.py").write_text(
        "import os, sys\nsys.modules[os.environ['WITHOUT']] = None\n"
    )
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
    script = [sys.executable, str(SCRIPTS / "train_translation.py")]
    done = subprocess.run(
        [*script, *RECIPE.split(), "--out", "run"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise UserError(f"no model could be trained: {done.stderr}")
    shutil.copytree(folder / "run", folder / "damaged")
    for name in ("last", "model"):
        path = folder / "damaged" / f"{name}.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
    shutil.rmtree(folder / "damaged" / "snapshots")
    broken = Translator.load(folder / "run")
    broken.params["output"]["bias"][...] = np.nan
    (folder / "nan").mkdir()
    broken.save(folder / "nan" / "model.safetensors")


def parse_arguments(argv):
    parser = new_parser(__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="only the first mistake of each script"
    )
    parser.add_argument("--only", default="", help="only scripts whose name begins with this")
    parser.add_argument(
        "--jobs",
        type=positive,
        default=os.cpu_count(),
        help="mistakes at a time (default: all cores)",
    )
    parser.add_argument(
        "--table", action="store_true", help="print the table of what is expected, without any run"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
