"""Chat with a language model that exists: ``npformer chat``."""

import sys

from npformer.commands.chat import main  # needs pip install -e .

if __name__ == "__main__":
    sys.exit(main())
