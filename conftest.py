"""Examples in docstrings and in the README are run where the packages they need are installed."""

import sys
from importlib.util import find_spec

NEEDS = {
    "sentencepiece": [
        "npformer/data/subwords.py",
        "npformer/data/parallel_text.py",
        "npformer/translation/translator.py",
    ],
    "sacrebleu": ["npformer/translation/scores.py"],
    "sacremoses": ["npformer/translation/scores.py"],
    "safetensors": ["npformer/training/checkpoint.py", "docs/guides/library.md"],
}
collect_ignore = [path for package, paths in NEEDS.items() if find_spec(package) is None for path in paths]
collect_ignore_glob = ["tests/cuda_on_cpu/*"]  # whose cupy would be taken for CuPy
collect_ignore_glob += ["docs/conf.py", "docs/_extensions/*", "docs/_build/*", "docs/api/*"]  # which need Sphinx
collect_ignore_glob += [] if "cupy_without_gpu" in sys.modules else ["tests/cupy_without_gpu/*"]
collect_ignore_glob += [] if find_spec("cupy") else ["npformer/gpu/*"]
