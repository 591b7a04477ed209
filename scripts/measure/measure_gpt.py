"""Train the language model of make gpt in npformer and in PyTorch, with the same first parameters and batches.

python scripts/measure/measure_gpt.py --text train.en.gz --held-out val.en.gz   # minutes
python scripts/measure/measure_gpt.py --steps 3 --width 16                      # seconds, on the text of this file

Prints the bits per character of the held-out text after the same steps, which are equal but for rounding and what
follows from it.
"""

import sys
import time
from pathlib import Path

from npformer.commands.arguments import new_parser, positive  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import add_json, write_json

from npformer import Adam, LanguageModel, Trainer, warmup_cosine
from npformer.data.lines import read_both
from npformer.language import Characters, LanguageSettings, Text
from npformer.models.batch import mean_loss

S = LanguageSettings(text="")
BETAS = (0.9, 0.95)


@command
def main(argv=None):
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--text", type=Path, default=Path(__file__), metavar="FILE", help="(default: this file)")
    add("--held-out", type=Path, metavar="FILE", help="(default: the last tenth of the text)")
    add("--steps", type=positive, default=S.steps, help=f"(default: {S.steps})")
    add("--width", type=positive, default=128, help="width D (default: 128)")
    add_json(parser)
    options = parser.parse_args(argv)
    both = read_both(options.text, options.held_out)
    text = Text(*both, Characters("".join(both)), S.length)
    D = options.width
    model = LanguageModel(len(text.tokens), d_model=D, n_heads=4, n_layers=4, d_ff=4 * D, max_len=S.length)
    lr = warmup_cosine(S.lr, min(S.warmup, options.steps // 2), options.steps)
    batches = [text.batch(S.seed, step, S.batch_size)[0] for step in range(options.steps)]
    held_out, figures = text.held_out_batches(S.batch_size), {}
    for name, train in (("npformer", train_npformer), ("PyTorch", train_pytorch)):
        began = time.perf_counter()
        loss = train(model, lr, batches, held_out)
        bits, seconds = text.bits_per_character(loss), time.perf_counter() - began
        figures[name] = {"bits_per_character": bits, "seconds": seconds}
        print(f"{name:<10}{bits:.4f} bits per character after {options.steps} steps, {seconds:.0f} s", flush=True)
    write_json(options.json, figures)


def train_npformer(model, lr, batches, held_out):
    """The loss on the held-out text after a step for each batch."""
    trainer = Trainer(model, Adam(lr, betas=BETAS), clip_norm=S.clip_norm)
    for ids in batches:
        trainer.step(ids)
    return mean_loss(trainer, trainer.params, held_out)


def train_pytorch(model, lr, batches, held_out):
    """The same in PyTorch."""
    import torch

    from scripts.bench.peers.pytorch_language_model import Network

    network = Network(model, model.init(0))
    optimizer = torch.optim.Adam(network.parameters(), lr=1.0, betas=BETAS, eps=1e-8)
    for step, ids in enumerate(batches, start=1):
        optimizer.param_groups[0]["lr"] = lr(step)
        optimizer.zero_grad()
        network.loss(ids).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), S.clip_norm)
        optimizer.step()
    with torch.inference_mode():
        sums = [network.loss(ids).item() * ids[:, 1:].size for (ids,) in held_out]
    return sum(sums) / sum(ids[:, 1:].size for (ids,) in held_out)


if __name__ == "__main__":
    sys.exit(main())
