"""``npformer exercises build``, with ``--derive`` too: its commands, its file, and the training."""

import builtins
import re
import runpy
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from tables import table

from npformer.commands.exercises import main

from npformer.exercises.course.course import course_of
from npformer.exercises.course.file import complete, starting_text
from npformer.exercises.courses import COURSES
from npformer.exercises.progress import Progress
from npformer.exercises.source import run as names_in
from npformer.exercises.transformer import BUILD as COURSE, reverse
from npformer.exercises.transformer.derive import DERIVE
from tests.exercises.solving import NOT_WRITTEN, edit, solve

FILE = Path("exercises/transformer.py")
BUILD, page = COURSE.parts, COURSE.page
BEGUN_ELSEWHERE = "error: there is no exercises/transformer.py in {}: if you have begun elsewhere, "
ONE_MORE = "the same command again gives one more"
pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def build(run):
    """``build(text)`` runs a command of the course that has no file yet."""
    return lambda text, status=None: run(f"build {text}", status)


@pytest.fixture
def begun(build):
    """The same, with a file of build."""
    build("")
    return build


@pytest.fixture
def derive(build):
    """The same, with a file of ``build --derive``."""
    build("--derive")
    return build


# -- from the first exercise to the last -----------------------------------------------------------


def test_from_the_first_exercise_to_the_model_that_writes_backwards(build):
    said = build("", 0)
    assert "Your file: exercises/transformer.py" in said and "Exercise 1, softmax: " in said
    assert build("check", 1) == NOT_WRITTEN
    solve(COURSE, "softmax")
    assert "Exercise 2, attention: " in build("check")
    solve(COURSE, "attention")
    build("check")
    two = "2 of 14 exercises are yours: softmax, attention\nstep    3   loss "
    assert two in build("train Ada --steps 3")
    solve(COURSE)
    said = build("check", 0)  # all that are written, one after the other
    assert said.count(": solved") == 12
    assert said.endswith("all are solved, so the model is yours: npformer exercises build train\n")
    said = build("train Zoë Ada --steps 20", 0)
    assert "14 of 14 exercises are yours" in said and "\nAda backwards: " in said
    assert re.search(r"  attention +attention, forward +solved\n", build(""))
    assert page.functions.keys() <= runpy.run_path(str(FILE)).keys()  # the file alone


def test_from_the_first_exercise_to_a_derivation(build):
    said = build("--derive", 0)
    assert "Your file: exercises/transformer.py" in said and "--hint 1\n" in said
    assert course_of(FILE.read_text(encoding="utf-8"), COURSES.values()) is DERIVE
    solve(DERIVE, "softmax")
    said = build("check", 0)
    why = "\nWhy softmax is so (a == b: equal except for rounding):\n\n    exp(x - c) = "
    assert "softmax: solved" in said and why in said
    assert "Exercise 2, attention: " in said
    assert "Why softmax" not in build("check")  # of those that are checked for the first time
    assert "Why softmax" in build("check softmax")
    said = build("answer softmax")
    assert "def softmax(x):" in said and "Why softmax is so" in said
    solve(DERIVE)
    assert build("check", 0).count("\nWhy ") == 13
    assert build("train Ada --steps 1").startswith("14 of 14 exercises are yours: softmax, ")
    # the check writes nothing into it
    assert "raise" not in FILE.read_text(encoding="utf-8").partition("# Given")[0]


def test_what_is_not_solved_comes_from_the_page():
    FILE.parent.mkdir()
    FILE.write_text(starting_text(COURSE), encoding="utf-8")
    names = names_in(FILE.read_bytes(), str(FILE))
    mine = names["softmax"] = lambda x: page.module.softmax(x)
    complete(COURSE, names, {"build/softmax"})
    rng = np.random.default_rng(0)
    args = page.module.init(rng, 11, 8, 1, 8), *page.module.copy_batch(rng, 4), 2
    loss, grads = names["loss_and_grad"](*args)
    expected, expected_grads = page.module.loss_and_grad(*args)
    assert names["softmax"] is mine and loss == expected
    np.testing.assert_array_equal(grads["output"]["weight"], expected_grads["output"]["weight"])


def test_a_forward_pass_goes_with_the_backward_pass_of_the_page():
    names = dict(vars(page.module))
    exec("def layer_norm(params, x, eps=1e-5):\n    return 7, None", names)
    complete(COURSE, names, {"build/layer_norm"})
    params, x = {"gain": np.ones(3), "bias": np.zeros(3)}, np.eye(3)
    y, backward = names["layer_norm"](params, x)
    assert y == 7
    np.testing.assert_array_equal(backward(x)[0], page.module.layer_norm(params, x)[1](x)[0])


# -- the check -------------------------------------------------------------------------------------


