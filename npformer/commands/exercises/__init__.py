"""Exercises along the path of the book, with a checker.

npformer exercises                  # list the exercises, and which are solved
npformer exercises start softmax    # write exercises/softmax.py, which you complete
npformer exercises check softmax    # run it, and say precisely what is wrong
npformer exercises hint softmax     # a hint; the next time one more
npformer exercises answer softmax   # the answer
npformer exercises build            # write your own Transformer in fourteen exercises
npformer exercises build --derive   # the same, and derive its gradients
npformer exercises gpt              # write your own GPT in twelve exercises
"""

import ast
import os
import sys
from pathlib import Path
from textwrap import indent

from npformer.commands import called
from npformer.commands.exercises import build, gpt
from npformer.commands.exercises.reports import (
    actions_of,
    add_seconds,
    named,
    print_answer,
    print_hints,
    print_line,
    report,
)
from npformer.commands.shared import command, new_parser

from npformer.errors import UserError
from npformer.exercises.courses import COURSES
from npformer.exercises.process import check_in_process
from npformer.exercises.progress import FILE, FOLDER, Progress
from npformer.exercises.source import UNREADABLE, read_source
from npformer.exercises.start import heading, starting_text, task_text
from npformer.exercises.tasks import EXERCISES
from npformer.extras import BOOK


@command
def main(argv=None):
    """Do what the command line asks for. Returns the exit status, 1 if an exercise is not
    solved.
    """
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # of what the terminal cannot show, such as Σ
    options = parser().parse_args(argv)
    if Path.cwd().name == FOLDER.name and Path(FILE.name).is_file():
        advice = "go to the folder above it (cd ..)"
        raise UserError(f"this is the folder of your exercises: {advice}")
    return options.run(options, Progress.read())


def parser():
    """The arguments of the command line."""
    top = new_parser(__doc__)
    top.set_defaults(run=show_list)
    top.typed_after = {name: f"start {name}" for name in EXERCISES}
    add = actions_of(top)
    add("list", show_list, "the exercises in order, and which are solved")
    start = add("start", begin, "write the file of an exercise, which you complete")
    start.add("name", "(default: the first that is not solved)", nargs="?", metavar="EXERCISE")
    start.add(
        "--file", "where to write it (default: exercises/EXERCISE.py)", type=Path, metavar="FILE"
    )
    check = add("check", check_all, "run your function, and say what is wrong")
    several = "(default: all that you have started)"
    check.add(
        "what",
        f"an exercise, or a file that defines functions of exercises {several}",
        nargs="*",
        metavar="EXERCISE|FILE",
    )
    add_seconds(check)
    hint = add("hint", show_hint, "a hint; the next time one more")
    hint.add_argument("name", metavar="EXERCISE")
    answer = add("answer", show_answer, "the answer")
    answer.add_argument("name", metavar="EXERCISE")
    build.add_to(add)
    gpt.add_to(add)
    return top


def program():
    """How the person calls this."""
    return called("exercises")


def find(name):
    return named(name, EXERCISES, program())


# -- the commands ----------------------------------------------------------------------------------


def show_list(options, progress):
    """Print a line an exercise, under the page of the book that explains it."""
    page = None
    for number, (name, exercise) in enumerate(EXERCISES.items(), 1):
        if exercise.page != page:
            page = exercise.page
            print(f"\n{BOOK}/{page}.md")
        state = "begun" if progress.is_begun(name) else ""
        if name in progress.solved:
            state = "solved"
        print_line(number, exercise, state)
    n_solved = len(progress.solved & set(EXERCISES))
    print(f"\n{n_solved} of {len(EXERCISES)} solved")
    print(next_line(progress))
    print(f"your own Transformer, in fourteen exercises: {program()} build")
    print(f"your own GPT, in twelve exercises: {program()} gpt")


def show_hint(options, progress):
    print_hints(find(options.name), progress, program())


