"""A folder in which a model is saved holds the older or the newer one, whatever interrupts the save."""

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")

from npformer import pretrained, tree
from npformer.files import folders
from npformer.language import Characters
from npformer.pretrained.loading import fitting
from npformer.training import CheckpointError
from tests.tools.forge_pretrained import MODELS, small_tokenizer

OLDER, NEWER = MODELS["gpt2"], replace(MODELS["gpt2"], d_ff=20)
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs folders that can be exchanged")


@pytest.fixture
def folder(tmp_path):
    """A folder with a model and a file of a person."""
    folder = tmp_path / "models" / "mine"
    pretrained.save(folder, OLDER, OLDER.init(0))
    (folder / "README.md").write_text("Mine.")
    return folder


def assert_holds(folder, model):
    loaded, params, _ = pretrained.load(folder)
    assert loaded.d_ff == model.d_ff
    tree.map_leaves(np.testing.assert_array_equal, params, model.init(0))
    assert (folder / "README.md").read_text() == "Mine."


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
@pytest.mark.parametrize(("function", "number"), [("replace", 0), ("replace", 1), ("fsync", 0), ("fsync", 1)])
def test_a_save_that_fails_on_its_way_leaves_the_older_model(folder, monkeypatch, function, number):
    with monkeypatch.context() as patch, pytest.raises(CheckpointError, match=r"could not be saved: .*No space left"):
        failing_at(patch, function, number)
        pretrained.save(folder, NEWER, NEWER.init(0), small_tokenizer())
    assert_holds(folder, OLDER)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_mixture_is_refused_and_replaced(folder, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(CheckpointError, match="could not be saved"):
        without_exchange(patch)
        failing_at(patch, "replace", 2)  # after the mark and config.json
        pretrained.save(folder, NEWER, NEWER.init(0))
    wanted = "some of its files may be old and some new, as saving them was interrupted: save them again"
    with pytest.raises(CheckpointError, match=wanted):
        pretrained.load(folder)
    pretrained.save(folder, NEWER, NEWER.init(0))
    assert_holds(folder, NEWER)
    assert not (folder / folders.UNFINISHED).exists()


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EBUSY, errno.EPERM, errno.EIO])
def test_without_an_exchange_a_save_is_complete_too(folder, monkeypatch, number):
    without_exchange(monkeypatch, number)
    pretrained.save(folder, NEWER, NEWER.init(0), small_tokenizer())
    assert_holds(folder, NEWER)
    assert {path.name for path in folder.iterdir()} == {
        *("README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    }


def test_where_nothing_can_be_written_beside_the_folder_a_save_is_complete_too(folder, monkeypatch):
    def fail(path):
        if path == folder:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path.parent))
        return scratch_folder(path)

    scratch_folder = folders.scratch_folder
    monkeypatch.setattr(folders, "scratch_folder", fail)
    pretrained.save(folder, NEWER, NEWER.init(0))
    assert_holds(folder, NEWER)


def test_a_folder_with_folders_in_it_is_not_linked_but_filled(folder, monkeypatch):
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    before = (folder / "1_Pooling" / "config.json").stat()
    monkeypatch.setattr(folders, "_exchange", None)  # an error if it is called
    pretrained.save(folder, NEWER, NEWER.init(0))
    assert_holds(folder, NEWER)
    after = (folder / "1_Pooling" / "config.json").stat()
    assert (after.st_ino, after.st_nlink) == (before.st_ino, 1)


@LINUX
def test_where_no_file_can_have_a_second_name_a_save_is_complete_too(folder, monkeypatch):
    failing_at(monkeypatch, "link", 1)
    pretrained.save(folder, NEWER, NEWER.init(0))
    assert_holds(folder, NEWER)


@LINUX
def test_a_folder_stays_the_same_folder(folder, monkeypatch):
    (folder / "config.json").chmod(0o600)
    folder.chmod(0o750)
    before = folder.stat()
    monkeypatch.chdir(folder)
    pretrained.save(".", NEWER, NEWER.init(0))
    assert os.path.samefile(".", folder)
    assert (folder.stat().st_ino, folder.stat().st_mode) == (before.st_ino, before.st_mode)
    assert (folder / "config.json").stat().st_mode & 0o777 == 0o600
    assert_holds(folder, NEWER)


def test_a_link_to_a_folder_stays_a_link(folder, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(folder)
    pretrained.save(link, NEWER, NEWER.init(0))
    assert link.is_symlink()
    assert_holds(folder, NEWER)


def test_new_files_have_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "other").touch()
    pretrained.save(tmp_path / "new", OLDER, OLDER.init(0))
    modes = {path.stat().st_mode for path in [tmp_path / "other", *(tmp_path / "new").iterdir()]}
    assert len(modes) == 1


@pytest.mark.parametrize("names", [None, {"source_embedding": "src"}])
def test_a_path_that_cannot_be_written_to_is_refused_before_the_work(tmp_path, names):
    (tmp_path / "other").touch() if names is None else (tmp_path / "other").mkdir()
    given = "other is a file, expected a folder" if names is None else "other is a folder, expected a file"
    for path, words in {tmp_path / "other": given, "a\0b": "has a character that no name of a file can have"}.items():
        with pytest.raises(ValueError, match=words):
            pretrained.save(path, None, None, names=names)


def test_a_tokenizer_without_files_is_refused(tmp_path):
    with pytest.raises(TypeError, match="tokenizer is a Characters, expected one that npformer.pretrained.load has"):
        pretrained.save(tmp_path / "new", OLDER, OLDER.init(0), Characters("abc"))


def test_a_tokenizer_replaces_one_of_another_kind(folder):
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "vocab.json").write_text("{}")
    pretrained.save(folder, NEWER, NEWER.init(0), small_tokenizer())
    assert pretrained.load(folder)[2].files == small_tokenizer().files
    assert not (folder / "merges.txt").exists()
    pretrained.save(folder, OLDER, OLDER.init(0))
    assert pretrained.load(folder)[2].files == small_tokenizer().files


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_that_was_trained_with_dropout_has_a_family(kind):
    family, _ = fitting(replace(MODELS[kind], dropout=0.1, inner_dropout=0.2))
    assert family.name == kind


@pytest.mark.filterwarnings("ignore:npformer alone reads how")
def test_the_pooling_of_a_model_is_not_that_of_an_older_one(tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    model = replace(MODELS["bert"], pooling="first")
    pretrained.save(tmp_path, model, model.init(0))
    assert pretrained.load(tmp_path)[0].pooling == "first"


@LINUX
def test_kills_at_random_moments_and_full_disks_leave_one_model():
    """In a process of its own: pytest would be forked."""
    tool = Path(__file__).parents[1] / "tools" / "kill_saving.py"
    command = [sys.executable, tool, "--kills", "12", "--full", "4"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
