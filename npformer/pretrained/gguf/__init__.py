"""GGUF files of llama.cpp: ``reader`` finds values and tensors by their names, ``model`` and
``tokenizer`` make of them what a folder of transformers would hold.
"""

from npformer.pretrained.gguf.model import read_gguf

__all__ = ["read_gguf"]
