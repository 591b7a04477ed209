"""What is examined: a model with a copy of its parameters, and a few rows of a batch."""

import numpy as np

from npformer import tree
from npformer.arrays import on_host

N_TOKENS, LONGEST = 64, 32  # of the rows that are examined, about


class Subject:
    """A model, a copy of its parameters, a batch, and what they compute.

    ``causal`` is the number of the input that outputs predict the next tokens of, if there is one, ``vocabularies`` has
    the number of ids of each input of ids, and ``n_answers`` is the number V of answers of which one is right.
    """

    def __init__(self, model, params, batch, ops, trainer, decoding):
        self.model, self.given, self.batch, self.ops = model, params, tuple(batch), ops
        self.trainer, self.decoding, self.pad_id = trainer, decoding, getattr(model, "pad_id", None)
        self.params = tree.map_leaves(lambda x: x.copy(), params)
        self.compute = getattr(model, "logits", getattr(model, "outputs", None))
        names = ["src_vocab", "tgt_vocab"] if hasattr(model, "src_vocab") else ["vocab"]
        sizes = [getattr(model, name, None) for name in names] if self.compute else [None]
        self.vocabularies = {which: size for which, size in enumerate(sizes) if size is not None}
        self.causal = len(sizes) - 1 if hasattr(model, "logits") and self.vocabularies else None
        of_task = {"classes": getattr(model, "n_outputs", None), "words": sizes[-1]}
        self.n_answers = sizes[-1] if self.causal is not None else of_task.get(getattr(model, "task", None))
        self.by_position = self.causal is not None or getattr(model, "by_position", False)
        drawn = [np.isin(on_host(x), (0, 1)).all() for _, x in tree.leaves(params) if x.ndim == 1]
        self.is_new = bool(drawn) and np.mean(drawn) > 0.9  # biases and gains are as they are drawn, 0 and 1

    def choose_rows(self):
        """Choose the rows that are examined, long ones and short ones, and compute their loss and gradient."""
        ids, end = self.batch[self.causal or 0], None if self.causal is None else LONGEST + 1
        lengths = self.is_word(ids).reshape(len(ids), -1).sum(axis=1)
        n = min(int(np.clip(N_TOKENS // max(1, min(LONGEST, lengths.max())), 2, 8)), len(ids))
        chosen = np.argsort(-lengths, kind="stable")[np.linspace(0, len(ids) - 1, n).astype(int)]
        cut = lambda x: x[chosen, :end] if x.ndim > 1 else x[chosen]
        self.rows = tuple(np.ascontiguousarray(cut(x)) if x.shape[:1] == ids.shape[:1] else x for x in self.batch)
        self.inputs, self.targets = self.split(self.rows)
        self.loss, grads, _ = self.gradient()
        self.grads = {path: g.copy() for path, g in grads.items()}

    def split(self, batch):
        """The inputs and the targets of a batch."""
        if self.causal is not None and len(batch) == self.causal + 1:  # the model shifts
            return [*batch[:-1], batch[-1][:, :-1]], batch[-1][:, 1:]
        return [batch[0], *batch[2:]], batch[:2][-1]  # of one array, this is both

    def is_word(self, ids):
        """True where an id is not padding."""
        return np.ones(ids.shape, bool) if self.pad_id is None or ids.dtype.kind == "f" else ids != self.pad_id

    def is_counted(self, inputs, targets):
        """True where a target is in the loss."""
        is_word = self.is_word(targets if self.causal is not None else inputs[0]) if self.by_position else True
        return is_word & (targets != -1)

    def longest_row(self, which):
        """The row with most words in an input, as a batch of inputs, and where its words are."""
        words = self.is_word(self.inputs[which])
        row = int(words.sum(axis=1).argmax())
        return [x[row : row + 1] for x in self.inputs], np.flatnonzero(words[row])

    def outputs(self, inputs, ops=None):
        """The logits, or numbers, for some inputs, without dropout."""
        if self.compute is None:
            raise ValueError(f"the model, {type(self.model).__name__}, has no logits(params, …) or outputs(params, …)")
        return on_host(self.compute(self.params, *inputs, backend=ops or self.ops)).astype(float)

    def gradient(self, *batch, params=None, **options):
        """The loss, the gradient by path as NumPy arrays, where 0 is what is left out, and the number of targets."""
        params, options = params or self.params, {"dropout_key": None, "n_tokens": None, "backend": self.ops} | options
        loss, grads, n = self.model.loss_and_grad(params, *(batch or self.rows), **options)
        given = dict(tree.leaves(grads))
        grads = {path: on_host(given.get(path, np.zeros_like(x))) for path, x in tree.leaves(params)}
        return float(loss), grads, int(n)
