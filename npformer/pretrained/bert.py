"""BERT (Devlin et al. 2019), and models of its architecture such as MiniLM; RoBERTa and DistilBERT."""

import re
from dataclasses import asdict

import numpy as np

from npformer.checks import shown
from npformer.models.encoder import Encoder
from npformer.pretrained.family import LIKE_2017, SIZES, Family
from npformer.pretrained.keys import harmless, read, warned_unless
from npformer.pretrained.sentences import pooling_of, their_pooling

TASKS: dict[str, dict] = {  # what each class of theirs predicts, by the settings of ours
    "Model": {"task": None, "pooling": "mean"},
    "ForMaskedLM": {"task": "words", "pooling": "mean", "pooler": False},
    "ForSequenceClassification": {"task": "classes", "pooling": "first", "pooler": True},
    "ForTokenClassification": {"task": "classes", "pooling": "none", "pooler": False},
}
REGRESSION, CLASSIFICATION = "regression", "single_label_classification"
QKV = "query", "key", "value"
POSITIONS = "embeddings.position_embeddings.weight"
OF_TASKS = read("id2label num_labels problem_type tie_word_embeddings pooling")  # keys of all these families


class Bert(Family):
    """Names and settings of ``BertModel`` and of what stands on it."""

    name, title = "bert", "Bert"  # the title begins the names of the classes
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
    # Sizes of the pooler of Google's program, which the library transformers does not read, either.
    other_keys = OF_TASKS | harmless("directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers")
    other_keys |= harmless("pooler_size_per_head pooler_type")
    prefix = "bert."
    heads: tuple[str, ...] = ("cls", "classifier")
    # The modules of the output that predicts words, and of its bias, which has two names; those of
    # the output of classes are in ``names``.
    output_of_words, bias_of_words = "cls.predictions.decoder", "cls.predictions.bias"
    unneeded = r"(bert\.)?embeddings\.position_ids|cls\.seq_relationship\..*"

    @property
    def tasks(self) -> dict[str, dict]:
        """What each class of the family predicts."""
        return {f"{self.title}{name}": task for name, task in TASKS.items()}

    def names_of(self, model):
        """The table; where words are predicted, the output has another name."""
        return self.names | ({"output": self.output_of_words} if model.task == "words" else {})

    def arriving(self, tensors, config):
        """The tensors by the names of the table: the bias of the output of words has two.

        Google's files name gain and bias of a normalisation gamma and beta, and have a pooler for every task.
        """
        tensors = {
            re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name)): x
            for name, x in super().arriving(tensors, config).items()
        }
        architecture, *_ = config.get("architectures") or [f"{self.title}Model"]
        has_pooler = self.tasks.get(architecture, {}).get("pooler") is not False
        if not has_pooler:
            tensors = {name: x for name, x in tensors.items() if not name.startswith("pooler.")}
        bias = tensors.pop(self.bias_of_words, None)
        return tensors if bias is None else {f"{self.output_of_words}.bias": bias} | tensors

    def leaving(self, tensors, model):
        """The tensors by the names of a file, which are without a prefix in a model without output."""
        if model.task is None:
            return tensors
        tensors = super().leaving(tensors, model)
        bias = tensors.get(f"{self.output_of_words}.bias")
        return tensors if bias is None else tensors | {self.bias_of_words: bias}

    def rules(self, config):
        """What each key of config.json means: the vector that is classified has the dropout of the sublayers."""
        dropout = config.get("hidden_dropout_prob", 0.1)
        return super().rules(config) | warned_unless({"classifier_dropout": dropout})

    def settings_of(self, config, tensors, instead=()):
        """Our settings, also what is predicted."""
        name, *_ = config.get("architectures") or [f"{self.title}Model"]
        if name not in self.tasks:
            raise ValueError(f"architectures={shown(name)}, supported are {', '.join(self.tasks)}")
        task = dict(self.tasks[name])
        if task["task"] is None:
            task["pooling"] = pooling_of(config.get("pooling", {}))
            task["after_pooling"] = tuple(config.get("after_pooling", ()))
            task["pooler"] = f"{self.names['pooler']}.weight" in tensors
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
        if "n_types" in self.settings and not model.n_types:
            raise ValueError("n_types=0, expected at least 1")
        same = ("task", "pooling", "pooler")[: 1 if model.task is None else 3]
        wanted = {name: getattr(model, name) for name in same}
        if model.task == "numbers" and model.pooling != "none":
            wanted["task"] = "classes"  # the class of both
        names = [name for name, task in self.tasks.items() if all(task[key] == wanted[key] for key in same)]
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


