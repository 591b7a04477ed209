"""A trained model as an object and as a file, its scores, and trainings that are interrupted."""

import copy
import pickle
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from corpus import SETTINGS, WORDS, sentence_pairs, trained_translator, write_corpus
from programs import environment, python
from trainings import assert_same, outcome, steps_of

from npformer import Transformer, get_backend, reference, tree
from npformer.files.locks import locked
from npformer.models import describe
from npformer.text import TranslationRun, TranslationSettings, Translator, score
from npformer.text.translator import EXTRA_LEN
from npformer.tokens import Subwords
from npformer.tokens.marks import mark
from npformer.training import CheckpointError, load_checkpoint, save_checkpoint
from tests.tools.forgery import rewrite

pytest.importorskip("sentencepiece")
pytest.importorskip("safetensors")
sacrebleu = pytest.importorskip("sacrebleu")
pytest.importorskip("sacremoses")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return str(write_corpus(tmp_path_factory.mktemp("corpus") / "data"))


@pytest.fixture(scope="module")
def translator():
    return trained_translator(400, n_steps=120)


LINES = [source for source, _ in sentence_pairs(30, seed=5)]
COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
}


# ---- Translator ----


def test_its_text_is_short(translator):
    n = tree.count(translator.params)
    assert repr(translator) == f"<Translator with a Transformer, {n:,} parameters, 60 subwords>"
    two = replace(translator, target=Subwords(translator.target.model))
    assert str(two).endswith(" parameters, 60 and 60 subwords>")
    assert repr(two.target) == "<Subwords, 60 pieces>"


@pytest.mark.parametrize("again", COPIES)
@pytest.mark.parametrize("backend", ["auto", "reference", reference, reference.ops], ids=str)
def test_it_can_be_copied_and_pickled(translator, again, backend):
    """Also with a backend, or its package, which cannot be pickled."""
    given = replace(translator, backend=backend)
    other = COPIES[again](given)
    assert repr(other) == repr(given)
    assert other.source is other.target
    assert get_backend(other.backend) is get_backend(backend)
    assert list(other.translate(LINES[:3])) == list(given.translate(LINES[:3]))


def test_it_translates(translator):
    """What the tests below compare is not always the same sentence."""
    translations = list(translator.translate(LINES))
    assert len(set(translations)) > 20
    words = [word for line in translations for word in line.split()]
    assert sum(word in WORDS.values() for word in words) > 0.8 * len(words)


def test_a_loaded_translator_translates_the_same(translator, tmp_path):
    translator.save(tmp_path / "model.safetensors", {"note": 1})
    for path in (tmp_path, str(tmp_path / "model.safetensors")):
        again = Translator.load(path)
        assert again.model == translator.model
        assert list(again.translate(LINES)) == list(translator.translate(LINES))
    assert load_checkpoint(tmp_path / "model.safetensors")[1]["note"] == 1


def test_with_one_beam_translations_are_the_greedy_ones(translator):
    assert list(translator.translate(LINES, beam_size=1)) == translator.greedy(LINES)


def test_the_order_of_the_lines_does_not_change_the_translations(translator):
    order = random.Random(0).sample(range(len(LINES)), len(LINES))
    shuffled = [LINES[i] for i in order]
    for translate in (lambda lines: list(translator.translate(lines)), translator.greedy):
        expected = translate(LINES)
        assert translate(shuffled) == [expected[i] for i in order]


def test_lines_read_ahead_and_batches_change_nothing(translator, monkeypatch):
    expected = list(translator.translate(LINES))
    monkeypatch.setattr("npformer.text.translator.READ_AHEAD", 7)
    monkeypatch.setattr("npformer.text.translator.BATCH_TOKENS", 1)
    assert list(translator.translate(LINES)) == expected


def test_batches_have_as_many_tokens_as_allowed_at_most(translator, monkeypatch):
    sizes = []

    def spy(model, params, src, **options):
        sizes.append(len(src) * (src.shape[1] + EXTRA_LEN))
        return [[2]] * len(src)

    monkeypatch.setattr("npformer.text.translator.greedy_decode", spy)
    monkeypatch.setattr("npformer.text.translator.BATCH_TOKENS", 300)
    translator.greedy(LINES)
    assert 150 < max(sizes) <= 300
    assert len(sizes) < len(LINES) / 2


