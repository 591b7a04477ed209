"""Models of other libraries, from and to their files.

To read the code: ``loading`` and ``saving`` are the two ways, and say what happens in which order.
On the way there is

- ``opening``: which files of a path are the model; ``files`` reads them, ``gguf`` those of
  llama.cpp, ``sentences`` what sentence-transformers say of vectors,
- ``families``: of which architecture it is. ``gpt2`` is the shortest, on ``family``, what
  config.json says, and ``naming``, what parameters are called in files; ``pytorch`` is a state
  dict, which says nothing of itself,
- ``keys``: what each key of a file means, in tables, whose words ``rules`` explains,
- ``tokenizer``: texts to ids and back, of the files that ``tokenizer_settings`` and
  ``library_tokenizers`` read.

What uses a loaded model stands apart: ``chat``, which renders templates in ``sandbox``, ``vectors``
with ``vector_index``, and ``ctranslate2``, which exports one. ``adapters`` keeps those of
``nf.LowRank`` beside their model, ``packages`` downloads two models to try.
"""

from npformer.pretrained.loading import load
from npformer.pretrained.saving import save

__all__ = ["load", "save"]
