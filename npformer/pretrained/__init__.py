"""Models of other libraries, from and to their files.

To read the code: ``loading`` and ``saving`` are the two ways, and say what happens in which order.
On the way there is

- ``opening``: which files of a folder are the model; ``files`` reads them, ``gguf_reader`` and
  ``gguf_file`` those of llama.cpp, ``sentences`` those of sentence-transformers,
- ``families``: what architecture they are of. ``family`` is the base of all, on ``naming``, which
  gives parameters their names in files; ``gpt2`` is a short one, ``pytorch`` a state dict that says
  nothing of itself,
- ``keys``: what each key of a file means, in tables,
- ``tokenizer``: texts to ids and back, of the files that ``tokenizer_settings`` and
  ``library_tokenizers`` read.

What uses a loaded model stands apart: ``chat``, which renders templates in ``sandbox``, ``vectors``
with ``vector_index``, and ``ctranslate2``, which exports one. ``adapters`` keeps those of
``nf.LowRank`` beside their model, ``packages`` downloads two models to try.
"""

from npformer.pretrained.loading import load
from npformer.pretrained.saving import save

__all__ = ["load", "save"]
