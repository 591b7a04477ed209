"""Train a Transformer to copy sequences, and test it on sequences it was not trained on.

npformer copy                            # a small model, a minute
npformer copy --task reverse --seed 1
npformer copy --preset annotated         # the Annotated Transformer's size, minutes
npformer copy --d-model 32 --n-layers 1  # another size
npformer copy --out runs/mine            # keep the model, too, in runs/mine/model.safetensors
"""

import itertools
import time
from typing import Any, NamedTuple, get_args

from npformer.commands.arguments import (
    add_backend,
    add_seed,
    add_settings,
    new_parser,
    positive,
    settings_in,
)
from npformer.commands.command import command
from npformer.commands.output import add_json, add_pictures, check_folder, will_draw, write_json
from npformer.commands.training import SIZES, add_watching, prepare, saying_where_it_stopped

from npformer import tree
from npformer.files.checkpoint import RESULT, import_safetensors
from npformer.models import Transformer, describe
from npformer.operations.host import PrecisionName
from npformer.runtime.ranks import world
from npformer.text.copy_task import BOS, EOS, PAD, CopyTask, exact_match
from npformer.training import (
    Adam,
    ParameterAverage,
    Trainer,
    noam,
    save_checkpoint,
    warmup_cosine,
)

N_EVALUATED = 1000
N_SHOWN = 5
WORDS = {BOS: "<begin>", EOS: "<end>"}
SHADES = " .:*#"  # of attention weights from 0 to 1


