"""Attention on packed projections: a training on the reference computes it by the function that people read."""

import sys

import numpy as np

import npformer as nf


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