def test_the_forward_pass_is_checked_first(begun):
    solve(COURSE, "linear")
    backward = r"(?s)        x_rows, dy_rows.*?(?=\n\n    return y, backward)"
    text = edit(FILE, backward, "        raise NotImplementedError")
    line = text[: text.index("        raise")].count("\n") + 1
    lines = f"    forward: right in all 4 cases\n    backward: not written yet, line {line}\n"
    assert begun("check linear", 1) == f"linear: not written yet\n{lines}"
    edit(FILE, r' \+ params\["bias"\]', "")
    said = begun("check linear")
    assert 'params = {"weight": [[1.0], [2.0]], "bias": [0.5]}, x = [[3., 4.]]\n' in said
    complaint = "y is wrong at [0, 0]: yours is 11, expected 11.5"
    assert f"{complaint}\n    perhaps: the bias is missing" in said


def test_the_names_are_those_of_the_task():
    for label, names in {
        "attention_backward": ["dout", "y", "dq"],
        "encoder_layer": ["dx2", "x2", "dx0"],
    }.items():
        part = BUILD[label]
        assert [list(part.arguments)[-1], *list(part.results)[:2]] == names


def test_what_the_file_lacks_is_missed_in_the_check(begun):
    solve(COURSE, "softmax", "transformer")
    for label, line, name in (
        ("transformer", "def embed", "embed"),
        ("softmax", "import numpy as np", "np"),
    ):
        edit(FILE, line, line.removesuffix(name) + "other")
        missing = f"it raises NameError: name '{name}' is not defined (line "
        assert missing in begun(f"check {label}")


def test_what_to_write_next_is_said_with_its_line(begun):
    labels = list(BUILD)
    solve(COURSE, *labels[: labels.index("layer_norm_backward")])
    begun("check")
    lines = FILE.read_text(encoding="utf-8").splitlines()
    function = lines.index("def layer_norm(params, x, eps=1e-5):")
    number = lines.index("    def backward(dy):", function) + 1
    assert f"Write backward of layer_norm in {FILE}, line {number}, then: " in begun("")


def test_a_mark_is_of_the_function_that_was_checked(begun):
    solve(COURSE, "softmax", "attention", "split_heads")
    begun("check")
    right = FILE.read_text(encoding="utf-8")
    edit(FILE, r"e / e\.sum", "e.sum")
    said = begun("")
    assert re.search(r"softmax of each row +changed since its check\n", said)
    assert said.count("  solved\n") == 2
    assert begun("hint").startswith("softmax:")
    for text, state, n in (
        (right.replace("e = np.exp", "e  = np.exp"), "  solved", 3),  # it is the same for Python
        # the answers may call a function of their own
        (f"{right}\n\ndef helper(x):\n    return x\n", "changed since its check", 3),
    ):
        FILE.write_text(text, encoding="utf-8")
        assert begun("").count(f"{state}\n") == n
    FILE.write_text(right, encoding="utf-8")
    edit(FILE, "dq, dk", "dk, dq")
    edit(FILE, r"e / e\.sum", "e.sum")
    said = begun("train Ada --steps 1")
    assert said.startswith("softmax: not yet right\n")
    assert "2 of 14 exercises are yours: attention, split_heads" in said
    assert "changed" not in begun("")
    FILE.write_text("def (", encoding="utf-8")
    assert begun("").count("  solved\n") == 2
    FILE.unlink()
    said = begun("")
    assert "It is new, so the 2 that you had solved are no longer marked" in said
    assert "solved\n" not in said.replace("are no longer marked", "")


def test_a_later_backward_pass_leaves_the_mark_of_the_forward_pass(begun):
    solve(COURSE, "softmax", "attention")
    begun("check")
    solve(COURSE, "attention_backward")
    assert begun("").count("  solved\n") == 2


# -- the hints -------------------------------------------------------------------------------------


def test_each_hint_is_shown_once_and_none_is_lost(derive):
    hints = DERIVE.parts["attention_backward"].hints
    for number, hint in enumerate(hints, 1):
        said = derive("--hint 9" if number % 2 else "--hint attention_backward", 0)
        head, _, shown = said.partition("\n")
        assert head == f"exercise 9, attention_backward, hint {number} of 4:"
        assert " ".join(shown.split()).startswith(" ".join(hint.split()))
        assert Progress.read().hints["derive/attention_backward"] == [*range(1, number + 1)]
    assert said.endswith("that was the last hint; the answer: npformer exercises build answer 9\n")
    line = (
        "error: exercise 9, attention_backward, has no more hints, all 4 were shown: "
        "npformer exercises build hint 9 shows them again, "
        "npformer exercises build answer 9 the answer\n"
    )
    assert derive("--hint 9", 1) == line
    assert derive("hint 9").count("\n") == len(hints) + 2
    assert derive("--hint 8").startswith("exercise 8, layer_norm_backward, hint 1 of 4:\n")


