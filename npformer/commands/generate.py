"""Continue a text with a trained language model; tokens are shown as they are drawn.

npformer generate --model runs/gpt "A man is"
npformer generate --model runs/gpt --n-tokens 500 --temperature 0.5 --seed 1 "A man is"
npformer generate --model gpt2 "A man is"     # a folder of transformers, or a GGUF file
npformer generate --model runs/gpt - < begin.txt
"""

from functools import partial
from pathlib import Path

from npformer.commands.arguments import add_backend, natural, new_parser, option, positive, quantized, utf_8
from npformer.commands.command import command
from npformer.commands.lines import text_of_argument

from npformer.language import Writer

SAMPLING = "n_tokens", "temperature", "top_k", "top_p", "repetition_penalty"  # options that ``write`` takes


@command
def main(argv=None):
    options = parse_arguments(argv)
    writer = quantized(Writer.load(options.model, options.backend), options)
    writer.encode(options.prompt)  # which may refuse it, before anything is printed
    show, sampling = partial(print, end="", flush=True), {name: getattr(options, name) for name in SAMPLING}
    for number in range(options.n):
        show(options.prompt)
        writer.write(options.prompt, seed=options.seed + number, show=show, **sampling)
        print("\n" if number + 1 < options.n else "")


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("prompt", type=utf_8, metavar="TEXT", help="what the model continues, in quotes; - is all of standard input")
    add("--model", type=Path, required=True, metavar="DIR", help="output of train-gpt, or a model that exists")
    add("--n-tokens", type=positive, default=200, metavar="N", help="number of tokens (default: 200)")
    add("--n", type=positive, default=1, metavar="N", help="number of texts (default: 1)")
    add("--temperature", type=option("temperature"), default=0.8, help="lower: more probable tokens (default: 0.8)")
    add("--top-k", type=option("top_k"), metavar="K", help="draw from the K most probable tokens only")
    add("--top-p", type=option("top_p"), default=1.0, metavar="P", help="draw from those of probability P (default: 1)")
    penalty = "above 1: fewer repetitions (default: 1)"
    add("--repetition-penalty", type=option("repetition_penalty"), default=1.0, metavar="X", help=penalty)
    add("--seed", type=natural, default=0, help="(default: 0)")
    add_backend(parser, int8=True)
    options, more = parser.parse_known_args(argv)
    if more:
        parser.error(f"put the text in quotes, not only its first word, {options.prompt!r:.40}")
    options.prompt = text_of_argument(options.prompt)
    return options