def test_translations_come_before_all_lines_are_read(translator, monkeypatch):
    monkeypatch.setattr("npformer.text.translator.READ_AHEAD", 2)
    read = []

    def lines():
        for line in LINES:
            read.append(line)
            yield line

    next(translator.translate(lines()))
    assert len(read) == 2


@pytest.mark.parametrize("lines", [["", LINES[0], " ", LINES[1], ""], ["", " "], []])
def test_an_empty_line_stays_empty(translator, lines):
    expected = [next(translator.translate([line])) if line.strip() else "" for line in lines]
    assert list(translator.translate(lines, beam_size=5)) == expected
    assert [not line for line in translator.greedy(lines)] == [not line.strip() for line in lines]


def test_hypotheses_are_as_many_as_wanted_best_first(translator):
    for best in translator.hypotheses(LINES, beam_size=4, n_best=3):
        assert len({hypothesis.tokens for hypothesis in best}) == 3
        scores = [hypothesis.score for hypothesis in best]
        assert scores == sorted(scores, reverse=True)
    assert list(translator.hypotheses([""], n_best=3)) == [[]]


def test_attention_has_a_weight_for_each_pair_of_pieces(translator):
    line = LINES[0]
    [[hypothesis]] = translator.hypotheses([line])
    source, target, layers = translator.attention(line, hypothesis)
    assert "".join(source) == "▁" + mark(line).replace(" ", "▁") + "</s>"
    assert target == translator.target.pieces(hypothesis.tokens)
    assert target[-1] == "</s>"
    assert [layer.shape for layer in layers] == [(2, len(target), len(source))]
    np.testing.assert_allclose(layers[0].sum(axis=-1), 1, rtol=1e-5)


def test_two_vocabularies_are_kept_apart(translator, tmp_path):
    other = Subwords.learn([target for _, target in sentence_pairs(99)], size=45)
    model = type(translator.model)(60, 45, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    Translator(model, model.init(0), translator.source, other).save(tmp_path / "x")
    loaded = Translator.load(tmp_path / "x")
    assert (loaded.source.model, loaded.target.model) == (translator.source.model, other.model)


def test_a_file_that_holds_no_translator_is_refused(tmp_path, translator):
    for facts in ({}, {"model": {}}, {"model": 3}, {"model": [1]}):
        save_checkpoint(tmp_path / "other", {"a": np.zeros(1)}, facts)
        with pytest.raises(CheckpointError, match="other holds no translation model"):
            Translator.load(tmp_path / "other")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(CheckpointError, match="text cannot be read as a checkpoint"):
        Translator.load(tmp_path / "text")


def forged(translator, path, arrays=None, info=None):
    """A file of the translator with other arrays or facts; an array that is None is left out."""
    translator.save(path)
    rewrite(path, arrays, info)
    return path


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model": [1]}, r"the model is described by \[1\], expected a dict"),
        ({"model": {"name": ["Transformer"]}}, "the model is described by .*, expected a dict"),
        (
            {"max_len": 10**12},
            r"max_len=1000000000000 needs 32,000,000,000,000 .*, expected at most 67,108,864",
        ),
        (
            {"n_layers": 10**9},
            "the model has 2000000000 layers, expected at most as many as the 38 arrays",
        ),
        (
            {"d_ff": 10**9},
            "parameter encoder.0.feed_forward.hidden.weight: given shape .*, expected shape",
        ),
        (
            {"src_vocab": 10**15, "tgt_vocab": 10**15},
            "parameter embedding: given shape .*, expected shape",
        ),
        (
            {"d_model": 10**30},
            "the model has a size that no array can have",
        ),
        (
            {"beam": 4},
            r"the Transformer has settings \['beam'\], try a newer npformer, or leave them out; "
            "expected some of",
        ),
        ({"dropout": float("nan")}, "dropout=nan, expected 0 <= dropout < 1"),
    ],
)
def test_a_model_that_the_file_does_not_hold_is_refused_before_it_is_made(
    translator, tmp_path, change, message
):
    facts = change if "model" in change else {"model": describe(translator.model) | change}
    path = forged(translator, tmp_path / "x.safetensors", info=facts)
    with pytest.raises(
        CheckpointError, match=rf"x.safetensors: ({message}).*; try another file"
    ) as caught:
        Translator.load(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"subwords.target": None}, "x.safetensors holds no translation model"),
        (
            {"subwords.target": np.zeros(0, np.uint8)},
            r"the sentencepiece model has no \['pad', 'bos', 'eos'\] piece",
        ),
        ({"subwords.target": np.zeros(9, np.uint8)}, "model is not a sentencepiece model"),
        (
            {"subwords.target": np.zeros(9)},
            r"subwords.target: given float64 of shape \(9,\), expected the bytes",
        ),
        ({"params.a": np.zeros(3, "f")}, "parameter a: given shape"),
        (
            {"params.output.bias": np.zeros(60, "i")},
            "parameter output.bias: given int32, expected float32",
        ),
        ({"params.embedding.x": np.zeros(3, "f")}, "parameter embedding.x: given shape"),
        ({"params" + ".a" * 5000: np.zeros(3, "f")}, r"parameter a\.a\."),
    ],
)
def test_a_file_with_other_arrays_is_refused(translator, tmp_path, change, message):
    path = forged(translator, tmp_path / "x.safetensors", change)
    with pytest.raises(CheckpointError, match=message):
        Translator.load(path)


