"""The file with which a person begins an exercise."""

from textwrap import dedent, indent

from npformer.extras import PAGES

# Pages that quote code which is close to the answers.
SHOWS = {"attention/heads", "attention/masks", "gradients/residual", "training/adam"} | {
    f"gradients/{name}" for name in ("attention", "cross-entropy", "heads", "layer-norm", "linear")
}

OF_FLOAT32 = (
    "Where the arguments are float32, what is returned has to be float32, too: float64 is slower."
)


def starting_text(exercise, program):
    """The task as a docstring, and the function without its body, or with bugs to find.

    ``program`` is how the person calls the command, such as "npformer exercises".
    """
    return (
        f'"""{heading(exercise)}\n\n{task_text(exercise)}\n\n'
        f"{explained(exercise)}\n"
        f'Check it with: {program} check {exercise.name}\n"""\n\n'
        f"{exercise.imports}\n\n\n{function_text(exercise)}"
    )


def explained(exercise):
    """The page that explains it."""
    but = " (its code is close to the answer)" if exercise.page in SHOWS else ""
    return f"Explained in {PAGES}/{exercise.page}.md{but}"


def heading(exercise):
    """The title as a sentence."""
    return exercise.title[0].upper() + exercise.title[1:] + "."


def task_text(exercise):
    """What to do, without indentation."""
    text = dedent(exercise.task).strip()
    return f"{text}\n\n{OF_FLOAT32}" if exercise.float64_from else text


def function_text(exercise):
    """The function that a person edits."""
    if exercise.given:
        given = exercise.given.strip().splitlines()
        return "\n".join([given[0], shapes_text(exercise), *given[1:], ""])
    return f"{exercise.signature}\n{shapes_text(exercise)}\n    raise NotImplementedError\n"


def shapes_text(exercise):
    """The docstring of the function: its arguments and its results."""
    lines = ['"""', "Parameters", "----------"]
    lines += [f"{name} : {text}" for name, text in exercise.arguments.items()]
    lines += ["", "Returns", "-------"]
    lines += [f"{name} : {text}" for name, text in exercise.results.items()]
    return indent("\n".join([*lines, '"""']), "    ")
