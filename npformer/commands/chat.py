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
from dataclasses import asdict, replace
from pathlib import Path

from npformer.commands.shared import (
    Backend,
    JsonFile,
    Positive,
    Text,
    Words,
    command_line,
    message_or_raise,
    print_error,
    print_note,
    refuse_overwriting,
    write_json,
)
from npformer.commands.shared.decoding import Sampling
from npformer.commands.shared.lines import (
    STANDARD_INPUT,
    lines_of,
    standard_input,
    text_of_argument,
)
from npformer.commands.shared.models import load_of_others

from npformer import tree
from npformer.operations.explain import explain as explained
from npformer.pretrained.chat import Chat
from npformer.pretrained.packages import PACKAGES, check_there, in_models
from npformer.quantized import quantize

SAMPLING = Sampling(n_tokens=512, temperature=0.2, top_p=0.9)
LONG = 10**11  # tokens times parameters that are read in about half a second


@command_line
def main(
    *,
    model: Path | None = None,
    prompt: Words | None = None,
    system: Text | None = None,
    context: Positive | None = None,
    sampling: Sampling = SAMPLING,
    explain: bool = False,
    json: JsonFile | None = None,
    int8: bool = False,
    backend: Backend = "auto",
):
    """Answer a prompt, what a person types, or each line of standard input.

    Parameters
    ----------
    model : PATH
        (default: that of npformer get-model smollm2)
    prompt
        answer this, and end; - is all of standard input (default: each line that is typed, or of
        standard input)
    system
        what the model is told first
    context
        most tokens of all turns (default: as many as the model reads)
    explain
        list the operations of each answer, with their times
    int8
        decode with weights of 8 bits, a quarter of what is read for a token
    """
    if prompt:
        prompt = text_of_argument(prompt)
    else:
        standard_input()  # raises, before a model is read, if there is none
    if model is None:
        check_there("smollm2")
        model = PACKAGES["smollm2"].model_in(in_models("smollm2"))
    refuse_overwriting([model])
    language_model, params, tokenizer = load_of_others(model, "chat")
    params = quantize(params) if int8 else params
    chat = Chat(language_model, params, tokenizer, system, backend, context)
    talk = Talk(chat, sampling, explain)
    exit_code = 0
    try:
        if prompt:
            talk.answer(prompt)
        elif sys.stdin.isatty():
            print_note(f"{model.name}: Ctrl-C ends an answer, Ctrl-D the chat")
            talk.answer_what_is_typed()
        else:
            exit_code = talk.answer_lines()
    finally:
        write_json(json, {"model": str(model), "answers": talk.answers})
    return exit_code


class Talk:
    """A chat that is shown, and the figures of its answers."""

    def __init__(self, chat, sampling, explains):
        self.chat = chat
        self.sampling = sampling
        self.explains = explains
        self.answers = []

    def answer_what_is_typed(self):
        """Answer a person; nothing but Ctrl-D ends this."""
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401, with which input edits a line
        while True:
            try:
                if question := input("> ").strip():
                    self.answer(question)
            except ValueError as error:  # it is too long, or the template does not accept it
                print_error(message_or_raise(error))
            except KeyboardInterrupt:
                print()
            except EOFError:
                print()
                return

    def answer_lines(self):
        """Answer each line of standard input; return the exit code, 1 if there was an error."""

        def refuse(message):
            self.answers.append({"question": None, "error": message})
            print_error(message)

        for number, line in enumerate(lines_of("-", refuse), start=1):
            if question := line.strip():
                try:
                    self.answer(question)
                except ValueError as error:
                    reason = message_or_raise(error)
                    print_error(f"{STANDARD_INPUT}, line {number}: {reason}")
        return int(any("error" in answer for answer in self.answers))

    def answer(self, question):
        """Show the answer to a question, and keep its figures, or how far it came if something ends
        it.
        """
        # Or the same question would have the same answer.
        seed = self.sampling.seed + len(self.chat.messages)
        settings = replace(self.sampling, seed=seed)
        parts = []

        def show(part):
            parts.append(part)
            print(part, end="", flush=True)

        def reading(n):
            if n * tree.count(self.chat.params) > LONG:
                print_note(f"reading {n:,} tokens …")

        try:
            with explained() if self.explains else contextlib.nullcontext() as calls:
                result = self.chat.answer(question, show=show, reading=reading, **asdict(settings))
        except BaseException as error:  # Ctrl-C, and a reader of the output that has gone, too
            reason = str(error) or type(error).__name__
            self.answers.append({"question": question, "text": "".join(parts), "error": reason})
            raise
        figures = result._asdict() | {"tokens_per_second": result.speed}
        self.answers.append({"question": question, **figures})
        print(flush=True)
        if result.n_forgotten:
            print_note(f"the context is full: the {result.n_forgotten} oldest turns are forgotten")
        print_note(
            f"{result.n_said:,} tokens, {result.speed:.1f} tokens/s; {result.n_read:,} of "
            f"{result.n_prompt:,} tokens read in {result.read_seconds:.2f} s"
        )
        if self.explains:
            print_note(f"\n{calls!r}\n")
