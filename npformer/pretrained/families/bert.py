"""BERT (Devlin et al. 2019), and models of its architecture: MiniLM, RoBERTa and DistilBERT."""

import re
from dataclasses import asdict
from typing import Any

import numpy as np

from npformer.checks import check_int, shown, warn
from npformer.errors import UserError
from npformer.models.encoder import Encoder
from npformer.pretrained.families.family import LIKE_2017, SIZES, Family
from npformer.pretrained.rules import check_supported, parse_settings, parse_table, warned_unless
from npformer.pretrained.sentences import pooling_of, their_pooling

# What a class of theirs predicts, by the settings of ours. The rest of its name is the family's.
TASKS: dict[str, dict] = {
    "Model": {"task": None, "pooling": "mean"},
    "ForMaskedLM": {"task": "words", "pooling": "mean", "pooler": False},
    "ForSequenceClassification": {"task": "classes", "pooling": "first", "pooler": True},
    "ForTokenClassification": {"task": "classes", "pooling": "none", "pooler": False},
}
REGRESSION, CLASSIFICATION = "regression", "single_label_classification"
TWO_LABELS = {"0": "LABEL_0", "1": "LABEL_1"}  # which config.json need not say
POSITION_TABLE = "embeddings.position_embeddings.weight"
BERT_SETTINGS = """
    n_types        type_vocab_size               2
    eps            layer_norm_eps                1e-12
    activation     hidden_act                    "gelu"
    dropout        hidden_dropout_prob           0.1
    inner_dropout  attention_probs_dropout_prob  0.1
    pad_id         pad_token_id                  0
    """
OF_ALL = f"""
    -  tie_word_embeddings  true
    {LIKE_2017}
    positions         =  "learned"
    norm              =  "post"
    scale_embeddings  =  false
    embedding_norm    =  true
    n_inputs          =  null

    =  position_embedding_type  "absolute"

    task            -
    n_outputs       -
    labels          -
    pooling         -
    after_pooling   -
    pooler          -
    tie_embeddings  -
    read  id2label num_labels problem_type pooling
    """
# Sizes of the pooler of Google's program, which the library transformers does not read, either.
OF_GOOGLE = """
    harmless  directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
    harmless  pooler_size_per_head pooler_type
    """


