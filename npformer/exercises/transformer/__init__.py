"""Write your own Transformer in fourteen exercises: ``npformer exercises build``.

Each asks for a function of ``docs/one_page_transformer.py``, or for its backward pass.
"""

from npformer.exercises.transformer.build import BUILD

__all__ = ["BUILD"]
