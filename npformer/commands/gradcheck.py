"""Check every backward pass against the complex step and central differences, and print a table.

npformer gradcheck                # every operation: a minute
npformer gradcheck attention
"""

from npformer.commands import nearest
from npformer.commands.arguments import natural, new_parser
from npformer.commands.command import command

from npformer.gradients import GradientError, gradcheck
from npformer.gradients.cases import CASES


@command
def main(argv=None):
    """Run the checks that the command line asks for. Returns the exit status, which is 1 if a check fails."""
    parser = new_parser(__doc__)
    parser.add_argument("operation", nargs="*", help="only these operations, e.g. attention (default: all)")
    parser.add_argument("--seed", type=natural, default=0, help="of the random inputs (default: %(default)s)")
    parser.add_argument("--stop", action="store_true", help="stop at the first check that fails")
    options = parser.parse_args(argv)
    cases = [case for case in CASES if case.is_differentiable]
    known = sorted({case.operation for case in cases})
    for name in options.operation:
        if name not in known:
            others = nearest(name, known) or f"; there are: {', '.join(known)}"
            parser.error(f"no operation {name!r:.40}{others}")

    print("Largest error relative to the largest entry of the gradient, at every entry, in float64:\n")
    print(f"{'operation':<60} {'argument':<9} {'complex step':>13} {'central differences':>20}")
    wrong = 0
    for case in cases:
        if options.operation and case.operation not in options.operation:
            continue
        label = str(case)
        if len(label) > 60:  # a line of its own
            print(label)
            label = ""
        f, f_backward, args = case.derivative(options.seed)
        try:
            errors = gradcheck(f, f_backward, args.values(), names=args, seed=options.seed)
        except GradientError as error:
            wrong += 1
            print(f"{label:<60} WRONG: {error}")
            if options.stop:
                break
            continue
        for argument, by_method in errors.items():
            complex_step, central = by_method["complex step"], by_method["central differences"]
            print(f"{label:<60} {argument:<9} {complex_step:>13.1e} {central:>20.1e}")
            label = ""
    print("\nevery backward is the derivative of its forward" if not wrong else f"\n{wrong} checks failed")
    return 1 if wrong else 0
