"""A trained model as an object and as a file, its scores, and trainings that are interrupted."""

import copy
import json
import pickle
import random
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from corpus import SETTINGS, WORDS, sentence_pairs, trained_translator, write_corpus
from refusals import refuses
from tables import table
from trainings import assert_same, outcome, steps_of

from npformer import Transformer, get_backend, reference, tree
from npformer.files.checkpoint import LAST
from npformer.files.locks import locked
from npformer.models import describe
from npformer.text import TranslationRun, TranslationSettings, Translator, score
from npformer.text.lines import bad_lines
from npformer.text.translator import EXTRA_LEN
from npformer.tokens import Subwords
from npformer.tokens.marks import mark
from npformer.training import CheckpointError, load_checkpoint, save_checkpoint
from npformer.training.loop import Loop
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
    words = " ".join(translations).split()
    assert sum(word in WORDS.values() for word in words) > 0.8 * len(words)


def test_a_loaded_translator_translates_the_same(translator, tmp_path):
    file = tmp_path / "model.safetensors"
    translator.save(file, {"note": 1})
    for path in (tmp_path, str(file)):
        again = Translator.load(path)
        assert again.model == translator.model
        assert list(again.translate(LINES)) == list(translator.translate(LINES))
    assert load_checkpoint(file)[1]["note"] == 1


def test_with_one_beam_translations_are_the_greedy_ones(translator):
    assert list(translator.translate(LINES, beam_size=1)) == translator.greedy(LINES)


@pytest.mark.parametrize("name", ["first", "decode"])
def test_an_option_that_the_search_has_not_is_one_of_no_function_within(translator, name):
    message = f"beam_search.. got an unexpected keyword argument '{name}'"
    refuses(TypeError, message, list, translator.translate(LINES, **{name: 1}))


def test_a_training_in_a_folder_without_a_name_is_refused():
    settings = TranslationSettings(data="data", **SETTINGS)
    for begin in (TranslationRun.resume, partial(TranslationRun.start, settings=settings)):
        refuses(ValueError, "out='' is no name, expected one", begin, "")


def test_the_order_of_the_lines_does_not_change_the_translations(translator):
    order = random.Random(0).sample(range(len(LINES)), len(LINES))
    shuffled = [LINES[i] for i in order]
    for translate in (translator.translate, translator.greedy):
        expected = list(translate(LINES))
        assert list(translate(shuffled)) == [expected[i] for i in order]


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
    lines = iter(LINES)
    next(translator.translate(lines))
    assert list(lines) == LINES[2:]


