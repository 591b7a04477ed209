"""Read a model of another library, or write one for it."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.checks import shown, warn
from npformer.files.checkpoint import CheckpointError, import_safetensors, refusing
from npformer.files.folders import check_finished, new_file, new_files
from npformer.files.paths import MISSING, check_path, kind_of_file, path_to_replace
from npformer.models.encoder import Encoder
from npformer.models.language_model import LanguageModel
from npformer.models.low_rank import LowRank
from npformer.operations.options import settings_from
from npformer.pretrained.bert import Bert, DistilBert, Roberta, XLMRoberta
from npformer.pretrained.family import Family, Stored, check_names
from npformer.pretrained.files import (
    CONVERTING,
    INDEX,
    OTHER_WEIGHTS,
    TENSORS,
    read_json,
    tensors_in,
    tensors_of,
)
from npformer.pretrained.gguf_file import read_gguf
from npformer.pretrained.gpt2 import GPT2
from npformer.pretrained.keys import check_keys
from npformer.pretrained.llama import Llama, Mistral, Qwen2, Qwen3
from npformer.pretrained.marian import Marian
from npformer.pretrained.pytorch import PyTorch, family_of_state, tensors_of_state
from npformer.pretrained.sentences import sentence_modules, sentence_texts
from npformer.pretrained.tokenizer import FILES, Tokenizer, ends_in, tokenizer_of, tokenizer_of_gguf

# What names of tensors end with, if a library has quantised them.
QUANTISED = {
    ".qweight": "GPTQ or AWQ",
    ".qzeros": "GPTQ or AWQ",
    ".absmax": "bitsandbytes",
    ".SCB": "bitsandbytes",
}
NO_MODEL = "it is no GGUF or safetensors file, and no folder with config.json"
NO_DOWNLOAD = "nothing is downloaded, so it has to be a folder or a file"
# The names of adapters' tensors begin with this; the type of their model in config.json, which no
# other library knows.
ADAPTERS, OF_ADAPTERS = "adapters.", "npformer_adapters"
CLASSES = (GPT2, Llama, Mistral, Qwen2, Qwen3, Bert, Roberta, XLMRoberta, DistilBert, Marian)
FAMILIES = {family.name: family() for family in CLASSES}


def load(path: Any, *, names: dict | None = None, model: Any = None, **settings: Any) -> tuple[Any, dict, Any]:
    """Load a model that another library has saved, as GPT-2, Llama, Qwen, BERT or RoBERTa.

    Nothing is downloaded, nothing in a file is executed, and a file that was forged takes no more
    memory than its own size allows. Tables in ``npformer.pretrained.keys`` say of each key of a
    file whether it is read, whether it changes no number, or which values are supported. A file
    with another value is refused, and a key that no table has, or whose value would only change a
    training or the choice of a text, is named in a warning. Options of sampling, such as the
    temperature in generation_config.json, are not taken from files.

    Parameters
    ----------
    path : str, Path or dict
        A folder as the library transformers writes it: config.json, model.safetensors or several
        files of it, and a tokenizer. Or a GGUF file with a Llama or Qwen, also quantised. Or the state dict
        of an ``nn.Transformer``, as a safetensors file or as a dict of arrays.
    names : dict, optional
        For a state dict: the modules that are the "source_embedding", the "target_embedding" and
        the "output", and, if positions are learned, the modules or parameters that are
        "source_positions" and "target_positions". With ``model`` they are the "embedding", the
        "positions" and the "output". (To save, also that which is the "transformer", if it has a
        name.)
    model : LanguageModel or Encoder, optional
        The class that the state dict of an ``nn.TransformerEncoder`` becomes: LanguageModel if a
        mask hides the future, or else Encoder. A state dict does not say it. The output of an
        Encoder gives scores for each position; with ``pooling="mean"`` or "first" for each
        sequence.
    **settings
        Of the model, in place of those in the file: ``dropout=0.0``, ``max_len=512``. The ``dtype``
        is "float32" if it is not given, whatever the file has; with "float16" the parameters take
        half the memory, and each operation converts what it reads. A state dict needs at least
        ``n_heads``, and all that its shapes do not show and that is not PyTorch's default: "norm",
        "activation", "pad_id", "scale_embeddings", and "positions", unless learned ones are named
        or the program keeps a table of sines as a buffer, which it is then taken to add. Where a
        normalisation or the output has no bias, as in ``nn.Transformer(bias=False)``, the
        parameters have zeros.

    Returns
    -------
    model : LanguageModel, Encoder or Transformer
    params : nested dict
        In the dtype of the model, or in float16.
    tokenizer
        With ``encode(text)``, ``decode(ids)``, ``bos_id``, ``eos_id`` and ``pad_id``; ``eos_ids``
        are all tokens that end a text, as config.json, generation_config.json and the tokenizer
        say. None if there is none.

    Raises
    ------
    CheckpointError
        If the file is damaged, or if it holds something that is not supported; the error says what
        is.
    FileNotFoundError
        If there is no such file or folder.

    Notes
    -----
    A language model of transformers reads the id of the padding like any other id, and a mask says
    what is padding. So ``pad_id`` becomes that of the file only if the tokenizer says that no text
    has it: not if it is also the id of ``<unk>``, or of the begin or the end of a text, and not
    without a tokenizer. ``load(…, pad_id=0)`` hides id 0.

    Which of several files is read is as in transformers: model.safetensors before an index of
    several files, tokenizer.json before vocab.json with merges.txt or vocab.txt,
    chat_template.jinja and additional_chat_templates before templates in tokenizer_config.json.
    """
    if not isinstance(path, dict) and kind_of_file(check_path(path)) == MISSING:
        getting = "git clone https://huggingface.co/NAME makes a folder, and so does save_pretrained of transformers"
        raise FileNotFoundError(f"there is no {path}: {NO_DOWNLOAD}; {getting}")
    with refusing("the dict" if isinstance(path, dict) else path, "see help(npformer.pretrained.load)"):
        try:
            return _load(path if isinstance(path, dict) else Path(path), names, model, settings)
        except OSError as error:
            raise ValueError(f"it cannot be read: {error}") from error
        except (KeyError, IndexError, AttributeError) as error:
            # Settings have other types than are expected.
            raise ValueError(f"something is missing, or has another form: {type(error).__name__} {error}") from error


def _load(path, names, kind, settings):
    config, tensors, about = opened(path)
    if names is not None and config is not None:
        raise ValueError("names are given, expected None for a model with config.json")
    if kind is not None and config is not None:
        raise ValueError(f"model={shown(kind)}, expected None for a model with config.json, which says what it is")
    family = family_of_state(names or {}, tensors, kind) if config is None else family_of(config)
    if config is None and "n_heads" not in settings:
        raise ValueError("the shapes of a state dict do not show the number of heads: give n_heads=…")
    if config is not None and family.model is Encoder and "pooling" not in config:  # which npformer alone writes
        modules, of_modules = sentence_modules(about, config.get(family.keys()["d_model"][0]))
        config |= modules
        tensors |= of_modules
    adapters = {name: tensors.pop(name) for name in [*tensors] if name.startswith(ADAPTERS)}
    tensors = family.arriving(tensors, config)
    found = family.settings_of(config, tensors, settings)
    begin_id = found["tgt_vocab"] - 1 if isinstance(family, Marian) else None
    tokenizer = tokenizer_in(about, config, begin_id, family)
    if config is not None and "pad_id" not in settings:
        found["pad_id"] = padding_of(family, config, found["pad_id"], tokenizer)
    half = {"dtype": "float32"} if settings.get("dtype") == "float16" else {}
    model = settings_from(family.model, found | settings | half, family.model.__name__)
    params = family.read(model, tensors, settings.get("dtype", model.dtype))
    if config is not None and "adapters" in config:
        model, params = with_adapters(model, params, config["adapters"], adapters)
    return model, params, tokenizer


def with_adapters(model, params, about, tensors):
    """A model with adapters, and their parameters."""
    targets = about["targets"] if about["targets"] is None else tuple(about["targets"])
    adapted = LowRank(model, params, about["rank"], about["alpha"], targets, tuple(about["whole"]))
    shapes = dict(tree.leaves(adapted.shapes()))
    stored = {name.removeprefix(ADAPTERS): x for name, x in tensors.items()}
    check_names(shapes, stored)
    own = {path: np.empty(x.shape, model.dtype) for path, x in shapes.items()}
    for path, out in own.items():
        stored[path].into(out)
    return adapted, tree.from_leaves(own.items())


def tokenizer_in(about, config, begin_id, family):
    """The tokenizer of a folder or of a GGUF file, with all tokens that end a text; or None."""
    if about is None:
        return None
    if isinstance(about, dict):
        return tokenizer_of_gguf(about)
    tokenizer = tokenizer_of(about, config, begin_id)
    generation = {}
    if (about / "generation_config.json").exists():
        generation = read_json(about / "generation_config.json")
        check_keys(generation, family.rules(config), "generation_config.json")
    if isinstance(tokenizer, Tokenizer):
        ends = [*tokenizer.eos_ids, *ends_in(generation, config)]
        size = config.get("vocab_size")
        tokenizer.eos_ids = tuple(id_ for id_ in dict.fromkeys(ends) if not isinstance(size, int) or id_ < size)
        if family.model is Encoder:
            tokenizer.sentences = sentence_texts(about)
            if tokenizer.sentences.lower_case:
                tokenizer.lower_case()
    return tokenizer


def padding_of(family, config, pad_id, tokenizer):
    """The id that is padding wherever it stands.

    A language model of transformers reads the id ``pad_token_id`` like any other; a mask says what
    is padding. So here it is padding only if texts do not have it, as the tokenizer says, or if
    npformer has written the file.
    """
    theirs = None if tokenizer is None else tokenizer.pad_id
    if family.model is Encoder and pad_id is not None and theirs not in (None, pad_id):
        warn(f"config.json has pad_token_id={shown(pad_id)}, but the tokenizer pads with {theirs}, which is taken")
        return theirs
    if family.model is not LanguageModel or pad_id is None or config.get("pad_id") == pad_id:
        return pad_id
    ends = ends_in(config) if tokenizer is None else [*tokenizer.eos_ids, tokenizer.bos_id]
    if pad_id in ends:
        return None  # it ends turns in the middle of a text: there it is read
    if tokenizer is None or pad_id == tokenizer.unk_id or theirs != pad_id:
        why = "it has no tokenizer that says so" if tokenizer is None else "texts have this token, too"
        warn(
            f"pad_token_id={shown(pad_id)} is not hidden as padding, as {why}; load(…, pad_id={shown(pad_id)}) hides it"
        )
        return None
    return pad_id


def opened(path: Path | dict) -> tuple[dict | None, dict[str, Stored], Any]:
    """The settings and the tensors of a file or folder, and where its tokenizer is: a folder, or a dict."""
    if isinstance(path, dict):
        return None, tensors_of_state(path), None
    if path.is_dir():
        return opened_folder(path)
    folder = path.parent
    if path.suffix == ".gguf":
        return read_gguf(path)
    if path.suffix == ".safetensors" and not (folder / "config.json").is_file():
        return None, tensors_in(path), None
    is_of_a_folder = path.suffix in (*OTHER_WEIGHTS, ".safetensors", ".json")
    if is_of_a_folder and (folder / "config.json").is_file():
        family_of(read_json(folder / "config.json"))  # named before the kind of the file
        if path.suffix not in OTHER_WEIGHTS:
            raise ValueError(f"{path.name} is a part of a model: give its folder, {folder}")
    if path.suffix in OTHER_WEIGHTS:
        raise ValueError(f"{path.suffix} files are not read, as they may hold programs{CONVERTING}")
    raise ValueError(NO_MODEL)


def opened_folder(path: Path) -> tuple[dict, dict[str, Stored], Path]:
    """The settings, the tensors and the place of the tokenizer, of a folder as transformers writes it."""
    if not (path / "config.json").is_file():
        if (path / "adapter_config.json").is_file():
            merging = "merge_and_unload() of peft, then save_pretrained(…)"
            raise ValueError(f"adapter_config.json: it holds adapters without their model; {merging} makes one folder")
        raise ValueError(NO_MODEL)
    check_finished(path)
    config = read_json(path / "config.json")
    if config.get("model_type") == OF_ADAPTERS:
        config["model_type"] = config.pop("base_model_type")
    family_of(config)  # whatever else may be wrong, a family that is not known is named first
    tensors = tensors_of(path)
    check_not_quantised(path, config, tensors)
    return config, tensors, path


def check_not_quantised(path: Path, config: dict, tensors: dict) -> None:
    """Raise if the weights have few bits, as GPTQ, AWQ or bitsandbytes store them."""
    about = config.get("quantization_config")
    if isinstance(about, dict):
        of_bits = next((key for key in ("load_in_4bit", "load_in_8bit") if about.get(key)), None)
        how = about.get("quant_method") or ("bitsandbytes" if of_bits else shown(about))
    else:
        how = next(
            (name for ending, name in QUANTISED.items() if any(x.endswith(ending) for x in tensors)),
            None,
        )
    if how is None:
        return
    advice = "load the model that was quantised, a GGUF file of it, or what dequantize() of transformers saves"
    raise ValueError(f"its weights are quantised: quantization_config is of {how}, supported are floats; {advice}")


def family_of(config: dict) -> Family:
    """The family of a model with this config.json."""
    name = config.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"config.json has model_type={shown(name)}, supported are {', '.join(FAMILIES)}")
    return FAMILIES[name]


def save(path: Any, model: Any, params: dict, tokenizer: Any = None, *, names: dict | None = None) -> None:
    """Write a model for the library transformers: what ``load`` reads.

    Adapters, and how an encoder without a task makes one vector of a text, are read by npformer
    alone; a warning says so. The parameters that ``model.merged`` returns, with ``model.model``,
    are for both, and so are ``model.labels``.

    Whatever interrupts this, the folder holds the complete old model or the complete new one; other
    files in it stay. (If it has folders in it, or where two folders cannot be exchanged, which
    Linux can on most disks, an interruption in its last moments may leave some files of each; then
    ``load`` refuses the folder.) No other program may make a file in it meanwhile.

    Parameters
    ----------
    path : str or Path
        A folder, which is made; or, for the state dict of an ``nn.Transformer``, a file
        .safetensors.
    model : LanguageModel, Encoder or Transformer
        Whose settings are those of GPT-2, Llama, BERT or Marian; or a ``LowRank`` of one.
    params : nested dict
    tokenizer
        That ``load`` has returned; its files are written, too. If it is not given, that of an older
        model stays.
    names : dict, optional
        For a state dict: see ``load``.

    Raises
    ------
    ValueError
        If no family has such a model; the error says why.
    CheckpointError
        If it cannot be written, for example because the disk is full.
    """
    safetensors = import_safetensors()
    adapted, adapters = None, {}
    if isinstance(model, LowRank):
        tree.check_like(params, model.shapes(), dtypes=False)
        adapted, adapters = (
            model,
            tree.to_arrays(tree.map_leaves(on_host, params), ADAPTERS.rstrip(".")),
        )
        model, params = adapted.model, adapted.base_params
    if tokenizer is not None and not getattr(tokenizer, "files", None):
        kind = type(tokenizer).__name__
        raise TypeError(f"tokenizer is a {kind}, expected one that npformer.pretrained.load has returned")
    if names is None:
        path = path_to_replace(path, "a folder")
        family, config = fitting(model)
        if adapted is not None:
            config |= {"model_type": OF_ADAPTERS, "base_model_type": family.name}
            config["adapters"] = {name: getattr(adapted, name) for name in ("rank", "alpha", "targets", "whole")}
    else:
        path = path_to_replace(path, "a file")
        family = PyTorch(names)
        family.check(model)
    end = getattr(tokenizer, "eos_id", None)
    if isinstance(model, LanguageModel) and end is not None and model.pad_id == end:
        raise ValueError(f"pad_id={end} is the tokenizer's end token, which ``load`` reads in a text: expected None")
    tree.check_like(params, model.shapes(), dtypes=False)
    tensors = family.leaving(family.write(model, params), model)
    tensors = {name: np.ascontiguousarray(x) for name, x in (tensors | adapters).items()}
    if why := of_npformer_alone(model, adapted):
        warn(f"npformer alone reads {why}, the library transformers does not")
    try:
        if names is None:
            _save_folder(path, config | {"dtype": model.dtype}, tensors, tokenizer)
        else:
            with new_file(path) as new:
                safetensors.numpy.save_file(tensors, new)
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path} could not be saved: {error}") from error


def of_npformer_alone(model, adapted):
    """What of a model no other library reads, or ""."""
    if adapted is not None:
        return "a model with adapters"
    if isinstance(model, Encoder) and model.task is None and (model.pooling != "mean" or model.after_pooling):
        return "how a text becomes one vector"
    return ""


def _save_folder(path, config, tensors, tokenizer):
    files = getattr(tokenizer, "files", {})
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_id", None) for name in ("bos", "eos")}
    if len(ends := getattr(tokenizer, "eos_ids", ())) > 1:
        ids["eos_token_id"] = list(ends)
    # What an older model left: an index of its files of weights, or a tokenizer of another kind,
    # would be read first.
    obsolete = {INDEX, *FILES} - files.keys() if files else {INDEX}
    with new_files(path, obsolete) as new:
        (new / "config.json").write_text(json.dumps(config | ids, indent=2) + "\n", "utf-8")
        import_safetensors().numpy.save_file(tensors, new / TENSORS, {"format": "pt"})
        for name, data in files.items():
            (new / name).write_bytes(data)


def fitting(model: Any) -> tuple[Family, dict]:
    """The family of a model, and its config.json."""
    reasons = []
    for name, family in FAMILIES.items():
        if isinstance(model, family.model):
            try:
                return family, family.config_of(model)
            except ValueError as error:
                reasons.append(f"it is no {name}, as {error}")
    raise ValueError("; ".join(reasons) or f"a {type(model).__name__} is none of {', '.join(FAMILIES)}")
