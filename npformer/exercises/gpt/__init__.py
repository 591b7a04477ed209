"""Write your own GPT in twelve exercises: ``npformer exercises gpt``.

Each asks for a function of ``docs/one_page_gpt.py``, or for its backward pass. What is not written
yet comes from that file, so that the whole of it always runs, and trains.
"""

from npformer.exercises.gpt.course import GPT

__all__ = ["GPT"]
