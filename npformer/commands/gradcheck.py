"""Check every backward pass against the complex step and central differences, and print a table.

npformer gradcheck                # every operation: a minute
npformer gradcheck attention
"""

from collections.abc import Sequence

from npformer.commands import nearest
from npformer.commands.shared import UsageError, command_line

from npformer.gradients import GradientError, gradcheck
from npformer.gradients.cases import CASES

HEAD = "Largest error relative to the largest entry of the gradient, at every entry, in float64:"
WIDTH = 60  # of the column with the operations


@command_line
def main(operation: Sequence[str] = (), *, seed: int = 0, stop: bool = False):
    """Check gradients. Returns the exit code, which is 1 if a check fails.

    Parameters
    ----------
    operation : OPERATION
        only these operations, e.g. attention (default: all)
    seed
        of the random inputs
    stop
        stop at the first check that fails
    """
    cases = [case for case in CASES if case.is_differentiable]
    names = sorted({case.operation for case in cases})
    for name in operation:
        if name not in names:
            others = nearest(name, names) or f"; there are: {', '.join(names)}"
            raise UsageError(f"no operation {name!r:.40}{others}")

    print(f"{HEAD}\n\n{'operation':<{WIDTH}} argument   complex step  central differences")
    n_wrong = 0
    for case in cases:
        if case.operation in (operation or names):
            n_wrong += not is_right(case, seed)
            if n_wrong and stop:
                break
    if n_wrong:
        print(f"\n{n_wrong} checks failed")
        return 1
    print("\nevery backward is the derivative of its forward")
    return 0


def is_right(case, seed):
    """Whether the backward of a case is right; prints a line for each of its arguments."""
    label = str(case)
    if len(label) > WIDTH:  # a line of its own
        print(label)
        label = ""
    f, f_backward, args = case.derivative(seed)
    try:
        errors = gradcheck(f, f_backward, args.values(), names=args, seed=seed)
    except GradientError as error:
        print(f"{label:<{WIDTH}} WRONG: {error}")
        return False
    for argument, by_method in errors.items():
        complex_step = by_method["complex step"]
        central = by_method["central differences"]
        print(f"{label:<{WIDTH}} {argument:<9} {complex_step:>13.1e} {central:>20.1e}")
        label = ""
    return True
