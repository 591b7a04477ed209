"""Chat with a language model that exists, such as SmolLM2: the tokens of its answers are shown as
they are drawn.

npformer chat                                 # with that of npformer get-model smollm2
npformer chat --prompt "What is a noun?"      # one answer
npformer chat --model DIR --system "You are a poet." --temperature 1

Ctrl-C ends an answer, Ctrl-D ends the chat. --model may be a GGUF file or a folder of the library
transformers.

Standard input that is not typed, but a file or a pipe, has a question on each line. One that cannot
be answered is named on standard error, and the next is answered; the exit code is then 1. Whatever
ends the chat, also Ctrl-C, --json has all questions until then, each with its answer, as far as it
was said, or with its error.
"""

import contextlib
import sys
from dataclasses import asdict
from pathlib import Path

from npformer.commands.arguments import add_backend, new_parser, positive, utf_8, words
from npformer.commands.command import command, message_or_raise, print_error, print_note
from npformer.commands.decoding import Sampling, add_sampling, sampling_of
from npformer.commands.lines import (
    STANDARD_INPUT,
    Refusals,
    lines_of,
    standard_input,
    text_of_argument,
)
from npformer.commands.models import load_of_others
from npformer.commands.output import add_json, refuse_overwriting, write_json

from npformer import tree
from npformer.operations.explain import explain
from npformer.pretrained.chat import Chat
from npformer.pretrained.packages import PACKAGES, check_there, in_models
from npformer.quantized import quantize

DEFAULTS = Sampling(n_tokens=512, temperature=0.2, top_p=0.9)
LONG = 10**11  # tokens times parameters that are read in about half a second


@command
def main(argv=None):
    options = parse_arguments(argv)
    path = options.model
    if path is None:
        check_there("smollm2")
        path = PACKAGES["smollm2"].place(in_models("smollm2"))
    refuse_overwriting(options, [path])
    model, params, tokenizer = load_of_others(path, "chat")
    params = quantize(params) if options.int8 else params
    chat = Chat(model, params, tokenizer, options.system, options.backend, options.context)
    answers = []
    refusals = Refusals()
    try:
        if options.prompt:
            answer(chat, options.prompt, answers, options)
        elif sys.stdin.isatty():
            print_note(f"{path.name}: Ctrl-C ends an answer, Ctrl-D the chat")
            talk(chat, answers, options)
        else:
            answer_lines(chat, answers, options, refusals)
    finally:
        write_json(options.json, {"model": str(path), "answers": answers})
    return refusals.exit_code


def talk(chat, answers, options):
    """Answer what a person types; nothing but Ctrl-D ends this."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401, with which input edits a line
    while True:
        try:
            if question := input("> ").strip():
                answer(chat, question, answers, options)
        except ValueError as error:  # the question is too long, or the template does not accept it
            print_error(message_or_raise(error))
        except KeyboardInterrupt:
            print()
        except EOFError:
            print()
            return


def answer_lines(chat, answers, options, refusals):
    """Answer each line of standard input."""

    def refuse_line(message):
        answers.append({"question": None, "error": message})
        refusals.tell(message)

    for number, line in enumerate(lines_of("-", refuse_line), start=1):
        if question := line.strip():
            try:
                answer(chat, question, answers, options)
            except ValueError as error:
                refusals.tell(f"{STANDARD_INPUT}, line {number}: {message_or_raise(error)}")


def answer(chat, question, answers, options):
    """Show the answer to a question, and add its figures to ``answers``, or how far it came if
    something ends it.
    """
    sampling = asdict(sampling_of(options, DEFAULTS))
    sampling["seed"] += len(chat.messages)  # or the same question would have the same answer
    parts = []

    def show(part):
        parts.append(part)
        print(part, end="", flush=True)

    def reading(n):
        if n * tree.count(chat.params) > LONG:
            print_note(f"reading {n:,} tokens …")

    try:
        with explain() if options.explain else contextlib.nullcontext() as calls:
            result = chat.answer(question, show=show, reading=reading, **sampling)
    except BaseException as error:  # Ctrl-C, and a reader of standard output that has gone, too
        reason = str(error) or type(error).__name__
        answers.append({"question": question, "text": "".join(parts), "error": reason})
        raise
    figures = result._asdict() | {"tokens_per_second": result.speed}
    answers.append({"question": question, **figures})
    print(flush=True)
    if result.n_forgotten:
        oldest = f"the {result.n_forgotten} oldest turns"
        print_note(f"the context is full: {oldest} are forgotten")
    print_note(
        f"{result.n_said:,} tokens, {result.speed:.1f} tokens/s; {result.n_read:,} of "
        f"{result.n_prompt:,} tokens read in {result.read_seconds:.2f} s"
    )
    if options.explain:
        print_note(f"\n{calls!r}\n")


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    parser.add(
        "--model", "(default: that of npformer get-model smollm2)", type=Path, metavar="PATH"
    )
    lines = "each line that is typed, or of standard input"
    parser.add(
        "--prompt",
        f"answer this, and end; - is all of standard input (default: {lines})",
        type=words,
        metavar="TEXT",
    )
    parser.add("--system", "what the model is told first", type=utf_8, metavar="TEXT")
    parser.add(
        "--context",
        "most tokens of all turns (default: as many as the model reads)",
        type=positive,
        metavar="N",
    )
    add_sampling(parser, DEFAULTS)
    parser.add_flag("--explain", "list the operations of each answer, with their times")
    add_json(parser)
    add_backend(parser, int8=True)
    options = parser.parse_args(argv)
    if options.prompt:
        options.prompt = text_of_argument(options.prompt)
    else:
        standard_input()  # raises, before a model is read, if there is none
    return options
