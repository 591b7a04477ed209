"""Train a Transformer to translate: ``npformer train-translation``."""

import sys

from npformer.commands.train_translation import main  # needs pip install -e .

if __name__ == "__main__":
    sys.exit(main())
