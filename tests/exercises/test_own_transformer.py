"""``npformer exercises build``: fourteen functions of the one page, and the file that they make."""

import builtins
import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npformer.commands.exercises import main

from npformer.exercises import check_function
from npformer.exercises.child import run as names_in
from npformer.exercises.compare import is_same
from npformer.exercises.exercise import WrongAnswer
from npformer.exercises.track.file import complete, starting_text
from npformer.exercises.transformer import BUILD as TRACK, reverse
from tests.exercises.solving import solve
from tests.tools import mutate_exercises
from tests.tools.mutate_exercises import all_mutants, judge

FILE = Path("exercises/transformer.py")
BUILD, page = TRACK.parts, TRACK.page


@pytest.fixture(autouse=True)
def folder(exercises_folder):
    return exercises_folder


@pytest.fixture
def run(exercises):
    return lambda text: exercises(f"build {text}")


def test_the_checker_notices_mutants_of_the_answers(monkeypatch):
    monkeypatch.setattr(mutate_exercises, "SECONDS", 1)  # for those that do not end
    labels = (
        "attention",
        "cross_entropy",
        "linear",
        "self_attention",
        "encoder_layer",
        "merge_heads",
    )
    # the script takes all fourteen
    mutants = all_mutants({BUILD[label].key: BUILD[label] for label in labels})
    chosen = [mutants[i] for i in np.random.default_rng(0).choice(len(mutants), 60, replace=False)]
    caught, _, survivors = judge(chosen, n_seeds=3, verbose=False)
    assert len(caught) > 45
    assert len(caught) >= 0.95 * (len(caught) + len(survivors)), survivors


def test_from_the_first_exercise_to_the_model_that_writes_backwards(run):
    code, said = run("")
    assert (
        code == 0
        and "Your file: exercises/transformer.py" in said
        and "Exercise 1, softmax: " in said
    )
    assert run("check") == (
        1,
        "softmax: not written yet\n    put your code in place of `raise NotImplementedError`\n",
    )
    solve(TRACK, "softmax")
    assert "Exercise 2, attention: " in run("check")[1]
    solve(TRACK, "attention")
    run("check")
    assert (
        "2 of 14 exercises are yours: softmax, attention\nstep    3   loss "
        in run("train Ada --steps 3")[1]
    )
    rest = list(BUILD)[2:]
    solve(TRACK, *[label for label in rest if not BUILD[label].has_later_backward])
    code, said = run("check")  # all that are written, one after the other
    assert (
        code == 0
        and said.count(": solved") == 12
        and said.endswith("all are solved, so the model is yours: npformer exercises build train\n")
    )
    code, said = run("train Zoë Ada --steps 20")
    assert code == 0 and "14 of 14 exercises are yours" in said and "\nAda backwards: " in said
    assert re.search(r"  attention +attention, forward +solved\n", run("")[1])
    names = runpy.run_path(str(FILE))  # the file alone
    assert [name for name in page.functions if name not in names] == []


def test_what_is_not_solved_comes_from_the_page():
    FILE.parent.mkdir()
    FILE.write_text(starting_text(TRACK), encoding="utf-8")
    names = names_in(FILE.read_bytes(), str(FILE))
    names["softmax"] = lambda x: page.module.softmax(x)
    mine, batch = names["softmax"], page.module.copy_batch(np.random.default_rng(0), 4)
    complete(TRACK, names, {"build/softmax"})
    params = page.module.init(np.random.default_rng(0), 11, 8, 1, 8)
    loss, grads = names["loss_and_grad"](params, *batch, 2)
    expected, expected_grads = page.module.loss_and_grad(params, *batch, 2)
    assert names["softmax"] is mine and loss == expected
    np.testing.assert_array_equal(grads["output"]["weight"], expected_grads["output"]["weight"])


def test_a_forward_pass_goes_with_the_backward_pass_of_the_page():
    names = dict(vars(page.module))
    exec("def layer_norm(params, x, eps=1e-5):\n    return 7, None", names)
    complete(TRACK, names, {"build/layer_norm"})
    params, x = {"gain": np.ones(3), "bias": np.zeros(3)}, np.eye(3)
    y, backward = names["layer_norm"](params, x)
    assert y == 7
    np.testing.assert_array_equal(backward(x)[0], page.module.layer_norm(params, x)[1](x)[0])


RIGHT = "return x @ params['weight'] + params['bias']"


