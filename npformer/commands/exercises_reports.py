"""What `npformer exercises` and `npformer exercises build` say about an exercise."""

from textwrap import indent

from npformer.commands import nearest
from npformer.commands.arguments import in_range

from npformer.exercises.compare import PERHAPS
from npformer.exercises.process import SECONDS
from npformer.runtime.extras import PAGES


class Refusal(ValueError):
    """What the person can mend, in one line."""


def named(name, exercises, program):
    """The exercise of this name, or of this number in the list."""
    if name.isascii() and name.isdigit() and 0 < int(name) <= len(exercises):
        name = list(exercises)[int(name) - 1]
    if name not in exercises:
        raise Refusal(f"there is no exercise {name!r:.40}{nearest(name, exercises) or f': see {program}'}")
    return exercises[name]


def add_seconds(add):
    """The option --seconds."""
    seconds = in_range(lambda options: options.ABOVE_0, at_most=3600)
    add("--seconds", type=seconds, default=SECONDS, help="the time that a function has (default: %(default)g)")


def report(exercise, file, verdict, printed, progress, program):
    """Note whether it is solved, and print what is wrong, or that nothing is.

    Where the bug is what the exercise asks for, its explanation comes only after the last hint.
    """
    if printed:
        print(f"{file} printed:\n{indent(printed.rstrip(), '    ')}")
    said = {"solved": "solved", "wrong": "not yet right", "not written": "not written yet"}[verdict.state]
    print(f"{exercise.name}: {said}")
    (progress.solved.add if verdict.solved else progress.solved.discard)(exercise.key)
    is_early = exercise.given and progress.hints.get(exercise.key, 0) < len(exercise.hints)
    for line in verdict.lines:
        if not (is_early and line.startswith(PERHAPS)):
            print(f"    {line}")
    if verdict.state == "wrong":
        print(f"    a hint: {program} hint {exercise.name}")


def print_hint(exercise, progress, program):
    """Print one hint more than the last time."""
    n = min(int(progress.hints.get(exercise.key, 0)) + 1, len(exercise.hints))
    for number, hint in enumerate(exercise.hints[:n], 1):
        print(f"{number}. {hint}")
    if n < len(exercise.hints):
        print("the same command again gives one more")
    else:
        more = "; `check` now says more about what is wrong" if exercise.given else ""
        print(f"that was the last hint{more}; the answer: {program} answer {exercise.name}")
    progress.hints[exercise.key] = n
    progress.save()


def print_answer(exercise):
    """Print the answer."""
    print(f"{exercise.imports}\n\n\n{exercise.answer_source.rstrip()}")
    print(f"\n\n# explained in {PAGES}/{exercise.page}.md")