@pytest.mark.parametrize("lines", [["", LINES[0], " ", LINES[1], ""], ["", " "], []])
def test_an_empty_line_stays_empty(translator, lines):
    texts = [line for line in lines if line.strip()]
    translations = iter(translator.translate(texts))
    expected = [next(translations) if line.strip() else "" for line in lines]
    assert list(translator.translate(lines, beam_size=5)) == expected
    assert list(map(bool, translator.greedy(lines))) == list(map(bool, expected))


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
    model = Transformer(60, 45, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    Translator(model, model.init(0), translator.source, other).save(tmp_path / "x")
    loaded = Translator.load(tmp_path / "x")
    assert loaded.source.model == translator.source.model
    assert loaded.target.model == other.model


def test_what_it_cannot_translate_is_named(translator):
    def bad(error, message, lines, by=translator):
        for translate in (by.translate, by.greedy):
            refuses(error, message, lambda translate=translate: list(translate(lines)))

    bad(TypeError, r"lines\[1\]=3 is a int, expected a str", ["the man", 3])
    bad(TypeError, "lines is one string, 'the man', expected a list", "the man")
    long = ["the man", "the horse " * 5000]
    bad(ValueError, r"line 2 has \d+ pieces, expected fewer than", long)
    beams = lambda size: list(translator.translate(["the man"], beam_size=size))
    refuses(ValueError, "beam_size=0", beams, 0)
    refuses(TypeError, "beam_size=2.5", beams, 2.5)
    _, params = tree.flatten(translator.params)
    params["decoder"]["norm"]["gain"][3] = np.nan
    broken = replace(translator, params=params)  # it would translate to nothing
    bad(ValueError, "parameter decoder.norm.gain holds NaN or inf", LINES, by=broken)


def test_a_line_of_a_file_that_is_no_text_names_the_file_once(translator, tmp_path):
    file = tmp_path / "x.en"
    file.write_bytes(b"the man\n\xff\n")
    [message] = bad_lines(file, skip_empty=False, check=translator.check_line)
    assert "x.en, line 2" in message and message.count("x.en") == 1


# ---- its file ----


def not_loaded(path, message, error=CheckpointError):
    refuses(error, message, Translator.load, path)


def test_a_file_that_holds_no_translator_is_refused(tmp_path):
    for facts in ({}, {"model": {}}, {"model": 3}, {"model": [1]}):
        save_checkpoint(tmp_path / "other", {"a": np.zeros(1)}, facts)
        not_loaded(tmp_path / "other", "other holds no translation model")
    (tmp_path / "text").write_text("hello")
    not_loaded(tmp_path / "text", "text cannot be read as a checkpoint")
    missing = r"there is no checkpoint .*model\.safetensors"
    not_loaded(tmp_path, missing, FileNotFoundError)


def test_facts_may_not_replace_the_model(translator, tmp_path):
    message = r"info has the names \['model'\]"
    refuses(ValueError, message, translator.save, tmp_path / "x", {"model": "tiny"})


@pytest.fixture
def forged(translator, tmp_path):
    """A function that saves the translator with other arrays or facts; one that is None is left
    out.
    """

    def forge(arrays=None, info=None):
        path = tmp_path / "x.safetensors"
        translator.save(path)
        rewrite(path, arrays, info)
        return path

    return forge


def refused_facts(kind):
    """Run a test for each row of a table in refused.toml: a message, and facts."""
    rows = {
        message: json.loads(facts) for message, facts in table(__file__, "refused")[kind].items()
    }
    return pytest.mark.parametrize("message, facts", rows.items(), ids=rows)


@refused_facts("model")
def test_a_model_that_the_file_does_not_hold_is_refused_before_it_is_made(
    translator, forged, message, facts
):
    if "model" not in facts:
        facts = {"model": describe(translator.model) | facts}
    expected = rf"x.safetensors: ({message}).*; try another file"
    with pytest.raises(CheckpointError, match=expected) as caught:
        Translator.load(forged(info=facts))
    assert str(caught.value).isprintable()


SUBWORDS = "subwords.target"
ARRAYS = {
    "x.safetensors holds no translation model": {SUBWORDS: None},
    r"has no \['pad', 'bos', 'eos'\] piece": {SUBWORDS: np.zeros(0, np.uint8)},
    "model is not a sentencepiece model": {SUBWORDS: np.zeros(9, np.uint8)},
    r"given float64 of shape \(9,\), expected bytes": {SUBWORDS: np.zeros(9)},
    "parameter a: given shape": {"params.a": np.zeros(3, "f")},
    "given int32, expected float32": {"params.output.bias": np.zeros(60, "i")},
    "parameter embedding.x: given shape": {"params.embedding.x": np.zeros(3, "f")},
    r"parameter a\.a\.": {"params" + ".a" * 5000: np.zeros(3, "f")},
}


@pytest.mark.parametrize("message", ARRAYS)
def test_a_file_with_other_arrays_is_refused(forged, message):
    not_loaded(forged(ARRAYS[message]), message)


@pytest.mark.parametrize("size", [50, 70])
def test_another_number_of_pieces_than_the_model_has_words_is_refused(translator, forged, size):
    other = Subwords.learn([line for pair in sentence_pairs(400) for line in pair], size=size)
    message = f"target has {size} pieces, expected as many as the model's vocabulary, 60"
    refuses(ValueError, message, replace, translator, target=other)
    arrays = {"subwords.target": np.frombuffer(other.model, np.uint8)}
    not_loaded(forged(arrays), f"x.safetensors: {message}")


def test_another_padding_than_that_of_the_model_is_refused(translator, forged):
    model = replace(translator.model, pad_id=4)
    message = "source has pad_id=0, expected that of the model, 4"
    refuses(ValueError, message, replace, translator, model=model)
    not_loaded(forged(info={"model": describe(model)}), f"x.safetensors: {message}")


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


def test_bleu_and_chrf_are_sacrebleus():
    scores = score(HYPOTHESES, REFERENCES, "fr")
    assert 0 < scores["bleu"] < 100
    assert scores["bleu"] == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores["chrf"] == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    signatures = scores["signatures"]
    assert "case:mixed" in signatures["bleu"] and "tok:13a" in signatures["bleu"]
    assert "tok:none" in signatures["bleu_lower"] and "Moses" in signatures["bleu_lower"]
    assert "nc:6" in signatures["chrf"]


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


def test_what_has_no_score_is_refused():
    unequal = "2 hypotheses, 3 references: expected equally many"
    refuses(ValueError, unequal, score, HYPOTHESES[:2], REFERENCES, "fr")
    empty = "hypotheses and references are empty, expected one or more sentences"
    refuses(ValueError, empty, score, [], [], "fr")
    one = r"hypotheses is one string, 'a cat', expected a list .* try \[hypotheses\]"
    refuses(TypeError, one, score, "a cat", "a cat", "en")
    refuses(TypeError, "references is one string", score, ["a cat"], "a", "en")
    number = r"references\[1\]=None is a NoneType, expected a str"
    refuses(TypeError, number, score, ["a cat", "a"], ["a cat", None], "en")
    nothing = "hypotheses=None is a NoneType, expected a list of strings"
    refuses(TypeError, nothing, score, None, ["a cat"], "en")
    language = "language=None is a NoneType, expected a code such as 'fr'"
    refuses(TypeError, language, score, REFERENCES, REFERENCES, None)


def test_a_language_without_rules_of_its_own_is_told():
    for language, code in {"klingon": "a code such as 'fr'", "french": "'fr'"}.items():
        expected = f"takes those of English; expected {code}"
        with pytest.warns(UserWarning, match=f"language='{language}': .* {expected}"):
            score(REFERENCES, REFERENCES, language)


# ---- trainings ----


class Crash(BaseException):
    """What ends the training at once, as a kill does: nothing is saved."""


def crash_after(step):
    """A callback after whose step nothing is done, or saved, any more."""

    def callback(trainer, info):
        if info.step == step:
            raise Crash

    return callback


def trained_further(run, *stops):
    """Let a run train as the script does; the run."""
    run.train(stops, progress=False)
    return run


def go_on(out, *stops, **changes):
    """Resume a training; the run."""
    return trained_further(TranslationRun.resume(out, changes), *stops)


def begin(out, **changes):
    return TranslationRun.start(out, TranslationSettings(**SETTINGS | changes))


@pytest.fixture
def start(tmp_path, data):
    """``start(**changes)`` starts a training in the folder of the test, or in one that is named."""
    return lambda name="", data=data, **changes: begin(tmp_path / name, data=data, **changes)


def run_to_its_end(run):
    """The outcome of a training that nothing disturbs."""
    trained_further(run).finish()
    return outcome(run.folder)


def not_resumed(out, message, changes=None, error=ValueError):
    refuses(error, message, TranslationRun.resume, out, changes)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, data):
    """The folders of one training: before its first step, after its last one, and at its end."""
    folders = tmp_path_factory.mktemp("runs")
    begin(folders / "new", data=data).loop.save()
    shutil.copytree(folders / "new", folders / "trained")
    go_on(folders / "trained")
    shutil.copytree(folders / "trained", folders / "whole")
    go_on(folders / "whole").finish()
    return folders


