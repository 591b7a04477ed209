"""Write your own Transformer in fourteen exercises.

npformer exercises build               # write exercises/transformer.py, and say what comes next
npformer exercises build check         # run what you have written, and say precisely what is wrong
npformer exercises build hint          # a hint; the next time one more
npformer exercises build answer        # the answer
npformer exercises build train Ada     # let it learn to write words backwards, a minute
"""

from pathlib import Path
from textwrap import indent

from npformer.commands import called
from npformer.commands.arguments import new_parser, positive, utf_8
from npformer.commands.exercises_reports import Refusal, add_seconds, named, print_answer, print_hint, report

from npformer.exercises.child import run, syntax_error_text
from npformer.exercises.compare import error_text
from npformer.exercises.exercise import Complaint
from npformer.exercises.process import SECONDS, check_in_process
from npformer.exercises.progress import FOLDER, read_source
from npformer.exercises.transformer import BUILD, page, reverse
from npformer.exercises.transformer.file import complete, digests, starting_text, text_of
from npformer.runtime.blas_threads import one_blas_thread

FILE = FOLDER / "transformer.py"
N_TESTED = 100  # words that the trained model writes backwards
NAMES = list(BUILD)


def add_to(commands):
    """Add ``build`` to the commands of ``npformer exercises``."""
    made = new_parser(__doc__)
    shown = {"description": made.description, "formatter_class": made.formatter_class}
    top = commands.add_parser("build", help="write your own Transformer in fourteen exercises", **shown)
    top.set_defaults(run=show)
    actions = top.add_subparsers(title="commands", metavar="COMMAND")
    for name, act, what in (
        ("check", check, "run your function, and say what is wrong"),
        ("hint", hint, "a hint; the next time one more"),
        ("answer", answer, "the answer"),
    ):
        action = actions.add_parser(name, help=what)
        action.add_argument("name", nargs="?", metavar="EXERCISE", help="(default: the first that is not solved)")
        action.set_defaults(run=act)
        if act is check:
            add_seconds(action.add_argument)
    training = actions.add_parser("train", help="train on words written backwards, a minute, and write your name so")
    training.add_argument("words", nargs="*", type=utf_8, metavar="NAME", help="(it is asked for if there is none)")
    training.add_argument("--steps", type=positive, default=1500, metavar="N", help="(default: %(default)s)")
    training.set_defaults(run=train)


def program():
    """How the person calls this."""
    return called("exercises") + " build"


def next_of(progress):
    """The exercises that are not solved, in order."""
    return [part for part in BUILD.values() if part.key not in progress.solved]


def chosen(options, progress):
    """The exercise that is named, or the first that is not solved."""
    if options.name is None:
        return next(iter(next_of(progress)), BUILD[NAMES[-1]])
    return named(options.name, BUILD, program())


