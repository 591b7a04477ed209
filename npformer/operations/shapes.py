"""Check the shapes of arrays against a contract, and learn the sizes of its letters from them."""

from collections.abc import Mapping
from typing import Any

from npformer.checks import advice_on_ids, check_choice, shown, swapped
from npformer.operations.contract import Contract, factors_of, in_order, letters_of


class Sizes(dict):
    """The known sizes of letters and of ``...``, and the argument that each size comes from."""

    def __init__(self):
        super().__init__()
        self.source = {}

    def copy(self):
        """The same sizes, which do not learn what these learn from now on."""
        sizes = Sizes()
        sizes.update(self)
        sizes.source.update(self.source)
        return sizes

    def learn(self, letter, size, source):
        """Store a size, and the argument that it comes from."""
        self[letter], self.source[letter] = size, source

    def told(self, letters):
        """Where the known ones of these letters come from: ``["H = 8 from n_heads", …]``."""
        return [f"{x} = {shown(self[x])} from {self.source[x]}" for x in dict.fromkeys(letters) if x in self]


def size_of(axis: str, sizes: Mapping[str, Any]) -> tuple[int, list[str]]:
    """(product of the known factors of an axis, factors whose size is not known).

    >>> size_of("(H+2*G)*K", {"H": 4, "G": 2})
    (8, ['K'])
    """
    known, unknown = 1, []
    for factor in factors_of(axis):
        if factor.isdecimal() or factor in sizes:
            known *= int(factor) if factor.isdecimal() else sizes[factor]
        elif factor.startswith("("):
            terms = [size_of(term, sizes) for term in factor[1:-1].split("+")]
            known *= sum(size for size, _ in terms)
            unknown += [factor] * any(missing for _, missing in terms)
        else:
            unknown.append(factor)
    return known, unknown


def shape_of(axes, sizes):
    """The shape of an array with these axes, or None if a size is not known."""
    shape = []
    for axis in axes:
        size, unknown = (sizes.get("...", ()), []) if axis == "..." else size_of(axis, sizes)
        if unknown:
            return None
        shape.extend(size if axis == "..." else [size])
    return tuple(shape)


def match(contract: Contract, given: Mapping[str, Any]) -> Sizes:
    """The sizes of all letters, from the shapes of the arrays and from the arguments that are sizes.

    The error for a shape that does not match names the argument, its shape, the expected shape, and the arguments that
    the sizes come from.
    """
    sizes = Sizes()
    for name, size in contract.sizes.items():
        value = given[size.argument]
        _learn_argument(size, name, getattr(value, size.field) if size.field else value, sizes)
    _check_conditions(contract, given, sizes)
    of_options = sizes.copy()
    shapes = {x.name: given[x.name].shape for x in in_order(contract) if given[x.name] is not None}
    for name, shape in shapes.items():
        argument = contract.arrays[name]
        problem = _problem(argument, shape, sizes, contract.not_empty)
        if problem:
            raise ValueError(problem + _advice(contract, argument, shapes, sizes, of_options))
    _check_conditions(contract, given, sizes)
    return sizes


def _advice(contract, argument, shapes, sizes, of_options):
    """What to try, at the end of an error, for an array that does not fit: another index, or axes in another order.

    ``shapes`` are those of all arrays, ``sizes`` what was learned up to this one, ``of_options`` before the first.
    """

    def all_fit(changed):
        """Whether all arrays fit, if some of them have other shapes."""
        learned, new = of_options.copy(), {**shapes, **changed}
        return not any(_problem(contract.arrays[x], new[x], learned, contract.not_empty) for x in new)

    name = argument.name
    shape = shapes[name]
    expected = shape_of(argument.axes, sizes)
    if argument.broadcasts:
        index = index_that_fits(shape, expected)
        if index:
            return f": try {name}[{index}]"
    if argument.kind == "ids" and expected is not None:
        advice = advice_on_ids(name, shape, expected)
        if advice:
            return advice
    if shape[:1] == (1,) and all_fit({name: shape[1:]}):
        return f": try {name}[0]"

    candidates = [name]
    if argument.kind == "ids":  # the logits may have their classes on another axis
        candidates += [x for x in shapes if contract.arrays[x].kind == "float"]
    for candidate in candidates:
        advice = swapped(candidate, shapes[candidate], lambda new, candidate=candidate: all_fit({candidate: new}))
        if advice:
            return advice
    heads_last = {x: s for x, s in shapes.items() if contract.arrays[x].kind == "float" and len(s) == 4}
    if len(heads_last) > 1 and all_fit({x: (B, H, T, K) for x, (B, T, H, K) in heads_last.items()}):
        return f": try {', '.join(f'{x}.swapaxes(1, 2)' for x in heads_last)}, as heads come before positions"
    return ""


