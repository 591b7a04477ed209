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
from npformer.commands.arguments import positive, shown_as_written, utf_8
from npformer.commands.exercises_reports import (
    actions_of,
    add_seconds,
    named,
    print_answer,
    print_hint,
    report,
)

from npformer.errors import UserError
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


def add_to(add):
    """Add ``build`` to the commands of ``npformer exercises``, with its own commands."""
    meaning = "write your own Transformer in fourteen exercises"
    add = actions_of(add("build", show, meaning, **shown_as_written(__doc__)))
    first = "(default: the first that is not solved)"
    checking = add("check", check, "run your function, and say what is wrong")
    add_seconds(checking)
    for action in (
        checking,
        add("hint", hint, "a hint; the next time one more"),
        add("answer", answer, "the answer"),
    ):
        action.add_argument("name", nargs="?", metavar="EXERCISE", help=first)
    meaning = "train on words written backwards, a minute, and write your name so"
    training = add("train", train, meaning)
    training.add(
        "words", "(it is asked for if there is none)", nargs="*", type=utf_8, metavar="NAME"
    )
    training.add("--steps", type=positive, default=1500, metavar="N")


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


def update(progress):
    """Mark as solved what is as it was when it was right. Returns the digests of what the file has
    now.
    """
    if not FILE.exists():
        raise UserError(
            f"there is no {FILE} in {Path.cwd()}: if you have begun elsewhere, go to that folder "
            f"(cd); {program()} begins a new one here"
        )
    source = read_source(FILE)
    try:
        now = digests(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what checks or trains says so
        return {}
    for key, digest in now.items():
        if progress.sources.get(key) == digest:
            progress.solved.add(key)
        else:
            progress.solved.discard(key)
    return now


def is_changed(part, progress):
    """Whether the function was right once, and is another one now."""
    return part.key in progress.sources and part.key not in progress.solved


def check_one(part, progress, now, seconds, is_first=True):
    """Check an exercise, and note and print the verdict; but not if it is not written, and not the
    first.
    """
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
    parts = next_of(progress)
    if not parts:
        print(f"\nall are solved, so the model is yours: {program()} train")
        return
    part = parts[0]
    print(f"\n{indent(text_of(NAMES.index(part.name) + 1, part), '    ')}\n")
    what = f"backward of {part.function_name}" if part.is_backward else part.function_name
    print(f"Write {what} in {FILE}{line_of(part)}, then: {program()} check")


def line_of(part):
    """Where the function stands in the file, or its backward pass."""
    start = f"def {part.function_name}("
    is_inside = False
    text = read_source(FILE).decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), 1):
        is_backward = is_inside and "def backward(" in line
        is_inside = is_inside or line.startswith(start)
        if is_backward or (is_inside and not part.is_backward):
            return f", line {number}"
    return ""


# -- the commands ----------------------------------------------------------------------------------


def show(options, progress):
    """Write the file if there is none, and list the exercises."""
    if not FILE.exists():
        FOLDER.mkdir(exist_ok=True)
        with FILE.open("x", encoding="utf-8") as stream:
            stream.write(starting_text())
        print(f"Your file: {FILE}")
        if progress.sources:
            n = len(progress.sources)
            print(f"It is new, so the {n} that you had solved are no longer marked")
            progress.sources = {}
            progress.save()
    update(progress)
    for number, part in enumerate(BUILD.values(), 1):
        state = "changed since its check" if is_changed(part, progress) else ""
        if part.key in progress.solved:
            state = "solved"
        print(f"{number:3}  {part.name:<24}{part.title:<58}{state}".rstrip())
    print_next(progress)


def check(options, progress):
    """Check the exercise that is named, or the first that is not solved and those behind it that
    are written.

    The exit status is 1 if one is not right.
    """
    now = update(progress)
    parts = next_of(progress) or BUILD.values()
    if options.name:
        parts = [chosen(options, progress)]
    for n_solved, part in enumerate(parts):
        is_first = n_solved == 0
        verdict = check_one(part, progress, now, options.seconds, is_first)
        if verdict.state == "not written" and not is_first:
            break
        if not verdict.solved:
            return 1
    print_next(progress)
    return 0


def hint(options, progress):
    """Print one hint more than the last time."""
    update(progress)
    part = chosen(options, progress)
    print(f"{part.name}:")
    print_hint(part, progress, program())


def answer(options, progress):
    """Print the answer."""
    print_answer(chosen(options, progress))


def train(options, progress):
    """Train the person's model, and let it write the names backwards."""
    now = update(progress)
    names = options.words or [ask()]
    words = [reverse.letters_of(name) for name in names]
    for part in BUILD.values():
        if is_changed(part, progress):
            check_one(part, progress, now, SECONDS)
    own = [part.name for part in BUILD.values() if part.key in progress.solved]
    list_of_own = f": {', '.join(own)}" if own else ""
    print(f"{len(own)} of {len(NAMES)} exercises are yours{list_of_own}")
    words, texts = trained_texts(words, progress, options.steps)
    right = ["".join(reversed(word)) for word in words]
    for name, text, expected in zip(names, texts, right, strict=False):
        but = "" if text == expected else f"   (wrong: it is {expected}; more --steps help)"
        print(f"{name.strip()} backwards: {text}{but}")
    tested = slice(len(names), None)
    n_right = sum(map(str.__eq__, texts[tested], right[tested]))
    words = f"{n_right} of {N_TESTED} words of random letters"
    print(f"{words} are written backwards without a mistake")


def trained_texts(words, progress, steps):
    """Train the person's model. Returns the words, with ``N_TESTED`` of random letters behind them,
    and what the model writes for each.
    """
    file = str(FILE.resolve())
    try:
        functions = run(read_source(file), file)
        complete(functions, progress.solved)
        with one_blas_thread():  # their products, with NumPy, are small
            params = reverse.train(functions, words, steps)
            rng = reverse.np.random.default_rng(1)
            tested = words + reverse.Words(words).random(rng, N_TESTED)
            return tested, reverse.written(functions, params, tested, words)
    except SyntaxError as error:
        raise UserError(f"{FILE}: {syntax_error_text(error)}") from None
    except Complaint as error:
        raise UserError(str(error)) from None
    except BrokenPipeError:  # of what reads the output, not of the file
        raise
    except (Exception, SystemExit) as error:
        advice = f"{program()} check EXERCISE checks one"
        if isinstance(error, NameError) and error.name in page.FUNCTIONS:
            advice = f"it was given: copy it from {page.FILE}"
        raise UserError(f"{FILE}: it raises {error_text(error, file)}; {advice}") from None


def ask():
    """The name of the person."""
    try:
        return input("your name: ")
    except EOFError:
        raise UserError(f"there is no name: {program()} train NAME") from None