def there(progress):
    """Leave the marks of what is as it was when it was checked. Returns the digests of what the file has now."""
    if not FILE.exists():
        elsewhere = "if you have begun elsewhere, go to that folder (cd)"
        raise Refusal(f"there is no {FILE} in {Path.cwd()}: {elsewhere}; {program()} begins a new one here")
    source = read_source(FILE)
    try:
        now = digests(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what checks or trains says so
        return {}
    progress.solved = progress.solved - now.keys() | {key for key in now if progress.sources.get(key) == now[key]}
    return now


def is_changed(part, progress):
    """Whether the function was right once, and is another one now."""
    return part.key in progress.sources and part.key not in progress.solved


def check_one(part, progress, now, seconds, is_first=True):
    """Check an exercise, and note and print the verdict; but not if it is not written, and not the first."""
    verdict, printed = check_in_process(part.key, FILE, seconds)
    progress.sources.pop(part.key, None)
    if verdict.solved and part.key in now:
        progress.sources[part.key] = now[part.key]
    if verdict.state != "not written" or is_first:
        report(part, FILE, verdict, printed, progress, program())
    progress.save()
    return verdict


def print_next(progress):
    """Print what is to be written next."""
    left = next_of(progress)
    if left:
        print(f"\n{indent(text_of(NAMES.index(left[0].name) + 1, left[0]), '    ')}\n")
        backward = "backward of " * left[0].is_backward
        print(f"Write {backward}{left[0].function_name} in {FILE}{line_of(left[0])}, then: {program()} check")
    else:
        print(f"\nall are solved, so the model is yours: {program()} train")


def line_of(part):
    """Where the function stands in the file, or its backward pass."""
    lines = read_source(FILE).decode("utf-8", "replace").splitlines()
    found = [n for n, line in enumerate(lines, 1) if line.startswith(f"def {part.function_name}(")]
    if part.is_backward:
        found = [n for n, line in enumerate(lines, 1) if found and n > found[0] and "def backward(" in line]
    return f", line {found[0]}" if found else ""


# -- the commands -------------------------------------------------------------------------------------------------


def show(options, progress):
    """Write the file if there is none, and list the exercises."""
    if not FILE.exists():
        FOLDER.mkdir(exist_ok=True)
        with FILE.open("x", encoding="utf-8") as stream:
            stream.write(starting_text())
        print(f"Your file: {FILE}")
        if progress.sources:
            print(f"It is new, so the {len(progress.sources)} that you had solved are no longer marked")
            progress.sources = {}
            progress.save()
    there(progress)
    for number, part in enumerate(BUILD.values(), 1):
        changed = "changed since its check" if is_changed(part, progress) else ""
        state = "solved" if part.key in progress.solved else changed
        print(f"{number:3}  {part.name:<24}{part.title:<58}{state}".rstrip())
    print_next(progress)


def check(options, progress):
    """Check the exercise that is named, or the first that is not solved and those behind it that are written.

    The exit status is 1 if one is not right.
    """
    now = there(progress)
    todo = [chosen(options, progress)] if options.name else next_of(progress) or BUILD.values()
    for n_solved, part in enumerate(todo):
        verdict = check_one(part, progress, now, options.seconds, not n_solved)
        if verdict.state == "not written" and n_solved:
            break
        if not verdict.solved:
            return 1
    print_next(progress)
    return 0


def hint(options, progress):
    """Print one hint more than the last time."""
    there(progress)
    part = chosen(options, progress)
    print(f"{part.name}:")
    print_hint(part, progress, program())


def answer(options, progress):
    """Print the answer."""
    print_answer(chosen(options, progress))


def train(options, progress):
    """Train the person's model, and let it write the names backwards."""
    now = there(progress)
    given = options.words or [ask()]
    words = [reverse.letters_of(word) for word in given]
    for part in BUILD.values():
        if is_changed(part, progress):
            check_one(part, progress, now, SECONDS)
    own = [part.name for part in BUILD.values() if part.key in progress.solved]
    print(f"{len(own)} of {len(NAMES)} exercises are yours{': ' * bool(own)}{', '.join(own)}")
    file = str(FILE.resolve())
    try:
        names = run(read_source(file), file)
        complete(names, progress.solved)
        with one_blas_thread():  # their products, with NumPy, are small
            params = reverse.train(names, words, options.steps)
            tests = reverse.Words(words).random(reverse.np.random.default_rng(1), N_TESTED)
            found = reverse.written(names, params, words + tests, words)
    except SyntaxError as error:
        raise Refusal(f"{FILE}: {syntax_error_text(error)}") from None
    except Complaint as error:
        raise Refusal(str(error)) from None
    except BrokenPipeError:  # of what reads the output, not of the file
        raise
    except (Exception, SystemExit) as error:
        is_given = isinstance(error, NameError) and error.name in page.FUNCTIONS
        what = f"it was given: copy it from {page.FILE}" if is_given else f"{program()} check EXERCISE checks one"
        raise Refusal(f"{FILE}: it raises {error_text(error, file)}; {what}") from None
    right = ["".join(reversed(word)) for word in words + tests]
    for word, wanted, text in zip(given, right, found, strict=False):
        but = "" if text == wanted else f"   (wrong: it is {wanted}; more --steps help)"
        print(f"{word.strip()} backwards: {text}{but}")
    n_right = sum(a == b for a, b in zip(found[len(words) :], right[len(words) :], strict=True))
    print(f"{n_right} of {N_TESTED} words of random letters are written backwards without a mistake")


def ask():
    """The name of the person."""
    try:
        return input("your name: ")
    except EOFError:
        raise Refusal(f"there is no name: {program()} train NAME") from None