def wrong(label, pattern, text):
    """Put an answer with a mistake into the file."""
    solve(DERIVE, label)
    edit(FILE, pattern, text)


def test_a_hint_about_the_mistake_that_was_found_comes_first(derive):
    hints = DERIVE.parts["attention_backward"].hints
    wrong("attention_backward", "scale \\* dscores @ k", "dscores @ k")
    reason = "the factor 1/√K is missing in dq"
    about = f"about what the last check said: {reason}\n"
    head = "exercise 9, attention_backward, hint"
    assert derive("check 9").splitlines()[-2] == f"    perhaps: {reason}"
    said = derive("--hint 9")
    assert said.startswith(f"{head} 4 of 4:\n{about}    dscores = ") and "1/√K" in hints[3]
    assert said.endswith("the next one: npformer exercises build --hint 9\n")
    # then those that were left out, in their order
    said = derive("hint 9")
    assert said == f"attention_backward:\n4. {hints[3]}\n1. {hints[0]}\n{ONE_MORE}\n"
    assert derive("--hint 9").startswith(f"{head} 2 of 4:\n    ")
    # the same mistake again: what is about it comes first again, though it was seen
    derive("check 9")
    assert derive("--hint 9").startswith(f"{head} 4 of 4, which you have seen:\n{about}    ")
    derive("check 9")
    shown = f"1. {hints[0]}\n2. {hints[1]}\n{about}4. {hints[3]}\n{ONE_MORE}\n"
    assert derive("hint 9") == f"attention_backward:\n{shown}"
    assert "that was the last hint" in derive("--hint 9")
    assert Progress.read().hints == {"derive/attention_backward": [4, 1, 2, 3]}
    derive("check 9")  # also if all were seen
    assert "hint 4 of 4, which you have seen:\n" in derive("--hint 9")
    derive("--hint 9", 1)


@pytest.mark.parametrize(
    ("text", "said", "about", "number"),
    [
        # without a name it has a hint, too
        ("dy_rows.sum(axis=0, keepdims=True)",
         'grads["bias"] has shape (1, 1), expected (1,)',
         'about what the last check said: grads["bias"] has shape (1, 1), expected (1,)\n', 3),
        # the words of an error choose none
        ("dy_rows.bias", "it raises AttributeError", "", 1),
        ("dy_rows.sum(axis=0)}; return None  # {", "backward returns None", "", 1),
    ],
)  # fmt: skip
def test_what_is_wrong_without_a_name_has_a_hint_of_its_result_alone(
    derive, text, said, about, number
):
    wrong("linear", r"dy_rows\.sum\(axis=0\)", text)
    assert said in derive("check linear")
    hint = DERIVE.parts["linear"].hints[number - 1]
    assert derive("hint linear") == f"linear:\n{about}{number}. {hint}\n{ONE_MORE}\n"


def test_a_mistake_that_is_mended_is_forgotten(derive):
    wrong("linear", r"dy_rows\.sum\(axis=0\)", "dy_rows.mean(axis=0)")
    derive("check linear")
    assert "sum, not the mean" in Progress.read().diagnoses["derive/linear"]
    solve(DERIVE, "linear")
    derive("check linear")
    assert Progress.read().diagnoses == {}


def test_a_solved_exercise_needs_no_hint(derive):
    solve(DERIVE, "softmax")
    derive("check")
    line = (
        "error: exercise 1, softmax, is solved, and needs no hint: npformer exercises build "
        "answer 1 shows the answer, and npformer exercises build hint 1 its hints\n"
    )
    assert derive("--hint 1", 1) == line
    assert "derive/softmax" not in Progress.read().hints


# -- what a person can mend ------------------------------------------------------------------------


def test_what_a_person_can_mend_is_one_line(begun):
    for command, line in table(__file__, "messages")["build"].items():
        assert begun(command, 1) == f"error: {line}\n"


COMMANDS = ["check", "train Ada", "hint", "hint softmax", "--hint 9"]
COMMANDS += ["--derive check", "--derive --hint 9"]


def test_another_folder_is_left_as_it_is(build, folder):
    for command in COMMANDS:
        said = build(command, 1)
        assert said.startswith(BEGUN_ELSEWHERE.format(folder))
        assert list(folder.iterdir()) == [], command


def test_a_file_that_cannot_be_run_gets_a_line(build):
    FILE.parent.mkdir()

    def told(text, line):
        FILE.write_bytes(text)
        said = build("train Ada", 1)
        assert said.endswith(line)

    unreadable = "Python cannot read the file: invalid syntax in line 1: def ("
    told(b"def (", f"{FILE}: {unreadable}\n")
    error = "it raises ZeroDivisionError: division by zero (line 1: 1 / 0)"
    one = "npformer exercises build check EXERCISE checks one"
    told(b"1 / 0\n", f"{FILE}: {error}; {one}\n")
    told(starting_text(COURSE).encode("utf-16"), "; save it as UTF-8\n")


