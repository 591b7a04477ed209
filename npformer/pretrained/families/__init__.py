"""The families of models whose files are read and written.

Each is a class in a file here, or beside the one that it resembles: what its parameters are called
(``names``), what its config.json says (``settings``), and, as methods, what no table can say. To
add one is to write the class and to name it in ``CLASSES``.
"""

from typing import Any

from npformer.errors import UserError
from npformer.pretrained.families.bert import Bert, DistilBert, Roberta, XLMRoberta
from npformer.pretrained.families.family import Family
from npformer.pretrained.families.gpt2 import GPT2
from npformer.pretrained.families.llama import Llama, Mistral, Qwen2, Qwen3
from npformer.pretrained.families.marian import Marian
from npformer.pretrained.rules import check_supported

CLASSES = (GPT2, Llama, Mistral, Qwen2, Qwen3, Bert, Roberta, XLMRoberta, DistilBert, Marian)
FAMILIES = {family.name: family() for family in CLASSES}


def family_of(config: dict) -> Family:
    """The family of a model with this config.json."""
    name: Any = config.get("model_type")
    check_supported("config.json has model_type", name, FAMILIES)
    return FAMILIES[name]


def fitting(model, preferred: str | None = None) -> tuple[Family, dict]:
    """The family of a model, and its config.json.

    Where several have such a model, it is the ``preferred`` one: an XLM-RoBERTa is a RoBERTa, too.
    """
    reasons = []
    for name in sorted(FAMILIES, key=lambda name: name != preferred):
        family = FAMILIES[name]
        if isinstance(model, family.model):
            try:
                return family, family.config_of(model)
            except UserError as error:
                reasons.append(f"it is no {name}, as {error}")
    kind = type(model).__name__
    raise UserError("; ".join(reasons) or f"a {kind} is none of {', '.join(FAMILIES)}")
