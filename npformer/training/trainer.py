"""The training loop."""

import copy
import inspect
import math
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.backends import get_backend
from npformer.checks import check_in_dtype, warn
from npformer.models.description import as_json, describe
from npformer.operations.explain import Calls, explain
from npformer.operations.options import FRACTION, check_option
from npformer.reference import derive_key, split_key
from npformer.runtime.interrupts import deferred_interrupts
from npformer.runtime.ranks import OneProcess, checksum
from npformer.runtime.threads import n_threads
from npformer.training.checkpoint import joined, load_checkpoint, refusing, save_checkpoint
from npformer.training.exchange import Exchange
from npformer.training.gradient_sum import GradientSum
from npformer.training.optimizers import Optimizer
from npformer.training.parts import listed, pieces_of
from npformer.training.precision import Precision
from npformer.training.progress import progress_bar
from npformer.training.saved_training import check_training, loss_scale_in
from npformer.training.step import Numbers, training_step

END = object()  # of the batches
SETTINGS = ("seed", "label_smoothing", "consistency", "clip_norm", "frozen")  # which a checkpoint has to agree with
EXPLAINED = 5  # number of steps that are timed; the fastest is reported
# Parameters · entries of the largest array, per thread. With less, threads mostly wait for each other.
WORTH_A_SHARD = 5 * 10**7


class NonFiniteError(FloatingPointError):
    """The loss or the gradient became NaN or infinite; the parameters are those from before the step."""


class StepInfo(NamedTuple):
    """The results of one training step."""

    step: int
    loss: float  # mean per token, with dropout and label smoothing
    lr: float
    grad_norm: float  # before clipping
    n_tokens: int  # targets that are not padding
    seconds: float


