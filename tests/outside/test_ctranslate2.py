"""CTranslate2 translates with an exported model as npformer does."""

import numpy as np
import pytest
from corpus import trained_translator
from promises import params_of
from refusals import refuses
from tables import each_of

from npformer.commands import export as command

from npformer import Recurrent, Transformer, beam_search
from npformer.pretrained.ctranslate2 import check, export
from npformer.tokens.marks import mark, unmark

V = 29
SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_layers": (2, 1), "max_len": 40}
NAMES = ["<pad>", "<s>", "</s>", "<unk>", *(f"word {i}" for i in range(4, V))]
MODELS = {
    "pre-norm": {},
    "post-norm, as Marian": {
        "norm": "post",
        "positions": "sinusoidal_concatenated",
        "pad_id": V - 2,
    },
    "post-norm, as PyTorch": {
        "norm": "post",
        "final_norm": True,
        "activation": "gelu",
        "n_layers": 2,
    },
    "tied": {"tie_embeddings": True, "final_norm": False, "activation": "gelu_erf", "bias": False},
    "as Llama": {"activation": "swiglu", "norm_type": "rms_norm", "scale_embeddings": False},
    "learned positions": {"positions": "learned", "eps": 0.05},
    "RMS": {"norm_type": "rms_norm", "eps": 0.05, "dtype": "float64"},
}


def translator_of(folder):
    ctranslate2 = pytest.importorskip("ctranslate2")
    options = {"device": "cpu", "compute_type": "float32", "intra_threads": 1}
    return ctranslate2.Translator(str(folder), **options)


@each_of("settings", MODELS)
def test_it_finds_the_same_translations_with_the_same_scores(tmp_path, settings):
    pytest.importorskip("ctranslate2")
    model = Transformer(V, V, **SIZES | settings)
    pad_id = model.pad_id
    bos_id = V - 1 if pad_id else 1  # the last, as that of Marian
    params = params_of(model)
    bias = params["output"]["bias"]
    bias[2] += 2.5  # so that translations end
    bias[pad_id] = -1e9  # npformer forbids padding without counting it as improbable
    export(tmp_path / "new", model, params, NAMES, NAMES, bos_id=bos_id, eos_id=2)

    rng = np.random.default_rng(0)
    words = [rng.integers(4, V - 2, n).tolist() for n in range(1, 25)]
    sources = [[NAMES[i] for i in row] for row in words]
    src = np.full((24, 25), pad_id)
    for row, ids in zip(src, words, strict=True):
        row[: len(ids) + 1] = [*ids, 2]
    translate = translator_of(tmp_path / "new").translate_batch
    limits = {"max_decoding_length": 12, "min_decoding_length": 0, "return_scores": True}
    options = {"bos_id": bos_id, "eos_id": 2, "max_len": 12}
    lengths = set()
    for beam_size in (1, 4):
        ours = beam_search(model, params, src, beam_size=beam_size, **options)
        theirs = translate(sources, beam_size=beam_size, **limits)
        for [best], result in zip(ours, theirs, strict=True):
            assert [NAMES[i] for i in best.tokens if i != 2] == result.hypotheses[0]
            if best.tokens[-1] == 2:
                assert result.scores[0] == pytest.approx(best.score, abs=2e-5)
                lengths.add(len(best.tokens))
    assert len(lengths) > 1


def test_a_trained_model_is_exported_by_the_command(tmp_path, capsys):
    pytest.importorskip("ctranslate2")
    sentencepiece = pytest.importorskip("sentencepiece")
    translator = trained_translator(200, 100)
    lines = ["The old man eats.", "a horse", "it's"]
    file = tmp_path / "model.safetensors"
    folder = tmp_path / "exported"
    translator.save(file)
    assert command.main(["--model", str(file), "--to", str(folder)]) == 0
    assert str(folder) in capsys.readouterr().out

    source = sentencepiece.SentencePieceProcessor(f"{folder}/source.spm")
    target = sentencepiece.SentencePieceProcessor(f"{folder}/target.spm")
    sources = [source.encode(mark(line), out_type=str) for line in lines]
    for beam_size in (1, 4):
        ours = list(translator.translate(lines, beam_size=beam_size))
        options = {"beam_size": beam_size, "min_decoding_length": 0}
        found = translator_of(folder).translate_batch(sources, **options)
        assert [unmark(target.decode(each.hypotheses[0])) for each in found] == ours
        assert len({*ours, ""}) == 4


def test_what_cannot_be_expressed_is_refused():
    def refused(message, **settings):
        model = Transformer(V, V, **SIZES | settings)
        refuses(ValueError, message, check, model, NAMES, NAMES)

    refused("n_kv_heads=1 cannot be exported, expected None", n_kv_heads=1)
    refused("window=3 cannot be exported, expected None", window=3)
    refused("positions='rotary' cannot be exported, expected 'sinus", positions="rotary")
    no_layers = r"n_layers=\(0, 1\) cannot be exported, expected at least one in each stack"
    refused(no_layers, n_layers=(0, 1))


def test_another_model_and_names_that_do_not_fit_are_refused():
    other = "a Recurrent cannot be exported to CTranslate2, expected a Transformer"
    refuses(ValueError, other, check, Recurrent(V, V, 8), NAMES, NAMES)
    model = Transformer(V, V, **SIZES)
    few = "source_tokens are 28, 28 of them different, expected a name for each of 29"
    refuses(ValueError, few, check, model, NAMES[1:], NAMES)
    twice = "source_tokens are 29, 28 of them different, expected a name"
    refuses(ValueError, twice, check, model, [*NAMES[1:], "<s>"], NAMES)
