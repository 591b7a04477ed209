"""The decorators of the math: its functions get the record of an operation, and remain what they
are.

So they call each other without any check. ``npformer.reference`` makes the dispatchers that
everybody else calls.
"""

from functools import partial

from npformer.operations import record

operation = partial(record.operation, checked=False)
backward_of = partial(record.backward_of, checked=False)