class Bert(Family):
    """Names and settings of ``BertModel`` and of what stands on it."""

    name, title = "bert", "Bert"  # the title begins the names of the classes
    model = Encoder
    names = parse_table("""
        embedding                      embeddings.word_embeddings
        positions                      embeddings.position_embeddings
        types                          embeddings.token_type_embeddings
        embedding_norm                 embeddings.LayerNorm
        layers.{}.attention.qkv        encoder.layer.{}.attention.self.query
                                       encoder.layer.{}.attention.self.key
                                       encoder.layer.{}.attention.self.value
        layers.{}.attention.out        encoder.layer.{}.attention.output.dense
        layers.{}.attention_norm       encoder.layer.{}.attention.output.LayerNorm
        layers.{}.feed_forward.hidden  encoder.layer.{}.intermediate.dense
        layers.{}.feed_forward.out     encoder.layer.{}.output.dense
        layers.{}.feed_forward_norm    encoder.layer.{}.output.LayerNorm
        pooler                         pooler.dense
        words.hidden                   cls.predictions.transform.dense
        words.norm                     cls.predictions.transform.LayerNorm
        after_pooling.{}               after_pooling.{}
        output                         classifier
        """)
    settings = parse_settings(SIZES, BERT_SETTINGS, OF_ALL, OF_GOOGLE)
    prefix = "bert."
    heads: tuple[str, ...] = ("cls", "classifier")
    # The modules of the output that predicts words, and of its bias, which has two names; those of
    # the output of classes are in ``names``.
    output_of_words, bias_of_words = "cls.predictions.decoder", "cls.predictions.bias"
    unneeded = r"embeddings\.position_ids|cls\.seq_relationship\..*"
    names_of_classifier: dict[str, str] = {}  # where a vector is classified, instead of ``names``

    @property
    def tasks(self) -> dict[str, dict]:
        """What each class of the family predicts."""
        return {f"{self.title}{name}": task for name, task in TASKS.items()}

    def class_in(self, config):
        """The class of theirs that a file names."""
        names = config.get("architectures") or [f"{self.title}Model"]
        return names[0]

    def names_of(self, model):
        """The table; the output of some tasks has other names."""
        if model.task == "words":
            return self.names | {"output": self.output_of_words}
        if model.task is not None and model.pooler:
            return self.names | self.names_of_classifier
        return self.names

    def from_file(self, tensors, config):
        """The tensors by the names of the table, each once."""
        renamed = {}
        for name, x in super().from_file(tensors, config).items():
            # Google's files name gain and bias of a normalisation so.
            name = re.sub(r"\.gamma$", ".weight", name)
            name = re.sub(r"\.beta$", ".bias", name)
            renamed[name] = x
        if self.leaves_out_pooler(config):
            renamed = {name: x for name, x in renamed.items() if not name.startswith("pooler.")}
        bias = renamed.pop(self.bias_of_words, None)
        if bias is not None:
            renamed.setdefault(f"{self.output_of_words}.bias", bias)
        return renamed

    def leaves_out_pooler(self, config):
        """Whether the pooler of a file is that of the first training, which its task does not use.

        The files of some models that were trained for a task hold it still.
        """
        task = self.tasks.get(self.class_in(config), {})
        if "pooler" not in task:  # without a task, a model may have one
            return False
        if task["pooler"]:  # the one that is used has this name, or one of the classifier
            return "pooler" in self.names_of_classifier
        return True

    def for_file(self, tensors, model):
        """The tensors by the names of a file, which a model without output has without a prefix."""
        if model.task is None:
            return tensors
        renamed = super().for_file(tensors, model)
        if model.task == "words":
            renamed[self.bias_of_words] = renamed[f"{self.output_of_words}.bias"]
        return renamed

    def extra_rules(self, config):
        """The vector that is classified has the dropout of the sublayers, here."""
        return warned_unless({"classifier_dropout": config["hidden_dropout_prob"]})

    def extra_settings_from(self, config, tensors):
        """What is predicted, of which vector, and how that is made."""
        name = self.class_in(config)
        check_supported("architectures", name, self.tasks)
        task = self.tasks[name]
        if task["task"] == "words":
            return task | {"tie_embeddings": config["tie_word_embeddings"]}
        if task["task"] == "classes":
            return task | outputs_of(config, by_position=task["pooling"] == "none")
        return task | {
            "pooling": pooling_of(config.get("pooling", {})),
            "after_pooling": tuple(config.get("after_pooling", ())),
            "pooler": f"{self.names['pooler']}.weight" in tensors,
        }

    def padding(self, pad_id, config, tokenizer):
        """The padding of the tokenizer, if it has one: texts are padded with it."""
        theirs = getattr(tokenizer, "pad_id", None)
        if pad_id is None or theirs in (None, pad_id):
            return pad_id
        warn(
            f"config.json has pad_token_id={shown(pad_id)}, "
            f"but the tokenizer pads with {theirs}, which is taken"
        )
        return theirs

    def extra_keys_for(self, model):
        """The class of theirs, and what belongs to it."""
        if "n_types" in self.settings.key_of and not model.n_types:
            raise UserError("n_types=0, expected at least 1")
        keys: dict[str, Any] = {"architectures": [self.class_of(model)]}
        keys["tie_word_embeddings"] = model.tie_embeddings or model.task != "words"
        if model.n_outputs is not None:
            keys["id2label"] = {str(i): label for i, label in enumerate(labels_of(model))}
            keys["label2id"] = {name: i for i, name in enumerate(output_names(model))}
            keys["problem_type"] = REGRESSION if model.task == "numbers" else CLASSIFICATION
        elif model.task is None:  # which transformers does not read
            keys["pooling"] = their_pooling(model.pooling)
            keys["after_pooling"] = [asdict(each) for each in model.after_pooling]
        return keys

    def class_of(self, model):
        """The class of theirs that predicts what a model of ours predicts."""
        if model.task is None:
            return f"{self.title}Model"
        task = {name: getattr(model, name) for name in ("task", "pooling", "pooler")}
        if model.task == "numbers" and model.pooling != "none":
            task["task"] = "classes"  # one class of theirs has both
        for name, theirs in self.tasks.items():
            if theirs == task:
                return name
        raise UserError(f"it has {task}, expected one of {list(TASKS.values())}")


