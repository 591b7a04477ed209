"""Models of each family of the library transformers, small and random: the same in float64."""

import logging
import tomllib
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from in_float64 import compute_in_float64
from numpy.testing import assert_array_equal
from tables import each_of
from tiny import tiny_translation_tokenizer

from npformer import (
    beam_search,
    cpu,
    greedy_decode,
    pretrained,
    reference,
    sample,
    sinusoidal_encoding,
)
from npformer.pretrained.families import FAMILIES
from npformer.pretrained.families.naming import Naming
from npformer.pretrained.tokenizer import tokenizer_of
from npformer.pretrained.tokenizer_settings import files_of_tokenizer
from tests.pretrained.folders import edit
from tests.tools.forge_pretrained import MODELS

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning:transformers", "ignore::UserWarning:torch"
)


def made(kind, config):
    """Their model with random parameters, none of which is 0 or 1."""
    torch.manual_seed(0)
    theirs = kind(config).double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        if isinstance(config, transformers.MarianConfig):
            theirs.final_logits_bias.normal_()
            table = sinusoidal_encoding(23, config.d_model, "concatenated")
            for stack in (theirs.get_encoder(), theirs.get_decoder()):
                stack.embed_positions.weight.copy_(torch.tensor(table))  # theirs has float32
    return theirs


TABLES = tomllib.loads(Path(__file__).with_name("transformers_models.toml").read_text("utf-8"))
COMMON = {"attn_implementation": "eager", "bos_token_id": None, "eos_token_id": None}
COMMON |= {"pad_token_id": None}


def both(family, kind, **options):
    """A model of theirs, its family, and ours that was loaded from what theirs has saved."""
    sizes = dict(TABLES["sizes"][family])
    if "like" in sizes:
        sizes = TABLES["sizes"][sizes.pop("like")] | sizes
    config = getattr(transformers, f"{family}Config")(**COMMON | sizes | options)
    theirs = made(getattr(transformers, f"{family}{kind}"), config)
    hidden = {}
    if kind in ("ForCausalLM", "LMHeadModel"):
        hidden["pad_id"] = config.pad_token_id
    with TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours, params, *_ = pretrained.load(folder, dtype="float64", **hidden)
    return theirs, FAMILIES[config.model_type], ours, params


def language_model(family, **options):
    return both(family, "LMHeadModel" if family == "GPT2" else "ForCausalLM", **options)


def encoder(kind, family="Bert", pad_token_id=0, **options):
    """What it predicts is told by its kind."""
    pad_token_id = None if pad_token_id == "none" else pad_token_id
    return both(family, kind, pad_token_id=pad_token_id, **options)


def marian(vocab_size=19, **options):
    """The last word of the vocabulary is the padding, and begins a text."""
    options |= {"vocab_size": vocab_size, "decoder_vocab_size": vocab_size, "eos_token_id": 2}
    last = vocab_size - 1
    return both("Marian", "MTModel", pad_token_id=last, decoder_start_token_id=last, **options)


@pytest.fixture(autouse=True)
def in_float64(monkeypatch):
    compute_in_float64(monkeypatch, torch)
    logging.getLogger("transformers").setLevel(logging.ERROR)


def assert_near(actual, wanted, name):
    wanted = np.asarray(wanted)
    assert actual.shape == wanted.shape, name
    assert np.abs(actual - wanted).max() <= 1e-10 * max(1e-4, np.abs(wanted).max()), name


NEW = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "bert": "BertForMaskedLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


@pytest.mark.parametrize("name", NEW)
def test_theirs_loads_a_new_model_of_ours(name, tmp_path):
    ours = replace(MODELS[name], dtype="float64")
    if name == "bert":
        ours = replace(ours, task="words")
    params = ours.init(0)
    pretrained.save(tmp_path / "new", ours, params)
    kind = getattr(transformers, NEW[name])
    theirs = kind.from_pretrained(tmp_path / "new").double().eval()
    logits = ours.outputs(params, IDS) if name == "bert" else ours.logits(params, IDS)
    assert_near(logits, theirs(torch.tensor(IDS)).logits.detach(), "logits")


