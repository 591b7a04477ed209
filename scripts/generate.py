"""Continue a text with a language model: ``npformer generate``."""

import sys

from npformer.commands.generate import main  # needs pip install -e .

if __name__ == "__main__":
    sys.exit(main())
