"""What `npformer exercises`, with its commands `build` and `gpt`, says about an exercise."""

import re
from textwrap import dedent, fill, indent

from npformer.commands import nearest
from npformer.commands.arguments import option

from npformer.errors import UserError
from npformer.exercises.compare import PERHAPS
from npformer.exercises.process import SECONDS
from npformer.extras import PAGES

STATES = {"solved": "solved", "wrong": "not yet right", "not written": "not written yet"}


def actions_of(parser):
    """A function that adds a command to those of a parser: its name, what runs, its meaning."""
    actions = parser.add_subparsers(title="commands", metavar="COMMAND")

    def add(name, run, meaning, **details):
        action = actions.add_parser(name, help=meaning, **details)
        action.set_defaults(run=run)
        return action

    return add


def named(name, exercises, program):
    """The exercise of this name, or of this number in the list."""
    if name.isascii() and name.isdigit() and 0 < int(name) <= len(exercises):
        name = list(exercises)[int(name) - 1]
    if name not in exercises:
        advice = nearest(name, exercises) or f": see {program}"
        if name.lstrip("-").isdigit():
            advice = f": they are 1 to {len(exercises)}, see {program}"
        raise UserError(f"there is no exercise {name!r:.40}{advice}")
    return exercises[name]


def add_seconds(parser):
    """The option --seconds."""
    kind = option("ABOVE_0", at_most=3600)
    parser.add(
        "--seconds",
        "the time that a function has",
        type=kind,
        default=SECONDS,
    )


def report(exercise, file, verdict, printed, progress, program):
    """Note whether it is solved and what is wrong, and print it, or that nothing is.

    Where the bug is what the exercise asks for, its explanation comes only after the last hint.
    """
    if printed:
        print(f"{file} printed:\n{indent(printed.rstrip(), '    ')}")
    print(f"{exercise.name}: {STATES[verdict.state]}")
    hides_reason = exercise.given and hint_to_show(exercise, progress)
    lines = [line for line in verdict.lines if not (hides_reason and line.startswith(PERHAPS))]
    for line in lines:
        print(f"    {line}")
    if verdict.solved:
        progress.solved.add(exercise.key)
        progress.diagnoses.pop(exercise.key, None)
    else:
        progress.solved.discard(exercise.key)
        most_precise = lines[-1] if lines else ""  # the reason, if one was found
        if most_precise.startswith("it "):  # raises an error, or returns too few results
            most_precise = ""  # its words are not about the mathematics, as hints are
        progress.diagnoses[exercise.key] = most_precise
    if verdict.state == "wrong":
        print(f"    a hint: {program} hint {exercise.name}")


def hint_to_show(exercise, progress):
    """The number of the hint that comes next, and what the last check has said, if the hint is
    about that. None if all were shown.

    Hints come in their order, but what is about the mistake that was found comes first.
    """
    shown = progress.hints.get(exercise.key, [])
    left = [number for number in range(1, len(exercise.hints) + 1) if number not in shown]
    diagnosis = progress.diagnoses.get(exercise.key, "")
    found = [n for pattern, n in exercise.hint_for.items() if re.search(pattern, diagnosis)]
    if found and found[0] in left:
        return found[0], diagnosis.removeprefix(PERHAPS)
    return (left[0], "") if left else None


def note_hint(exercise, number, progress):
    """Note that a hint was shown."""
    progress.hints[exercise.key] = [*progress.hints.get(exercise.key, []), number]
    progress.save()


def print_hint(exercise, progress, program):
    """Print the hints that were shown, and one more."""
    to_show = hint_to_show(exercise, progress)
    shown = progress.hints.get(exercise.key, [])
    for number, hint in enumerate(exercise.hints, 1):
        if number in shown:
            print(f"{number}. {hint}")
    if to_show:
        number, diagnosis = to_show
        if diagnosis:
            print(f"about what the last check said: {diagnosis}")
        print(f"{number}. {exercise.hints[number - 1]}")
        note_hint(exercise, number, progress)
    if hint_to_show(exercise, progress):
        print("the same command again gives one more")
    else:
        more = "; `check` now says more about what is wrong" if exercise.given else ""
        print(f"that was the last hint{more}; the answer: {program} answer {exercise.name}")


def print_answer(exercise):
    """Print the answer."""
    print(f"{exercise.imports}\n\n\n{exercise.answer_source.rstrip()}")
    print(f"\n\n# explained in {PAGES}/{exercise.page}.md")


def print_next_hint(exercise, number, progress, program):
    """Print the next hint alone. Raises UserError if there is none, or no need of one."""
    what = f"exercise {number}, {exercise.name},"
    if exercise.key in progress.solved:
        raise UserError(
            f"{what} is solved, and needs no hint: {program} answer {number} shows the answer, and "
            f"{program} hint {number} its hints"
        )
    n_hints = len(exercise.hints)
    to_show = hint_to_show(exercise, progress)
    if to_show is None:
        raise UserError(
            f"{what} has no more hints, all {n_hints} were shown: {program} hint {number} shows "
            f"them again, {program} answer {number} the answer"
        )
    n, diagnosis = to_show
    print(f"{what} hint {n} of {n_hints}:")
    if diagnosis:
        print(f"about what the last check said: {diagnosis}")
    print(indent(fill(exercise.hints[n - 1], width=96, break_on_hyphens=False), "    "))
    note_hint(exercise, n, progress)
    if hint_to_show(exercise, progress):
        print(f"the next one: {program} --hint {number}")
    else:
        print(f"that was the last hint; the answer: {program} answer {number}")


def print_derivation(exercise):
    """Print why the answer is right, if it is told."""
    if exercise.derivation:
        text = indent(dedent(exercise.derivation).strip(), "    ")
        print(f"\nWhy {exercise.name} is so (a == b: equal but for rounding):\n\n{text}")
