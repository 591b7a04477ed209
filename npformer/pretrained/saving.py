"""Write a model for the library transformers."""

import json
from typing import Any

import numpy as np

from npformer import tree
from npformer.checks import warn
from npformer.errors import UserError
from npformer.files.checkpoint import CheckpointError
from npformer.files.folders import new_file, new_files
from npformer.files.paths import path_to_replace
from npformer.models.encoder import Encoder
from npformer.models.language_model import LanguageModel
from npformer.models.low_rank import LowRank
from npformer.pretrained import adapters
from npformer.pretrained.families import fitting
from npformer.pretrained.families.pytorch import naming_to_save
from npformer.pretrained.files import INDEX_FILE, TENSORS_FILE, import_safetensors, json_in
from npformer.pretrained.sentences import PROMPTS_FILE, TEXTS_FILE, files_of_vector, sentence_texts
from npformer.pretrained.tokenizer_settings import (
    FILES_OF_TOKENIZER,
    GENERATION_FILE,
    files_of_tokenizer,
)
from npformer.tokens.tokenizers import Characters, Pieces, Tokens


def save(
    path: Any, model: Any, params: dict, tokenizer: Any = None, *, names: dict | None = None
) -> None:
    """Write a model for the library transformers: what ``load`` reads.

    Adapters, how an encoder without a task makes one vector of a text, and the tokenizers
    ``Characters`` and ``Pieces`` are read by npformer alone; a warning says so. The parameters that
    ``model.merged`` returns, with ``model.model``, are for both, and so are ``model.labels``.

    Whatever interrupts this, the folder holds the complete old model or the complete new one; other
    files in it stay. (If it has folders in it, or where two folders cannot be exchanged, which
    Linux can on most disks, an interruption in its last moments may leave some files of each; then
    ``load`` refuses the folder.) No other program may make a file in it meanwhile.

    What says in an older folder how sentence-transformers make one vector of a text is removed if
    an encoder with a task is saved: modules.json, config.json and weights of the modules that it
    names, sentence_bert_config.json (except for lower case) and config_sentence_transformers.json.

    Parameters
    ----------
    path : str or Path
        A folder, which is made; or, for the state dict of an ``nn.Transformer``, a file
        .safetensors.
    model : LanguageModel, Encoder or Transformer
        Whose settings are those of GPT-2, Llama, BERT or Marian; or a ``LowRank`` of one.
    params : nested dict
    tokenizer
        That ``load`` has returned, or ``Characters`` or ``Pieces`` of ``npformer.tokens``; its
        files are written, too. If it is not given, that of an older model stays.
    names : dict, optional
        For a state dict: see ``load``.

    Raises
    ------
    UserError
        If no family has such a model; the error says why.
    CheckpointError
        If it cannot be written, for example because the disk is full.
    """
    import_safetensors()
    path = path_to_replace(path, "a folder" if names is None else "a file")
    if tokenizer is not None and not isinstance(tokenizer, Tokens):
        raise TypeError(
            f"tokenizer is a {type(tokenizer).__name__}, "
            "expected one that npformer.pretrained.load has returned, Characters or Pieces"
        )
    try:
        if names is None:
            _save_folder(path, model, params, tokenizer)
        else:
            _save_state(path, model, params, names)
    except (OSError, import_safetensors().SafetensorError) as error:
        raise CheckpointError(f"{path} could not be saved: {error}") from error


def _save_state(path, model, params, names):
    """Write the state dict of an ``nn.Transformer``."""
    naming = naming_to_save(names)
    naming.check(model)
    tensors = tensors_for_others(naming, model, params)
    with new_file(path) as new:
        write_tensors(new, tensors)