def _learn_argument(size, name, value, sizes):
    if value is None and size.default:
        sizes.learn(size.letters[0], sizes[size.default], sizes.source[size.default])
        return
    if size.table is not None:
        value = size.table[check_choice(name, value, size.table)]
    for letter, n in zip(size.letters, value if isinstance(value, tuple) else (value,), strict=True):
        if not isinstance(n, int) or isinstance(n, bool):
            raise TypeError(f"{name}={value!r} is a {type(value).__name__}, expected an int")
        sizes.learn(letter, n, name)


def _check_conditions(contract, given, sizes):
    """Check the conditions on sizes that are known."""
    for divisor, dividend, array in contract.conditions:
        (size, unknown), absent = size_of(divisor, sizes), array and given[array] is None
        if unknown or dividend not in sizes or absent or sizes[dividend] == 0 or (size and sizes[dividend] % size == 0):
            continue
        because = f", as {array} is given" if array else ""
        told = ", ".join(sizes.told([dividend, divisor]))
        raise ValueError(f"{told}: expected {dividend} divisible by {divisor}{because}")


def _problem(argument, shape, sizes, not_empty):
    """What is wrong with the shape of an array, or None; stores the sizes of the letters that are learned from it."""
    before = set(sizes)
    letters = [x for axis in argument.axes for x in ([axis] if axis == "..." else letters_of(axis))]
    if argument.broadcasts:
        fits = broadcasts_to(shape, shape_of(argument.axes, sizes))
    else:
        axes = _without_dots(argument, shape, sizes)
        fits = axes is not None and all(
            _learn(axis, size, sizes, f"{argument.name} {shape}") for axis, size in zip(*axes, strict=True)
        )
    if fits and not any(sizes[x] == 0 for x in not_empty if x in sizes and x not in before):
        return None
    told = sizes.told(x for x in letters if x in before)
    products = [x for x in argument.axes if "*" in x and size_of(x, sizes)[1]]
    told += [f"{x} divisible by {shown(size_of(x, sizes)[0])}" for x in products]
    told += [f"{x} at least 1" for x in letters if x in not_empty and x not in before]
    expected = f"one that broadcasts to {argument}" if argument.broadcasts else argument
    reasons = f" with {', '.join(told)}" if told else ""
    return f"{argument.name} has shape {shape}, expected {expected}{reasons}"


def _without_dots(argument, shape, sizes):
    """(axes, their sizes) without ``...``, whose sizes are stored or compared here; None if they do not match."""
    axes = argument.axes
    if "..." not in axes:
        return (axes, shape) if len(axes) == len(shape) else None
    place, n_leading = axes.index("..."), len(shape) - len(axes) + 1
    leading = shape[place : place + n_leading]
    if n_leading < 0 or sizes.get("...", leading) != leading:
        return None
    if "..." not in sizes:
        sizes.learn("...", leading, f"{argument.name} {shape}")
    return axes[:place] + axes[place + 1 :], shape[:place] + shape[place + n_leading :]


def _learn(axis, size, sizes, source):
    """Whether an axis may have this size; stores the size of a letter that was not known."""
    known, unknown = size_of(axis, sizes)
    if not unknown:
        return size == known
    if known == 0 or size % known:
        return False
    sizes.learn(unknown[0], size // known, source)
    return True


def broadcasts_to(shape: tuple, target: tuple) -> bool:
    """Whether an array of ``shape`` broadcasts to exactly ``target``.

    >>> broadcasts_to((1, 7), (5, 7)), broadcasts_to((5, 7), (1, 7))
    (True, False)
    """
    axes = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(size in (1, wanted) for size, wanted in axes)


def index_that_fits(shape: tuple, target: tuple) -> str | None:
    """The index after which an array of ``shape`` broadcasts to ``target``, by axes more or by an axis of size 1 less.

    If several do, that which leaves the first axis the first one: it is the batch, also where B = H.

    >>> index_that_fits((2, 5), (2, 8, 3, 5)), index_that_fits((2, 5), (2, 5, 3))
    (':, None, None', ':, :, None')
    >>> index_that_fits((2, 1, 1, 5), (2, 3, 5))
    ':, 0'
    """
    for n in range(len(target) - len(shape), 0, -1):
        for i in range(1, len(shape) + 1):
            if broadcasts_to(shape[:i] + (1,) * n + shape[i:], target):
                return ", ".join([":"] * i + ["None"] * n)
    for i, size in enumerate(shape):
        if size == 1 and broadcasts_to(shape[:i] + shape[i + 1 :], target):
            return ", ".join([":"] * i + ["0"])
    return None
