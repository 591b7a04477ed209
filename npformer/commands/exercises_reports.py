"""What `npformer exercises`, with its commands `build` and `gpt`, says about an exercise."""

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
    """Note whether it is solved, and print what is wrong, or that nothing is.

    Where the bug is what the exercise asks for, its explanation comes only after the last hint.
    """
    if printed:
        print(f"{file} printed:\n{indent(printed.rstrip(), '    ')}")
    print(f"{exercise.name}: {STATES[verdict.state]}")
    if verdict.solved:
        progress.solved.add(exercise.key)
    else:
        progress.solved.discard(exercise.key)
    n_hints = progress.hints.get(exercise.key, 0)
    hides_reason = exercise.given and n_hints < len(exercise.hints)
    for line in verdict.lines:
        if not (hides_reason and line.startswith(PERHAPS)):
            print(f"    {line}")
    if verdict.state == "wrong":
        print(f"    a hint: {program} hint {exercise.name}")


def print_hint(exercise, progress, program):
    """Print one hint more than the last time."""
    n_before = int(progress.hints.get(exercise.key, 0))
    n = min(n_before + 1, len(exercise.hints))
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


def print_next_hint(exercise, number, progress, program):
    """Print the next hint alone. Raises UserError if there is none, or no need of one."""
    what = f"exercise {number}, {exercise.name},"
    if exercise.key in progress.solved:
        raise UserError(
            f"{what} is solved, and needs no hint: {program} answer {number} shows the answer, and "
            f"{program} hint {number} its hints"
        )
    n_shown = int(progress.hints.get(exercise.key, 0))
    n_hints = len(exercise.hints)
    if n_shown >= n_hints:
        raise UserError(
            f"{what} has no more hints, all {n_hints} were shown: {program} hint {number} shows "
            f"them again, {program} answer {number} the answer"
        )
    text = fill(exercise.hints[n_shown], width=96, break_on_hyphens=False)
    print(f"{what} hint {n_shown + 1} of {n_hints}:\n{indent(text, '    ')}")
    if n_shown + 1 < n_hints:
        print(f"the next one: {program} --hint {number}")
    else:
        print(f"that was the last hint; the answer: {program} answer {number}")
    progress.hints[exercise.key] = n_shown + 1
    progress.save()


def print_derivation(exercise):
    """Print why the answer is right, if it is told."""
    if exercise.derivation:
        text = indent(dedent(exercise.derivation).strip(), "    ")
        print(f"\nWhy {exercise.name} is so (a == b: equal but for rounding):\n\n{text}")