@pytest.fixture(scope="module")
def undisturbed(folders):
    """The outcome of a training that nothing disturbs."""
    return outcome(folders / "whole")


@pytest.fixture
def trained(tmp_path, folders):
    """The folder of a training all of whose steps are done."""
    return Path(shutil.copytree(folders / "trained", tmp_path / "trained"))


@pytest.fixture
def new(tmp_path, folders):
    """The folder of a training that was saved before its first step."""
    return Path(shutil.copytree(folders / "new", tmp_path / "new"))


def snapshot(out, step):
    return out / "snapshots" / f"step-{step:07}.safetensors"


def truncate(path):
    path.write_bytes(path.read_bytes()[:-9])


OTHER = {"vocab": "separate", "average": "best", "norm": "pre", "schedule": "noam", "lr": 1.0}


@pytest.mark.parametrize("changes", [{}, OTHER])
def test_crashes_at_any_step_leave_no_trace(tmp_path, start, changes):
    expected = run_to_its_end(start("whole", **changes))
    assert steps_of(expected["log"], "loss") == list(range(1, 11))
    assert steps_of(expected["log"], "val_loss") == [3, 6, 9, 10]
    assert "whole, after 10 of 10 steps>" in repr(TranslationRun.resume(tmp_path / "whole"))

    run = start("disturbed", **changes)
    for step in range(2, 11):
        with pytest.raises(Crash):
            trained_further(run, crash_after(step))
        run = TranslationRun.resume(run.folder)
    assert_same(run_to_its_end(run), expected)


