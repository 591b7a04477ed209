"""The training loop."""

import json
import math
import time
import warnings
from dataclasses import asdict, fields
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.backends import get_backend, is_gpu, placed
from npformer.calls import Calls, explain
from npformer.checks import check_fraction, check_int, check_not_negative, check_positive
from npformer.models import describe
from npformer.reference import derive_key, split_key
from npformer.threads import in_parallel, n_threads
from npformer.training.checkpoint import joined, load_checkpoint, save_checkpoint
from npformer.training.optimizers import Optimizer
from npformer.training.precision import Precision, ScaleState
from npformer.training.progress import progress_bar
from npformer.training.recorded import RecordedStep

ADDED_LATER = {"consistency": 0.0}  # settings that older checkpoints lack
EXPLAINED = 5  # steps of which the fastest is shown
WORTH_A_SHARD = 5 * 10**7  # parameters · target tokens: with less, threads wait for each other longer than they compute


class NonFiniteError(FloatingPointError):
    """The loss or the gradient became NaN or infinite; the parameters are those before the step."""


class StepInfo(NamedTuple):
    """What happened in one step."""

    step: int
    loss: float  # mean per token, as trained on: with dropout and label smoothing
    lr: float
    grad_norm: float  # before clipping
    n_tokens: int  # targets that are not padding
    seconds: float


