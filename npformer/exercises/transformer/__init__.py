"""Write your own Transformer in fourteen exercises: ``npformer exercises build``.

Each asks for a function of ``docs/one_page_transformer.py``, or for its backward pass. What is not written yet comes
from that file, so that the whole of it always runs.
"""

from npformer.exercises.transformer import forward, backward, layers  # isort: skip  # each adds its exercises to BUILD, in this order
from npformer.exercises.transformer.part import Part
from npformer.exercises.transformer.record import BUILD

__all__ = ["BUILD", "Part", "backward", "forward", "layers"]
