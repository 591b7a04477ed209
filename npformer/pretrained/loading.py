"""Read a model of another library."""

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

from npformer.checks import check_choice, name_of_dtype, shown, warn
from npformer.errors import UserError
from npformer.files.checkpoint import refusing
from npformer.files.paths import MISSING, check_path, kind_of_file
from npformer.models.low_rank import LowRank
from npformer.pretrained.adapters import adapted, params_of_adapters, split_adapters
from npformer.pretrained.families import family_of
from npformer.pretrained.families.pytorch import naming_of_state, tensors_of_state
from npformer.pretrained.files import json_or_empty, tensors_in
from npformer.pretrained.opening import (
    check_no_training,
    is_state_dict,
    missing,
    opened,
    plain_name,
    plain_names,
)
from npformer.pretrained.rules import check_keys
from npformer.pretrained.tokenizer import tokenizer_of
from npformer.pretrained.tokenizer_settings import GENERATION_FILE, warn_of_others

PARAMETER_DTYPES = "float32", "float64", "float16"


class Loaded(NamedTuple):
    """A model of another library."""

    model: Any
    params: dict
    tokenizer: Any  # or None


def load(path: Any, *, names: dict | None = None, model: Any = None, **settings: Any) -> Loaded:
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
    with refusing(what, "see help(npformer.pretrained.load)", UserError):
        try:
            return _load(path, names, model, settings)
        except OSError as error:
            raise UserError(f"it cannot be read: {error}") from error


@contextlib.contextmanager
def reading_settings():
    """In this block settings are read in a file, or in its tensors, where something may be missing
    or of another type. What raises such an error elsewhere is a bug, and keeps its traceback.
    """
    try:
        yield
    except (KeyError, IndexError, AttributeError) as error:
        raise UserError(
            f"something is missing, or has another form: {type(error).__name__} {error}"
        ) from error
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(str(error)) from error


def load_merged(path) -> Loaded:
    """What ``load`` returns, but of a model with adapters the model itself, with merged parameters:
    it can be used, not trained further.
    """
    loaded = load(path)
    if isinstance(loaded.model, LowRank):
        params = loaded.model.merged(loaded.params)
        return loaded._replace(model=loaded.model.model, params=params)
    return loaded


def _load(path, names, kind, settings):
    if isinstance(path, dict):
        with reading_settings():
            tensors = tensors_of_state(path)
        return _load_state(tensors, names, kind, settings)
    path = Path(path)
    check_no_training(path)
    if is_state_dict(path):
        return _load_state(tensors_in(path), names, kind, settings)
    with reading_settings():
        contents = opened(path)
    if names is not None:
        raise UserError("names are given, expected None for a model with config.json")
    if kind is not None:
        raise UserError(
            f"model={shown(kind)}, "
            "expected None for a model with config.json, which says what it is"
        )
    loaded = _load_model(contents, settings)
    if loaded.tokenizer is None:
        warn_of_others(path)
    return loaded


def _load_state(tensors, names, kind, settings):
    """The model and the parameters of a state dict, and no tokenizer."""
    with reading_settings():
        tensors = plain_names(tensors)
        modules = {role: plain_name(module) for role, module in (names or {}).items()}
        modules.pop("transformer", None)  # the tensors show where it is
        naming = naming_of_state(modules, tensors, kind)
        ours, tensors = naming.from_state(tensors)
    if "n_heads" not in settings:
        raise UserError(
            "the shapes of a state dict do not show the number of heads: give n_heads=…"
        )
    model, params = built(naming, ours, tensors, settings)
    return Loaded(model, params, tokenizer=None)


def _load_model(contents, settings):
    """What a folder holds."""
    config, tensors, files = contents
    with reading_settings():
        family = family_of(config)
        tensors, of_adapters = split_adapters(tensors)
        about_adapters = config.get("adapters")
        if of_adapters and about_adapters is None:
            raise UserError("it has tensors of adapters, and config.json has no adapters")
        tensors = family.from_file(tensors, config)
        generation = json_or_empty(files, GENERATION_FILE)
        if GENERATION_FILE in files:
            config |= {key: generation.get(key) for key in family.of_generation}
        ours = family.settings_of(config, tensors, settings)
        check_keys(generation, family.rules(config), GENERATION_FILE)
        tokenizer = tokenizer_of(files, config, family)
        if "pad_id" not in settings:
            ours["pad_id"] = family.padding(ours["pad_id"], config, tokenizer)
    model, params = built(family, ours, tensors, settings)
    if tokenizer is not None:
        tokenizer.family = family.name
        warn_of_tokens_without_vectors(tokenizer, model)
    if about_adapters is not None:
        with reading_settings():
            model = adapted(model, params, about_adapters)
        params = params_of_adapters(model, of_adapters)
    return Loaded(model, params, tokenizer)


def built(naming, ours, tensors, settings):
    """A model of ours and its parameters; ``settings`` are in place of those of its files."""
    all_settings = ours | settings
    dtype = name_of_dtype(settings.get("dtype", "float32"))
    check_choice("dtype", dtype, PARAMETER_DTYPES)
    if dtype == "float16":
        all_settings["dtype"] = "float32"  # in which it computes: the parameters alone are short
    with reading_settings():
        model = naming.model(**all_settings)
    return model, naming.read(model, tensors, dtype)


def warn_of_tokens_without_vectors(tokenizer, model):
    """Warn if a text may have a token that the model does not know, which then refuses the text."""
    n_vectors = getattr(model, "vocab", None)
    if n_vectors is not None and len(tokenizer) > n_vectors:
        warn(
            f"the tokenizer has {len(tokenizer):,} tokens, and the model vectors of {n_vectors:,}: "
            "texts with one of the others are refused"
        )