@pytest.mark.parametrize("size", [50, 70])
def test_another_number_of_pieces_than_the_model_has_words_is_refused(translator, tmp_path, size):
    other = Subwords.learn([line for pair in sentence_pairs(400) for line in pair], size=size)
    message = f"target has {size} pieces, expected as many as the model's vocabulary, 60"
    with pytest.raises(ValueError, match=message):
        Translator(translator.model, translator.params, translator.source, other)
    arrays = {"subwords.target": np.frombuffer(other.model, np.uint8)}
    with pytest.raises(CheckpointError, match=f"x: {message}"):
        Translator.load(forged(translator, tmp_path / "x", arrays))


def test_another_padding_than_that_of_the_model_is_refused(translator, tmp_path):
    model = replace(translator.model, pad_id=4)
    message = "source has pad_id=0, expected that of the model, 4"
    with pytest.raises(ValueError, match=message):
        Translator(model, translator.params, translator.source, translator.target)
    path = forged(translator, tmp_path / "x", info={"model": describe(model)})
    with pytest.raises(CheckpointError, match=f"x: {message}"):
        Translator.load(path)


def test_a_model_with_nan_is_named_instead_of_translating_to_nothing(translator):
    _, params = tree.flatten(translator.params)
    params["decoder"]["norm"]["gain"][3] = np.nan
    broken = Translator(translator.model, params, translator.source, translator.target)
    for translate in (broken.translate, broken.greedy):
        with pytest.raises(ValueError, match="parameter decoder.norm.gain holds NaN or inf"):
            list(translate(LINES))


def test_lines_that_are_no_strings_are_named(translator):
    with pytest.raises(TypeError, match=r"lines\[1\]=3 is a int, expected a str"):
        list(translator.translate(["the man", 3]))


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no checkpoint .*model\.safetensors"):
        Translator.load(tmp_path)


# ---- scores ----

REFERENCES = [
    "L'homme voit le cheval.",
    "Un âgé homme mange du pain sur le sol.",
    "C'est un cheval, non ?",
]
HYPOTHESES = [
    "L'homme voit un cheval.",
    "un homme mange le pain sur le sol .",
    "C'est un cheval , oui ?",
]


def test_identical_text_scores_100():
    scores = score(REFERENCES, REFERENCES, "fr")
    assert [scores[name] for name in ("bleu", "bleu_lower", "chrf")] == pytest.approx([100] * 3)


def test_bleu_and_chrf_are_sacrebleus():
    scores = score(HYPOTHESES, REFERENCES, "fr")
    assert 0 < scores["bleu"] < 100
    assert scores["bleu"] == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores["chrf"] == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score


def test_lower_cased_bleu_does_not_see_case_or_spaces_before_punctuation():
    scores = score([line.upper().replace(".", " .") for line in REFERENCES], REFERENCES, "fr")
    assert scores["bleu_lower"] == pytest.approx(100)
    assert scores["bleu"] < 50


def test_lower_cased_bleu_is_sacrebleus_of_words_cut_by_hand():
    cut = [
        "l' homme voit le cheval .",
        "un âgé homme mange du pain sur le sol .",
        "c' est un cheval , non ?",
    ]
    ours = [
        "l' homme voit un cheval .",
        "un homme mange le pain sur le sol .",
        "c' est un cheval , oui ?",
    ]
    expected = sacrebleu.corpus_bleu(ours, [cut], tokenize="none", force=True).score
    assert score(HYPOTHESES, REFERENCES, "fr")["bleu_lower"] == pytest.approx(expected)


