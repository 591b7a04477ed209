"""The operations of a training step, with their times: ``Trainer.explain``."""

from npformer.operations.explain import explain

N_TIMED = 5  # steps; the fastest is reported


def operations_of_step(trainer, batch):
    """The ``Calls`` of the fastest of several steps on a batch, each of which is undone."""

    def calls_of_step():
        with trainer.undone_step(batch) as step, explain() as calls:
            step()
        return calls

    calls_of_step()  # may compile kernels
    runs = [calls_of_step() for _ in range(N_TIMED)]
    return min(runs, key=lambda calls: sum(call.seconds for call in calls))
