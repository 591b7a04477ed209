"""Chats: the text of the turns, by a template that may do anything, and the answers."""

import dataclasses
import json
import sys
from itertools import count
from types import SimpleNamespace

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
from refusals import refuses
from tiny import tiny_encoder, tiny_language_model, tiny_tokenizer

from npformer.pretrained import chat as chat_module, sandbox
from npformer.pretrained.chat import Chat, chat_text
from npformer.runtime import compilations

TURNS = [{"role": "user", "content": "{{ 1 }} é"}, {"role": "assistant", "content": "a"}]
IN_CHATML = (
    "<|im_start|>user\n{{ 1 }} é<|im_end|>\n"
    "<|im_start|>assistant\na<|im_end|>\n"
    "<|im_start|>assistant\n"
)


def test_without_a_template_the_turns_are_in_chatml():
    assert chat_text(tiny_tokenizer(), TURNS) == IN_CHATML


def test_a_template_has_the_turns_the_tokens_and_what_templates_call():
    template = """{%- for turn in messages %}
        {% if turn.role == 'system' %}{% continue %}{% endif %}
    {{- turn | tojson }}{{ eos_token }}{% if bos_token is defined %}never{% endif %}
    {%- endfor %}{{ strftime_now('%%') }}{{ add_generation_prompt }}"""
    turns = [{"role": "system", "content": "x"}, *TURNS]
    shown = [f"{json.dumps(turn, ensure_ascii=False)}<|im_end|>" for turn in TURNS]
    text = chat_text(tiny_tokenizer(template=template), turns)
    assert text == "".join(shown) + "%True"


TAGS = """{% set x = 1 %}{% for turn in messages %}
    {% generation %}
{{ turn.content | tojson(ensure_ascii=True) }}{% set x = 2 %}{{ x }}
    {% endgeneration %}
{{ x }}{{ {"b": [1, 2], "a": "<é>"} | tojson(separators=(",", ":"), sort_keys=True, indent=1) }}
{% endfor %}"""


def test_a_template_may_have_what_those_of_transformers_have():
    text = chat_text(tiny_tokenizer(template=TAGS), TURNS)
    given = '1{\n "a":"<é>",\n "b":[\n  1,\n  2\n ]\n}\n'
    assert text == '"{{ 1 }} \\u00e9"2\n' + given + '"a"2\n' + given


ENDLESS = "{% for x in range(99999) %}{% for y in range(9999) %}{% endfor %}{% endfor %}"
CLASSES = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
MISBEHAVING = {
    "{% for x in %}": "TemplateSyntaxError: Expected an expression",
    "{{ raise_exception('roles must\nalternate') }}": "ValueError: roles must alternate",
    "{{ messages.x.y }}": "UndefinedError: 'list object' has no attribute 'x'",
    ENDLESS: "it has not ended after 1 seconds",
    "{{ 10 ** (10 ** 8) }}": "it has not ended after 1 seconds",
    "{% for x in range(9999) %}{{ 'a' * 9999 }}{% endfor %}": (
        "ValueError: the text has more than 8,388,608 characters"
    ),
    CLASSES: "SecurityError: access to attribute '__class__'",
    "{{ messages.append(1) }}": "SecurityError: access to attribute 'append'",
    "{% generation %}" + CLASSES + "{% endgeneration %}": "SecurityError: access to",
    "{% generation %}": "TemplateSyntaxError: Unexpected end of template",
    "{% include '/etc/passwd' %}": "TypeError: no loader",
    "{{ " + "(" * 5000 + ")" * 5000 + " }}": "RecursionError: ",
}
if sys.platform == "linux":
    MISBEHAVING["{{ 'a' * 10 ** 10 }}"] = "it needs more than 512 MB"


@pytest.mark.parametrize("template", MISBEHAVING, ids=lambda template: template[:30])
def test_a_template_that_misbehaves_is_an_error_in_one_line(template, monkeypatch):
    if "has not ended" in MISBEHAVING[template]:
        monkeypatch.setattr(sandbox, "SECONDS", 1)
    with pytest.raises(ValueError, match="^the template of the chat fails: ") as error:
        chat_text(tiny_tokenizer(template=template), TURNS)
    assert MISBEHAVING[template] in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


def test_a_tokenizer_without_template_and_chatml_is_refused():
    message = r"the tokenizer has no template of a chat, nor <\|im_start\|>"
    refuses(ValueError, message, chat_text, tiny_tokenizer(special=()), TURNS)


def test_a_model_that_says_nothing_is_refused():
    given, expected = "the model is of the kind", "expected a tokenizer and a language model"
    message = f"{given} Encoder, with a tokenizer: {expected}"
    refuses(ValueError, message, Chat, *tiny_encoder())
    advice = "copy tokenizer.json and tokenizer_config.json into its folder"
    message = f"{given} LanguageModel, without a tokenizer: {expected}: {advice}"
    refuses(ValueError, message, Chat, *tiny_language_model()[:2], None)


