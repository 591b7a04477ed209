"""The command line, as a person uses it; the functions run in processes of their own."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from programs import WITH_PIPES
from tables import table

from npformer.commands.exercises import next_of

from npformer.exercises import EXERCISES
from npformer.exercises.child import check_file
from npformer.exercises.process import Printed, check_in_process
from npformer.exercises.progress import Progress
from npformer.exercises.verdict import BEGIN
from tests.exercises.solving import NOT_WRITTEN

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "exercises.md"
STATE = Path("exercises/progress.json")
FILES = table(__file__, "odd_files")
SOFTMAX = EXERCISES["softmax"]
CAUSAL_MASK = "import numpy as np\n" + EXERCISES["causal_mask"].answer_source
only_on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux does that")
pytestmark = pytest.mark.usefixtures("folder")


def check(text, name="softmax", seconds=10):
    """What is said about a file, and what it has printed."""
    Path("mine.py").write_text(text, encoding="utf-8")
    verdict, printed = check_in_process(name, "mine.py", seconds)
    assert "Traceback" not in printed
    return verdict.lines, printed


def check_here(text):
    """What is said about a file, without a process of its own."""
    Path("mine.py").write_text(text)
    return check_file(SOFTMAX, str(Path("mine.py").resolve())).lines


def line_of(row):
    return row["line"][:60]


def write_state(**state):
    """Write the file of the progress."""
    STATE.parent.mkdir(exist_ok=True)
    empty = {"solved": [], "files": {}, "hints": {}}
    STATE.write_text(json.dumps(empty | state), encoding="utf-8")


# -- the commands ----------------------------------------------------------------------------------


def test_a_file_says_how_to_check_it_as_the_command_was_called(run, monkeypatch):
    for program, name in {"npformer exercises": "mine", "python -m npformer": "other"}.items():
        monkeypatch.setattr(sys, "argv", [program])
        said = run(f"start softmax --file {name}.py", 0)
        check = f"{program.removesuffix(' exercises')} exercises check softmax\n"
        assert said.endswith(f"Edit it, then: {check}")
        assert f"\nCheck it with: {check}" in Path(f"{name}.py").read_text()


def test_from_the_start_to_the_answer(run_in_processes):
    run = run_in_processes
    assert "next: npformer exercises start soft_lookup" in run("")
    said = run("start softmax", 0)
    assert "Your file: exercises/softmax.py" in said
    assert run("check softmax", 1) == NOT_WRITTEN
    file = Path("exercises/softmax.py")
    mine = "print(x.shape)\n    return np.exp(x - x.max(axis=-1, keepdims=True))"
    file.write_text(file.read_text().replace("raise NotImplementedError", mine))
    said = run("check", 1)
    assert said.startswith("exercises/softmax.py printed:\n    (3,)\nsoftmax: not yet right\n")
    assert "    perhaps: the division by the sum is missing\n" in said
    for hint in SOFTMAX.hints:
        assert hint in run("hint softmax")
    assert "that was the last hint; the answer:" in run("hint softmax")
    file.write_text(run("answer softmax"))
    solved = (
        "softmax: solved\n    right in all 7 cases\nnext: npformer exercises start fix_softmax\n"
    )
    assert run("check exercises/softmax.py", 0) == solved
    said = run("list")
    assert re.search(r"softmax of each row, without overflow +solved\n", said)
    assert f"1 of {len(EXERCISES)} solved" in said


def test_a_file_of_ones_own_with_several_functions(run):
    run("start causal_mask --file mine.py")
    Path("mine.py").write_text(CAUSAL_MASK + EXERCISES["padding_mask"].answer_source)
    assert run("check mine.py", 0).count(": solved\n") == 2
    run("check padding_mask", 0)  # it remembers where the function is


def test_what_a_person_can_mend_is_one_line(run):
    def told(command, line):
        said = run(command, 1)
        assert said.startswith(f"error: {line}")
        assert said.count("\n") == 1

    def of_file(name, text, line):
        Path(name).write_text(text)
        told(f"check {name}", f"{name}{line}")

    for command, line in table(__file__, "messages")["exercises"].items():
        told(command, f"{line}\n")
    told(f"hint {'9' * 5000}", "there is no exercise '9999")  # int() refuses as many digits
    such = "such as def soft_lookup(similarities, values):\n"
    of_file("other.py", "x = 1\n", f" defines no function of an exercise, {such}")
    unreadable = ": Python cannot read it: "
    of_file("broken.py", "f(\n", f"{unreadable}'(' was never closed in line 1\n")
    of_file("zeros.py", "\0" * 10, unreadable)
    deep = f"{unreadable}an expression is nested too deeply\n"
    of_file("deep.py", "-" * 100_000 + "1", deep)
    of_file("long.py", "x" + ".a" * 100_000, deep)
    large = " has more than 1,048,576 bytes, expected a smaller file\n"
    of_file("large.py", "#" * 2**20 + "\n", large)
    Path("folder.py").mkdir()
    told("check folder.py", "folder.py is a folder, expected a file\n")
    there = "other.py is there already: check it, delete it, or choose another name with --file\n"
    told("start softmax --file other.py", there)


def test_a_bug_to_find_is_explained_after_the_last_hint(run):
    assert "3  fix_softmax" in run("list")
    run("start 3", 0)  # by its number
    said = run("check fix_softmax", 1)
    assert "it raises AxisError" in said and "perhaps:" not in said
    assert "the same command again gives one more" in run("hint fix_softmax")
    assert "`check` now says more about what is wrong" in run("hint fix_softmax")
    reason = "large scores still overflow: subtract the maximum of each row; and axis=2 and [:, :,"
    assert f"perhaps: {reason}" in run("check 3")


def test_what_comes_next_follows_in_order_and_then_from_the_first():
    progress, (first, second, third, fourth, *_, last) = Progress.read(), EXERCISES
    progress.solved = {first, third}
    expected = {None: second, first: second, second: fourth, last: second}
    assert {after: next_of(progress, after) for after in expected} == expected


def test_what_comes_next(run):
    run("start soft_lookup")
    run("start causal_mask")
    Path("exercises/causal_mask.py").write_text(CAUSAL_MASK)
    for action in ("start", "check"):
        line = f"next: npformer exercises {action} fix_square_mask\n"
        assert run("check causal_mask").endswith(line)
        run("start fix_square_mask")
    assert run("check").endswith("1 of these 3 are solved\n")
    write_state(solved=list(EXERCISES))
    assert run("start").startswith("error: all are solved: ")
    assert run("check causal_mask").endswith("all are solved\n")


def test_the_folder_of_the_exercises_itself(run, monkeypatch):
    run("start softmax")
    monkeypatch.chdir("exercises")
    line = "error: this is the folder of your exercises: go to the folder above it (cd ..)\n"
    assert run("check softmax", 1) == line
    assert not Path("exercises").exists()


def test_a_file_with_the_name_of_the_folder(run):
    Path("exercises").write_text("")
    name = "exercises is a file, but the folder of your exercises has this name"
    for command in ("build", "list"):
        assert run(command, 1) == f"error: {name}: move it away\n"


def test_the_page_shows_what_is_printed(run):
    """Each console block of the page, in order, with the edits between them, line by line."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(console|py)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    for kind, block in blocks:
        if "--hint" in block:  # it tells of a file that was begun in the other way
            Path("exercises/transformer.py").unlink()
            run("build --derive")
        if kind == "py":
            Path("exercises/softmax_backward.py").write_text("import numpy as np\n\n" + block)
            continue
        for call in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = call.partition("\n")
            said = run(command.removeprefix("npformer exercises"))
            for part in expected.split("...\n"):
                assert f"\n{part}" in f"\n{said}"


