"""What the documents point to is there, and is what they say."""

import itertools
import json
import re
import runpy
import statistics
import sys
from configparser import ConfigParser
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import npformer
from npformer.exercises import EXERCISES

ROOT = Path(__file__).parents[2]
PACKAGE = Path(npformer.__file__).parent  # which is not in ROOT, if it is installed
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
NUMBER = r"\d+(?:\.\d+)?"


def read(path):
    return path.read_text(encoding="utf-8")


def is_there(path):
    path = path.resolve()
    return (
        PACKAGE.parent / path.relative_to(ROOT) if path.is_relative_to(ROOT / "npformer") else path
    ).exists()


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_links_lead_somewhere(path):
    links = re.findall(r"(?:\]\(\s*|href=\")([^\s)#\"]*[./][^\s)#\"]*)", read(path))
    assert [link for link in links if "://" not in link and not is_there(path.parent / link)] == []


def test_the_description_on_pypi_is_the_readme_with_links_that_lead_somewhere_outside_of_a_clone(
    monkeypatch,
):
    monkeypatch.chdir(ROOT)
    given = {}
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=given.update))
    monkeypatch.setitem(
        sys.modules, "setuptools.command.build_py", SimpleNamespace(build_py=object)
    )
    runpy.run_path("setup.py")
    text = given["long_description"]
    links = re.findall(r"\]\(([^)]*)\)", text)
    addresses = "https://github.com/npformer/npformer/", "https://npformer.github.io/npformer/"
    assert len(links) > 10 and all(link.startswith(addresses) for link in links)
    picture = re.search(r"!.*\((.*)\)", read(ROOT / "README.md"))[1]
    assert f"/raw/main/{picture})" in text
    assert "pip install npformer" in text and "pip install ." not in text


def test_the_tour_lists_the_extras_that_users_install():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    of_users = list(
        itertools.takewhile(lambda name: name != "nvrtc", setup["options.extras_require"])
    )
    table = read(DOCS / "guides" / "library.md").partition("## Extras")[2].partition("\n## ")[0]
    assert sorted(
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\|([^|]*)\|", table, re.MULTILINE)))
    ) == sorted(of_users)


CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def sections(path):
    """The texts of a page's sections by their anchors, as GitHub and the site name them."""
    # comments of the code are no headings
    text = CODE.sub(lambda code: code[0].replace("\n#", "\n #"), read(path))
    found = {}
    for title, content in re.findall(r"^#+ (.+)((?:\n(?!#).*)*)", text, re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        found.setdefault(anchor, []).append(content)
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_links_to_files_have_the_paths_of_the_files(path):
    links = re.findall(
        r"\[`([\w/.]+\.(?:py|pyi|cu|js|html|json|ipynb|md))`\]\(([^\s)#]+)", read(path)
    )
    assert [(words, link) for words, link in links if not f"/{link}".endswith(f"/{words}")] == []


def tables(path):
    """The tables of a page: rows of cells, of which the second is the line below the heading."""
    blocks = re.findall(r"(?:^\|.*\|\n)+", read(path), re.MULTILINE)
    return [
        [[cell.strip(" *") for cell in row.split("|")[1:-1]] for row in block.splitlines()]
        for block in blocks
    ]


def test_the_figures_of_the_readme_are_those_of_the_table():
    training, _ = (
        rows[2:] for rows in tables(DOCS / "fast" / "performance.md") if "PyTorch's best" in rows[0]
    )
    ratios = [float(row[5]) for row in training]
    text = " ".join(read(ROOT / "README.md").split())
    assert f"{min(ratios):.1f} to {max(ratios):.1f} times as fast" in text


def test_the_readme_prints_what_its_comments_say(capsys):
    [code] = re.findall(
        r"^```python\n(.*?)^```", read(ROOT / "README.md"), re.DOTALL | re.MULTILINE
    )
    exec(code, {})
    comments = [line[2:] for line in code.splitlines() if line.startswith("# ")]
    # The last digits of the errors differ from processor to processor.
    without_errors = [re.sub(r"\d\.\de-\d+", "", line) for line in comments]
    printed = re.sub(r"\d\.\de-\d+", "", capsys.readouterr().out)
    assert printed.splitlines() == without_errors


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_links_lead_to_headings(path):
    links = re.findall(r"\]\(([^\s)#]*\.md|)#([^\s)]+)\)", read(path))
    pages = [(path.parent / page if page else path, anchor) for page, anchor in links]
    assert [
        (page.name, anchor) for page, anchor in pages if len(sections(page).get(anchor, [])) != 1
    ] == []


OUTSIDE_THE_GUIDES = [path for path in PAGES if path.parent != DOCS / "guides"]
NAMED_EXERCISE = r"\bexercise (\d+)\b(?:[^\[\]]*\]\(([^\s)#]+\.md)#exercises)?"


# In the guides, the numbers are those of the checker's exercises.
@pytest.mark.parametrize("path", OUTSIDE_THE_GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_exercises_that_are_named_by_their_number_are_there(path):
    text = " ".join(read(path).split())
    for number, page in re.findall(NAMED_EXERCISE, text):
        named = path.parent / page if page else path
        assert re.search(rf"^\*\*{number}\.", read(named), re.MULTILINE), (number, named)


MOST_WORDS = 30_000  # of the core track, as `wc -w` counts them


@pytest.fixture(scope="module")
def trees():
    """The lists of pages that the site's navigation shows.

    The core track, detours of parts 1 to 3, the other parts.
    """
    lists = re.findall(
        r"^```{toctree}\n(.*?)^```", read(DOCS / "index.md"), re.DOTALL | re.MULTILINE
    )
    return [
        [DOCS / f"{name}.md" for name in re.findall(r"^\w\S+", pages, re.MULTILINE)]
        for pages in lists
    ]


@pytest.fixture(scope="module")
def core(trees):
    """The pages of the core track, and the page that follows each of them but the last."""
    table = read(DOCS / "index.md").partition("## The core track")[2].partition("\n## ")[0]
    pages = [
        DOCS / link for link in re.findall(r"^\|[^|]*\|[^|]*\]\(([^\s)#]+)\)", table, re.MULTILINE)
    ]
    assert pages == trees[0], "the navigation has the core track in the order of its table"
    return dict(pairwise([*pages, trees[4][0]]))


@pytest.fixture(scope="module")
def parts(trees, core):
    """The pages of each part of the book in its order.

    After each page of the core track, its detours.
    """
    detours = iter([page for tree in trees[1:4] for page in tree])
    book, waiting = [[], [], []], next(detours)
    for page in core:
        part = (
            ["attention", "model", "gradients"].index(page.parent.name)
            if page.parent != DOCS
            else 0
        )
        if page == list(core)[-1]:
            part = 2
        book[part].append(page)
        while waiting in named_last(page):
            book[part].append(waiting)
            waiting = next(detours, None)
    assert waiting is None, (
        f"no page of the core track names {waiting} in its last lines, or not in this order"
    )
    return [*book, *trees[4:]]


def named_last(path):
    """The pages to which the last lines of a page lead."""
    *_, last_lines = re.findall(r"Next: \[(?:.+\n)+", read(path))
    return [(path.parent / link).resolve() for link in re.findall(r"\]\(([^\s)#]+)", last_lines)]


def test_the_core_track_is_short(core):
    assert sum(len(read(path).split()) for path in core) <= MOST_WORDS


@pytest.mark.parametrize("path", PAGES, ids=NAMES[2:])
def test_links_to_a_part_lead_into_it(path, parts):
    for number, page in re.findall(r"\[[^\]]*[Pp]art\s(\d)[^\]]*\]\(([^\s)#]+)", read(path)):
        assert (path.parent / page).resolve() in parts[int(number) - 1]


def test_the_last_lines_of_a_page_lead_to_the_next_page_to_detours_and_to_its_own_gradients(
    parts, core
):
    pages = [page for part in parts[:-2] for page in part]
    for path, following in pairwise(pages):
        first, *others = named_last(path)
        gradients = DOCS / "gradients" / path.name
        assert first == core.get(path, following), path
        rest = pages[pages.index(path) + 1 :] if path in core else []
        detours = list(
            itertools.takewhile(lambda page: page not in core and page not in parts[3], rest)
        )
        assert others in (detours, [*detours, gradients]) or not (detours or gradients.exists()), (
            path
        )


def test_pages_that_are_named_by_their_place_have_it(parts):
    pages = [page for part in parts[:-2] for page in part]
    for before, path, after in zip([None, *pages], pages, [*pages[1:], None], strict=False):
        text = " ".join(read(path).lower().split())
        (part,) = (part for part in parts if path in part)
        places = {
            "next page": after,
            "page before": before,
            "previous page": before,
            "first page": part[0],
        }
        for words, link in re.findall(r"\[([^\]]*)\]\(([^\s)#]+)", text):
            named = [page for name, page in places.items() if name in words]
            assert named in ([], [(path.parent / link).resolve()]), (path, words)
        assert "last page of the book" not in text or after is None, path


def test_pages_beside_the_core_track_say_so_and_lead_back_to_it(parts, core):
    goes_on = None
    for path in reversed([page for part in parts[:3] for page in part]):
        mark = re.match(
            r"# .+\n\n> \*\*Detour\*\*: you can skip this page; (?:.+\n)*?.*\]\((\S+)\)\.\n\n",
            read(path),
        )
        if path in core:
            goes_on = path
            assert not mark, path
        else:
            assert mark and (path.parent / mark[1]).resolve() == goes_on, path


def test_topics_lead_to_sections_that_have_their_numbers():
    for topic, places in re.findall(
        r"^\| (.+?) \| (\[.+) \|$", read(DOCS / "topics.md"), re.MULTILINE
    ):
        links = re.findall(r"\(([^\s)#]+)#([^\s)]+)\)", places)
        text = "".join(sections(DOCS / page)[anchor][0] for page, anchor in links)
        assert set(re.findall(NUMBER, topic)) <= set(re.findall(NUMBER, text.replace(",", ""))), (
            topic
        )


def test_heads_are_counted_from_1():
    tasks = (PACKAGE / "exercises" / "tasks").glob("*.py")
    for path in [*PAGES, *tasks, *(DOCS / "figures").glob("*.svg")]:
        assert not re.search(r"\b[Hh]eads? 0(?![.\d])", read(path)), path


def median_and_range(values):
    """As tables have it: "43.4 (43.3 … 46.0)", or one number if all are the same."""
    numbers = statistics.median(values), min(values), max(values)
    median, least, most = (f"{x:.1f}" for x in numbers)
    return median if least == most else f"{median} ({least} … {most})"


def test_the_tables_about_length_have_what_the_figures_are_drawn_from():
    results = ROOT / "scripts" / "figures" / "results"
    of_sequences = json.loads(read(results / "length_sequences.json"))
    of_sentences = json.loads(read(results / "joined.json"))
    lengths = of_sequences["sizes"]["lengths"]
    measured = [  # in the order of the tables
        (lengths, of_sequences["reverse"], "values"),
        (lengths, of_sequences["reverse"], "symbols"),
        (lengths, of_sequences["copy"], "symbols"),
        (of_sentences["sentences"], of_sentences["systems"], "values"),
    ]
    page = tables(DOCS / "before" / "length.md")
    shown = [rows for rows in page if rows[0][0] in ("symbols", "sentences at a time")]
    for rows, (lengths, systems, quantity) in zip(shown, measured, strict=True):
        for length, *cells in rows[2:]:
            i = lengths.index(int(length))
            seeds = [[values[i] for values in system[quantity]] for system in systems.values()]
            what = f"docs/before/length.md: {rows[0][0]} {length}"
            assert cells == list(map(median_and_range, seeds)), what


def test_the_tables_of_translations_have_what_the_figures_are_drawn_from():
    results = ROOT / "scripts" / "figures" / "results"
    found = json.loads(read(results / "bleu_by_length.json"))
    columns = [found["scores"][name] for name in ("BLEU, lower-cased", "BLEU, cased", "chrF")]
    rows = zip(found["words"], *columns, strict=True)
    expected = [[words, *map(str, scores)] for words, *scores in rows]
    pages = tables(DOCS / "guides" / "translation.md")
    [shown] = [rows[2:] for rows in pages if rows[0][0] == "words of the source"]
    assert [[words, *scores] for words, _, *scores in shown] == expected
    systems = json.loads(read(results / "translation_by_length.json"))["systems"]
    pages = tables(DOCS / "before" / "length.md")
    [shown] = [rows[2:] for rows in pages if rows[0][0] == "system"]
    in_classes = [[row[i] for i in (2, 3, 4)] for row in shown]
    assert in_classes == [[str(scores[i]) for i in (0, 3, 5)] for scores in systems.values()]


@pytest.mark.parametrize("path", PAGES, ids=NAMES[2:])
def test_commands_are_indented_as_code(path):
    assert re.findall(r"(?<=\n\n) {1,2}\w.*", read(path)) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_scripts_and_tests_are_there(path):
    names = re.findall(r"(?:scripts|tests)/[\w/]+\.py", path.read_text(encoding="utf-8"))
    assert [name for name in names if not (ROOT / name).exists()] == []


@pytest.fixture(scope="module")
def code():
    """The lines of each file of npformer, and of what stands on a page of its own."""
    names = {path: path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*.py")}
    names |= {path: path.relative_to(ROOT) for path in DOCS.glob("*.py")}
    return {
        name.as_posix(): [line.strip() for line in read(path).splitlines()]
        for path, name in names.items()
    }


@pytest.mark.parametrize("path", PAGES, ids=NAMES[2:])
def test_quoted_lines_are_lines_of_one_file_in_its_order(path, code):
    names = {
        *code,
        *re.findall(r"(?<=def )\w+", "\n".join(line for lines in code.values() for line in lines)),
    }
    parts = []
    for block in re.findall(
        r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    ):
        parts.append([])
        for line in filter(None, map(str.strip, block.splitlines())):
            # the label of a file or a function, which begins a part
            label = re.fullmatch(r"# ([\w/.]+)([:,] .*)?", line)
            if label and label[1] in names:
                parts.append([])
            else:
                parts[-1].append(line)
    assert [
        part for part in parts if not any(is_in_order(part, lines) for lines in code.values())
    ] == []


def is_in_order(part, lines):
    rest = iter(lines)
    return all(line in rest for line in part)


@pytest.mark.parametrize("path", PAGES, ids=NAMES[2:])
def test_a_page_names_the_exercises_that_it_explains(path):
    text = path.read_text(encoding="utf-8")
    page = path.relative_to(ROOT / "docs").with_suffix("").as_posix()
    lines = re.findall(r"(?ms)^\[Exercises with a checker\]\(\S+\): .*?\.$", text)
    wanted = [exercise.name for exercise in EXERCISES.values() if exercise.page == page]
    assert re.findall(r"`(\w+)`", "".join(lines)) == wanted


def test_every_picture_has_a_text():
    texts = {path.name: path.read_text(encoding="utf-8") for path in DOCUMENTS}
    pictures = [
        (name, alt)
        for name, text in texts.items()
        for alt in re.findall(r"!\[(.*?)\]\(", text, re.DOTALL)
    ]
    assert len(pictures) > 5
    assert [name for name, alt in pictures if len(alt) < 20] == []


def test_every_drawing_is_a_function_or_a_list_of_shapes_and_on_a_page():
    pictures = {path.name for path in (ROOT / "docs" / "figures").iterdir()}
    folder = ROOT / "scripts" / "figures"
    functions = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    names = re.findall(r"^@figure\ndef (\w+)", functions, re.MULTILINE)
    names += [path.stem for path in folder.glob("diagrams/*.txt")]
    assert len(names) == len(set(names))
    assert {f"{name}.svg" for name in names} == {name for name in pictures if name.endswith(".svg")}
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    assert {name for name in pictures if f"figures/{name})" not in pages} == set()


@pytest.mark.parametrize(
    ("figure", "pages"),
    [
        ("layer_backward", ["model/layers.md", "gradients/residual.md"]),
        ("two_layers", ["gradients/idea.md"]),
    ],
)
def test_the_numbers_of_a_figure_are_those_of_its_pages(figure, pages):
    text = "".join(read(DOCS / page) for page in pages)
    numbers = {round(float(x), 4) for x in re.findall(r"\d+(?:\.\d+)?", text)} | {0.5}  # ½
    for row in json.loads(read(ROOT / "scripts" / "figures" / "results" / f"{figure}.json")):
        for what in ("value", "gradient"):
            found = {round(abs(x), 4) for x in np.ravel(row[what]).tolist()}
            assert found <= numbers, (figure, row["name"], what)


def test_bad_input_names_tests_that_exist():
    text = (ROOT / "docs" / "guides" / "bad-input.md").read_text(encoding="utf-8")
    files = {
        path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*/test_*.py")
    }
    functions = {name for code in files.values() for name in re.findall(r"def (test_\w+)", code)}
    for file, name in re.findall(r"(test_\w+\.py)::(test_\w+)", text):
        assert f"def {name}(" in files[file], (file, name)
    named = set(re.findall(r"test_\w+(?!\w|\.py)", text))
    assert len(named) > 50
    assert named - functions == set()