def test_an_answer_is_streamed_and_kept():
    shown, model = [], tiny_language_model(max_len=999)
    chat = Chat(*model, system="be")
    first = chat.answer("how?", show=shown.append, n_tokens=9, seed=3)
    assert "".join(shown) == first.text.rstrip("\ufffd") != ""
    assert first.n_said <= 9 and first.n_forgotten == 0
    turns = [{"role": "system", "content": "be"}, {"role": "user", "content": "how?"}]
    assert first.n_read == len(chat.tokenizer.encode(chat_text(chat.tokenizer, turns)))
    second = chat.answer("why?", n_tokens=9)
    assert [turn["role"] for turn in chat.messages] == ["user", "assistant"] * 2
    assert [turn["content"] for turn in chat.messages] == ["how?", first.text, "why?", second.text]
    again = Chat(*model, system="be").answer("how?", n_tokens=9, seed=3)
    assert again[:3] == first[:3]


def test_an_answer_ends_with_the_tokens_that_end_a_turn(monkeypatch):
    given = {}

    def said(*arguments, on_step, **options):
        given.update(options)
        on_step([0], [0])

    monkeypatch.setattr(chat_module, "sample", said)
    special = "<|eot_id|>", "<|im_start|>", "<|im_end|>", "</s>"
    chat = Chat(*tiny_language_model(special=special))
    chat.answer("x")
    ends = [chat.tokenizer.id_of(token) for token in special if token != "<|im_start|>"]
    assert sorted(given["eos_id"]) == sorted(ends)


def test_the_times_of_an_answer_are_without_those_of_compiling_kernels(monkeypatch):
    seconds = count()  # a clock that is one second later each time it is read
    monkeypatch.setattr(compilations, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))

    def said(*arguments, on_step, **options):
        for token in range(3):
            with compilations.compiling("kernel"):
                for _ in range(50):
                    next(seconds)
            on_step([0], [token])

    monkeypatch.setattr(chat_module, "sample", said)
    answer = Chat(*tiny_language_model()).answer("x")
    assert answer.read_seconds < 10 and answer.seconds < 10


def test_a_full_context_forgets_the_oldest_turns_but_not_what_it_is_told_first():
    chat, forgotten = Chat(*tiny_language_model(max_len=120), system="be"), 0
    for i in range(5):
        answer = chat.answer(f"turn {i}", n_tokens=20)
        assert answer.n_prompt + answer.n_said <= 121
        forgotten += answer.n_forgotten
    assert forgotten >= 6 and forgotten % 2 == 0
    assert len(chat.messages) == 10 - forgotten
    assert chat.messages[-2] == {"role": "user", "content": "turn 4"}
    message = r"this turn has \d+ tokens, expected at most the 120 that the model reads"
    refuses(ValueError, message, chat.answer, 99 * "long ")
    assert chat.messages[-2] == {"role": "user", "content": "turn 4"}


TURNS_FORGOTTEN = """
{%- for turn in messages[-3:] %}<|im_start|>{{ turn.content }}<|im_end|>{% endfor -%}
{% if messages | length > 3 %}forgetful{% endif %}"""


@pytest.mark.parametrize("template, window", [(None, None), (None, 5), (TURNS_FORGOTTEN, None)])
def test_only_what_is_new_is_read_and_answers_are_those_of_a_chat_that_reads_all(template, window):
    """The turns are forgotten, and interrupted, as they come."""
    model, params, tokenizer = tiny_language_model(max_len=200, template=template)
    model = dataclasses.replace(model, window=window, dtype="float64")
    params = model.init(1)
    chat = Chat(model, params, tokenizer)
    n_read = n_prompt = n_interrupted = 0
    for i in range(9):
        parts, told, other = [], [], Chat(model, params, tokenizer)
        other.messages = list(chat.messages)

        def show(text, parts=parts, stops=i % 3 == 1):
            parts.append(text)
            if stops and len(parts) == 3:
                raise KeyboardInterrupt

        try:
            answer = chat.answer(
                f"turn {i}", show=show, reading=told.append, n_tokens=12, seed=i, temperature=0.9
            )
        except KeyboardInterrupt:
            n_interrupted += 1
            continue
        assert told == [answer.n_read]
        whole = other.answer(f"turn {i}", n_tokens=12, seed=i, temperature=0.9)
        assert whole.n_read == whole.n_prompt
        others = {"n_read": 0, "read_seconds": 0, "seconds": 0}
        assert answer._replace(**others) == whole._replace(**others)
        n_read, n_prompt = n_read + answer.n_read, n_prompt + answer.n_prompt
    assert n_interrupted == 3
    assert n_read < n_prompt / (1 if template else 2)


def test_a_context_is_at_most_that_of_the_model():
    chat = Chat(*tiny_language_model(max_len=120), context=60)
    message = r"this turn has 1\d\d tokens, expected at most the 60 that the model reads"
    refuses(ValueError, message, chat.answer, 20 * "long ")
    answer = chat.answer("x", n_tokens=99)
    assert answer.n_prompt + answer.n_said <= 61
    message = "context=121, expected at most 120, the tokens that the model reads"
    refuses(ValueError, message, Chat, *tiny_language_model(max_len=120), context=121)


def test_an_answer_that_is_interrupted_is_kept_as_far_as_it_was():
    chat, shown = Chat(*tiny_language_model(max_len=999)), []

    def show(text):
        shown.append(text)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chat.answer("how?", show=show)
    assert chat.messages[0]["content"] == "how?"
    assert chat.messages[1]["content"] == shown[0]
