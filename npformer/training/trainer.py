"""The trainer: it makes steps, one by one or in a loop, and goes on from what it has saved.

``Trainer.__init__`` checks what it is given, and composes the step: ``training_step`` (``step.py``)
with what divides it, if anything does. ``Trainer.step`` makes one: its batches are counted and
computed, and the result is kept. ``Trainer.fit`` is the loop (``loop.py``).
"""

import operator
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from npformer import tree
from npformer.arrays import digest, on_host
from npformer.backends import AnyBackend, get_backend, picklable
from npformer.checks import check_flag, check_in_dtype, check_no_class, shown, warn
from npformer.errors import UserError
from npformer.files.checkpoint import load_checkpoint, refusing, save_checkpoint
from npformer.models import describe
from npformer.models.batch import check_batches, count_of
from npformer.models.loss_and_grad import checked_results, taken_by_loss, without_ready
from npformer.operations.explain import Calls
from npformer.operations.options import settings_from
from npformer.quantized import check_trainable
from npformer.runtime.blas_threads import one_blas_thread
from npformer.runtime.ranks import Ranks, checked_ranks, world
from npformer.training.checkpoint import checked_contents, contents_of
from npformer.training.flat import FlatOptimizer, TrainState, pieces_of
from npformer.training.guard import Guard, NonFiniteError, why_not_finite
from npformer.training.loop import Actions, History, Loop, checked_callbacks, evaluation_of
from npformer.training.optimizers import Optimizer
from npformer.training.ranks import DividedOptimizer, OverRanks, facts_of, facts_of_step
from npformer.training.settings import (
    LoopKeywords,
    LoopSettings,
    TrainingKeywords,
    TrainingSettings,
    with_fields_of,
)
from npformer.training.shards import OverShards, Sharding
from npformer.training.step import Numbers, WholeBatch, training_step

if TYPE_CHECKING:  # only who asks for a diagnosis waits for its import
    from npformer.diagnosis import Findings

FIXED = "params", "flat_params", "ops", "ranks"  # attributes that are set once
# beside ``LoopSettings``:
ARGUMENTS_OF_FIT = "n_steps", "validate", "save", "callbacks", "progress", "watch"


class StepInfo(NamedTuple):
    """The results of one training step."""

    step: int
    loss: float  # mean per token, with dropout and label smoothing
    lr: float
    grad_norm: float  # before clipping
    n_tokens: int  # targets that are not padding
    seconds: float