# -- the file of the progress ----------------------------------------------------------------------


DAMAGED = [b"{", b"[]", b"\xff", b'{"solved": 3}', b"[" * 200_000]
DAMAGED += [b'{"solved": [], "files": [], "hints": {}}']
DAMAGED += [b'{"solved": [], "files": {}, "hints": {}}' + b" " * 2**20]


@pytest.mark.parametrize("text", DAMAGED, ids=lambda text: text[:60])
def test_damaged_progress_is_told_of_and_kept_aside(run, text):
    STATE.parent.mkdir()
    for n in ("", 1):
        STATE.write_bytes(text)
        said = run("list")
        assert f"0 of {len(EXERCISES)} solved" in said
        assert f"{STATE} is damaged: it is now {STATE}.damaged{n}." in said
        assert Path(f"{STATE}.damaged{n}").read_bytes() == text
    assert "damaged" not in run("list")


@pytest.mark.parametrize("shown", ["x", None, True, 1.5, 1e999, {}, [0], [10], [-1], ["1"], [1.0]])
def test_hints_that_were_edited_by_hand_are_refused_and_the_file_is_left(run, shown):
    write_state(solved=["attention"], hints={"softmax": shown})
    before = STATE.read_bytes()
    advice = "expected the numbers of hints that were shown, from 1 to 9, as in [1, 2]: write them"
    line = f"""error: {STATE}: "hints" has {shown!r} for 'softmax', {advice}, or []\n"""
    assert run("hint softmax", 1) == line
    assert STATE.read_bytes() == before


