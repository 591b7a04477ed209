"""Train a Transformer to copy sequences, and test it on sequences it was not trained on: ``npformer
copy``.
"""

import sys

from npformer.commands.copy import main  # needs pip install -e .

if __name__ == "__main__":
    sys.exit(main())