def show_answer(options, progress):
    print_answer(find(options.name))


def next_of(progress, after=None):
    """The first exercise that is not solved: behind ``after``, and from the first one again; or
    None.
    """
    names = list(EXERCISES)
    start = names.index(after) + 1 if after else 0
    in_order = names[start:] + names[:start]
    return next((name for name in in_order if name not in progress.solved), None)


def next_line(progress, after=None):
    """The line that says what to do next."""
    name = next_of(progress, after)
    if name is None:
        return "all are solved"
    action = "check" if progress.is_begun(name) else "start"
    return f"next: {program()} {action} {name}"


def begin(options, progress):
    """Write the file of an exercise."""
    name = options.name or next_of(progress)
    if name is None:
        advice = f"as in {program()} start softmax"
        raise UserError(f"all are solved: name the one that you want to do again, {advice}")
    exercise = find(name)
    file = options.file or FOLDER / f"{exercise.name}.py"
    if file.exists():
        advice = "check it, delete it, or choose another name with --file"
        raise UserError(f"{file} is there already: {advice}")
    if options.file is None:
        FOLDER.mkdir(exist_ok=True)
    with file.open("x", encoding="utf-8") as stream:
        stream.write(starting_text(exercise, program()))
    progress.files[exercise.name] = str(file)
    progress.save()
    print(f"{exercise.name}: {heading(exercise)}\n\n{indent(task_text(exercise), '    ')}\n")
    print(f"Your file: {file}\nEdit it, then: {program()} check {exercise.name}")


def check_all(options, progress):
    """Check each function. The exit status is 1 if one is not right."""
    whats = options.what or [name for name in EXERCISES if progress.is_begun(name)]
    functions = [function for what in whats for function in functions_of(what, progress)]
    if not functions:
        raise UserError(f"you have not started any exercise yet: {program()} start")
    n_solved = 0
    for name, file in functions:
        verdict, printed = check_in_process(name, file, options.seconds)
        n_solved += verdict.solved
        report(EXERCISES[name], file, verdict, printed, progress, program())
        progress.files[name] = str(file)
    progress.save()
    if len(functions) > 1:
        print(f"{n_solved} of these {len(functions)} are solved")
    if n_solved < len(functions):
        return 1
    print(next_line(progress, after=functions[-1][0]))
    return 0


def functions_of(what, progress):
    """The pairs (exercise, file) that an argument of ``check`` means."""
    if not (what.endswith(".py") or os.sep in what or Path(what).is_file()):
        name = find(what).name
        file = progress.file_of(name)
        if not file.exists():
            raise UserError(f"{file} is missing: {program()} start {name} writes it")
        return [(name, file)]
    file = Path(what)
    if not file.exists():
        raise UserError(f"{file} is missing: expected a Python file")
    for course in COURSES.values():
        if file.resolve() == course.file.resolve():
            raise UserError(f"{file} is that of {course.title}: {program()} {course.command} check")
    if file.stem in EXERCISES:
        return [(file.stem, file)]
    defined = names_in(file)
    names = [name for name in EXERCISES if name in defined]
    if not names:
        # A person may have renamed or deleted the function of the exercise that began the file.
        names = [name for name in EXERCISES if progress.files.get(name) == str(file)][:1]
    if not names:
        example = next(iter(EXERCISES.values())).signature
        raise UserError(f"{file} defines no function of an exercise, such as {example}")
    return [(name, file) for name in names]


def names_in(file):
    """The names that the top level of a file defines."""
    source = read_source(file)
    try:
        tree = ast.parse(source)
    except UNREADABLE as error:
        reason = str(error)
        if isinstance(error, SyntaxError):
            reason = f"{error.msg} in line {error.lineno}"
        elif not isinstance(error, ValueError):
            reason = "an expression is nested too deeply"
        raise UserError(f"{file}: Python cannot read it: {reason}") from None
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names