@pytest.mark.parametrize(
    ("kind", "method"), [(TranslationRun, "evaluate"), (Loop, "save")], ids=["in it", "after it"]
)
def test_a_crash_in_a_validation_or_right_after_it_leaves_no_trace(
    tmp_path, start, undisturbed, monkeypatch, kind, method
):
    whole_method = getattr(kind, method)

    def crash_at_6(self, *arguments):
        validations = self.trainer.state.validations
        is_validated = validations and validations[-1]["step"] == 6
        if self.trainer.n_steps == 6 and (method == "evaluate" or is_validated):
            raise Crash
        return whole_method(self, *arguments)

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(kind, method, crash_at_6)
        trained_further(start())
    assert load_checkpoint(tmp_path / LAST)[1]["n_steps"] == 6
    assert_same(run_to_its_end(TranslationRun.resume(tmp_path)), undisturbed)


def test_a_damaged_checkpoint_names_a_snapshot_that_is_whole(trained):
    truncate(trained / LAST)
    not_resumed(trained, "step-0000010.safetensors can still translate", error=CheckpointError)
    truncate(snapshot(trained, 10))
    not_resumed(trained, "step-0000009.safetensors can still translate", error=CheckpointError)
    Translator.load(snapshot(trained, 9))


def test_an_unfinished_training_is_named_as_such(new):
    message = "its training has not ended; resume it, or take .*last.safetensors"
    not_loaded(new, message, FileNotFoundError)
    Translator.load(new / LAST)


def test_a_training_that_got_worse_is_not_gone_on_with(tmp_path, start):
    # No validation is better than the first.
    expected = run_to_its_end(start(patience=1, lr=1e-9, validate_every=2))
    assert steps_of(expected["log"], "loss") == [1, 2, 3, 4]
    assert_same(run_to_its_end(TranslationRun.resume(tmp_path)), expected)


def test_a_finished_training_is_resumed_to_the_same_result(trained, undisturbed):
    for _ in range(2):
        assert_same(run_to_its_end(TranslationRun.resume(trained)), undisturbed)


def test_the_number_of_steps_may_grow(tmp_path, start):
    expected = run_to_its_end(start("whole", steps=12))
    longer = tmp_path / "longer"
    run_to_its_end(start("longer", steps=9))
    not_resumed(longer, "steps=8, but 9 are done", {"steps": 8})
    assert_same(run_to_its_end(TranslationRun.resume(longer, {"steps": 12})), expected)


def test_the_length_of_a_cosine_cannot_change(tmp_path, start):
    start(schedule="cosine").loop.save()
    begun = "steps=11, but .*last.safetensors was begun with 10"
    not_resumed(tmp_path, begun, {"steps": 11})


def test_what_cannot_be_trained_or_validated_is_noticed_at_the_start(tmp_path, start, monkeypatch):
    refuses(ValueError, r"val\.\w+ has no pair of at most max_len=2 pieces", start, max_len=2)
    folder = write_corpus(tmp_path / "data")
    (folder / "val.en").write_text("the man\n\n" + "the horse " * 5000 + "\n", encoding="utf-8")
    (folder / "val.fr").write_text("l'homme\n\nle cheval\n", encoding="utf-8")
    message = r"val.en, line 3 has \d+ pieces, expected fewer than 1024"
    refuses(ValueError, message, start, data=folder, skip_empty=True)
    # before the vocabulary is learned
    monkeypatch.setattr(Subwords, "learn", lambda *_, **__: pytest.fail("it is learned"))
    (folder / "val.en").unlink()
    message = r"expected val\.en or val\.en\.gz, found .*'val\.fr\.gz'"
    refuses(FileNotFoundError, message, start, data=folder)
    message = "precision='float16' on the backend cpu"
    refuses(ValueError, message, start, precision="float16")