def outputs_of(config: dict, by_position: bool) -> dict:
    """The settings of the output of classes, or of numbers."""
    n_outputs = config.get("num_labels", len(config.get("id2label", TWO_LABELS)))
    kind = config.get("problem_type")
    if by_position:  # tokens always have classes, whatever is said of the problem
        kind = CLASSIFICATION
    elif kind is None:
        kind = REGRESSION if n_outputs == 1 else CLASSIFICATION
    check_supported("problem_type", kind, (REGRESSION, CLASSIFICATION))
    task = "numbers" if kind == REGRESSION else "classes"
    return {"task": task, "n_outputs": n_outputs, "labels": labels_in(config, n_outputs)}


def labels_in(config, n_outputs):
    """The names of the outputs, or None if there is not one of each, or only their numbers."""
    names = config.get("id2label")
    if not isinstance(names, dict) or len(names) != n_outputs:
        return None
    labels = [names.get(str(i)) for i in range(n_outputs)]
    is_name = [isinstance(x, str) and x != f"LABEL_{i}" for i, x in enumerate(labels)]
    return tuple(labels) if all(is_name) else None


def labels_of(model) -> list[str]:
    """The label of each output, or its number."""
    return list(model.labels or [f"LABEL_{i}" for i in range(model.n_outputs)])


def output_names(model) -> list[str]:
    """A name of each output that no other one has, also where two have one label.

    >>> sizes = {"vocab": 7, "d_model": 4, "n_heads": 2, "n_layers": 1, "d_ff": 8}
    >>> output_names(Encoder(**sizes, task="classes", n_outputs=3, labels=("no", "yes", "no")))
    ['no (0)', 'yes (1)', 'no (2)']
    """
    labels = labels_of(model)
    if len(set(labels)) == len(labels):
        return labels
    return [f"{label} ({i})" for i, label in enumerate(labels)]


