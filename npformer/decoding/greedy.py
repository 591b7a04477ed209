"""Greedy decoding: always the most probable next token."""

from collections.abc import Callable, Sequence
from typing import Any

from npformer.arrays import Array
from npformer.backends import AnyBackend
from npformer.checks import check_callable
from npformer.decoding.generation import generate
from npformer.decoding.request import checked_request


def greedy_decode(
    model: Any,
    params: dict,
    src: Any,
    *,
    bos_id: int | None = None,
    eos_id: int | Sequence[int] | None = None,
    max_len: int | Array,
    min_len: int = 0,
    slide: bool = False,
    on_step: Callable[[Array, Array], object] | None = None,
    decoder: Any = None,
    backend: AnyBackend = "auto",
) -> Array:
    """Generate a target for each source, or go on after each prompt, by the most probable token.

    Parameters
    ----------
    model : EncoderDecoder or LanguageModel
    params : nested dict
    src : (B, S) int
        The sources. Of a language model the prompts, which may also be a list of B sequences of
        ids.
    bos_id : int
        The begin token of every target in training; not for a language model.
    eos_id : int or sequence of int
        The end token of every target in training, or several that end one. A language model needs
        none.
    max_len, min_len : int
        Maximum and minimum number of tokens to generate, including the end token; ``max_len`` may
        be an array (B,).
    slide : bool
        Of a language model: a text whose context is full goes on with the latest half of it, which
        is read again, for this text alone. Of a longer prompt the last tokens are read, as many as
        the context holds. With a ``window`` and positions without vectors nothing is cut off or
        read again: a text is what it is with a larger ``max_len`` of the model.
    on_step : callable, optional
        ``on_step(rows, tokens)`` is called for each step, to show the tokens as they are generated.
    decoder : LanguageDecoder, optional
        Of a language model, for one prompt after another: what ``model.decoder(params, [],
        max_rows=1)`` has returned. What a prompt has in common with the beginning of the text
        before it is not read again; so the params must not change meanwhile.
    backend : "auto", "reference", "cpu", "gpu", or a backend
        That of the decoder, if one is given.

    Returns
    -------
    (B, T) int
        The tokens after the begin token, or after the prompt, up to and including the end token;
        then ``model.pad_id``, which is never generated, or, of a language model without one, end
        tokens. T <= max_len. A text does not depend on those beside it, except for the rounding
        of sums.

    Raises
    ------
    UserError
        If a logit is NaN or inf, with the parameter that is; or if there is no token to choose, as
        all but padding (and the end token before ``min_len``) have a logit of -inf.

    Examples
    --------
    >>> from npformer import Transformer
    >>> model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> src = np.array([[3, 4, 5]])
    >>> greedy_decode(model, model.init(0), src, bos_id=1, eos_id=2, max_len=4).shape[0]
    1
    """
    if on_step is not None:
        check_callable("on_step", on_step)
    request = checked_request(model, src, bos_id, eos_id, max_len, min_len, slide)
    return generate(request, params, most_probable, backend, on_step, decoder)


def most_probable(logits, rows, t):
    """The most probable token of each row."""
    return logits.argmax(axis=-1)