def test_a_stop_soon_after_a_crash_finds_all_snapshots(tmp_path, start):
    """Those of the checkpoint's validations are kept until the next checkpoint is written."""
    with pytest.raises(Crash):
        trained_further(start(validate_every=1, save_every=5), crash_after(9))
    result = go_on(tmp_path, lambda trainer, info: True).finish()
    assert result["averaged"] == [9, 10]


@pytest.mark.parametrize("changes", [{"n_average": 4}, {"average": "best"}])
def test_the_average_may_be_another_one_when_resumed(tmp_path, start, changes):
    """Snapshots that are no longer there cannot be part of it."""
    trained_further(start(validate_every=1, steps=6))
    averaged = go_on(tmp_path, **changes).finish()["averaged"]
    assert averaged[-2:] == [5, 6] or changes == {"average": "best"}
    assert set(averaged) <= {5, 6}


@pytest.mark.parametrize("average, chosen", [("last", [8, 10]), ("best", [8, 4])])
def test_the_result_is_the_mean_of_the_chosen_snapshots(tmp_path, start, average, chosen):
    run = start(average=average)
    parameters = {}
    for step, bleu in {2: 1.0, 4: 5.0, 6: 2.0, 8: 4.0, 10: 3.0}.items():
        run.trainer.state.n_steps = step
        run.trainer.flat_params += step**2
        record = run.loop.validate()
        record["val_bleu"] = bleu
        parameters[step] = run.trainer.flat_params.copy()
    assert run.finish()["averaged"] == chosen
    result, _ = tree.flatten(Translator.load(tmp_path).params)
    expected = np.mean([parameters[step] for step in chosen], axis=0)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_what_is_older_than_a_third_of_the_training_is_not_averaged(start):
    run = start(n_average=5)
    for step in (2, 4, 6, 8, 10):
        run.trainer.state.n_steps = step
        run.loop.validate()
    assert run.finish()["averaged"] == [8, 10]
    run.trainer.state.n_steps = 16
    assert run.finish()["averaged"] == [10]


def test_a_missing_snapshot_is_told_of_when_resumed(trained, capsys):
    TranslationRun.resume(trained)
    assert "lacks" not in capsys.readouterr().out
    snapshot(trained, 9).unlink()
    assert TranslationRun.resume(trained).finish()["averaged"] == [10]
    message = "snapshots lacks 1 of 2 to average: the result averages the others"
    assert message in capsys.readouterr().out


def of_another_model(path):
    subwords = Translator.load(path).source
    sizes = {"d_model": 4, "n_heads": 2, "n_layers": 1, "d_ff": 4}
    model = Transformer(len(subwords), len(subwords), **sizes, tie_embeddings=True)
    Translator(model, model.init(0), subwords, subwords).save(path)


def of_another_step(path):
    shutil.copy(path.with_name("step-0000010.safetensors"), path)


@pytest.mark.parametrize("damage", [truncate, of_another_model, of_another_step])
@pytest.mark.parametrize("before", ["resume", "finish"])
def test_a_damaged_snapshot_is_told_of_and_counts_as_missing(trained, capsys, damage, before):
    run = TranslationRun.resume(trained)
    path = snapshot(trained, 9)
    damage(path)
    damaged = path.read_bytes()
    if before == "resume":
        run = TranslationRun.resume(trained)
    assert run.finish()["averaged"] == [10]
    message = f"it is now {path.name}.damaged, and the result will be averaged without it"
    assert message in capsys.readouterr().out
    assert path.with_name(f"{path.name}.damaged").read_bytes() == damaged
    assert not path.exists()


def test_only_the_snapshots_that_will_be_averaged_are_kept(trained):
    kept = sorted(snapshot(trained, 9).parent.iterdir())
    assert kept == [snapshot(trained, 9), snapshot(trained, 10)]


