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


WRONG = """
const broken = [...document.images].filter((image) => !image.naturalWidth);
const formulas = [...document.querySelectorAll("merror, .math.notranslate")];
return [...broken, ...formulas].map((node) => node.outerHTML);
"""


def test_every_page_loads_and_fits_and_the_browser_itself_shows_its_formulas(site, look):
    wrong = {}
    n_formulas = 0
    for path in pages(site):
        page = look(path, 380)
        found = page.js(WRONG)
        if not page.fits(380):
            found.append("does not fit into 380 pixels")
        page.prefer("dark")
        page.resize(1200)
        if not page.fits(1200):
            found.append("does not fit into 1200 pixels")
        found += page.errors()
        if found:
            wrong[str(path.relative_to(site))] = found
        n_formulas += page.js("return document.querySelectorAll('math').length")
    assert wrong == {}
    assert n_formulas > 100


@pytest.mark.parametrize(
    "word, target", [("attention", "attention/one-head"), ("softmax", "gradients/softmax")]
)
def test_the_search_finds_pages(site, look, word, target):
    page = look(site / "search.html")
    page.driver.get((site / "search.html").as_uri() + f"?q={word}")
    links = "[...document.querySelectorAll('#search-results li a')].map(a => a.href)"
    page.wait_for(f"{links}.length > 5 && {links}.some((link) => link.includes('{target}.html'))")
    # A page that was opened from a disk may not fetch others, and says so as long as it is open.
    page.leave()


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


@pytest.mark.parametrize(
    "formula", [r"\frac{1", r"\frac{1}", r"\alhpa + 1", "a & b", r"a_b_c", r"\left( a", "a}"]
)
def test_a_wrong_formula_is_noticed(monkeypatch, formula):
    monkeypatch.syspath_prepend(EXTENSIONS)
    formulas = pytest.importorskip("formulas")
    assert "<mfrac>" in formulas.converted(r"\left\{ \frac{1}{2} \right.")
    with pytest.raises(ValueError):
        formulas.converted(formula)
