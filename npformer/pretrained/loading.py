"""Read a model of another library."""

from pathlib import Path
from typing import Any

import numpy as np

from npformer import tree
from npformer.checks import shown, warn
from npformer.files.checkpoint import refusing
from npformer.files.folders import check_finished
from npformer.files.paths import MISSING, check_path, kind_of_file
from npformer.models.encoder import Encoder
from npformer.models.language_model import LanguageModel
from npformer.models.low_rank import LowRank
from npformer.operations.options import settings_from
from npformer.pretrained.families import family_of
from npformer.pretrained.family import check_names
from npformer.pretrained.files import (
    CONVERTING,
    OTHER_WEIGHTS,
    Found,
    gguf_names,
    json_or_empty,
    only_gguf,
    read_json,
    tensors_in,
    tensors_of,
)
from npformer.pretrained.gguf_file import read_gguf
from npformer.pretrained.keys import check_keys, listed
from npformer.pretrained.marian import Marian
from npformer.pretrained.pytorch import family_of_state, tensors_of_state
from npformer.pretrained.sentences import (
    sentence_modules,
    sentence_texts,
)
from npformer.pretrained.tokenizer import (
    GENERATION,
    Tokenizer,
    ends_in,
    files_of_tokenizer,
    tokenizer_of,
    warn_of_others,
)

# What names of tensors end with, if a library has quantised them.
QUANTISED = {
    ".qweight": "GPTQ or AWQ",
    ".qzeros": "GPTQ or AWQ",
    ".absmax": "bitsandbytes",
    ".SCB": "bitsandbytes",
    ".weight_scale": "FP8",
    ".weight_scale_inv": "FP8",
}
NO_MODEL = "it is no GGUF or safetensors file, and no folder with config.json"
GETTING = """nothing is downloaded, so it has to be a folder or a file; \
git clone https://huggingface.co/NAME makes a folder, and so does save_pretrained of transformers"""
COMPILED = "_orig_mod."  # which torch.compile puts into names
PARALLEL = "module."  # with which DistributedDataParallel begins them
FORCED = "forced_eos_token_id"
# The names of adapters' tensors begin with this; the type of their model in config.json, which no
# other library knows.
ADAPTERS, OF_ADAPTERS = "adapters.", "npformer_adapters"


def load(
    path: Any, *, names: dict | None = None, model: Any = None, **settings: Any
) -> tuple[Any, dict, Any]:
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
        files of it, and a tokenizer. Or a GGUF file with a Llama or Qwen, also quantised, or a
        folder without config.json with one such file. Or the state dict of an ``nn.Transformer``,
        as a safetensors file or as a dict of arrays.
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
        raise FileNotFoundError(missing(Path(path)))
    what = "the dict" if isinstance(path, dict) else path
    with refusing(what, "see help(npformer.pretrained.load)"):
        try:
            return _load(path, names, model, settings)
        except OSError as error:
            raise ValueError(f"it cannot be read: {error}") from error
        except (KeyError, IndexError, AttributeError) as error:
            # Settings have other types than are expected.
            reason = f"{type(error).__name__} {error}"
            raise ValueError(f"something is missing, or has another form: {reason}") from error


def load_merged(path: Any) -> tuple[Any, dict, Any]:
    """What ``load`` returns, but of a model with adapters the model itself, with merged parameters:
    it can be used, not trained further.
    """
    model, params, tokenizer = load(path)
    if isinstance(model, LowRank):
        params = model.merged(params)
        model = model.model
    return model, params, tokenizer


def missing(path: Path) -> str:
    """Why there is no model at a path that leads to nothing."""
    folder = path.parent
    if path.suffix in (".gguf", *OTHER_WEIGHTS) and kind_of_file(folder) == "a folder":
        return f"there is no {path}: {folder} has {listed(gguf_names(folder)) or 'no .gguf file'}"
    return f"there is no {path}: {GETTING}"


def _load(path, names, kind, settings):
    if isinstance(path, dict):
        found = Found(None, tensors_of_state(path))
    else:
        found = opened(Path(path))
    tensors = plain_names(found.tensors)
    if found.config is None:
        return *_load_state(tensors, names, kind, settings), None
    if names is not None:
        raise ValueError("names are given, expected None for a model with config.json")
    if kind is not None:
        expected = "None for a model with config.json, which says what it is"
        raise ValueError(f"model={shown(kind)}, expected {expected}")
    return _load_model(found._replace(tensors=tensors), settings)


