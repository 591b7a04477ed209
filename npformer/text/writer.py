"""A trained language model with its tokens, which continues texts."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npformer import tree
from npformer.backends import get_backend
from npformer.decoding import sample
from npformer.decoding.streaming import streaming
from npformer.errors import UserError
from npformer.files.checkpoint import BEST, LAST, load_checkpoint, refusing
from npformer.files.paths import MISSING, kind_of_file
from npformer.models import LanguageModel, from_description
from npformer.operations.options import check_option
from npformer.quantized import moved
from npformer.tokens.tokenizers import tokens_in


@dataclass(frozen=True, repr=False)
class Writer:
    """A language model, its parameters and its tokens.

    Parameters
    ----------
    model : LanguageModel
    params : nested dict
    tokens : Characters or Pieces, or the tokenizer of a model that exists
    backend : "auto", "reference", "cpu", "gpu", or a backend
    info : dict
        The ``info`` of the file from which it was loaded.

    Examples
    --------
    >>> from npformer.tokens import Characters
    >>> tokens = Characters("a man rides a horse")
    >>> model = LanguageModel(len(tokens), d_model=16, n_heads=2, n_layers=1, d_ff=32)
    >>> writer = Writer(model, model.init(0), tokens)
    >>> writer
    <Writer with a LanguageModel, 2,432 parameters, 11 tokens>
    >>> len(writer.write("a man", n_tokens=20, seed=1))
    20
    """

    model: LanguageModel
    params: dict
    tokens: Any
    backend: Any = "auto"
    info: dict = field(default_factory=dict)

    def __post_init__(self):
        device = get_backend(self.backend, self.params).device
        object.__setattr__(self, "params", moved(self.params, device))

    def __repr__(self):
        n = tree.count(self.params)
        kind = type(self.model).__name__
        return f"<Writer with a {kind}, {n:,} parameters, {len(self.tokens):,} tokens>"

    @classmethod
    def load(cls, path, backend="auto"):
        """Load a checkpoint of a ``LanguageRun``, or the best in its folder.

        The path may also lead to what ``pretrained.load`` reads.
        """
        # Here, as a training on text needs nothing of it.
        from npformer.pretrained.loading import load_merged
        from npformer.pretrained.opening import GETTING, is_of_others
        from npformer.pretrained.tokenizer import check_tokenizer

        path = Path(path)
        if is_of_others(path):
            model, params, tokens = load_merged(path)
            check_tokenizer(tokens, model, isinstance(model, LanguageModel), "a language model")
            return cls(model, params, tokens, backend)
        if kind_of_file(path) == MISSING:
            raise FileNotFoundError(
                f"there is no checkpoint {path}, and no model that exists: {GETTING}"
            )
        if path.is_dir():
            best = path / BEST
            path = best if best.exists() else path / LAST
        arrays, info = load_checkpoint(path)
        model, tokens = model_in(arrays, info, path)
        return cls(model, tree.from_arrays(arrays, "params"), tokens, backend, info)

    def encode(self, prompt):
        """Return the ids of a prompt, int32, which the model has to know all."""
        ids = self.tokens.encode(prompt)
        if not len(ids):
            raise UserError("the prompt is empty, expected one or more characters")
        if unknown := self.tokens.unknown(prompt):
            raise UserError(
                f"the prompt has {unknown!r:.40}, which is in no text of the training: leave it out"
            )
        return ids

    def write(self, prompt, *, n_tokens=200, seed=0, show=None, **options):
        """Return the text that follows a prompt, drawn token by token.

        Parameters
        ----------
        prompt : str
            One that is longer than the context is read from where its last tokens fill the context,
            as with ``slide`` of ``sample``.
        n_tokens : int
            Number of tokens; fewer, if the tokens have one that ends a text.
        seed : int
        show : callable, optional
            Is called with each part of the text as soon as it is certain.
        **options
            Those of ``sample`` that say how a token is drawn, such as temperature.
        """
        begun = self.encode(prompt)
        options["max_len"] = check_option("n_tokens", n_tokens)
        options |= {"seed": seed, "slide": True, "backend": self.backend}
        options["eos_id"] = self.tokens.eos_ids or self.tokens.eos_id
        if show:
            options["on_step"] = streaming(self.tokens.decode, show, begun)
        [new] = sample(self.model, self.params, [begun], **options)
        # The first new token may belong to the last word of the prompt, without a space.
        before = self.tokens.decode(begun)
        text = self.tokens.decode([*map(int, begun), *map(int, new)])
        return text[len(before) :] if text.startswith(before) else self.tokens.decode(new)


def model_in(arrays, info, path):
    """The language model and its tokens in the checkpoint ``path``."""
    with refusing(path, "expected a file written by train-gpt"):
        model = from_description(info.get("model"), arrays)
        if not isinstance(model, LanguageModel):
            raise UserError(f"it holds no language model, but a {type(model).__name__}")
        tokens = tokens_in(arrays)
        if model.vocab != len(tokens):
            raise UserError(
                f"the model has vocab={model.vocab}, "
                f"its text {len(tokens)} tokens: expected the same"
            )
    return model, tokens
