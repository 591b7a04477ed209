"""Write your own Transformer in fourteen exercises.

npformer exercises build               # write exercises/transformer.py, and say what comes next
npformer exercises build --derive      # the same, without formulas of gradients: you derive them
npformer exercises build check         # run what you have written, and say precisely what is wrong
npformer exercises build hint          # a hint; the next time one more
npformer exercises build --hint 9      # the next hint of exercise 9 alone
npformer exercises build answer        # the answer
npformer exercises build train Ada     # let it learn to write words backwards, a minute
"""

import numpy as np

from npformer.commands.exercises.course import CourseCommand
from npformer.commands.shared import positive, utf_8

from npformer.errors import UserError
from npformer.exercises.courses import COURSES
from npformer.exercises.transformer import reverse

N_TESTED = 100  # words that the trained model writes backwards
COMMAND = CourseCommand(
    [COURSES["build"], COURSES["derive"]],
    __doc__,
    "write your own Transformer in fourteen exercises",
)


def add_to(add):
    """Add ``build`` to the commands of ``npformer exercises``, with its own commands."""
    add = COMMAND.add_to(add)
    meaning = "train on words written backwards, a minute, and write your name so"
    training = add("train", train, meaning)
    training.add(
        "words", "(it is asked for if there is none)", nargs="*", type=utf_8, metavar="NAME"
    )
    training.add("--steps", type=positive, default=1500, metavar="N")


def train(options, progress):
    """Train the person's model, and let it write the names backwards."""
    course = COMMAND.opened(options, progress)
    names = options.words or [ask()]
    words = [reverse.letters_of(name) for name in names]
    with COMMAND.own_functions(course, progress) as functions:
        params = reverse.train(functions, words, options.steps)
        rng = np.random.default_rng(1)
        tested = words + reverse.Words(words).random(rng, N_TESTED)
        texts = reverse.written(functions, params, tested, words)
    right = ["".join(reversed(word)) for word in tested]
    for name, text, expected in zip(names, texts, right, strict=False):
        but = "" if text == expected else f"   (wrong: it is {expected}; more --steps help)"
        print(f"{name.strip()} backwards: {text}{but}")
    others = slice(len(names), None)
    n_right = sum(map(str.__eq__, texts[others], right[others]))
    score = f"{n_right} of {N_TESTED} words of random letters"
    print(f"{score} are written backwards without a mistake")


def ask():
    """The name of the person."""
    try:
        return input("your name: ")
    except EOFError:
        raise UserError(f"there is no name: {COMMAND.file.program()} train NAME") from None
