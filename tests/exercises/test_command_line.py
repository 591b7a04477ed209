"""The command line, as a person uses it; the functions run in processes of their own."""

import json
import linecache
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from npformer.commands.exercises import main, next_of

from npformer.exercises import EXERCISES
from npformer.exercises.child import BEGIN, check_file
from npformer.exercises.process import Printed, check_in_process
from npformer.exercises.progress import Progress

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "exercises.md"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["npformer exercises"])
    return tmp_path


def run(capsys, text):
    code = main(shlex.split(text))
    said = capsys.readouterr()
    return code, said.out + said.err


def lines_about(text):
    """What is said about a file, without a process of its own."""
    Path("mine.py").write_text(text)
    file = str(Path("mine.py").resolve())
    linecache.checkcache(file)
    try:
        return check_file(EXERCISES["softmax"], file).lines
    finally:
        sys.path.remove(str(Path(file).parent))
        del sys.modules["exercise"]


def check(text, name="softmax", seconds=10):
    Path("mine.py").write_text(text)
    verdict, printed = check_in_process(name, "mine.py", seconds)
    assert "Traceback" not in printed
    return verdict.lines, printed


def test_from_the_start_to_the_answer(capsys):
    assert "next: npformer exercises start soft_lookup" in run(capsys, "")[1]
    code, said = run(capsys, "start softmax")
    assert code == 0
    assert "Your file: exercises/softmax.py" in said
    assert run(capsys, "check softmax") == (
        1,
        "softmax: not written yet\n    put your code in place of `raise NotImplementedError`\n",
    )
    file = Path("exercises/softmax.py")
    file.write_text(
        file.read_text().replace(
            "raise NotImplementedError",
            "print(x.shape)\n    return np.exp(x - x.max(axis=-1, keepdims=True))",
        )
    )
    code, said = run(capsys, "check")
    assert code == 1
    assert said.startswith("exercises/softmax.py printed:\n    (3,)\nsoftmax: not yet right\n")
    assert "perhaps: the division by the sum is missing" in said
    hints = EXERCISES["softmax"].hints
    assert [hint in run(capsys, "hint softmax")[1] for hint in hints] == [True] * len(hints)
    assert "that was the last hint; the answer:" in run(capsys, "hint softmax")[1]
    code, answer = run(capsys, "answer softmax")
    file.write_text(answer)
    assert run(capsys, "check exercises/softmax.py") == (
        0,
        "softmax: solved\n    right in all 7 cases\nnext: npformer exercises start fix_softmax\n",
    )
    code, said = run(capsys, "list")
    assert re.search(r"softmax of each row, without overflow +solved\n", said)
    assert f"1 of {len(EXERCISES)} solved" in said


def test_a_file_of_ones_own_with_several_functions(capsys):
    run(capsys, "start causal_mask --file mine.py")
    names = ("padding_mask", "causal_mask")
    Path("mine.py").write_text(
        "import numpy as np\n" + "\n".join(EXERCISES[name].answer_source for name in names)
    )
    code, said = run(capsys, "check mine.py")
    assert (code, said.count(": solved\n")) == (0, 2)
    assert run(capsys, "check padding_mask")[0] == 0  # it remembers where the function is


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("start softmx", "error: there is no exercise 'softmx', did you mean softmax?\n"),
        (
            "check softmax",
            "error: exercises/softmax.py is missing: npformer exercises start softmax writes it\n",
        ),
        ("check", "error: you have not started any exercise yet: npformer exercises start\n"),
        ("check nothing.py", "error: nothing.py is missing: expected a Python file\n"),
        ("check other.py",
         "error: other.py defines no function of an exercise, "
         "such as def soft_lookup(similarities, values):\n"),
        ("check broken.py",
         "error: broken.py: Python cannot read it: '(' was never closed in line 1\n"),
        ("check zeros.py", "error: zeros.py: Python cannot read it: "),
        ("check deep.py",
         "error: deep.py: Python cannot read it: an expression is nested too deeply\n"),
        ("check long.py",
         "error: long.py: Python cannot read it: an expression is nested too deeply\n"),
        ("check large.py",
         "error: large.py has more than 1,048,576 bytes, expected a smaller file\n"),
        ("check folder.py", "error: folder.py is a folder, expected a file\n"),
        ("start softmax --file other.py",
         "error: other.py is there already: check it, delete it, "
         "or choose another name with --file\n"),
        ("start softmax --file nowhere/x.py", "error: nowhere/x.py: No such file or directory\n"),
        ("hint 99", "error: there is no exercise '99': they are 1 to 43, see npformer exercises\n"),
    ],
)  # fmt: skip
def test_what_a_person_can_mend_is_one_line(capsys, command, line):
    Path("other.py").write_text("x = 1\n")
    Path("broken.py").write_text("f(\n")
    Path("zeros.py").write_bytes(bytes(10))
    Path("deep.py").write_text("-" * 100_000 + "1")
    Path("long.py").write_text("x" + ".a" * 100_000)
    Path("large.py").write_text("#" * 2**20 + "\n")
    Path("folder.py").mkdir()
    code, said = run(capsys, command)
    assert code == 1
    assert said.startswith(line)
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"solved": 3}',
        b'{"solved": [], "files": [], "hints": {"softmax": "x"}}',
        b'{"solved": [], "files": {}, "hints": {"softmax": 1e999}}',
        b"[" * 200_000,
        b'{"solved": [], "files": {}, "hints": {}}' + b" " * 2**20,
    ],
    ids=lambda text: text[:60],
)
def test_damaged_progress_is_told_of_and_kept_aside(capsys, text):
    Path("exercises").mkdir()
    for n in ("", 1):
        Path("exercises/progress.json").write_bytes(text)
        said = run(capsys, "list")[1]
        assert f"0 of {len(EXERCISES)} solved" in said
        assert (
            f"exercises/progress.json is damaged: it is now exercises/progress.json.damaged{n}."
            in said
        )
        assert Path(f"exercises/progress.json.damaged{n}").read_bytes() == text
    assert "damaged" not in run(capsys, "list")[1]