def _load_state(tensors, names, kind, settings):
    """The model and the parameters of a state dict."""
    modules = {role: plain_name(module) for role, module in (names or {}).items()}
    family = family_of_state(modules, tensors, kind)
    if "n_heads" not in settings:
        shapes = "the shapes of a state dict do not show the number of heads"
        raise ValueError(f"{shapes}: give n_heads=…")
    tensors = family.arriving(tensors, {})
    ours = family.settings_of({}, tensors, settings)
    return built(family, ours, tensors, settings)


def _load_model(found, settings):
    """The model, the parameters and the tokenizer, of files with config.json or a GGUF file."""
    config, tensors = found.config, found.tensors
    family = family_of(config)
    if family.model is Encoder and "pooling" not in config:  # which npformer alone writes
        width = config.get(family.settings["d_model"])
        modules, of_modules = sentence_modules(found.folder, found.files, width)
        config |= modules
        tensors |= of_modules
    adapters = {name: x for name, x in tensors.items() if name.startswith(ADAPTERS)}
    tensors = {name: x for name, x in tensors.items() if name not in adapters}
    tensors = family.arriving(tensors, config)
    generation = json_or_empty(found.files, GENERATION)
    if GENERATION in found.files and isinstance(family, Marian):
        config[FORCED] = generation.get(FORCED)  # as in transformers, whatever config.json says
    ours = family.settings_of(config, tensors, settings)
    check_keys(generation, family.rules(config), GENERATION)
    begin_id = ours["tgt_vocab"] - 1 if isinstance(family, Marian) else None
    tokenizer = tokenizer_of(found.files, config, begin_id)
    if tokenizer is None:
        warn_of_others(found.folder)
    if isinstance(tokenizer, Tokenizer):
        tokenizer.eos_ids = all_ends(tokenizer, ends_in(generation, config), config)
        if family.model is Encoder:
            tokenizer.use_for_vectors(sentence_texts(found.files))
    if "pad_id" not in settings:
        ours["pad_id"] = padding_of(family, config, ours["pad_id"], tokenizer)
    model, params = built(family, ours, tensors, settings)
    if tokenizer is not None:
        tokenizer.family = family.name
        warn_of_tokens_without_vectors(tokenizer, model)
    if "adapters" in config:
        model, params = with_adapters(model, params, config["adapters"], adapters)
    return model, params, tokenizer


def all_ends(tokenizer, ends, config):
    """The tokens that end a text, each once, without those that the model does not know."""
    size = config.get("vocab_size")
    ends = dict.fromkeys([*tokenizer.eos_ids, *ends])
    return tuple(id_ for id_ in ends if not isinstance(size, int) or id_ < size)


def plain_names(tensors):
    """The tensors by the names that they had before their module was wrapped."""
    plain = {plain_name(name): x for name, x in tensors.items()}
    if len(plain) < len(tensors):
        raise ValueError(
            f"tensors differ in {COMPILED} or {PARALLEL} alone, expected one of each name"
        )
    return plain


def plain_name(name):
    """A name without what torch.compile and DistributedDataParallel have put into it."""
    return name.replace(COMPILED, "").removeprefix(PARALLEL)


def built(family, ours, tensors, settings):
    """A model of ours and its parameters; ``settings`` are in place of those of its files."""
    all_settings = ours | settings
    if settings.get("dtype") == "float16":
        all_settings["dtype"] = "float32"  # in which it computes: the parameters alone are short
    model = settings_from(family.model, all_settings, family.model.__name__)
    return model, family.read(model, tensors, settings.get("dtype", model.dtype))


def with_adapters(model, params, about, tensors):
    """A model with adapters, and their parameters."""
    targets = about["targets"]
    if targets is not None:
        targets = tuple(targets)
    whole = tuple(about["whole"])
    adapted = LowRank(model, params, about["rank"], about["alpha"], targets, whole)
    shapes = dict(tree.leaves(adapted.shapes()))
    stored = {name.removeprefix(ADAPTERS): x for name, x in tensors.items()}
    check_names(shapes, stored)
    own = {path: np.empty(x.shape, model.dtype) for path, x in shapes.items()}
    for path, out in own.items():
        stored[path].into(out)
    return adapted, tree.from_leaves(own.items())


def padding_of(family, config, pad_id, tokenizer):
    """The id that is padding wherever it stands."""
    if pad_id is None or config.get("pad_id") == pad_id:  # npformer has written the file
        return pad_id
    if family.model is Encoder:
        return padding_of_encoder(pad_id, tokenizer)
    if family.model is LanguageModel:
        return padding_of_language_model(config, pad_id, tokenizer)
    return pad_id


