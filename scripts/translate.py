"""Translate sentences with a trained model: ``npformer translate``."""

import sys

from npformer.commands.translate import main  # needs pip install -e .

if __name__ == "__main__":
    sys.exit(main())