def test_signatures_say_what_was_computed():
    signatures = score(HYPOTHESES, REFERENCES, "fr")["signatures"]
    assert "case:mixed" in signatures["bleu"]
    assert "tok:13a" in signatures["bleu"]
    assert "tok:none" in signatures["bleu_lower"]
    assert "Moses" in signatures["bleu_lower"]
    assert "nc:6" in signatures["chrf"]


def test_texts_of_different_length_are_refused():
    with pytest.raises(ValueError, match="2 hypotheses, 3 references: expected equally many"):
        score(HYPOTHESES[:2], REFERENCES, "fr")
    with pytest.raises(
        ValueError, match="hypotheses and references are empty, expected one or more sentences"
    ):
        score([], [], "fr")


def test_one_string_in_place_of_a_list_has_no_score():
    with pytest.raises(
        TypeError, match=r"hypotheses is one string, 'a cat', expected a list .* try \[hypotheses\]"
    ):
        score("a cat", "a cat", "en")
    with pytest.raises(TypeError, match=r"references is one string"):
        score(["a cat"], "a", "en")
    with pytest.raises(TypeError, match=r"references\[1\]=None is a NoneType, expected a str"):
        score(["a cat", "a"], ["a cat", None], "en")
    with pytest.raises(
        TypeError, match="hypotheses=None is a NoneType, expected a list of strings"
    ):
        score(None, ["a cat"], "en")


def test_a_language_without_rules_of_its_own_is_told():
    for language, expected in (("klingon", "a code such as 'fr'"), ("french", "'fr'")):
        with pytest.warns(
            UserWarning,
            match=f"language='{language}': .* takes those of English; expected {expected}",
        ):
            score(REFERENCES, REFERENCES, language)
    with pytest.raises(
        TypeError, match="language=None is a NoneType, expected a code such as 'fr'"
    ):
        score(REFERENCES, REFERENCES, None)


# ---- trainings ----


class Crash(BaseException):
    """What ends the training at once, as a kill does: nothing is saved."""


def crash_after(step):
    """A callback after whose step nothing is done, or saved, any more."""

    def callback(trainer, info):
        if info.step == step:
            raise Crash

    return callback


def go_on(out, run=None, stops=(), changes=None):
    """Start or resume, and train, as the script does; the run."""
    run = run or TranslationRun.resume(out, changes)
    run.train(stops, progress=False)
    return run