def test_hints_that_were_only_counted_are_the_first_ones(capsys):
    Path("exercises").mkdir()
    text = '{"solved": [], "files": {}, "hints": {"softmax": 1}}'
    Path("exercises/progress.json").write_text(text, encoding="utf-8")
    first, second = EXERCISES["softmax"].hints[:2]
    assert run(capsys, "hint softmax")[1].startswith(f"1. {first}\n2. {second}\n")
    assert Progress().hints == {"softmax": [1, 2]}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="it has no pipes with a name")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(capsys):
    Path("exercises").mkdir()
    os.mkfifo("exercises/progress.json")
    assert (
        "exercises/progress.json is damaged: it is now exercises/progress.json.damaged"
        in run(capsys, "list")[1]
    )
    os.mkfifo("exercises/transformer.py")
    line = "error: exercises/transformer.py is a pipe, expected a file\n"
    assert run(capsys, "build check") == (1, line)
    os.mkfifo("mine.py")
    line = "mine.py is a pipe, expected a file"
    assert run(capsys, "check mine.py") == (1, f"error: {line}\n")
    assert check_file(EXERCISES["softmax"], "mine.py").lines == [line]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize(
    ("line", "said"), [("1 / 0", "division by zero"), ("while True: pass", "it has not ended")]
)
def test_a_pipe_that_a_program_puts_in_place_of_its_file_is_not_waited_for(line, said):
    Path("mine.py").write_text(f"import os\nos.remove(__file__)\nos.mkfifo(__file__)\n{line}\n")
    verdict, _ = check_in_process("softmax", "mine.py", 2)
    assert said in verdict.lines[0] and f"(line 4: {line})" in verdict.lines[0]


def test_an_endless_loop_is_named_with_its_line():
    lines, printed = check(
        "def softmax(x):\n    print('begin')\n    while True:\n        pass\n", seconds=1
    )
    assert re.fullmatch(
        (
            r"it has not ended after 1 seconds: is there a loop that never ends\? "
            r"\(line [34]: (while True:|pass)\)"
        ),
        lines[1],
    )
    assert lines[0] == "with one row: x = [0.    , 1.0986, 1.3863]"
    assert printed == "begin\n"


def test_a_loop_that_catches_everything_ends_too():
    text = """
def softmax(x):
    while True:
        try:
            print(x, end='')
        except BaseException:
            pass
"""
    lines, printed = check(text, seconds=1)
    assert lines[1].startswith("it has not ended after 1 seconds")
    assert len(printed) < 5000


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def softmax(x):\n    return x.nothing\n",
         "it raises AttributeError: 'numpy.ndarray' object has no attribute 'nothing' "
         "(line 2: return x.nothing)"),
        ("def softmax(x):\n    return y +\n",
         "Python cannot read the file: invalid syntax in line 2: return y +"),
        ("1 / 0\n", "running the file raises ZeroDivisionError: division by zero (line 1: 1 / 0)"),
        ("import nothing_of_the_kind\n",
         "running the file raises ModuleNotFoundError: No module named 'nothing_of_the_kind'"
         " (line 1: import nothing_of_the_kind)"),
        (
            "def soft_max(x):\n    return x\n",
            "the file has no function softmax, but one called soft_max: expected def softmax(x):",
        ),
        ("def softmax(x):\n    return softmax(x)\n",
         "it raises RecursionError: maximum recursion depth exceeded "
         "(line 2: return softmax(x))"),
        ("class Mute(Exception):\n    def __str__(self):\n        return 1 / 0\n"
         "def softmax(x):\n    raise Mute\n",
         "it raises Mute: (its text cannot be shown: that raises ZeroDivisionError) "
         "(line 5: raise Mute)"),
    ],
)  # fmt: skip
def test_whatever_a_file_does_gives_a_line(text, line):
    assert line in lines_about(text)


