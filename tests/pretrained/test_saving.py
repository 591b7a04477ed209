"""A folder in which a model is saved holds the older or the newer one,
whatever interrupts the save.
"""

import errno
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from numpy.testing import assert_allclose, assert_array_equal
from programs import python
from refusals import refuses

pytest.importorskip("tokenizers")

from npformer import pretrained, tree
from npformer.files import folders
from npformer.pretrained.chat import Chat
from npformer.pretrained.families import fitting
from npformer.pretrained.vectors import class_probabilities
from npformer.reference import softmax
from npformer.text import Writer
from npformer.tokens import Characters, Pieces, Subwords
from npformer.training import CheckpointError
from tests.pretrained.folders import (
    model_of,
    read,
    save_new,
    tokenizer_of,
)
from tests.tools.forge_pretrained import MODELS, small_tokenizer

OLDER, NEWER = MODELS["gpt2"], replace(MODELS["gpt2"], d_ff=20)
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs folders that can be exchanged")


@pytest.fixture
def folder(tmp_path):
    """A folder with a model and a file of a person."""
    folder = tmp_path / "models" / "mine"
    save_new(folder, OLDER)
    (folder / "README.md").write_text("Mine.")
    return folder


def assert_holds(folder, model):
    loaded, params, _ = pretrained.load(folder)
    assert loaded.d_ff == model.d_ff
    tree.map_leaves(assert_array_equal, params, model.init(0))
    assert (folder / "README.md").read_text() == "Mine."


NO_SPACE = "could not be saved: .*No space left"


def save_newer(path, tokenizer=None):
    save_new(path, NEWER, tokenizer)


def without_exchange(monkeypatch, number=errno.EINVAL):
    def fail(one, other):
        raise OSError(number, os.strerror(number), str(one))

    monkeypatch.setattr(folders, "_exchange", fail)


def failing_at(monkeypatch, function, number):
    """Let a function of ``os`` fail when it is called for the time with this number, from 0."""
    original, calls = getattr(os, function), []

    def call(*arguments, **options):
        calls.append(arguments)
        if len(calls) > number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(*arguments, **options)

    monkeypatch.setattr(os, function, call)


@LINUX
@pytest.mark.parametrize(
    ("function", "number"), [("replace", 0), ("replace", 1), ("fsync", 0), ("fsync", 1)]
)
def test_a_save_that_fails_on_its_way_leaves_the_older_model(folder, monkeypatch, function, number):
    with monkeypatch.context() as patch:
        failing_at(patch, function, number)
        refuses(CheckpointError, NO_SPACE, save_newer, folder, small_tokenizer())
    assert_holds(folder, OLDER)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_mixture_is_refused_and_replaced(folder, monkeypatch):
    with monkeypatch.context() as patch:
        without_exchange(patch)
        failing_at(patch, "replace", 2)  # after the mark and config.json
        refuses(CheckpointError, NO_SPACE, save_newer, folder)
    message = "some of its files may be old and some new, as saving them was interrupted: save the"
    refuses(CheckpointError, message, pretrained.load, folder)
    save_newer(folder)
    assert_holds(folder, NEWER)
    assert not (folder / folders.UNFINISHED).exists()


@pytest.mark.parametrize(
    "number", [errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EBUSY, errno.EPERM, errno.EIO]
)
def test_without_an_exchange_a_save_is_complete_too(folder, monkeypatch, number):
    without_exchange(monkeypatch, number)
    save_newer(folder, small_tokenizer())
    assert_holds(folder, NEWER)
    names = {"README.md", "config.json", "model.safetensors", *small_tokenizer().files}
    assert {path.name for path in folder.iterdir()} == names


def test_where_nothing_can_be_written_beside_the_folder_a_save_is_complete_too(folder, monkeypatch):
    def fail(path):
        if path == folder:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path.parent))
        return scratch_folder(path)

    scratch_folder = folders.scratch_folder
    monkeypatch.setattr(folders, "scratch_folder", fail)
    save_newer(folder)
    assert_holds(folder, NEWER)