def start(out, data, **changes):
    return TranslationRun.start(out, TranslationSettings(**SETTINGS | {"data": data} | changes))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, data):
    """The outcome of a training that nothing disturbs."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    go_on(None, start(out, data)).finish()
    return outcome(out)


@pytest.mark.parametrize(
    "changes",
    [{}, {"vocab": "separate", "average": "best"}, {"norm": "pre", "schedule": "noam", "lr": 1.0}],
    ids=["joint", "separate", "noam"],
)
def test_crashes_at_any_step_leave_no_trace(tmp_path, data, changes):
    go_on(None, start(tmp_path / "whole", data, **changes)).finish()
    expected = outcome(tmp_path / "whole")
    assert steps_of(expected["log"], "loss") == list(range(1, 11))
    assert steps_of(expected["log"], "val_loss") == [3, 6, 9, 10]
    assert "whole, after 10 of 10 steps>" in repr(TranslationRun.resume(tmp_path / "whole"))

    out = tmp_path / "disturbed"
    with pytest.raises(Crash):
        go_on(None, start(out, data, **changes), [crash_after(2)])
    for step in range(3, 11):
        with pytest.raises(Crash):
            go_on(out, stops=[crash_after(step)])
    go_on(out).finish()
    assert_same(outcome(out), expected)


@pytest.mark.parametrize("method", ["evaluate", "save"], ids=["in it", "after it"])
def test_a_crash_in_a_validation_or_right_after_it_leaves_no_trace(
    tmp_path, data, undisturbed, monkeypatch, method
):
    out = tmp_path / "disturbed"
    whole_method = getattr(TranslationRun, method)

    def crash_at_6(self, *arguments):
        if self.trainer.n_steps == 6 and (
            method == "evaluate" or self.validations[-1]["step"] == 6
        ):
            raise Crash
        return whole_method(self, *arguments)

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(TranslationRun, method, crash_at_6)
        go_on(None, start(out, data))
    assert load_checkpoint(out / "last.safetensors")[1]["n_steps"] == 6
    go_on(out).finish()
    assert_same(outcome(out), undisturbed)


def test_a_damaged_checkpoint_leaves_a_snapshot_to_translate_with(tmp_path, data):
    go_on(None, start(tmp_path, data))
    last = tmp_path / "last.safetensors"
    last.write_bytes(last.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="step-0000010.safetensors can still translate"):
        TranslationRun.resume(tmp_path)
    Translator.load(tmp_path / "snapshots" / "step-0000010.safetensors")


def test_an_unfinished_training_is_named_as_such(tmp_path, data):
    start(tmp_path, data).save()
    with pytest.raises(
        FileNotFoundError,
        match="its training has not ended; --resume it, or take .*last.safetensors",
    ):
        Translator.load(tmp_path)
    Translator.load(tmp_path / "last.safetensors")


def test_a_training_that_was_asked_to_stop_goes_on_the_same(tmp_path, data, undisturbed):
    out = tmp_path / "stopped"
    run = go_on(None, start(out, data), [lambda trainer, info: info.step == 5])
    assert run.trainer.n_steps == 5
    go_on(out).finish()
    assert_same(outcome(out), undisturbed)


def test_another_process_goes_on_the_same(tmp_path, data, undisturbed):
    out = tmp_path / "moved"
    go_on(None, start(out, data), [lambda trainer, info: info.step == 5])
    python("-c", f"from test_translation import *; go_on({str(out)!r}).finish()", env=environment())
    assert_same(outcome(out), undisturbed)


def test_a_training_that_got_worse_is_not_gone_on_with(tmp_path, data):
    changes = {
        "patience": 1,
        "lr": 1e-9,
        "validate_every": 2,
    }  # so that no validation is better than the first
    run = go_on(None, start(tmp_path, data, **changes))
    assert run.trainer.n_steps == 4
    run.finish()
    expected = outcome(tmp_path)
    again = go_on(tmp_path)
    assert again.trainer.n_steps == 4
    again.finish()
    assert_same(outcome(tmp_path), expected)


def test_fewer_steps_than_are_done_are_refused(tmp_path, data):
    go_on(None, start(tmp_path, data))
    with pytest.raises(ValueError, match="steps=9, but 10 are done"):
        TranslationRun.resume(tmp_path, {"steps": 9})


def test_the_length_of_a_cosine_cannot_change(tmp_path, data):
    start(tmp_path, data, schedule="cosine").save()
    with pytest.raises(ValueError, match="steps=11, but .*last.safetensors was begun with 10"):
        TranslationRun.resume(tmp_path, {"steps": 11})


def test_a_validation_text_without_a_short_pair_is_noticed_at_the_start(tmp_path, data):
    with pytest.raises(ValueError, match=r"val\.\w+ has no pair of at most max_len=2 pieces"):
        start(tmp_path, data, max_len=2)


def test_a_validation_line_that_is_too_long_is_noticed_at_the_start(tmp_path, data):
    for path in Path(data).glob("train.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "val.en").write_text("the man\n\n" + "the horse " * 5000 + "\n", encoding="utf-8")
    (tmp_path / "val.fr").write_text("l'homme\n\nle cheval\n", encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"val.en, line 3 has \d+ pieces, expected fewer than 1024"
    ):
        start(tmp_path / "out", tmp_path, skip_empty=True)


def test_a_line_of_a_file_that_is_no_text_names_the_file_once(translator, tmp_path):
    file = tmp_path / "x.en"
    file.write_bytes(b"the man\n\xff\n")
    with pytest.raises(ValueError, match="x.en, line 2") as caught:
        translator.check_file(file)
    assert str(caught.value).count("x.en") == 1


def test_a_line_that_is_too_long_is_named(translator):
    lines = ["the man", "the horse " * 5000]
    with pytest.raises(ValueError, match=r"line 2 has \d+ pieces, expected fewer than"):
        list(translator.translate(lines))


def test_a_finished_training_is_resumed_to_the_same_result(tmp_path, data):
    go_on(None, start(tmp_path, data)).finish()
    expected = outcome(tmp_path)
    go_on(tmp_path).finish()
    assert_same(outcome(tmp_path), expected)


def test_more_steps_can_be_added(tmp_path, data):
    go_on(None, start(tmp_path / "whole", data, steps=12)).finish()
    go_on(None, start(tmp_path / "longer", data, steps=9)).finish()
    go_on(tmp_path / "longer", changes={"steps": 12}).finish()
    longer, whole = outcome(tmp_path / "longer"), outcome(tmp_path / "whole")
    assert_same(longer, whole)


def test_a_stop_soon_after_a_crash_finds_all_snapshots(tmp_path, data):
    """Those of the checkpoint's validations are kept until the next checkpoint is written."""
    every = {"validate_every": 1, "save_every": 5}
    with pytest.raises(Crash):
        go_on(None, start(tmp_path, data, **every), [crash_after(9)])
    result = go_on(tmp_path, stops=[lambda trainer, info: True]).finish()
    assert result["averaged"] == [9, 10]


