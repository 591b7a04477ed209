"""What every model with an encoder and a decoder promises, on each backend.

``tests/promises.py`` says what.
"""

from dataclasses import replace

import promises
import pytest
from promises import SRC, TGT, params_of

from npformer import ByteNet, Recurrent, Transformer

SIZES = {"d_model": 14, "n_heads": 2, "n_layers": (2, 3), "d_ff": 17}
MODELS: dict[str, Transformer | ByteNet | Recurrent] = {}
for norm in ("pre", "post"):
    MODELS[f"{norm}-norm"] = Transformer(13, 11, **SIZES, norm=norm, dtype="float64")
MODELS["ByteNet"] = ByteNet(13, 11, 14, n_sets=1, dilations=(1, 2, 4), dtype="float64")
OF_RECURRENT: dict[str | None, dict] = {
    None: {"bidirectional": False},
    "dot": {"cell": "lstm"},
    "general": {},
    "additive": {"cell": "lstm", "bidirectional": False},
}
RECURRENT = {"d_model": 14, "dropout": 0.1, "dtype": "float64"}
for attention, options in OF_RECURRENT.items():
    model = Recurrent(13, 11, attention=attention, **RECURRENT, **options)
    MODELS[f"recurrent, {attention}"] = model
PROMISES = [
    promises.assert_the_decoder_sees_the_whole_source,
    promises.assert_padding_columns_change_nothing,
    promises.assert_nan_and_infinity_in_the_embedding_of_the_padding_change_nothing,
    promises.assert_rows_do_not_see_each_other,
    promises.assert_all_ways_of_decoding_agree,
    promises.assert_dropout_is_off_without_a_key_and_repeats_with_one,
    promises.assert_nothing_to_count_is_loss_zero_gradient_zero,
    promises.assert_a_source_without_words_is_finite_and_leaves_the_encoder_alone,
]
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
pytestmark = pytest.mark.usefixtures("default_backend")


@each_model
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_model_keeps_its_promise(model, promise):
    promise(model, params_of(model), SRC, TGT)


@each_model
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_leak_probe_the_past_does_not_see_the_future(model, dtype):
    model = replace(model, dtype=dtype)
    promises.assert_the_past_does_not_see_the_future(model, model.init(0))
