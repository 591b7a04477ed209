"""The vectors of texts that the library sentence-transformers computes,
of small random models with its modules.
"""

import json

import numpy as np
import pytest
from oracles import assert_close

from npformer import pretrained
from npformer.pretrained.sentences import OLD_KEYS
from npformer.pretrained.vectors import sentence_vectors, text_settings
from tests.pretrained.folders import edit

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")
from sentence_transformers.sentence_transformer import modules as parts  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
TEXTS = ["a", "a b c", "H g f e d c b a", "b b z", "c d e f g h a b c d e f g h a b c d e f g h"]
D = 12
MODES = [
    *("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"),
    ("cls", "max", "mean"),
    ("lasttoken", "weightedmean"),
]


@pytest.fixture
def made(tmp_path):
    """A function that saves a model of theirs with these modules after the BERT."""

    def made(*modules, longest=None, **settings):
        torch.manual_seed(0)
        (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
        sizes = {"num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
        sizes |= {"vocab_size": len(WORDS), "hidden_size": D, "max_position_embeddings": 40}
        body = transformers.BertModel(transformers.BertConfig(**sizes))
        with torch.no_grad():
            for parameter in body.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        tokenizer = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"))
        for part in (body, tokenizer):
            part.save_pretrained(tmp_path / "body")
        first = parts.Transformer(str(tmp_path / "body"), max_seq_length=longest)
        kind = sentence_transformers.SentenceTransformer
        theirs = kind(modules=[first, *modules], device="cpu", **settings)
        theirs.save(str(tmp_path / "saved"))
        return theirs, tmp_path / "saved"

    return made


def assert_same(theirs, folder):
    model, params, tokenizer = pretrained.load(folder)
    wanted = theirs.encode(TEXTS)
    before = text_settings(tokenizer).prompt()
    for text, row in zip(TEXTS, wanted, strict=True):
        ids = np.array([tokenizer.cut(before + text, 40)])
        if text_settings(tokenizer).longest in (None, 40):
            assert_close(model.sentence_vectors(params, ids)[0], row, 1e-5)
    found = sentence_vectors(model, params, tokenizer, TEXTS)
    unit = wanted / np.linalg.norm(wanted, axis=1, keepdims=True)
    assert_close(found, unit, 1e-5)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_each_pooling_in_both_formats(made, mode):
    theirs, folder = made(parts.Pooling(D, mode))
    assert_same(theirs, folder)
    modes = (mode,) if isinstance(mode, str) else mode
    # the order of the old format
    if list(modes) == [each for each in OLD_KEYS.values() if each in modes]:
        old = {key: each in modes for key, each in OLD_KEYS.items()}
        old["word_embedding_dimension"] = D
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(old))
        assert_same(sentence_transformers.SentenceTransformer(str(folder), device="cpu"), folder)


@pytest.mark.parametrize("activation", ["Tanh", "Identity", "ReLU", "GELU", "SiLU"])
def test_maps_after_the_pooling(made, activation):
    function = getattr(torch.nn, activation)()
    dense = parts.Dense(D, 7, bias=activation != "Identity", activation_function=function)
    after = parts.LayerNorm(7), parts.Dense(7, 5), parts.Normalize()
    assert_same(*made(parts.Pooling(D, "mean"), dense, *after))


@pytest.mark.parametrize("longest", [None, 6, 3])
def test_prompts_and_lengths(made, longest):
    prompts = {"query": "a b ", "document": "h ", "other": "c d e "}
    settings = {"longest": longest, "prompts": prompts, "default_prompt_name": "other"}
    theirs, folder = made(parts.Pooling(D, "mean"), parts.Normalize(), **settings)
    assert_same(theirs, folder)
    ours = pretrained.load(folder)
    ways = {"query": theirs.encode_query, "document": theirs.encode_document}
    for prompt, encode in ways.items():
        assert_close(sentence_vectors(*ours, TEXTS, prompt=prompt), encode(TEXTS), 1e-5)


def test_the_old_names_of_the_longest_text_and_of_lower_case(made):
    _, folder = made(parts.Pooling(D, "mean"))
    edit(folder / "sentence_bert_config.json", max_seq_length=7, do_lower_case=True)
    normalizer = json.loads((folder / "tokenizer.json").read_text())["normalizer"]
    edit(folder / "tokenizer.json", normalizer=normalizer | {"lowercase": False})
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    assert_same(theirs, folder)
