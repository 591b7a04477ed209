"""What several test files share."""

import pytest

import npformer
from npformer import cpu, reference


@pytest.fixture(params=[reference, cpu], ids=["reference", "cpu"])
def every_backend(request, monkeypatch):
    """Runs a test once for each backend, whose operations are then those of ``npformer``."""
    for name in reference.__all__:
        monkeypatch.setattr(npformer, name, getattr(request.param, name))
    return request.param
