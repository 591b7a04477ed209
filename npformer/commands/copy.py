"""Train a Transformer to copy sequences, and test it on sequences it was not trained on.

npformer copy                            # a small model, a minute
npformer copy --task reverse --seed 1
npformer copy --preset annotated         # the Annotated Transformer's size, minutes
npformer copy --d-model 32 --n-layers 1  # another size
npformer copy --out runs/mine            # keep the model, too, in runs/mine/model.safetensors
"""

import argparse
import itertools
import time
from typing import get_args

from npformer.commands.arguments import add_backend, natural, new_parser, positive
from npformer.commands.command import command
from npformer.commands.compile import compile_ahead
from npformer.commands.output import add_json, add_pictures, output_folder, will_draw, write_json
from npformer.commands.training import SIZES, add_setting, add_watching, saying_where_it_stopped, settings_in

from npformer import tree
from npformer.data.copy_task import BOS, EOS, PAD, CopyTask, exact_match
from npformer.files.checkpoint import import_safetensors
from npformer.models import Transformer, describe
from npformer.runtime.host import PrecisionName
from npformer.runtime.ranks import world
from npformer.training import Adam, ParameterAverage, Trainer, noam, save_checkpoint, warmup_cosine

N_EVALUATED = 1000
MODEL = "model.safetensors"

