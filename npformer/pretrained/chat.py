"""A chat with a language model, whose tokenizer says how the turns become one text."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from npformer.checks import check_int
from npformer.decoding import sample
from npformer.decoding.streaming import streaming
from npformer.extras import imported
from npformer.models.language_model import LanguageModel
from npformer.pretrained import sandbox
from npformer.pretrained.tokenizer import check_tokenizer
from npformer.progress import working_time

BEGIN, END = "<|im_start|>", "<|im_end|>"  # of a turn, in ChatML
Told = Callable[[Any], object]  # by default str, which does nothing
ENDS = (END, "<|eot_id|>", "<|end|>", "<end_of_turn>")  # which end an answer, if the tokenizer has them


class Answer(NamedTuple):
    """An answer, and how it was found."""

    text: str
    n_read: int  # tokens that the model has read for it
    n_prompt: int  # tokens of all turns so far, of which it had read the others before
    n_said: int  # tokens of the answer
    read_seconds: float  # until its first token; this time and the next are without those of compiling kernels
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
        Most tokens that the model reads, those of its answers too; the model's ``max_len`` if not given.

    Attributes
    ----------
    messages : list of dict
        The turns so far, each with "role" and "content".
    """

    def __init__(
        self,
        model: Any,
        params: dict,
        tokenizer: Any,
        system: str | None = None,
        backend: Any = "auto",
        context: int | None = None,
    ):
        check_tokenizer(tokenizer, model, isinstance(model, LanguageModel), "a language model")
        self.context = model.max_len if context is None else check_int("context", context)
        if self.context > model.max_len:
            raise ValueError(f"context={context}, expected at most {model.max_len}, the tokens that the model reads")
        self.model, self.params, self.tokenizer = model, params, tokenizer
        self.decoder = model.decoder(params, [], max_rows=1, backend=backend)
        self.system = [] if system is None else [{"role": "system", "content": system}]
        self.messages: list[dict] = []
        ends = [*tokenizer.eos_ids, *map(tokenizer.id_of, ENDS)]
        self.ends = tuple({id_ for id_ in ends if id_ is not None})

    def answer(
        self, text: str, *, show: Told = str, reading: Told = str, n_tokens: int = 512, **options: Any
    ) -> Answer:
        """Answer a turn of the user, and keep both turns, also if Ctrl-C ends the answer.

        Parameters
        ----------
        text : str
        show : callable
            Is called with each part of the answer as soon as it is certain.
        reading : callable
            Is called with the number of tokens that the model is going to read: those after what it has read or said.
        n_tokens : int
            Largest number of tokens of the answer, of which the context keeps at most half free: without room for them,
            the older half of the turns is forgotten.
        **options
            Those of ``sample``: seed, temperature, top_k, top_p, repetition_penalty.
        """
        turns, n_forgotten, longest = [*self.messages, {"role": "user", "content": text}], 0, self.context
        while len(ids := self._ids(turns)) > longest + 1 - min(n_tokens, longest // 2) and len(turns) > 1:
            half = max(2, len(turns) // 4 * 2)  # not the oldest alone: what follows them has to be read again
            del turns[:half]
            n_forgotten += half
        if len(ids) > longest:
            raise ValueError(f"this turn has {len(ids)} tokens, expected at most the {longest} that the model reads")
        n_read = len(ids) - self.decoder.n_known(ids[:-1])
        reading(n_read)
        said, times, told = [], [working_time()], streaming(self.tokenizer.decode, show)

        def on_step(rows, tokens):
            times.append(working_time())
            said.append(int(tokens[0]))
            told(rows, tokens)

        options = {"seed": 0, "eos_id": self.ends or None, "max_len": min(n_tokens, longest + 1 - len(ids))} | options
        try:
            sample(self.model, self.params, [ids], on_step=on_step, decoder=self.decoder, **options)
        finally:
            if said:
                self.messages = [*turns, {"role": "assistant", "content": self.tokenizer.decode(said)}]
        seconds = times[1] - times[0], times[-1] - times[1]
        return Answer(self.messages[-1]["content"], n_read, len(ids), len(said), *seconds, n_forgotten)

    def _ids(self, turns):
        return self.tokenizer.encode(chat_text(self.tokenizer, [*self.system, *turns]), special=False)


def chat_text(tokenizer: Any, messages: list[dict]) -> str:
    """The text of the turns of a chat, after which the answer begins: by the template, or else in ChatML.

    A template is a program of unknown origin: it is rendered in the sandbox of jinja2, and in a process of its own,
    whose time and, on Linux, memory are limited.
    """
    if tokenizer.chat_template is None and tokenizer.chat_templates:
        names = ", ".join(map(repr, tokenizer.chat_templates))
        advice = "take one of them: tokenizer.chat_template = tokenizer.chat_templates[…]"
        raise ValueError(f"the tokenizer has templates of chats with the names {names}, and no 'default': {advice}")
    if tokenizer.chat_template is None:
        if None in (tokenizer.id_of(BEGIN), tokenizer.id_of(END)):
            raise ValueError(f"the tokenizer has no template of a chat, nor {BEGIN} and {END}: try npformer generate")
        turns = [f"{BEGIN}{turn['role']}\n{turn['content']}{END}\n" for turn in messages]
        return "".join(turns) + f"{BEGIN}assistant\n"
    imported("jinja2", "pretrained", "templates of chats need")
    tokens = {f"{name}_token": getattr(tokenizer, f"{name}_id") for name in ("bos", "eos", "pad")}
    tokens = {name: tokenizer.tokenizer.id_to_token(id_) for name, id_ in tokens.items() if id_ is not None}
    variables = {"messages": messages, "add_generation_prompt": True, "tools": None, "documents": None, **tokens}
    given = json.dumps({"template": tokenizer.chat_template, "variables": variables}).encode()
    try:
        command = [sys.executable, "-P", sandbox.__file__]
        done = subprocess.run(command, input=given, capture_output=True, timeout=sandbox.SECONDS)
        said = json.loads(done.stdout) if done.returncode == 0 else {"error": f"its process ended: {done.returncode}"}
    except subprocess.TimeoutExpired:
        said = {"error": f"it has not ended after {sandbox.SECONDS} seconds"}
    if "error" in said:
        raise ValueError(f"the template of the chat fails: {said['error']}")
    return said["text"]