def assert_same_loss_and_gradients(models, batch, their_loss):
    theirs, family, ours, params = models
    their_loss.backward()
    for backend in (reference.ops, cpu.ops):
        loss, grads, _ = ours.loss_and_grad(params, *batch, backend=backend)
        assert abs(loss - their_loss.item()) <= 1e-10 * loss
        found = family.for_file(Naming.write(family, ours, grads), ours)
        states = theirs.state_dict(keep_vars=True).items()
        for name, parameter in theirs.named_parameters():
            if parameter.grad is None:
                continue
            wanted = parameter.grad.numpy()
            # softmax does not see the biases of keys
            of_keys = name.endswith(("key.bias", "k_proj.bias", "k_lin.bias"))
            assert np.abs(wanted).max() > 1e-4 or of_keys, name
            # a sum, if it is tied
            names = [name for name, x in states if x is parameter and name in found]
            ours_of_it = {id(found[name]): found[name] for name in names}
            assert_near(sum(ours_of_it.values()), wanted, name)


IDS = np.random.default_rng(0).integers(3, 17, (4, 9))
LENGTHS = np.array([9, 4, 7, 2])
KEEP = np.arange(9) < LENGTHS[:, None]

each_language_model = each_of("options", TABLES["language_models"])


@each_language_model
@pytest.mark.parametrize("padded", [False, True])
def test_a_language_model_has_the_same_logits_loss_and_gradients(options, padded):
    models = language_model(pad_token_id=0 if padded else None, **options)
    theirs, _, ours, params = models
    keep = KEEP if padded else KEEP | True
    ids, targets = np.where(keep, IDS, 0), np.where(keep, IDS, -100)
    mask = torch.tensor(keep).long()
    out = theirs(torch.tensor(ids), attention_mask=mask, labels=torch.tensor(targets))
    for backend in (reference.ops, cpu.ops):
        logits = ours.logits(params, ids, backend=backend)
        assert_near(logits[keep], out.logits.detach()[keep], "logits")
    assert_same_loss_and_gradients(models, (ids,), out.loss)


PROMPTS = [row[:n].tolist() for row, n in zip(IDS, LENGTHS, strict=True)]


def moved_to_the_end(rows):
    """Rows whose padding stands at their beginning."""
    return np.stack([np.roll(row, 9 - n) for row, n in zip(rows, LENGTHS, strict=True)])


LEFT_KEEP = moved_to_the_end(KEEP)
BATCH = {
    "input_ids": torch.tensor(moved_to_the_end(np.where(KEEP, IDS, 0))),
    "attention_mask": torch.tensor(LEFT_KEEP).long(),
    "do_sample": False,
}


def frequent(models, n, **options):
    """Tokens that greedy decoding says somewhere in the middle, so that texts may end with them."""
    said = greedy_decode(*models[2:], PROMPTS, max_len=9, **options)
    return [int(token) for token in np.unique(said[:, 3:6])[:n]]


@each_language_model
@pytest.mark.parametrize(
    ("n_ends", "min_new_tokens"), [(0, 0), (1, 0), (3, 5)], ids=["no end", "one end", "not soon"]
)
def test_greedy_decoding_says_the_same(options, every_backend, n_ends, min_new_tokens):
    theirs, _, ours, params = models = language_model(**options)
    ends = frequent(models, n_ends) or None
    settings = {"eos_token_id": ends, "pad_token_id": ends[0] if ends else 0}
    limits = {"eos_id": ends, "max_len": 12}
    if min_new_tokens:
        settings["min_new_tokens"] = min_new_tokens
        limits["min_len"] = min_new_tokens + 1  # ours counts the end token
    wanted = theirs.generate(**BATCH, max_new_tokens=12, **settings)
    said = greedy_decode(ours, params, PROMPTS, backend=every_backend, **limits)
    assert_array_equal(said, wanted.numpy()[:, 9:])