def test_a_given_function_that_is_missing_is_named(begun):
    solve(COURSE)
    edit(FILE, "def sinusoidal_encoding", "def waves")
    begun("check")
    assert f"it was given: copy it from {page.file}\n" in begun("train Ada --steps 1")


def test_the_other_command_leads_here(begun, run):
    said = run(f"check {FILE}", 1)
    assert said.endswith("is that of your own Transformer: npformer exercises build check\n")


# -- which file it is ------------------------------------------------------------------------------


def test_a_file_with_the_formulas_is_left_as_it_is(begun):
    before = FILE.read_text(encoding="utf-8")
    line = (
        "error: exercises/transformer.py is there already, and was not begun with --derive: "
        "go on with it without --derive, or move it out of exercises, and begin a new one with "
        "npformer exercises build --derive\n"
    )
    for command in ("--derive", "--derive check", "--derive --hint 9"):
        assert begun(command, 1) == line
    assert FILE.read_text(encoding="utf-8") == before


def test_the_file_says_of_which_kind_it_is(derive):
    solve(DERIVE, "softmax")
    derive("check")
    before = FILE.read_text(encoding="utf-8")
    assert "Hints: npformer exercises build --hint 2" in derive("")  # also without the option
    assert derive("--derive") == derive("") and FILE.read_text(encoding="utf-8") == before
    FILE.rename("mine.py")
    said = derive("")  # a new one of the other kind: what was solved there belongs to it
    assert "no longer marked" not in said and "solved\n" not in said
    FILE.unlink()
    Path("mine.py").rename(FILE)
    assert derive("").count("  solved\n") == 1
    edit(FILE, r'(?s)\A""".*?"""\n\n', "")  # its docstring
    assert derive("").count("  solved\n") == 1


def test_a_hint_that_was_pasted_changes_nothing(begun):
    with FILE.open("a", encoding="utf-8") as stream:
        stream.write("\n# the next one: npformer exercises build --hint 2\n")
    assert begun("--hint 2").startswith("exercise 2, attention, hint 1 of 3:\n")
    assert Progress.read().hints == {"build/attention": [1]}  # those of build


def test_a_renamed_file_is_found(derive, folder):
    FILE.rename("exercises/mine.py")
    rename = "mv exercises/mine.py exercises/transformer.py"
    said = derive("check")
    elsewhere = BEGUN_ELSEWHERE.format(f"{folder} (but exercises/mine.py looks like it: {rename})")
    assert said.startswith(elsewhere)
    line = f"exercises/mine.py looks like one, too: to go on with it, {rename}\n"
    assert line in derive("")


def test_a_file_of_another_course_is_refused(begun, run):
    gpt = COURSES["gpt"].file
    FILE.rename(gpt)
    line = "error: {} is that of {}: {}, then npformer exercises {}\n"
    for command in ("gpt", "gpt check", "gpt train"):
        rename = f"rename it (mv {gpt} {FILE})"
        expected = line.format(gpt, "your own Transformer", rename, "build")
        assert run(command, 1) == expected
    begun("")  # what mv would replace
    move = f"move it out of exercises, as {FILE} is there, too"
    expected = line.format(gpt, "your own Transformer", move, "build")
    assert run("gpt check", 1) == expected


# -- the training ----------------------------------------------------------------------------------


def test_the_name_is_asked_for(begun, monkeypatch):
    monkeypatch.setattr(builtins, "input", lambda text: "Ada")
    assert "\nAda backwards: " in begun("train --steps 1")
    monkeypatch.setattr(builtins, "input", Mock(side_effect=EOFError))
    assert begun("train", 1) == "error: there is no name: npformer exercises build train NAME\n"


def test_a_loss_that_is_no_number_ends_the_training():
    names = vars(page.module) | {"loss_and_grad": lambda *args: (np.nan, {})}
    line = "the loss is nan in step 1: which of your functions has changed"
    with pytest.raises(Exception, match=line):
        reverse.train(names, [["a"]], 3)


def test_letters_keep_their_accents():
    assert reverse.letters_of("Zoe\u0308") == ["Z", "o", "ë"]
    assert reverse.letters_of(" नमि ") == ["न", "मि"]
    assert len(reverse.letters_of("👩\u200d💻!")) == 2


def test_the_reader_of_the_output_is_gone(begun, monkeypatch):
    monkeypatch.setattr(reverse, "train", Mock(side_effect=BrokenPipeError))
    with pytest.raises(BrokenPipeError):
        main.__wrapped__(["build", "train", "Ada"])
