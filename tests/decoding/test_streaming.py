"""The text that is shown token by token is that of all tokens,
for tokenizers whose tokens depend on each other.
"""

import numpy as np
import pytest

pytest.importorskip("tokenizers")
import tokenizers
from tiny import tiny_tokenizer, tiny_translation_tokenizer

from npformer.decoding.streaming import streaming
from npformer.pretrained.families import FAMILIES
from npformer.pretrained.tokenizer import tokenizer_of
from npformer.pretrained.tokenizer_settings import files_of_tokenizer
from npformer.tokens import Characters, Pieces, Subwords

LINES = ["the man  has a dög", "the dogs, and thé men 漢字 €"]


def metaspace(folder=None, fallback=False):
    """A tokenizer as that of Llama 2, whose decoder removes the space before the first word."""
    pieces = ["▁", "▁▁", "▁a", "b", "▁.", "\n", "é"]
    if fallback:
        pieces += ["<0xE2>", "<0x82>", "<0xAC>"]
    ids = {piece: i for i, piece in enumerate(pieces)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ids, [], fuse_unk=True))
    made.add_special_tokens(["</s>"])
    steps = tokenizers.decoders
    made.decoder = steps.Metaspace()
    if fallback:
        parts = steps.Replace("▁", " "), steps.ByteFallback(), steps.Fuse(), steps.Strip(" ", 1, 0)
        made.decoder = steps.Sequence(list(parts))
    return made.decode, len(pieces) + 1


def of_bytes(folder):
    tokenizer = tiny_tokenizer()
    return tokenizer.decode, len(tokenizer)


def pieces(folder):
    made = Pieces(Subwords.learn(LINES, size=50))
    return made.decode, len(made)


def marian(folder):
    ids = tiny_translation_tokenizer(folder)
    config = {"vocab_size": len(ids)}
    tokenizer = tokenizer_of(files_of_tokenizer(folder), config, FAMILIES["marian"])
    return tokenizer.decode, len(tokenizer)


def characters(folder):
    made = Characters("".join(LINES) + "\n")
    return made.decode, len(made)


def shown_of(decode, ids, begun=()):
    parts = []
    told = streaming(decode, parts.append, begun)
    for id_ in ids:
        told([0], [id_])
    return "".join(parts)


@pytest.mark.parametrize("kind", [of_bytes, metaspace, pieces, marian, characters])
def test_what_is_shown_is_the_text_of_all_tokens(kind, tmp_path):
    decode, n = kind(tmp_path)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        few = rng.integers(0, n, rng.integers(1, 1 + n))  # some ids often one after another
        ids = rng.choice(few, rng.integers(1, 40)).tolist()
        begun = rng.integers(0, n, rng.integers(0, 4)).tolist()
        assert shown_of(decode, ids) == decode(ids).rstrip("\ufffd")
        before = decode(begun) if begun else ""
        whole = decode(begun + ids)
        expected = whole.rstrip("\ufffd") if len(whole) > len(before) else before
        if not before.endswith("\ufffd"):
            assert before + shown_of(decode, ids, begun) == expected


def test_characters_of_several_tokens_are_shown_when_they_are_complete():
    decode, _ = metaspace(fallback=True)
    euro = [7, 8, 9]
    ids = [2, *euro, *euro, 3, 0, *euro, 2]
    assert shown_of(decode, ids) == decode(ids) == "a€€b € a"
    decode, _ = of_bytes(None)
    ids = tiny_tokenizer().encode("  né 👩‍👩‍👧 \n\n €")
    assert shown_of(decode, ids) == "  né 👩‍👩‍👧 \n\n €"


def test_the_time_of_a_token_does_not_grow_with_the_text():
    tokenizer = tiny_tokenizer()
    lengths = []

    def decode(ids):
        lengths.append(len(ids))
        return tokenizer.decode(ids)

    shown_of(decode, tokenizer.encode("ab  €漢字" * 30))
    assert max(lengths) == 6
