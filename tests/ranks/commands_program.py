"""Run by mpiexec on several ranks: commands of npformer, one after another, until one fails. Rank 0
prints the name of each above its output.
"""

import json
import sys
from importlib import import_module

from npformer.runtime.ranks import world

if __name__ == "__main__":
    for name, *arguments in json.loads(sys.argv[1]):
        if world().is_first:
            print(f"-- {name}", flush=True)
        code = import_module(f"npformer.commands.{name}").main(arguments)
        if code:
            sys.exit(code)