@pytest.mark.parametrize("changes", [{"n_average": 4}, {"average": "best"}])
def test_the_average_may_be_another_one_when_resumed(tmp_path, data, changes):
    """Snapshots that are no longer there cannot be part of it."""
    go_on(None, start(tmp_path, data, validate_every=1, steps=6)).finish()
    result = go_on(tmp_path, changes=changes).finish()
    assert result["averaged"][-2:] == [5, 6] or changes == {"average": "best"}
    assert set(result["averaged"]) <= {5, 6}


@pytest.mark.parametrize("average, chosen", [("last", [8, 10]), ("best", [8, 4])])
def test_the_result_is_the_mean_of_the_chosen_snapshots(tmp_path, data, average, chosen):
    run = start(tmp_path, data, average=average)
    parameters = {}
    for step, bleu in zip((2, 4, 6, 8, 10), (1.0, 5.0, 2.0, 4.0, 3.0), strict=True):
        run.trainer.state.n_steps = step
        run.trainer.flat_params += step**2
        run.validate()["val_bleu"] = bleu
        parameters[step] = run.trainer.flat_params.copy()
    assert run.finish()["averaged"] == chosen
    result, _ = tree.flatten(Translator.load(tmp_path).params)
    np.testing.assert_allclose(
        result, (parameters[chosen[0]] + parameters[chosen[1]]) / 2, rtol=1e-6
    )


def test_a_missing_snapshot_is_told_of_when_resumed(tmp_path, data, capsys):
    go_on(None, start(tmp_path, data))
    TranslationRun.resume(tmp_path)
    assert "lacks" not in capsys.readouterr().out
    (tmp_path / "snapshots" / "step-0000009.safetensors").unlink()
    assert TranslationRun.resume(tmp_path).finish()["averaged"] == [10]
    assert (
        "snapshots lacks 1 of 2 to average: the result averages the others"
        in capsys.readouterr().out
    )


def of_another_model(path):
    subwords = Translator.load(path).source
    sizes = {"d_model": 4, "n_heads": 2, "n_layers": 1, "d_ff": 4}
    model = Transformer(len(subwords), len(subwords), **sizes, tie_embeddings=True)
    Translator(model, model.init(0), subwords, subwords).save(path)


def of_another_step(path):
    path.write_bytes(path.with_name("step-0000010.safetensors").read_bytes())


@pytest.mark.parametrize(
    "damage",
    [lambda path: path.write_bytes(path.read_bytes()[:-9]), of_another_model, of_another_step],
    ids=["truncated", "of another model", "of another step"],
)
@pytest.mark.parametrize("before", ["resume", "finish"])
def test_a_damaged_snapshot_is_told_of_and_counts_as_missing(
    tmp_path, data, capsys, damage, before
):
    run = go_on(None, start(tmp_path, data))
    snapshot = tmp_path / "snapshots" / "step-0000009.safetensors"
    damage(snapshot)
    damaged = snapshot.read_bytes()
    run = TranslationRun.resume(tmp_path) if before == "resume" else run
    assert run.finish()["averaged"] == [10]
    assert (
        "it is now step-0000009.safetensors.damaged, and the result will be averaged without it"
        in (capsys.readouterr().out)
    )
    assert snapshot.with_name(f"{snapshot.name}.damaged").read_bytes() == damaged
    assert not snapshot.exists()


def test_a_damaged_checkpoint_names_a_snapshot_that_is_whole(tmp_path, data):
    go_on(None, start(tmp_path, data))
    for path in (
        tmp_path / "last.safetensors",
        tmp_path / "snapshots" / "step-0000010.safetensors",
    ):
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="step-0000009.safetensors can still translate"):
        TranslationRun.resume(tmp_path)


def test_what_is_older_than_a_third_of_the_training_is_not_averaged(tmp_path, data):
    run = start(tmp_path, data, n_average=5)
    for step in (2, 4, 6, 8, 10):
        run.trainer.state.n_steps = step
        run.validate()
    assert run.finish()["averaged"] == [8, 10]
    run.trainer.state.n_steps = 16
    assert run.finish()["averaged"] == [10]


