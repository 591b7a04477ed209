"""A program may let NumPy raise FloatingPointError.

npformer computes the same as without, where nothing is wrong.
"""

import numpy as np
import pytest
from results import run, with_half_precision

from npformer import (
    SGD,
    AdamW,
    ByteNet,
    Encoder,
    LanguageModel,
    ParameterAverage,
    Recurrent,
    SequenceAutoencoder,
    Trainer,
    Transformer,
    beam_search,
    cpu,
    diagnose,
    greedy_decode,
    log_probability,
    quantize,
    reference,
    tree,
)
from npformer.arrays import underflow_is_zero
from npformer.gradients.cases import CASES
from npformer.gradients.drawing import cast
from npformer.models import LowRank
from npformer.training import average

SMALL = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32}
LLAMA = {"positions": "rotary", "n_kv_heads": 1, "norm_type": "rms_norm", "bias": False}
LLAMA |= {"activation": "swiglu"}
GPT_2 = {"positions": "learned", "activation": "gelu", "tie_embeddings": True, "max_len": 20}
BERT = {"norm": "post", "activation": "gelu_erf", "task": "classes", "n_outputs": 3}
RNG = np.random.default_rng(0)
SRC = RNG.integers(3, 50, (4, 7))
TGT = np.pad(SRC, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 2)))
CLASSES = np.array([0, 1, 2, 0])
IDS = {"bos_id": 1, "eos_id": 2, "max_len": 6}
# a model, its batch, and how it decodes, if it does
TRANSLATES = (SRC, TGT), IDS
WRITES = (SRC,), {"max_len": 12}
MODELS: dict[str, tuple] = {
    "Transformer": (Transformer(50, 50, **SMALL), *TRANSLATES),
    "Llama": (LanguageModel(50, **LLAMA, **SMALL), *WRITES),
    "GPT-2": (LanguageModel(50, **GPT_2, **SMALL), *WRITES),
    "BERT": (Encoder(50, **BERT, **SMALL), (SRC, CLASSES), None),
    "GRU": (Recurrent(50, 50, d_model=16), *TRANSLATES),
    "LSTM": (Recurrent(50, 50, d_model=16, cell="lstm", attention="additive"), *TRANSLATES),
    "ByteNet": (ByteNet(50, 50, d_model=16, n_sets=1, dilations=(1, 4)), *TRANSLATES),
    "autoencoder": (SequenceAutoencoder(50, d_model=16, code_size=4), (TGT, TGT), None),
}
# of parameters: exponentials, or squares and products become subnormal numbers or 0
SIZES = [30, 1e-22]
FACTORS = {"float16": [1, 1e-6], "float32": [1, 1e-15, 1e-37]}  # of the arguments of an operation


def with_errors_and_without(compute):
    """What a function returns, twice."""
    with np.errstate(all="raise"):
        found = compute()
    with np.errstate(all="ignore"):
        return found, compute()


def scaled(arguments, factor):
    """The arguments of an operation, with arrays of floats multiplied by a number."""
    if isinstance(arguments, dict):
        return {name: scaled(x, factor) for name, x in arguments.items()}
    if isinstance(arguments, tuple):
        return tuple(scaled(x, factor) for x in arguments)
    if isinstance(arguments, np.ndarray) and arguments.dtype.kind == "f":
        return arguments * factor
    return arguments


CALLS = [(case, dtype) for case in CASES for dtype in with_half_precision(case)]


@pytest.mark.parametrize(("case", "dtype"), [call for call in CALLS if call[1] in FACTORS], ids=str)
@pytest.mark.parametrize("ops", [reference.ops, cpu.ops], ids=["reference", "cpu"])
def test_operations(ops, case, dtype):
    for name in case.names:
        factors = list(FACTORS[dtype])
        if dtype == "float32" and name == case.operation:
            factors.append(30)  # the results of a backward pass may not fit
        for factor in factors:
            arguments = scaled(case.arguments_of(name), factor)

            def compute(name=name, arguments=arguments):
                with np.errstate(under="ignore"):
                    own = cast(arguments, dtype)  # an update writes to its arguments
                return run(ops, name, own)

            for x, expected in zip(*with_errors_and_without(compute), strict=True):
                np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_models(backend, name, size):
    model, batch, options = MODELS[name]
    with np.errstate(under="ignore"):
        params = tree.map_leaves(lambda x: x * np.float32(size), model.init(0))

    def trained():
        trainer = Trainer(model, AdamW(0.01), params=params, backend=backend, clip_norm=1.0)
        mean = ParameterAverage(first_step=1)
        for _ in range(3):
            trainer.step(*batch)
            mean(trainer, trainer.last)
        flat, _ = tree.flatten(average([trainer.params, mean.params]))
        return flat

    def decoded():
        own = {**options, "backend": backend}
        yield greedy_decode(model, params, SRC, **own)
        yield greedy_decode(model, quantize(params), SRC, **own)
        if options is IDS:
            yield beam_search(model, params, SRC, beam_size=3, **own)
            yield log_probability(model, params, SRC, TGT, backend=backend)

    np.testing.assert_array_equal(*with_errors_and_without(trained))
    if options:
        with_errors, without = with_errors_and_without(lambda: list(decoded()))
        assert repr(with_errors) == repr(without)


def test_adapters_and_a_diagnosis():
    model, batch, _ = MODELS["Llama"]
    params = model.init(0)
    adapted = LowRank(model, params, rank=2)

    def compute():
        trainer = Trainer(adapted, SGD(0.1, momentum=0.9))
        losses = [trainer.step(*batch) for _ in range(3)]
        return losses, diagnose(model, params, batch, quick=True).names

    with_errors, without = with_errors_and_without(compute)
    assert with_errors == without


def test_an_underflow_is_zero_whatever_a_program_has_set():
    with np.errstate(all="raise"):
        for context in (underflow_is_zero(), underflow_is_zero(over="ignore")):
            with context:
                assert np.float32(1e-30) * np.float32(1e-30) == 0
        with pytest.raises(FloatingPointError), underflow_is_zero():
            np.float32(1e30) * np.float32(1e30)
