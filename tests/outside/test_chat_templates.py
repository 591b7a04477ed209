"""The text of a chat by the templates of known models, as the library transformers renders it."""

import pytest

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
from tables import each_of
from tiny import tiny_tokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from npformer.pretrained.chat import chat_text

TEMPLATES = {
    "Llama 2": """{{ bos_token }}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('roles must alternate') }}
{% endif %}
{% if message['role'] == 'user' %}
{{ '[INST] ' + message['content'] | trim + ' [/INST]' }}
{% else %}
{{ ' ' + message['content'] | trim + ' ' + eos_token }}
{%- endif %}
{% endfor %}
""",
    "Llama 3": """{%- set loop_messages = messages %}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- endif %}
{%- for message in loop_messages %}
    {%- set content = '<|start|>' + message['role'] + '<|end|>\n\n'
        + message['content'] | trim + '<|eot_id|>' %}
    {%- if loop.index0 == 0 %}{%- set content = bos_token ~ content %}{% endif %}
    {{- content }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant<|end|>\n\n' }}{% endif %}""",
    "of each kind": """{% set ns = namespace(n=0) %}
    {% for message in messages if message.content is string %}
    {% set ns.n = ns.n + 1 %}
    {{- ns.n }} {{ message | tojson }} {{ message | tojson(indent=2) }} {{
        message.content.split('\\n')[-1] }}
    {% if ns.n > 2 %}{% break %}{% endif %}
    {% endfor %}
{% macro bold(x) %}<b>{{ x }}</b>{% endmacro %}{{ bold(messages[-1]['content']) }}{{
    strftime_now('%Y') }}""",
    "tools": (
        "{% if tools is not none or documents is not none %}tools{% endif %}"
        "{{ messages[0].content }}"
    ),
}
TURNS = [
    {"role": "user", "content": " a <b> & 'é' "},
    {"role": "assistant", "content": "one\ntwo"},
    {"role": "user", "content": "{{ x }}"},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": "end"},
]


@each_of("template", TEMPLATES)
def test_the_text_is_theirs(template):
    tokenizer = tiny_tokenizer(special=("<s>", "</s>"), template=template)
    tokenizer.bos_id = tokenizer.id_of("<s>")
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    [wanted], _ = render_jinja_template(
        [TURNS], chat_template=template, add_generation_prompt=True, **tokens
    )
    assert chat_text(tokenizer, TURNS) == wanted