class Roberta(Bert):
    """Names and settings of ``RobertaModel`` (Liu et al. 2019): its positions begin after the padding's id.

    The rows of its table of positions up to that of the padding's id belong to no token: they are
    left out here, and written as zeros.
    """

    name, title = "roberta", "Roberta"
    names = Bert.names | {"words.hidden": "lm_head.dense", "words.norm": "lm_head.layer_norm"}
    settings = Bert.settings | {"pad_id": ("pad_token_id", 1)}
    constants = Bert.constants | {"counted_positions": True}
    prefix = "roberta."
    heads = ("lm_head", "classifier")
    output_of_words, bias_of_words = "lm_head.decoder", "lm_head.bias"
    unneeded = r"(roberta\.)?embeddings\.position_ids"

    def names_of(self, model):
        """The table; the vector that is classified has a map in the module of the output."""
        if model.task not in (None, "words") and model.pooler:
            return self.names | {"pooler": "classifier.dense", "output": "classifier.out_proj"}
        return super().names_of(model)

    def arriving(self, tensors, config):
        """The tensors by the names of the table, without the positions that no token has."""
        tensors = super().arriving(tensors, config)
        stored = tensors.get(POSITIONS)
        if stored is not None:
            tensors[POSITIONS] = stored.take(stored.numbers()[self.n_unused(config) :])
        return tensors

    def leaving(self, tensors, model):
        """The tensors by the names of a file."""
        positions = tensors[POSITIONS]
        unused = np.zeros((model.pad_id + 1, model.d_model), positions.dtype)
        return super().leaving(tensors | {POSITIONS: np.concatenate([unused, positions])}, model)

    def settings_of(self, config, tensors, instead=()):
        """Our settings: words are predicted by an exact gelu, whatever the layers have."""
        settings = super().settings_of(config, tensors, instead)
        if settings["task"] == "words" and settings["activation"] != "gelu_erf":
            raise ValueError(f"hidden_act={shown(config['hidden_act'])}, supported is 'gelu'")
        if isinstance(settings["max_len"], int):
            settings["max_len"] -= self.n_unused(config)
        return settings

    def config_of(self, model):
        """What config.json says of a model of ours."""
        config = super().config_of(model)
        if model.task == "words" and model.activation != "gelu_erf":
            raise ValueError(f"activation={shown(model.activation)}, expected 'gelu_erf'")
        config["max_position_embeddings"] += model.pad_id + 1
        return config

    def n_unused(self, config: dict) -> int:
        """The number of positions that no token has."""
        pad_id = config.get("pad_token_id", 1)
        if not isinstance(pad_id, int) or pad_id < 0:
            raise ValueError(f"pad_token_id={shown(pad_id)}, expected an id, after which positions begin")
        return pad_id + 1


class XLMRoberta(Roberta):
    """Names and settings of ``XLMRobertaModel`` (Conneau et al. 2020), a RoBERTa of a hundred languages."""

    name, title = "xlm-roberta", "XLMRoberta"


class DistilBert(Bert):
    """Names and settings of ``DistilBertModel`` (Sanh et al. 2019): a BERT of half the depth, without types."""

    name, title = "distilbert", "DistilBert"
    names = {
        "embedding": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        "layers.{}.attention.qkv": " ".join(f"transformer.layer.{{0}}.attention.{x}_lin" for x in "qkv"),
        "layers.{}.attention.out": "transformer.layer.{}.attention.out_lin",
        "layers.{}.attention_norm": "transformer.layer.{}.sa_layer_norm",
        "layers.{}.feed_forward.hidden": "transformer.layer.{}.ffn.lin1",
        "layers.{}.feed_forward.out": "transformer.layer.{}.ffn.lin2",
        "layers.{}.feed_forward_norm": "transformer.layer.{}.output_layer_norm",
        "pooler": "pre_classifier",
        "words.hidden": "vocab_transform",
        "words.norm": "vocab_layer_norm",
        "after_pooling.{}": "after_pooling.{}",
        "output": "classifier",
    }
    settings = {
        "vocab": "vocab_size",
        "d_model": "dim",
        "n_heads": "n_heads",
        "n_layers": "n_layers",
        "d_ff": "hidden_dim",
        "max_len": "max_position_embeddings",
        "activation": ("activation", "gelu"),
        "dropout": ("dropout", 0.1),
        "inner_dropout": ("attention_dropout", 0.1),
        "pad_id": ("pad_token_id", 0),
    }
    constants = Bert.constants | {"n_types": 0, "eps": 1e-12, "pooler_activation": "relu"}
    # The table of positions is stored, however it was made.
    other_keys = OF_TASKS | harmless("sinusoidal_pos_embds tie_weights_")
    # Dropout before the classifier, for which a training here has that of the sublayers.
    other_keys |= warned_unless({"seq_classif_dropout": 0.2, "qa_dropout": 0.1})
    prefix = "distilbert."
    heads = ("vocab_", "pre_classifier", "classifier")
    output_of_words, bias_of_words = "vocab_projector", "vocab_projector.bias"
    unneeded = r"(distilbert\.)?embeddings\.position_ids"
