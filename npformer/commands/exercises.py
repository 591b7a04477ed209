"""Exercises along the path of the book, with a checker.

npformer exercises                  # list the exercises, and which are solved
npformer exercises start softmax    # write exercises/softmax.py, which you complete
npformer exercises check softmax    # run it, and say precisely what is wrong
npformer exercises hint softmax     # a hint; the next time one more
npformer exercises answer softmax   # the answer
npformer exercises build            # write your own Transformer in fourteen exercises
"""

import ast
import os
import sys
from pathlib import Path
from textwrap import indent

from npformer.commands import called, exercises_build
from npformer.commands.arguments import new_parser
from npformer.commands.command import command
from npformer.commands.exercises_reports import Refusal, add_seconds, named, print_answer, print_hint, report

from npformer.exercises.process import check_in_process
from npformer.exercises.progress import FILE, FOLDER, Progress, read_source
from npformer.exercises.start import heading, starting_text, task_text
from npformer.exercises.tasks import EXERCISES
from npformer.runtime.extras import BOOK


@command
def main(argv=None):
    """Do what the command line asks for. Returns the exit status, 1 if an exercise is not solved."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # of what the terminal cannot show, such as Σ
    options = parser().parse_args(argv)
    if Path.cwd().name == FOLDER.name and Path(FILE.name).is_file():
        raise Refusal("this is the folder of your exercises: go to the folder above it (cd ..)")
    return options.run(options, Progress())


def parser():
    """The arguments of the command line."""
    top = new_parser(__doc__)
    top.set_defaults(run=show_list)
    commands = top.add_subparsers(title="commands", metavar="COMMAND")

    def add(name, run, what):
        command = commands.add_parser(name, help=what)
        command.set_defaults(run=run)
        return command.add_argument

    add("list", show_list, "the exercises in order, and which are solved")
    of_start = add("start", begin, "write the file of an exercise, which you complete")
    of_start("name", nargs="?", metavar="EXERCISE", help="(default: the first that is not solved)")
    of_start("--file", type=Path, metavar="FILE", help="where to write it (default: exercises/EXERCISE.py)")
    of_check = add("check", check_all, "run your function, and say what is wrong")
    what = "an exercise, or a file that defines functions of exercises (default: all that you have started)"
    of_check("what", nargs="*", metavar="EXERCISE|FILE", help=what)
    add_seconds(of_check)
    hint = lambda options, progress: print_hint(find(options.name), progress, program())
    add("hint", hint, "a hint; the next time one more")("name", metavar="EXERCISE")
    add("answer", lambda options, _: print_answer(find(options.name)), "the answer")("name", metavar="EXERCISE")
    exercises_build.add_to(commands)
    return top


def program():
    """How the person calls this."""
    return called("exercises")


def find(name):
    return named(name, EXERCISES, program())


# -- the commands -------------------------------------------------------------------------------------------------


def show_list(options, progress):
    """Print a line an exercise, under the page of the book that explains it."""
    page = None
    for number, (name, exercise) in enumerate(EXERCISES.items(), 1):
        if exercise.page != page:
            page = exercise.page
            print(f"\n{BOOK}/{page}.md")
        state = "solved" if name in progress.solved else "begun" if progress.is_begun(name) else ""
        print(f"{number:3}  {name:<24}{exercise.title:<58}{state}".rstrip())
    solved = len(progress.solved & set(EXERCISES))
    print(f"\n{solved} of {len(EXERCISES)} solved")
    print(next_line(progress))
    print(f"your own Transformer, in fourteen exercises: {exercises_build.program()}")


def next_of(progress, after=None):
    """The first exercise that is not solved: behind ``after``, and from the first one again; or None."""
    names = list(EXERCISES)
    start = names.index(after) + 1 if after else 0
    return next((name for name in names[start:] + names[:start] if name not in progress.solved), None)


def next_line(progress, after=None):
    """The line that says what to do next."""
    name = next_of(progress, after)
    return f"next: {program()} {'check' if progress.is_begun(name) else 'start'} {name}" if name else "all are solved"


def begin(options, progress):
    """Write the file of an exercise."""
    name = options.name or next_of(progress)
    if name is None:
        raise Refusal(f"all are solved: name the one that you want to do again, as in {program()} start softmax")
    exercise = find(name)
    file = options.file or FOLDER / f"{exercise.name}.py"
    if file.exists():
        raise Refusal(f"{file} is there already: check it, delete it, or choose another name with --file")
    if options.file is None:
        FOLDER.mkdir(exist_ok=True)
    with file.open("x", encoding="utf-8") as stream:
        stream.write(starting_text(exercise))
    progress.files[exercise.name] = str(file)
    progress.save()
    print(f"{exercise.name}: {heading(exercise)}\n\n{indent(task_text(exercise), '    ')}\n")
    print(f"Your file: {file}\nEdit it, then: {program()} check {exercise.name}")


def check_all(options, progress):
    """Check each function. The exit status is 1 if one is not right."""
    begun = [name for name in EXERCISES if progress.is_begun(name)]
    todo = [pair for what in options.what or begun for pair in functions_of(what, progress)]
    if not todo:
        raise Refusal(f"you have not started any exercise yet: {program()} start")
    verdicts = []
    for name, file in todo:
        verdict, printed = check_in_process(name, file, options.seconds)
        verdicts.append(verdict)
        report(EXERCISES[name], file, verdict, printed, progress, program())
        progress.files[name] = str(file)
    progress.save()
    n_solved = sum(verdict.solved for verdict in verdicts)
    if len(verdicts) > 1:
        print(f"{n_solved} of these {len(verdicts)} are solved")
    if n_solved < len(verdicts):
        return 1
    print(next_line(progress, after=todo[-1][0]))
    return 0


def functions_of(what, progress):
    """The pairs (exercise, file) that an argument of ``check`` means."""
    if not (what.endswith(".py") or os.sep in what or Path(what).is_file()):
        exercise = find(what)
        file = progress.file_of(exercise.name)
        if not file.exists():
            raise Refusal(f"{file} is missing: {program()} start {exercise.name} writes it")
        return [(exercise.name, file)]
    file = Path(what)
    if not file.exists():
        raise Refusal(f"{file} is missing: expected a Python file")
    if file.resolve() == exercises_build.FILE.resolve():
        raise Refusal(f"{file} is that of your own Transformer: {exercises_build.program()} check")
    if file.stem in EXERCISES:
        return [(file.stem, file)]
    names = [name for name in EXERCISES if name in names_in(file)]
    if not names:
        started = [name for name, place in progress.files.items() if Path(place) == file and name in EXERCISES]
        names = started[:1]
    if not names:
        raise Refusal(f"{file} defines no function of an exercise, such as {next(iter(EXERCISES.values())).signature}")
    return [(name, file) for name in names]


def names_in(file):
    """The names that the top level of a file defines."""
    source = read_source(file)
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise Refusal(f"{file}: Python cannot read it: {error.msg} in line {error.lineno}") from None
    except ValueError as error:
        raise Refusal(f"{file}: Python cannot read it: {error}") from None
    except (RecursionError, MemoryError):
        raise Refusal(f"{file}: Python cannot read it: an expression is nested too deeply") from None
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return functions | {target.id for target in targets if isinstance(target, ast.Name)}
