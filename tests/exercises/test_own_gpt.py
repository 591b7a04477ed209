"""``npformer exercises gpt``.

Twelve functions of the one-page GPT, and the model that they make.
"""

import gzip
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from usual_mistakes_of_gpt import USUAL

from npformer.exercises import check_function
from npformer.exercises.exercise import Mistake
from npformer.exercises.gpt import GPT
from npformer.exercises.gpt.taking import shared_functions
from npformer.exercises.gpt.text import Characters, sentences_of, sentences_of_npformer
from npformer.exercises.gpt.writing import Writer, words_of
from npformer.exercises.track.file import starting_text
from npformer.exercises.transformer import BUILD
from tests.exercises.solving import solve
from tests.tools import mutate_exercises
from tests.tools.mutate_exercises import all_mutants, judge

ROOT = Path(__file__).parents[2]
FILE, TRANSFORMER = Path("exercises/gpt.py"), Path("exercises/transformer.py")
TEXT = "The cat sat on the mat, and the rat sat on the cat.\n" * 50
TINY = {"d_model": 8, "n_layers": 1, "d_ff": 8}


@pytest.fixture(autouse=True)
def folder(exercises_folder, monkeypatch):
    monkeypatch.setattr("npformer.exercises.gpt.writing.SIZES", TINY)
    monkeypatch.setattr("npformer.exercises.gpt.writing.N_WRITTEN", 40)
    return exercises_folder


@pytest.fixture
def run(exercises):
    return exercises


def test_from_the_first_exercise_to_the_model_that_writes(run):
    code, said = run("gpt")
    assert (
        code == 0
        and said.startswith("Your file: exercises/gpt.py\n")
        and "Exercise 1, embed: " in said
    )
    assert "guides/your-gpt.md, section 1\n" in said
    Path("text.txt").write_text(TEXT, encoding="utf-8")
    solve(GPT, "embed")
    assert "Exercise 2, rms_norm: " in run("gpt check")[1]
    assert "1 of 12 exercises are yours: embed\n" in run("gpt train --text text.txt --steps 2")[1]
    solve(GPT)
    code, said = run("gpt check")  # all that are written, one after the other
    assert code == 0 and said.count(": solved") == 11
    assert said.endswith("all are solved, so the model is yours: npformer exercises gpt train\n")
    code, said = run("gpt train --text text.txt --steps 120")
    assert code == 0 and "12 of 12 exercises are yours" in said
    first, last = re.findall(r"loss of new text:? (\d\.\d+)", said)[
        :: len(re.findall("loss of new", said)) - 1
    ]
    assert float(last) < float(first) - 1
    assert re.search(r"\d+ of the \d+ words of three letters or more occur in the text\n", said)
    names = runpy.run_path(str(FILE))  # the file alone
    assert [name for name in GPT.page.functions if name not in names] == []


