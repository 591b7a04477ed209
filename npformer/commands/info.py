"""Show the versions, processor, BLAS and backends that npformer runs on, and what would make it
faster.

npformer info
mpiexec -n 2 npformer info       # also the ranks, their hosts and their cores
"""

from npformer.commands.shared import JsonFile, command_line, write_json

from npformer.config import as_text, read_config
from npformer.runtime.ranks import SHARE_CORES, world


@command_line
def main(*, json: JsonFile | None = None):
    ranks = world()
    if not ranks.is_first:
        return
    config = read_config()
    if not ranks.is_alone and ranks.fewest_cores < 1:
        config["advice"].append({"do": None, "why": SHARE_CORES})
    write_json(json, config)
    print(as_text(config))
    if not ranks.is_alone:
        print(f"\n{ranks}")
