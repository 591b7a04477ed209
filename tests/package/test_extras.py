"""Where npformer says how to install what is missing."""

from npformer.runtime import extras


def test_an_extra_is_installed_in_a_clone_or_from_a_wheel(monkeypatch):
    monkeypatch.setattr(extras, "IS_CLONE", True)
    assert extras.pip_install("plot") == "pip install -e '.[plot]'"
    assert extras.pip_install() == "pip install -e ."
    monkeypatch.setattr(extras, "IS_CLONE", False)
    assert extras.pip_install("plot") == "pip install 'npformer[plot]'"
    assert extras.pip_install() == "pip install npformer"