def test_the_guide_shows_what_the_command_prints(run):
    page = (ROOT / "docs" / "guides" / "your-gpt.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"^\$ npformer exercises gpt\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert run("gpt")[1].startswith(shown)
    sections = re.findall(r"^## (\d+)(?: and (\d+))?\. `(\w+)`", page, re.MULTILINE)
    numbers = {
        int(number): name
        for first, second, name in sections
        for number in (first, second)
        if number
    }
    assert list(numbers) == list(range(1, 13))
    assert [part.function_name for part in GPT.parts.values()] == list(numbers.values())


@pytest.mark.parametrize(
    ("label", "words", "code"), USUAL, ids=[f"{i}-{label}" for i, (label, *_) in enumerate(USUAL)]
)
def test_usual_mistakes_are_named(label, words, code):
    part = GPT.parts[label]
    names = dict(vars(GPT.page.module))
    exec(code, names)
    said = check_function(part, names[part.function_name]).lines[-1]
    assert said.startswith("perhaps: ") and words in said


def test_the_checker_notices_mutants_of_the_answers(monkeypatch):
    monkeypatch.setattr(mutate_exercises, "SECONDS", 1)  # for those that do not end
    mutants = all_mutants({part.key: part for part in GPT.parts.values()})
    chosen = [mutants[i] for i in np.random.default_rng(0).choice(len(mutants), 60, replace=False)]
    caught, _, survivors = judge(chosen, n_seeds=3, verbose=False)
    assert len(caught) > 45
    assert len(caught) >= 0.97 * (len(caught) + len(survivors)), survivors


# -- right answers that are written otherwise than ours --------------------------------------------

OTHERWISE = {
    "embed": """
def embed(table, ids):
    def backward(dx):
        dtable = np.zeros_like(table)
        for b in range(ids.shape[0]):
            for t in range(ids.shape[1]):
                dtable[ids[b, t]] += dx[b, t]
        return dtable

    return np.eye(len(table), dtype=table.dtype)[ids] @ table, backward
""",
    "rms_norm": """
def rms_norm(params, x, eps=1e-6):
    rms = np.sqrt(np.mean(x * x, -1, keepdims=True) + eps)

    def backward(dy):
        dxhat = dy * params["gain"]
        dx = dxhat / rms - x * np.sum(dxhat * x, -1, keepdims=True) / (x.shape[-1] * rms**3)
        return dx, {"gain": np.einsum("btd,btd->d", dy, x / rms)}

    return x / rms * params["gain"], backward
""",
    "feed_forward": """
def feed_forward(params, x):
    ab, first = linear(params["hidden"], x)
    F = ab.shape[-1] // 2
    a, b = ab[..., :F], ab[..., F:]
    sigmoid = 0.5 * (1 + np.tanh(a / 2))
    silu = a * sigmoid
    y, second = linear(params["out"], silu * b)

    def backward(dy):
        dh, out = second(dy)
        dab = np.empty_like(ab)
        dab[..., :F] = dh * b * (sigmoid + silu * (1 - sigmoid))
        dab[..., F:] = dh * silu
        dx, hidden = first(dab)
        return dx, dict(hidden=hidden, out=out)

    return y, backward
""",
    "rotary": """
def rotary(x, base=10000.0):
    T, K = x.shape[2], x.shape[3]
    turn = np.exp(1j * np.arange(T)[:, None] / base ** (np.arange(0, K, 2) / K))

    def turned(x, turn):
        z = (x[..., : K // 2] + 1j * x[..., K // 2 :]) * turn
        return np.concatenate([z.real, z.imag], -1).astype(x.dtype)

    return turned(x, turn), lambda dy: turned(dy, turn.conj())
""",
    "self_attention": """
def self_attention(params, x, n_heads):
    T = x.shape[1]
    qkv, qkv_back = linear(params["qkv"], x)
    q, k, v = [split_heads(each, n_heads) for each in np.split(qkv, 3, -1)]
    q, q_back = rotary(q)
    k, k_back = rotary(k)
    out, back = attention(q, k, v, np.arange(T) <= np.arange(T)[:, None])
    y, out_back = linear(params["out"], merge_heads(out))

    def backward(dy):
        dout, g_out = out_back(dy)
        dq, dk, dv = back(split_heads(dout, n_heads))
        gradients = [merge_heads(q_back(dq)), merge_heads(k_back(dk)), merge_heads(dv)]
        dx, g_qkv = qkv_back(np.concatenate(gradients, -1))
        return dx, {"out": g_out, "qkv": g_qkv}

    return y, backward
""",
    "cross_entropy": """
def cross_entropy(logits, targets):
    B, T, V = logits.shape
    z = (logits - logits.max(-1, keepdims=True)).reshape(B * T, V)
    log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
    rows = np.arange(B * T), targets.reshape(-1)
    dlogits = np.exp(log_p)
    dlogits[rows] -= 1
    return -log_p[rows].mean(), dlogits.reshape(B, T, V) / (B * T)
""",
    "write": """
def write(params, ids, n_heads, n_more, rng, temperature=0.8, context=64):
    ids = list(ids)
    while n_more > 0:
        logits = gpt(params, np.array([ids[-context:]]), n_heads)[0][0, -1] / temperature
        ids.append(rng.choice(len(logits), p=softmax(logits)))
        n_more -= 1
    return np.array(ids)
""",
}


@pytest.mark.parametrize("label", OTHERWISE)
def test_a_right_answer_may_be_written_otherwise(label):
    names = dict(vars(GPT.page.module))
    exec(OTHERWISE[label], names)
    assert check_function(GPT.parts[label], names[label]).lines == [
        f"right in all {n_cases(label)} cases"
    ]


# An array of float64 makes float64 of all that follows.
LEAKS = {
    "embed": ("np.zeros_like(table)", "np.zeros(table.shape)", "np.zeros_like(table)"),
    "rotary": (".astype(x.dtype)", "", ".astype(x.dtype)"),
    "attention": ("scale * q", "1 / np.sqrt(q.shape[-1]) * q", "np.sqrt of an int"),
    "attention_backward": (
        "dq, dk = scale",
        "dq, dk = 1 / np.sqrt(q.shape[-1])",
        "np.sqrt of an int",
    ),
    "self_attention": (
        "rotary(q), rotary(k)",
        "rotary(q * np.float64(1)), rotary(k)",
        "np.sqrt of an int",
    ),
    "cross_entropy": (", dtype=logits.dtype", "", "np.eye(V, dtype=logits.dtype)"),
}


@pytest.mark.parametrize("label", LEAKS)
def test_float64_that_leaks_into_float32_is_noticed(label):
    part = GPT.parts[label]
    old, new, words = LEAKS[label]
    verdict = check_function(part, part.with_mistakes(Mistake({old: new}, "")))
    assert verdict.state == "wrong" and ", in float32: " in verdict.lines[0]
    assert (
        "has dtype float64, expected float32, as its arguments have" in verdict.lines[1]
        and words in verdict.lines[1]
    )


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ("np.eye(T, dtype=bool) | np.eye(T, k=-1, dtype=bool)", "only itself and the one before"),
        ("np.tril(np.ones((T, T), dtype=bool), k=1)", "also sees the next one"),
        ("np.ones((T, T), dtype=bool)", "there is no causal mask"),
        # sees more of the future, the later it is
        ("np.arange(T) <= np.arange(T)[:, None] ** 2", "yours is"),
    ],
)
def test_a_mask_that_is_right_for_two_positions_is_not_enough(mask, words):
    part = GPT.parts["self_attention"]
    change = {"np.tri(x.shape[1], dtype=bool)": mask.replace("T", "x.shape[1]")}
    verdict = check_function(part, part.with_mistakes(Mistake(change, "")))
    assert verdict.state == "wrong" and words in verdict.lines[-1]


