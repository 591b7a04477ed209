"""Decoding with ``npformer.Transformer`` in CTranslate2, an inference engine in C++."""

import tempfile

import ctranslate2

from npformer.pretrained.ctranslate2 import export


def decoder(model, params, n_threads, kind="float32"):
    """``decode(src, n_new, beam_size)`` -> lists of n_new ids, for an ``npformer.Transformer`` and
    its parameters.

    Targets begin with id 1 and end with 2. CTranslate2's defaults are used, with which it is
    fastest on an AMD EPYC (Zen 5): MKL instead of oneDNN, also with packed weights, decodes 0.25 to
    0.8 times as fast; AVX512 instead of AVX2 was up to 12 % faster once, but not with one thread;
    OMP_PROC_BIND and OMP_WAIT_POLICY changed nothing beyond noise.
    """
    source, target = (
        ["<unk>", *map(str, range(1, size))] for size in (model.src_vocab, model.tgt_vocab)
    )
    with tempfile.TemporaryDirectory() as folder:
        export(folder, model, params, source, target, bos_id=1, eos_id=2, add_source_eos=False)
        threads = {"inter_threads": 1, "intra_threads": n_threads}
        translator = ctranslate2.Translator(folder, device="cpu", compute_type=kind, **threads)

    def decode(src, n_new, beam_size):
        results = translator.translate_batch(
            [[source[i] for i in row] for row in src.tolist()],
            max_batch_size=len(src),  # one batch
            beam_size=beam_size,
            min_decoding_length=n_new,
            max_decoding_length=n_new,
        )
        return [list(map(target.index, result.hypotheses[0])) for result in results]

    return decode
