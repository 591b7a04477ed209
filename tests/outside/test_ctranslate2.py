"""CTranslate2 translates with an exported model as npformer does."""

from functools import partial

import numpy as np
import pytest
from corpus import trained_translator
from promises import params_of
from refusals import refuses

from npformer.commands import export as command

from npformer import Recurrent, Transformer, beam_search
from npformer.pretrained.ctranslate2 import check, export
from npformer.tokens.marks import mark, unmark

V, SIZES = 29, {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_layers": (2, 1), "max_len": 40}
NAMES = ["<pad>", "<s>", "</s>", "<unk>", *(f"word {i}" for i in range(4, V))]
POST = {"norm": "post"}
MODELS = {
    "pre-norm": {},
    "post-norm, as Marian": {**POST, "positions": "sinusoidal_concatenated", "pad_id": V - 2},
    "post-norm, as PyTorch": {**POST, "final_norm": True, "activation": "gelu", "n_layers": 2},
    "tied": {"tie_embeddings": True, "final_norm": False, "activation": "gelu_erf", "bias": False},
    "as Llama": {"activation": "swiglu", "norm_type": "rms_norm", "scale_embeddings": False},
    "learned positions": {"positions": "learned", "eps": 0.05},
    "RMS": {"norm_type": "rms_norm", "eps": 0.05, "dtype": "float64"},
}


def translator_of(folder):
    ctranslate2 = pytest.importorskip("ctranslate2")
    options = {"device": "cpu", "compute_type": "float32", "intra_threads": 1}
    return ctranslate2.Translator(str(folder), **options)


@pytest.mark.parametrize("settings", MODELS.values(), ids=list(MODELS))
def test_it_finds_the_same_translations_with_the_same_scores(tmp_path, settings):
    pytest.importorskip("ctranslate2")
    model = Transformer(V, V, **{**SIZES, **settings})
    pad_id = model.pad_id
    bos_id = V - 1 if pad_id else 1  # the last, as that of Marian
    params = params_of(model)
    params["output"]["bias"][2] += 2.5  # so that translations end
    # npformer forbids padding without counting it as improbable
    params["output"]["bias"][pad_id] = -1e9
    export(tmp_path / "new", model, params, NAMES, NAMES, bos_id=bos_id, eos_id=2)

    rng = np.random.default_rng(0)
    words = [rng.integers(4, V - 2, n) for n in range(1, 25)]
    sources = [[NAMES[i] for i in row] for row in words]
    src = np.array([[*row, 2, *[pad_id] * (24 - len(row))] for row in words])
    translate = partial(translator_of(tmp_path / "new").translate_batch, sources)
    limits = {"max_decoding_length": 12, "min_decoding_length": 0, "return_scores": True}
    options = {"bos_id": bos_id, "eos_id": 2, "max_len": 12}
    found_lengths = set()
    for beam_size in (1, 4):
        ours = [best for [best] in beam_search(model, params, src, beam_size=beam_size, **options)]
        for best, theirs in zip(ours, translate(beam_size=beam_size, **limits), strict=True):
            assert [NAMES[i] for i in best.tokens if i != 2] == theirs.hypotheses[0]
            if best.tokens[-1] == 2:
                assert theirs.scores[0] == pytest.approx(best.score, abs=2e-5)
                found_lengths.add(len(best.tokens))
    assert len(found_lengths) > 1


def test_a_trained_model_is_exported_by_the_command(tmp_path, capsys):
    pytest.importorskip("ctranslate2")
    sentencepiece = pytest.importorskip("sentencepiece")
    translator = trained_translator(200, 100)
    lines = ["The old man eats.", "a horse", "it's"]
    translator.save(tmp_path / "model.safetensors")
    folder = tmp_path / "exported"
    assert command.main(["--model", str(tmp_path / "model.safetensors"), "--to", str(folder)]) == 0
    assert str(folder) in capsys.readouterr().out

    kind = sentencepiece.SentencePieceProcessor
    source, target = (kind(f"{folder}/{side}.spm") for side in ("source", "target"))
    sources = [source.encode(mark(line), out_type=str) for line in lines]
    for beam_size in (1, 4):
        ours = list(translator.translate(lines, beam_size=beam_size))
        options = {"beam_size": beam_size, "min_decoding_length": 0}
        found = translator_of(folder).translate_batch(sources, **options)
        assert [unmark(target.decode(each.hypotheses[0])) for each in found] == ours
        assert len({*ours, ""}) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_kv_heads": 1}, "n_kv_heads=1 cannot be exported, expected None"),
        ({"window": 3}, "window=3 cannot be exported, expected None"),
        ({"positions": "rotary"}, "positions='rotary' cannot be exported, expected 'sinus"),
        ({"n_layers": (0, 1)},
         r"n_layers=\(0, 1\) cannot be exported, expected at least one in each stack"),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed_is_refused(settings, message):
    refuses(ValueError, message, check, Transformer(V, V, **SIZES | settings), NAMES, NAMES)


def test_another_model_and_names_that_do_not_fit_are_refused():
    other = "a Recurrent cannot be exported to CTranslate2, expected a Transformer"
    refuses(ValueError, other, check, Recurrent(V, V, 8), NAMES, NAMES)
    model = Transformer(V, V, **SIZES)
    few = "source_tokens are 28, 28 of them different, expected a name for each of 29"
    refuses(ValueError, few, check, model, NAMES[1:], NAMES)
    twice = "source_tokens are 29, 28 of them different, expected a name"
    refuses(ValueError, twice, check, model, [*NAMES[1:], "<s>"], NAMES)