class Roberta(Bert):
    """Names and settings of ``RobertaModel`` (Liu et al. 2019).

    Its positions begin after the padding's id. The rows of its table of positions up to that id
    belong to no token: they are left out here, and written as zeros.
    """

    name, title = "roberta", "Roberta"
    names = Bert.names | {"words.hidden": "lm_head.dense", "words.norm": "lm_head.layer_norm"}
    names_of_classifier = {"pooler": "classifier.dense", "output": "classifier.out_proj"}
    settings = parse_settings(
        SIZES,
        BERT_SETTINGS,
        OF_ALL,
        OF_GOOGLE,
        """
        -                  pad_token_id  1
        counted_positions  =             true
        activation         =             "gelu_erf"
        =                  hidden_act    "gelu"
        """,
    )
    prefix = "roberta."
    heads = ("lm_head", "classifier")
    output_of_words, bias_of_words = "lm_head.decoder", "lm_head.bias"

    def from_file(self, tensors, config):
        """The tensors by the names of the table, without the positions that no token has."""
        renamed = super().from_file(tensors, config)
        positions = renamed.get(POSITION_TABLE)
        if positions is not None:
            numbers = positions.numbers()
            pad_id = config.get("pad_token_id", self.settings.defaults["pad_token_id"])
            last = len(numbers) - 2  # which leaves one position
            pad_id = check_int("pad_token_id", pad_id, at_least=0, at_most=last)
            renamed[POSITION_TABLE] = positions.take(numbers[pad_id + 1 :])
        return renamed

    def for_file(self, tensors, model):
        """The tensors by the names of a file."""
        positions = tensors[POSITION_TABLE]
        unused = np.zeros((model.pad_id + 1, model.d_model), positions.dtype)
        all_rows = np.concatenate([unused, positions])
        return super().for_file(tensors | {POSITION_TABLE: all_rows}, model)

    def settings_of(self, config, tensors, instead=()):
        """Our settings; the length is that of all rows of the table without those of no token."""
        settings = super().settings_of(config, tensors, instead)
        if POSITION_TABLE in tensors and "max_len" not in instead:
            key = self.settings.key_of["max_len"]
            length = tensors[POSITION_TABLE].shape[0]
            n_rows = length + settings["pad_id"] + 1
            if check_int(key, config[key]) != n_rows:
                raise UserError(
                    f"config.json has {key}={shown(config[key])}, "
                    f"expected {n_rows}, the number of rows of {POSITION_TABLE}"
                )
            settings["max_len"] = length
        return settings

    def extra_keys_for(self, model):
        """Also that number of rows."""
        n_rows = model.max_len + model.pad_id + 1
        return super().extra_keys_for(model) | {"max_position_embeddings": n_rows}


class XLMRoberta(Roberta):
    """Names and settings of ``XLMRobertaModel`` (Conneau et al. 2020), of a hundred languages."""

    name, title = "xlm-roberta", "XLMRoberta"


class DistilBert(Bert):
    """Names and settings of ``DistilBertModel`` (Sanh et al. 2019).

    It is a BERT of half the depth, without types.
    """

    name, title = "distilbert", "DistilBert"
    names = parse_table("""
        embedding                      embeddings.word_embeddings
        positions                      embeddings.position_embeddings
        embedding_norm                 embeddings.LayerNorm
        layers.{}.attention.qkv        transformer.layer.{}.attention.q_lin
                                       transformer.layer.{}.attention.k_lin
                                       transformer.layer.{}.attention.v_lin
        layers.{}.attention.out        transformer.layer.{}.attention.out_lin
        layers.{}.attention_norm       transformer.layer.{}.sa_layer_norm
        layers.{}.feed_forward.hidden  transformer.layer.{}.ffn.lin1
        layers.{}.feed_forward.out     transformer.layer.{}.ffn.lin2
        layers.{}.feed_forward_norm    transformer.layer.{}.output_layer_norm
        pooler                         pre_classifier
        words.hidden                   vocab_transform
        words.norm                     vocab_layer_norm
        after_pooling.{}               after_pooling.{}
        output                         classifier
        """)
    # The table of positions is stored, however it was made (sinusoidal_pos_embds).
    settings = parse_settings(
        """
        vocab          vocab_size
        d_model        dim
        n_heads        n_heads
        n_layers       n_layers
        d_ff           hidden_dim
        max_len        max_position_embeddings
        activation     activation               "gelu"
        dropout        dropout                  0.1
        inner_dropout  attention_dropout        0.1
        pad_id         pad_token_id             0
        """,
        OF_ALL,
        """
        n_types            =  0
        eps                =  1e-12
        pooler_activation  =  "relu"

        harmless  sinusoidal_pos_embds tie_weights_
        """,
    )
    prefix = "distilbert."
    heads = ("vocab_", "pre_classifier", "classifier")
    output_of_words, bias_of_words = "vocab_projector", "vocab_projector.bias"

    def extra_rules(self, config):
        """Dropout before the classifier is that of the sublayers, here."""
        return warned_unless({"seq_classif_dropout": 0.2, "qa_dropout": 0.1})