@pytest.mark.parametrize("label", ["self_attention", "decoder_layer", "gpt"])
def test_a_case_has_more_than_three_positions(label):
    for seed in range(3):
        cases = GPT.parts[label].cases(np.random.default_rng(seed))
        assert max(case.args[1].shape[1] for case in cases) > 3


def n_cases(label):
    return len(GPT.parts[label].cases(np.random.default_rng(0)))


# -- what is taken over from one's own Transformer -------------------------------------------------


@pytest.mark.parametrize("option", ["", "--derive"])
def test_what_is_solved_in_build_is_taken_over_and_said(run, option):
    run(f"build {option}")
    solve(BUILD, "softmax", "attention_backward", "adam_step", "split_heads")
    text = TRANSFORMER.read_text(encoding="utf-8").replace(
        "    e = np.exp(", "    # mine\n    e = np.exp(", 1
    )
    TRANSFORMER.write_text(text, encoding="utf-8")
    # adam_step is not checked
    for name in ("softmax", "attention", "attention_backward", "split_heads"):
        run(f"build check {name}")
    code, said = run("gpt")
    line = (
        "Taken over from exercises/transformer.py, where you have solved them: "
        "softmax, attention, split_heads\n"
    )
    assert code == 0 and said.startswith(line)
    assert re.findall(r"^ *\d+  (\w+) .* solved$", said, re.MULTILINE) == [
        "attention",
        "attention_backward",
    ]
    own = FILE.read_text(encoding="utf-8")
    assert (
        "    # mine\n" in own
        and "Exercise 5, attention" in own
        and "Exercise 2, attention" not in own
    )
    assert "raise NotImplementedError  # exercise 11" in own
    FILE.write_text(own.replace("scale * q @ k", "q @ k"), encoding="utf-8")
    assert run("gpt")[1].count("changed since its check") == 2