def test_only_the_snapshots_that_will_be_averaged_are_kept(tmp_path, data):
    go_on(None, start(tmp_path, data))
    assert [path.stem for path in sorted((tmp_path / "snapshots").iterdir())] == [
        "step-0000009",
        "step-0000010",
    ]


def test_it_stops_when_validations_get_no_better(tmp_path, data, monkeypatch):
    bleus = iter([1.0, 3.0, 2.0, 3.0, 4.0, 3.0])
    monkeypatch.setattr(
        TranslationRun,
        "evaluate",
        lambda *_: {"val_loss": 1.0, "val_bleu": next(bleus), "val_bleu_lower": 0.0},
    )
    run = go_on(None, start(tmp_path, data, patience=2, validate_every=1, steps=50))
    assert run.trainer.n_steps == 4


def test_validation_measures_the_loss_of_all_tokens_and_greedy_bleu(tmp_path, data):
    run = start(tmp_path, data)
    record = run.validate()
    pairs = list(sentence_pairs(6, seed=2))
    total, n_tokens = 0.0, 0
    for source, target in pairs:
        [src], [tgt] = (
            run.translator.source.encode([source]),
            run.translator.target.encode([target]),
        )
        tgt = np.array([[1, *tgt, 2]])
        loss, n = run.trainer.model.loss(
            run.trainer.params, np.array([[*src, 2]]), tgt[:, :-1], tgt[:, 1:]
        )
        total, n_tokens = total + loss * n, n_tokens + n
    assert record["val_loss"] == pytest.approx(total / n_tokens, rel=1e-5)
    greedy = run.translator.greedy([source for source, _ in pairs])
    assert record["val_bleu"] == score(greedy, [target for _, target in pairs], "fr")["bleu"]


def test_a_joint_vocabulary_has_one_embedding_a_separate_one_two(tmp_path, data):
    joint, separate = (
        start(tmp_path / vocab, data, vocab=vocab) for vocab in ("joint", "separate")
    )
    assert joint.translator.source is joint.translator.target
    assert "embedding" in joint.trainer.params
    assert separate.translator.source.model != separate.translator.target.model
    assert "target_embedding" in separate.trainer.params
    assert not any("é" in piece for piece in separate.translator.source.pieces(range(40)))


def test_a_missing_validation_text_is_noticed_before_the_training(tmp_path):
    folder = write_corpus(tmp_path / "data")
    (folder / "val.en").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"expected val\.en or val\.en\.gz, found .*'val\.fr\.gz'"
    ):
        start(tmp_path / "out", str(folder))


def test_one_string_instead_of_a_list_is_refused(translator):
    for translate in (translator.translate, translator.greedy):
        with pytest.raises(TypeError, match=r"lines is one string, 'the man', expected a list"):
            list(translate("the man"))


@pytest.mark.parametrize("beam_size, error", [(0, ValueError), (2.5, TypeError)])
def test_a_beam_of_no_whole_size_is_named(translator, beam_size, error):
    with pytest.raises(error, match=f"beam_size={beam_size}"):
        list(translator.translate(["the man"], beam_size=beam_size))


def test_facts_may_not_replace_the_model(translator, tmp_path):
    with pytest.raises(ValueError, match=r"info has the names \['model'\]"):
        translator.save(tmp_path / "x", {"model": "tiny"})


def test_two_trainings_in_one_folder_are_refused(tmp_path, data):
    pytest.importorskip("fcntl")
    run = start(tmp_path, data)
    with locked(tmp_path), pytest.raises(ValueError, match="belongs to a running training"):
        go_on(None, run)
    go_on(None, run)


def test_a_training_from_before_a_setting_goes_on_with_its_default(tmp_path, data, undisturbed):
    out = tmp_path / "old"
    go_on(None, start(out, data), [lambda trainer, info: info.step == 5])
    settings = settings_in(out)
    del settings["consistency"], settings["precision"]
    rewrite(out / "last.safetensors", info={"settings": settings})
    assert TranslationRun.resume(out, {"consistency": 0.0}).settings.precision == "float32"
    with pytest.raises(
        ValueError, match=r"consistency=1\.0, but .*last.safetensors was begun with 0\.0"
    ):
        TranslationRun.resume(out, {"consistency": 1.0})
    go_on(out).finish()
    assert_same(outcome(out), undisturbed)


def settings_in(out):
    return load_checkpoint(out / "last.safetensors")[1]["settings"]


