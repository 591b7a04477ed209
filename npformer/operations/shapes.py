"""Check arrays against a contract: their kinds, and their shapes, which tell the sizes of its
letters.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from npformer.checks import advice_on_ids, check_array, check_choice, shown, swapped
from npformer.errors import UserError
from npformer.operations.contract import Contract, factors_of, in_order, letters_of, may_be_none


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
        self[letter] = size
        self.source[letter] = source

    def sources(self, letters):
        """Where the known ones of these letters come from: ``["H = 8 from n_heads", …]``."""
        learned = [letter for letter in dict.fromkeys(letters) if letter in self]
        return [f"{x} = {shown(self[x])} from {self.source[x]}" for x in learned]


def size_of(axis: str, sizes: Mapping[str, Any]) -> tuple[int, list[str]]:
    """(product of the known factors of an axis, factors whose size is not known).

    >>> size_of("(H+2*G)*K", {"H": 4, "G": 2})
    (8, ['K'])
    """
    product = 1
    missing = []
    for factor in factors_of(axis):
        if factor.isdecimal():
            product *= int(factor)
        elif factor in sizes:
            product *= sizes[factor]
        elif factor.startswith("("):
            terms = [size_of(term, sizes) for term in factor[1:-1].split("+")]
            product *= sum(size for size, _ in terms)
            if any(of_term for _, of_term in terms):
                missing.append(factor)
        else:
            missing.append(factor)
    return product, missing


def shape_of(axes, sizes):
    """The shape of an array with these axes, or None if a size is not known."""
    shape = []
    for axis in axes:
        if axis == "...":
            shape.extend(sizes.get("...", ()))
            continue
        size, missing = size_of(axis, sizes)
        if missing:
            return None
        shape.append(size)
    return tuple(shape)


def check_arrays(contract, arguments, parameters):
    """Check that arrays have the kind that the contract states, and that all are of one library."""
    libraries = {}
    _check_order(contract, arguments)
    for name, argument in contract.arrays.items():
        x = arguments.get(name)
        if x is None and may_be_none(parameters[name]):
            continue
        libraries[name] = check_array(x, name, argument.kind)
    if len(set(libraries.values())) > 1:
        named = ", ".join(f"{name} {library.__name__}" for name, library in libraries.items())
        raise TypeError(f"arrays of different libraries: {named}; move them to one first")


def _check_order(contract, arguments):
    """Check that no integers are given in the place of floats, and floats in that of ids."""
    integers = floats = ""  # the first in the wrong place
    for name, argument in contract.arrays.items():
        dtype = getattr(arguments.get(name), "dtype", None)
        kind = getattr(dtype, "kind", "")
        if argument.kind == "float" and kind in ("i", "u"):
            integers = integers or f"{name} has dtype {dtype}"
        elif argument.kind == "ids" and kind == "f":
            floats = floats or f"{name} {dtype}"
    if integers and floats:
        problem = f"{integers} and {floats}, expected floats and integers"
        raise TypeError(f"{problem}: are they in the wrong order?")


def match(contract: Contract, values: Mapping[str, Any]) -> Sizes:
    """The sizes of all letters, from the shapes of the arrays and from the arguments that are
    sizes.

    The error for a shape that does not match names the argument, its shape, the expected shape, and
    the arguments that the sizes come from.
    """
    sizes = Sizes()
    for name, size in contract.sizes.items():
        value = values[size.argument]
        _learn_argument(size, name, getattr(value, size.field) if size.field else value, sizes)
    _check_conditions(contract, values, sizes)
    of_options = sizes
    shapes = {}
    for argument in in_order(contract):
        if values[argument.name] is not None:
            shapes[argument.name] = values[argument.name].shape
    for name, shape in shapes.items():
        learned = _fitted(contract, name, shape, sizes)
        if learned is None:
            misfit = Misfit(contract, name, shapes, sizes, of_options)
            raise UserError(misfit.problem() + misfit.advice())
        sizes = learned
    _check_conditions(contract, values, sizes)
    return sizes


def _learn_argument(size, name, value, sizes):
    """Store the sizes of the letters of an argument that is a size, or a tuple of sizes."""
    if value is None and size.default:
        sizes.learn(size.letters[0], sizes[size.default], sizes.source[size.default])
        return
    if size.table is not None:
        value = size.table[check_choice(name, value, size.table)]
    numbers = value if isinstance(value, tuple) else (value,)
    for letter, n in zip(size.letters, numbers, strict=True):
        if not isinstance(n, int) or isinstance(n, bool):
            raise TypeError(f"{name}={value!r} is a {type(value).__name__}, expected an int")
        sizes.learn(letter, n, name)


def _check_conditions(contract, values, sizes):
    """Check the conditions on sizes that are known."""
    for divisor, dividend, array in contract.conditions:
        n, missing = size_of(divisor, sizes)
        if missing or dividend not in sizes or (array and values[array] is None):
            continue
        is_divisible = sizes[dividend] % n == 0 if n else sizes[dividend] == 0
        if not is_divisible:
            because = f", as {array} is given" if array else ""
            sources = ", ".join(sizes.sources([dividend, divisor]))
            raise UserError(f"{sources}: expected {dividend} divisible by {divisor}{because}")


def _fitted(contract, name, shape, sizes):
    """``_learned``, but None also if an axis is empty that has to have an entry."""
    learned = _learned(contract.arrays[name], shape, sizes)
    if learned is None:
        return None
    is_empty = any(learned.get(letter) == 0 for letter in contract.not_empty - sizes.keys())
    return None if is_empty else learned


def _learned(argument, shape, sizes):
    """The sizes, with those that the shape of an array tells; None if the shape does not fit."""
    axes = argument.axes
    if argument.broadcasts:
        return sizes if broadcasts_to(shape, shape_of(axes, sizes)) else None
    source = f"{argument.name} {shape}"
    learned = sizes.copy()
    if "..." in axes:
        place = axes.index("...")
        n_leading = len(shape) - len(axes) + 1
        leading = shape[place : place + n_leading]
        if n_leading < 0 or sizes.get("...", leading) != leading:
            return None
        if "..." not in sizes:
            learned.learn("...", leading, source)
        axes = axes[:place] + axes[place + 1 :]
        shape = shape[:place] + shape[place + n_leading :]
    if len(axes) != len(shape):
        return None
    for axis, size in zip(axes, shape, strict=True):
        product, missing = size_of(axis, learned)
        if not missing:
            if size != product:
                return None
        elif product == 0 or size % product:
            return None
        else:
            learned.learn(missing[0], size // product, source)
    return learned


class Misfit(NamedTuple):
    """A call of an operation with an array whose shape does not fit, and the error that says so.

    ``match`` learns the sizes of letters from one array after another. This is what it knew when it
    came to the array with this ``name``.
    """

    contract: Contract
    name: str
    shapes: dict[str, tuple]  # of all arrays
    sizes: Sizes  # known from the options and from the arrays that were matched before this one
    of_options: Sizes  # known from the options alone, such as n_heads: no array has been matched

    @property
    def argument(self):
        """The array, as the contract describes it."""
        return self.contract.arrays[self.name]

    @property
    def shape(self):
        """The shape of the array."""
        return self.shapes[self.name]

    def problem(self):
        """What was given, what was expected, and where the expected sizes come from."""
        argument = self.argument
        letters = []
        for axis in argument.axes:
            letters += [axis] if axis == "..." else letters_of(axis)
        reasons = self.sizes.sources(letters)
        lacks_entries = _learned(argument, self.shape, self.sizes) is not None
        for axis in argument.axes:
            divisor, missing = size_of(axis, self.sizes)
            if "*" in axis and missing and not lacks_entries:
                reasons.append(f"{axis} divisible by {shown(divisor)}")
        not_empty = self.contract.not_empty - self.sizes.keys()
        reasons += [f"{letter} at least 1" for letter in letters if letter in not_empty]
        expected = f"one that broadcasts to {argument}" if argument.broadcasts else argument
        because = f" with {', '.join(reasons)}" if reasons else ""
        return f"{self.name} has shape {self.shape}, expected {expected}{because}"

    def advice(self):
        """What to try, at the end of the error: another index, or axes in another order; or ""."""
        return (
            self._index_to_broadcast()
            or self._index_of_ids()
            or self._without_first_axis()
            or self._swapped_axes()
            or self._heads_first()
        )

    def _fits_with(self, changed):
        """Whether all arrays fit, if some of them have other shapes."""
        sizes = self.of_options
        for name, shape in {**self.shapes, **changed}.items():
            sizes = _fitted(self.contract, name, shape, sizes)
            if sizes is None:
                return False
        return True

    def _index_to_broadcast(self):
        if not self.argument.broadcasts:
            return ""
        index = index_that_fits(self.shape, shape_of(self.argument.axes, self.sizes))
        return f": try {self.name}[{index}]" if index else ""

    def _index_of_ids(self):
        expected = shape_of(self.argument.axes, self.sizes)
        if self.argument.kind != "ids" or expected is None:
            return ""
        return advice_on_ids(self.name, self.shape, expected)

    def _without_first_axis(self):
        if self.shape[:1] == (1,) and self._fits_with({self.name: self.shape[1:]}):
            return f": try {self.name}[0]"
        return ""

    def _floats(self):
        """The names of the arrays of floats."""
        return [name for name in self.shapes if self.contract.arrays[name].kind == "float"]

    def _swapped_axes(self):
        candidates = [self.name]
        if self.argument.kind == "ids":  # the logits may have their classes on another axis
            candidates += self._floats()
        for name in candidates:
            advice = self._swapped_axes_of(name)
            if advice:
                return advice
        return ""

    def _swapped_axes_of(self, name):
        def fits(shape):
            return self._fits_with({name: shape})

        return swapped(name, self.shapes[name], fits)

    def _heads_first(self):
        heads_first = {}
        for name in self._floats():
            if len(self.shapes[name]) == 4:
                B, T, H, K = self.shapes[name]
                heads_first[name] = (B, H, T, K)
        if len(heads_first) < 2 or not self._fits_with(heads_first):
            return ""
        changes = ", ".join(f"{name}.swapaxes(1, 2)" for name in heads_first)
        return f": try {changes}, as heads come before positions"


def broadcasts_to(shape: tuple, target: tuple) -> bool:
    """Whether an array of ``shape`` broadcasts to exactly ``target``.

    >>> broadcasts_to((1, 7), (5, 7)), broadcasts_to((5, 7), (1, 7))
    (True, False)
    """
    axes = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(size in (1, n) for size, n in axes)


def index_that_fits(shape: tuple, target: tuple) -> str | None:
    """The index after which an array of ``shape`` broadcasts to ``target``, by axes more or by an
    axis of size 1 less.

    If several do, that which leaves the first axis the first one: it is the batch, also where
    B = H.

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
