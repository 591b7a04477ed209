"""What the trainings of the models that persons have written share."""

import numpy as np

from npformer.exercises.exercise import Complaint


def check_loss(loss, step):
    """Raise Complaint if a loss is no finite number."""
    if not np.isfinite(loss):
        question = "which of your functions has changed since its check?"
        raise Complaint(f"the loss is {loss} in step {step}: {question}")
