"""Train a language model: ``npformer train-gpt``."""

import sys

from npformer.commands.train_gpt import main  # needs pip install -e .

if __name__ == "__main__":
    sys.exit(main())
