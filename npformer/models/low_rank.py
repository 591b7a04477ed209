"""Low-rank adapters, to fine-tune a model whose own parameters stay (Hu et al. 2021, LoRA)."""

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any

from npformer import tree
from npformer.arrays import Array, beside, digest, on_host
from npformer.backends import AnyBackend, get_backend
from npformer.checks import check_paths
from npformer.errors import UserError
from npformer.models.gradients import Gradients, MaybeGrads
from npformer.models.initialization import Initializer, ShapesOnly
from npformer.models.model import Model
from npformer.operations.options import check_fields, check_option, names_checked
from npformer.quantized import check_trainable


@names_checked
@dataclass(frozen=True, repr=False)
class LowRank:
    """A model of which, beside each weight W, two small matrices A and B are trained, and W is not.

    A is (D_in, r), B (r, D_out). It computes with W' = W + (alpha / r) A B, so dA = (alpha / r) dW'
    Bᵀ and dB = (alpha / r) Aᵀ dW'. B begins with zeros, and so the training with the given model.
    Projections in one matrix, such as those to queries, keys and values, share their A; each has
    its columns of B. Parameters, and what ``Trainer`` saves, are the adapters alone.

    The given parameters are copied, so that nothing that happens to them later changes the adapted
    model; who needs the memory, and no longer the parameters, deletes them.

    Parameters
    ----------
    model
        Any model of npformer.
    params : nested dict
        Its parameters.
    rank, alpha : int, float
        A larger alpha is like a larger learning rate.
    targets : tuple of str, optional
        Parts of the paths of the weights with adapters, such as "qkv" or "layers.11"; those of all
        layers if not given.
    whole : tuple of str
        Parts of the paths of parameters that are trained themselves, such as "output".

    Examples
    --------
    >>> from npformer import Adam, Encoder, Trainer
    >>> sizes = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32}
    >>> model = Encoder(vocab=11, **sizes, task="classes", n_outputs=3)
    >>> params = model.init(seed=0)  # or those of a trained model
    >>> adapted = LowRank(model, params, rank=2, targets=("qkv",), whole=("output",))
    >>> trainer = Trainer(adapted, Adam(lr=0.01))
    >>> loss = trainer.step(np.array([[3, 4, 5], [6, 7, 0]]), np.array([2, 0]))
    >>> qkv = trainer.params["layers"]["0"]["attention"]["qkv"]
    >>> {name: x.shape for name, x in qkv["weight"].items()}
    {'A': (16, 2), 'B': (2, 48)}
    >>> model.outputs(adapted.merged(trainer.params), np.array([[3, 4]])).shape
    (1, 3)
    """

    model: Any
    params: InitVar[dict]
    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] | None = None
    whole: tuple[str, ...] = ()
    # The digest of the model's parameters, so that a file is not loaded beside others.
    base: int = field(init=False)

    def __post_init__(self, params: dict) -> None:
        check_fields(self)
        for method in ("shapes", "loss_and_grad", "count"):
            if not callable(getattr(self.model, method, None)):
                kind = f"a {type(self.model).__name__} without {method}()"
                raise TypeError(f"model is {kind}, expected one of npformer's")
        tree.check_like(params, self.model.shapes(), dtypes=False)
        check_trainable(params)
        arrays = {path: x.copy() for path, x in tree.leaves(params)}
        # The numbers of the layers are parts of the paths of all layers.
        layers = {name for path in arrays for name in path.split(".") if name.isdecimal()}
        targets = layers if self.targets is None else self.targets
        whole = chosen("whole", self.whole, list(arrays))
        matrices = [path for path, x in arrays.items() if x.ndim == 2 and path not in whole]
        adapted = chosen("targets", targets, matrices)
        if not (whole or adapted):
            expected = "targets or whole to be parts of paths"
            raise UserError(f"there is nothing to train, expected {expected}")
        # Declared here, as among the settings above they would be settings, too.
        self._arrays: dict  # the model's parameters by path
        self._copies: dict  # the same in other libraries and dtypes
        self._whole: list  # the paths of what is trained itself
        self._adapted: list  # the paths of the weights with adapters
        own = vars(self)  # the dataclass is frozen
        own["base"] = digest(map(on_host, arrays.values()))
        own["_arrays"] = arrays
        own["_copies"] = {}
        own["_whole"] = whole
        own["_adapted"] = adapted

    def init(self, seed: int = 0) -> dict:
        """Return new adapters, and a copy of what is trained whole."""
        return self._new_params(Initializer(check_option("seed", seed), self.model.dtype))

    def shapes(self) -> dict:
        """Return arrays like the adapters that take no memory."""
        return self._new_params(ShapesOnly(self.model.dtype))

    @property
    def base_params(self):
        """The parameters of the model without adapters, which are not to be changed."""
        return tree.from_leaves(self._arrays.items())

    def _new_params(self, new):
        params = {
            path: on_host(self._arrays[path]).astype(self.model.dtype) for path in self._whole
        }
        for path in self._adapted:
            D_in, D_out = self._arrays[path].shape
            params[f"{path}.A"] = new.linear(D_in, self.rank, bias=False)["weight"]
            params[f"{path}.B"] = new.full(self.rank * D_out, 0).reshape(self.rank, D_out)
        return tree.from_leaves(params.items())

    def merged(self, params: dict, *, backend: AnyBackend = "auto") -> dict:
        """Return the parameters of the model itself, with W' in place of W, in new arrays."""
        arrays = self._merged(get_backend(backend, params), dict(tree.leaves(params)))
        for path in arrays.keys() - set(self._adapted):
            arrays[path] = arrays[path].copy()
        return tree.from_leaves(arrays.items())

    def _merged(self, ops, adapters):
        """The arrays of ``merged`` by path, from adapters by path; other arrays are not copied."""
        arrays = self._beside(next(iter(adapters.values())))
        arrays |= {path: adapters[path] for path in self._whole}
        for path in self._adapted:
            A, B = adapters[f"{path}.A"], adapters[f"{path}.B"]
            arrays[path] = arrays[path] + ops.linear(self._scaled(A), B)
        return arrays

    def _beside(self, neighbour):
        """The model's parameters by path, in the library and the dtype of an array: a new dict."""
        kind = type(neighbour), neighbour.dtype  # on a GPU, in the precision of a step
        if kind not in self._copies:
            self._copies[kind] = {
                path: beside(x, neighbour).astype(neighbour.dtype, copy=False)
                for path, x in self._arrays.items()
            }
        return dict(self._copies[kind])

    def loss_and_grad(
        self,
        params: dict,
        *batch: Array,
        backend: AnyBackend = "auto",
        with_grad: bool = True,
        ready: Callable[[str, dict], object] | None = None,
        **options: Any,
    ) -> tuple[Any, MaybeGrads, Any]:
        """Return the loss, the gradient of the adapters, and the number of targets.

        The options are the model's.
        """
        ops = get_backend(backend, params)
        adapters = dict(tree.leaves(params))
        gradients = Gradients(params, ready)

        # The model gives its gradients as it computes them, so no dW of it is kept.
        def give(place, of_model):
            for path, dW in tree.leaves(of_model, place):
                if path in self._whole:
                    gradients.give(path, dW)
                elif path in self._adapted:
                    A, B = adapters[f"{path}.A"], adapters[f"{path}.B"]
                    dA, dB, _ = ops.linear_backward(dW, self._scaled(A), B)
                    gradients.give(path, {"A": self._scaled(dA), "B": dB})

        merged = tree.from_leaves(self._merged(ops, adapters).items())
        loss, _, n_targets = self.model.loss_and_grad(
            merged, *batch, backend=ops, with_grad=with_grad, ready=give, **options
        )
        return loss, gradients.all() if with_grad else None, n_targets

    loss = Model.loss
    __repr__ = Model.__repr__

    def count(self, *batch: Array) -> int:
        """Return the number of targets of a batch."""
        return self.model.count(*batch)

    def fill_up(self, batch: tuple, rounded_up: Callable[[int], int]) -> tuple:
        """Return the batch with the padding of the model."""
        return getattr(self.model, "fill_up", lambda batch, _: batch)(batch, rounded_up)

    def _scaled(self, x):
        return (self.alpha / self.rank) * x


def chosen(name, parts, paths):
    """The paths in which one of the parts is, each of which has to be in some.

    >>> chosen("targets", ["attention.qkv"], ["0.attention.qkv.weight", "0.attention.out.weight"])
    ['0.attention.qkv.weight']
    """
    parts = check_paths(name, parts)
    for part in parts:
        if not any(_has_part(path, part) for path in paths):
            examples = ", ".join(paths[-2:])
            raise UserError(f"{name} has {part!r}, expected parts of paths such as {examples}")
    return [path for path in paths if any(_has_part(path, part) for part in parts)]


def _has_part(path, part):
    return f".{part}." in f".{path}."
