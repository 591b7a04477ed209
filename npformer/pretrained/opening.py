"""Which files are a model, where a path leads to."""

from pathlib import Path

from npformer.checks import shown
from npformer.errors import UserError
from npformer.files.checkpoint import BEST, LAST, RESULT, description_in
from npformer.files.folders import check_finished
from npformer.files.paths import kind_of_file
from npformer.models.encoder import Encoder
from npformer.pretrained.adapters import config_of_model
from npformer.pretrained.families import family_of
from npformer.pretrained.files import CONVERTING, OTHER_WEIGHTS, Contents, read_json, tensors_of
from npformer.pretrained.gguf import read_gguf
from npformer.pretrained.rules import listed
from npformer.pretrained.sentences import sentence_modules
from npformer.pretrained.tokenizer_settings import files_of_tokenizer

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
PARTS = ".safetensors", ".json"  # endings of files that are parts of a model
COMPILED = "_orig_mod."  # which torch.compile puts into names
PARALLEL = "module."  # with which DistributedDataParallel begins them


def is_of_others(path: Path) -> bool:
    """Whether ``pretrained.load`` is to read what a path leads to.

    The checkpoints of a training in a folder without config.json come before its GGUF files.
    """
    if path.suffix == ".gguf" or (path / "config.json").exists():
        return True
    has_checkpoint = any((path / name).exists() for name in (LAST, BEST, RESULT))
    return path.is_dir() and not has_checkpoint and bool(gguf_names(path))


def missing(path: Path) -> str:
    """Why there is no model at a path that leads to nothing."""
    folder = path.parent
    if path.suffix in (".gguf", *OTHER_WEIGHTS) and kind_of_file(folder) == "a folder":
        return f"there is no {path}: {folder} has {listed(gguf_names(folder)) or 'no .gguf file'}"
    return f"there is no {path}: {GETTING}"


def check_no_training(path: Path) -> None:
    """Raise if a path leads to a checkpoint of npformer, or to a folder of a training with some."""
    paths = [path]
    if path.is_dir() and not (path / "config.json").exists():
        paths = [path / name for name in (LAST, BEST, RESULT)]
    for each in paths:
        is_tensors = each.suffix == ".safetensors" and each.is_file()
        if is_tensors and description_in(each)[0] is not None:
            raise UserError(
                f"{each.name} is a checkpoint of npformer: trainer.load goes on from it, "
                "npformer.training.load_checkpoint returns its arrays"
            )


def is_state_dict(path: Path) -> bool:
    """Whether a path leads to tensors alone."""
    has_settings = path.is_dir() or (path.parent / "config.json").is_file()
    return path.suffix == ".safetensors" and not has_settings


def opened(path: Path) -> Contents:
    """What a folder or a GGUF file holds."""
    if path.is_dir():
        return opened_folder(path)
    if path.suffix == ".gguf":
        return read_gguf(path)
    folder = path.parent
    is_weights = path.suffix in OTHER_WEIGHTS
    if (folder / "config.json").is_file() and (is_weights or path.suffix in PARTS):
        family_of(read_json(folder / "config.json"))  # named before the kind of the file
        if not is_weights:
            raise UserError(f"{path.name} is a part of a model: give its folder, {folder}")
    if is_weights:
        raise UserError(f"{path.suffix} files are not read, as they may hold programs{CONVERTING}")
    raise UserError(NO_MODEL)


def opened_folder(path: Path) -> Contents:
    """What a folder of transformers holds, or one with a GGUF file."""
    if (path / "adapter_config.json").is_file():
        raise UserError(
            "adapter_config.json: it holds adapters, which are not read; "
            "merge_and_unload() of peft, then save_pretrained(…) makes one folder with the model"
        )
    if not (path / "config.json").is_file():
        return read_gguf(path / only_gguf(path))
    check_finished(path)
    config = config_of_model(read_json(path / "config.json"))
    family = family_of(config)  # whatever else is wrong, a family that is not known is named first
    tensors = plain_names(tensors_of(path))
    check_not_quantised(config, tensors)
    files = files_of_tokenizer(path)
    if family.model is Encoder and "pooling" not in config:  # which npformer alone writes
        width = config.get(family.settings.key_of["d_model"])
        modules, of_modules = sentence_modules(path, files, width)
        config |= modules
        tensors |= of_modules
    return Contents(config, tensors, files)


def only_gguf(folder: Path) -> str:
    """The name of the GGUF file that is the model of a folder; raises unless there is just one."""
    names = gguf_names(folder)
    if len(names) == 1:
        return names[0]
    advice = f": give one of its files, {listed(names)}" if names else ""
    raise UserError(f"{NO_MODEL}{advice}")


def gguf_names(folder: Path) -> list[str]:
    """The names of the GGUF files in a folder."""
    return sorted(path.name for path in folder.iterdir() if path.suffix == ".gguf")


def plain_names(tensors):
    """The tensors by the names that they had before their module was wrapped."""
    plain = {plain_name(name): x for name, x in tensors.items()}
    if len(plain) < len(tensors):
        raise UserError(
            f"tensors differ in {COMPILED} or {PARALLEL} alone, expected one of each name"
        )
    return plain


def plain_name(name):
    """A name without what torch.compile and DistributedDataParallel have put into it."""
    return name.replace(COMPILED, "").removeprefix(PARALLEL)


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
    raise UserError(
        f"its weights are quantised: quantization_config is of {how}, supported are floats; "
        "load the model that was quantised, a GGUF file of it, or what dequantize() of "
        "transformers saves"
    )
