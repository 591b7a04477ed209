"""Settings of Sphinx, which makes the site from this folder: ``make docs``."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("docs/_extensions", "docs")]

import ziamath  # noqa: E402, for the font that it brings

import npformer  # noqa: E402

project = "npformer"
copyright = "The npformer developers"
version = release = npformer.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_copybutton",
    "formulas",
    "source_links",
    "trim_code",
    "contracts",
    "card",
    "playground",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_extensions"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
myst_url_schemes = ["http", "https", "module"]  # the last one is of source_links
html_theme = "furo"
html_math_renderer = "mathml"
html_title = "npformer"
html_baseurl = "https://npformer.github.io/npformer/"  # where it is published: the one place that says so
html_context = {"home": html_baseurl}
html_additional_pages = {"404": "404.html"}
html_favicon = "_static/favicon.svg"
html_static_path = ["_static", str(Path(ziamath.__file__).parent / "fonts" / "STIXTwoMath-Regular.ttf")]
html_css_files = ["book.css"]
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
autosummary_generate = True
numpydoc_show_class_members = False