def _save_folder(path, model, params, tokenizer):
    """Write config.json, the tensors, and the files of the tokenizer."""
    body = model.model if isinstance(model, LowRank) else model
    tokens = Tokens() if tokenizer is None else tokenizer
    family, config = fitting(body, tokens.family)
    check_padding_is_no_end(body, tokens)
    ends = tokens.eos_ids
    config["dtype"] = body.dtype
    config["bos_token_id"] = tokens.bos_id
    config["eos_token_id"] = list(ends) if len(ends) > 1 else tokens.eos_id
    if isinstance(model, LowRank):
        config |= adapters.config_of(model, family.name)
        tensors = tensors_for_others(family, body, model.base_params)
        tensors |= adapters.tensors_of(model, params)
    else:
        tensors = tensors_for_others(family, model, params)
    alone = of_npformer_alone(model, tokenizer)
    if alone:
        warn(f"npformer alone reads {alone}, the library transformers does not")
    files = dict(tokens.files)
    # What an older model left: an index of its files of weights, or a tokenizer of another kind,
    # would be read first.
    obsolete = [INDEX_FILE, *FILES_OF_TOKENIZER] if files else [INDEX_FILE]
    if isinstance(body, Encoder) and body.task is not None:  # its output reads the vector as it is
        obsolete += files_of_vector(path)
        files = files_of_texts(files, tokenizer, path)
    obsolete = [name for name in obsolete if name not in files]
    files |= generation_config(family, config, files, path)
    with new_files(path, obsolete) as new:
        (new / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
        write_tensors(new / TENSORS_FILE, tensors, {"format": "pt"})
        for name, data in files.items():
            (new / name).write_bytes(data)


def check_padding_is_no_end(model, tokenizer):
    """Raise if ``load`` would read the padding of a language model as the end of a text."""
    end = tokenizer.eos_id
    if isinstance(model, LanguageModel) and end is not None and model.pad_id == end:
        raise UserError(
            f"pad_id={end} is the tokenizer's end token, which ``load`` reads in a text: "
            "expected None"
        )


def files_of_texts(files, tokenizer, path):
    """The files of a tokenizer for a model with an output, whose texts are cut at no length but its
    own and have no prompts. Lower case stays, as the tokens of its training had it.
    """
    files = {name: data for name, data in files.items() if name not in (TEXTS_FILE, PROMPTS_FILE)}
    of_texts = getattr(tokenizer, "sentences", None)
    if tokenizer is None:  # that of the older model stays
        of_texts = sentence_texts(files_of_tokenizer(path))
    if of_texts is not None and of_texts.lower_case:
        files[TEXTS_FILE] = json.dumps({"do_lower_case": True}).encode()
    return files


def generation_config(family, config, files, path):
    """generation_config.json, if it is there and decides other than config.json.

    It is among the files of the tokenizer, or else it stays in the folder.
    """
    if not family.of_generation:  # then nothing is read, and a damaged file of a folder is no error
        return {}
    files = files or files_of_tokenizer(path)
    if GENERATION_FILE not in files:
        return {}
    about = json_in(files, GENERATION_FILE)
    decided = {key: config[key] for key in family.of_generation}
    if all(about.get(key) == value for key, value in decided.items()):
        return {}
    return {GENERATION_FILE: json.dumps(about | decided, indent=2).encode()}


def tensors_for_others(naming, model, params):
    """The tensors of a file, of a model of ours."""
    tree.check_like(params, model.shapes(), dtypes=False)
    return naming.for_file(naming.write(model, params), model)


def write_tensors(path, tensors, about=None):
    """Write a safetensors file, whose library reads arrays as if they had no gaps."""
    whole = {name: np.ascontiguousarray(x) for name, x in tensors.items()}
    import_safetensors().numpy.save_file(whole, path, about)


def of_npformer_alone(model, tokenizer):
    """What no other library reads, or ""."""
    parts = []
    if isinstance(model, LowRank):
        parts.append("a model with adapters")
    has_vector = isinstance(model, Encoder) and model.task is None
    if has_vector and (model.pooling != "mean" or model.after_pooling):
        parts.append("how a text becomes one vector")
    if isinstance(tokenizer, (Characters, Pieces)):
        parts.append("its tokenizer")
    return " and ".join(parts)
