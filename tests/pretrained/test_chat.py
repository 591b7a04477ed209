"""Chats: the text of the turns, by a template that may do anything, and the answers."""

import json
import sys

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
from tiny import tiny_encoder, tiny_language_model, tiny_tokenizer

from npformer.pretrained import chat as chat_module, sandbox
from npformer.pretrained.chat import Chat, chat_text

TURNS = [{"role": "user", "content": "{{ 1 }} é"}, {"role": "assistant", "content": "a"}]
IN_CHATML = "<|im_start|>user\n{{ 1 }} é<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>assistant\n"


def test_without_a_template_the_turns_are_in_chatml():
    assert chat_text(tiny_tokenizer(), TURNS) == IN_CHATML


def test_a_template_has_the_turns_the_tokens_and_what_templates_call():
    template = """{%- for turn in messages %}
        {% if turn.role == 'system' %}{% continue %}{% endif %}
    {{- turn | tojson }}{{ eos_token }}{% if bos_token is defined %}never{% endif %}
    {%- endfor %}{{ strftime_now('%%') }}{{ add_generation_prompt }}"""
    text = chat_text(tiny_tokenizer(template=template), [{"role": "system", "content": "x"}, *TURNS])
    assert text == "".join(f"{json.dumps(turn, ensure_ascii=False)}<|im_end|>" for turn in TURNS) + "%True"


MISBEHAVING = {
    "{% for x in %}": "TemplateSyntaxError: Expected an expression",
    "{{ raise_exception('roles must\nalternate') }}": "ValueError: roles must alternate",
    "{{ messages.x.y }}": "UndefinedError: 'list object' has no attribute 'x'",
    "{% for x in range(99999) %}{% for y in range(9999) %}{% endfor %}{% endfor %}": "it has not ended after 1 seconds",
    "{{ 10 ** (10 ** 8) }}": "it has not ended after 1 seconds",
    "{% for x in range(9999) %}{{ 'a' * 9999 }}{% endfor %}": "ValueError: the text has more than 8,388,608 characters",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}": "SecurityError: access to attribute '__class__'",
    "{{ messages.append(1) }}": "SecurityError: access to attribute 'append'",
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
    with pytest.raises(ValueError, match=r"the tokenizer has no template of a chat, nor <\|im_start\|>"):
        chat_text(tiny_tokenizer(special=()), TURNS)


def test_a_model_that_says_nothing_is_refused():
    with pytest.raises(ValueError, match="the model is a Encoder .*, expected a language model with a tokenizer"):
        Chat(*tiny_encoder())


def test_an_answer_is_streamed_and_kept():
    shown, chat = [], Chat(*tiny_language_model(max_len=999), system="be")
    first = chat.answer("how?", show=shown.append, n_tokens=9, seed=3)
    assert "".join(shown) == first.text.rstrip("\ufffd") != ""
    assert first.n_said <= 9 and first.n_forgotten == 0
    told = "<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nhow?<|im_end|>\n<|im_start|>assistant\n"
    assert first.n_read == len(chat.tokenizer.encode(told))
    second = chat.answer("why?", n_tokens=9)
    assert [turn["role"] for turn in chat.messages] == ["user", "assistant"] * 2
    assert [turn["content"] for turn in chat.messages] == ["how?", first.text, "why?", second.text]
    assert Chat(*tiny_language_model(max_len=999), system="be").answer("how?", n_tokens=9, seed=3)[:3] == first[:3]


def test_an_answer_ends_with_the_tokens_that_end_a_turn(monkeypatch):
    given = {}

    def said(*arguments, on_step, **options):
        given.update(options)
        on_step([0], [0])

    monkeypatch.setattr(chat_module, "sample", said)
    special = "<|eot_id|>", "<|im_start|>", "<|im_end|>", "</s>"
    chat = Chat(*tiny_language_model(special=special))
    chat.answer("x")
    assert set(given["eos_id"]) == {chat.tokenizer.id_of(token) for token in ("<|eot_id|>", "<|im_end|>", "</s>")}


def test_a_full_context_forgets_the_oldest_turns_but_not_what_it_is_told_first():
    chat, forgotten = Chat(*tiny_language_model(max_len=120), system="be"), 0
    for i in range(5):
        answer = chat.answer(f"turn {i}", n_tokens=20)
        assert answer.n_read + answer.n_said <= 121
        forgotten += answer.n_forgotten
    assert forgotten >= 6 and forgotten % 2 == 0
    assert len(chat.messages) == 10 - forgotten
    assert chat.messages[-2] == {"role": "user", "content": "turn 4"}
    with pytest.raises(ValueError, match=r"this turn has \d+ tokens, expected at most the 120 that the model reads"):
        chat.answer(99 * "long ")
    assert chat.messages[-2] == {"role": "user", "content": "turn 4"}


def test_an_answer_that_is_interrupted_is_kept_as_far_as_it_was():
    chat, shown = Chat(*tiny_language_model(max_len=999)), []

    def show(text):
        shown.append(text)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chat.answer("how?", show=show)
    assert chat.messages[0]["content"] == "how?"
    assert chat.messages[1]["content"] == shown[0]
