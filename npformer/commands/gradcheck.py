"""Check every backward pass against the complex step and central differences, and print a table.

npformer gradcheck                # every operation: a minute
npformer gradcheck attention
"""

from npformer.commands import nearest
from npformer.commands.arguments import add_seed, new_parser
from npformer.commands.command import command

from npformer.gradients import GradientError, gradcheck
from npformer.gradients.cases import CASES

HEAD = "Largest error relative to the largest entry of the gradient, at every entry, in float64:"
WIDTH = 60  # of the column with the operations


@command
def main(argv=None):
    """Run the checks that the command line asks for. Returns the exit status, which is 1 if a check
    fails.
    """
    parser = new_parser(__doc__)
    parser.add("operation", "only these operations, e.g. attention (default: all)", nargs="*")
    add_seed(parser, "of the random inputs")
    parser.add_flag("--stop", "stop at the first check that fails")
    options = parser.parse_args(argv)
    cases = [case for case in CASES if case.is_differentiable]
    names = sorted({case.operation for case in cases})
    for name in options.operation:
        if name not in names:
            others = nearest(name, names) or f"; there are: {', '.join(names)}"
            parser.error(f"no operation {name!r:.40}{others}")

    print(f"{HEAD}\n\n{'operation':<{WIDTH}} argument   complex step  central differences")
    n_wrong = 0
    for case in cases:
        if case.operation in (options.operation or names):
            n_wrong += not is_right(case, options.seed)
            if n_wrong and options.stop:
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
