"""Small models of each family."""

import shutil

import pytest

from tests.tools import forge_pretrained


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    """A folder or file of each family, by name."""
    paths = forge_pretrained.originals(tmp_path_factory.mktemp("models") / "all")
    return {path.name: path for path in paths}


@pytest.fixture
def new(tmp_path):
    """The path of a folder that is not there yet."""
    return tmp_path / "new"


@pytest.fixture
def copy(originals, tmp_path):
    """``copy(name)`` copies one of them, to be changed."""

    def copy(name):
        path = originals[name]
        return (shutil.copy if path.is_file() else shutil.copytree)(path, tmp_path / name)

    return copy
