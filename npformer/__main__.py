"""``python -m npformer``: show the configuration of npformer, and what would make it faster.

Under mpiexec it also shows the ranks, their hosts and their cores.
"""

import argparse
import json
import sys
from pathlib import Path

from npformer.config import as_text, read_config
from npformer.runtime.ranks import world


def main(argv=None):
    """Print what `npformer.show_config` prints; the exit status is 0."""
    parser = argparse.ArgumentParser(
        prog="python -m npformer",
        description="Show the versions, processor, BLAS and backends npformer runs on, and what would make it faster.",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the configuration to FILE")
    options = parser.parse_args(argv)
    try:
        ranks = world()
    except (ImportError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not ranks.is_first:
        return 0
    config = read_config()
    print(as_text(config))
    if not ranks.alone:
        print(f"\n{ranks}")
    if options.json:
        try:
            options.json.write_text(json.dumps(config, indent=2) + "\n")
        except OSError as error:
            parser.error(f"--json: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
