"""Kernels are compiled ahead, by several processes, and each of them once."""

import subprocess
import sys
from subprocess import PIPE

import pytest
from programs import WITH_FORK, compiling, python
from refusals import refuses

from npformer.commands.shared.compiling import compile_once

import npformer as nf
from npformer.cpu import ahead
from npformer.files.locks import claimed

# A model with three kernels, which are compiled in less than a second, and the number of those that
# a process has compiled itself.
PROGRAM = """
import sys
import numpy as np
import npformer as nf
from npformer.cpu import ahead, compiling, jit

class Line:
    def init(self, seed=0):
        return {"weight": np.ones(3, np.float32)}

    def loss_and_grad(
        self, params, x, y, *, dropout_key=None, n_tokens=None, backend=None, ready=None
    ):
        difference = backend.relu(x * params["weight"]) - y
        return (difference**2).sum(), {"weight": (2 * x * difference).sum(0)}, len(x)

    def count(self, x, y):
        return len(x)

def n_compiled():
    return sum(sum(kernel.stats.cache_misses.values()) for kernel in jit.KERNELS.values())

model, x, y = Line(), np.ones((4, 3), np.float32), np.zeros((4, 3), np.float32)
"""

SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 8}


@pytest.fixture
def run(tmp_path):
    """A function that starts a program with an empty folder for kernels."""

    def start(code, n_cores=2):
        variables = compiling(NUMBA_CACHE_DIR=tmp_path / "kernels", PYTHON_CPU_COUNT=str(n_cores))
        command = [sys.executable, "-c", PROGRAM + code]
        return subprocess.Popen(command, env=variables, text=True, stdout=PIPE, stderr=PIPE)

    return start


def lines(process):
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    return out.splitlines()


AHEAD = """
from pathlib import Path
from numba import config
n = nf.compile_kernels(model, x, y, progress=False)
before = n_compiled()
print(before, len(list(Path(config.CACHE_DIR).rglob("*.nbc"))))
loss = nf.Trainer(model, nf.Adam(0.1)).step(x, y)
print(n > 2, n_compiled() - before, nf.compile_kernels(model, x, y, progress=False), loss)
"""


def test_a_step_compiles_nothing_any_more_and_one_in_another_process_waits_for_the_kernel(run):
    """One compiles ahead, the other calls: together they compile each kernel once."""
    ahead_of_it = run(AHEAD, 1)
    at_work = run("print(nf.Trainer(model, nf.Adam(0.1)).step(x, y))\nprint(n_compiled())", 1)
    [counts, step], [loss, second] = lines(ahead_of_it), lines(at_work)
    n_first, n_in_all = map(int, counts.split())
    assert n_first + int(second) == n_in_all
    assert step == f"True 0 0 {loss}"


REHEARSED = """
found = []
nf.Trainer(model, nf.Adam(0.1), backend=ahead.rehearsal_backend(found)).step(x, y)
kernels = ahead.overloads_of(found)
"""

STOPPED = """
import io, os, pickle, subprocess, time
[wanted] = [each for each in kernels if each.name == "_adam"]
path = ahead.place_of(wanted.kernel, wanted.types).path
code = "import time, pathlib as p; from npformer.files.locks import claimed;"
code += f"claim = claimed(p.Path({str(path)!r}));"
code += "claim.__enter__(); print(1, flush=True); time.sleep(60)"
with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
    holder.stdout.readline()
    compiling.LONGEST = 0.5
    start = time.monotonic()
    wanted.kernel.compile(wanted.types)
    print(time.monotonic() - start > 0.5, wanted.is_on_disk())
    holder.kill()
print(sum(each.is_on_disk() for each in kernels))
sys.stdin = io.TextIOWrapper(io.BytesIO(pickle.dumps(kernels)))
ahead.work_for(os.getppid())
print([each.is_on_disk() for each in kernels])
"""


def test_a_process_that_stands_still_is_waited_for_for_a_while_and_a_worker_compiles_the_rest(run):
    assert lines(run(REHEARSED + STOPPED)) == ["True True", "1", "[True, True, True]"]


HELPLESS = """
from unittest.mock import patch
start = ahead.start_python
double = Line()
double.init = lambda seed=0: {"weight": np.ones(3)}
for optimizer in (nf.Adam(0.1), nf.Lion(0.1)):
    nf.Trainer(double, optimizer, backend=ahead.rehearsal_backend(found)).step(x, y)
kernels = ahead.overloads_of(found)

def dying(code, stdin):
    return start("raise SystemExit", stdin)

reasons = {
    "it dies": patch.object(ahead, "start_python", dying),
    "no process can be started": patch.object(sys, "executable", ""),
    "no locks": patch.object(ahead, "fcntl", None),
}
for reason, change in reasons.items():
    before = n_compiled()
    two = [kernels.pop(), kernels.pop()]
    with change:
        ahead.compile_together(two, lambda n_left: None)
    print(reason, n_compiled() - before)
"""


def test_without_workers_this_process_compiles_all(run):
    expected = ["it dies 2", "no process can be started 2", "no locks 2"]
    assert lines(run(REHEARSED + HELPLESS)) == expected


def test_a_worker_without_its_parent_compiles_nothing(monkeypatch):
    monkeypatch.setattr("pickle.load", lambda file: [pytest.fail])
    ahead.work_for(parent=-1)