@pytest.mark.parametrize(("shown", "numbers"), [(0, []), (1, [1]), (10**9, list(range(1, 10)))])
def test_hints_that_were_only_counted_are_the_first_ones(shown, numbers):
    write_state(hints={"softmax": shown})
    assert Progress.read().hints == {"softmax": numbers}


@WITH_PIPES
def test_a_pipe_in_place_of_a_file_is_not_waited_for(run):
    STATE.parent.mkdir()
    os.mkfifo(STATE)
    assert f"{STATE} is damaged: it is now {STATE}.damaged" in run("list")
    commands = {"exercises/transformer.py": "build check", "mine.py": "check mine.py"}
    for file, command in commands.items():
        os.mkfifo(file)
        line = f"{file} is a pipe, expected a file"
        assert run(command, 1) == f"error: {line}\n"
    assert check_file(SOFTMAX, "mine.py").lines == [line]


# -- what a person's file does ---------------------------------------------------------------------


@pytest.mark.parametrize("row", FILES["here"], ids=line_of)
def test_whatever_a_file_does_gives_a_line(row):
    assert row["line"] in check_here(row["text"])


def test_a_message_without_end_is_cut():
    line = f"it raises ValueError: {'x' * 988}…"
    assert line in check_here("def softmax(x):\n    raise ValueError('x' * 10**7)\n")


@pytest.mark.parametrize("row", FILES["process"], ids=line_of)
def test_whatever_the_process_does_gives_a_line(row):
    if "linux" in row and sys.platform != "linux":
        pytest.skip("only Linux does that")
    lines, printed = check(row["text"], row.get("key", "softmax"))
    assert row["line"] in lines[-1] and printed == ""


@pytest.mark.parametrize(
    "name, value", [("where", "lambda *x: np.True_"), ("abs", "None"), ("allclose", "np.equal")]
)
def test_code_that_replaces_a_function_of_numpy_is_told_so(monkeypatch, name, value):
    monkeypatch.setattr(np, name, getattr(np, name))  # which puts it back in the end
    line = f"it replaces np.{name}: leave NumPy as it is, and give what is yours another name"
    replace = f"np.{name} = {value}\n"
    assert check_here(f"import numpy as np\n{replace}def softmax(x):\n    return x\n") == [line]
    case, *lines = check_here(f"import numpy as np\ndef softmax(x):\n    {replace}    return x\n")
    assert case.startswith("with one row: x = ") and lines == [line]


TOO_LONG = "it has not ended after 1 seconds: is there a loop that never ends?"
CATCHES_ALL = """
def softmax(x):
    while True:
        try:
            print(x, end='')
        except BaseException:
            pass
"""


ENDLESS = {
    "def softmax(x):\n    while True: pass\n": f"{TOO_LONG} (line 2: while True: pass)",
    CATCHES_ALL: f"{TOO_LONG} (line ",
    # what is known to be wrong is said, if the reason is not found in time
    "def softmax(x):\n    while x.ndim == 3: pass\n    return 0 * x\n": (
        "y is wrong at [0]: yours is 0, expected 0.125 (3 of 3 entries are wrong)"
    ),
}


@pytest.mark.parametrize("text", ENDLESS)
def test_an_endless_loop_ends_with_a_line(text):
    (case, said), printed = check(text, seconds=1)
    assert case == "with one row: x = [0.    , 1.0986, 1.3863]"
    assert said.startswith(ENDLESS[text]) and len(printed) < 5000


