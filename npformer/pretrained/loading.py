"""Read a model of another library, or write one for it."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from npformer import tree
from npformer.checks import shown
from npformer.files.checkpoint import CheckpointError, import_safetensors, refusing
from npformer.files.folders import check_finished, new_file, new_files
from npformer.files.paths import MISSING, check_path, kind_of_file, path_to_replace
from npformer.models.language_model import LanguageModel
from npformer.operations.options import settings_from
from npformer.pretrained.bert import Bert
from npformer.pretrained.family import Family, Stored
from npformer.pretrained.files import INDEX, TENSORS, read_json, tensors_in, tensors_of
from npformer.pretrained.gguf_file import read_gguf
from npformer.pretrained.gpt2 import GPT2
from npformer.pretrained.llama import Llama, Mistral
from npformer.pretrained.marian import Marian
from npformer.pretrained.pytorch import PyTorch
from npformer.pretrained.tokenizer import FILES, tokenizer_of, tokenizer_of_gguf

FAMILIES = {family.name: family() for family in (GPT2, Llama, Mistral, Bert, Marian)}


def load(path: Any, *, names: dict | None = None, **settings: Any) -> tuple[Any, dict, Any]:
    """Load a model that another library has saved: GPT-2, Llama, BERT, Marian, or PyTorch's ``nn.Transformer``.

    Nothing in a file is executed, and a file that was forged takes no more memory than its own size allows.

    Parameters
    ----------
    path : str, Path or dict
        A folder as the library transformers writes it: config.json, model.safetensors or several files of it, and a
        tokenizer. Or a GGUF file with a Llama, also quantised. Or the state dict of an ``nn.Transformer``, as a
        safetensors file or as a dict of arrays.
    names : dict, optional
        For a state dict: the modules that are the "source_embedding", the "target_embedding" and the "output". (To
        save, also that which is the "transformer", if it has a name.)
    **settings
        Of the model, in place of those in the file: ``dropout=0.0``, ``max_len=512``. The ``dtype`` is "float32" if it
        is not given, whatever the file has; with "float16" the parameters take half the memory, and each operation
        converts what it reads. A state dict needs at least ``n_heads``, and all that its shapes do not show and that is
        not PyTorch's default: "norm", "activation", "pad_id", "positions".

    Returns
    -------
    model : LanguageModel, Encoder or Transformer
    params : nested dict
        In the dtype of the model, or in float16.
    tokenizer
        With ``encode(text)``, ``decode(ids)``, ``bos_id``, ``eos_id`` and ``pad_id``; None if there is none.

    Raises
    ------
    CheckpointError
        If the file is damaged, or if it holds something that is not supported; the error says what is.
    """
    if not isinstance(path, dict) and kind_of_file(check_path(path)) == MISSING:
        raise FileNotFoundError(f"there is no {path}")
    with refusing("the dict" if isinstance(path, dict) else path, "see help(npformer.pretrained.load)"):
        try:
            return _load(path if isinstance(path, dict) else Path(path), names, settings)
        except OSError as error:
            raise ValueError(f"it cannot be read: {error}") from error
        except (KeyError, IndexError, AttributeError) as error:  # of settings of other types than are expected
            raise ValueError(f"something is missing, or has another form: {type(error).__name__} {error}") from error


def _load(path, names, settings):
    config, tensors, about = opened(path)
    if names is not None and config is not None:
        raise ValueError("names are given, expected None for a model with config.json")
    family = PyTorch(names or {}, tensors) if config is None else family_of(config)
    if config is None and "n_heads" not in settings:
        raise ValueError("the shapes of a state dict do not show the number of heads: give n_heads=…")
    tensors = family.arriving(tensors, config)
    found = family.settings_of(config, tensors, settings)
    half = {"dtype": "float32"} if settings.get("dtype") == "float16" else {}
    model = settings_from(family.model, found | settings | half, family.model.__name__)
    params = family.read(model, tensors, settings.get("dtype", model.dtype))
    if isinstance(about, dict):
        return model, params, tokenizer_of_gguf(about)
    begin_id = model.tgt_vocab - 1 if isinstance(family, Marian) else None
    return model, params, about and tokenizer_of(about, config, begin_id)


def opened(path: Path | dict) -> tuple[dict | None, dict[str, Stored], Any]:
    """The settings and the tensors of a file or folder, and where its tokenizer is: a folder, or a dict."""
    if isinstance(path, dict):
        arrays = {name: np.asarray(x) for name, x in path.items()}  # also of tensors of PyTorch
        return None, {name: Stored(x.shape, x.__getitem__) for name, x in arrays.items()}, None
    suffix = "" if path.is_dir() else path.suffix
    if suffix == ".gguf":
        return read_gguf(path)
    if suffix == ".safetensors":
        return None, tensors_in(path), None
    if not (path / "config.json").is_file():
        raise ValueError("it is no GGUF or safetensors file, and no folder with config.json")
    check_finished(path)
    config = read_json(path / "config.json")
    family_of(config)  # whatever else may be wrong, a family that is not known is named first
    if "pooling" not in config and (path / "1_Pooling" / "config.json").is_file():
        config["pooling"] = read_json(path / "1_Pooling" / "config.json")
    return config, tensors_of(path), path


def family_of(config: dict) -> Family:
    """The family of a model with this config.json."""
    name = config.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"config.json has model_type={shown(name)}, supported are {', '.join(FAMILIES)}")
    return FAMILIES[name]


def save(path: Any, model: Any, params: dict, tokenizer: Any = None, *, names: dict | None = None) -> None:
    """Write a model for the library transformers: what ``load`` reads.

    Whatever interrupts this, the folder holds the complete old model or the complete new one; other files in it stay.
    (If it has folders in it, or where two folders cannot be exchanged, which Linux can on most disks, an interruption
    in its last moments may leave some files of each; then ``load`` refuses the folder.) No other program may make a
    file in it meanwhile.

    Parameters
    ----------
    path : str or Path
        A folder, which is made; or, for the state dict of an ``nn.Transformer``, a file .safetensors.
    model : LanguageModel, Encoder or Transformer
        Whose settings are those of GPT-2, Llama, BERT or Marian.
    params : nested dict
    tokenizer
        That ``load`` has returned; its files are written, too. If it is not given, that of an older model stays.
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
    if names is None:
        path = path_to_replace(path, "a folder")
        family, config = fitting(model)
    else:
        path = path_to_replace(path, "a file")
        family = PyTorch(names)
        family.check(model)
    end = getattr(tokenizer, "eos_id", None)
    if isinstance(model, LanguageModel) and end is not None and model.pad_id == end:
        raise ValueError(f"pad_id={end} is the tokenizer's end token, which ``load`` reads in a text: expected None")
    tree.check_like(params, model.shapes(), dtypes=False)
    tensors = family.leaving(family.write(model, params), model)
    tensors = {name: np.ascontiguousarray(x) for name, x in tensors.items()}
    try:
        if names is None:
            _save_folder(path, config | {"dtype": model.dtype}, tensors, tokenizer)
        else:
            with new_file(path) as new:
                safetensors.numpy.save_file(tensors, new)
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path} could not be saved: {error}") from error


def _save_folder(path, config, tensors, tokenizer):
    files = getattr(tokenizer, "files", {})
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_id", None) for name in ("bos", "eos")}
    # What an older model left: an index of its files of weights, or a tokenizer of another kind, would be read first.
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
