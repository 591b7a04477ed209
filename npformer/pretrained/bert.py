"""BERT (Devlin et al. 2019), and models of its architecture such as MiniLM."""

import re
from dataclasses import asdict

from npformer.checks import shown
from npformer.models.encoder import Encoder
from npformer.pretrained.family import LIKE_2017, SIZES, Family
from npformer.pretrained.keys import harmless, read, warned_unless
from npformer.pretrained.sentences import pooling_of, their_pooling

TASKS = {  # what each class of theirs predicts, by the settings of ours
    "BertModel": {"task": None, "pooling": "mean"},
    "BertForMaskedLM": {"task": "words", "pooling": "mean", "pooler": False},
    "BertForSequenceClassification": {"task": "classes", "pooling": "first", "pooler": True},
    "BertForTokenClassification": {"task": "classes", "pooling": "none", "pooler": False},
}
REGRESSION, CLASSIFICATION = "regression", "single_label_classification"
QKV = "query", "key", "value"


class Bert(Family):
    """Names and settings of ``BertModel`` and of what stands on it."""

    name = "bert"
    model = Encoder
    names = {
        "embedding": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "types": "embeddings.token_type_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        "layers.{}.attention.qkv": " ".join(f"encoder.layer.{{0}}.attention.self.{x}" for x in QKV),
        "layers.{}.attention.out": "encoder.layer.{}.attention.output.dense",
        "layers.{}.attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
        "layers.{}.feed_forward.hidden": "encoder.layer.{}.intermediate.dense",
        "layers.{}.feed_forward.out": "encoder.layer.{}.output.dense",
        "layers.{}.feed_forward_norm": "encoder.layer.{}.output.LayerNorm",
        "pooler": "pooler.dense",
        "words.hidden": "cls.predictions.transform.dense",
        "words.norm": "cls.predictions.transform.LayerNorm",
        "after_pooling.{}": "after_pooling.{}",
        "output": "classifier",
    }
    settings = SIZES | {
        "n_types": ("type_vocab_size", 2),
        "eps": ("layer_norm_eps", 1e-12),
        "activation": ("hidden_act", "gelu"),
        "dropout": ("hidden_dropout_prob", 0.1),
        "inner_dropout": ("attention_probs_dropout_prob", 0.1),
        "pad_id": ("pad_token_id", 0),
    }
    constants = LIKE_2017 | {"positions": "learned", "norm": "post", "scale_embeddings": False, "embedding_norm": True}
    constants |= {"n_inputs": None}
    own_settings = "task", "n_outputs", "labels", "pooling", "after_pooling", "pooler", "tie_embeddings"
    supported = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
    other_keys = read("id2label num_labels problem_type tie_word_embeddings pooling")
    # Sizes of the pooler of Google's program, which the library transformers does not read, either.
    other_keys |= harmless("directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers")
    other_keys |= harmless("pooler_size_per_head pooler_type")
    prefix = "bert."
    heads = ("cls", "classifier")
    unneeded = r"(bert\.)?embeddings\.position_ids|cls\.seq_relationship\..*"

    def names_of(self, model):
        """The table; where words are predicted, the output has another name."""
        return self.names | ({"output": "cls.predictions.decoder"} if model.task == "words" else {})

    def arriving(self, tensors, config):
        """The tensors by the names of the table: the bias of the output of words has two.

        Google's files name gain and bias of a normalisation gamma and beta, and have a pooler for every task.
        """
        tensors = {
            re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name)): x
            for name, x in super().arriving(tensors, config).items()
        }
        architecture = (config.get("architectures") or ["BertModel"])[0]
        if architecture in TASKS and TASKS[architecture].get("pooler") is False:
            tensors = {name: x for name, x in tensors.items() if not name.startswith("pooler.")}
        bias = tensors.pop("cls.predictions.bias", None)
        return tensors if bias is None else {"cls.predictions.decoder.bias": bias} | tensors

    def leaving(self, tensors, model):
        """The tensors by the names of a file, which are without a prefix in a model without output."""
        if model.task is None:
            return tensors
        tensors = super().leaving(tensors, model)
        bias = tensors.get("cls.predictions.decoder.bias")
        return tensors if bias is None else tensors | {"cls.predictions.bias": bias}

    def rules(self, config):
        """What each key of config.json means: the vector that is classified has the dropout of the sublayers."""
        dropout = config.get("hidden_dropout_prob", 0.1)
        return super().rules(config) | warned_unless({"classifier_dropout": dropout})

    def settings_of(self, config, tensors, instead=()):
        """Our settings, also what is predicted."""
        name, *_ = config.get("architectures") or ["BertModel"]
        if name not in TASKS:
            raise ValueError(f"architectures={shown(name)}, supported are {', '.join(TASKS)}")
        task = dict(TASKS[name])
        if task["task"] is None:
            task["pooling"] = pooling_of(config.get("pooling", {}))
            task["after_pooling"] = tuple(config.get("after_pooling", ()))
            task["pooler"] = "pooler.dense.weight" in tensors
        elif task["task"] == "words":
            task |= {"tie_embeddings": config.get("tie_word_embeddings", True)}
        else:
            n_outputs = config.get("num_labels", len(config.get("id2label", "01")))
            kind = config.get("problem_type") or (REGRESSION if n_outputs == 1 else CLASSIFICATION)
            if task["pooling"] == "none":  # tokens always have classes, whatever is said of the problem
                kind = CLASSIFICATION
            if kind not in (REGRESSION, CLASSIFICATION):
                raise ValueError(f"problem_type={shown(kind)}, supported are {REGRESSION}, {CLASSIFICATION}")
            task["labels"] = labels_of(config, n_outputs)
            task |= {"n_outputs": n_outputs, "task": "numbers" if kind == REGRESSION else "classes"}
        return super().settings_of(config, tensors, instead) | task

    def config_of(self, model):
        """What config.json says of a model of ours."""
        if not model.n_types:
            raise ValueError("n_types=0, expected at least 1")
        same = ("task", "pooling", "pooler")[: 1 if model.task is None else 3]
        wanted = {name: getattr(model, name) for name in same}
        if model.task == "numbers" and model.pooling != "none":
            wanted["task"] = "classes"  # the class of both
        names = [name for name, task in TASKS.items() if all(task[key] == wanted[key] for key in same)]
        if not names:
            raise ValueError(f"it has {wanted}, expected one of {list(TASKS.values())}")
        ours = {"architectures": names, "tie_word_embeddings": model.tie_embeddings or model.task != "words"}
        if model.n_outputs is not None:
            names = model.labels or [f"LABEL_{i}" for i in range(model.n_outputs)]
            labels = {str(i): name for i, name in enumerate(names)}
            ours |= {"id2label": labels, "label2id": {label: int(i) for i, label in labels.items()}}
            ours |= {"problem_type": REGRESSION if model.task == "numbers" else CLASSIFICATION}
        elif model.task is None:  # which transformers does not read
            ours["pooling"] = their_pooling(model.pooling)
            ours["after_pooling"] = [asdict(each) for each in model.after_pooling]
        return super().config_of(model) | ours


def labels_of(config, n_outputs):
    """The names of the outputs, or None if there is not one of each, or only their numbers."""
    names = config.get("id2label")
    if not isinstance(names, dict) or len(names) != n_outputs:
        return None
    labels = [names.get(str(i)) for i in range(n_outputs)]
    is_name = [isinstance(label, str) and label != f"LABEL_{i}" for i, label in enumerate(labels)]
    return tuple(labels) if all(is_name) else None
