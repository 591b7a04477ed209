"""A chat with a language model, whose tokenizer says how the turns become one text."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from npformer.checks import check_int
from npformer.decoding import sample
from npformer.decoding.streaming import streaming
from npformer.errors import UserError
from npformer.extras import imported
from npformer.models.language_model import LanguageModel
from npformer.pretrained import sandbox
from npformer.pretrained.tokenizer import check_tokenizer
from npformer.runtime.compilations import working_time

BEGIN, END = "<|im_start|>", "<|im_end|>"  # of a turn, in ChatML
Show = Callable[[Any], object]
ENDS = (
    END,
    "<|eot_id|>",
    "<|end|>",
    "<end_of_turn>",
)  # which end an answer, if the tokenizer has them


def ignore(value) -> None:
    """Show nothing."""


class Answer(NamedTuple):
    """An answer, and how it was found."""

    text: str
    n_read: int  # tokens that the model has read for it
    n_prompt: int  # tokens of all turns so far, of which it had read the others before
    n_said: int  # tokens of the answer
    # Both times are without those of compiling kernels.
    read_seconds: float  # until its first token
    seconds: float  # from there to its last
    n_forgotten: int  # oldest turns that had to be left out, from now on, as the context was full

    @property
    def speed(self):
        """Tokens per second, while it was said."""
        return (self.n_said - 1) / self.seconds if self.seconds else 0.0


class Chat:
    """A chat with a model that ``npformer.pretrained.load`` has loaded.

    Parameters
    ----------
    model, params, tokenizer
    system : str, optional
        What the model is told before the first turn.
    backend : "auto", "reference", "cpu", "gpu", or a backend
    context : int, optional
        Most tokens that the model reads, those of its answers too; the model's ``max_len`` if not
        given.

    Attributes
    ----------
    messages : list of dict
        The turns so far, each with "role" and "content".
    """

    def __init__(
        self,
        model,
        params: dict,
        tokenizer,
        system: str | None = None,
        backend="auto",
        context: int | None = None,
    ):
        is_fit = isinstance(model, LanguageModel)
        check_tokenizer(tokenizer, model, is_fit, "a language model")
        self.context = model.max_len if context is None else check_int("context", context)
        if self.context > model.max_len:
            raise UserError(
                f"context={context}, "
                f"expected at most {model.max_len}, the tokens that the model reads"
            )
        self.tokenizer = tokenizer
        self.model = model
        self.params = params
        self.decoder = model.decoder(params, [], max_rows=1, backend=backend)
        self.system = [] if system is None else [{"role": "system", "content": system}]
        self.messages: list[dict] = []
        ends = {*tokenizer.eos_ids, *map(tokenizer.id_of, ENDS)}
        self.ends = tuple(ends - {None})

    def answer(
        self,
        text: str,
        *,
        show: Show = ignore,
        reading: Show = ignore,
        n_tokens: int = 512,
        **options: Any,
    ) -> Answer:
        """Answer a turn of the user, and keep both turns, also if Ctrl-C ends the answer.

        Parameters
        ----------
        text : str
        show : callable
            Is called with each part of the answer as soon as it is certain.
        reading : callable
            Is called with the number of tokens that the model is going to read: those after what it
            has read or said.
        n_tokens : int
            Largest number of tokens of the answer, of which the context keeps at most half free:
            without room for them, the older half of the turns is forgotten.
        **options
            Those of ``sample``, such as seed and temperature.
        """
        turns = [*self.messages, {"role": "user", "content": text}]
        ids, n_forgotten = self._fitting(turns, n_tokens)
        n_read = len(ids) - self.decoder.entries.n_shared_with(ids[:-1])
        reading(n_read)
        tokens: list[int] = []
        times = [working_time()]
        show_step = streaming(self.tokenizer.decode, show)

        def on_step(rows, step):
            times.append(working_time())
            tokens.append(int(step[0]))
            show_step(rows, step)

        n_free = self.context + 1 - len(ids)
        defaults = {"seed": 0, "eos_id": self.ends or None, "max_len": min(n_tokens, n_free)}
        options = defaults | options
        try:
            sample(self.model, self.params, [ids], on_step=on_step, decoder=self.decoder, **options)
        finally:
            if tokens:
                answer = {"role": "assistant", "content": self.tokenizer.decode(tokens)}
                self.messages = [*turns, answer]
        return Answer(
            text=self.messages[-1]["content"],
            n_read=n_read,
            n_prompt=len(ids),
            n_said=len(tokens),
            read_seconds=times[1] - times[0],
            seconds=times[-1] - times[1],
            n_forgotten=n_forgotten,
        )

    def _fitting(self, turns, n_tokens):
        """The ids of turns, of which the older half is deleted while there is no room for them."""
        longest = self.context
        n_forgotten = 0
        most = longest + 1 - min(n_tokens, longest // 2)
        ids = self._ids(turns)
        while len(ids) > most and len(turns) > 1:
            # Not the oldest alone: what follows it has to be read again.
            half = max(2, len(turns) // 4 * 2)
            del turns[:half]
            n_forgotten += half
            ids = self._ids(turns)
        if len(ids) > longest:
            raise UserError(
                f"this turn has {len(ids)} tokens, "
                f"expected at most the {longest} that the model reads"
            )
        return ids, n_forgotten

    def _ids(self, turns):
        text = chat_text(self.tokenizer, [*self.system, *turns])
        return self.tokenizer.encode(text, special=False)


def chat_text(tokenizer: Any, messages: list[dict]) -> str:
    """The text of the turns of a chat, after which the answer begins.

    It is made by the template of the tokenizer, or else in ChatML. A template is a program of
    unknown origin: it is rendered in the sandbox of jinja2, and in a process of its own, whose time
    and, on Linux, memory are limited.
    """
    if tokenizer.chat_template is not None:
        return _rendered(tokenizer, messages)
    if tokenizer.chat_templates:
        names = ", ".join(map(repr, tokenizer.chat_templates))
        what = f"the tokenizer has templates of chats with the names {names}, and no 'default'"
        raise UserError(
            f"{what}: take one of them: tokenizer.chat_template = tokenizer.chat_templates[…]"
        )
    if None in (tokenizer.id_of(BEGIN), tokenizer.id_of(END)):
        what = f"the tokenizer has no template of a chat, nor {BEGIN} and {END}"
        raise UserError(f"{what}: try npformer generate")
    turns = [f"{BEGIN}{turn['role']}\n{turn['content']}{END}\n" for turn in messages]
    return "".join(turns) + f"{BEGIN}assistant\n"


def _rendered(tokenizer, messages):
    """What the template of a tokenizer makes of the turns of a chat."""
    imported("jinja2", "pretrained", "templates of chats need")
    variables = {
        "messages": messages,
        "add_generation_prompt": True,
        "tools": None,
        "documents": None,
    }
    for role in ("bos", "eos", "pad"):
        id_ = getattr(tokenizer, f"{role}_id")
        if id_ is not None:
            variables[f"{role}_token"] = tokenizer.tokenizer.id_to_token(id_)
    result = _in_sandbox({"template": tokenizer.chat_template, "variables": variables})
    if not result.get("text"):
        error = result.get("error", "it makes no text of these turns")
        raise UserError(f"the template of the chat fails: {error}")
    return result["text"]


def _in_sandbox(work):
    """What the process of ``sandbox`` answers: a dict with a text, or with an error."""
    command = [sys.executable, "-P", sandbox.__file__]
    given = json.dumps(work).encode()
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=sandbox.SECONDS)
    except subprocess.TimeoutExpired:
        return {"error": f"it has not ended after {sandbox.SECONDS} seconds"}
    if done.returncode != 0:
        return {"error": f"its process ended: {done.returncode}"}
    return json.loads(done.stdout)