@pytest.mark.parametrize(
    ("label", "body", "line"),
    [
        ("attention", "return q", "it does not return two results: y, backward"),
        ("attention", "return q, None",
         "its second result is None, expected the function itself: `backward`, not"),
        ("linear", "y = 1", "it returns None: is `return y, backward` missing?"),
        ("linear", f"{RIGHT}, 3", "its second result is 3, expected the function"),
        ("linear", f"backward = lambda dy: 1 / 0; {RIGHT}, backward",
         "it raises ZeroDivisionError: division by zero"),
        ("linear", f"{RIGHT}, lambda dy: None",
         "backward returns None: is `return dx, grads` missing?"),
        ("linear", f"{RIGHT}, lambda dy: dy", "backward does not return 2 results: dx, grads"),
        (
            "linear",
            f"{RIGHT}, lambda dy: (dy, dy)",
            "grads is array([[1.]]), expected a dict with the names of params",
        ),
        ("linear", f"{RIGHT}, lambda dy: (dy, {{'weight': dy}})",
         "grads has no entry 'bias', expected weight, bias"),
        ("linear", f"{RIGHT}, lambda dy: (dy, params | {{'x': 0}})",
         "grads has an entry 'x', expected weight, bias"),
        ("softmax", "x -= 1; return x", "it changes its argument x in place"),
    ],
)  # fmt: skip
def test_a_result_of_another_form_gets_a_line(label, body, line):
    part = BUILD[label]
    function = part.function_from(f"{part.signature} {body}")
    lines = check_function(part, function).lines
    assert lines[1].startswith(line)


def lines_about(label, old, new):
    """What is said about a changed answer."""
    part = BUILD[label]
    assert old in part.answer_source
    return check_function(part, part.function_from(part.answer_source.replace(old, new))).lines


ROWS = "keepdims=True is missing: without it the result of a sum, mean or maximum loses its axis"
OWN_SCORE = "this is the derivative of a weight with respect to its own score"
ORDER = "the results come in another order"


@pytest.mark.parametrize(
    ("label", "old", "new", "words"),
    [
        ("softmax", ", keepdims=True", "", ROWS),
        ("softmax", "e.sum(axis=-1, keepdims=True)", "e.sum(axis=-1)", ROWS),
        ("softmax", "axis=-1", "axis=1", "the axis of a sum, mean or maximum is axis 1"),
        ("linear", "x_rows.T @ dy_rows", "x.T @ dy", "with a batch, x.T reverses all axes"),
        (
            "layer_norm",
            "(deviation**2).mean(axis=-1, keepdims=True)",
            "(deviation**2).mean()",
            "axis=-1 of a sum, mean",
        ),
        (
            "layer_norm",
            "(deviation**2).mean(axis=-1, keepdims=True)",
            "np.var(x)",
            "this is the variance of the whole",
        ),
        (
            "attention_backward",
            "(dweights - (dweights * weights).sum(axis=-1, keepdims=True))",
            "dweights * (1 - weights)",
            OWN_SCORE,
        ),
        (
            "attention_backward",
            "return dq, dk, dv",
            "return dv, dk, dq",
            f"{ORDER}: dq, dv are what dv, dq should be",
        ),
        (
            "attention_backward",
            "return dq, dk, dv",
            "return dv, dq, dk",
            f"{ORDER}: dq, dk, dv are what dv, dq, dk should be",
        ),
        (
            "self_attention",
            "q, k, v = (split_heads(part, n_heads) for part in np.split(qkv, 3, axis=-1))",
            "q, k, v = np.split(split_heads(qkv, n_heads), 3, axis=-1)",
            "first split qkv into q, k and v",
        ),
        ("encoder_layer", "dsum + d", "d", "x0 and x1 are used twice"),
    ],
)
def test_slips_of_students_are_recognised(label, old, new, words):
    assert lines_about(label, old, new)[2].startswith(f"perhaps: {words}")


def test_backward_is_returned_and_not_called():
    lines = lines_about("linear", "    return y, backward", "    return y, backward(x)")
    assert (
        lines[1] == "it calls backward: return the function itself, `backward`, not `backward(…)`"
    )


def test_two_results_in_one_variable_are_named():
    lines = lines_about("feed_forward", "h, hidden_backward =", "h =")
    assert lines[2] == "perhaps: h holds two results: write h, h_backward = …"


def test_the_forward_pass_is_checked_first(run):
    run("")
    solve(TRACK, "linear")
    text = FILE.read_text(encoding="utf-8")
    start = text.index("        x_rows, dy_rows")
    text = (
        text[:start]
        + "        raise NotImplementedError"
        + text[text.index("\n\n    return y, backward", start) :]
    )
    FILE.write_text(text, encoding="utf-8")
    line = text[: text.index("        raise")].count("\n") + 1
    lines = f"    forward: right in all 4 cases\n    backward: not written yet, line {line}\n"
    assert run("check linear") == (1, f"linear: not written yet\n{lines}")
    FILE.write_text(text.replace(' + params["bias"]', ""), encoding="utf-8")
    said = run("check linear")[1]
    assert 'params = {"weight": [[1.0], [2.0]], "bias": [0.5]}, x = [[3., 4.]]\n' in said
    assert (
        "y is wrong at [0, 0]: yours is 11, expected 11.5\n    perhaps: the bias is missing" in said
    )


