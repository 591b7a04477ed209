"""What the documents point to is there, and is what they say."""

import json
import re
import runpy
import statistics
import sys
from configparser import ConfigParser
from itertools import pairwise, takewhile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import npformer
from npformer.exercises import EXERCISES

ROOT = Path(__file__).parents[2]
PACKAGE = Path(npformer.__file__).parent  # which is not in ROOT, if it is installed
DOCS = ROOT / "docs"
DRAWN_FROM = ROOT / "scripts" / "figures" / "results"
PAGES = sorted(DOCS.rglob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
NUMBER = r"\d+(?:\.\d+)?"
LINK = r"\]\(([^\s)#]+)"  # without the heading that it leads to


def for_each(paths):
    """Run a test with each of these documents."""
    names = [str(path.relative_to(ROOT)) for path in paths]
    return pytest.mark.parametrize("path", paths, ids=names)


def read(path):
    return path.read_text(encoding="utf-8")


def in_lines(pattern, text):
    """What matches in a text, in which ^ and $ are the ends of a line."""
    return re.findall(pattern, text, re.MULTILINE)


def blocks_of(kind, path):
    """The blocks of code of a kind in a page."""
    return in_lines(rf"^```{kind}\n((?:.*\n)*?)```", read(path))


def section(path, title):
    """The text below a heading, up to the next one of the second level."""
    _, _, text = read(path).partition(f"## {title}")
    below, _, _ = text.partition("\n## ")
    return below


def target(path, link):
    """The file to which a link of a document leads."""
    return (path.parent / link).resolve()


def is_there(path):
    if path.is_relative_to(ROOT / "npformer"):
        path = PACKAGE.parent / path.relative_to(ROOT)
    return path.exists()


@for_each(DOCUMENTS)
def test_links_lead_somewhere(path):
    links = re.findall(r"(?:\]\(\s*|href=\")([^\s)#\"]*[./][^\s)#\"]*)", read(path))
    links = [link for link in links if "://" not in link]
    assert [link for link in links if not is_there(target(path, link))] == []


def test_the_names_of_code_that_contributors_read_are_in_the_code():
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.cuh")]
    files += [*(ROOT / "tests").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]
    files += [*DOCS.glob("*.py")]  # Sphinx's settings
    names = {path.stem for path in files}
    for path in files:
        names.update(re.findall(r"\w+", read(path)))
    quoted = re.findall(r"`(\w+)(?:\(.*?\))?`", read(ROOT / "CONTRIBUTING.md"))
    assert len(quoted) > 100
    assert [name for name in quoted if name not in names] == []


@for_each(DOCUMENTS)
def test_links_to_files_have_the_paths_of_the_files(path):
    file = r"\[`([\w/.]+\.(?:py|pyi|cu|js|html|json|ipynb|md))`"
    for words, link in re.findall(file + LINK, read(path)):
        assert f"/{link}".endswith(f"/{words}")


@for_each(DOCUMENTS)
def test_links_lead_to_headings(path):
    for page, anchor in set(re.findall(r"\]\(([^\s)#]*\.md|)#([^\s)]+)\)", read(path))):
        found = sections(target(path, page) if page else path)
        assert len(found.get(anchor, [])) == 1, (page, anchor)


@for_each(DOCUMENTS)
def test_scripts_and_tests_are_there(path):
    names = re.findall(r"(?:scripts|tests)/[\w/]+\.py", read(path))
    assert [name for name in names if not (ROOT / name).exists()] == []


@for_each(PAGES)
def test_commands_are_indented_as_code(path):
    assert re.findall(r"(?<=\n\n) {1,2}\w.*", read(path)) == []


# In the guides, the numbers are those of the checker's exercises.
@for_each([path for path in PAGES if path.parent != DOCS / "guides"])
def test_exercises_that_are_named_by_their_number_are_there(path):
    named = r"\bexercise (\d+)\b(?:[^\[\]]*\]\(([^\s)#]+\.md)#exercises)?"
    for number, page in re.findall(named, " ".join(read(path).split())):
        place = target(path, page) if page else path
        assert in_lines(rf"^\*\*{number}\.", read(place)), (number, place)


@for_each(PAGES)
def test_a_page_names_the_exercises_that_it_explains(path):
    page = path.relative_to(DOCS).with_suffix("").as_posix()
    lines = re.findall(r"(?ms)^\[Exercises with a checker\]\(\S+\): .*?\.$", read(path))
    wanted = [exercise.name for exercise in EXERCISES.values() if exercise.page == page]
    assert re.findall(r"`(\w+)`", "".join(lines)) == wanted


def sections(path):
    """The texts of a page's sections by their anchors, as GitHub and the site name them."""
    # comments of the code are no headings
    text = re.sub(r"(?ms)^```.*?^```", lambda code: code[0].replace("\n#", "\n #"), read(path))
    found = {}
    for title, content in in_lines(r"^#+ (.+)((?:\n(?!#).*)*)", text):
        anchor = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        found.setdefault(anchor, []).append(content)
    return found


# -- the README


def test_the_description_on_pypi_is_the_readme_with_links_that_lead_somewhere_outside_of_a_clone(
    monkeypatch,
):
    monkeypatch.chdir(ROOT)
    given = {}
    setuptools = {
        "setuptools": SimpleNamespace(setup=given.update),
        "setuptools.command.build_py": SimpleNamespace(build_py=object),
    }
    for name, module in setuptools.items():
        monkeypatch.setitem(sys.modules, name, module)
    runpy.run_path("setup.py")
    text = given["long_description"]
    links = re.findall(r"\]\(([^)]*)\)", text)
    addresses = "https://github.com/npformer/npformer/", "https://npformer.github.io/npformer/"
    assert len(links) > 10
    assert all(link.startswith(addresses) for link in links)
    picture = re.search(r"!.*\((.*)\)", read(ROOT / "README.md"))[1]
    assert f"/raw/main/{picture})" in text
    assert "pip install npformer" in text
    assert "pip install ." not in text


def test_the_figures_of_the_readme_are_those_of_the_table():
    tables = tables_of(DOCS / "fast" / "performance.md")
    training, _ = (rows[2:] for rows in tables if "PyTorch's best" in rows[0])
    ratios = [float(row[5]) for row in training]
    text = " ".join(read(ROOT / "README.md").split())
    assert f"{min(ratios):.1f} to {max(ratios):.1f} times as fast" in text


def test_the_readme_prints_what_its_comments_say(capsys):
    [code] = blocks_of("python", ROOT / "README.md")
    exec(code, {})

    def without_errors(lines):
        # The last digits of the errors differ from processor to processor.
        return [re.sub(r"\d\.\de-\d+", "", line) for line in lines]

    comments = in_lines(r"^# (.*)$", code)
    assert without_errors(capsys.readouterr().out.splitlines()) == without_errors(comments)


def test_the_tour_lists_the_extras_that_users_install():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    of_users = takewhile(lambda name: name != "nvrtc", setup["options.extras_require"])
    names = in_lines(r"^\|([^|]*)\|", section(DOCS / "guides" / "library.md", "Extras"))
    assert sorted(re.findall(r"`(\w+)`", "".join(names))) == sorted(of_users)


# -- the order of the pages


MOST_WORDS = 30_000  # of the core track, as `wc -w` counts them


@pytest.fixture(scope="module")
def trees():
    """The lists of pages that the site's navigation shows.

    The core track, detours of parts 1 to 3, the other parts.
    """
    lists = blocks_of("{toctree}", DOCS / "index.md")
    return [[DOCS / f"{name}.md" for name in in_lines(r"^\w\S+", pages)] for pages in lists]


@pytest.fixture(scope="module")
def core(trees):
    """The pages of the core track, and the page that follows each of them but the last."""
    table = section(DOCS / "index.md", "The core track")
    pages = [DOCS / link for link in in_lines(rf"^\|[^|]*\|[^|]*{LINK}", table)]
    assert pages == trees[0], "the navigation has the core track in the order of its table"
    return dict(pairwise([*pages, trees[4][0]]))


@pytest.fixture(scope="module")
def parts(trees, core):
    """The pages of each part of the book in its order.

    After each page of the core track, its detours.
    """
    detours = iter([page for tree in trees[1:4] for page in tree])
    part_of = {DOCS: 0, DOCS / "attention": 0, DOCS / "model": 1, DOCS / "gradients": 2}
    book = [], [], []
    waiting = next(detours)
    for page in core:
        part = book[2] if page == list(core)[-1] else book[part_of[page.parent]]
        part.append(page)
        while waiting in named_last(page):
            part.append(waiting)
            waiting = next(detours, None)
    problem = "no page of the core track names it in its last lines, or not in this order"
    assert waiting is None, problem
    return [*book, *trees[4:]]


@pytest.fixture(scope="module")
def book(parts):
    """The pages of all parts but the last two."""
    return [page for part in parts[:-2] for page in part]


def named_last(path):
    """The pages to which the last lines of a page lead."""
    *_, last_lines = re.findall(r"Next: \[(?:.+\n)+", read(path))
    return [target(path, link) for link in re.findall(LINK, last_lines)]


def test_the_core_track_is_short(core):
    assert sum(len(read(path).split()) for path in core) <= MOST_WORDS


@for_each(PAGES)
def test_links_to_a_part_lead_into_it(path, parts):
    for number, page in re.findall(rf"\[[^\]]*[Pp]art\s(\d)[^\]]*{LINK}", read(path)):
        assert target(path, page) in parts[int(number) - 1]


def test_the_last_lines_of_a_page_lead_to_the_next_page_to_detours_and_to_its_own_gradients(
    book, parts, core
):
    for path, following in pairwise(book):
        first, *others = named_last(path)
        assert first == core.get(path, following), path
        rest = book[book.index(path) + 1 :] if path in core else []
        detours = list(takewhile(lambda page: page not in core and page not in parts[3], rest))
        gradients = DOCS / "gradients" / path.name
        if detours or gradients.exists():
            assert others in (detours, [*detours, gradients]), path


def test_pages_that_are_named_by_their_place_have_it(book, parts):
    for before, path, after in zip([None, *book], book, [*book[1:], None], strict=False):
        (part,) = (part for part in parts if path in part)
        places = {
            "next page": after,
            "page before": before,
            "previous page": before,
            "first page": part[0],
        }
        text = " ".join(read(path).lower().split())
        for words, link in re.findall(rf"\[([^\]]*){LINK}", text):
            named = [page for name, page in places.items() if name in words]
            assert named in ([], [target(path, link)]), (path, words)
        assert "last page of the book" not in text or after is None, path


def test_pages_beside_the_core_track_say_so_and_lead_back_to_it(parts, core):
    says_so = r"# .+\n\n> \*\*Detour\*\*: you can skip this page; (?:.+\n)*?.*\]\((\S+)\)\.\n\n"
    goes_on = None
    for path in reversed([page for part in parts[:3] for page in part]):
        mark = re.match(says_so, read(path))
        if path in core:
            goes_on = path
            assert not mark, path
        else:
            assert mark, path
            assert target(path, mark[1]) == goes_on, path


# -- numbers


def tables_of(path):
    """The tables of a page: rows of cells, of which the second is the line below the heading."""

    def cells_of(row):
        _, *cells, _ = row.split("|")
        return [cell.strip(" *") for cell in cells]

    blocks = in_lines(r"(?:^\|.*\|\n)+", read(path))
    return [list(map(cells_of, block.splitlines())) for block in blocks]


def tables_about(words, *path):
    """The rows below the heading of each table of a page that begins with these words."""
    tables = tables_of(DOCS.joinpath(*path))
    return [rows[2:] for rows in tables if rows[0][0] == words]


def drawn_from(name):
    """The numbers from which a figure is drawn."""
    return json.loads(read(DRAWN_FROM / f"{name}.json"))


def test_topics_lead_to_sections_that_have_their_numbers():
    for topic, places in in_lines(r"^\| (.+?) \| (\[.+) \|$", read(DOCS / "topics.md")):
        links = re.findall(r"\(([^\s)#]+)#([^\s)]+)\)", places)
        text = "".join(sections(DOCS / page)[anchor][0] for page, anchor in links)
        numbers = re.findall(NUMBER, text.replace(",", ""))
        assert set(re.findall(NUMBER, topic)) <= set(numbers), topic


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
    sequences = drawn_from("length_sequences")
    sentences = drawn_from("joined")
    lengths = sequences["sizes"]["lengths"]
    measured = [  # in the order of the tables
        (lengths, sequences["reverse"], "values"),
        (lengths, sequences["reverse"], "symbols"),
        (lengths, sequences["copy"], "symbols"),
        (sentences["sentences"], sentences["systems"], "values"),
    ]
    shown = tables_about("symbols", "before", "length.md")
    shown += tables_about("sentences at a time", "before", "length.md")
    for rows, (lengths, systems, quantity) in zip(shown, measured, strict=True):
        for length, *cells in rows:
            i = lengths.index(int(length))
            for cell, system in zip(cells, systems.values(), strict=True):
                of_seeds = [values[i] for values in system[quantity]]
                assert cell == median_and_range(of_seeds), f"{quantity} of {length}"


def test_the_tables_of_translations_have_what_the_figures_are_drawn_from():
    found = drawn_from("bleu_by_length")
    scores = found["scores"]
    columns = [found["words"], scores["BLEU, lower-cased"], scores["BLEU, cased"], scores["chrF"]]
    [shown] = tables_about("words of the source", "guides", "translation.md")
    for (words, _, *cells), row in zip(shown, zip(*columns, strict=True), strict=True):
        assert [words, *cells] == list(map(str, row))
    systems = drawn_from("translation_by_length")["systems"].values()
    [shown] = tables_about("system", "before", "length.md")
    for row, scores in zip(shown, systems, strict=True):
        assert row[2:5] == [str(scores[i]) for i in (0, 3, 5)]


OF_FIGURES = {"layer_backward": ["model/layers.md", "gradients/residual.md"]}
OF_FIGURES["two_layers"] = ["gradients/idea.md"]


@pytest.mark.parametrize(("figure", "pages"), OF_FIGURES.items())
def test_the_numbers_of_a_figure_are_those_of_its_pages(figure, pages):
    text = "".join(read(DOCS / page) for page in pages)
    numbers = {round(float(x), 4) for x in re.findall(NUMBER, text)} | {0.5}  # ½
    for row in drawn_from(figure):
        for what in ("value", "gradient"):
            found = {round(abs(x), 4) for x in np.ravel(row[what]).tolist()}
            assert found <= numbers, (row["name"], what)


# -- code, pictures and tests


LEFT_OUT = "..."  # a line of a quotation that stands for lines of the file


@pytest.fixture(scope="module")
def code():
    """The lines of each file of npformer, and of what stands on a page of its own."""
    names = {path: path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*.py")}
    names |= {path: path.relative_to(ROOT) for path in DOCS.glob("*.py")}
    return {name.as_posix(): lines_of_code(read(path)) for path, name in names.items()}


def lines_of_code(text):
    """The lines of a text that are neither empty nor comments nor docstrings."""
    without_docstrings = re.sub(r'^ *r?"""(.|\n)*?"""$', "", text, flags=re.MULTILINE)
    lines = map(str.strip, without_docstrings.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def labels(code):
    """The names of the files, and of the functions in them."""
    lines = "\n".join(line for lines in code.values() for line in lines)
    return {*code, *re.findall(r"(?<=def )\w+", lines)}


@for_each(PAGES)
def test_quoted_lines_are_lines_of_one_file_in_its_order(path, code, labels):
    quotations = []
    for block in blocks_of("python", path):
        quotations.append("")
        for line in block.splitlines():
            # the label of a file or a function, which begins another quotation
            label = re.fullmatch(r"# ([\w/.]+)([:,] .*)?", line.strip())
            if label and label[1] in labels:
                quotations.append("")
            else:
                quotations[-1] += line + "\n"
    files = code.values()
    assert [x for x in quotations if not any(is_quoted(x, file) for file in files)] == []


def is_quoted(quotation, lines):
    """Whether each part of a quotation is neighbouring lines, one part below the other."""
    between = rf"^ *{re.escape(LEFT_OUT)}\n|\n\n(?=def )"
    text = "\n".join(["", *lines, ""])
    end = 0
    for part in re.split(between, quotation, flags=re.MULTILINE):
        part = "\n".join(["", *lines_of_code(part), ""])
        start = text.find(part, end)
        if start < 0:
            return False
        end = start + len(part) - 1
    return True


def test_a_quotation_that_leaves_out_a_line_says_so():
    lines = ["a", "b", "c", "d"]
    assert is_quoted("a\n# why\nb\n", lines)
    assert is_quoted("a\n  ...\nc\nd\n", lines)
    assert not is_quoted("a\nc\n", lines)
    assert not is_quoted("c\n...\na\n", lines)


def test_every_picture_has_a_text():
    texts = re.findall(r"!\[(.*?)\]\(", "".join(map(read, DOCUMENTS)), re.DOTALL)
    assert len(texts) > 5
    assert [text for text in texts if len(text) < 20] == []


def test_every_drawing_is_a_function_or_a_list_of_shapes_and_on_a_page():
    pictures = {path.name for path in (DOCS / "figures").iterdir()}
    folder = ROOT / "scripts" / "figures"
    functions = "".join(map(read, folder.glob("*.py")))
    names = in_lines(r"^@figure\ndef (\w+)", functions)
    names += [path.stem for path in folder.glob("diagrams/*.txt")]
    assert len(names) == len(set(names))
    assert {f"{name}.svg" for name in names} == {name for name in pictures if name.endswith(".svg")}
    pages = "".join(map(read, DOCUMENTS))
    assert {name for name in pictures if f"figures/{name})" not in pages} == set()


def test_bad_input_names_tests_that_exist():
    text = read(DOCS / "guides" / "bad-input.md")
    files = {path.name: read(path) for path in (ROOT / "tests").glob("*/test_*.py")}
    for file, name in re.findall(r"(test_\w+\.py)::(test_\w+)", text):
        assert f"def {name}(" in files[file], (file, name)
    named = set(re.findall(r"test_\w+(?!\w|\.py)", text))
    assert len(named) > 50
    assert named <= set(re.findall(r"def (test_\w+)", "".join(files.values())))
