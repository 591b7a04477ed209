"""The five encoder-decoder systems that the studies compare, at the same number of parameters, and their training."""

from bisect import bisect_right

from npformer import Adam, ByteNet, Recurrent, Trainer, Transformer, tree, warmup_cosine

SYSTEMS = {
    "recurrent": lambda width, **sizes: Recurrent(d_model=width, attention=None, **sizes),
    "recurrent + general": lambda width, **sizes: Recurrent(d_model=width, attention="general", **sizes),
    "recurrent + additive": lambda width, **sizes: Recurrent(d_model=width, attention="additive", **sizes),
    "ByteNet": lambda width, **sizes: ByteNet(d_model=width, n_sets=1, kernel_sizes=(5, 3), **sizes),
    "Transformer": lambda width, **sizes: Transformer(d_model=width, n_heads=4, n_layers=2, d_ff=2 * width, **sizes),
}
STEP = 4  # widths are multiples of it, so that they can be divided into heads and halves


def of_size(system, n_parameters, **sizes):
    """The model of a system whose number of parameters is nearest to ``n_parameters``.

    Examples
    --------
    >>> model = of_size("Transformer", 100_000, src_vocab=11, tgt_vocab=11)
    >>> model.d_model, count(model)
    (48, 96635)
    """
    model_of = lambda n: SYSTEMS[system](n * STEP, **sizes)
    above = bisect_right(range(1000), n_parameters, lo=2, key=lambda n: count(model_of(n)))  # the first that is larger
    return min(model_of(above - 1), model_of(above), key=lambda model: abs(count(model) - n_parameters))


def count(model):
    """The number of parameters of a model."""
    return tree.count(model.shapes())


def trained(model, task, sizes, lr, progress=False):
    """The parameters after a training on a ``CopyTask``."""
    steps = sizes["steps"]
    optimizer = Adam(warmup_cosine(lr, warmup=steps // 12, total=steps), betas=(0.9, 0.98))
    trainer = Trainer(model, optimizer, seed=task.seed, clip_norm=1.0)
    trainer.fit((task.batch(step, sizes["batch"]) for step in range(steps)), steps, progress=progress)
    return trainer.params