def test_npformers_own_function_is_no_answer():
    text = "import npformer\nfrom npformer import softmax as theirs\n"
    for call in ("npformer.softmax", "theirs"):
        lines, _ = check(f"{text}def softmax(x):\n    return {call}(x)\n")
        assert (
            "RuntimeError: npformer.softmax is the function that you are asked to write (line 4"
            in lines[1]
        )
    assert "are asked to write" in check("from npformer import softmax\n")[0][1]


def test_code_that_breaks_the_checker_gets_a_line():
    breaks = "    from npformer.exercises import compare\n    compare.close = None\n"
    lines, _ = check(f"import numpy as np\ndef softmax(x):\n{breaks}    return 2 * x\n")
    assert lines[1].startswith(
        "the checker stopped with TypeError: 'NoneType' object is not callable: does your code"
    )


@pytest.mark.parametrize(
    "name, value", [("where", "lambda *x: np.True_"), ("abs", "None"), ("allclose", "np.equal")]
)
def test_code_that_replaces_a_function_of_numpy_is_told_so(name, value):
    line = f"it replaces np.{name}: leave NumPy as it is, and give what is yours another name"
    replace = f"np.{name} = {value}\n"
    assert check(f"import numpy as np\n{replace}def softmax(x):\n    return x\n")[0] == [line]
    case, *lines = check(f"import numpy as np\ndef softmax(x):\n    {replace}    return x\n")[0]
    assert case.startswith("with one row: x = ") and lines == [line]


def test_an_answer_that_raises_an_interrupt_gets_a_line():
    lines, printed = check("def softmax(x):\n    raise KeyboardInterrupt\n")
    assert (
        lines[1] == "it raises KeyboardInterrupt (line 2: raise KeyboardInterrupt)" and not printed
    )
    lines, _ = check(
        "class Mine(BaseException):\n    pass\nraise Mine('no')\ndef softmax(x):\n    return x\n"
    )
    assert lines == ["it raises Mine: no (line 3: raise Mine('no'))"]


def test_a_bug_to_find_is_explained_after_the_last_hint(capsys):
    assert "3  fix_softmax" in run(capsys, "list")[1]
    assert run(capsys, "start 3")[0] == 0  # by its number
    code, said = run(capsys, "check fix_softmax")
    assert (code, "it raises AxisError" in said, "perhaps:" in said) == (1, True, False)
    assert "the same command again gives one more" in run(capsys, "hint fix_softmax")[1]
    assert "`check` now says more about what is wrong" in run(capsys, "hint fix_softmax")[1]
    said = run(capsys, "check 3")[1]
    assert (
        "perhaps: large scores still overflow: subtract the maximum of each row; "
        "and axis=2 and [:, :, None]"
    ) in said


def test_what_comes_next_follows_in_order_and_then_from_the_first():
    progress, (first, second, third, fourth, *_, last) = Progress(), EXERCISES
    progress.solved = {first, third}
    assert [next_of(progress, after) for after in (None, first, second, last)] == [
        second,
        second,
        fourth,
        second,
    ]


def test_what_comes_next(capsys):
    run(capsys, "start soft_lookup")
    run(capsys, "start causal_mask")
    Path("exercises/causal_mask.py").write_text(
        "import numpy as np\n" + EXERCISES["causal_mask"].answer_source
    )
    assert run(capsys, "check causal_mask")[1].endswith(
        "next: npformer exercises start fix_square_mask\n"
    )
    run(capsys, "start fix_square_mask")
    assert run(capsys, "check causal_mask")[1].endswith(
        "next: npformer exercises check fix_square_mask\n"
    )
    assert run(capsys, "check")[1].endswith("1 of these 3 are solved\n")
    Path("exercises/progress.json").write_text(
        json.dumps({"solved": list(EXERCISES), "files": {}, "hints": {}})
    )
    assert run(capsys, "start")[1].startswith("error: all are solved: ")
    assert run(capsys, "check causal_mask")[1].endswith("all are solved\n")


def test_the_folder_of_the_exercises_itself(capsys, monkeypatch):
    run(capsys, "start softmax")
    monkeypatch.chdir("exercises")
    line = "error: this is the folder of your exercises: go to the folder above it (cd ..)\n"
    assert run(capsys, "check softmax") == (1, line)
    assert not Path("exercises").exists()