class Trainer:
    """The training loop, with the parameters, the optimizer's moments and the step counter.

    ``copy.deepcopy`` and ``pickle`` make a trainer with arrays of its own in the same state.

    Parameters
    ----------
    model
        Any object with these methods; it must be a dataclass to be saved.

        - ``init(seed)`` -> params, a nested dict of arrays
        - ``loss_and_grad(params, *batch, dropout_key, n_tokens, backend)`` -> (loss, grads, number
          of targets). The loss is the sum over the targets of this batch, divided by ``n_tokens``,
          the number of targets in all parts of a larger batch. ``grads`` has the keys and shapes of
          ``params``. Dropout is applied if ``dropout_key`` is not None. The batch is what ``step``
          was called with, or some of its rows: arrays of the same length may be split along their
          first axis (see ``n_shards``). The model shifts the targets itself. ``backend`` is an
          ``Ops``. ``label_smoothing``, ``consistency`` and ``loss_scale`` are passed only if the
          trainer uses them. If the method takes ``ready``, it may give gradients to ``ready(path,
          grads)`` as soon as those below a path are complete, and leave them out of ``grads``: then
          no thread holds a whole gradient. (One that is returned, too, counts once.) ``grads`` are
          new arrays in each call: they are kept while other rows are computed, in other threads.
          Validation calls it with ``dropout_key=None`` and without ``ready``; if it takes
          ``with_grad``, with ``with_grad=False``: then ``grads`` are not used.
        - ``count(*batch)`` -> the number of targets of a batch, an int
        - ``fill_up(batch, rounded_up)``, optional: the batch with padding, for a GPU
        - ``shapes()``, optional: arrays like those of ``init``, with the same paths, shapes and
          dtypes, to compare ``params`` with; they need no memory (``np.broadcast_to``)
    optimizer : SGD, Adam, AdamW or Lion
    params : nested dict, optional
        Initial parameters, which are copied; ``model.init(seed)`` if not given. ``tree.merged``
        makes them from the parameters of a model that is partly different.
    backend : "auto", "reference", "cpu", "gpu" or an Ops
    ranks : Ranks, optional
        The processes that compute this training together, ``npformer.runtime.ranks.world()``. Each
        has to make the same trainer and call the same methods with the same arguments. The shards
        of a batch are divided among the ranks. They make the same steps, bit for bit, as one
        process with as many shards (``docs/guides/same-bits.md``). Only rank 0 writes checkpoints.
        One thread calls the methods.
    seed, label_smoothing, consistency, clip_norm, frozen, precision, n_shards
        As the fields of ``TrainingSettings``: see ``help(npformer.training.TrainingSettings)``.

    Attributes
    ----------
    state : TrainState
        Everything that a step changes.
    params : nested dict
        The parameters, views into ``flat_params``, which a step updates in place. Write into the
        arrays to change them: they cannot be replaced.
    flat_params : (n,)
        All parameters, as one array.
    settings : TrainingSettings
    ops : Ops
        The backend.
    ranks : Ranks
    last : StepInfo
        The results of the last step; None before the first, and after ``load``.

    Examples
    --------
    >>> from npformer import Adam, Transformer
    >>> model = Transformer(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
    >>> trainer = Trainer(model, Adam(lr=0.01), seed=1)
    >>> src, tgt = np.array([[3, 4, 5]]), np.array([[1, 3, 4, 5, 2]])
    >>> losses = [trainer.step(src, tgt) for _ in range(20)]
    >>> losses[-1] < 0.1 * losses[0]
    True
    """

    @with_fields_of(TrainingSettings)
    def __init__(
        self,
        model: Any,
        optimizer: Optimizer,
        *,
        params: dict | None = None,
        backend: AnyBackend = "auto",
        ranks: Ranks | None = None,
        **settings: Unpack[TrainingKeywords],
    ) -> None:
        self.settings = settings_from(TrainingSettings, settings, "a training")
        if not isinstance(optimizer, Optimizer):
            expected = "an optimizer such as Adam(lr=0.001)"
            raise TypeError(f"optimizer={optimizer!r}, expected {expected}")
        self.taken_by_loss = checked_options(model, self.settings)
        self.model, self.optimizer = model, optimizer
        self.ranks = checked_ranks(ranks)
        self.ops = get_backend(backend, params)

        # What a step changes, and what updates it.
        start = parameters_at_start(model, params, self.settings.seed)
        flat_params = self.ops.device.asarray(tree.flatten(start)[0])
        optimizer.check_dtype(flat_params.dtype)
        check_in_dtype("clip_norm", self.settings.clip_norm or 0.0, flat_params.dtype)
        # neighbouring parameters that are all frozen or not, and all decay or not
        pieces = pieces_of(start, self.settings.frozen, optimizer.decays)
        self.flat_optimizer = optimizer_over(self.ranks, optimizer, self.ops, pieces, flat_params)
        moments = self.flat_optimizer.init(flat_params)
        self.state = TrainState(flat_params, start, moments, self.ops, self.settings)
        self.params, self.flat_params = self.state.params, self.state.flat_params
        self.last: StepInfo | Any = None  # not | None, which mypy would ask for after each step
        self.watched: Any = None  # what ``fit(watch=True)`` has seen of a training

        # What computes a batch.
        device = self.ops.device
        precision = self.state.precision
        self.sharding = Sharding(device, self.ranks.size, self.settings.n_shards, self.params)
        loss_and_grad = precision.over(model.loss_and_grad)
        if "ready" not in self.taken_by_loss.names:
            loss_and_grad = without_ready(loss_and_grad)
        self.loss_and_grad = loss_over(
            self.ranks, loss_and_grad, self.state, self.sharding, self.flat_optimizer
        )

        # The step in three forms, on a CPU the same function. None of them is a method: it would
        # refer to the trainer, a cycle, whose memory is freed late.
        self._step = partial(
            training_step,
            self.state,
            loss_and_grad=self.loss_and_grad,
            optimizer=self.flat_optimizer,
            options=self.settings.of_loss | {"backend": self.ops},
            clip_norm=self.settings.clip_norm,
            has_loss_scale=precision.has_loss_scale,
        )
        self._recorded_step = self._step  # on a GPU, from a recording
        if self.ranks.is_alone:  # a message to another rank cannot be recorded
            fill_up = getattr(model, "fill_up", lambda batch, _: batch)
            self._recorded_step = device.record(self._step, fill_up)
        # After an overflow of float16 it is made again.
        self._retried_step = precision.over_step(self._recorded_step)

        self.ranks.agree(lambda: facts_of(self))
        self._guard = Guard()

    @property
    def n_steps(self) -> int:
        """Number of steps done."""
        return self.state.n_steps

    def __setattr__(self, name: str, value: Any) -> None:
        # trainer.flat_params += 1 assigns the same array again.
        if name in FIXED and value is not getattr(self, name, value):
            advice = (
                "write into its arrays, as trainer.flat_params[...] = x, or make another Trainer"
            )
            raise UserError(f"trainer.{name} cannot be replaced: {advice}")
        super().__setattr__(name, value)

    def step(self, *batch: Any, batches: Iterable[tuple] | None = None) -> float:
        """Make one update from one batch.

        A ``KeyboardInterrupt`` waits until the step has ended: a step is either made and counted,
        or not made at all.

        Parameters
        ----------
        *batch : arrays
            The arguments of the model's ``loss_and_grad``. For a model from a source to a target
            these are src (B, S) and tgt (B, T+1), ids with begin and end tokens. The first T
            columns of tgt are the decoder's input, the last T the tokens to predict. Without a
            begin token the model would never learn to predict the first word, and decoding would
            have no first input.
        batches : iterable of batches, optional
            Several batches instead of one, an iterable of tuples such as (src, tgt). The update is
            that from one batch with all their rows: each batch is weighted by its number of
            targets, as the mean of the batches' means would give more weight to the targets of a
            batch with few of them. (Dropout draws other bits than in one large batch.)

        Returns
        -------
        float
            The mean loss per target.
        """
        if batch and batches is not None:
            raise UserError("step got a batch and batches=…, expected one of them")
        batches = [batch] if batches is None else list(batches)
        start = time.perf_counter()
        # An interrupt waits until the step is whole, and BLAS has one thread: npformer divides the
        # work among threads itself.
        with self._guard(changing=True), one_blas_thread():
            # In one process this is self._checked(batches).
            n_targets, numbers = self.ranks.agreed(
                partial(self._checked, batches), partial(facts_of_step, self, batches)
            )
            loss, norm, is_update = self._retried_step(batches, self.state.key, numbers)
            loss, norm = float(loss), float(norm)
            if not is_update:
                raise NonFiniteError(why_not_finite(self, batches, loss, numbers.lr))
            self.state.n_steps = numbers.step
            seconds = time.perf_counter() - start
            self.last = StepInfo(numbers.step, loss, numbers.lr, norm, n_targets, seconds)
        return loss

    def _checked(self, batches):
        """The number of targets of the next step's batches, and the ``Numbers`` of the step."""
        check_batches(batches)
        n_targets = sum(count_of(self.model, batch) for batch in batches)
        if n_targets == 0:
            warn("no target is counted: the loss is 0, and the step has no gradient")
        return n_targets, self._numbers(n_targets)

    def _numbers(self, n_targets):
        """The ``Numbers`` of the next step."""
        step = self.state.n_steps + 1
        lr = self.optimizer.learning_rate(step, self.flat_params.dtype)
        return Numbers(max(n_targets, 1), self.state.precision.loss_scale.value, lr, step)

    @with_fields_of(LoopSettings)
    def fit(
        self,
        batches: Iterable[tuple],
        n_steps: int | None = None,
        *,
        validate: Sequence[tuple] | Callable[[Any], Any] | None = None,
        save: str | Path | None = None,
        callbacks: Iterable[Callable] = (),
        progress: bool = True,
        watch: "bool | Findings" = False,
        **settings: Unpack[LoopKeywords],
    ) -> History:
        """Make one step for each batch; validate, save and stop on the way.

        Parameters
        ----------
        batches : iterable of tuples, such as (src, tgt)
        n_steps : int, optional
            Make at most this number of steps from here on; needed if ``batches`` never ends.
        validate : sequence of batches, or callable, optional
            Batches for the mean loss per target, "val_loss", without dropout and label smoothing.
            Or a function ``validate(trainer)`` that returns a number, or a dict of numbers such as
            {"val_bleu": 31.5}.
        save : str or Path, optional
            A folder, for the checkpoint ``last.safetensors``, that of the best validation,
            ``best.safetensors``, and ``log.jsonl``, with one line of JSON for each step and each
            validation. To go on with a training, ``load`` the checkpoint, and give the batches that
            come after its ``n_steps``.
        callbacks : iterable of callables
            ``callback(trainer, info)`` is called after each step, with a ``StepInfo``; the result
            True ends the training. It is not called after a step that is interrupted.
        progress : bool
            Print the results of validations, and show a progress bar with loss, learning rate and
            the targets per second of the last steps (needs tqdm). Where standard error is no
            terminal, a line each minute says the same.
        watch : bool, or the result of ``diagnose``
            Examine the first batch, unless it was examined, and look at each step; warn of signs of
            a mistake, each once, also in the log.
        every, save_every, patience, monitor, mode, keep, minutes
            As the fields of ``LoopSettings``: see ``help(npformer.training.LoopSettings)``.

        Returns
        -------
        History
            A list with the ``StepInfo`` of each step.

        Examples
        --------
        >>> from npformer import Adam, CopyTask, Transformer
        >>> task = CopyTask(vocab=11, max_len=5)
        >>> model = Transformer(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
        >>> trainer = Trainer(model, Adam(lr=0.01))
        >>> batches = (task.batch(i, 32) for i in range(60))
        >>> held_out = [task.held_out(50)]
        >>> history = trainer.fit(batches, validate=held_out, every=20, progress=False)
        >>> [record["step"] for record in trainer.state.validations]
        [20, 40, 60]
        """
        if validate is not None and not callable(validate):
            validate = list(validate)
        of_loop = settings_from(LoopSettings, settings, "fit", ARGUMENTS_OF_FIT)
        evaluate = evaluation_of(self, validate, of_loop.monitor)
        loop = Loop(self, of_loop, save, Actions(save=self.save, validate=evaluate))
        n_batches = operator.length_hint(batches) or None  # 0 if it is not known
        progress = check_flag("progress", progress)
        # What ``diagnose`` returns is a list, which may be empty.
        if isinstance(watch, list) or check_flag("watch", watch):
            from npformer.diagnosis import Findings
            from npformer.diagnosis.watch import Watch

            known = watch if isinstance(watch, Findings) else None
            if isinstance(watch, list) and known is None:
                expected = "True, False or the result of diagnose"
                raise TypeError(f"watch={shown(watch)} is a list, expected {expected}")
            held_out = () if validate is None or callable(validate) else validate
            watcher = Watch(self, loop.write, known, held_out)
            self.watched = watcher.watched
            batches = watcher.of(batches)
            callbacks = [*checked_callbacks(callbacks), watcher]
        return loop.run(
            batches, n_steps, callbacks=callbacks, progress=progress, n_batches=n_batches
        )

    def mean_loss(self, batches: Iterable[tuple], params: dict | None = None) -> float:
        """Return the mean loss per target over all batches, without dropout and label smoothing.

        Each thread of each rank computes some of the batches; the bits do not depend on who
        computes which.

        Parameters
        ----------
        batches : iterable of tuples, such as (src, tgt)
        params : nested dict, optional
            Other parameters than those of the trainer, such as their mean.

        Raises
        ------
        ValueError
            If no batch has a target.
        """
        batches = list(batches)
        check_batches(batches)
        params = self.params if params is None else params
        options: dict[str, Any] = {"dropout_key": None, "backend": self.ops}
        if "with_grad" in self.taken_by_loss.names:
            options["with_grad"] = False  # a model of somebody else may compute it always

        def summed(batch):
            n = count_of(self.model, batch)
            results = self.model.loss_and_grad(params, *batch, n_tokens=max(n, 1), **options)
            loss, _, _ = checked_results(results)
            return [float(loss) * n, n]

        own = self.ranks.my_share(batches)
        sums = self.ranks.gather_lists(self.ops.device.run_shards(summed, own))
        n_targets = sum(n for _, n in sums)
        if n_targets == 0:
            raise UserError("the batches have no target, expected one or more")
        return sum(loss for loss, _ in sums) / n_targets

    def diagnose(self, *batch: Any, **options: Any) -> "Findings":
        """Look for mistakes, with this batch; the options are those of ``npformer.diagnose``."""
        from npformer.diagnosis import diagnose

        return diagnose(self.model, self.params, batch, trainer=self, **options)

    def report(self, path: str | Path | None = None) -> str:
        """Return a table of what ``fit(watch=True)`` saw; draw the curves into a file, if given.

        It has the findings, and a row for each layer and each table of embeddings: the norms of its
        weights and of its gradient in the last look, of which there is one every 50 steps, and the
        norm of the update of one step, divided by that of the weights, in the look with the highest
        rate. This is 0 if the layer is frozen, and usually 0.001 to 0.03.
        """
        if self.watched is None:
            raise UserError("nothing was watched: call fit(…, watch=True) first")
        return self.watched.report(path)

    def explain(self, *batch: Any) -> Calls:
        """List the operations of a ``step`` on this batch, with their times.

        They are those of the fastest of several steps. The parameters and the optimizer state are
        left unchanged. The list of ``Call`` is shown as a table.

        Examples
        --------
        >>> from npformer import Adam, Transformer
        >>> model = Transformer(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
        >>> trainer = Trainer(model, Adam(lr=0.01))
        >>> calls = trainer.explain(np.array([[3, 4, 5]]), np.array([[1, 3, 4, 5, 2]]))
        >>> calls[-1].operation, calls[-1].by
        ('adam_update', 'kernel')
        """
        from npformer.diagnosis.operations import operations_of_step

        return operations_of_step(self, batch)

    @contextmanager
    def undone_step(self, batch):
        """Give a function that makes a step on this batch, to be called in the block.

        At the end of the block the parameters and the moments are as before; ``state.flat_grads``
        keeps the gradient.
        """
        check_batches([batch])
        with self._guard(changing=True), self.state.restored():
            numbers = self._numbers(count_of(self.model, batch))
            yield partial(self._step, [batch], self.state.key, numbers)

    def save(self, path: str | Path, info: dict | None = None, arrays: dict | None = None) -> None:
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
        UserError
            If ``info`` or ``arrays`` has a name that the trainer itself uses.
        """
        with self._guard():  # a file that is written is known to be of this training
            self.ranks.agree(lambda: {"save": {"n_steps": self.n_steps}})
            arrays, info = contents_of(self, info, arrays)
            self.ranks.first(lambda: save_checkpoint(path, arrays, info))
            self.state.files.add(Path(path).resolve())

    def load(self, path: str | Path) -> tuple[dict[str, np.ndarray], dict]:
        """Restore what ``save`` wrote, in a trainer made with the same arguments.

        Returns
        -------
        arrays : dict of arrays
        info : dict
            Everything in the file, including the ``arrays`` and ``info`` given to ``save``.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        CheckpointError
            If it is damaged, or not the checkpoint of this model and of a trainer with these
            settings.
        """
        arrays, info = load_checkpoint(path)
        self.restore(arrays, info, path)
        return arrays, info

    def restore(self, arrays: dict[str, np.ndarray], info: dict, path: str | Path) -> None:
        """Do the same as ``load``, with what ``load_checkpoint`` has returned for this path."""
        describe(self.model)  # raises if the model cannot be saved, which is no fault of the file
        advice = "make the trainer with the file's settings, or try another file"
        with refusing(path, advice, (TypeError, UserError)):  # another ValueError is a bug
            params, moments, facts = checked_contents(arrays, info, self)
        self.ranks.agree(
            lambda: {"checkpoint": {"n_steps": info["n_steps"], "arrays": digest(arrays.values())}}
        )
        with self._guard(changing=True):
            own = {name: self.flat_optimizer.own(x) for name, x in moments.items()}
            self.state.set(params, own, facts)
            self.state.files = {Path(path).resolve()}
            self.last = None

    def __reduce__(self):
        """For ``copy`` and ``pickle``: a trainer with arrays of its own, in the same state."""
        with self._guard():
            settings = {"params": self.params, "backend": picklable(self.ops)}
            settings |= asdict(self.settings)
            moments = {name: on_host(x) for name, x in self.state.moments.items()}
            parts = type(self), self.model, self.optimizer, settings, self.ranks.is_alone
            return _again, (*parts, moments, self.state.facts, self.last)

    def __repr__(self):
        kind = type(self.model).__name__
        article = "an" if kind[0] in "AEIOU" else "a"
        n_params, n_steps = tree.count(self.params), self.n_steps
        return f"<Trainer of {article} {kind}, {n_params:,} parameters, after {n_steps:,} steps>"


def checked_options(model, settings):
    """The ``TakenByLoss`` of a model that has a trainer's methods, and the options that are set."""
    check_no_class("model", model)
    kind = type(model).__name__
    for method in ("init", "loss_and_grad", "count"):
        if not callable(getattr(model, method, None)):
            expected = "expected the methods in help(Trainer)"
            raise TypeError(f"the model {kind} has no {method}(), {expected}")
    options = taken_by_loss(model)
    for name, value in settings.of_loss.items():
        if name not in options.names and not options.takes_others:
            raise UserError(f"{name}={value}, but the loss of {kind} has none: leave it out")
    return options


