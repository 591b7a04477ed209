"""Train a Transformer to copy sequences, and test it on sequences it was not trained on.

npformer copy                            # a small model, a minute
npformer copy --task reverse --seed 1
npformer copy --preset annotated         # the Annotated Transformer's size, minutes
npformer copy --d-model 32 --n-layers 1  # another size
npformer copy --out runs/mine            # keep the model, too, in runs/mine/model.safetensors
"""

import itertools
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

from npformer.commands.shared import (
    Backend,
    JsonFile,
    Pictures,
    Reading,
    UsageError,
    checked_folder,
    command_line,
    write_json,
)
from npformer.commands.shared.training import SizesOfModel, Watching, saying_where_it_stopped

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


class Preset(NamedTuple):
    """The sequences, the size of the model, and how it is trained."""

    lengths: dict
    sizes: dict
    optimizer: Callable[[int], Adam]
    batch_size: int
    steps: int
    clip_norm: float | None = None
    average_last: int = 1


PRESETS = {
    # Lengths 1 ... 10, so that padding is used; no dropout, as every training sequence is new.
    "quick": Preset(
        {"min_len": 1, "max_len": 10},
        {"d_model": 64, "n_heads": 4, "n_layers": 2, "d_ff": 128, "dropout": 0.0},
        quick_adam,
        batch_size=32,
        steps=1200,
        clip_norm=1.0,
    ),
    # The setting of the Annotated Transformer, 20 epochs of 20 batches of 80 sequences of 10
    # symbols. The learning rate is still rising when training ends, so the parameters of the last
    # 100 steps are averaged.
    "annotated": Preset(
        {"min_len": 10, "max_len": 10},
        {"d_model": 512, "n_heads": 8, "n_layers": 2, "d_ff": 2048, "dropout": 0.1},
        annotated_adam,
        batch_size=80,
        steps=400,
        average_last=100,
    ),
}


class Training(NamedTuple):
    """The record of a training."""

    start: float  # of the clock ``time.perf_counter``
    seconds: float
    history: list
    params: Any  # a nested dict: their mean over the last steps
    n_averaged: int  # of these steps


class Trained(NamedTuple):
    """A model after its training, and the sequences with which it is tested."""

    model: Transformer
    params: Any  # a nested dict
    ops: Any
    src: Any  # (B, S) int
    tgt: Any  # (B, T+1) int


@command_line
def main(
    *,
    preset: Annotated[str, Reading(choices=PRESETS)] = "quick",
    task: Literal["copy", "reverse"] = "copy",
    seed: int = 0,
    steps: int | None = None,
    sizes: SizesOfModel,
    backend: Backend = "auto",
    precision: PrecisionName = "float32",
    pictures: Pictures,
    json: JsonFile | None = None,
    watching: Watching,
):
    """Train a model, and test it.

    Parameters
    ----------
    preset
        size of model and training
    task
        what the target is
    seed
        seed of parameters, data and dropout
    steps
        training steps (default: the preset's)
    precision
        of the steps, on a GPU
    out : DIR
        folder of the pictures (default: runs/copy or runs/reverse); if it is given,
        model.safetensors is written to it, too
    """
    if precision not in backend.device.precisions:
        raise UsageError(f"argument --precision: {precision} is for --backend gpu")
    file = file_to_keep(pictures.out)
    folder = pictures.folder(f"runs/{task}")
    recipe = PRESETS[preset]
    n_steps = steps or recipe.steps
    sequences = CopyTask(reverse=task == "reverse", seed=seed, **recipe.lengths)
    model = Transformer(sequences.vocab, sequences.vocab, pad_id=PAD, **recipe.sizes | sizes)
    trainer = Trainer(
        model,
        recipe.optimizer(n_steps),
        seed=seed,
        clip_norm=recipe.clip_norm,
        precision=precision,
        backend=backend,
        ranks=world(),
    )
    print(
        f"{task} task, preset {preset}: {tree.count(trainer.params):,} parameters, {n_steps} steps "
        f"of {recipe.batch_size} sequences, seed {seed}, backend {trainer.ops.name}"
    )
    if not trainer.ranks.alone:
        print(trainer.ranks)
    training = train(trainer, sequences, recipe, n_steps, watching)
    if not trainer.ranks.is_first:
        return
    trained = Trained(model, training.params, trainer.ops, *sequences.held_out(N_EVALUATED))
    scores, answers = evaluate(trained, sequences)
    result = {"task": task, "preset": preset, "seed": seed, "backend": trainer.ops.name}
    result |= scores | figures_of(trainer, training)
    write_json(json, result)
    if file:
        arrays = tree.to_arrays(trained.params, "params")
        save_checkpoint(file, arrays, {"model": describe(model)})
    report(result, sequences, trained, answers)
    if folder:
        draw(folder, task, trained, training.history)
    elif not pictures.no_plots:
        print(f"\n{attention_in_characters(*an_example(trained))}")
    if file:
        print(
            f"\nthe model is {file}; in Python:\n"
            f"  arrays, info = npformer.training.load_checkpoint({str(file)!r})\n"
            '  model = npformer.models.from_description(info["model"], arrays)\n'
            '  params = npformer.tree.from_arrays(arrays, "params")'
        )


