"""What a backend accepts as a kernel, and what its kernels may call."""

import copy
import functools
import re
from functools import partial
from pathlib import Path
from typing import get_args

import numba
import numpy as np
import pytest
from refusals import refuses

import npformer
from npformer import LanguageModel, cpu, reference
from npformer.cpu.draws import mix32
from npformer.cpu.kernels import activations
from npformer.cpu.scalar import bits_of, like, of_bits
from npformer.operations.backend import Backend
from npformer.reference.math.activations import ACTIVATIONS, INPUTS, Activation

MODEL = LanguageModel(7, d_model=8, n_heads=2, n_layers=1, d_ff=8)
PARAMS = MODEL.init()


def test_a_kernel_with_two_parameters_swapped_is_refused():
    backend = Backend("mine", np.ndarray, dtypes="float32")
    expected = (
        "the kernel of linear in the backend mine has the parameters (weight, x, bias), "
        "expected (x, weight, bias)"
    )
    with pytest.raises(TypeError, match=re.escape(expected)):

        @backend.kernel_of(reference.linear)
        def linear(weight, x, bias):
            return x @ weight


def test_what_replaces_an_operation_has_its_parameters():
    expected = "what replaces relu in the backend reference has the parameters (y), expected (x)"
    with pytest.raises(TypeError, match=re.escape(expected)):
        reference.ops.replaced(relu=lambda y: y)
    refused = partial(refuses, TypeError)
    refused("^relu is a int, expected a callable$", reference.ops.replaced, relu=3)
    refused("^relu is a NoneType, expected a callable$", reference.ops.replaced, relu=None)
    # these do not tell their parameters
    ops = reference.ops.replaced(linear=lambda *args: args, relu=iter, tanh=np.tanh)
    assert ops.linear(1, 2) == (1, 2)
    assert ops.tanh(0.0) == 0.0
    message = "what replaces relu in the backend reference has the parameters"
    refused(message, reference.ops.replaced, relu=lambda **options: options)


def test_a_kernel_replaces_the_reference_for_the_arrays_it_takes():
    backend = Backend("mine", np.ndarray, dtypes="float32")

    @backend.kernel_of(reference.softmax)
    def softmax(x, axis):
        return x + axis

    assert softmax(np.zeros(2, np.float32), axis=0).tolist() == [0, 0]
    assert softmax(np.zeros(2), axis=0).tolist() == [0.5, 0.5]


def test_a_subclass_has_the_operations_of_its_bases_and_its_own():
    class Mine(reference.Ops):
        relu = staticmethod(abs)
        twice = staticmethod(lambda x: 2 * x)

    assert Mine.names() == sorted([*reference.Ops.names(), "twice"])
    mine = Mine("mine").replaced(twice=reference.silu)
    assert mine.relu(-3.0) == 3.0
    assert mine.twice is reference.silu


def logits(ops):
    """Let a small model, always the same, compute with these operations."""
    MODEL.logits(PARAMS, np.array([[1, 2]]), backend=ops)


def test_a_model_calls_what_replaces_an_operation_also_if_it_wraps_it():
    called = []

    @functools.wraps(reference.linear)
    def noting(*args, **options):
        called.append(args)
        return reference.linear(*args, **options)

    logits(reference.ops.replaced(linear=noting))
    assert len(called) == 2  # the projection of the layer, and that to the words


def test_a_model_calls_an_operation_that_was_set_in_a_copy_of_a_backend_in_use(monkeypatch):
    called = []
    logits(reference.ops)
    changed = copy.copy(reference.ops)
    for ops, set_attribute in ((changed, setattr), (reference.ops, monkeypatch.setattr)):
        set_attribute(ops, "linear", lambda *args: called.append(args) or reference.linear(*args))
        logits(ops)
    monkeypatch.undo()
    logits(reference.ops)
    assert len(called) == 4


def test_what_is_replaced_has_no_kernel_any_more():
    changed = cpu.ops.replaced(softmax=reference.softmax)
    assert cpu.ops.kernels.keys() - changed.kernels.keys() == {"softmax"}


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.parametrize(
    "function, wrong",
    [(like, (3, 0.5)), (mix32, (0.5,)), (bits_of, (0.5,)), (of_bits, (3,))],
    ids=["like an int", "mix32 of a float", "bits_of 64 bits", "of_bits of 64 bits"],
)
def test_no_kernel_is_compiled_that_calls_a_lowered_function_with_wrong_types(function, wrong):
    """It would compute nonsense: ``like(3, 0.5)`` would be 0."""
    kernel = numba.njit(lambda *arguments: function(*arguments))
    refuses(Exception, "No definition for lowering", kernel, *wrong)


def test_kernels_name_activations_in_the_order_of_the_reference():
    names = list(ACTIVATIONS)
    assert list(get_args(Activation)) == list(INPUTS) == names
    kinds = [type(kind).__name__.lower() for kind in activations.KINDS.values()]
    assert kinds == [name.replace("_", "") for name in names]
    header = Path(npformer.__file__).parent / "gpu" / "cuda" / "activations.cuh"
    [enumerated] = re.findall(r"enum \{ (.*) \};", header.read_text("utf-8"))
    assert enumerated.split(", ") == [name.upper() for name in names if INPUTS[name] == 1]
