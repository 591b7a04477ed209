"""What every public name promises, and what importing the package costs."""

import copy
import importlib
import inspect
import math
import pickle
import pkgutil
import pydoc
import re
import sys
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from programs import python
from refusals import refuses

import npformer
from npformer import reference
from npformer.operations.explain import Call, Calls

MODULES = sorted(name for name in npformer.__all__ if inspect.ismodule(getattr(npformer, name)))


def test_dir_has_the_names_that_type_checkers_know():
    lines = Path(npformer.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    known = set(re.findall(r"\w+ as (\w+)", lines))
    known.update(re.findall(r"^(\w+): ", lines, re.MULTILINE))
    assert dir(npformer) == sorted(known)
    assert {*npformer.__all__} == known - {"__version__", "cpu", "gpu"}
    packages = {file.name for file in pkgutil.iter_modules(npformer.__path__)}
    own = {"arrays", "backends", "checks", "config", "errors", "extras", "files", "kernels"}
    own |= {"operations", "progress", "quantized", "runtime"}
    own |= {"__main__", "commands", "exercises"}  # of the command
    assert {*MODULES, "cpu", "gpu"} == packages - own


def test_help_begins_with_what_to_call():
    text = pydoc.render_doc(npformer, renderer=pydoc.plaintext)
    begin, _, _ = text.partition("PACKAGE CONTENTS")
    names = "nf.Trainer(", "nf.sample", "nf.pretrained.load(", "One letter for each"
    places = [begin.index(name) for name in names]
    assert places == sorted(places)
    assert "imported when" not in begin


@pytest.mark.parametrize("name", sorted({*npformer.__all__} - {*MODULES}))
def test_every_public_name_is_there_and_not_hidden_by_its_module(name):
    value = getattr(npformer, name)
    message = f"npformer.{name} is {value!r}: a module has taken the place of the function"
    assert callable(value), message
    assert value.__doc__, f"npformer.{name} has no docstring"
    assert value.__doc__ == getattr(reference, name, value).__doc__


PACKAGES = [npformer, npformer.text, npformer.tokens, npformer.decoding]
PACKAGES += [npformer.layers, npformer.models, npformer.training]
CLASSES: set[type] = set()
for package in PACKAGES:
    values = [getattr(package, name) for name in package.__all__]
    CLASSES.update(filter(inspect.isclass, values))


@pytest.mark.parametrize("cls", sorted(CLASSES, key=lambda x: x.__name__), ids=lambda x: x.__name__)
def test_a_constructor_takes_its_arguments_in_the_order_of_its_docstring(cls):
    doc = inspect.getdoc(cls)
    _, _, section = doc.partition("Parameters\n----------\n")
    section, *_ = re.split(r"\n\n(?=\w+\n---)", section)
    told = []
    for line in re.findall(r"^\S.*", section, re.MULTILINE):
        names, _, _ = line.partition(" : ")
        told += names.lstrip("*").split(", ")
    if told:
        parameters = inspect.signature(cls).parameters.values()
        by_position = [x.name for x in parameters if x.kind is x.POSITIONAL_OR_KEYWORD]
        assert told[: len(by_position)] == by_position
        assert sorted(told) == sorted(x.name for x in parameters)
    else:  # results and errors, which nobody makes, and what takes nothing
        takes_nothing = issubclass(cls, (tuple, Exception, npformer.models.EncoderDecoder))
        assert takes_nothing or "Attributes" in doc


def test_an_operation_has_its_backward_pass_beside_it():
    for name in npformer.__all__:
        backward = f"{name}_backward"
        assert backward in npformer.__all__ or not hasattr(reference, backward)
    names = [name for name in {*npformer.__all__} - {*MODULES} if not name.endswith("_backward")]
    assert 40 <= len(names) <= 60


def test_no_name_stands_for_a_module_and_something_else():
    """``import npformer.reference.softmax as m`` must not give a function."""
    names = [file.name for file in pkgutil.walk_packages(npformer.__path__, "npformer.")]
    names = [name for name in names if "gpu" not in name and not name.endswith("__main__")]
    assert len(names) > 150
    for name in names:
        importlib.import_module(name)
    for name in names:
        parent, _, child = name.rpartition(".")
        assert getattr(sys.modules[parent], child) is sys.modules[name], name


OLD_NAMES = {
    "data.Subwords": "tokens.Subwords",
    "data.CopyTask": "text.CopyTask",
    "data.TokenBatches": "text.TokenBatches",
    "language.Characters": "tokens.Characters",
    "language.Writer": "text.Writer",
    "language.LanguageRun": "text.LanguageRun",
    "translation.Translator": "text.Translator",
    "translation.TranslationRun": "text.TranslationRun",
    "language.text.Text": "text.passages.Text",
    "language.text.read_both": "text.lines.read_both",
    "language.text.text_of": "text.lines.text_of",
}
OLD_MODULES = {
    "data.ahead": "text.parallel_text",
    "data.marks": "tokens.marks",
    "data.tokens": "tokens.tokenizers",
    "data.text": "text.passages",
    "language.tokens": "tokens",
    "language.run": "text.language_run",
    "translation.run": "text.translation_run",
    "translation.translator": "text.translator",
}


def test_the_rooms_of_text_have_their_old_paths_too():
    for old, new in (OLD_NAMES | OLD_MODULES).items():
        assert attrgetter(old)(npformer) is pkgutil.resolve_name(f"npformer.{new}"), old
    for old, new in OLD_MODULES.items():
        module = importlib.import_module(f"npformer.{new}")
        assert importlib.import_module(f"npformer.{old}") is module, old
    for room in ("data", "language", "translation"):
        names = [old for old in OLD_NAMES if old.startswith(f"{room}.") and old.count(".") == 1]
        assert {old.removeprefix(f"{room}.") for old in names} <= {*getattr(npformer, room).__all__}


def test_operations_are_computed_by_the_backend_of_their_arrays():
    x = np.ones((2, 3), "float32")
    with npformer.explain() as calls:
        npformer.attention(x, x, x)
        npformer.softmax(x.astype("float16"))
        npformer.softmax(x + 0j)
        reference.softmax(x)
    assert [call.backend for call in calls] == ["cpu", "cpu", "cpu", "reference"]
    assert [call.by for call in calls] == ["kernel", "kernel", "reference", "reference"]
    assert inspect.signature(npformer.softmax) == inspect.signature(reference.softmax)
    assert npformer.softmax.__doc__ == reference.softmax.__doc__


def test_a_call_lists_what_is_no_array_and_how_arrays_lie():
    x = np.ones((2, 3), "float32")
    weight = np.ones((4, 3), "float32").T
    residual = np.ones((2, 4), "float32")
    options = {"dropout_rate": 0.5, "dropout_key": 1}
    with npformer.explain() as calls:
        reference.linear_dropout_residual(x, weight, None, residual, **options)
        npformer.linear(x, weight.copy())
    dropout, linear = calls
    assert dropout.options == options
    assert dropout.by_columns == ("weight",)
    assert linear.options == {}
    assert linear.by_columns == ()


def test_calls_are_shown_as_a_table_and_in_a_notebook_as_one_of_html():
    call = Call("f", "cpu", "kernel", "", {"x": (2, 3)}, "float32", 0.001, 3_000_000, 24)
    calls = Calls([call, call, call._replace(by="reference", why="a < b", seconds=0.003, flops=0)])
    assert repr(calls) == (
        "calls        ms  share         rate  computed by  operation\n"
        "    1     3.000  60.0%     0.0 GB/s  reference    f float32: x 2×3 [a < b]\n"
        "    2     2.000  40.0%  3.0 GFLOP/s  cpu kernel   f float32: x 2×3\n"
        "3 calls, 5.0 ms (summed over threads)"
    )
    assert repr(calls[:2] + calls[2:]) == repr(calls)
    html = calls._repr_html_()
    cells = re.findall(r"<t[dh] .*?>(.*?)</t[dh]>", html)
    assert cells[6:10] == ["1", "3.000", "60.0%", "0.0 GB/s"]
    assert cells[10:12] == ["reference", "f float32: x 2×3 [a &lt; b]"]
    assert len(cells) == 18
    assert html.count("<tr>") == 3
    assert html.count("3 calls, 5.0 ms") == 1
    # by a coarse clock
    assert "\n    1     0.000   0.0%  0.0 GFLOP/s" in repr(Calls([call._replace(seconds=0.0)]))


@pytest.mark.parametrize(
    "name", [name for name in npformer.__all__ if inspect.isfunction(getattr(npformer, name))]
)
def test_a_function_can_be_pickled_by_its_name_and_is_copied_as_itself(name):
    function = getattr(npformer, name)
    assert pickle.loads(pickle.dumps(function)) is function is copy.deepcopy(function)
    assert f"{name}(" in pydoc.render_doc(function, renderer=pydoc.plaintext)


def test_every_operation_of_the_math_is_in_the_type_of_the_backends():
    files = pkgutil.iter_modules(reference.math.__path__, "npformer.reference.math.")
    functions = {}
    for file in files:
        names = vars(importlib.import_module(file.name))
        functions |= {name: x for name, x in names.items() if inspect.isfunction(x)}
    operations = {name: x for name, x in functions.items() if hasattr(x, "record")}
    assert {*operations} == {*reference.Ops.names()}
    for name, function in operations.items():
        assert getattr(reference, name) is getattr(reference.ops, name)
        assert getattr(reference, name).record is function.record


@pytest.mark.parametrize(
    "name", [name for name in reference.Ops.names() if name.endswith("_backward")]
)
def test_every_backward_takes_the_upstream_gradient_first(name):
    first, *_ = inspect.signature(getattr(reference, name)).parameters
    assert first in ("dy", "dout", "dparts", "dscores", "dstates")


def test_import_needs_numpy_and_few_modules_of_python():
    imported = "import sys, numpy; before = {*sys.modules}; import npformer"
    code = f"{imported}; print(*{{*sys.modules}} - before)"
    modules = run_python(code).split()
    roots = {name.partition(".")[0] for name in modules}
    assert roots - sys.stdlib_module_names == {"npformer"}
    # each module takes a moment
    assert len([name for name in modules if not name.startswith("npformer")]) <= 50


def test_several_threads_import_it_at_once():
    code = """
# Python itself fails at times if two threads are the first to import a part of importlib
import importlib.util
import threading
names = "backends", "exercises", "models", "reference", "training", "translation"
modules = "npformer", *("npformer." + name for name in names)
begin, loaded = threading.Barrier(len(modules)), []
def load(module):
    begin.wait()
    exec(f"import {module}; npformer.Trainer, npformer.attention")
    loaded.append(module)
threads = [threading.Thread(target=load, args=(module,)) for module in modules]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(loaded))
"""
    assert run_python(code) == "7"


def test_everything_works_where_numba_and_the_extras_are_not_installed():
    code = """
import sys
for missing in ("numba", "cupy", "matplotlib", "tqdm"):
    sys.modules[missing] = None  # importing it raises ImportError
import numpy as np, npformer
model = npformer.Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
trainer = npformer.Trainer(model, npformer.Adam(0.01))
task = npformer.CopyTask()
trainer.fit((task.batch(i, 3) for i in range(2)), 2)
print(trainer.n_steps, trainer.ops.name)
"""
    assert run_python(code) == "2 reference"


def run_python(code):
    return python("-c", code).stdout.strip()


def test_everything_works_without_docstrings():
    code = """
import npformer as nf
_, ids = nf.CopyTask().batch(0, 32)
model = nf.LanguageModel(11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
trainer = nf.Trainer(model, nf.Adam(0.01), backend="reference")
trainer.step(ids)
print(trainer.diagnose(ids).not_examined)
"""
    shown = python("-OO", "-c", code).stdout
    assert "not examined, which is no mistake: padding: the model has no pad_id" in shown
    assert "usage: python -m npformer COMMAND" in python("-OO", "-m", "npformer", "--help").stdout


@pytest.mark.parametrize("backend", ["gpu", "tpu", None])
def test_a_backend_that_is_not_there_is_named(backend):
    refuses(ValueError, f"backend={backend!r}.*expected", npformer.get_backend, backend)


def test_a_module_is_a_backend():
    for backend in (reference, reference.ops):
        assert npformer.get_backend(backend) is reference.ops
    message = r"backend=<module 'math'.* expected one of .*, or what get_backend returns"
    refuses(ValueError, message, npformer.get_backend, math)


def test_auto_is_cpu_and_without_numba_the_reference_which_is_said_once():
    assert repr(npformer.get_backend("auto")) == "<the backend cpu>"
    code = """
import sys, warnings
sys.modules["numba"] = None
import npformer
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    npformer.softmax(npformer.causal_mask(2) + 0.0)
    print(npformer.get_backend("auto").name, len(said), said[0].filename, said[0].lineno)
try:
    npformer.get_backend("cpu")
except ValueError as error:
    print(error)
"""
    chosen, error = run_python(code).splitlines()
    assert chosen == "reference 1 <string> 7"  # the line that calls softmax
    assert error.startswith("backend='cpu' needs numba, expected")


def test_a_setting_that_numba_refuses_is_named():
    code = """
import os
os.environ["NUMBA_NUM_THREADS"] = "0"
import npformer
print(npformer.config.read_config()["advice"][-1]["do"])
npformer.get_backend("cpu")
"""
    done = python("-W", "ignore", "-c", code, code=1)
    assert done.stdout == "unset NUMBA_NUM_THREADS\n"
    assert "UserError: backend='cpu' needs numba, " in done.stderr
    assert " must be > 0. Unset or correct NUMBA_NUM_THREADS=0\n" in done.stderr


def test_public_names_can_be_imported_from_their_old_places():
    from npformer.files.checkpoint import CheckpointError
    from npformer.pretrained import chat, vectors
    from npformer.runtime.threads import blas_threads
    from npformer.tokens import Subwords
    from npformer.training import checkpoint

    assert checkpoint.CheckpointError is CheckpointError
    for public in (checkpoint.load_checkpoint, blas_threads, Subwords):
        assert callable(public)
    assert inspect.ismodule(chat)
    assert inspect.ismodule(vectors)
