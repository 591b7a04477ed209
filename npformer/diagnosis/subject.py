"""What is examined: a model with a copy of its parameters, and a few rows of a batch."""

import inspect

import numpy as np

from npformer import tree
from npformer.arrays import on_host

N_TOKENS, LONGEST = 64, 32  # of the rows that are examined, about


class Subject:
    """A model, a copy of its parameters, a batch, and what they compute.

    ``of_ids`` has the numbers of the inputs that are ids, ``causal`` is that of the input whose next tokens are
    predicted, if there is one, and ``n_answers`` is the number V of answers of which one is right.
    """

    def __init__(self, model, params, batch, ops, trainer, decoding, n_steps):
        self.model, self.given, self.batch, self.ops = model, params, tuple(batch), ops
        self.trainer, self.decoding, self.n_steps = trainer, decoding, n_steps
        self.pad_id = getattr(model, "pad_id", None)
        self.params = tree.map_leaves(lambda x: x.copy(), params)
        self.compute = getattr(model, "logits", getattr(model, "outputs", None))
        self.n_inputs, self.of_ids, self.causal, self.by_position, self.n_answers = 1, [], None, False, None
        drawn = [np.isin(on_host(x), (0, 1)).all() for _, x in tree.leaves(params) if x.ndim == 1]
        self.is_new = bool(drawn) and np.mean(drawn) > 0.9  # biases and gains are as they are drawn, 0 and 1

    def ask_outputs(self):
        """What the outputs of the first row say about the model."""
        compute, self.compute = self.compute, None  # unless it runs
        if compute is None:
            return ()
        takes, has_logits = inspect.signature(compute).parameters.values(), hasattr(self.model, "logits")
        n_needed = sum(x.default is x.empty and x.kind == x.POSITIONAL_OR_KEYWORD for x in takes)
        are_ids = [x.dtype.kind in "iu" and x.ndim == 2 for x in self.batch]
        n = 2 if n_needed == 3 and len(are_ids) > 1 and all(are_ids) else 1  # params, src and tgt_in
        inputs = [x[:1] for x in (*self.batch[:n], *self.batch[n + 1 :])]
        if has_logits and len(self.batch) == n:  # the model shifts
            inputs[-1] = inputs[-1][:, :-1]
        takes_backend = any(x.name == "backend" or x.kind == x.VAR_KEYWORD for x in takes)
        self.options = {"backend": self.ops} if takes_backend else {}
        shape = compute(self.params, *inputs, **self.options).shape
        self.compute, self.n_inputs, self.by_position = compute, n, len(shape) > 2
        self.of_ids = [which for which in range(n) if are_ids[which]]
        if has_logits or getattr(self.model, "task", None) in ("classes", "words"):
            self.n_answers = shape[-1]
        self.causal = n - 1 if has_logits and self.by_position and self.of_ids else None
        if max(self.shifts().values(), default=1) < 0.5:
            self.causal = None  # a label for each token
        targets = self.split(self.batch)[1]
        if not hasattr(self.model, "pad_id") and self.model.count(*self.batch) == (targets != 0).sum() < targets.size:
            self.pad_id = 0  # which it knows all the same
        return ()

    def shifts(self):
        """The share of targets t that are token t + k of the input, by k, if the model is given both."""
        if (self.causal, len(self.batch)) != (0, 2) or (T := self.batch[0].shape[1]) < 4:
            return {}
        (ids, targets), fits = self.batch, {}
        for k in (1, 0, 2, -1):
            at, of = targets[:, max(0, -k) : T - max(0, k)], ids[:, max(0, k) : T + min(0, k)]
            fits[k] = (at == of)[self.is_word(at) & (at != -1)].mean()
        return fits

    def choose_rows(self):
        """Choose the rows that are examined, long ones and short ones, and compute their loss and gradient."""
        ids, end = self.batch[self.causal or 0], None if self.causal is None else LONGEST + 1
        lengths = self.is_word(ids).reshape(len(ids), -1).sum(axis=1)
        n = min(int(np.clip(N_TOKENS // max(1, min(LONGEST, lengths.max())), 2, 8)), len(ids))
        chosen = np.argsort(-lengths, kind="stable")[np.linspace(0, len(ids) - 1, n).astype(int)]
        cut = lambda x: x[chosen, :end] if x.ndim > 1 else x[chosen]
        self.rows = tuple(np.ascontiguousarray(cut(x)) if x.shape[:1] == ids.shape[:1] else x for x in self.batch)
        self.inputs, self.targets = self.split(self.rows)
        self.loss, self.grads, self.n = self.gradient()

    def split(self, batch):
        """The inputs and the targets of a batch."""
        n = self.n_inputs
        if self.causal is not None and len(batch) == n:  # the model shifts
            return [*batch[:-1], batch[-1][:, :-1]], batch[-1][:, 1:]
        return [*batch[:n], *batch[n + 1 :]], batch[: n + 1][-1]  # of one array, this is both

    def is_word(self, ids):
        """True where an id is not padding."""
        return np.ones(ids.shape[:2], bool) if self.pad_id is None or ids.dtype.kind == "f" else ids != self.pad_id

    def is_seen(self, inputs, which=0):
        """True where an input is not padding, and no mask (B, T) among the inputs is False."""
        masks = [x for x in inputs if x.dtype == bool and x.shape == inputs[which].shape[:2]]
        return np.logical_and.reduce([self.is_word(inputs[which]), *masks])

    def is_counted(self, inputs, targets):
        """True where a target is in the loss."""
        counted = (targets != -1) | (targets.dtype.kind == "f")
        if self.by_position:
            is_seen = self.is_seen(inputs) if self.causal is None else self.is_word(targets)
            counted &= is_seen if targets.ndim == 2 else is_seen[..., None]
        return counted

    def longest_row(self, which):
        """The row with most words in an input, as a batch of inputs, and where its words are."""
        words = self.is_seen(self.inputs, which)
        row = int(words.sum(axis=1).argmax())
        return [x[row : row + 1] for x in self.inputs], np.flatnonzero(words[row])

    def outputs(self, inputs):
        """The logits, or numbers, for some inputs, without dropout."""
        if self.compute is None:
            raise ValueError(f"a {type(self.model).__name__} has no logits(params, …) or outputs(params, …) that run")
        return on_host(self.compute(self.params, *inputs, **self.options)).astype(float)

    def gradient(self, *batch, params=None, **options):
        """The loss, the gradient by path as NumPy arrays, where 0 is what is left out, and the number of targets."""
        params = params or self.params
        loss, grads, n = self._computed(params, batch or self.rows, options)
        given = dict(tree.leaves(grads))
        grads = {path: on_host(given[path]) if path in given else np.zeros_like(x) for path, x in tree.leaves(params)}
        return float(loss), grads, int(n)

    def loss_of(self, params=None, **options):
        """The loss alone, for which a model that has the option computes no gradient."""
        if "with_grad" in inspect.signature(self.model.loss_and_grad).parameters:
            options["with_grad"] = False  # a third of the time
        return float(self._computed(params or self.params, self.rows, options)[0])

    def _computed(self, params, batch, options):
        options = {"dropout_key": None, "n_tokens": None, "backend": self.ops} | options
        return self.model.loss_and_grad(params, *batch, **options)
