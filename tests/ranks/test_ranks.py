"""Training on several ranks of MPI: the same results as in one process, and one end for all."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from corpus import write_corpus
from programs import environment, python
from trainings import steps_of

from scripts.bench.bench_ranks import MPIEXEC, mpiexec

from npformer.files.checkpoint import LAST, RESULT
from npformer.text import Translator
from npformer.training import JsonLog, load_checkpoint

ROOT = Path(__file__).parents[2]
ENDLESS = "--steps", "100000", "--validate-every", "100000"
pytestmark = pytest.mark.skipif(
    not MPIEXEC.exists(), reason="there is no MPI: pip install -e '.[mpi]'"
)


def start(n, script, *arguments):
    """Start a script on n ranks, which find the modules that this process finds."""
    command = [*mpiexec(n), sys.executable, ROOT / script, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment(), text=True, **pipes)


def run(n, script, *arguments, code=0):
    """The outputs of a script on n ranks."""
    process = start(n, script, *arguments)
    out, err = process.communicate(timeout=100)
    assert process.returncode == code, err
    return out, err


@pytest.fixture(scope="module", params=[2, 3])
def found(request, tmp_path_factory):
    out, _ = run(request.param, "tests/ranks/ranks_program.py", tmp_path_factory.mktemp("ranks"))
    return {"n": request.param, **json.loads(out)}


def test_ranks_compute_the_same_bits_as_shards_of_one_process(found):
    assert len(found["trainings"]) > 9
    most = 1 / found["n"] + 0.07  # of a small model: a piece has whole blocks
    for name, training in found["trainings"].items():
        assert training["same bits"], name
        assert training["state"] <= most, name


def test_gradients_are_sent_while_others_are_computed(found):
    early = {name: training["sent early"] for name, training in found["trainings"].items()}
    assert min(early.pop("fewer rows than ranks")) == 0  # a rank without rows
    assert set(early.pop("silent")) == {0}
    assert all(min(chunks) > 0 for chunks in early.values())


def test_several_batches_are_one_step(found):
    assert found["accumulated"] < 1e-5


def test_a_checkpoint_is_that_of_one_process(found):
    assert found["resumed"] == {"same file": True, "same after it": True, "same alone": True}


def test_all_ranks_end_with_the_same_diagnosis(found):
    (diagnosis,) = set(found["diagnoses"])
    assert "step 1: the loss is nan; " in diagnosis
    assert " holds NaN" in diagnosis


def test_arrays_of_the_gpu_are_sent_too(found):
    if found["on the gpu"] is None:
        pytest.skip("there is neither a GPU nor a substitute, or these are 3 ranks")
    assert found["on the gpu"] < 1e-3


def test_the_benchmark_times_the_messages_of_a_step(found):
    messages = found["messages"]
    all_but_own = 4 * messages["numbers"] * (found["n"] - 1) / found["n"]
    both_ways = 2 * all_but_own
    assert messages["bytes"] == pytest.approx(both_ways, rel=0.07)  # as of a small model: see above
    assert min(messages[name] for name in ("exchange", "gathering", "one number")) > 0


def test_watching_changes_no_bit_and_all_ranks_find_the_same(found):
    assert found["watched"]["same bits"]
    first, *others = found["watched"]["findings"]
    assert "one batch again and again" in first and others == [first] * (found["n"] - 1)


def test_all_ranks_stop_after_the_same_step(found):
    assert found["stopped"] == [3] * found["n"]


def test_all_ranks_count_the_validations_of_the_checkpoint_from_which_they_go_on(found):
    assert found["goes on"] == [3] * found["n"]


def test_an_error_of_rank_0_is_raised_on_all(found):
    assert found["first"] == {"of": "rank 0"}
    ours, *others = found["no first"]
    assert ours == "the disk is full"
    assert set(others) == {"rank 0: OSError: the disk is full"}
    assert all("'set' object" in message for message in found["no json"])


def test_all_ranks_refuse_a_model_that_forgets_a_gradient(found):
    (message,) = set(found["forgotten"])
    assert "output.weight: given nothing" in message


def test_an_error_of_one_rank_in_a_step_is_raised_on_all_and_all_can_go_on(found):
    of_steps = found["fails in a step"]
    reason = "UserError: the gradient of output.weight: given twice, expected once"
    assert of_steps["alone"] == [reason] * 3  # that of the first wrong batch of a step
    last = found["n"] - 1
    others = [[f"RankError: rank {last}: {reason}"] * 3] * last
    assert of_steps["messages"] == [*others, of_steps["alone"]]
    assert of_steps["same bits"]
    assert of_steps["threads"] == 0


OF_THE_USER = "ZeroDivisionError: of the user"
# What one rank raises, and the steps that all have made in the end, two of them after it.
FAILING = {
    "before a step": (["UserError: ", "OSError: no such text"], 2 + 2),
    "in a callback": ([OF_THE_USER], 3 + 2),
}


@pytest.mark.parametrize("when", FAILING)
def test_an_error_of_one_rank_outside_of_a_step_is_raised_on_all_and_all_can_go_on(found, when):
    begins, n_steps = FAILING[when]
    *others, (messages, n_made, parameters) = found[f"fails {when}"]
    for message, begin in zip(messages, begins, strict=True):
        assert message.startswith(begin)
    assert n_made == n_steps
    of_others = [f"RankError: rank {found['n'] - 1}: {message}" for message in messages]
    assert others == [[of_others, n_steps, parameters]] * (found["n"] - 1)


WITHOUT_AN_ERROR = "rank 1 has ended, and this rank waits for it: all ranks have to make the same"
# What the ranks print if the last one ends alone.
ENDINGS = {
    "own_loop": [OF_THE_USER, f"RankError: rank 1 has ended: {OF_THE_USER}"],
    "callback_before_save": [OF_THE_USER, "RankError: rank 1"],
    "interrupted": ["KeyboardInterrupt", "RankError: rank 1 has ended: KeyboardInterrupt"],
    "interrupted_callback": ["KeyboardInterrupt", "RankError: rank 1: KeyboardInterrupt"],
    "exits": [f"RankError: {WITHOUT_AN_ERROR}"],
    "saves_alone": [f"RankError: {WITHOUT_AN_ERROR}"],
    "computes_long": [OF_THE_USER],
    "command_with_a_bug": ["rank 1: Traceback (most recent call last)", "KeyError: 'a bug'"],
}


def test_no_rank_waits_for_ever_for_one_that_has_ended(tmp_path):
    program = "tests/ranks/endings_program.py"
    latest = time.monotonic() + 120  # before the alarm of these processes
    started = {way: start(2, program, way, tmp_path) for way in ENDINGS}
    for way, process in started.items():
        said = "".join(ended(process, seconds=latest - time.monotonic()))
        assert process.returncode != 0, way
        lines = said.splitlines()
        for message in ENDINGS[way]:
            assert any(message in line for line in lines), f"{way}: {said}"


def test_ranks_that_differ_refuse_to_go_on_together(found):
    def differ(name, what):
        (message,) = set(found[name])
        assert f"rank 1 has {what}" in message

    differ("disagree", "seed=1, rank 0 has 0")
    differ("disagree below", "a.name=1, rank 0 has 0")
    differ("other settings", "settings.seed=1, rank 0 has 0")
    differ("other threads", "shards=")
    differ("other rates", "lr=1.1, rank 0 has 0.1")
    differ("other batch", "targets=")
    differ("save alone", "save.n_steps=None, rank 0 has 0")
    differ("other text", "text.digest=")
    differ("other end", "batches_end=False, rank 0 has True")


def test_ranks_that_make_other_calls_are_told(found):
    (message,) = set(found["other call"])
    assert message == "rank 1 calls gather, rank 0 agree: all ranks have to make the same calls"


def test_values_come_in_the_order_of_the_ranks(found):
    assert found["arrays"] == [list(range(rank)) for rank in range(found["n"])]
    assert found["shares"] == list("abcde")


def test_the_table_names_every_rank(found):
    n = found["n"]
    rows = found["table"].splitlines()[1 : n + 1]
    assert [row.split()[0] for row in rows] == [str(rank) for rank in range(n)]
    too_many = n > len(os.sched_getaffinity(0))
    assert ("ranks share cores" in found["table"]) == too_many


def test_info_shows_the_table_and_advises_what_it_says(found):
    info = found["info"]
    assert "rank   host" in info
    assert "ranks share cores" not in info or "Nothing to change" not in info


def test_one_process_imports_no_mpi():
    code = "import sys; from npformer.runtime.ranks import world; assert world().size == 1; "
    code += "print('mpi4py' in sys.modules)"
    for one_rank in ({}, {"PMI_RANK": "0", "PMI_SIZE": "1"}):
        assert python("-c", code, env=environment(**one_rank)).stdout == "False\n"


def test_an_mpi_that_did_not_start_the_process_is_refused():
    code = "from npformer.runtime.ranks import world; world()"
    started = environment(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="4")
    message = "4 processes were started, but each is alone for mpi4py"
    assert message in python("-c", code, code=1, env=started).stderr


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    write_corpus(folder)
    return folder


SIZES = {"vocab-size": 60, "max-tokens": 200, "max-len": 60, "validate-every": 4, "warmup": 4}


def training(text, out, *more):
    sizes = [f"--{name}={size}" for name, size in SIZES.items()]
    where = ["--data", text, "--out", out, "--backend", "reference", "--quiet"]
    return [*where, *sizes, *more]


def run_commands(n, *commands, code=0):
    """What commands have written that run on n ranks, each by its name, and their errors."""
    texts = [[str(argument) for argument in command] for command in commands]
    out, err = run(n, "tests/ranks/commands_program.py", json.dumps(texts), code=code)
    outputs = [part.partition("\n") for part in out.split("-- ")[1:]]
    return [shown for _, _, shown in outputs], err


def test_commands_print_once_and_what_two_ranks_have_trained_is_used_by_two(text, tmp_path):
    two, results = tmp_path / "two", tmp_path / "two.json"
    copy = ["copy", "--steps", "1", "--no-plots", "--backend", "reference", "--quiet"]
    train = ["train_translation", *training(text, two)]
    search = ["--model", two, "--backend", "reference", "--beam", "2"]
    translate = ["translate", *search, "--file", text / "val.en"]
    evaluate = ["evaluate", *search, "--data", text, "--split", "val"]
    first = [*train, "--steps", "4", "--json", results]
    shown, err = run_commands(2, copy, first, translate, evaluate, train, code=1)
    copied, trained, translated, evaluated, _ = shown
    assert "rank   host" in copied
    assert "rank   host" in trained
    assert trained.count("validation loss") == 2  # one of the step, one of the result
    assert json.loads(results.read_text())["n_ranks"] == 2
    assert steps_of(JsonLog.read(two / "log.jsonl"), "step") == [1, 2, 3, 4, 4]
    sentences = (text / "val.en").read_text(encoding="utf-8").splitlines()
    translator = Translator.load(two / RESULT, "reference")
    assert translated.splitlines() == list(translator.translate(sentences, beam_size=2))
    assert evaluated.count("6 sentences") == 1
    (message,) = [line for line in err.splitlines() if "error" in line]
    assert "holds a training" in message


def in_the_midst(n, log, *arguments):
    """A training on n ranks that has made some more steps, and the numbers of its processes."""
    before = len(JsonLog.read(log)) if log.exists() else 0
    process = start(n, "scripts/train_translation.py", *arguments)
    while not process.stdout.readline().startswith("rank"):
        assert process.poll() is None
    pids = [int(process.stdout.readline().split()[2]) for _ in range(n)]
    while process.poll() is None and (not log.exists() or log.read_text().count("\n") < before + 3):
        time.sleep(0.05)
    return process, pids


def ended(process, seconds=20):
    try:
        return process.communicate(timeout=seconds)
    finally:
        process.kill()


def test_a_dead_rank_ends_all_and_a_signal_to_one_saves_once(text, tmp_path):
    out = tmp_path / "out"
    log = out / "log.jsonl"
    process, pids = in_the_midst(2, log, *training(text, out, *ENDLESS, "--save-every", "2"))
    os.kill(pids[1], signal.SIGKILL)
    said = "".join(ended(process))
    assert process.returncode != 0
    # It is mostly the number of that rank, but mpiexec kills the other, too.
    assert any(f"PID {pid}" in said for pid in pids), said

    process, pids = in_the_midst(3, log, "--out", out, "--resume", "--quiet")
    os.kill(pids[2], signal.SIGTERM)
    said, _ = ended(process)
    assert process.returncode == 143
    assert said.count("SIGTERM: saved after step") == 1
    steps = steps_of(JsonLog.read(log), "loss")
    assert steps == list(range(1, len(steps) + 1))
    assert load_checkpoint(out / LAST)[1]["n_steps"] == len(steps)


def test_a_second_interrupt_of_one_rank_ends_all(text, tmp_path):
    out = tmp_path / "out"
    process, pids = in_the_midst(2, out / "log.jsonl", *training(text, out, *ENDLESS))
    while process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[1], signal.SIGINT)
        time.sleep(0.02)
    ended(process)
    # mpiexec ends the other rank by SIGKILL, and joins the statuses with |. That of this rank is
    # SIGINT if one came in the handler.
    of_this_rank = {130, signal.SIGINT}
    assert process.returncode | signal.SIGKILL in {x | signal.SIGKILL for x in of_this_rank}
