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

from pathlib import Path

from npformer.commands.shared import OutputFolder, command_line
from npformer.commands.shared.models import check_kind

from npformer.pretrained.ctranslate2 import export
from npformer.text import Translator


@command_line
def main(*, model: Path, to: OutputFolder):
    """Write a model.

    Parameters
    ----------
    model : DIR
        output of a training, or a model file
    to
        folder to write
    """
    check_kind(model, "export")
    translator = Translator.load(model)
    sides = {"source": translator.source, "target": translator.target}
    names = [subwords.pieces(range(len(subwords))) for subwords in sides.values()]
    export(
        to,
        translator.model,
        translator.params,
        *names,
        bos_id=translator.target.bos_id,
        eos_id=translator.target.eos_id,
        files={f"{side}.spm": subwords.model for side, subwords in sides.items()},
    )
    print(f"{to} has the model; npformer export --help shows how a program translates with it")
