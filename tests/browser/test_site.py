"""Every page of the site loads in a browser without an error, wide and narrow, and without a network."""

from pathlib import Path

import pytest

EXTENSIONS = Path(__file__).parents[2] / "docs" / "_extensions"


def pages(site):
    return [path for path in sorted(site.rglob("*.html")) if "_modules" not in path.parts]


def test_there_are_the_pages_of_the_book(site):
    names = {str(path.relative_to(site)) for path in pages(site)}
    assert {"index.html", "search.html", "api/generated/npformer.reference.html"} <= names
    assert len(names) > 40


@pytest.mark.parametrize("width, dark", [(380, False), (1200, True)], ids=["narrow", "wide and dark"])
def test_every_page_loads_and_fits(site, look, errors, width, dark):
    wrong = []
    for path in pages(site):
        driver = look(path, width, dark)
        found = errors()
        broken = driver.execute_script("return [...document.images].filter(x => !x.naturalWidth).map(x => x.src)")
        too_wide = driver.execute_script("return document.documentElement.scrollWidth") - width
        if found or broken or too_wide > 0:
            wrong.append((str(path.relative_to(site)), found, broken, too_wide))
    assert wrong == []


def test_the_search_finds_pages(site, look):
    driver = look(f"{site / 'search.html'}")
    driver.get((site / "search.html").as_uri() + "?q=attention")
    for _ in range(100):
        n = driver.execute_script("return document.querySelectorAll('#search-results li').length")
        if n > 5:
            return
        driver.execute_async_script("setTimeout(arguments[0], 100)")
    assert n > 5


def test_formulas_are_shown_by_the_browser_itself(site, look):
    n_formulas = 0
    for path in pages(site):
        if path.parent.name == "gradients":
            driver = look(path)
            n_formulas += driver.execute_script("return document.querySelectorAll('math').length")
            assert driver.execute_script("return document.querySelectorAll('merror, .math.notranslate').length") == 0
    assert n_formulas > 100


@pytest.mark.parametrize("formula", [r"\frac{1", r"\frac{1}", r"\alhpa + 1", "a & b", r"a_b_c", r"\left( a", "a}"])
def test_a_wrong_formula_is_noticed(monkeypatch, formula):
    monkeypatch.syspath_prepend(EXTENSIONS)
    formulas = pytest.importorskip("formulas")
    assert "<mfrac>" in formulas.converted(r"\left\{ \frac{1}{2} \right.")
    with pytest.raises(ValueError):
        formulas.converted(formula)