@each_language_model
@each_of("search", TABLES["searches"])
def test_beam_search_finds_the_same_with_the_same_scores(options, every_backend, search):
    theirs, _, ours, params = models = language_model(**options)
    ends = frequent(models, search["n_ends"]) or None
    beam_size = search["beam_size"]
    penalty = {"length_penalty": search["length_penalty"]}
    settings = {"num_beams": beam_size, "num_return_sequences": beam_size, "eos_token_id": ends}
    settings |= {"return_dict_in_generate": True, "output_scores": True, "early_stopping": True}
    wanted = theirs.generate(**BATCH, max_new_tokens=8, **settings, **penalty)
    settings = {"beam_size": beam_size, "n_best": beam_size, "eos_id": ends, "max_len": 8}
    found = beam_search(ours, params, PROMPTS, backend=every_backend, **settings, **penalty)
    found = [hypothesis for row in found for hypothesis in row]
    texts = wanted.sequences[:, 9:].tolist()
    scores = wanted.sequences_scores.tolist()
    for hypothesis, tokens, score in zip(found, texts, scores, strict=True):
        n = len(hypothesis.tokens)
        assert list(hypothesis.tokens) == tokens[:n]
        assert not {*tokens[n:]} - {*(ends or [])[:1]}  # with which they fill up
        assert hypothesis.score == pytest.approx(score, rel=1e-10)


@pytest.mark.parametrize("family", ["GPT2", "Llama"])
@each_of("options", TABLES["samplings"])
def test_samples_have_the_same_distribution(family, monkeypatch, options):
    """Below and above each step of their distribution function, the more probable tokens first."""
    theirs, _, ours, params = language_model(family)
    prompt = PROMPTS[0]
    settings = {"do_sample": True, "max_new_tokens": 1, "pad_token_id": 0, "top_k": 0}
    settings |= {"return_dict_in_generate": True, "output_scores": True, **options}
    out = theirs.generate(input_ids=torch.tensor([prompt]), **settings)
    p = out.scores[0].softmax(dim=-1)[0].numpy()
    ranked = np.argsort(-p)[: (p > 0).sum()]
    assert len(ranked) > 2
    steps = np.cumsum(p[ranked])[:-1]
    numbers = np.concatenate([steps - 1e-9, steps + 1e-9])
    bits = numbers * 2.0**32 - 0.5
    monkeypatch.setattr("npformer.decoding.sampling.random_bits", lambda rows, key: bits[rows])
    drawn = sample(ours, params, [prompt] * len(bits), max_len=1, seed=0, **options)
    assert_array_equal(drawn[:, 0], np.concatenate([ranked[:-1], ranked[1:]]))


@each_language_model
def test_a_penalty_of_what_was_said_changes_the_same_tokens(options, every_backend):
    theirs, _, ours, params = language_model(**options)
    prompts = IDS[:, :5]
    penalty = {"repetition_penalty": 1.8}
    settings = {"do_sample": False, "max_new_tokens": 9, "pad_token_id": 0, **penalty}
    wanted = theirs.generate(torch.tensor(prompts), **settings)
    settings = {"max_len": 9, "seed": 0, "top_k": 1, "backend": every_backend, **penalty}
    said = sample(ours, params, prompts, **settings)
    assert_array_equal(said, wanted.numpy()[:, 5:])


each_encoder = each_of("options", TABLES["encoders"])


def encoder_batch(ours, keep=KEEP):
    """Ids, their mask and, if the model has them, their types; what is not kept is padding."""
    ids = np.where(keep, IDS, ours.pad_id or 0)
    types = ((np.arange(9) > 3) & keep).astype(int) if ours.n_types > 1 else None
    return ids, keep, types


def their_encoder_output(theirs, batch, labels=None):
    """The result of their model for the batch."""
    names = "input_ids", "attention_mask", "token_type_ids"
    arrays = {name: x.astype(int) for name, x in zip(names, batch, strict=True) if x is not None}
    if labels is not None:
        arrays["labels"] = labels
    return theirs(**{name: torch.tensor(x) for name, x in arrays.items()})