HOLDER = """
import sys, time
from pathlib import Path
from npformer.files.locks import claimed
with claimed(Path(sys.argv[1])):
    print("claimed", flush=True)
    time.sleep(60)
"""


@WITH_FORK
def test_a_claim_ends_with_its_process(tmp_path):
    path = tmp_path / "kernel"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdout=PIPE) as holder:
        holder.stdout.readline()
        with claimed(path) as is_free:
            assert not is_free
        holder.kill()
    with claimed(path) as is_free:
        assert is_free
        assert list(tmp_path.iterdir()) == [tmp_path / "kernel.lock"]
    assert list(tmp_path.iterdir()) == []


def test_on_a_full_disk_each_process_compiles_its_own(run):
    code = """
import resource, warnings
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with warnings.catch_warnings(record=True) as said:
    n = nf.compile_kernels(model, x, y)
print(n - n_compiled(), len(said))
n = n_compiled()
nf.Trainer(model, nf.Adam(0.1)).step(x, y)
print(n_compiled() - n)
"""
    pytest.importorskip("resource")
    assert lines(run(code)) == ["0 1", "0"]


NOTED = """
import numba
from npformer.commands.shared import compiling
rehearsals, together = [], ahead.compile_together
compiling.rehearse_step = lambda ops, **given: rehearsals.append(ops)
ahead.overloads_of = lambda found: kernels
ahead.compile_together = lambda *given: None
trainer = nf.Trainer(nf.LanguageModel(11, d_model=8, n_heads=2, n_layers=1, d_ff=8), nf.Adam(0.1))
compiling.compile_once(trainer, progress=False)

workers, start = [], ahead.start_python
def keep(statement, stdin):
    workers.append(start(statement, stdin))
    return workers[-1]

def interrupt(n_left):
    raise KeyboardInterrupt

ahead.start_python = keep
try:
    together(kernels, interrupt)
except KeyboardInterrupt:
    print(len(workers), workers[0].poll())

ahead.compile_together = together
for _ in range(2):
    compiling.compile_once(trainer, progress=False)
print(len(rehearsals))
numba.__version__ = "another"
compiling.compile_once(trainer, progress=False)
print(len(rehearsals))
"""


def test_an_interrupt_ends_all_processes_and_a_work_is_rehearsed_until_its_kernels_are_on_disk(run):
    """And again for another numba."""
    assert lines(run(REHEARSED + NOTED)) == ["1 -9", "2", "3"]


def test_where_nothing_is_kept_or_compiled_nothing_is_rehearsed(monkeypatch):
    model = nf.LanguageModel(11, **SIZES)
    monkeypatch.setattr(ahead, "KERNELS", {})
    assert nf.compile_kernels(model) == 0
    compile_once(nf.Trainer(model, nf.Adam(0.1)))


COMPARED = """
from npformer.cpu import kernel_cache
from npformer.training.compiling import rehearse_step

sizes = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 8, "dropout": 0.1}
llama = {"positions": "rotary", "norm_type": "rms_norm", "activation": "swiglu", "n_kv_heads": 1}
found, is_filled = [], kernel_cache.Place.is_filled
for model in (
    nf.Transformer(11, 11, **sizes),
    nf.LanguageModel(11, **llama, **sizes),
    nf.SequenceAutoencoder(11, d_model=8, code_size=4),
):
    kernel_cache.Place.is_filled = lambda place: False
    rehearse_step(ahead.rehearsal_backend(found), model)
    kernel_cache.Place.is_filled = is_filled
    rehearse_step(ahead.ops, model)
    called = {
        ahead.Overload.of(kernel, types)
        for kernel in jit.KERNELS.values()
        for types in kernel.overloads
    }
    print(len(called) > 5, set(ahead.overloads_of(found)) ^ called)
"""


def test_a_rehearsal_finds_what_a_step_calls():
    assert python("-c", PROGRAM + COMPARED).stdout == 3 * "True set()\n"


def test_a_model_of_vectors_needs_a_batch():
    model = nf.Encoder(vocab=None, n_inputs=2, n_outputs=1, task="numbers", **SIZES)
    message = "no batch for the model Encoder, expected one, such as compile_kernels"
    refuses(ValueError, message, nf.compile_kernels, model)
    message = "model is the class Encoder, expected Encoder"
    refuses(TypeError, message, nf.compile_kernels, nf.Encoder)
    assert nf.compile_kernels(model, backend="reference") == 0


SHORT = {
    "short": nf.LanguageModel(11, max_len=2, positions="learned", **SIZES),
    "two short sides": nf.Transformer(11, 11, max_len=3, **SIZES | {"n_layers": (2, 1)}),
    "one id": nf.LanguageModel(1, pad_id=0, **SIZES),
}


@pytest.mark.parametrize("name", SHORT)
def test_no_model_is_refused_by_the_command_that_trains_it(name):
    compile_once(nf.Trainer(SHORT[name], nf.Adam(0.1)), progress=False)


def test_a_frozen_layer_needs_no_other_kernels():
    model = nf.LanguageModel(11, **SIZES | {"n_layers": 2})
    nf.compile_kernels(model, frozen=["decoder.1"], progress=False)


def test_a_process_has_this_npformer_and_no_other(tmp_path, monkeypatch):
    (tmp_path / "npformer.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert ahead.start_python("import npformer.cpu").wait() == 0
