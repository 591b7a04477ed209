"""Score the translations of a test text with BLEU and chrF: ``npformer evaluate``."""

import sys

from npformer.commands.evaluate import main  # needs pip install -e .

if __name__ == "__main__":
    sys.exit(main())