class Trainer:
    """The training loop, with the parameters, the optimizer state and the step counter.

    ``copy.deepcopy`` makes a trainer with arrays of its own in the same state.

    Parameters
    ----------
    model
        Any object with these methods; it must be a dataclass to be saved.

        - ``init(seed)`` -> params, a nested dict of arrays
        - ``loss_and_grad(params, *batch, dropout_key, n_tokens, backend)`` -> (loss, grads, number of targets). The
          loss is the sum over the targets of this batch, divided by ``n_tokens``, the number of targets in all parts
          of a larger batch. ``grads`` has the keys and shapes of ``params``. Dropout is applied if ``dropout_key`` is
          not None. The batch is what ``step`` was called with, or some of its rows: arrays of the same length may be
          split along their first axis (see ``n_shards``). The model shifts the targets itself. ``backend`` is a
          module. ``label_smoothing``, ``consistency`` and ``loss_scale`` are passed only if the trainer uses them.
        - ``count(*batch)`` -> the number of targets of a batch
        - ``fill_up(batch, rounded_up)``, optional: the batch with padding, for a GPU
    optimizer : SGD, Adam or AdamW
    seed : int
        Seed of the initial parameters and of dropout.
    label_smoothing : float
    consistency : float
        Weight α of R-Drop: if not 0, each sentence passes through the model twice, with different dropout, and the
        loss penalises differences between the two predictions (see ``paired_cross_entropy``).
    clip_norm : float, optional
        Gradients with a larger global norm are multiplied by clip_norm / norm (PyTorch's ``clip_grad_norm_`` divides
        by norm + 1e-6). The gradients of frozen parameters are not part of the norm.
    backend : "auto", "reference", "cpu", "gpu" or a module
    params : nested dict, optional
        Initial parameters, which are copied; ``model.init(seed)`` if not given. ``tree.merged`` makes them from the
        parameters of a model that is partly different.
    frozen : sequence of str
        Paths of parameters that are never updated, such as "encoder" or "decoder.0.attention". A path includes all
        parameters below it.
    n_shards : int, optional
        Number of parts of a batch that are computed in parallel, each with its own gradient, by the threads of all
        ranks. The default is one for each thread that matrix products may use on each rank, or fewer if the step is too
        small. The same number, if it is 2 or more, gives bitwise identical results on any number of threads and ranks
        (``docs/guides/same-bits.md``); another draws other dropout bits and rounds differently.
    precision : "float32", "tf32", "bfloat16" or "float16"
        Number format in which steps are computed; all but "float32" need a GPU. Parameters and moments are float32.
        (On a GPU batches are padded to multiples of 8, so dropout draws other bits than on a CPU.)
    ranks : Ranks, optional
        The processes that compute this training together, ``npformer.runtime.ranks.world()``. Each has to make the same
        trainer and call the same methods with the same arguments. The shards of a batch are divided among the ranks.
        They make the same steps, bit for bit, as one process with as many shards (``docs/guides/same-bits.md``). Only
        rank 0 writes checkpoints. One thread calls the methods.

    Attributes
    ----------
    params : nested dict
        Views into ``flat_params``, updated in place. Write into the arrays to change them: they cannot be replaced.
    n_steps : int
        Number of steps done.
    last : StepInfo
        The results of the last step.

    Examples
    --------
    >>> from npformer import Adam, Transformer
    >>> model = Transformer(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
    >>> trainer = Trainer(model, Adam(lr=0.01))
    >>> src, tgt = np.array([[3, 4, 5]]), np.array([[1, 3, 4, 5, 2]])
    >>> losses = [trainer.step(src, tgt) for _ in range(20)]
    >>> losses[-1] < 0.1 * losses[0]
    True
    """

    def __init__(
        self,
        model,
        optimizer,
        *,
        seed=0,
        label_smoothing=0.0,
        consistency=0.0,
        clip_norm=None,
        backend="auto",
        params=None,
        n_shards=None,
        precision="float32",
        frozen=(),
        ranks=None,
    ):
        self.label_smoothing = FRACTION.check("label_smoothing", label_smoothing)  # of 1, nothing would be learned
        self.consistency = check_option("consistency", consistency)
        self.seed = check_option("seed", seed)
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"optimizer={optimizer!r}, expected an optimizer such as Adam(lr=0.001)")
        self.clip_norm = None if clip_norm is None else check_option("clip_norm", clip_norm)
        self.n_shards = None if n_shards is None else check_option("n_shards", n_shards)
        for method in ("init", "loss_and_grad", "count"):
            if not callable(getattr(model, method, None)):
                raise TypeError(
                    f"model is a {type(model).__name__} without {method}(), expected the methods in help(Trainer)"
                )
        self.model, self.optimizer = model, optimizer
        self.ops = get_backend(backend, params)
        start = model.init(self.seed)
        if params is not None:
            tree.check_like(params, start)
            start = tree.ordered_like(params, start)
        self._flat_params = self.ops.device.asarray(tree.flatten(start)[0])
        self._params = tree.fixed(tree.view_as(self.flat_params, start))
        optimizer.check_dtype(self.flat_params.dtype)
        check_in_dtype("clip_norm", self.clip_norm or 0.0, self.flat_params.dtype)
        self.precision = Precision(precision, self.ops, self.flat_params, self._params)
        self.flat_grads = np.zeros_like(self.flat_params)
        self.grads = tree.view_as(self.flat_grads, self.params)
        self.frozen = listed(frozen)
        arrays = self.flat_params, self.flat_grads, self.grads, pieces_of(self.params, self.frozen, optimizer.decays)
        self.ranks = ranks or OneProcess()
        if self.ranks.size > 1:
            self.sums = Exchange(self.ranks, model, self.ops, *arrays)
        else:
            self.sums = GradientSum(self.ops, *arrays)
        self.state = optimizer.init(self.sums.own(self.flat_params))
        if self.ops.device.asynchronous and self.n_shards not in (None, self.ranks.size):
            wanted = f"None or {self.ranks.size}"
            raise ValueError(f"n_shards={self.n_shards} on a GPU, which computes a batch as one, expected {wanted}")
        if self.n_shards is not None and self.n_shards < self.ranks.size:
            raise ValueError(f"n_shards={self.n_shards}, expected one or more for each of {self.ranks.size} ranks")
        self.options = {name: value for name in ("label_smoothing", "consistency") if (value := getattr(self, name))}
        self._take = partial(training_step, self)
        if self.ranks.size == 1:  # a message to another rank cannot be recorded
            self._take = self.ops.device.record(self._take, getattr(model, "fill_up", lambda batch, _: batch))
        self.n_steps = 0
        self.last: StepInfo | None = None
        if self.ranks.size > 1:
            self.ranks.agree(
                model=describe(model) if is_dataclass(model) else type(model).__name__,
                settings=self.settings() | {"n_shards": self.n_shards, "precision": precision},
                backend=self.ops.name,
                parameters=checksum([on_host(self.flat_params)]),
            )
        self._lock, self._process, self._changing = threading.RLock(), os.getpid(), False

    @property
    def params(self):
        """The parameters, a nested dict of views into ``flat_params``."""
        return self._params

    @params.setter
    def params(self, new):
        self._refuse("params", new, self._params)

    @property
    def flat_params(self):
        """All parameters, as one array (n,)."""
        return self._flat_params

    @flat_params.setter
    def flat_params(self, new):
        self._refuse("flat_params", new, self._flat_params)

    def _refuse(self, name, new, own):
        if new is not own:  # trainer.flat_params += 1 ends with an assignment of the same array
            raise ValueError(
                f"trainer.{name} cannot be replaced: write into its arrays, as trainer.flat_params[...] = x, or make a "
                "Trainer with params="
            )

    def step(self, *batch, batches=None) -> float:
        """Make one update from one batch.

        A ``KeyboardInterrupt`` waits until the step has ended: a step is either made and counted, or not made at all.

        Parameters
        ----------
        *batch : arrays
            The arguments of the model's ``loss_and_grad``. For a model from a source to a target these are src (B, S)
            and tgt (B, T+1), ids with begin and end tokens. The first T columns of tgt are the decoder's input, the
            last T the tokens to predict. Without a begin token the model would never learn to predict the first word,
            and decoding would have no first input.
        batches : iterable of batches, optional
            Several batches instead of one, as for ``step_accumulated``.

        Returns
        -------
        float
            The mean loss per target.
        """
        if batch and batches is not None:
            raise ValueError(f"step got a batch of {len(batch)} items and batches=…, expected one of them")
        batches = [batch] if batches is None else list(batches)
        check_batches(batches)
        start = time.perf_counter()
        n_targets = sum(count_of(self.model, batch) for batch in batches)
        if n_targets == 0:
            warn("no target is counted: the loss is 0, and the step has no gradient")
        with self._alone(changing=True), deferred_interrupts():
            if self.ranks.size > 1:
                self.ranks.agree(
                    step=self.n_steps + 1,
                    lr=self.optimizer.learning_rate(self.n_steps + 1),
                    shards=[self._n_shards(batch) for batch in batches],
                    targets=n_targets,
                    batch=checksum(x for batch in batches for x in batch),
                )
            before, key = self.precision.state, derive_key(self.seed, self.n_steps)
            while True:
                numbers = self._numbers(n_targets)
                loss, norm = map(float, self._take(batches, key, numbers))
                if math.isfinite(loss) and math.isfinite(norm):
                    break
                if not (math.isfinite(loss) and self.precision.after_overflow()):
                    self.precision.state = before
                    raise NonFiniteError(self._diagnosis(loss))
            self.precision.after_step()
            self.n_steps = numbers.step
            self.last = StepInfo(numbers.step, loss, numbers.lr, norm, n_targets, time.perf_counter() - start)
        return loss

    def step_accumulated(self, batches) -> float:
        """Make one update from several batches, an iterable of tuples such as (src, tgt); return the loss as ``step``.

        The update is that from one batch with all their rows: each batch is weighted by its number of targets, as the
        mean of the batches' means would give more weight to the targets of a batch with few of them. (Dropout draws
        other bits than in one large batch.)
        """
        return self.step(batches=batches)

    def fit(self, batches, n_steps=None, *, callbacks=(), progress=True) -> list[StepInfo]:
        """Make one step for each batch.

        Parameters
        ----------
        batches : iterable of tuples, such as (src, tgt)
        n_steps : int, optional
            Make at most this number of steps from here on; needed if ``batches`` never ends.
        callbacks : iterable of callables
            ``callback(trainer, info)`` is called after each step, with a ``StepInfo``; a true result stops training. It
            is not called after a step that is interrupted.
        progress : bool
            Show a progress bar with loss, learning rate and tokens per second (needs tqdm).

        Returns
        -------
        list of StepInfo
        """
        if n_steps is not None:
            n_steps = check_option("n_steps", n_steps)
        history: list = []
        callbacks = list(callbacks)  # an iterator would call them after the first step only
        with progress_bar(n_steps, progress and self.ranks.is_first) as bar:
            upcoming = islice(batches, n_steps)
            while (batch := self._next(upcoming)) is not END:
                self.step(batches=[batch])
                history.append(self.last)
                bar.advance(self.last)
                wishes = [callback(self, self.last) for callback in callbacks]  # no short circuit: all are called
                with deferred_interrupts():
                    if self.ranks.any(any(wishes)):  # all ranks stop after the same step
                        break
        return history

    def _next(self, batches):
        """The next batch, ``END`` after the last, which has to come on all ranks at once."""
        batch = next(batches, END)
        if self.ranks.size > 1:
            with deferred_interrupts():
                self.ranks.agree(batches_end=batch is END)
        return batch

    def explain(self, *batch) -> Calls:
        """List the operations of a ``step`` on this batch, with their times, from the fastest of several steps.

        The parameters and the optimizer state are left unchanged. ``print`` shows the list of ``Call`` as a table.

        Examples
        --------
        >>> from npformer import Adam, Transformer
        >>> trainer = Trainer(Transformer(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=32), Adam(lr=0.01))
        >>> calls = trainer.explain(np.array([[3, 4, 5]]), np.array([[1, 3, 4, 5, 2]]))
        >>> calls[-1].operation, calls[-1].by
        ('adam_update', 'kernel')
        """
        check_batches([batch])
        with self._alone(changing=True):
            key, numbers = derive_key(self.seed, self.n_steps), self._numbers(count_of(self.model, batch))
            arrays = [self.flat_params, *self.state.values()]
            kept, runs = [x.copy() for x in arrays], []
            for _ in range(1 + EXPLAINED):  # the first one may compile kernels
                with deferred_interrupts():
                    try:
                        with explain() as calls:
                            training_step(self, [batch], key, numbers)
                        runs.append(calls)
                    finally:
                        for x, before in zip(arrays, kept, strict=True):
                            x[...] = before
        return min(runs[1:], key=lambda calls: sum(call.seconds for call in calls))

    def save(self, path, info=None, arrays=None):
        """Save everything that is needed to resume the training bit for bit, in one file.

        Parameters
        ----------
        path : str or Path
            Replaced atomically when everything is written, so that there is always a complete file.
        info : dict, optional
            Further values to save, such as the position in the data: anything that JSON can hold.
        arrays : dict of arrays, optional
            Further arrays to save.

        Raises
        ------
        ValueError
            If ``info`` or ``arrays`` has a name that the trainer itself uses.
        """
        for name in arrays or ():
            if name.startswith(("params.", "optimizer.")):
                raise ValueError(
                    f"arrays has {name!r}, expected names that do not begin with 'params.' or 'optimizer.'"
                )
        with self._alone():
            state = {name: self.sums.whole(x) for name, x in self.state.items()}
            own = tree.to_arrays(self.params, "params") | tree.to_arrays(state, "optimizer")
            facts = {"model": describe(self.model), "trainer": self.settings(), "n_steps": self.n_steps}
            if self.precision.has_loss_scale:
                facts["loss_scale"] = list(self.precision.state)
            arrays, info = joined("arrays", own, arrays), joined("info", facts, info)
            self.ranks.first(lambda: save_checkpoint(path, arrays, info))

    def load(self, path):
        """Restore what ``save`` wrote, in a trainer made with the same arguments.

        Returns
        -------
        info : dict
        arrays : dict of arrays
            Everything in the file, including the ``info`` and ``arrays`` given to ``save``.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        CheckpointError
            If it is damaged, or not the checkpoint of this model and of a trainer with these settings.
        """
        arrays, info = load_checkpoint(path)
        self.restore(arrays, info, path)
        return info, arrays

    def restore(self, arrays, info, path):
        """Do the same as ``load``, with the result of ``load_checkpoint``; the path is for error messages."""
        with refusing(path, "make the trainer with the file's settings, or try another file"):
            check_training(arrays, info, self)
        params, state = tree.from_arrays(arrays, "params"), tree.from_arrays(arrays, "optimizer")
        if self.ranks.size > 1:
            self.ranks.agree(checkpoint={"n_steps": info["n_steps"], "arrays": checksum(arrays.values())})
        with self._alone(changing=True), deferred_interrupts():
            self.flat_params[...] = self.ops.device.asarray(tree.flatten(tree.ordered_like(params, self.params))[0])
            for name, x in self.state.items():
                x[...] = self.ops.device.asarray(self.sums.own(state[name]))
            self.n_steps = info["n_steps"]
            if self.precision.has_loss_scale:
                self.precision.state = loss_scale_in(info) or self.precision.state

    def settings(self):
        """The arguments that a checkpoint has to agree with: a dict that JSON can hold."""
        optimizer = {k: v for k, v in asdict(self.optimizer).items() if k != "lr"}  # a schedule is a function
        settings = {name: getattr(self, name) for name in SETTINGS}
        return as_json(settings | {"optimizer": {"name": type(self.optimizer).__name__} | optimizer})

    def __deepcopy__(self, memo):
        """A trainer with arrays of its own that makes the same steps from here on."""
        with self._alone():
            twin = type(self)(
                copy.deepcopy(self.model, memo),
                self.optimizer,
                **{name: getattr(self, name) for name in SETTINGS},
                backend=self.ops,
                params=self.params,
                n_shards=self.n_shards,
                precision=self.precision.name,
                ranks=self.ranks,
            )
            for name, x in self.state.items():
                twin.state[name][...] = x
            twin.n_steps, twin.last, twin.precision.state = self.n_steps, self.last, self.precision.state
        return twin

    @contextmanager
    def _alone(self, changing=False):
        """A lock, so that other threads step, save or restore this trainer before or after, not meanwhile.

        A signal handler, which runs in the thread that has the lock, is refused while the trainer is ``changing``.
        """
        if self._process != os.getpid():  # the thread that had the lock is not in this forked process
            self._lock, self._process, self._changing = threading.RLock(), os.getpid(), False
        with self._lock:
            if self._changing:
                raise RuntimeError(
                    "a signal handler called the trainer in the middle of a step: set a flag in the handler, and call "
                    "the trainer after the step, as npformer.training.StopSignals does"
                )
            self._changing = changing
            try:
                yield
            finally:
                self._changing = False

    def _numbers(self, n_targets):
        """The ``Numbers`` of the next step."""
        step = self.n_steps + 1
        lr = self.optimizer.learning_rate(step)
        if lr > 1:  # a small one may become 0 at the end of a schedule
            check_in_dtype(f"lr({step})", lr, self.flat_params.dtype)
        return Numbers(max(n_targets, 1), self.precision.state.scale, lr, step)

    def shards(self, batch, key):
        """Split a batch into one part for each thread of each rank: [(tuple of arrays, key)]."""
        n = self._n_shards(batch)
        rows = {len(x) for x in batch} if n > 1 else ()
        if len(rows) != 1:  # one part, or unequal numbers of rows: the model raises the error
            return [(batch, key)]
        parts = [slice(part[0], part[-1] + 1) for part in np.array_split(range(rows.pop()), n)]
        return [(tuple(x[part] for x in batch), of) for part, of in zip(parts, split_key(key, n), strict=True)]

    def _n_shards(self, batch):
        """The number of shards of a batch, on all ranks together."""
        if not (batch and all(isinstance(x, np.ndarray) and x.ndim for x in batch)):  # a model may take anything else
            return 1
        n = self.n_shards
        if n is None:
            worth = self.flat_params.size * max(x.size for x in batch) // (WORTH_A_SHARD * self.ranks.size)
            on_each = 1 if self.ops.device.asynchronous else max(1, min(n_threads(), worth))
            n = on_each * self.ranks.size
        return max(1, min(n, len(batch[0])))

    def _diagnosis(self, loss):
        bad_params, bad_grads = map(self.ranks.union, (tree.not_finite(self.params), self.sums.not_finite()))
        lr = self.optimizer.learning_rate(self.n_steps + 1)
        advice = f"Try a lower learning rate (now {lr:g}), clip_norm=1.0 (now {self.clip_norm}), or a longer warm-up."
        where = "no parameter or gradient is NaN or inf"
        if math.isfinite(loss):
            where += ", but the gradient's norm is too large for its dtype"
        if bad_params:
            where = f"parameter {bad_params[0]} holds NaN or inf (one of {len(bad_params)})"
            advice = "It did so before this step: go on from a checkpoint. " + advice
        elif bad_grads:
            where = f"the gradient of {bad_grads[0]} holds NaN or inf (one of {len(bad_grads)})"
        return (
            f"step {self.n_steps + 1}: the loss is {loss:g}; {where}. The step was not taken: parameters are those "
            f"of step {self.n_steps}. {advice}"
        )


def check_batches(batches):
    """Check that there are batches, and that what they hold can be read more than once: to count targets, and again."""
    if not batches:
        raise ValueError("batches is empty, expected one or more tuples such as (src, tgt)")
    for n, batch in enumerate(batches):
        if not isinstance(batch, (tuple, list)):
            raise ValueError(f"batches[{n}] is a {type(batch).__name__}, expected a tuple such as (src, tgt)")
        for i, x in enumerate(batch):
            if hasattr(x, "__next__"):
                raise TypeError(f"batch[{i}] is a {type(x).__name__}, which can be read only once: expected an array")


def count_of(model, batch):
    """The number of targets of a batch."""
    try:
        return model.count(*batch)
    except TypeError as error:
        arguments = inspect.signature(model.count)
        try:
            arguments.bind(*batch)
        except TypeError:
            message = f"a batch has {len(batch)} items, expected those that {type(model).__name__} takes: {arguments}"
            raise TypeError(f"{message}; write step(src, tgt), or step(*batch)") from error
        raise