def saved_with_settings(out, data, change):
    """The checkpoint of a new training whose settings were changed in the file."""
    start(out, data).save()
    rewrite(out / "last.safetensors", info={"settings": settings_in(out) | change})


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"cache": 1, "beam": 2},
            r"last.safetensors has settings that this version .* not know: \['beam', 'cache'\]",
        ),
        ({"dropout": 2}, "last.safetensors: dropout=2, expected 0 <= dropout < 1"),
    ],
)
def test_a_checkpoint_with_settings_that_cannot_be_is_refused(tmp_path, data, change, message):
    saved_with_settings(tmp_path, data, change)
    with pytest.raises(CheckpointError, match=message):
        TranslationRun.resume(tmp_path)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"settings": [1]}, r"settings=\[1\], expected a dict"),
        ({"place": [1, 2]}, r"place=\[1, 2\], expected 3 numbers: epoch, chunk, batch"),
        ({"place": [1, 2, -3]}, "batch=-3, expected at least 0"),
        ({"n_logged": "7"}, "n_logged='7' is a str, expected an int"),
        ({"n_logged": 2**63}, "n_logged=9223372036854775808, expected at most 9223372036854775807"),
        ({"validations": {"step": 1}}, r"validations=.*, expected a list"),
        ({"validations": [3]}, "a validation is 3, expected a dict"),
        (
            {"validations": [{"step": "../x", "val_bleu": 1.0}]},
            "the step of a validation='../x' is a str",
        ),
        ({"validations": [{"step": 1}]}, "val_bleu=None is a NoneType, expected a number"),
        ({"n_steps": 11}, "steps=10, but 11 are done"),
    ],
)
def test_a_checkpoint_with_progress_that_cannot_be_is_refused(tmp_path, data, change, message):
    start(tmp_path, data).save()
    rewrite(tmp_path / "last.safetensors", info=change)
    with pytest.raises(CheckpointError, match=f"last.safetensors: {message}"):
        TranslationRun.resume(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"max_len": 10**12, "max_tokens": 10**12},
        {"model": {"d_model": 10**9, "n_heads": 2, "n_layers": 1, "d_ff": 8}},
    ],
    ids=["max_len", "d_model"],
)
def test_settings_of_a_model_that_the_file_does_not_hold_are_refused_before_it_is_made(
    tmp_path, data, change
):
    saved_with_settings(tmp_path, data, change)
    with pytest.raises(CheckpointError, match=r"last.safetensors: (max_len=|parameter embedding)"):
        TranslationRun.resume(tmp_path)


def test_settings_that_contradict_the_trainer_of_the_same_file_are_refused(tmp_path, data):
    saved_with_settings(tmp_path, data, {"seed": 3})
    with pytest.raises(
        CheckpointError, match="last.safetensors: seed is 1 in the file and 3 in the trainer"
    ):
        TranslationRun.resume(tmp_path)


def test_subwords_of_another_padding_are_refused_when_resumed(tmp_path, data, monkeypatch):
    start(tmp_path, data, vocab="separate").save()
    source, target = Translator.subwords_in(load_checkpoint(tmp_path / "last.safetensors")[0])
    for side in (source, target):
        with monkeypatch.context() as patched:
            patched.setattr(Translator, "subwords_in", lambda arrays: (source, target))
            patched.setattr(side, "pad_id", 4)
            with pytest.raises(CheckpointError, match="last.safetensors: .*pad_id.*(0.*4|4.*0)"):
                TranslationRun.resume(tmp_path)


def test_what_changes_when_a_training_goes_on_is_checked(tmp_path, data):
    start(tmp_path, data).save()
    assert (
        TranslationRun.resume(tmp_path, {"data": Path(data), "patience": 3}).settings.patience == 3
    )
    with pytest.raises(ValueError, match="patience=0, expected at least 1"):
        TranslationRun.resume(tmp_path, {"patience": 0})
    with pytest.raises(ValueError, match="beam=4, but .*last.safetensors was begun with None"):
        TranslationRun.resume(tmp_path, {"beam": 4})


def test_a_precision_that_cannot_be_is_named_before_the_vocabulary_is_learned(
    tmp_path, data, monkeypatch
):
    monkeypatch.setattr(Subwords, "learn", lambda *_, **__: pytest.fail("it is learned"))
    with pytest.raises(ValueError, match="precision='float16' on the backend cpu"):
        start(tmp_path, data, precision="float16")
