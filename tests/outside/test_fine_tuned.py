"""A classifier that npformer has fine-tuned and saved says the same in the library transformers."""

import logging
from dataclasses import replace

import numpy as np
import pytest
from oracles import assert_close
from tiny import tiny_encoder

from npformer import Adam, Trainer, batches, pretrained, tree
from npformer.models import LowRank
from npformer.pretrained.vectors import class_probabilities

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
LABELS = ("none", "some", "many")


@pytest.fixture
def tuned():
    """(adapted, trainer, tokenizer, texts) of a model that was trained on 200 texts by adapters."""
    body, params, tokenizer = tiny_encoder()
    model = replace(body, task="classes", n_outputs=3, pooling="first", pooler=True, labels=LABELS)
    start = tree.merged(params, model.init(1))[0]
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("abcd"), 6)) for _ in range(200)]
    classes = np.array([min(2, text.count("a")) for text in texts])
    adapted = LowRank(model, start, rank=4, whole=("output", "pooler"))
    trainer = Trainer(adapted, Adam(lr=0.01))
    rows = [tokenizer.encode(text) for text in texts]
    trainer.fit(batches(rows, classes, size=20, epochs=3), progress=False)
    return adapted, trainer, tokenizer, texts


def test_merged_weights_and_labels_are_read_by_transformers(tuned, tmp_path):
    adapted, trainer, tokenizer, texts = tuned
    # A limit of sentence-transformers, at which transformers does not cut.
    tokenizer.files["sentence_bert_config.json"] = b'{"max_seq_length": 3}'
    pretrained.save(tmp_path / "mine", adapted.model, adapted.merged(trainer.params), tokenizer)
    loaded = pretrained.load(tmp_path / "mine")
    assert loaded[0].labels == LABELS
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "mine"
    ).eval()
    assert tuple(theirs.config.id2label.values()) == LABELS
    ids = torch.tensor([tokenizer.encode(text) for text in texts])
    with torch.no_grad():
        wanted = torch.softmax(theirs(ids).logits, dim=1).numpy()
    assert_close(class_probabilities(*loaded, texts), wanted, 1e-5)


@pytest.mark.filterwarnings("ignore:npformer alone reads a model with adapters")
def test_a_folder_with_adapters_is_refused_by_transformers(tuned, tmp_path):
    adapted, trainer, tokenizer, _ = tuned
    logging.getLogger("transformers").setLevel(logging.ERROR)
    pretrained.save(tmp_path / "mine", adapted, trainer.params, tokenizer)
    with pytest.raises(ValueError, match="npformer_adapters"):
        transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "mine")
