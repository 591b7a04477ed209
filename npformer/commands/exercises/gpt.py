"""Write your own GPT in twelve exercises, and train it on a text of yours.

npformer exercises gpt                      # write exercises/gpt.py, and say what comes next
npformer exercises gpt check                # run what you have written, and say what is wrong
npformer exercises gpt hint                 # a hint; the next time one more
npformer exercises gpt answer               # the answer
npformer exercises gpt train                # train it, a minute, and let it write
npformer exercises gpt train --text FILE    # on a text of yours
"""

import math

from npformer.commands.exercises.course import CourseCommand
from npformer.commands.exercises.file import course_or_most_solved, text_of_file
from npformer.commands.shared import positive

from npformer import tree
from npformer.exercises.course.file import digests, starting_text
from npformer.exercises.courses import COURSES
from npformer.exercises.gpt.taking import solved_functions
from npformer.exercises.gpt.text import read_text, sentences_of_npformer
from npformer.exercises.gpt.writing import N_WRITTEN, Writer, words_of
from npformer.exercises.source import UNREADABLE


class GptCommand(CourseCommand):
    """The file begins with what is solved in the person's own Transformer."""

    def begin(self, options, progress):
        """Write the file, and mark as solved what was."""
        super().begin(options, progress)
        course = COURSES["gpt"]
        stubs = digests(course, starting_text(course))
        for key, digest in self.file.digests(course).items():
            if digest != stubs[key]:  # it is taken over
                progress.sources[key] = digest
        progress.save()

    def starting_text(self, course, progress):
        """The page with stubs; what both pages have, and is solved there, is the person's."""
        found = taken_over(progress)
        file = COURSES["build"].file
        for each in found:
            if each.missing:
                needs = f"it needs {each.missing} of that file"
                print(f"{each.name} is not taken over from {file}, as {needs}")
        taken = {each.name: each.source for each in found if not each.missing}
        if taken:
            print(f"Taken over from {file}, where you have solved them: {', '.join(taken)}")
        return starting_text(course, taken)


def taken_over(progress):
    """What the person has solved of the functions that both pages have."""
    file = COURSES["build"].file
    if not file.exists():
        return []
    text = text_of_file(file)
    courses = [course for course in COURSES.values() if course.file == file]
    course = course_or_most_solved(text, courses, progress)
    try:
        return solved_functions(course, text, progress.sources)
    except UNREADABLE:
        print(f"Python cannot read {file}, so nothing is taken over from it")
        return []


COMMAND = GptCommand([COURSES["gpt"]], __doc__, "write your own GPT in twelve exercises")


def add_to(add):
    """Add ``gpt`` to the commands of ``npformer exercises``, with its own commands."""
    add = COMMAND.add_to(add)
    training = add("train", train, "train on a text, a minute, and let it write")
    meaning = "UTF-8 text, plain or .gz (default: sentences about npformer)"
    training.add("--text", meaning, metavar="FILE")
    training.add("--steps", "(default: %(default)s)", type=positive, default=1000, metavar="N")


def train(options, progress):
    """Train the person's model on a text, and let it write."""
    course = COMMAND.opened(options, progress)
    text = read_text(options.text) if options.text else sentences_of_npformer()
    with COMMAND.own_functions(course, progress) as functions:
        writer = Writer(functions, text)
        n_characters = len(writer.characters)
        print(
            f"{len(text):,} characters, {n_characters} different ones, of which the last tenth is "
            f"held out; {tree.count(writer.params):,} parameters"
        )
        writer.train(options.steps)
        loss = writer.new_loss()
        written = writer.written(N_WRITTEN)
    print(f"\n{written}\n")
    bits = loss / math.log(2)
    print(f"loss of new text: {loss:.2f}, or {bits:.2f} bits a character", end="")
    print(f" ({math.log2(n_characters):.2f} if all are equally probable)")
    words = words_of(written)
    known = set(words_of(text))
    n_known = sum(word in known for word in words)
    print(f"{n_known} of the {len(words)} words of three letters or more occur in the text")
