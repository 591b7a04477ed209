"""What the documents point to is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\(\s*([^\s)#]*[./][^\s)#]*)", path.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_scripts_and_tests_are_there(path):
    names = re.findall(r"(?:scripts|tests)/[\w/]+\.py", path.read_text(encoding="utf-8"))
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_bad_input_names_tests_that_exist():
    text = (ROOT / "docs" / "bad-input.md").read_text(encoding="utf-8")
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*/test_*.py")}
    functions = {name for code in files.values() for name in re.findall(r"def (test_\w+)", code)}
    for file, name in re.findall(r"(test_\w+\.py)::(test_\w+)", text):
        assert f"def {name}(" in files[file], (file, name)
    named = set(re.findall(r"test_\w+(?!\w|\.py)", text))
    assert len(named) > 50
    assert named - functions == set()