def test_the_names_are_those_of_the_task():
    names = {
        label: [list(part.arguments)[-1], *list(part.results)[:2]] for label, part in BUILD.items()
    }
    assert names["attention_backward"] == ["dout", "y", "dq"]
    assert names["encoder_layer"] == ["dx2", "x2", "dx0"]


@pytest.mark.parametrize(
    ("label", "line", "name"),
    [("softmax", "import numpy as np", "np"), ("transformer", "def embed", "embed")],
)
def test_what_the_file_lacks_is_missed_in_the_check(run, label, line, name):
    run("")
    solve(TRACK, label)
    text = FILE.read_text(encoding="utf-8")
    FILE.write_text(text.replace(line, line[: -len(name)] + "other"), encoding="utf-8")
    assert f"it raises NameError: name '{name}' is not defined (line " in run(f"check {label}")[1]


def test_a_file_of_another_encoding(run):
    FILE.parent.mkdir()
    FILE.write_text(starting_text(TRACK), encoding="utf-16")
    assert run("train Ada")[1].endswith("; save it as UTF-8\n")


def test_a_change_of_the_parameters_is_named():
    part = BUILD["linear"]
    function = part.function_from(
        part.answer_source.replace("    y = x", '    params["bias"] *= 2\n    y = x')
    )
    line = check_function(part, function).lines[1]
    assert line.startswith("it changes its argument params in place")


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("hint softmx", "error: there is no exercise 'softmx', did you mean softmax?\n"),
        (
            "answer 15",
            "error: there is no exercise '15': they are 1 to 14, see npformer exercises build\n",
        ),
    ],
)
def test_what_a_person_can_mend_is_one_line(run, command, line):
    run("")
    assert run(command) == (1, line)


@pytest.mark.parametrize("command", ["check", "train Ada", "hint", "hint softmax"])
def test_another_folder_is_left_as_it_is(run, folder, command):
    code, said = run(command)
    assert said.startswith(
        f"error: there is no exercises/transformer.py in {folder}: if you have begun elsewhere, "
    )
    assert (code, list(folder.iterdir())) == (1, [])


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("''", "error: the name '' has 0 letters, expected 1 to 16\n"),
        (
            "abcdefghijklmnopq",
            "error: the name 'abcdefghijklmnopq' has 17 letters, expected 1 to 16\n",
        ),
        ("'a\tb'", r"error: the name 'a\tb' has '\t', which is no letter" + "\n"),
    ],
)
def test_a_name_that_cannot_be_written_is_refused_before_the_training(run, name, line):
    run("")
    assert run(f"train {name}") == (1, line)


def test_the_name_is_asked_for(run, monkeypatch):
    run("")
    monkeypatch.setattr(builtins, "input", lambda text: "Ada")
    assert "\nAda backwards: " in run("train --steps 1")[1]
    monkeypatch.setattr(builtins, "input", lambda text: (_ for _ in ()).throw(EOFError))
    assert run("train") == (1, "error: there is no name: npformer exercises build train NAME\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "def (",
            (
                "error: exercises/transformer.py: Python cannot read the file: "
                "invalid syntax in line 1: def ("
            ),
        ),
        (
            "1 / 0\n",
            (
                "it raises ZeroDivisionError: division by zero (line 1: 1 / 0); "
                "npformer exercises build check"
            ),
        ),
    ],
)
def test_a_file_that_cannot_be_run_gets_a_line(run, text, line):
    FILE.parent.mkdir()
    FILE.write_text(text, encoding="utf-8")
    code, said = run("train Ada")
    assert code == 1 and line in said


def test_a_given_function_that_is_missing_is_named(run):
    run("")
    solve(TRACK, *[label for label in BUILD if not BUILD[label].has_later_backward])
    FILE.write_text(
        FILE.read_text(encoding="utf-8").replace("def sinusoidal_encoding", "def waves"),
        encoding="utf-8",
    )
    run("check")
    assert f"it was given: copy it from {page.file}\n" in run("train Ada --steps 1")[1]


def test_a_loss_that_is_no_number_ends_the_training():
    names = vars(page.module) | {"loss_and_grad": lambda *args: (np.nan, {})}
    with pytest.raises(
        Exception, match="the loss is nan in step 1: which of your functions has changed"
    ):
        reverse.train(names, [["a"]], 3)


