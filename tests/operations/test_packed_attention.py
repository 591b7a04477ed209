"""Attention on packed projections.

The reference runs the function that people read, kernels know settings.
"""

import sys
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import refuses
from results import EVERY_KERNEL, normal

import npformer as nf
from npformer import cpu, reference as npf
from npformer.models.initialization import Initializer, LayerShapes
from npformer.operations.settings import AttentionSettings, LayerSettings


def functions_of_a_step(backend):
    """The files of the math that a step of training runs, and the names of their functions."""
    model = nf.Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=16, dropout=0.1)
    trainer = nf.Trainer(model, nf.Adam(1e-3), backend=backend, n_shards=1)  # in this thread
    src, tgt = np.random.default_rng(0).integers(3, 11, (2, 4, 6))
    tgt[:, 0] = 1  # the begin token
    called = set()

    def see(frame, event, _):
        folder, _, file = frame.f_code.co_filename.replace("\\", "/").rpartition("/")
        if event == "call" and folder.endswith("npformer/reference/math"):
            called.add((file, frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        trainer.step(src, tgt)
    finally:
        sys.setprofile(before)
    return called


def test_a_step_on_the_reference_runs_the_attention_that_people_read():
    called = functions_of_a_step("reference")
    assert {("attention.py", "attention"), ("attention.py", "attention_backward")} <= called
    assert not [name for file, name in called if file == "flash_attention.py"]


# An option that a kernel does not know.


@dataclass(frozen=True)
class WithAnotherField(AttentionSettings):
    """As if an option of attention had been added in the reference, and nowhere else."""

    is_odd: bool = False
    layer_options = MappingProxyType({})  # which the operation would refuse


@EVERY_KERNEL
@pytest.mark.parametrize("is_odd", [False, True])
def test_a_kernel_leaves_settings_that_it_does_not_know_to_the_reference(ops, is_odd):
    x = normal(2, 3, 12, dtype="float32")
    q = x[..., :4]
    kv = x[..., 4:]
    settings = WithAnotherField(2, is_odd=is_odd)
    with nf.explain() as calls:
        saved = ops.self_attention(x, settings)
        ops.self_attention_backward(saved[0], x, *saved, settings)
        saved = ops.cross_attention(q, kv, settings)
        ops.cross_attention_backward(saved[0], q, kv, *saved, settings)
        ops.cached_attention(q[:, 0], kv[0], np.array([[0, 1], [1, 2]]), settings)
    why = "no kernel with is_odd=True" if is_odd else ""
    assert [call.why for call in calls] == [why] * 5


@pytest.mark.skipif("stack_step" not in cpu.ops.hooks, reason="no JIT, no step")
@pytest.mark.parametrize("is_odd", [False, True])
def test_the_step_of_decoding_is_not_used_with_a_setting_that_it_does_not_know(is_odd):
    layer = Initializer(seed=0, dtype="float32").encoder_layer(LayerShapes(d_model=8, d_ff=16))
    settings = LayerSettings(WithAnotherField(2, is_odd=is_odd))
    step = cpu.ops.hooks["stack_step"]([layer], settings, False, 1, 8)
    assert (step is None) == is_odd


def test_a_kernel_of_single_heads_leaves_options_that_it_does_not_know_to_the_reference():
    ops = npf.Ops("a test", dtypes="float32 float64")
    arrays = {name: normal(3, 2) for name in "qkv"}

    @ops.kernel_of(npf.attention, knows="causal")
    def attention(q, k, v, keep_mask, bias, options, dropout_key):
        return options.causal, options.scale

    with nf.explain() as calls:
        assert ops.attention(**arrays, causal=True) == (True, None)
        out, _ = ops.attention(**arrays, causal=True, scale=0.5)
    assert [call.why for call in calls] == ["", "no kernel with scale=0.5"]
    assert_array_equal(out, npf.attention(**arrays, causal=True, scale=0.5)[0])


def test_a_kernel_says_which_options_it_knows():
    message = "self_attention: knows='', expected some of causal, scale, dropout_rate"
    refuses(TypeError, message, cpu.ops.kernel_of, npf.self_attention)
    message = "relu: knows='scale', expected none, as the operation has no record"
    refuses(TypeError, message, cpu.ops.kernel_of, npf.relu, knows="scale")
    message = "attention: knows='sofcap', expected some of causal, scale, dropout_rate, softcap"
    refuses(TypeError, message, cpu.ops.kernel_of, npf.attention, knows="sofcap")


def test_a_kernel_names_arrays_that_the_operation_has():
    expected = "linear: as_it_lies or without has 'biased', expected some of x, weight, bias"
    refuses(TypeError, expected, cpu.ops.kernel_of, npf.linear, without="biased")