def test_a_folder_with_folders_in_it_is_not_linked_but_filled(folder, monkeypatch):
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    before = (folder / "1_Pooling" / "config.json").stat()
    monkeypatch.setattr(folders, "_exchange", None)  # an error if it is called
    save_newer(folder)
    assert_holds(folder, NEWER)
    after = (folder / "1_Pooling" / "config.json").stat()
    assert (after.st_ino, after.st_nlink) == (before.st_ino, 1)


def test_a_folder_in_the_place_of_a_file_is_named_and_nothing_is_replaced(folder):
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    before = sorted(folder.iterdir())
    tensors = (folder / "model.safetensors").read_bytes()
    message = "it is a folder, expected a file: '.*config.json'"
    refuses(CheckpointError, message, save_newer, folder)
    assert sorted(folder.iterdir()) == before
    assert (folder / "model.safetensors").read_bytes() == tensors


@LINUX
def test_where_no_file_can_have_a_second_name_a_save_is_complete_too(folder, monkeypatch):
    failing_at(monkeypatch, "link", 1)
    save_newer(folder)
    assert_holds(folder, NEWER)


@LINUX
def test_a_folder_stays_the_same_folder(folder, monkeypatch):
    (folder / "config.json").chmod(0o600)
    folder.chmod(0o750)
    before = folder.stat()
    monkeypatch.chdir(folder)
    save_newer(".")
    assert os.path.samefile(".", folder)
    assert (folder.stat().st_ino, folder.stat().st_mode) == (before.st_ino, before.st_mode)
    assert (folder / "config.json").stat().st_mode & 0o777 == 0o600
    assert_holds(folder, NEWER)


def test_a_link_to_a_folder_stays_a_link(folder, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(folder)
    save_newer(link)
    assert link.is_symlink()
    assert_holds(folder, NEWER)


def test_new_files_have_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "other").touch()
    save_new(tmp_path / "new", OLDER)
    modes = {path.stat().st_mode for path in [tmp_path / "other", *(tmp_path / "new").iterdir()]}
    assert len(modes) == 1


@pytest.mark.parametrize("names", [None, {"source_embedding": "src"}])
def test_a_path_that_cannot_be_written_to_is_refused_before_the_work(tmp_path, names):
    other = tmp_path / "other"
    if names is None:
        other.touch()
        message = "other is a file, expected a folder"
    else:
        other.mkdir()
        message = "other is a folder, expected a file"
    refuses(ValueError, message, pretrained.save, other, None, None, names=names)
    message = "has a character that no name of a file can have"
    refuses(ValueError, message, pretrained.save, "a\0b", None, None, names=names)
    message = "path='' is no name, expected one; '.' is the current folder"
    refuses(ValueError, message, pretrained.save, "", None, None, names=names)


CLASSES = {"task": "classes", "pooling": "first", "pooler": True}
LINES = ["a man rides a bicycle", "a woman rides a horse"]


def test_a_tokenizer_without_files_is_refused(tmp_path):
    pytest.importorskip("sentencepiece")
    expected = "expected one that npformer.pretrained.load has returned, Characters or Pieces"
    message, tokenizer = f"tokenizer is a Subwords, {expected}", Subwords.learn(LINES, size=32)
    refuses(TypeError, message, save_new, tmp_path, OLDER, tokenizer)


@pytest.mark.parametrize("kind", ["characters", "pieces"])
def test_tokens_of_npformer_are_saved_for_npformer(folder, kind):
    pytest.importorskip("sentencepiece")
    save_new(folder, OLDER, small_tokenizer())  # which is replaced
    lines = LINES + ["two\r\nlines, é 日本"]
    text = "\n".join(LINES)
    tokens = Characters("\n".join(lines))
    if kind == "pieces":
        tokens = Pieces(Subwords.learn(lines, size=48))
    newer = replace(NEWER, vocab=len(tokens))
    message = "npformer alone reads its tokenizer, the library transformers does not"
    with pytest.warns(UserWarning, match=message):
        save_new(folder, newer, tokens)
    assert_holds(folder, newer)
    model, params, again = pretrained.load(folder)
    assert again.files == tokens.files
    assert_array_equal(again.encode(text), tokens.encode(text))
    assert again.decode(again.encode(text)) == text
    assert (len(again), again.eos_ids, model.pad_id) == (len(tokens), (), newer.pad_id)
    writers = Writer.load(folder), Writer(newer, newer.init(0), tokens)
    assert len({writer.write("a man", n_tokens=3) for writer in writers}) == 1
    message = "the tokenizer has no template of a chat"
    refuses(ValueError, message, Chat(model, params, again).answer, "a man")
    save_new(folder, OLDER, small_tokenizer())
    assert tokenizer_of(folder).files == small_tokenizer().files