def test_a_solution_that_has_changed_is_not_taken_over(run):
    run("build")
    solve(BUILD, "softmax")
    run("build check softmax")
    text = TRANSFORMER.read_text(encoding="utf-8")
    TRANSFORMER.write_text(text.replace("e / e.sum", "2 * e / e.sum"), encoding="utf-8")
    assert "Taken over" not in run("gpt")[1]


def test_a_solution_that_needs_its_file_is_not_taken_over(run):
    run("build")
    text = TRANSFORMER.read_text(encoding="utf-8")
    own = "def largest(x):\n    return x.max(axis=-1, keepdims=True)\n\n\n"
    stub = "    raise NotImplementedError  # exercise 1\n"
    mine = "    e = np.exp(x - largest(x))\n    return e / e.sum(axis=-1, keepdims=True)\n"
    TRANSFORMER.write_text(text.replace(stub, mine) + f"\n\n{own}", encoding="utf-8")
    assert run("build check softmax")[0] == 0
    line = (
        "softmax is not taken over from exercises/transformer.py, "
        "as it needs largest of that file\n"
    )
    assert run("gpt")[1].startswith(line)


def test_a_solution_on_one_line_is_taken_over(run):
    run("build")
    text = TRANSFORMER.read_text(encoding="utf-8")
    line = (
        "def merge_heads(x): "
        "return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)\n\n\n"
    )
    text = re.sub(r"(?ms)^def merge_heads\(.*?(?=^\S)", line, text)
    TRANSFORMER.write_text(text, encoding="utf-8")
    assert run("build check merge_heads")[0] == 0
    assert "solved them: merge_heads\n" in run("gpt")[1]
    assert line in FILE.read_text(encoding="utf-8")


def test_nothing_is_taken_over_from_a_file_that_python_cannot_read(run):
    run("build")
    TRANSFORMER.write_text("def (", encoding="utf-8")
    line = "Python cannot read exercises/transformer.py, so nothing is taken over from it\n"
    code, said = run("gpt")
    assert (
        code == 0
        and said.startswith(line)
        and FILE.read_text(encoding="utf-8") == starting_text(GPT)
    )


def test_the_functions_that_both_pages_have():
    expected = ["softmax", "attention", "split_heads", "merge_heads", "adam_step"]
    assert shared_functions(BUILD) == expected


# -- the file, and the text ------------------------------------------------------------------------


def test_a_file_of_the_other_kind_is_refused(run):
    run("build")
    TRANSFORMER.rename(FILE)
    line = (
        "exercises/gpt.py is that of your own Transformer: "
        "rename it (mv exercises/gpt.py exercises/transformer.py)"
    )
    for command in ("gpt", "gpt check", "gpt train"):
        code, said = run(command)
        assert code == 1 and line in said


def test_a_file_that_was_renamed_is_named(run):
    run("gpt")
    FILE.rename("exercises/my_gpt.py")
    code, said = run("gpt train")
    assert code == 1 and "mv exercises/my_gpt.py exercises/gpt.py" in said


