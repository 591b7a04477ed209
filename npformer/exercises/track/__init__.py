"""What the tracks have in common: exercises that ask for the functions of one page of code.

A track is a page, such as ``docs/one_page_transformer.py``, and a table of exercises. Each asks for
a function of the page, or for its backward pass. What a person has not written yet comes from the
page, so that their file always runs.
"""

from npformer.exercises.track.page import Page
from npformer.exercises.track.part import AdamPart, Part
from npformer.exercises.track.track import Track

__all__ = ["AdamPart", "Page", "Part", "Track"]
