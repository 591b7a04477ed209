"""What may know of what."""

import re
from pathlib import Path

import npformer

PACKAGE = Path(npformer.__file__).parent
DEVICE = re.compile(r"import cupy|\bcupy\.|is_gpu|is_on_gpu|is_cupy|== .npformer\.gpu")
MAY_KNOW = {"backends.py", "arrays.py"}  # which backend there is, and whose array this is


def test_only_the_backend_of_the_gpu_knows_its_device():
    files = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "gpu" and path.name not in MAY_KNOW]
    assert len(files) > 80
    knowing = {str(path.relative_to(PACKAGE)) for path in files if DEVICE.search(path.read_text("utf-8"))}
    assert knowing == set()


def test_each_backend_knows_its_device():
    from npformer import cpu, host, reference

    names = {"PRECISIONS", "asarray", "asynchronous", "record", "run_rows", "run_shards", "to_numpy"}
    assert {name for name in vars(host) if name in names} == names
    for ops in (reference, cpu):
        assert all(getattr(ops, name) is getattr(host, name) for name in names)
        assert not names & set(reference.__all__)