def test_a_function_that_was_broken_since_its_check_is_given(run):
    run("gpt")
    Path("t.txt").write_text(TEXT, encoding="utf-8")
    solve(GPT, "embed", "rms_norm")
    run("gpt check")
    text = FILE.read_text(encoding="utf-8")
    FILE.write_text(
        text.replace("return table[ids], backward", "return 2, backward"), encoding="utf-8"
    )
    code, said = run("gpt train --text t.txt --steps 2")
    assert (
        code == 0
        and "embed: not yet right\n" in said
        and "\n1 of 12 exercises are yours: rms_norm\n" in said
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            b"To be, or not to be.",
            "t.txt has 20 characters, expected at least 2,000: take a longer text",
        ),
        (
            b"caf\xe9 " * 1000,
            "t.txt, line 1: 'utf-8' codec can't decode byte 0xe9 in position 3",
        ),
        (b"\xff" * 3000, "expected UTF-8: save the text as UTF-8 in your editor"),
        (None, "t.txt is missing: expected a text"),
    ],
)
def test_a_text_that_is_none_is_refused_before_the_training(run, content, words):
    run("gpt")
    if content is not None:
        Path("t.txt").write_bytes(content)
    code, said = run("gpt train --text t.txt")
    assert code == 1 and words in said and "exercises are yours" not in said


def test_a_text_may_be_packed_short_or_long(run, monkeypatch):
    monkeypatch.setattr("npformer.exercises.gpt.text.MOST", 2500)
    run("gpt")
    Path("t.txt.gz").write_bytes(gzip.compress(TEXT.replace("\n", "\r\n").encode()))
    code, said = run("gpt train --text t.txt.gz --steps 1")
    assert code == 0 and "t.txt.gz is long: its first 2,500 characters are read\n" in said
    assert "learns them by heart" in said and "\n2,499 characters, 16 different ones" in said


def test_a_text_on_one_line(run):
    run("gpt")
    Path("t.txt").write_text("All work and no play makes Jack a dull boy. " * 50, encoding="utf-8")
    assert run("gpt train --text t.txt --steps 2")[0] == 0


def test_a_loss_that_is_no_number_ends_the_training(run, monkeypatch):
    run("gpt")
    Path("t.txt").write_text(TEXT, encoding="utf-8")
    solve(GPT)
    run("gpt check")
    monkeypatch.setattr("npformer.exercises.gpt.writing.PEAK", np.nan)
    code, said = run("gpt train --text t.txt --steps 5")
    assert (
        code == 1
        and "error: the loss is nan in step 2: which of your functions has changed since its check?"
        in said
    )


def test_sentences_are_those_of_docstrings_without_their_examples():
    assert sentences_of(
        "One\nsentence. Another, of f(x).\n\n>>> Code(1).\n... more(). \nLast?"
    ) == [
        "One sentence.",
        "Another, of f(x).",
        "Last?",
    ]
    text = sentences_of_npformer()
    assert len(text) > 150_000 and text.isascii() and ">>>" not in text
    assert len(set(text.splitlines())) == len(text.splitlines())


def test_characters_become_ids_and_text_again():
    text = "naïve 👩‍💻\nno"
    characters = Characters(text)
    assert characters.text(characters.ids) == text
    assert len(characters.characters) == len(set(text))


def test_words_are_of_three_letters_or_more():
    assert words_of("A map of 100 naïve maps_2.") == ["map", "naïve", "maps"]


def test_what_is_shown_does_not_change_what_is_learned():
    names = vars(GPT.page.module)
    trained = []
    for n_shown in (0, 3):
        writer = Writer(names, TEXT)
        for _ in range(n_shown):
            writer.show(0)
        writer.train(3)
        trained.append(writer.params["output"]["weight"])
    np.testing.assert_array_equal(*trained)
