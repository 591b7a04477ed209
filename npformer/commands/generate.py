"""Continue a text with a trained language model; tokens are shown as they are drawn.

npformer generate --model runs/gpt "A man is"
npformer generate --model runs/gpt --n-tokens 500 --temperature 0.5 --seed 1 "A man is"
npformer generate --model gpt2 "A man is"     # a folder of transformers, or a GGUF file
npformer generate --model runs/gpt - < begin.txt
"""

from dataclasses import asdict
from functools import partial

from npformer.commands.arguments import add_backend, add_model, new_parser, positive, utf_8
from npformer.commands.command import command
from npformer.commands.decoding import Sampling, add_sampling, sampling_of
from npformer.commands.lines import text_of_argument
from npformer.commands.models import load_own

from npformer.text import Writer

DEFAULTS = Sampling()


@command
def main(argv=None):
    options = parse_arguments(argv)
    writer = load_own(Writer, options, "generate")
    writer.encode(options.prompt)  # which may refuse it, before anything is printed
    show = partial(print, end="", flush=True)
    sampling = asdict(sampling_of(options, DEFAULTS))
    for number in range(options.n):
        show(options.prompt)
        writer.write(options.prompt, show=show, **sampling)
        sampling["seed"] += 1
        print("\n" if number + 1 < options.n else "")


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    parser.add(
        "prompt",
        "what the model continues, in quotes; - is all of standard input",
        type=utf_8,
        metavar="TEXT",
    )
    add_model(parser, "output of train-gpt, or a model that exists")
    parser.add("--n", "number of texts", type=positive, default=1, metavar="N")
    add_sampling(parser, DEFAULTS)
    add_backend(parser, int8=True)
    options, more = parser.parse_known_args(argv)
    if more:
        word = f"{options.prompt!r:.40}"
        parser.error(f"put the text in quotes, not only its first word, {word}")
    options.prompt = text_of_argument(options.prompt)
    return options
