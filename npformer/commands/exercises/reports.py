"""What `npformer exercises`, with its commands `build` and `gpt`, says about an exercise."""

import re
from textwrap import dedent, fill, indent

from npformer.commands import nearest
from npformer.commands.shared import in_range

from npformer.errors import UserError
from npformer.exercises.process import SECONDS
from npformer.extras import PAGES

STATES = {"solved": "solved", "wrong": "not yet right", "not written": "not written yet"}


def actions_of(parser):
    """A function that adds a command to those of a parser: its name, what runs, its meaning."""
    actions = parser.add_subparsers(title="commands", metavar="[COMMAND]")

    def add(name, run, meaning, **details):
        described = {"description": f"{meaning[0].upper()}{meaning[1:]}."} | details
        action = actions.add_parser(name, help=meaning, **described)
        action.set_defaults(run=run)
        return action

    return add


def named(name, exercises, program):
    """The exercise of this name, or of this number in the list."""
    by_number = {str(number): each for number, each in enumerate(exercises, 1)}
    name = by_number.get(name, name)
    if name not in exercises:
        advice = nearest(name, exercises) or f": see {program}"
        if name.lstrip("-").isdigit():
            advice = f": they are 1 to {len(exercises)}, see {program}"
        raise UserError(f"there is no exercise {name!r:.40}{advice}")
    return exercises[name]


def add_seconds(parser):
    """The option --seconds."""
    kind = in_range("ABOVE_0", at_most=3600)
    parser.add("--seconds", "the time that a function has", type=kind, default=SECONDS, metavar="X")


def print_line(number, exercise, state):
    """Print a line of a list of exercises."""
    print(f"{number:3}  {exercise.name:<24}{exercise.title:<58}{state}".rstrip())


def report(exercise, file, verdict, printed, progress, program):
    """Note whether it is solved and what is wrong, and print it, or that nothing is.

    Where the bug is what the exercise asks for, its explanation comes only after the last hint.
    """
    if printed:
        print(f"{file} printed:\n{indent(printed.rstrip(), '    ')}")
    print(f"{exercise.name}: {STATES[verdict.state]}")
    for line in verdict.lines:
        print(f"    {line}")
    is_hidden = exercise.given and hints_left(exercise, progress)
    reason = "" if is_hidden else verdict.reason
    if reason:
        print(f"    perhaps: {reason}")
    if verdict.solved:
        progress.solved.add(exercise.key)
        progress.diagnoses.pop(exercise.key, None)
    else:
        progress.solved.discard(exercise.key)
        progress.diagnoses[exercise.key] = reason or verdict.topic
    if verdict.state == "wrong":
        print(f"    a hint: {program} hint {exercise.name}")


def hints_left(exercise, progress):
    """The numbers, from 1, of the hints that were not shown."""
    shown = progress.hints.get(exercise.key, [])
    return [number for number in range(1, len(exercise.hints) + 1) if number not in shown]


def next_hint(exercise, progress):
    """The number of the hint that comes next, and what the last check has said, if the hint is
    about that. None if there is no more.

    Hints come in their order. What is about the mistake that the last check has found comes first,
    also if it was shown before that check.
    """
    diagnosis = progress.diagnoses.get(exercise.key, "")
    for pattern, number in exercise.hint_for.items():
        if re.search(pattern, diagnosis):
            return number, diagnosis
    left = hints_left(exercise, progress)
    return (left[0], "") if left else None


def note_hint(exercise, number, progress):
    """Note that a hint was shown, after what the last check has said."""
    shown = progress.hints.setdefault(exercise.key, [])
    if number not in shown:
        shown.append(number)
    progress.diagnoses.pop(exercise.key, None)
    progress.save()


def print_diagnosis(diagnosis):
    """Print why a hint comes first, if there is a reason."""
    if diagnosis:
        print(f"about what the last check said: {diagnosis}")


def print_hints(exercise, progress, program):
    """Print the hints that were shown, and one more."""
    shown = progress.hints.get(exercise.key, [])
    next_number, diagnosis = next_hint(exercise, progress) or (None, "")
    for number, hint in enumerate(exercise.hints, 1):
        if number in shown and number != next_number:
            print(f"{number}. {hint}")
    if next_number:
        print_diagnosis(diagnosis)
        print(f"{next_number}. {exercise.hints[next_number - 1]}")
        note_hint(exercise, next_number, progress)
    if hints_left(exercise, progress):
        print("the same command again gives one more")
    else:
        more = "; `check` now says more about what is wrong" if exercise.given else ""
        print(f"that was the last hint{more}; the answer: {program} answer {exercise.name}")


def print_answer(exercise):
    """Print the answer."""
    print(f"{exercise.imports}\n\n\n{exercise.answer_source.rstrip()}")
    print(f"\n\n# explained in {PAGES}/{exercise.page}.md")


def print_hint_alone(exercise, number, progress, program):
    """Print the next hint alone. Raises UserError if there is none, or no need of one."""
    what = f"exercise {number}, {exercise.name},"
    if exercise.key in progress.solved:
        raise UserError(
            f"{what} is solved, and needs no hint: {program} answer {number} shows the answer, and "
            f"{program} hint {number} its hints"
        )
    n_hints = len(exercise.hints)
    hint = next_hint(exercise, progress)
    if hint is None:
        raise UserError(
            f"{what} has no more hints, all {n_hints} were shown: {program} hint {number} shows "
            f"them again, {program} answer {number} the answer"
        )
    n, diagnosis = hint
    seen = "" if n in hints_left(exercise, progress) else ", which you have seen"
    print(f"{what} hint {n} of {n_hints}{seen}:")
    print_diagnosis(diagnosis)
    print(indent(fill(exercise.hints[n - 1], width=96, break_on_hyphens=False), "    "))
    note_hint(exercise, n, progress)
    if hints_left(exercise, progress):
        print(f"the next one: {program} --hint {number}")
    else:
        print(f"that was the last hint; the answer: {program} answer {number}")


def print_derivation(exercise):
    """Print why the answer is right, if it is told."""
    if exercise.derivation:
        text = indent(dedent(exercise.derivation).strip(), "    ")
        print(f"\nWhy {exercise.name} is so (a == b: equal except for rounding):\n\n{text}")
