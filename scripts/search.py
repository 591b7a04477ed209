"""Search in your own files by meaning: ``npformer search``."""

import sys

from npformer.commands.search import main  # needs pip install -e .

if __name__ == "__main__":
    sys.exit(main())
