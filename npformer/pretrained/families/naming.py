"""How files name the parameters of a model: a table, read in both directions."""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from npformer import tree
from npformer.arrays import Array, on_host
from npformer.checks import shown
from npformer.errors import UserError
from npformer.models.description import check_size_of
from npformer.models.encoder import Encoder
from npformer.models.language_model import LanguageModel
from npformer.operations.options import check_expressed
from npformer.pretrained.files import Tensors
from npformer.pretrained.rules import listed

# Settings of ours that are checked or written for each family, or that say nothing of a model that
# has been trained.
SHARED_SETTINGS = {"dtype", "final_norm", "dropout", "inner_dropout"}


class Naming:
    """The names of the parameters in one kind of files."""

    model: Any  # the class of npformer
    # The path of a layer of ours, and the module of theirs that it is, or the modules whose outputs
    # lie side by side. "{}" is the number of a layer. A path of a parameter gives the name of a
    # tensor.
    names: dict[str, str]
    prefix: str  # begins the names of all tensors but those of ``heads``
    heads: tuple[str, ...]
    has_linear_transposed = True  # a linear map of theirs is (out, in)
    # What to do if a file has both an embedding and an output, and its settings say that they are
    # one table.
    how_to_untie = "load(…, tie_embeddings=False) reads both"

    def names_of(self, model) -> dict:
        """The table of names, for a model of ours."""
        return self.names

    def for_file(self, tensors: dict, model) -> dict:
        """The tensors of the table by the names of a file."""
        renamed = {}
        for name, x in tensors.items():
            renamed[name if name.startswith(self.heads) else self.prefix + name] = x
        return renamed

    def named_views(self, model, params: dict) -> Iterator[tuple[str, Array]]:
        """(name, view) of each parameter or part of one. Parameters may have the same name."""
        return named_views(self.names_of(model), model, params, self.has_linear_transposed)

    def read(self, model, tensors: Tensors, dtype) -> dict:
        """The parameters of a model of ours, if the tensors are those of such a model."""
        n_numbers = sum(math.prod(x.shape) for x in tensors.values())
        check_size_of(model, len(tensors), n_numbers)
        names = self.names_of(model)
        embedding = f"{names.get('embedding')}.weight"
        output = f"{names.get('output')}.weight"
        again = None  # the embedding by the name of the output, which files may have, too, or alone
        if model.tie_embeddings and output in tensors:
            tensors = dict(tensors)
            again = tensors.pop(output)
            tensors.setdefault(embedding, again)
        shapes = model.shapes()
        check_names(self.named_views(model, shapes), tensors, self.advice(model, tensors))
        if again is not None and not again.equals(tensors[embedding]):
            raise UserError(
                f"its settings say that {output} is {embedding}, and their numbers differ; "
                f"{self.how_to_untie}"
            )
        # One array has larger pages of memory than many.
        params = tree.view_as(np.empty(tree.count(shapes), dtype), shapes)
        for name, out in self.named_views(model, params):
            tensors[name].into(out)
        return params

    def advice(self, model, tensors: Tensors) -> str:
        """Which settings to give to ``load`` where those of a file are not those of its tensors."""
        if not isinstance(model, (LanguageModel, Encoder)):
            return ""
        names = self.names_of(model)
        table = f"{names['embedding']}.weight"
        n_rows = tensors[table].shape[:1] if table in tensors else ()
        if n_rows and n_rows != (model.vocab,):
            return f"; load(…, vocab={n_rows[0]}) reads all rows of its embedding"
        predicts_words = getattr(model, "task", "words") == "words"
        has_output = model.tie_embeddings or f"{names.get('output')}.weight" in tensors
        if predicts_words and not has_output:
            what = "its output, if its settings should say tie_word_embeddings=true"
            return f"; load(…, tie_embeddings=True) takes the embedding for {what}"
        return ""

    def write(self, model, params: dict) -> dict[str, Array]:
        """The tensors by the names of the table, of a model of ours."""
        tensors: dict[str, Array] = {}
        for name, x in self.named_views(model, tree.map_leaves(on_host, params)):
            other = tensors.setdefault(name, x)
            if other is not x and not np.array_equal(other, x):
                raise UserError(f"names has {name} for two parameters, which differ")
        return tensors


def named_views(
    names: dict[str, str], model, params: dict, has_linear_transposed: bool = True
) -> Iterator[tuple[str, Array]]:
    """(name, view) of each parameter or part of one, by a table of names as that of ``Naming``."""
    for path, x in tree.leaves(params):
        theirs = tensors_of_path(names, path)
        widths = [x.shape[-1] // len(theirs)] * len(theirs)
        if ".qkv." in path and len(theirs) > 1:
            # There may be fewer heads of keys and values than of queries.
            widths = model.layer_settings.attention.widths(model.d_model)
        parts = np.split(x, np.cumsum(widths)[:-1], axis=-1)
        is_transposed = has_linear_transposed or path.startswith("output")
        if path.endswith(".weight") and is_transposed:
            parts = [part.T for part in parts]
        yield from zip(theirs, parts, strict=True)


def check_settings(model, constants: dict[str, Any], expressed: set[str]) -> None:
    """Raise if a model of ours has settings that no model in some files has.

    All models in them have the ``constants``; the settings ``expressed`` differ between them.
    """
    for name, value in constants.items():
        if getattr(model, name) != value:
            raise UserError(f"{name}={shown(getattr(model, name))}, expected {shown(value)}")
    check_expressed(model, {*expressed, *constants, *SHARED_SETTINGS})


def tensors_of_path(names: dict[str, str], path: str) -> list[str]:
    """The names of theirs for a parameter of ours, by the table of a family."""
    layer = re.search(r"\.(\d+)\.", path)
    place = re.sub(r"\.\d+\.", ".{}.", path)
    module, _, leaf = place.rpartition(".")
    theirs = names.get(place, names.get(module))
    if theirs is None:
        raise UserError(f"these models have no parameter {path}")
    tensors = theirs.replace("{}", layer[1] if layer else "").split()
    is_table = leaf not in ("weight", "bias", "gain")
    if place in names and not is_table:
        return tensors
    their_leaf = "bias" if leaf == "bias" else "weight"
    return [f"{name}.{their_leaf}" for name in tensors]


def check_names(expected: Iterable[tuple[str, Any]], tensors: dict, advice: str = "") -> None:
    """Check that tensors have the names and shapes of others, which may have the same name."""
    names = set()
    wrong = []
    for name, x in expected:
        names.add(name)
        if name in tensors and tensors[name].shape != x.shape:
            wrong.append(f"{name} {tensors[name].shape} and not {x.shape}")
    differences = {
        "missing": sorted(names - tensors.keys()),
        "additional": sorted(tensors.keys() - names),
        "of another shape": wrong,
    }
    parts = [f"{what}: {listed(some)}" for what, some in differences.items() if some]
    if parts:
        reasons = "; ".join(parts) + advice
        raise UserError(f"its tensors are not those that its settings ask for; {reasons}")