class Trainer:
    """Parameters, optimizer state and a step counter, and what moves them.

    Parameters
    ----------
    model
        Anything with ``init(seed)``, ``pad_id`` and ``loss_and_grad`` like ``Transformer``; on a GPU with ``max_len``,
        ``src_vocab`` and ``tgt_vocab``, too; a dataclass if it is to be saved.
    optimizer : SGD, Adam or AdamW
    seed : int
        Of the initial parameters and of dropout.
    label_smoothing : float
    consistency : float
        α of R-Drop, see ``paired_cross_entropy``: the model sees each sentence twice, and shall say the same.
    clip_norm : float, optional
        Gradients with a larger global norm are scaled down to it.
    backend : "auto", "reference", "cpu", "gpu" or a module
    params : nested dict, optional
        Where to start from, copied; ``model.init(seed)`` if not given.
    n_shards : int, optional
        In how many parts a batch is computed side by side, each by a thread of its own with a gradient of its own. If
        not given: one for each thread that matrix products may use, or fewer if the step is too small for so many.
        The same number gives the same bits; another number draws other dropout bits and rounds another way.
    precision : "float32", "tf32", "bfloat16" or "float16"
        In which numbers steps are computed, other than float32 on a GPU only; parameters and moments are float32.
        (There batches are filled up with padding to multiples of 8, so that dropout draws other bits than on a CPU.)

    Attributes
    ----------
    params : nested dict
        Views into ``flat_params``, updated in place.
    n_steps : int
        Steps done.
    last : StepInfo
        What happened in the last of them.

    Examples
    --------
    >>> import numpy as np
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
    ):
        check_fraction(label_smoothing=label_smoothing)
        check_not_negative(consistency=consistency)
        check_int("seed", seed, at_least=0)
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"optimizer={optimizer!r}, expected an optimizer such as Adam(lr=0.001)")
        if clip_norm is not None:
            check_positive(clip_norm=clip_norm)
        if n_shards is not None:
            check_int("n_shards", n_shards, at_least=1)
        self.model = model
        self.optimizer = optimizer
        self.seed = seed
        self.label_smoothing = label_smoothing
        self.consistency = consistency
        self.clip_norm = clip_norm
        self.n_shards = n_shards
        self.ops = get_backend(backend, params)
        start = model.init(seed)
        if params is not None:
            tree.check_like(params, start)
            start = params
        self.flat_params = placed(self.ops, tree.flatten(start)[0])
        self.params = tree.view_as(self.flat_params, start)
        self.precision = Precision(precision, self.ops, self.flat_params, self.params)
        self.flat_grads = np.zeros_like(self.flat_params)
        self.grads = tree.view_as(self.flat_grads, self.params)
        self.state = optimizer.init(self.flat_params)
        self.recorded = None
        if is_gpu(self.ops):
            if n_shards not in (None, 1):
                raise ValueError(f"n_shards={n_shards} on a GPU, which computes a batch as one, expected None or 1")
            self.recorded = RecordedStep(self)
        self.n_steps = 0
        self.last: StepInfo | None = None

    def step(self, src, tgt) -> float:
        """One update from one batch.

        (A KeyboardInterrupt on a GPU may come after the update and before it is counted: load a checkpoint then.)

        Parameters
        ----------
        src : (B, S) int
        tgt : (B, T+1) int
            With begin and end tokens: its first T are the decoder's input, its last T what it has to say. Without a
            begin token the first word would be given, never learned, and decoding would have nothing to begin with.

        Returns
        -------
        float
            The mean loss per token.
        """
        return self.step_accumulated([(src, tgt)])

    def step_accumulated(self, batches) -> float:
        """One update from several (src, tgt) batches, the same as from one batch of all their rows.

        Each batch counts by its number of tokens: the mean of the batches' means would weigh a token of a
        short batch more. (Dropout draws other bits than in the one large batch.)
        """
        start = time.perf_counter()
        batches = list(batches)
        if not batches or any(not isinstance(batch, (tuple, list)) or len(batch) != 2 for batch in batches):
            raise ValueError(f"batches holds {len(batches)} items, expected one or more pairs (src, tgt)")
        n_tokens = sum(self._count(tgt) for _, tgt in batches)
        dropout_key = derive_key(self.seed, self.n_steps)
        if n_tokens == 0:
            warnings.warn("no target is counted: the loss is 0, and the step has no gradient", stacklevel=3)
        loss, norm = self._try_step(batches, dropout_key, max(n_tokens, 1))
        scale = self.precision.state
        while not (math.isfinite(loss) and math.isfinite(norm)):
            if not (math.isfinite(loss) and self.precision.after_overflow()):
                self.precision.state = scale
                raise NonFiniteError(self._diagnosis(loss))
            loss, norm = self._try_step(batches, dropout_key, max(n_tokens, 1))
        self.precision.after_step()
        self.n_steps += 1
        lr, seconds = self.optimizer.learning_rate(self.n_steps), time.perf_counter() - start
        self.last = StepInfo(self.n_steps, loss, lr, norm, n_tokens, seconds)
        return loss

    def fit(self, batches, n_steps=None, *, callbacks=(), progress=True) -> list[StepInfo]:
        """One step for each batch.

        Parameters
        ----------
        batches : iterable of (src, tgt)
        n_steps : int, optional
            Stop after so many; needed if ``batches`` never ends.
        callbacks : sequence of callables
            ``callback(trainer, info)`` after each step, ``info`` a ``StepInfo``; a true value stops the training.
        progress : bool
            Show a progress bar with loss, learning rate and tokens per second (needs tqdm).

        Returns
        -------
        list of StepInfo
        """
        if n_steps is not None:
            check_int("n_steps", n_steps, at_least=0)
        history: list = []
        with progress_bar(n_steps, progress) as bar:
            for batch in islice(batches, n_steps):
                self.step_accumulated([batch])
                history.append(self.last)
                bar.advance(self.last)
                wishes = [callback(self, self.last) for callback in callbacks]  # each is called, whatever another says
                if any(wishes):
                    break
        return history

    def explain(self, src, tgt) -> Calls:
        """The operations of a step on this batch, with their times: of several steps those of the fastest.

        Parameters and optimizer stay as they are.

        Parameters
        ----------
        src : (B, S) int
        tgt : (B, T+1) int

        Returns
        -------
        Calls
            A list of ``Call``; ``print`` shows it as a table.

        Examples
        --------
        >>> import numpy as np
        >>> from npformer import Adam, Transformer
        >>> trainer = Trainer(Transformer(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=32), Adam(lr=0.01))
        >>> calls = trainer.explain(np.array([[3, 4, 5]]), np.array([[1, 3, 4, 5, 2]]))
        >>> calls[-1].operation, calls[-1].by
        ('adam_update', 'kernel')
        """
        key, n_tokens = derive_key(self.seed, self.n_steps), max(self._count(tgt), 1)
        runs = []
        for _ in range(1 + EXPLAINED):  # the first one compiles what is missing
            arrays = self.flat_params.copy(), self.flat_grads, {name: x.copy() for name, x in self.state.items()}
            with explain() as calls:
                self.compute_gradient(src, tgt, key, n_tokens)
                self.ops.global_norm(self.flat_grads)
                self.optimizer.update(self.ops, *arrays, self.n_steps + 1, 1.0, None)
            runs.append(calls)
        return min(runs[1:], key=lambda calls: sum(call.seconds for call in calls))

    def save(self, path, info=None, arrays=None):
        """Write everything that is needed to go on from here, bit for bit, to one file.

        Parameters
        ----------
        path : str or Path
            Replaced at once when all is written, so that there is always a whole file.
        info : dict, optional
            What else to keep, as the place in the data: anything that JSON can hold.
        arrays : dict of arrays, optional
            The same for arrays.

        Raises
        ------
        ValueError
            If ``info`` or ``arrays`` has a name under which the trainer itself saves something.
        """
        own = tree.to_arrays(self.params, "params") | tree.to_arrays(self.state, "optimizer")
        facts = {"model": describe(self.model), "trainer": self._settings(), "n_steps": self.n_steps}
        if self.precision.name == "float16":
            facts["loss_scale"] = list(self.precision.state)
        save_checkpoint(path, joined("arrays", own, arrays), joined("info", facts, info))

    def load(self, path):
        """Go on from where ``save`` was called, in a trainer made with the same arguments.

        Returns
        -------
        info : dict
        arrays : dict of arrays
            All that the file holds, what was given to ``save`` included.
        """
        arrays, info = load_checkpoint(path)
        self.restore(arrays, info, path)
        return info, arrays

    def restore(self, arrays, info, path):
        """``load`` from what ``load_checkpoint`` has read; the path is for errors."""
        ours = {"model": describe(self.model), "trainer": self._settings()}
        defaults = {field.name: field.default for field in fields(self.model)}  # an older file lacks newer settings
        theirs = {"model": defaults | info.get("model", {}), "trainer": ADDED_LATER | info.get("trainer", {})}
        for part, expected in ours.items():
            for name in expected:
                given = theirs[part].get(name)
                if given != expected[name]:
                    raise ValueError(f"{path}: {name}={given!r}, expected {expected[name]!r}, the {part}'s")
        params = tree.from_arrays(arrays, "params")
        tree.check_like(params, self.params)
        self.flat_params[...] = placed(self.ops, tree.flatten(params)[0])
        for name, x in self.state.items():
            x[...] = placed(self.ops, arrays[f"optimizer.{name}"])
        self.n_steps = info["n_steps"]
        if self.precision.name == "float16" and "loss_scale" in info:
            self.precision.state = ScaleState(*info["loss_scale"])

    def _settings(self):
        optimizer = {k: v for k, v in asdict(self.optimizer).items() if k != "lr"}  # a schedule is a function
        return {
            "seed": self.seed,
            "label_smoothing": self.label_smoothing,
            "consistency": self.consistency,
            "clip_norm": self.clip_norm,
            "optimizer": {"name": type(self.optimizer).__name__} | json.loads(json.dumps(optimizer)),
        }

    def _count(self, tgt):
        if getattr(tgt, "ndim", None) != 2 or tgt.shape[1] < 2:
            given = getattr(tgt, "shape", type(tgt).__name__)
            raise ValueError(f"tgt is {given}, expected an array of ids (B, T+1): a begin token, then one or more")
        if (tgt[:, 0] != tgt[:1, 0]).any():
            warnings.warn("tgt begins with different tokens: is the begin token missing?", stacklevel=4)
        return int((tgt[:, 1:] != self.model.pad_id).sum())

    def _shards(self, src, tgt, key):
        """The batch in parts, (src, tgt, dropout key) each, for as many threads."""
        n = self._n_shards(tgt)
        if n == 1 or self.recorded or len(src) != len(tgt):  # the model says what is wrong
            return [(src, tgt, key)]
        rows = [slice(part[0], part[-1] + 1) for part in np.array_split(range(len(tgt)), n)]
        return [(src[part], tgt[part], shard_key) for part, shard_key in zip(rows, split_key(key, n), strict=True)]

    def _n_shards(self, tgt):
        wanted = self.n_shards
        if wanted is None:
            wanted = min(n_threads(), self.flat_params.size * tgt.size // WORTH_A_SHARD)
        return max(1, min(wanted, len(tgt)))

    def _try_step(self, batches, dropout_key, n_tokens):
        """Loss and norm of the gradient; and the step, if both are finite."""
        keys = [derive_key(dropout_key, i) for i in range(len(batches))]
        if self.recorded and len(batches) == 1:
            return self.recorded(*batches[0], keys[0], n_tokens)
        loss, scale = 0.0, self.precision.state.scale
        divisor = n_tokens if scale == 1 else placed(self.ops, np.float64(n_tokens / scale))
        for i, (src, tgt) in enumerate(batches):
            loss += float(self.compute_gradient(src, tgt, keys[i], divisor, add=i > 0))
        loss, norm = loss / scale, self.ops.global_norm(self.flat_grads) / scale
        if math.isfinite(loss) and math.isfinite(norm):
            self.update(self.n_steps + 1, self._clip(norm) / scale)
        return loss, norm

    def compute_gradient(self, src, tgt, key, n_tokens, add=False):
        """The loss of a batch, whose gradient becomes or is added to the flat one."""
        with self.precision.computing():
            results = in_parallel(partial(self._loss_and_grad, n_tokens=n_tokens), self._shards(src, tgt, key))
        self._gather([grads for _, grads in results], add)
        losses = [loss for loss, _ in results]  # one stays where it is: to make it a float would wait for a GPU
        return losses[0] if len(losses) == 1 else sum(map(float, losses))

    def update(self, step, grad_scale, lr=None):
        """What the optimizer makes of the flat gradient; on a GPU the numbers may be there."""
        arrays = self.flat_params, self.flat_grads, self.state
        self.optimizer.update(self.ops, *arrays, step, grad_scale, lr)

    def _loss_and_grad(self, shard, n_tokens):
        src, tgt, key = shard
        loss, grads, _ = self.model.loss_and_grad(
            self.precision.params,
            src,
            tgt[:, :-1],
            tgt[:, 1:],
            key=key,
            label_smoothing=self.label_smoothing,
            consistency=self.consistency,
            n_tokens=n_tokens,
            backend=self.ops,
        )
        return loss, grads

    def _gather(self, shards, add):
        """The sum of the gradients of shards, into the flat gradient."""

        def gather(total, first, *others):
            if add:
                total += first
            elif others:
                np.add(first, others[0], out=total)
                others = others[1:]
            else:
                total[...] = first
            for grad in others:
                total += grad

        tree.map_leaves(gather, self.grads, *shards)

    def _clip(self, norm):
        return 1.0 if self.clip_norm is None or norm <= self.clip_norm else self.clip_norm / norm

    def _diagnosis(self, loss):
        bad_params = [path for path, x in tree.leaves(self.params) if not np.isfinite(x).all()]
        bad_grads = [path for path, x in tree.leaves(self.grads) if not np.isfinite(x).all()]
        lr = self.optimizer.learning_rate(self.n_steps + 1)
        where = "no parameter or gradient is NaN or inf, but the gradient's norm is too large for its dtype"
        if bad_params:
            where = f"parameter {bad_params[0]} holds NaN or inf (one of {len(bad_params)})"
        elif bad_grads:
            where = f"the gradient of {bad_grads[0]} holds NaN or inf (one of {len(bad_grads)})"
        return (
            f"step {self.n_steps + 1}: the loss is {loss:g}; {where}. The step was not taken: parameters are those "
            f"of step {self.n_steps}. Try a lower learning rate (now {lr:g}), "
            f"clip_norm=1.0 (now {self.clip_norm}), or a longer warm-up."
        )
