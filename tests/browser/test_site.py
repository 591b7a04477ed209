"""Every page of the site loads in a browser without an error, wide and narrow,
and without a network.
"""

import re
from pathlib import Path

import pytest

EXTENSIONS = Path(__file__).parents[2] / "docs" / "_extensions"


def pages(site):
    return [path for path in sorted(site.rglob("*.html")) if "_modules" not in path.parts]


def test_there_are_the_pages_of_the_book(site):
    names = {str(path.relative_to(site)) for path in pages(site)}
    assert {"index.html", "search.html", "api/generated/npformer.reference.html"} <= names
    assert len(names) > 40


@pytest.mark.parametrize(
    "width, dark", [(380, False), (1200, True)], ids=["narrow", "wide and dark"]
)
def test_every_page_loads_and_fits(site, look, errors, width, dark):
    wrong = []
    for path in pages(site):
        driver = look(path, width, dark)
        found = errors()
        broken = driver.execute_script(
            "return [...document.images].filter(x => !x.naturalWidth).map(x => x.src)"
        )
        too_wide = driver.execute_script("return document.documentElement.scrollWidth") - width
        if found or broken or too_wide > 0:
            wrong.append((str(path.relative_to(site)), found, broken, too_wide))
    assert wrong == []


@pytest.mark.parametrize(
    "word, page", [("attention", "attention/one-head"), ("softmax", "gradients/softmax")]
)
def test_the_search_finds_pages(site, look, word, page):
    driver = look(site / "search.html")
    driver.get((site / "search.html").as_uri() + f"?q={word}")
    for _ in range(100):
        found = driver.execute_script(
            "return [...document.querySelectorAll('#search-results li a')].map(a => a.href)"
        )
        if len(found) > 5 and any(f"{page}.html" in link for link in found):
            return
        driver.execute_async_script("setTimeout(arguments[0], 100)")
    raise AssertionError(found)


def test_a_link_to_a_page_shows_its_title_its_text_and_a_picture_with_absolute_addresses(site):
    base = re.search(
        '^html_baseurl = "(.*?)"', (EXTENSIONS.parent / "conf.py").read_text(encoding="utf-8"), re.M
    )[1]
    assert base.startswith("https://") and base.endswith("/")
    assert (site / "_static" / "card.png").stat().st_size < 100_000
    n_pages = 0
    for path in pages(site):
        text = path.read_text(encoding="utf-8")
        if path.name in ("404.html", "search.html", "genindex.html", "py-modindex.html"):
            continue
        card = dict(re.findall(r'<meta property="og:(\w+)" content="([^"]*)">', text))
        assert card["url"] == base + str(path.relative_to(site).as_posix())
        assert card["image"] == f"{base}_static/card.png"
        assert card["title"] and "<" not in card["title"] and len(card["description"]) > 5, path
        n_pages += 1
    assert n_pages > 40
    assert f'href="{base}"' in (site / "404.html").read_text(encoding="utf-8")


def test_formulas_are_shown_by_the_browser_itself(site, look):
    n_formulas = 0
    for path in pages(site):
        if path.parent.name == "gradients":
            driver = look(path)
            n_formulas += driver.execute_script("return document.querySelectorAll('math').length")
            assert (
                driver.execute_script(
                    "return document.querySelectorAll('merror, .math.notranslate').length"
                )
                == 0
            )
    assert n_formulas > 100


@pytest.mark.parametrize(
    "formula", [r"\frac{1", r"\frac{1}", r"\alhpa + 1", "a & b", r"a_b_c", r"\left( a", "a}"]
)
def test_a_wrong_formula_is_noticed(monkeypatch, formula):
    monkeypatch.syspath_prepend(EXTENSIONS)
    formulas = pytest.importorskip("formulas")
    assert "<mfrac>" in formulas.converted(r"\left\{ \frac{1}{2} \right.")
    with pytest.raises(ValueError):
        formulas.converted(formula)