def test_a_file_of_the_folder_does_not_hide_the_standard_library(capsys, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    Path("random.py").write_text("import numpy as np\n" + EXERCISES["causal_mask"].answer_source)
    assert run(capsys, "check random.py")[0] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory")
def test_too_much_memory_is_an_error():
    assert (
        "MemoryError: Unable to allocate"
        in check("import numpy as np\nsoftmax = lambda x: np.ones(2**32)\n")[0][1]
    )


def test_a_process_that_ends_gives_a_line():
    lines, _ = check("import os\ndef softmax(x):\n    os._exit(3)\n")
    assert lines == ["the process ended in the middle of the function (exit code 3)"]


@pytest.mark.skipif(
    sys.platform != "linux", reason="another system may not remove a file that is open"
)
def test_what_a_function_puts_in_place_of_the_verdict_is_not_read():
    """Read to its end, the file would take half a gigabyte."""
    text = """
import json, os, sys
def softmax(x):
    verdict = sys.argv[3]
    os.unlink(verdict)
    with open("large", "w") as stream:
        stream.write(json.dumps({"state": "solved", "lines": ["mine"]}))
        stream.truncate(2**29)
    os.symlink(os.path.abspath("large"), verdict)
    return 2 * x
"""
    assert check(text)[0][1].startswith("y is wrong at [0]: yours is 0, expected 0.125")


def test_what_a_function_writes_in_place_of_the_verdict_is_none():
    writes = "open(sys.argv[3], 'w').write('[' * 200_000)"
    lines, _ = check(f"import os, sys\ndef softmax(x):\n    {writes}\n    os._exit(0)\n")
    assert lines == ["the process ended in the middle of the function (exit code 0)"]


def test_a_message_without_end_is_cut():
    lines = lines_about("def softmax(x):\n    raise ValueError('x' * 10**7)\n")
    assert (
        lines[1].startswith("it raises ValueError: xxxx")
        and lines[1].endswith("x…")
        and len(lines[1]) < 1100
    )


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux limits the size of files in this way"
)
def test_a_file_without_end_is_an_error():
    line = check("def softmax(x):\n    open('large', 'wb').truncate(2**40)\n")[0][1]
    assert line.startswith("it raises OSError: [Errno 27] File too large (line 2: ")


def test_what_is_known_to_be_wrong_is_said_if_the_reason_is_not_found_in_time():
    lines, _ = check(
        "def softmax(x):\n    while x.ndim == 3:\n        pass\n    return 0 * x\n", seconds=1
    )
    assert lines[1:] == ["y is wrong at [0]: yours is 0, expected 0.125 (3 of 3 entries are wrong)"]


def test_kernels_are_not_compiled_in_the_time_of_a_function():
    text = f"""
import sys
import numpy as np
from npformer import softmax
{EXERCISES["fix_polarity"].answer_source}
    print("numba" in sys.modules)
"""
    text = text.replace(
        "    return softmax(np.where(keep, scores, -np.inf))",
        "    y = softmax(np.where(keep, scores, -np.inf))",
    )
    assert check(text + "    return y\n", "fix_polarity") == (
        ["right in all 4 cases"],
        "False\n" * 4,
    )


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


only_on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only there are orphans adopted")


@pytest.mark.parametrize(
    "options",
    [
        "",
        pytest.param(", start_new_session=True", marks=only_on_linux),
        pytest.param(", start_new_session=True, env={}", marks=only_on_linux),
    ],
)
def test_the_process_is_ended_with_all_it_has_started(folder, options):
    text = f"""
import subprocess
def softmax(x):
    child = subprocess.Popen(['sleep', '60']{options})
    open('child', 'w').write(str(child.pid))
    raise ValueError
"""
    check(text)
    with pytest.raises(OSError):
        for _ in range(200):
            os.kill(int(Path("child").read_text()), 0)
            state = Path(f"/proc/{Path('child').read_text()}/stat")
            if state.exists() and state.read_text().split()[2] == "Z":
                raise OSError("it has ended, and nobody has asked for its exit code")


@pytest.mark.parametrize(
    "left",
    ["threading.Thread(target=time.sleep, args=[60]).start()", "atexit.register(time.sleep, 60)"],
)
def test_what_is_left_running_does_not_make_an_answer_wrong(left):
    text = (
        f"import atexit, threading, time\nimport numpy as np\n{left}\n"
        f"{EXERCISES['softmax'].answer_source}"
    )
    assert check(text) == (["right in all 7 cases"], "")


def test_the_page_shows_what_is_printed(capsys):
    """Each console block of the page, in order, with the edits between them."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(console|py)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    for kind, block in blocks:
        if kind == "py":
            Path("exercises/softmax_backward.py").write_text("import numpy as np\n\n" + block)
            continue
        for call in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = call.partition("\n")
            said = run(capsys, command.removeprefix("npformer exercises"))[1]
            for part in expected.split("...\n"):
                assert part.rstrip("\n") in said
