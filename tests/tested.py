"""``npf``: npformer with the operations of the backend under test, which the fixture ``every_backend`` selects."""

import npformer
from npformer.reference import ops


class Tested:
    """Attributes of a backend, or else of ``npformer``."""

    backend = ops

    def __getattr__(self, name):
        return getattr(self.backend if hasattr(self.backend, name) else npformer, name)


npf = Tested()