def padding_of_encoder(pad_id, tokenizer):
    """The padding of the tokenizer, if it has one: texts are padded with it."""
    theirs = getattr(tokenizer, "pad_id", None)
    if theirs in (None, pad_id):
        return pad_id
    instead = f"but the tokenizer pads with {theirs}, which is taken"
    warn(f"config.json has pad_token_id={shown(pad_id)}, {instead}")
    return theirs


def padding_of_language_model(config, pad_id, tokenizer):
    """The padding, or None where it may be a token of a text.

    A language model of transformers reads the id ``pad_token_id`` like any other; a mask says what
    is padding. So here it is padding only if texts do not have it, as the tokenizer says.
    """
    ends = ends_in(config)
    if tokenizer is not None:
        ends = [*tokenizer.eos_ids, tokenizer.bos_id]
    if pad_id in ends:
        return None  # it ends turns in the middle of a text: there it is read
    why = "it has no tokenizer that says so"
    if tokenizer is not None:
        if tokenizer.pad_id == pad_id and tokenizer.unk_id != pad_id:
            return pad_id
        why = "texts have this token, too"
    setting = f"pad_token_id={shown(pad_id)} is not hidden as padding"
    warn(f"{setting}, as {why}; load(…, pad_id={shown(pad_id)}) hides it")
    return None


def warn_of_tokens_without_vectors(tokenizer, model):
    """Warn if a text may have a token that the model does not know, which then refuses the text."""
    n_vectors = getattr(model, "vocab", None)
    if n_vectors is not None and len(tokenizer) > n_vectors:
        tokens = f"{len(tokenizer):,} tokens, and the model vectors of {n_vectors:,}"
        warn(f"the tokenizer has {tokens}: texts with one of the others are refused")


def opened(path: Path) -> Found:
    """What a file or folder holds."""
    if path.is_dir():
        return opened_folder(path)
    if path.suffix == ".gguf":
        return read_gguf(path)
    folder = path.parent
    has_settings = (folder / "config.json").is_file()
    if path.suffix == ".safetensors" and not has_settings:
        return Found(None, tensors_in(path))
    if has_settings and path.suffix in (*OTHER_WEIGHTS, ".safetensors", ".json"):
        family_of(read_json(folder / "config.json"))  # named before the kind of the file
        if path.suffix not in OTHER_WEIGHTS:
            raise ValueError(f"{path.name} is a part of a model: give its folder, {folder}")
    if path.suffix in OTHER_WEIGHTS:
        raise ValueError(f"{path.suffix} files are not read, as they may hold programs{CONVERTING}")
    raise ValueError(NO_MODEL)


def opened_folder(path: Path) -> Found:
    """What a folder of transformers holds, or one with a GGUF file."""
    if (path / "adapter_config.json").is_file():
        merging = "merge_and_unload() of peft, then save_pretrained(…)"
        what = "it holds adapters, which are not read"
        raise ValueError(f"adapter_config.json: {what}; {merging} makes one folder with the model")
    if not (path / "config.json").is_file():
        if file := only_gguf(path):
            return read_gguf(file)
        if names := gguf_names(path):
            raise ValueError(f"{NO_MODEL}: give one of its files, {listed(names)}")
        raise ValueError(NO_MODEL)
    check_finished(path)
    config = read_json(path / "config.json")
    if config.get("model_type") == OF_ADAPTERS:
        config["model_type"] = config.pop("base_model_type")
    family_of(config)  # whatever else may be wrong, a family that is not known is named first
    tensors = tensors_of(path)
    check_not_quantised(config, tensors)
    return Found(config, tensors, files_of_tokenizer(path), path)


def check_not_quantised(config: dict, tensors: dict) -> None:
    """Raise if the weights have few bits, as GPTQ, AWQ or bitsandbytes store them."""
    about = config.get("quantization_config")
    if isinstance(about, dict):
        has_bits = about.get("load_in_4bit") or about.get("load_in_8bit")
        how = about.get("quant_method") or ("bitsandbytes" if has_bits else shown(about))
    else:
        endings = [ending for ending in QUANTISED if any(x.endswith(ending) for x in tensors)]
        if not endings:
            return
        how = QUANTISED[endings[0]]
    advice = "load the model that was quantised, a GGUF file of it, or what dequantize() of"
    raise ValueError(
        f"its weights are quantised: quantization_config is of {how}, supported are floats; "
        f"{advice} transformers saves"
    )