def test_an_argument_that_is_no_dict_of_arrays_any_more_has_been_changed():
    params = {"weight": np.zeros(2), "bias": np.zeros(1)}
    assert is_same({"weight": np.zeros(2), "bias": np.zeros(1)}, params)
    for changed in ({**params, "bias": 0.0}, {**params, "bias": None}, {"weight": params}, None):
        assert not is_same(changed, params)


def test_letters_keep_their_accents():
    assert reverse.letters_of("Zoe\u0308") == ["Z", "o", "ë"]
    assert reverse.letters_of(" नमि ") == ["न", "मि"]
    assert len(reverse.letters_of("👩\u200d💻!")) == 2


def test_the_other_commands_lead_here(capsys, run):
    run("")
    assert main(["check", str(FILE)]) == 1
    assert capsys.readouterr().err.endswith(
        "is that of your own Transformer: npformer exercises build check\n"
    )


def test_a_mark_is_of_the_function_that_was_checked(run):
    run("")
    solve(TRACK, "softmax", "attention", "split_heads")
    run("check")
    text = FILE.read_text(encoding="utf-8")
    FILE.write_text(text.replace("e / e.sum", "e.sum"), encoding="utf-8")
    said = run("")[1]
    assert (
        re.search(r"softmax of each row +changed since its check\n", said)
        and said.count("  solved\n") == 2
    )
    assert run("hint")[1].startswith("softmax:")
    # it is the same for Python
    FILE.write_text(text.replace("e = np.exp", "e  = np.exp"), encoding="utf-8")
    assert run("")[1].count("  solved\n") == 3
    # the answers may call a function of their own
    FILE.write_text(f"{text}\n\ndef helper(x):\n    return x\n", encoding="utf-8")
    assert run("")[1].count("changed since its check\n") == 3
    FILE.write_text(
        text.replace("dq, dk", "dk, dq").replace("e / e.sum", "e.sum"), encoding="utf-8"
    )
    code, said = run("train Ada --steps 1")
    assert (
        said.startswith("softmax: not yet right\n")
        and "2 of 14 exercises are yours: attention, split_heads" in said
    )
    assert "changed" not in run("")[1]
    FILE.write_text("def (", encoding="utf-8")
    assert run("")[1].count("  solved\n") == 2
    FILE.unlink()
    assert "It is new, so the 2 that you had solved are no longer marked" in run("")[1]
    assert "solved\n" not in run("")[1]


def test_what_to_write_next_is_said_with_its_line(run):
    run("")
    solve(TRACK, "softmax", "attention", "split_heads", "merge_heads")
    solve(TRACK, "layer_norm", "cross_entropy", "linear")
    run("check")
    lines = FILE.read_text(encoding="utf-8").splitlines()
    number = (
        lines.index("    def backward(dy):", lines.index("def layer_norm(params, x, eps=1e-5):"))
        + 1
    )
    assert f"Write backward of layer_norm in {FILE}, line {number}, then: " in run("")[1]


def test_a_later_backward_pass_leaves_the_mark_of_the_forward_pass(run):
    run("")
    solve(TRACK, "softmax", "attention")
    run("check")
    solve(TRACK, "attention_backward")
    assert run("")[1].count("  solved\n") == 2


def test_the_reader_of_the_output_is_gone(run, monkeypatch):
    monkeypatch.setattr(reverse, "train", lambda *args: (_ for _ in ()).throw(BrokenPipeError))
    run("")
    with pytest.raises(BrokenPipeError):
        main.__wrapped__(["build", "train", "Ada"])


def test_a_file_with_the_name_of_the_folder(run):
    Path("exercises").write_text("")
    line = (
        "error: exercises is a file, but the folder of your exercises has this name: move it away\n"
    )
    assert run("") == (1, line) and main(["list"]) == 1


def test_the_axis_of_another_function_is_not_called_that_of_a_sum():
    lines = lines_about("self_attention", "np.split(qkv, 3, axis=-1)", "np.split(qkv, 3, axis=1)")
    assert not any("of a sum, mean or maximum" in line for line in lines)


def test_of_several_slips_that_raise_the_same_error_none_is_named():
    def function(x):
        raise ValueError("could not be done")

    part = replace(BUILD["softmax"], mistakes=())
    answers = [
        WrongAnswer(function, "one", is_slip=True),
        WrongAnswer(function, "other", is_slip=True),
    ]
    for several in (answers[:1], answers):
        vars(part)["wrong_answers"] = several
        assert check_function(part, function).lines[2:] == ["perhaps: one"] * (len(several) == 1)
    vars(part)["wrong_answers"] = [*answers, WrongAnswer(function, "a mistake of this exercise")]
    assert check_function(part, function).lines[2:] == ["perhaps: a mistake of this exercise"]
