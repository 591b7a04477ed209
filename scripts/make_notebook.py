"""Make the notebook of the tour, docs/guides/library.ipynb, from its page library.md: run it, and
keep what it shows.

python scripts/make_notebook.py      # half a minute; needs pip install -e '.[docs]'
"""

import re
import sys
from doctest import DocTestParser, Example
from importlib.util import find_spec
from pathlib import Path

from npformer.commands.shared import command_line  # needs pip install -e .

from npformer.extras import ADDRESS, pip_install

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "guides" / "library.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
INSTALL = '%pip install -q "npformer[plot,progress,checkpoint]"'
INSTALLS = (
    "The first cell installs npformer, "
    "and what draws pictures, shows progress and saves checkpoints:"
)


@command_line
def main():
    """Make the notebook."""
    if find_spec("nbclient") is None:
        raise ImportError(f"a notebook needs nbclient: {pip_install('docs')}")
    import nbformat  # which comes with it

    notebook = made()
    run(notebook)
    nbformat.write(notebook, NOTEBOOK)


def cells():
    """(kind, source, what the page says it shows) of each cell."""
    introduction, rest = re.split(
        r"(?=^## )", PAGE.read_text(encoding="utf-8"), maxsplit=1, flags=re.MULTILINE
    )
    yield "markdown", f"{with_addresses(introduction)}\n\n{INSTALLS}", ""
    yield "code", INSTALL, ""
    for i, part in enumerate(
        re.split(r"^```pycon\n(.*?)^```\n", rest, flags=re.DOTALL | re.MULTILINE)
    ):
        if i % 2:
            yield from code_cells(part)
        else:
            yield "markdown", with_addresses(part), ""


def code_cells(block):
    """Cells of a block of examples, each of which ends where something is shown."""
    source = ""
    for part in DocTestParser().parse(block):
        source += part.source if isinstance(part, Example) else part
        if isinstance(part, Example) and part.want:
            yield "code", without_options(source), part.want
            source = ""
    if source.strip():
        yield "code", without_options(source), ""


def without_options(source):
    return re.sub(r"  # doctest: .*", "", source).strip()


def with_addresses(text):
    """Links to files of the repository lead to its site."""

    def address(link):
        path = (PAGE.parent / link[1]).resolve().relative_to(ROOT)
        return f"]({ADDRESS}/blob/main/{path.as_posix()}"

    return re.sub(r"\]\((?!\w+:|#)([^)#]+)", address, text.strip())


def made():
    """The notebook, without the outputs."""
    import nbformat

    new = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(
        cells=[new[kind](source, id=f"cell-{i}") for i, (kind, source, _) in enumerate(cells())],
        metadata={"kernelspec": kernel, "language_info": {"name": "python"}},
    )


def run(notebook, folder=None):
    """Run every cell but the one that installs, and keep all outputs but standard error: kernels
    that are compiled.
    """
    import nbclient

    client = nbclient.NotebookClient(
        notebook, record_timing=False, resources={"metadata": {"path": folder}}
    )
    with client.setup_kernel():
        for i, cell in enumerate(notebook.cells):
            if cell.cell_type == "code" and cell.source != INSTALL:
                client.execute_cell(cell, i)
                cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]


if __name__ == "__main__":
    sys.exit(main())
