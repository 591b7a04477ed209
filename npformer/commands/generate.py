"""Continue a text with a trained language model; tokens are shown as they are drawn.

npformer generate --model runs/gpt "A man is"
npformer generate --model runs/gpt --n-tokens 500 --temperature 0.5 --seed 1 "A man is"
npformer generate --model gpt2 "A man is"     # a folder of transformers, or a GGUF file
npformer generate --model runs/gpt - < begin.txt
"""

from dataclasses import asdict, replace
from functools import partial

from npformer.commands.shared import Positive, Text, command_line
from npformer.commands.shared.decoding import Sampling
from npformer.commands.shared.lines import text_of_argument
from npformer.commands.shared.models import TrainedModel

from npformer.text import Writer

SAMPLING = Sampling(temperature=0.8)


@command_line
def main(prompt: Text, *, trained: TrainedModel, n: Positive = 1, sampling: Sampling = SAMPLING):
    """Write texts.

    Parameters
    ----------
    prompt
        what the model continues, in quotes; - is all of standard input
    model : DIR
        output of train-gpt, or a model that exists
    n
        number of texts
    """
    prompt = text_of_argument(prompt)
    writer = trained.load(Writer, "generate")
    writer.encode(prompt)  # which may refuse it, before anything is printed
    show = partial(print, end="", flush=True)
    for number in range(n):
        show(prompt)
        settings = replace(sampling, seed=sampling.seed + number)
        writer.write(prompt, show=show, **asdict(settings))
        print("\n" if number + 1 < n else "")