def test_it_stops_when_validations_get_no_better(start, monkeypatch):
    bleus = iter([1.0, 3.0, 2.0, 3.0, 4.0, 3.0])

    def evaluate(run):
        return {"val_loss": 1.0, "val_bleu": next(bleus), "val_bleu_lower": 0.0}

    monkeypatch.setattr(TranslationRun, "evaluate", evaluate)
    run = trained_further(start(patience=2, validate_every=1, steps=50))
    assert run.trainer.n_steps == 4


def test_validation_measures_the_loss_of_all_tokens_and_greedy_bleu(start):
    run = start()
    record = run.loop.validate()
    sources, targets = zip(*sentence_pairs(6, seed=2), strict=True)
    subwords = run.translator.source
    total = 0.0
    n_tokens = 0
    for src, tgt in zip(subwords.encode(sources), subwords.encode(targets), strict=True):
        tgt = np.array([[1, *tgt, 2]])
        rows = np.array([[*src, 2]]), tgt[:, :-1], tgt[:, 1:]
        loss, n = run.trainer.model.loss(run.trainer.params, *rows)
        total += loss * n
        n_tokens += n
    assert record["val_loss"] == pytest.approx(total / n_tokens, rel=1e-5)
    assert record["val_bleu"] == score(run.translator.greedy(sources), targets, "fr")["bleu"]


def test_a_joint_vocabulary_has_one_embedding_a_separate_one_two(start):
    joint = start("joint")
    assert joint.translator.source is joint.translator.target
    assert "embedding" in joint.trainer.params
    separate = start("separate", vocab="separate")
    source, target = separate.translator.source, separate.translator.target
    assert source.model != target.model
    assert "target_embedding" in separate.trainer.params
    assert "é" not in "".join(source.pieces(range(40)))


def test_two_trainings_in_one_folder_are_refused(new):
    pytest.importorskip("fcntl")
    run = TranslationRun.resume(new)
    with locked(new):
        refuses(ValueError, "belongs to a running training", trained_further, run)
    trained_further(run)


# ---- checkpoints from which no training goes on ----


def settings_in(out):
    return load_checkpoint(out / LAST)[1]["settings"]


def test_a_training_from_before_a_setting_goes_on_with_its_default(new, undisturbed):
    settings = settings_in(new)
    del settings["consistency"], settings["precision"]
    rewrite(new / LAST, info={"settings": settings})
    assert TranslationRun.resume(new, {"consistency": 0.0}).settings.precision == "float32"
    begun = r"consistency=1\.0, but .*last.safetensors was begun with 0\.0"
    not_resumed(new, begun, {"consistency": 1.0})
    assert_same(run_to_its_end(TranslationRun.resume(new)), undisturbed)


@refused_facts("settings")
def test_a_checkpoint_with_settings_that_cannot_be_is_refused(new, message, facts):
    rewrite(new / LAST, info={"settings": settings_in(new) | facts})
    not_resumed(new, f"last.safetensors{message}", error=CheckpointError)


@refused_facts("progress")
def test_a_checkpoint_with_progress_that_cannot_be_is_refused(new, message, facts):
    rewrite(new / LAST, info=facts)
    not_resumed(new, f"last.safetensors{message}", error=CheckpointError)


def test_subwords_of_another_padding_are_refused_when_resumed(tmp_path, start, monkeypatch):
    start(vocab="separate").loop.save()
    subwords = Translator.subwords_in(load_checkpoint(tmp_path / LAST)[0])
    monkeypatch.setattr(Translator, "subwords_in", lambda arrays: subwords)
    message = "last.safetensors: .*pad_id.*(0.*4|4.*0)"
    for side in subwords:
        with monkeypatch.context() as patched:
            patched.setattr(side, "pad_id", 4)
            not_resumed(tmp_path, message, error=CheckpointError)


def test_what_changes_when_a_training_goes_on_is_checked(new, data):
    changes = {"data": Path(data), "patience": 3}
    assert TranslationRun.resume(new, changes).settings.patience == 3
    not_resumed(new, "patience=0, expected at least 1", {"patience": 0})
    not_resumed(new, "beam=4, but .*last.safetensors was begun with None", {"beam": 4})