@pytest.mark.filterwarnings("ignore:npformer alone reads its tokenizer")
def test_characters_are_those_of_a_classifier_too(new):
    tokens = Characters("abc ")
    model = replace(MODELS["bert"], **CLASSES, n_outputs=2, vocab=len(tokens), pad_id=None)
    params = model.init(0)
    pretrained.save(new, model, params, tokens)
    loaded = pretrained.load(new)
    with pytest.warns(UserWarning, match="1 of 2 sentences have more than 16 tokens: cut"):
        found = class_probabilities(*loaded, ["ab", "abc " * 9])
    for row, text in zip(found, ("ab", ("abc " * 9)[:16]), strict=True):
        wanted = softmax(model.outputs(params, tokens.encode(text)[None]))
        assert_allclose(row, wanted[0], rtol=1e-5)


def test_a_damaged_file_of_tokens_is_named(folder):
    (folder / "npformer_characters.txt").write_bytes(b"\xff")
    message = "npformer_characters.txt is no text in UTF-8"
    refuses(CheckpointError, message, pretrained.load, folder)


def test_two_labels_of_one_name_are_two_classes(new):
    model = replace(MODELS["bert"], **CLASSES, n_outputs=3, labels=("no", "yes", "no"))
    save_new(new, model)
    config = read(new / "config.json")
    assert config["id2label"] == {"0": "no", "1": "yes", "2": "no"}
    assert config["label2id"] == {"no (0)": 0, "yes (1)": 1, "no (2)": 2}
    assert model_of(new).labels == model.labels


@pytest.mark.parametrize("name", ["roberta", "xlm-roberta"])
def test_an_xlm_roberta_is_saved_as_one(new, name):
    model, path = MODELS["roberta"], new
    save_new(path, model, small_tokenizer())
    config = read(path / "config.json")
    title = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta"}[name]
    task = config["architectures"][0].removeprefix("Roberta")
    config |= {"model_type": name, "architectures": [f"{title}{task}"]}
    (path / "config.json").write_text(json.dumps(config))
    pretrained.save(path, *pretrained.load(path))
    assert read(path / "config.json") == config


def test_a_tokenizer_replaces_one_of_another_kind(folder):
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "vocab.json").write_text("{}")
    save_newer(folder, small_tokenizer())
    assert tokenizer_of(folder).files == small_tokenizer().files
    assert not (folder / "merges.txt").exists()
    save_new(folder, OLDER)
    assert tokenizer_of(folder).files == small_tokenizer().files


def test_a_damaged_file_that_a_save_does_not_need_is_left_as_it_is(folder):
    (folder / "generation_config.json").write_text("{")
    save_newer(folder)
    assert (folder / "generation_config.json").read_text() == "{"


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_that_was_trained_with_dropout_has_a_family(kind):
    family, _ = fitting(replace(MODELS[kind], dropout=0.1, inner_dropout=0.2))
    assert family.name == kind


def test_the_pooling_of_a_model_is_not_that_of_an_older_one(tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    model = replace(MODELS["bert"], pooling="first")
    with pytest.warns(UserWarning, match="npformer alone reads how a text becomes one vector"):
        save_new(tmp_path, model)
    assert model_of(tmp_path).pooling == "first"


@LINUX
def test_kills_at_random_moments_and_full_disks_leave_one_model():
    """In a process of its own: pytest would be forked."""
    tool = Path(__file__).parents[1] / "tools" / "kill_saving.py"
    python(tool, "--kills", 12, "--full", 4)
