"""Detect sequences that break a pattern, with an auto-encoder: ``npformer detect-anomalies``."""

import sys

from npformer.commands.detect_anomalies import main  # needs pip install -e .

if __name__ == "__main__":
    sys.exit(main())