def assert_same_outputs_loss_and_gradients(models, targets):
    theirs, _, ours, params = models
    labels = targets if targets.dtype == float else np.where(targets < 0, -100, targets)
    batch = encoder_batch(ours)
    out = their_encoder_output(theirs, batch, labels)
    at = KEEP if ours.by_position else ...
    for backend in (reference.ops, cpu.ops):
        logits = ours.outputs(params, *batch, backend=backend)
        assert_near(logits[at], out.logits.detach()[at], "logits")
    ids, keep, types = batch
    assert_same_loss_and_gradients(models, (ids, targets, keep, types), out.loss)


rng = np.random.default_rng(1)
MASKED = np.where(rng.random(KEEP.shape) < 0.6, rng.integers(1, 19, KEEP.shape), -1)
TASKS = {
    "words of a tied table": ("ForMaskedLM", {"tie_word_embeddings": True}, MASKED),
    "words": ("ForMaskedLM", {"tie_word_embeddings": False}, MASKED),
    "classes": ("ForSequenceClassification", {"num_labels": 3}, np.array([2, 0, 1, 2])),
    "classes of positions": ("ForTokenClassification", {"num_labels": 5}, IDS % 5),
}


@each_encoder
@each_of(("kind", "settings", "targets"), TASKS)
def test_an_encoder_has_the_same_logits_loss_and_gradients(options, kind, settings, targets):
    models = encoder(kind, **settings, **options)
    if targets.ndim == 2:
        targets = np.where(KEEP, targets, -1)
    assert_same_outputs_loss_and_gradients(models, targets)


def test_the_first_token_is_no_padding_at_the_beginning_of_a_row():
    """Theirs classifies the padding there, which changes what it says of the same text."""
    theirs, _, ours, params = encoder("ForSequenceClassification", "Roberta", 1, num_labels=3)
    batch = encoder_batch(ours)
    wanted = their_encoder_output(theirs, batch).logits.detach().numpy()
    left = moved_to_the_end(batch[0]), LEFT_KEEP, None
    assert_near(ours.outputs(params, *left), wanted, "logits")
    of_theirs = their_encoder_output(theirs, left).logits.detach().numpy()
    assert np.abs(of_theirs - wanted)[LENGTHS < 9].max() > 0.01
    assert_near(of_theirs[LENGTHS == 9], wanted[LENGTHS == 9], "logits")


def test_numbers_of_sequences_have_the_same_loss_and_gradients():
    models = encoder("ForSequenceClassification", problem_type="regression")
    numbers = np.random.default_rng(1).standard_normal((4, 2))
    assert_same_outputs_loss_and_gradients(models, numbers)


@each_encoder
@pytest.mark.parametrize(
    "keep", [KEEP, KEEP[:, ::-1]], ids=["padded at the end", "padded at the beginning"]
)
def test_vectors_are_the_means_of_their_last_layer(options, keep, every_backend):
    theirs, _, ours, params = encoder("Model", **options)
    batch = encoder_batch(ours, keep)
    y = their_encoder_output(theirs, batch).last_hidden_state.detach().numpy()
    means = (y * keep[..., None]).sum(axis=1) / keep.sum(axis=1, keepdims=True)
    assert_near(ours.vectors(params, *batch, backend=every_backend), means, "vectors")


@each_encoder
def test_an_encoder_is_read_by_theirs(options, tmp_path):
    theirs, _, ours, params = encoder("ForSequenceClassification", **options)
    pretrained.save(tmp_path / "ours", ours, params)
    again = type(theirs).from_pretrained(tmp_path / "ours").double().eval()
    batch = encoder_batch(ours)
    wanted = their_encoder_output(theirs, batch).logits.detach().numpy()
    assert_near(their_encoder_output(again, batch).logits.detach().numpy(), wanted, "logits")


each_marian = each_of("options", TABLES["marians"])


def translations(ours):
    """Decoder inputs of theirs, which begin with the padding, and of ours,
    whose begin token is the last of all.
    """
    V = ours.tgt_vocab - 1
    tgt = np.random.default_rng(1).integers(3, V - 1, (4, 7))
    return np.insert(tgt, 0, V - 1, axis=1)[:, :-1], np.insert(tgt, 0, V, axis=1)