@WITH_PIPES
@pytest.mark.parametrize(
    "line, said", [("1 / 0", "division by zero"), ("while True: pass", "it has not ended")]
)
def test_a_pipe_that_a_program_puts_in_place_of_its_file_is_not_waited_for(line, said):
    [only], _ = check(f"import os\nos.remove(__file__)\nos.mkfifo(__file__)\n{line}\n", seconds=1)
    assert said in only and f"(line 4: {line})" in only


@only_on_linux  # another system may not remove a file that is open
def test_what_a_function_puts_in_place_of_the_verdict_is_not_read():
    """Read to its end, the file would take half a gigabyte."""
    text = """
import os, sys
def softmax(x):
    verdict = sys.argv[3]
    os.unlink(verdict)
    with open("large", "w") as stream:
        stream.write("solved\\n\\n\\nmine")
        stream.truncate(2**29)
    os.symlink(os.path.abspath("large"), verdict)
    return 2 * x
"""
    assert check(text)[0][1].startswith("y is wrong at [0]: yours is 0, expected 0.125")


def test_kernels_are_not_compiled_in_the_time_of_a_function():
    answer = EXERCISES["fix_polarity"].answer_source.replace("return softmax", "y = softmax")
    text = f"""
import sys
import time
import numpy as np
from npformer import softmax
{answer}
    print("numba" in sys.modules)
    return y
"""
    assert check(text, "fix_polarity") == (["right in all 4 cases"], "False\n" * 4)


def test_a_file_of_the_folder_does_not_hide_the_standard_library(monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    Path("random.py").write_text(CAUSAL_MASK)
    assert check_in_process("causal_mask", "random.py")[0].solved


def test_the_time_begins_when_the_process_has_begun():
    reader, writer = os.pipe()
    with open(reader, "rb") as stream:
        printed = Printed(stream)
        with open(writer, "wb", buffering=0) as child:
            assert not printed.has_begun.is_set()
            child.write(BEGIN)
            assert printed.has_begun.wait(60)
            child.write(b"mine")
        assert printed.text() == "mine"


def ends(number):
    """Whether a process ends within some seconds."""
    for _ in range(200):
        try:
            os.kill(number, 0)
            state = Path(f"/proc/{number}/stat")
            if state.exists() and state.read_text().split()[2] == "Z":
                return True  # it has ended, and nobody has asked for its exit code
        except OSError:
            return True
        time.sleep(0.02)
    return False


KEEPS_THE_LOCK = 're.match(r"(a|a)*$", "a" * 60 + "b")'  # of Python, so that no thread ends it


@pytest.mark.parametrize("end", ["raise ValueError", KEEPS_THE_LOCK])
def test_the_process_is_ended_with_all_it_has_started(monkeypatch, end):
    monkeypatch.setattr("npformer.exercises.process.GRACE", 2.0)
    text = f"""
import re, subprocess, sys
def softmax(x):
    options = [{{}}]
    if sys.platform == "linux":
        options += [{{"start_new_session": True}}, {{"start_new_session": True, "env": {{}}}}]
    children = [subprocess.Popen(["sleep", "60"], **each) for each in options]
    open("children", "w").write(" ".join(str(child.pid) for child in children))
    {end}
"""
    check(text, seconds=1)
    for child in Path("children").read_text().split():
        assert ends(int(child))


@only_on_linux
def test_a_function_does_not_outlive_the_process_that_waits_for_it():
    check(f"""
import os, re, signal
def softmax(x):
    open("number", "w").write(str(os.getpid()))
    os.kill(os.getppid(), signal.SIGKILL)
    {KEEPS_THE_LOCK}
""")
    assert ends(int(Path("number").read_text()))


@only_on_linux
def test_what_another_thread_has_started_meanwhile_goes_on(monkeypatch):
    popen = subprocess.Popen
    started = []

    def start(*arguments, **options):
        started.append(popen(["sleep", "60"], start_new_session=True))
        return popen(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    check("1 / 0\n")
    (other,) = started
    assert other.poll() is None
    other.kill()
    other.wait()


def test_what_is_left_running_does_not_make_an_answer_wrong():
    left = """
import atexit, threading, time
import numpy as np
threading.Thread(target=time.sleep, args=[60]).start()
atexit.register(time.sleep, 60)
"""
    assert check(left + SOFTMAX.answer_source) == (["right in all 7 cases"], "")
