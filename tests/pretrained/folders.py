"""Files of models, as other libraries write them, and what is said of them."""

import json

import numpy as np
import pytest

from npformer import pretrained, tree
from npformer.training import CheckpointError


def edit(path, *removed, **values):
    """Change values of a JSON file, which may be new, and remove others by their keys."""
    about = (json.loads(path.read_text()) if path.exists() else {}) | values
    path.write_text(json.dumps({key: x for key, x in about.items() if key not in removed}))


def configure(folder, *removed, **values):
    """Change the settings of a model."""
    edit(folder / "config.json", *removed, **values)


def refused(path, **settings):
    """The reason why a model is refused: one line that names its folder or file."""
    with pytest.raises(CheckpointError) as caught:
        pretrained.load(path, **settings)
    text = str(caught.value)
    assert text.isprintable() and str(path) in text
    assert text.endswith("see help(npformer.pretrained.load)")
    return text


def warned(path, message):
    """Load a model. A warning has to contain this message."""
    with pytest.warns(UserWarning) as caught:
        loaded = pretrained.load(path)
    messages = [str(each.message) for each in caught]
    assert any(message in each for each in messages), messages
    return loaded


def warned_of_key(path, key):
    """Load a model. A warning has to name a key, and its value, that npformer does not read."""
    return warned(path, f"has keys that npformer does not read: {key}")


def assert_loads(path, params, **settings):
    """A model has exactly these parameters."""
    loaded = pretrained.load(path, **settings)[1]
    tree.map_leaves(np.testing.assert_array_equal, loaded, params)
