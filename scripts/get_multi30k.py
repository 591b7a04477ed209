"""Download Multi30k, verify it, and save it in a folder: ``npformer get-multi30k``."""

import sys

from npformer.commands.get_multi30k import main  # needs pip install -e .

if __name__ == "__main__":
    sys.exit(main())
