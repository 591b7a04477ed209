"""Write a trained translation model for CTranslate2, an inference engine in C++ (pip install
ctranslate2).

npformer export --model runs/en-fr --to runs/en-fr-ctranslate2

The folder also has the sentencepiece models of both languages, source.spm and target.spm. A program
that translates:

    processor = sentencepiece.SentencePieceProcessor
    source, target = (processor(f"{folder}/{side}.spm") for side in ("source", "target"))
    translator = ctranslate2.Translator(folder)
    pieces = source.encode(mark(line), out_type=str)
    [found] = translator.translate_batch([pieces], beam_size=5, min_decoding_length=0)
    print(unmark(target.decode(found.hypotheses[0])))

with mark and unmark of npformer/tokens/marks.py, which needs no other file.
"""

from npformer.commands.arguments import add_model, new_parser
from npformer.commands.command import command
from npformer.commands.models import check_kind
from npformer.commands.output import output_folder

from npformer.pretrained.ctranslate2 import export
from npformer.text import Translator


@command
def main(argv=None):
    options = parse_arguments(argv)
    check_kind(options.model, "export")
    translator = Translator.load(options.model)
    sides = {"source": translator.source, "target": translator.target}
    names = [subwords.pieces(range(len(subwords))) for subwords in sides.values()]
    export(
        options.to,
        translator.model,
        translator.params,
        *names,
        bos_id=translator.target.bos_id,
        eos_id=translator.target.eos_id,
        files={f"{side}.spm": subwords.model for side, subwords in sides.items()},
    )
    advice = "npformer export --help shows how a program translates with it"
    print(f"{options.to} has the model; {advice}")


def parse_arguments(argv):
    parser = new_parser(__doc__)
    add_model(parser)
    parser.add("--to", "folder to write", type=output_folder, required=True, metavar="DIR")
    return parser.parse_args(argv)
