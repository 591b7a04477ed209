"""The tracks: tables of exercises that ask for the functions of one page."""

from npformer.exercises.gpt import GPT
from npformer.exercises.track import Track
from npformer.exercises.transformer import BUILD
from npformer.exercises.transformer.derive import DERIVE

TRACKS: dict[str, Track] = {track.name: track for track in (BUILD, DERIVE, GPT)}