def padded(ours):
    """Sources, with the padding that ours has."""
    return np.where(KEEP, IDS, ours.pad_id)


@each_marian
def test_a_translation_model_has_the_same_logits_loss_and_gradients(options):
    theirs, _, ours, params = models = marian(**options)
    tgt_in, tgt = translations(ours)
    out = theirs(
        input_ids=torch.tensor(padded(ours)),
        attention_mask=torch.tensor(KEEP).long(),
        decoder_input_ids=torch.tensor(tgt_in),
        labels=torch.tensor(tgt[:, 1:]),
    )
    for backend in (reference.ops, cpu.ops):
        logits = ours.logits(params, padded(ours), tgt[:, :-1], backend=backend)[..., :-1]
        assert_near(logits, out.logits.detach(), "logits")
    assert_same_loss_and_gradients(models, (padded(ours), tgt), out.loss)


@each_marian
@pytest.mark.parametrize("forced", [None, 2], ids=["cut", "ended"])
@each_of("search", TABLES["translation_searches"])
def test_a_translation_model_translates_the_same(options, every_backend, forced, search):
    theirs, _, ours, params = marian(**options, forced_eos_token_id=forced)
    V = ours.tgt_vocab - 1
    src = padded(ours)
    search = dict(search)
    n = search.pop("beam_size")
    settings = {"num_beams": n, "num_return_sequences": n, "max_new_tokens": 9, "do_sample": False}
    settings |= {"suppress_tokens": [V - 1], "pad_token_id": V - 1, "eos_token_id": 2}
    settings["attention_mask"] = torch.tensor(KEEP).long()
    wanted = theirs.generate(input_ids=torch.tensor(src), **settings, **search).numpy()[:, 1:]
    settings = {"bos_id": V, "eos_id": 2, "max_len": 9, "backend": every_backend}
    if n == 1:
        assert_array_equal(greedy_decode(ours, params, src, **settings), wanted)
        return
    found = beam_search(ours, params, src, beam_size=n, n_best=n, **settings, **search)
    said = [list(hypothesis.tokens) for row in found for hypothesis in row]
    for ours_of_it, theirs_of_it in zip(said, wanted.tolist(), strict=True):
        assert ours_of_it == theirs_of_it[: len(ours_of_it)]
        assert {*theirs_of_it[len(ours_of_it) :]} <= {V - 1}


def test_the_tokens_of_a_translation_model_are_theirs(tmp_path):
    pytest.importorskip("sentencepiece")
    tiny_translation_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"source_lang": "en", "target_lang": "fr"}')
    ours = tokenizer_of(files_of_tokenizer(tmp_path), {"vocab_size": 99}, FAMILIES["marian"])
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    for text in ("the man has a dog", "x the\u00e9", " two  spaces ", ">>fra<< the dogs", ""):
        ids = ours.encode(text)
        assert ids == theirs(text)["input_ids"], text
        if ours.ids["<unk>"] not in ids:  # which theirs leaves out
            assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text


def test_the_tokens_of_a_roberta_of_older_files_are_theirs(tmp_path):
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *"thean,", "\u0120", "th", "the", "\u0120the"]
    vocabulary += ["<mask>"]
    mask = {"content": "<mask>", "lstrip": True}
    mask |= dict.fromkeys(("single_word", "rstrip", "normalized"), False)
    edit(tmp_path / "vocab.json", **{token: i for i, token in enumerate(vocabulary)})
    edit(tmp_path / "config.json", model_type="roberta")
    edit(tmp_path / "special_tokens_map.json", cls_token="<s>", mask_token=mask)
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nth e\n\u0120 the\n")
    config = {"model_type": "roberta", "vocab_size": len(vocabulary)}
    ours = tokenizer_of(files_of_tokenizer(tmp_path), config, FAMILIES["roberta"])
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("the hat", "the <mask>, an", "<mask>", " the ", ""):
        assert ours.encode(text) == theirs(text)["input_ids"], text