# quick: lengths 1 ... 10, so that padding is used; no dropout, since every training sequence is new.
# annotated: the setting of the Annotated Transformer, 20 epochs of 20 batches of 80 sequences of 10 symbols. The
# learning rate is still rising when training ends, so the parameters of the last 100 steps are averaged.
PRESETS = {
    "quick": {
        "task": {"vocab": 11, "min_len": 1, "max_len": 10},
        "model": {"d_model": 64, "n_heads": 4, "n_layers": 2, "d_ff": 128, "dropout": 0.0},
        "optimizer": lambda steps: Adam(warmup_cosine(3e-3, warmup=steps // 12, total=steps), betas=(0.9, 0.98)),
        "clip_norm": 1.0,
        "batch_size": 32,
        "steps": 1200,
        "average_last": 1,
    },
    "annotated": {
        "task": {"vocab": 11, "min_len": 10, "max_len": 10},
        "model": {"d_model": 512, "n_heads": 8, "n_layers": 2, "d_ff": 2048, "dropout": 0.1},
        "optimizer": lambda steps: Adam(noam(d_model=512, warmup=400, factor=0.5), betas=(0.9, 0.98), eps=1e-9),
        "clip_norm": None,
        "batch_size": 80,
        "steps": 400,
        "average_last": 100,
    },
}


@command
def main(argv=None):
    options = parse_arguments(argv)
    preset, ranks = preset_of(options), world()
    steps = options.steps or preset["steps"]
    task = CopyTask(reverse=options.task == "reverse", seed=options.seed, **preset["task"])
    model = Transformer(src_vocab=task.vocab, tgt_vocab=task.vocab, pad_id=PAD, **preset["model"])
    settings = {"seed": options.seed, "clip_norm": preset["clip_norm"], "precision": options.precision}
    trainer = Trainer(model, preset["optimizer"](steps), backend=options.backend, ranks=ranks, **settings)
    n_parameters = tree.count(trainer.params)
    print(
        f"{options.task} task, preset {options.preset}: {n_parameters:,} parameters, {steps} steps of "
        f"{preset['batch_size']} sequences, seed {options.seed}, backend {trainer.ops.name}"
    )

    compile_ahead(trainer, progress=not options.quiet)
    if options.explain:
        calls = trainer.explain(*task.batch(0, preset["batch_size"]))
        print(f"\nthe operations of one step:\n{calls}\n")

    if watch := options.diagnose:
        watch = trainer.diagnose(*task.batch(0, preset["batch_size"]), bos_id=BOS, eos_id=EOS, n_steps=steps)
        print(f"\n{watch}\n")
    start = time.perf_counter()
    seen = set()
    average = ParameterAverage(first_step=max(1, steps - preset["average_last"] + 1))
    batches = training_batches(task, preset["batch_size"], seen)
    with saying_where_it_stopped(trainer, steps):
        history = trainer.fit(batches, steps, callbacks=[average], progress=not options.quiet, watch=watch)
    train_seconds = time.perf_counter() - start
    if not ranks.is_first:
        return

    held_out, longer = task.held_out(N_EVALUATED), task.longer(N_EVALUATED)
    assert seen.isdisjoint(map(sequence_of, held_out[0])), "a held-out sequence was trained on"
    params, ops = average.params, trainer.ops
    share, decoded = exact_match(model, params, *held_out, backend=ops)
    share_longer, _ = exact_match(model, params, *longer, backend=ops)
    loss, _ = model.loss(params, held_out[0], held_out[1][:, :-1], held_out[1][:, 1:], backend=ops)
    result = {name: getattr(options, name) for name in ("task", "preset", "seed")} | {"backend": ops.name}
    result |= {"exact_match": share, "exact_match_longer": share_longer, "loss": float(loss)}
    result |= {"seconds": time.perf_counter() - start, "train_seconds": train_seconds, "steps": len(history)}
    result |= {"tokens_per_second": sum(info.n_tokens for info in history) / train_seconds}
    result |= {"n_parameters": n_parameters, "averaged_steps": average.n, "n_ranks": ranks.size}

    write_json(options.json, result)
    if options.keeps_model:
        save_checkpoint(options.out / MODEL, tree.to_arrays(params, "params"), {"model": describe(model)})
    if options.draws:
        draw(options.out, task, model, params, ops, history, held_out)
    report(result, task, held_out, decoded)
    if options.draws:
        print(
            f"\npictures in {options.out}/: loss.png; attention_encoder.png, attention_decoder.png and "
            "attention_memory.png\n(the weights of each head; the last file shows cross-attention); "
            "positional_encoding.png"
        )
    elif not options.no_plots:
        print(f"\n{attention_in_characters(*an_example(model, params, ops, held_out))}")
    if options.keeps_model:
        print(
            f"\nthe model is {options.out / MODEL}; in Python:\n"
            f"  arrays, info = npformer.training.load_checkpoint({str(options.out / MODEL)!r})\n"
            '  model = npformer.models.from_description(info["model"], arrays)\n'
            '  params = npformer.tree.from_arrays(arrays, "params")'
        )


def preset_of(options):
    """The preset, with the sizes of the model that are given as options."""
    preset = PRESETS[options.preset]
    return preset | {"model": preset["model"] | settings_in(options, Transformer, SIZES)}


def training_batches(task, size, seen):
    """Batches without end. Their source sequences are added to ``seen``."""
    for step in itertools.count():
        src, tgt = task.batch(step, size)
        seen.update(map(sequence_of, src))
        yield src, tgt


def sequence_of(row):
    return tuple(int(token) for token in row if token != PAD)


def report(result, task, held_out, decoded):
    src, tgt = held_out
    print(f"\n{N_EVALUATED} sequences that were not trained on, decoded word by word; a few of them:")
    for i in range(5):
        said, wanted = sequence_of(decoded[i]), sequence_of(tgt[i])[1:]
        mark = "right" if said == wanted else "WRONG"
        print(f"  {words(sequence_of(src[i])):<24} -> {words(said):<28} {mark}")
    lengths = f"{task.max_len + 1} to {task.max_len + 5}"
    share, share_longer = 100 * result["exact_match"], 100 * result["exact_match_longer"]
    print(
        f"\nright from the first word to the end, held out: {share:.1f} %   (loss {result['loss']:.2g} per token)"
        f"\nthe same, longer than any in training ({lengths} symbols): {share_longer:.1f} %"
        " (low: positions never trained)"
        f"\n{result['seconds']:.1f} seconds in all, {result['tokens_per_second']:,.0f} target tokens/s in training"
    )


def words(sequence):
    names = {BOS: "<begin>", EOS: "<end>"}
    return " ".join(names.get(token, str(token)) for token in sequence)


def draw(folder, task, model, params, ops, history, held_out):
    from npformer.plots import plot_attention, plot_loss, plot_positional_encoding

    folder.mkdir(parents=True, exist_ok=True)
    weights, source, target = an_example(model, params, ops, held_out)
    name = "reverse" if task.reverse else "copy"
    plot_loss(history, folder / "loss.png", f"Learning to {name}")
    attention_plots = (
        ("encoder", source, source, "source word (key)", "source word (query)", "Encoder self-attention"),
        ("decoder", target, target, "target word (key)", "target word just read (query)", "Decoder self-attention"),
        ("memory", source, target, "source word (key)", "target word just read (query)", "Cross-attention"),
    )
    for kind, keys, queries, xlabel, ylabel, title in attention_plots:
        path = folder / f"attention_{kind}.png"
        plot_attention(weights[kind], keys, queries, path, f"{title}, {name} task", xlabel, ylabel)
    plot_positional_encoding(folder / "positional_encoding.png", length=100, d_model=model.d_model)


def an_example(model, params, ops, held_out):
    """The weights of all heads for one held-out sequence, and the words of its source and target."""
    example = (held_out[0] != PAD).sum(axis=1).argmax()  # the first of the longest
    src, tgt = held_out[0][example : example + 1], held_out[1][example : example + 1, :-1]
    weights = model.attention_weights(params, src, tgt, backend=ops)
    by_kind = {kind: [layer[0] for layer in layers] for kind, layers in weights.items()}
    return by_kind, [words([token]) for token in src[0]], [words([token]) for token in tgt[0]]


def attention_in_characters(weights, keys, queries):
    """The cross-attention of the last layer, the mean of its heads, as a picture of characters."""
    shades = " .:*#"
    lines = ["cross-attention of the last layer, mean of its heads (# most, blank none):"]
    lines.append(f"{'':>10}{''.join(f'{key:>3}' for key in keys)}   source word (key)")
    for query, row in zip(queries, weights["memory"][-1].mean(axis=0), strict=True):
        lines.append(f"{query:>10}" + "".join(f"{shades[min(4, int(5 * weight))]:>3}" for weight in row))
    return "\n".join([*lines, "target word just read (query)"])


def parse_arguments(argv):
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--preset", choices=PRESETS, default="quick", help="size of model and training (default: quick)")
    add("--task", choices=["copy", "reverse"], default="copy", help="(default: copy)")
    add("--seed", type=natural, default=0, help="seed of parameters, data and dropout (default: 0)")
    add("--steps", type=positive, help="training steps (default: the preset's)")
    for name, meaning in SIZES.items():
        add_setting(parser, Transformer, name, "", help=f"{meaning} (default: the preset's)")
    add_backend(parser)
    precisions = get_args(PrecisionName)
    add("--precision", choices=precisions, default="float32", help="of the steps, on a GPU (default: float32)")
    add_pictures(parser, default="runs/copy or runs/reverse", more=f"; if it is given, {MODEL} is written to it, too")
    add_json(parser)
    add_watching(parser)
    options = parser.parse_args(argv)
    if options.precision not in options.backend.device.precisions:
        parser.error(f"argument --precision: {options.precision} is for --backend gpu")
    options.keeps_model = options.out is not None and will_keep_model(parser, options.out)
    options.draws = will_draw(parser, options, f"runs/{options.task}")
    return options


def will_keep_model(parser, folder):
    """Whether the model will be written to a folder. If that cannot be written to, the script ends."""
    try:
        import_safetensors()
    except ImportError as error:
        print(f"the model will not be kept: {error}", flush=True)
        return False
    try:
        output_folder(folder)
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument --out: {error}")
    return True
