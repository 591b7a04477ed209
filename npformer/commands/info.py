"""Show the versions, processor, BLAS and backends that npformer runs on, and what would make it
faster.

npformer info
mpiexec -n 2 npformer info       # also the ranks, their hosts and their cores
"""

from npformer.commands.arguments import new_parser
from npformer.commands.command import command
from npformer.commands.output import add_json, write_json

from npformer.config import as_text, read_config
from npformer.runtime.ranks import world


@command
def main(argv=None):
    parser = new_parser(__doc__)
    add_json(parser)
    options = parser.parse_args(argv)
    ranks = world()
    if not ranks.is_first:
        return
    config = read_config()
    write_json(options.json, config)
    print(as_text(config))
    if not ranks.alone:
        print(f"\n{ranks}")
