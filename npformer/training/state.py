"""What training steps change: a step takes it, and a checkpoint holds it."""

import numpy as np

from npformer import tree
from npformer.reference import derive_key
from npformer.training.flat_gradients import places_in
from npformer.training.precision import LossScale, Precision


class TrainState:
    """The parameters, the optimizer's moments, the number of steps, and the loss scale."""

    def __init__(self, params, ops, settings):
        self.flat_params = ops.device.asarray(tree.flatten(params)[0])  # (n,), which is updated in place
        self.params = tree.fixed(tree.view_as(self.flat_params, params))  # views into it
        self.flat_grads = np.zeros_like(self.flat_params)  # (n,), the gradient of the last step
        self.grads = tree.view_as(self.flat_grads, params)  # views into it
        self.places = places_in(params)  # of each parameter in the flat arrays
        self.precision = Precision(settings.precision, ops, self.flat_params, self.params)  # with the loss scale
        self.moments: dict = {}  # arrays of the optimizer, or the part of them that this rank has
        self.n_steps, self.seed, self.asarray = 0, settings.seed, ops.device.asarray  # steps that are done
        self.validations: list[dict] = []  # the results of all so far
        self.n_logged = 0  # records in the log
        self.files: set = set()  # checkpoints that hold this training, which it may write over

    @property
    def key(self):
        """The key of the next step's dropout."""
        return derive_key(self.seed, self.n_steps)

    @property
    def arrays(self):
        """Everything that an update changes."""
        return [self.flat_params, *self.moments.values()]

    @property
    def facts(self):
        """What a checkpoint has of it beside the arrays: a dict that JSON can hold."""
        loss_scale = {"loss_scale": list(self.precision.loss_scale)} if self.precision.has_loss_scale else {}
        return {name: getattr(self, name) for name in ("n_steps", "validations", "n_logged")} | loss_scale

    def set(self, params, moments, facts):
        """Take all values from host memory; the moments are those that this rank has."""
        self.flat_params[...] = self.asarray(tree.flatten(tree.ordered_like(params, self.params))[0])
        for name, x in self.moments.items():
            x[...] = self.asarray(moments[name])
        self.n_steps, self.n_logged = facts["n_steps"], facts.get("n_logged", 0)  # older files have no log
        self.validations = list(facts.get("validations", []))
        if self.precision.has_loss_scale:
            self.precision.loss_scale = LossScale(*facts.get("loss_scale", self.precision.loss_scale))
