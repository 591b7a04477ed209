"""Where a trained model looks, in pictures and in characters."""

from npformer.commands.copy.trained import words

from npformer.text.copy_task import PAD

SHADES = " .:*#"  # of attention weights from 0 to 1


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
    """Where the model looks in the longest held-out sequence.

    The weights of all heads in each layer, by the kind of attention, and the words of the source
    and of the target.
    """
    longest = (trained.src != PAD).sum(axis=1).argmax()  # the first of them
    src = trained.src[longest : longest + 1]
    tgt = trained.tgt[longest : longest + 1, :-1]
    weights = trained.model.attention_weights(trained.params, src, tgt, backend=trained.ops)
    by_kind = {kind: [layer[0] for layer in layers] for kind, layers in weights.items()}
    source = [words([token]) for token in src[0]]
    target = [words([token]) for token in tgt[0]]
    return by_kind, source, target


def attention_in_characters(trained):
    """The cross-attention of the last layer, the mean of its heads, as a picture of characters."""
    weights, source, target = an_example(trained)
    lines = [
        "cross-attention of the last layer, mean of its heads (# most, blank none):",
        f"{'':>10}{''.join(f'{word:>3}' for word in source)}   source word (key)",
    ]
    mean = weights["memory"][-1].mean(axis=0)
    for word, row in zip(target, mean, strict=True):
        shades = [SHADES[min(4, int(5 * weight))] for weight in row]
        lines.append(f"{word:>10}" + "".join(f"{shade:>3}" for shade in shades))
    return "\n".join([*lines, "target word just read (query)"])