def parameters_at_start(model, params, seed):
    """New parameters, or ``params`` if they are like those."""
    if params is None:
        return model.init(seed)
    check_trainable(params)
    # To draw a large model takes longer than all else here.
    like = model.shapes() if hasattr(model, "shapes") else model.init(seed)
    tree.check_like(params, like)
    return tree.ordered_like(params, like)


def optimizer_over(ranks, optimizer, ops, pieces, flat_params):
    """What updates the flat parameters; of several ranks, each updates some of them."""
    if ranks.is_alone:
        return FlatOptimizer(optimizer, ops, pieces)
    return DividedOptimizer(optimizer, ops, pieces, flat_params, ranks)


def loss_over(ranks, loss_and_grad, state, sharding, optimizer):
    """What computes a batch of a step: as a whole, over shards, or over ranks.

    Of several ranks, the optimizer says which parts of the gradient each has to receive.
    """
    if not ranks.is_alone:
        return OverRanks(loss_and_grad, state, sharding, optimizer)
    if sharding.n_shards == 1 or sharding.device.asynchronous:  # a GPU computes a batch as one
        return WholeBatch(loss_and_grad, state)
    return OverShards(loss_and_grad, state, sharding)


def _again(kind, model, optimizer, settings, alone, moments, facts, last):
    """The inverse of ``Trainer.__reduce__``; several ranks are those of this process."""
    trainer = kind(model, optimizer, ranks=None if alone else world(), **settings)
    trainer.state.set(dict(tree.leaves(trainer.params)), moments, facts)
    trainer.last = last
    return trainer
