"""``npf``: the functions of ``npformer.reference``.

``every_backend`` replaces those that are operations.
"""

from inspect import isfunction
from types import SimpleNamespace

from npformer import reference

npf = SimpleNamespace(
    **{name: value for name, value in vars(reference).items() if isfunction(value)}
)