def train(trainer, sequences, recipe, n_steps, watching):
    """Make the steps of a training, and return their record."""

    def batch(step):
        return sequences.batch(step, recipe.batch_size)

    watch = watching.prepare(trainer, lambda: batch(0), n_steps, bos_id=BOS, eos_id=EOS)
    start = time.perf_counter()
    average = ParameterAverage(first_step=max(1, n_steps - recipe.average_last + 1))
    with saying_where_it_stopped(trainer, n_steps):
        history = trainer.fit(
            map(batch, itertools.count()),
            n_steps,
            callbacks=[average],
            progress=not watching.quiet,
            watch=watch,
        )
    seconds = time.perf_counter() - start
    return Training(start, seconds, history, average.params, average.n)


def figures_of(trainer, training):
    """What a training took, for the file of --json; ``seconds`` are those until now."""
    return {
        "seconds": time.perf_counter() - training.start,
        "train_seconds": training.seconds,
        "steps": len(training.history),
        "tokens_per_second": sum(info.n_tokens for info in training.history) / training.seconds,
        "n_parameters": tree.count(trainer.params),
        "averaged_steps": training.n_averaged,
        "n_ranks": trainer.ranks.size,
    }


def sequence_of(row):
    return tuple(int(token) for token in row if token != PAD)


def evaluate(trained, task):
    """The scores of a model, and what it writes for each of the held-out sequences."""
    model, params, ops, src, tgt = trained
    share, answers = exact_match(model, params, src, tgt, backend=ops)
    share_longer, _ = exact_match(model, params, *task.longer(N_EVALUATED), backend=ops)
    loss, _ = model.loss(params, src, tgt[:, :-1], tgt[:, 1:], backend=ops)
    scores = {"exact_match": share, "exact_match_longer": share_longer, "loss": float(loss)}
    return scores, answers


def report(result, task, trained, answers):
    print(
        f"\n{N_EVALUATED} sequences that were not trained on, decoded word by word; a few of them:"
    )
    rows = zip(trained.src, trained.tgt, answers, strict=True)
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
    print(
        f"\npictures in {folder}/: loss.png; attention_encoder.png, attention_decoder.png "
        "and attention_memory.png\n(the weights of each head; the last file shows "
        "cross-attention); positional_encoding.png"
    )


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


def file_to_keep(folder):
    """The file of the model, None if it will not be kept; if it cannot be, this is said."""
    if folder is None:
        return None
    try:
        import_safetensors()
    except ImportError as error:
        print(f"the model will not be kept: {error}", flush=True)
        return None
    return checked_folder(folder) / RESULT
