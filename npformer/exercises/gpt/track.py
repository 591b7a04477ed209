"""The track ``npformer exercises gpt``: what its exercises and its file have in common."""

from npformer.exercises.start import explained
from npformer.exercises.track import Page, Track
from npformer.exercises.track.cases import noisy
from npformer.extras import PAGES

HEADER = '''"""Your own GPT: a decoder-only Transformer that learns to write, forward and backward, in NumPy alone.

Write the functions that are exercises, in the order of their numbers. The others are given.

    npformer exercises gpt check                # say what is wrong, or what comes next
    npformer exercises gpt hint                 # a hint; the next time one more
    npformer exercises gpt train                # train: with the given functions in place of those that you have not
    npformer exercises gpt train --text FILE    # written yet; on a text of yours
    python exercises/gpt.py TEXT                # train this file alone, when all is written

'''


def pages(number, part):
    """The page that goes with this track, and the one that derives the function."""
    return f"Numbers: {PAGES}/guides/your-gpt.md, section {number}\n{explained(part)}"


GPT = Track(
    name="gpt",
    command="gpt",
    file_name="gpt.py",
    mark="npformer exercises gpt check",
    page=Page("one_page_gpt.py"),
    title="your own GPT",
    header=HEADER,
    pointer=pages,
)


def model(rng, D, F=5, n_layers=1, vocab=7):
    """Parameters of a whole model."""
    return noisy(rng, GPT.page.module.init(rng, vocab, D, n_layers, F, dtype=float))


def layer(rng, D, F=5):
    """Parameters of a layer."""
    return model(rng, D, F)["layers"]["0"]


def take(part):
    """Add an exercise of build, whose function is the same on both pages, letter by letter."""
    GPT.add_like(part, one_page=GPT.page, answer=getattr(GPT.page.module, part.function_name))
