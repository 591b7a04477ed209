"""The commands of a course: write its file, check it, give hints and answers, and train."""

import contextlib
from textwrap import indent

from npformer.commands.exercises.file import CourseFile
from npformer.commands.exercises.reports import (
    actions_of,
    add_seconds,
    named,
    print_answer,
    print_derivation,
    print_hint_alone,
    print_hints,
    print_line,
    report,
)
from npformer.commands.shared import shown_as_written

from npformer.errors import UserError
from npformer.exercises.course.file import complete, starting_text, text_of
from npformer.exercises.exercise import Complaint
from npformer.exercises.process import SECONDS, check_in_process
from npformer.exercises.progress import FOLDER
from npformer.exercises.source import read_source, run, syntax_error_text
from npformer.exercises.texts import error_text, line_of
from npformer.runtime.blas_threads import one_blas_thread


class CourseCommand:
    """A command of ``npformer exercises`` with commands of its own.

    Parameters
    ----------
    courses : list of Course
        They have one `CourseFile`. It is begun as that of the first, or by an option as that of
        another; after that, its docstring says of which course it is.
    doc : str
        What ``--help`` shows.
    meaning : str
        A line in the list of the commands.
    """

    def __init__(self, courses, doc, meaning):
        self.courses = courses
        self.name = courses[0].command
        self.file = CourseFile(courses)
        self.doc = doc
        self.meaning = meaning

    def add_to(self, add):
        """Add the command, and the commands that all courses have. Returns a function that adds
        another one.
        """
        top = add(self.name, self.show, self.meaning, **shown_as_written(self.doc))
        for course in self.courses[1:]:
            top.add(f"--{course.name}", course.meaning, action="store_true")
        top.add(
            "--hint",
            "the next hint of the exercise of this number or name; one about what the last check "
            "said comes first",
            metavar="EXERCISE",
        )
        add = actions_of(top)
        first = "(default: the first that is not solved)"
        checking = add("check", self.check, "run your function, and say what is wrong")
        add_seconds(checking)
        for action in (
            checking,
            add("hint", self.hint, "a hint; the next time one more"),
            add("answer", self.answer, "the answer"),
        ):
            action.add_argument("name", nargs="?", metavar="EXERCISE", help=first)
        return add

    def opened(self, options, progress):
        """The course of the person's file, once its options are checked, and what is as it was when
        it was right is marked as solved.
        """
        if options.hint is not None and options.run != self.show:
            raise UserError(f"--hint stands alone: {self.file.program()} --hint {options.hint}")
        course = self.file.course(progress)
        self.refuse_other_course(options, course)
        self.mark_solved(course, progress)
        return course

    def refuse_other_course(self, options, course):
        """Raise if an option asks for another course than that of the file."""
        for other in self.courses[1:]:
            if getattr(options, other.name) and course is not other:
                raise UserError(
                    f"{self.file.path} is there already, and was not begun with --{other.name}: go "
                    f"on with it without --{other.name}, or move it out of {FOLDER}, and begin a "
                    f"new one with {self.file.program()} --{other.name}"
                )

    def mark_solved(self, course, progress):
        """Mark as solved what is as it was when it was right, and nothing else of the course."""
        for key, digest in self.file.digests(course).items():
            if progress.sources.get(key) == digest:
                progress.solved.add(key)
            else:
                progress.solved.discard(key)

    def begin(self, options, progress):
        """Write the file."""
        course = self.courses[0]
        for other in self.courses[1:]:
            if getattr(options, other.name):
                course = other
        renamed = self.file.look_alike()
        FOLDER.mkdir(exist_ok=True)
        text = self.starting_text(course, progress)
        with self.file.path.open("x", encoding="utf-8") as stream:
            stream.write(text)
        print(f"Your file: {self.file.path}")
        if renamed:
            print(f"{renamed} looks like one, too: to go on with it, mv {renamed} {self.file.path}")
        old = [key for key in progress.sources if course.is_of(key)]
        if old:
            print(f"It is new, so the {len(old)} that you had solved are no longer marked")
            for key in old:
                del progress.sources[key]
            progress.save()

    def starting_text(self, course, progress):
        """What the file is at first."""
        return starting_text(course)

    def chosen(self, options, progress):
        """The exercise that is named, or the first that is not solved, or the last one."""
        course = self.opened(options, progress)
        if options.name:
            return named(options.name, course.parts, self.file.program())
        to_do = next_of(course, progress)
        return to_do[0] if to_do else list(course.parts.values())[-1]

    def check_one(self, course, part, progress, seconds, is_first=True):
        """Check an exercise, and note and print the verdict. Of one that is not written nothing is
        printed, unless it is the first.
        """
        digest = self.file.digests(course).get(part.key)  # of what is checked, not of a later text
        verdict, printed = check_in_process(part.key, self.file.path, seconds)
        progress.sources.pop(part.key, None)
        if verdict.solved and digest:
            progress.sources[part.key] = digest
        if verdict.state != "not written" or is_first:
            report(part, self.file.path, verdict, printed, progress, self.file.program())
        progress.save()
        return verdict

    def print_next(self, course, progress):
        """Print what is to be written next."""
        parts = next_of(course, progress)
        if not parts:
            print(f"\nall are solved, so the model is yours: {self.file.program()} train")
            return
        part = parts[0]
        print(f"\n{indent(text_of(course, part), '    ')}\n")
        what = f"backward of {part.function_name}" if part.is_backward else part.function_name
        where = f"{self.file.path}{self.file.line_of(part)}"
        print(f"Write {what} in {where}, then: {self.file.program()} check")

    # -- the commands ------------------------------------------------------------------------------

    def show(self, options, progress):
        """Print a hint; or write the file if there is none, and list the exercises."""
        if options.hint is not None:
            self.print_hint_alone(options, progress)
            return
        if not self.file.path.exists():
            self.begin(options, progress)
        course = self.opened(options, progress)
        for number, part in enumerate(course.parts.values(), 1):
            state = "changed since its check" if is_changed(part, progress) else ""
            if part.key in progress.solved:
                state = "solved"
            print_line(number, part, state)
        self.print_next(course, progress)

    def check(self, options, progress):
        """Check the exercise that is named, or the first that is not solved and those behind it
        that are written.

        The exit status is 1 if one is not right.
        """
        course = self.opened(options, progress)
        to_do = next_of(course, progress)
        parts = to_do or course.parts.values()
        if options.name:
            parts = [named(options.name, course.parts, self.file.program())]
        for n_solved, part in enumerate(parts):
            is_first = n_solved == 0
            verdict = self.check_one(course, part, progress, options.seconds, is_first)
            if verdict.state == "not written" and not is_first:
                break
            if not verdict.solved:
                return 1
            if part in to_do or options.name:
                print_derivation(part)
        self.print_next(course, progress)
        return 0

    def hint(self, options, progress):
        """Print one hint more than the last time."""
        part = self.chosen(options, progress)
        print(f"{part.name}:")
        print_hints(part, progress, self.file.program())

    def print_hint_alone(self, options, progress):
        """Print the next hint of an exercise, without those that were shown."""
        course = self.opened(options, progress)
        part = named(options.hint, course.parts, self.file.program())
        print_hint_alone(part, course.number_of(part), progress, self.file.program())

    def answer(self, options, progress):
        """Print the answer."""
        part = self.chosen(options, progress)
        print_answer(part)
        print_derivation(part)

    # -- the training ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def own_functions(self, course, progress):
        """The names of the person's file for a training, those of the page in place of what is not
        solved. What has changed since it was solved is checked first, and an error of the person's
        code gets a line.
        """
        self.check_changed(course, progress)
        parts = course.parts.values()
        own = [part.name for part in parts if part.key in progress.solved]
        list_of_own = f": {', '.join(own)}" if own else ""
        print(f"{len(own)} of {len(parts)} exercises are yours{list_of_own}")
        file = str(self.file.path.resolve())
        try:
            functions = run(read_source(file), file)
            complete(course, functions, progress.solved)
            with one_blas_thread():  # their products, with NumPy, are small
                yield functions
        except SyntaxError as error:
            raise UserError(f"{self.file.path}: {syntax_error_text(error)}") from None
        except Complaint as error:
            raise UserError(str(error)) from None
        except BrokenPipeError:  # of what reads the output
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, UserError) and not line_of(error, file):  # of the training
                raise
            reason = error_text(error, file)
            advice = self.advice_on(error, course)
            raise UserError(f"{self.file.path}: it raises {reason}; {advice}") from None

    def check_changed(self, course, progress):
        """Check what was right once, and has changed."""
        for part in course.parts.values():
            if is_changed(part, progress):
                self.check_one(course, part, progress, SECONDS)

    def advice_on(self, error, course):
        """What to do about an error of the person's code."""
        if isinstance(error, NameError) and error.name in course.page.functions:
            return f"it was given: copy it from {course.page.file}"
        return f"{self.file.program()} check EXERCISE checks one"


def next_of(course, progress):
    """The exercises that are not solved, in order."""
    return [part for part in course.parts.values() if part.key not in progress.solved]


def is_changed(part, progress):
    """Whether the function was right once, and is another one now."""
    return part.key in progress.sources and part.key not in progress.solved
