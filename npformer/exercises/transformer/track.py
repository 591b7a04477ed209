"""The track of one's own Transformer: ``npformer exercises build``."""

from npformer.exercises.track import Page, Track
from npformer.exercises.track.cases import noisy

HEADER = '''"""Your own Transformer: encoder and decoder, forward and backward, in NumPy alone.

Write the functions that are exercises, in the order of their numbers. The others are given.

    npformer exercises build check    # say what is wrong, or what comes next
    npformer exercises build hint     # a hint; the next time one more
    npformer exercises build train    # train: with the given functions in place of those that you have not written yet

'''

BUILD = Track(
    name="build",
    command="build",
    file_name="transformer.py",
    mark="npformer exercises build check",
    page=Page("one_page_transformer.py"),
    title="your own Transformer",
    header=HEADER,
)
PAGE = BUILD.page.module


def model(rng, D, F=5, n_layers=1, vocab=7):
    """Parameters of a whole model."""
    return noisy(rng, PAGE.init(rng, vocab, D, n_layers, F))