def quick_adam(steps):
    return Adam(warmup_cosine(3e-3, warmup=steps // 12, total=steps), betas=(0.9, 0.98))


def annotated_adam(steps):
    return Adam(noam(d_model=512, warmup=400, factor=0.5), betas=(0.9, 0.98), eps=1e-9)


PRESETS = {
    # Lengths 1 ... 10, so that padding is used; no dropout, as every training sequence is new.
    "quick": {
        "task": {"vocab": 11, "min_len": 1, "max_len": 10},
        "model": {"d_model": 64, "n_heads": 4, "n_layers": 2, "d_ff": 128, "dropout": 0.0},
        "optimizer": quick_adam,
        "clip_norm": 1.0,
        "batch_size": 32,
        "steps": 1200,
        "average_last": 1,
    },
    # The setting of the Annotated Transformer, 20 epochs of 20 batches of 80 sequences of 10
    # symbols. The learning rate is still rising when training ends, so the parameters of the last
    # 100 steps are averaged.
    "annotated": {
        "task": {"vocab": 11, "min_len": 10, "max_len": 10},
        "model": {"d_model": 512, "n_heads": 8, "n_layers": 2, "d_ff": 2048, "dropout": 0.1},
        "optimizer": annotated_adam,
        "clip_norm": None,
        "batch_size": 80,
        "steps": 400,
        "average_last": 100,
    },
}


class Trained(NamedTuple):
    """A model after its training, and the sequences with which it is tested."""

    model: Transformer
    params: dict
    ops: Any
    src: Any  # (B, S) int
    tgt: Any  # (B, T+1) int


@command
def main(argv=None):
    options = parse_arguments(argv)
    preset = PRESETS[options.preset]
    steps = options.steps or preset["steps"]
    size = preset["batch_size"]
    task = CopyTask(reverse=options.task == "reverse", seed=options.seed, **preset["task"])
    sizes = preset["model"] | settings_in(options, Transformer, SIZES)
    model = Transformer(task.vocab, task.vocab, pad_id=PAD, **sizes)
    trainer = Trainer(
        model,
        preset["optimizer"](steps),
        seed=options.seed,
        clip_norm=preset["clip_norm"],
        precision=options.precision,
        backend=options.backend,
        ranks=world(),
    )
    n_parameters = tree.count(trainer.params)
    print(
        f"{options.task} task, preset {options.preset}: {n_parameters:,} parameters, {steps} steps "
        f"of {size} sequences, seed {options.seed}, backend {trainer.ops.name}"
    )
    first_batch = lambda: task.batch(0, size)
    watch = prepare(trainer, first_batch, options, steps, bos_id=BOS, eos_id=EOS)

    start = time.perf_counter()
    seen = set()
    batches = training_batches(task, size, seen)
    average = ParameterAverage(first_step=max(1, steps - preset["average_last"] + 1))
    progress = not options.quiet
    with saying_where_it_stopped(trainer, steps):
        history = trainer.fit(batches, steps, callbacks=[average], progress=progress, watch=watch)
    train_seconds = time.perf_counter() - start
    if not trainer.ranks.is_first:
        return

    trained = Trained(model, average.params, trainer.ops, *task.held_out(N_EVALUATED))
    assert seen.isdisjoint(map(sequence_of, trained.src)), "a held-out sequence was trained on"
    scores, decoded = evaluate(trained, task)
    result = {
        "task": options.task,
        "preset": options.preset,
        "seed": options.seed,
        "backend": trainer.ops.name,
        **scores,
        "seconds": time.perf_counter() - start,
        "train_seconds": train_seconds,
        "steps": len(history),
        "tokens_per_second": sum(info.n_tokens for info in history) / train_seconds,
        "n_parameters": n_parameters,
        "averaged_steps": average.n,
        "n_ranks": trainer.ranks.size,
    }
    write_json(options.json, result)
    file = options.out / RESULT
    if options.keeps_model:
        arrays = tree.to_arrays(trained.params, "params")
        save_checkpoint(file, arrays, {"model": describe(model)})
    if options.draws:
        draw(options.out, options.task, trained, history)
    report(result, task, trained, decoded)
    if options.draws:
        print(
            f"\npictures in {options.out}/: loss.png; attention_encoder.png, attention_decoder.png "
            "and attention_memory.png\n(the weights of each head; the last file shows "
            "cross-attention); positional_encoding.png"
        )
    elif not options.no_plots:
        print(f"\n{attention_in_characters(*an_example(trained))}")
    if options.keeps_model:
        print(
            f"\nthe model is {file}; in Python:\n"
            f"  arrays, info = npformer.training.load_checkpoint({str(file)!r})\n"
            '  model = npformer.models.from_description(info["model"], arrays)\n'
            '  params = npformer.tree.from_arrays(arrays, "params")'
        )


def training_batches(task, size, seen):
    """Batches without end. Their source sequences are added to ``seen``."""
    for step in itertools.count():
        src, tgt = task.batch(step, size)
        seen.update(map(sequence_of, src))
        yield src, tgt


def sequence_of(row):
    return tuple(int(token) for token in row if token != PAD)


def evaluate(trained, task):
    """The scores of a model, and what it writes for each of the held-out sequences."""
    model, params, ops, src, tgt = trained
    share, decoded = exact_match(model, params, src, tgt, backend=ops)
    share_longer, _ = exact_match(model, params, *task.longer(N_EVALUATED), backend=ops)
    loss, _ = model.loss(params, src, tgt[:, :-1], tgt[:, 1:], backend=ops)
    scores = {"exact_match": share, "exact_match_longer": share_longer, "loss": float(loss)}
    return scores, decoded


def report(result, task, trained, decoded):
    decoding = "decoded word by word; a few of them"
    print(f"\n{N_EVALUATED} sequences that were not trained on, {decoding}:")
    rows = zip(trained.src, trained.tgt, decoded, strict=True)
    for src, tgt, row in itertools.islice(rows, N_SHOWN):
        answer = sequence_of(row)
        mark = "right" if answer == sequence_of(tgt)[1:] else "WRONG"
        print(f"  {words(sequence_of(src)):<24} -> {words(answer):<28} {mark}")
    print(
        f"\nright from the first word to the end, held out: {100 * result['exact_match']:.1f} %"
        f"   (loss {result['loss']:.2g} per token)"
        f"\nthe same, longer than any in training ({task.max_len + 1} to {task.max_len + 5} "
        f"symbols): {100 * result['exact_match_longer']:.1f} % (low: positions never trained)"
        f"\n{result['seconds']:.1f} seconds in all, "
        f"{result['tokens_per_second']:,.0f} target tokens/s in training"
    )


def words(sequence):
    return " ".join(WORDS.get(token, str(token)) for token in sequence)


def draw(folder, task, trained, history):
    from npformer.plots import plot_attention, plot_loss, plot_positional_encoding

    folder.mkdir(parents=True, exist_ok=True)
    weights, source, target = an_example(trained)
    plot_loss(history, folder / "loss.png", f"Learning to {task}")
    key = "source word (key)"
    query = "target word just read (query)"
    for kind, keys, queries, xlabel, ylabel, title in (
        ("encoder", source, source, key, "source word (query)", "Encoder self-attention"),
        ("decoder", target, target, "target word (key)", query, "Decoder self-attention"),
        ("memory", source, target, key, query, "Cross-attention"),
    ):
        path = folder / f"attention_{kind}.png"
        plot_attention(weights[kind], keys, queries, path, f"{title}, {task} task", xlabel, ylabel)
    path = folder / "positional_encoding.png"
    plot_positional_encoding(path, length=100, d_model=trained.model.d_model)


def an_example(trained):
    """The weights of all heads for one held-out sequence, and the words of its source and
    target.
    """
    model, params, ops, src, tgt = trained
    longest = (src != PAD).sum(axis=1).argmax()  # the first of them
    src = src[longest : longest + 1]
    tgt = tgt[longest : longest + 1, :-1]
    weights = model.attention_weights(params, src, tgt, backend=ops)
    by_kind = {kind: [layer[0] for layer in layers] for kind, layers in weights.items()}
    return by_kind, [words([token]) for token in src[0]], [words([token]) for token in tgt[0]]


def attention_in_characters(weights, keys, queries):
    """The cross-attention of the last layer, the mean of its heads, as a picture of characters."""
    lines = [
        "cross-attention of the last layer, mean of its heads (# most, blank none):",
        f"{'':>10}{''.join(f'{key:>3}' for key in keys)}   source word (key)",
    ]
    for query, row in zip(queries, weights["memory"][-1].mean(axis=0), strict=True):
        shades = [SHADES[min(4, int(5 * weight))] for weight in row]
        lines.append(f"{query:>10}" + "".join(f"{shade:>3}" for shade in shades))
    return "\n".join([*lines, "target word just read (query)"])


def parse_arguments(argv):
    parser = new_parser(__doc__)
    parser.add("--preset", "size of model and training", choices=PRESETS, default="quick")
    parser.add("--task", choices=["copy", "reverse"], default="copy")
    add_seed(parser, "seed of parameters, data and dropout")
    parser.add("--steps", "training steps (default: the preset's)", type=positive)
    sizes = parser.add_argument_group("model (defaults: the preset's)")
    add_settings(sizes, Transformer, SIZES, dict.fromkeys(SIZES, ""))
    add_backend(parser)
    precisions = get_args(PrecisionName)
    parser.add(
        "--precision",
        "of the steps, on a GPU",
        choices=precisions,
        default="float32",
    )
    more = f"; if it is given, {RESULT} is written to it, too"
    add_pictures(parser, default="runs/copy or runs/reverse", more=more)
    add_json(parser)
    add_watching(parser)
    options = parser.parse_args(argv)
    if options.precision not in options.backend.device.precisions:
        parser.error(f"argument --precision: {options.precision} is for --backend gpu")
    options.keeps_model = options.out is not None and can_keep_model()
    if options.keeps_model:
        check_folder(parser, options.out)
    options.draws = will_draw(parser, options, f"runs/{options.task}")
    return options


def can_keep_model():
    """Whether a model can be written to a file; if not, this is said."""
    try:
        import_safetensors()
    except ImportError as error:
        print(f"the model will not be kept: {error}", flush=True)
        return False
    return True
