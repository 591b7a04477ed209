"""The pages to play with open as they are in their folder, and what has the focus has a name."""

import pytest

from scripts import make_playground


@pytest.mark.parametrize(
    ("name", "text", "links"), [("index.html", "#said", "a"), ("lab.html", "#question", "#links a")]
)
def test_it_also_opens_without_being_put_together(look, name, text, links):
    page = look(make_playground.FOLDER / name)
    assert page.text(text)
    page.check_links(links, make_playground.FOLDER)


@pytest.mark.parametrize(
    ("name", "address", "at_least"),
    [
        ("index.html", "", 50),
        *[("lab.html", f"bench={bench}", 20) for bench in ("attention", "softmax", "layer_norm")],
    ],
)
def test_whatever_can_have_the_focus_has_a_name(look, name, address, at_least):
    look(make_playground.FOLDER / name, address=address).check_names(at_least)
