"""GPT-2, Llama, Mistral and BERT of the library transformers, small and random: the same numbers in float64."""

import logging

import numpy as np
import pytest

from npformer import Encoder, LanguageModel, beam_search, cpu, greedy_decode, reference, sample, tree
from npformer.layers import Rotary

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:transformers", "ignore::UserWarning:torch")

# Our parameters, and their modules that hold them; {} is the number of a layer.
GPT2 = {
    "embedding": "transformer.wte",
    "positions": "transformer.wpe",
    "layers.{}.attention_norm": "transformer.h.{}.ln_1",
    "layers.{}.attention.qkv": "transformer.h.{}.attn.c_attn",
    "layers.{}.attention.out": "transformer.h.{}.attn.c_proj",
    "layers.{}.feed_forward_norm": "transformer.h.{}.ln_2",
    "layers.{}.feed_forward.hidden": "transformer.h.{}.mlp.c_fc",
    "layers.{}.feed_forward.out": "transformer.h.{}.mlp.c_proj",
    "layers.norm": "transformer.ln_f",
    "output": "lm_head",
}
LLAMA = {
    "embedding": "model.embed_tokens",
    "layers.{}.attention_norm": "model.layers.{}.input_layernorm",
    "layers.{}.attention.qkv": "model.layers.{0}.self_attn.q_proj model.layers.{0}.self_attn.k_proj "
    "model.layers.{0}.self_attn.v_proj",
    "layers.{}.attention.out": "model.layers.{}.self_attn.o_proj",
    "layers.{}.feed_forward_norm": "model.layers.{}.post_attention_layernorm",
    "layers.{}.feed_forward.hidden": "model.layers.{0}.mlp.gate_proj model.layers.{0}.mlp.up_proj",
    "layers.{}.feed_forward.out": "model.layers.{}.mlp.down_proj",
    "layers.norm": "model.norm",
    "output": "lm_head",
}
BERT = {
    "embedding": "bert.embeddings.word_embeddings",
    "positions": "bert.embeddings.position_embeddings",
    "types": "bert.embeddings.token_type_embeddings",
    "embedding_norm": "bert.embeddings.LayerNorm",
    "layers.{}.attention.qkv": "bert.encoder.layer.{0}.attention.self.query bert.encoder.layer.{0}.attention.self.key "
    "bert.encoder.layer.{0}.attention.self.value",
    "layers.{}.attention.out": "bert.encoder.layer.{}.attention.output.dense",
    "layers.{}.attention_norm": "bert.encoder.layer.{}.attention.output.LayerNorm",
    "layers.{}.feed_forward.hidden": "bert.encoder.layer.{}.intermediate.dense",
    "layers.{}.feed_forward.out": "bert.encoder.layer.{}.output.dense",
    "layers.{}.feed_forward_norm": "bert.encoder.layer.{}.output.LayerNorm",
}
WORDS = BERT | {
    "words.hidden": "cls.predictions.transform.dense",
    "words.norm": "cls.predictions.transform.LayerNorm",
    "output": "cls.predictions.decoder",
}
CLASSES = BERT | {"output": "classifier"}
POOLED = CLASSES | {"pooler": "bert.pooler.dense"}


def value(parameter):
    return parameter.detach()


def gradient(parameter):
    return parameter.grad


def in_our_layout(get, theirs, table):
    """Their parameters, or gradients, by the paths of ours; all that are not in the table are an error."""
    found, names = {}, {id(x): name for name, x in theirs.named_parameters()}
    for path, modules in table.items():
        for i in range(theirs.config.num_hidden_layers if "{}" in path else 1):
            parts = [theirs.get_submodule(module.format(i)) for module in modules.split()]
            for name in ("weight", "bias"):
                held = [x for part in parts if (x := getattr(part, name, None)) is not None]
                held = [x for x in held if names.pop(id(x), None)]  # those that are tied, once
                if held:
                    arrays = [get(x).numpy() for x in held]
                    arrays = [x.T if isinstance(parts[0], torch.nn.Linear) else x for x in arrays]
                    found[ours_of(path.format(i), name, parts[0])] = np.concatenate(arrays, axis=-1)
    assert names.keys() <= {id(theirs.cls.predictions.bias)} if table is WORDS else not names  # unused if not tied
    return tree.from_leaves(found.items())


def ours_of(path, name, module):
    if isinstance(module, torch.nn.Embedding):
        return path
    return f"{path}.gain" if "norm" in path and name == "weight" else f"{path}.{name}"


def made(kind, config):
    """Their model with random parameters, none of which is 0 or 1."""
    torch.manual_seed(0)
    theirs = kind(config).double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return theirs


COMMON = {"attn_implementation": "eager", "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def gpt2(H=3, K=5, F=17, N=2, V=19, eps=1e-5, activation="gelu_new", tied=True, pad_id=None):
    """A model of theirs, and ours of the same settings and parameters."""
    config = transformers.GPT2Config(
        **COMMON | {"pad_token_id": pad_id},
        **{"vocab_size": V, "n_positions": 23, "n_embd": H * K, "n_layer": N, "n_head": H, "n_inner": F},
        **{"activation_function": activation, "layer_norm_epsilon": eps, "tie_word_embeddings": tied},
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    )
    ours = LanguageModel(
        V,
        **{"d_model": H * K, "n_heads": H, "n_layers": N, "d_ff": F, "max_len": 23, "eps": eps, "pad_id": pad_id},
        **{"positions": "learned", "scale_embeddings": False, "tie_embeddings": tied, "dtype": "float64"},
        activation=ACTIVATIONS[activation],
    )
    return both(transformers.GPT2LMHeadModel, config, GPT2, ours)


def llama(H=4, G=2, K=6, F=13, N=2, V=17, eps=1e-6, bias=False, tied=False, pad_id=None, window=None, rope=None):
    rope = {"rope_type": "default", "rope_theta": 10000.0} | (rope or {})
    options = {"sliding_window": window} if window else {"attention_bias": bias, "mlp_bias": bias}
    family = "Mistral" if window else "Llama"
    config = getattr(transformers, f"{family}Config")(
        **COMMON | {"pad_token_id": pad_id},
        **{"vocab_size": V, "hidden_size": H * K, "intermediate_size": F, "num_hidden_layers": N},
        **{"num_attention_heads": H, "num_key_value_heads": G, "max_position_embeddings": 23, "rms_norm_eps": eps},
        **{"tie_word_embeddings": tied, "rope_parameters": rope, **options},
    )
    ours = LanguageModel(
        V,
        **{"d_model": H * K, "n_heads": H, "n_kv_heads": G, "n_layers": N, "d_ff": F, "max_len": 23, "eps": eps},
        **{"positions": "rotary", "rotary": Rotary(rope["rope_theta"], rope.get("factor", 1.0)), "bias": bias},
        **{"norm_type": "rms_norm", "activation": "swiglu", "scale_embeddings": False, "tie_embeddings": tied},
        **{"window": window, "pad_id": pad_id, "dtype": "float64"},
    )
    return both(getattr(transformers, f"{family}ForCausalLM"), config, LLAMA, ours)


def bert(kind, table, H=3, K=4, F=17, N=2, V=19, eps=1e-12, tied=True, pad_id=0, activation="gelu", labels=2, **task):
    config = transformers.BertConfig(
        **COMMON | {"pad_token_id": pad_id},
        **{"vocab_size": V, "hidden_size": H * K, "num_hidden_layers": N, "num_attention_heads": H},
        **{"intermediate_size": F, "hidden_act": activation, "max_position_embeddings": 23, "layer_norm_eps": eps},
        **{"tie_word_embeddings": tied, "num_labels": labels, "hidden_dropout_prob": 0.0},
        **{"attention_probs_dropout_prob": 0.0, "problem_type": "regression" if task["task"] == "numbers" else None},
    )
    ours = Encoder(
        V,
        **{"d_model": H * K, "n_heads": H, "n_layers": N, "d_ff": F, "max_len": 23, "eps": eps, "pad_id": pad_id},
        **{"positions": "learned", "scale_embeddings": False, "n_types": 2, "embedding_norm": True, "norm": "post"},
        **{"activation": ACTIVATIONS[activation], "dropout": 0.0, "dtype": "float64", **task},
        **{"tie_embeddings": tied} if task["task"] == "words" else {"n_outputs": labels},
    )
    return both(getattr(transformers, kind), config, table, ours)


ACTIVATIONS = {"gelu_new": "gelu", "gelu": "gelu_erf", "relu": "relu", "silu": "silu"}


def both(kind, config, table, ours):
    theirs = made(kind, config)
    params = in_our_layout(value, theirs, table)
    tree.check_like(params, ours.shapes(), dtypes=False)
    return theirs, table, ours, tree.ordered_like(params, ours.shapes())


@pytest.fixture(autouse=True)
def in_float64(monkeypatch):
    """transformers computes some steps in float32, whatever the dtype of the parameters: here in float64."""
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    logging.getLogger("transformers").setLevel(logging.ERROR)


def assert_near(actual, wanted, name):
    wanted = np.asarray(wanted)
    assert actual.shape == wanted.shape, name
    assert np.abs(actual - wanted).max() <= 1e-10 * np.abs(wanted).max(), name


def assert_same_loss_and_gradients(models, batch, their_loss):
    theirs, table, ours, params = models
    their_loss.backward()
    wanted = dict(tree.leaves(in_our_layout(gradient, theirs, table)))
    for backend in (reference.ops, cpu.ops):
        loss, grads, _ = ours.loss_and_grad(params, *batch, backend=backend)
        assert abs(loss - their_loss.item()) <= 1e-10 * loss
        for path, grad in tree.leaves(grads):
            assert np.abs(wanted[path]).max() > 1e-4, path
            assert_near(grad, wanted[path], path)


IDS = np.random.default_rng(0).integers(3, 17, (4, 9))
LENGTHS = np.array([9, 4, 7, 2])
KEEP = np.arange(9) < LENGTHS[:, None]

LANGUAGE_MODELS = {
    "GPT-2": lambda pad_id=None: gpt2(pad_id=pad_id),
    "GPT-2, a head": lambda pad_id=None: gpt2(H=1, K=7, F=5, N=1, eps=1e-3, activation="relu", pad_id=pad_id),
    "GPT-2, not tied": lambda pad_id=None: gpt2(H=5, K=3, F=9, N=3, V=29, tied=False, pad_id=pad_id),
    "Llama": lambda pad_id=None: llama(pad_id=pad_id),
    "Llama, a head of keys": lambda pad_id=None: llama(H=3, G=1, K=4, F=11, eps=1e-2, tied=True, pad_id=pad_id),
    "Llama, not grouped": lambda pad_id=None: llama(
        H=3, G=3, K=2, F=19, N=3, V=23, bias=True, pad_id=pad_id, rope={"rope_theta": 500.0}
    ),
    "Llama, scaled": lambda pad_id=None: llama(pad_id=pad_id, rope={"rope_type": "linear", "factor": 2.0}),
    "Mistral": lambda pad_id=None: llama(H=6, G=3, window=4, pad_id=pad_id),
}
each_language_model = pytest.mark.parametrize("make", LANGUAGE_MODELS.values(), ids=list(LANGUAGE_MODELS))


@each_language_model
@pytest.mark.parametrize("padded", [False, True])
def test_a_language_model_has_the_same_logits_loss_and_gradients(make, padded):
    theirs, _, ours, params = models = make(pad_id=0 if padded else None)
    keep = KEEP if padded else KEEP | True
    ids, targets = np.where(keep, IDS, 0), np.where(keep, IDS, -100)
    out = theirs(torch.tensor(ids), attention_mask=torch.tensor(keep).long(), labels=torch.tensor(targets))
    for backend in (reference.ops, cpu.ops):
        assert_near(ours.logits(params, ids, backend=backend)[keep], out.logits.detach()[keep], "logits")
    assert_same_loss_and_gradients(models, (ids,), out.loss)


PROMPTS = [row[:n].tolist() for row, n in zip(IDS, LENGTHS, strict=True)]
LEFT = np.stack([np.roll(row, 9 - n) for row, n in zip(np.where(KEEP, IDS, 0), LENGTHS, strict=True)])
LEFT_KEEP = np.stack([np.roll(row, 9 - n) for row, n in zip(KEEP, LENGTHS, strict=True)])
BATCH = {"input_ids": torch.tensor(LEFT), "attention_mask": torch.tensor(LEFT_KEEP).long()}


def frequent(models, n, **options):
    """Tokens that greedy decoding says somewhere in the middle, so that texts may end with them."""
    said = greedy_decode(*models[2:], PROMPTS, max_len=9, **options)
    return [int(token) for token in np.unique(said[:, 3:6])[:n]]


@each_language_model
@pytest.mark.parametrize(
    ("n_ends", "options"), [(0, {}), (1, {}), (3, {"min_new_tokens": 5})], ids=["no end", "one end", "ends, not soon"]
)
def test_greedy_decoding_says_the_same(make, every_backend, n_ends, options):
    theirs, _, ours, params = models = make()
    ends = frequent(models, n_ends) or None
    wanted = theirs.generate(
        **BATCH, do_sample=False, max_new_tokens=12, eos_token_id=ends, pad_token_id=ends[0] if ends else 0, **options
    )
    min_len = options["min_new_tokens"] + 1 if options else 0  # ours counts the end token
    said = greedy_decode(ours, params, PROMPTS, eos_id=ends, max_len=12, min_len=min_len, backend=every_backend)
    np.testing.assert_array_equal(said, wanted.numpy()[:, 9:])


@each_language_model
@pytest.mark.parametrize("n_ends", [0, 1, 2])
@pytest.mark.parametrize(("beam_size", "length_penalty"), [(2, 1.0), (4, 0.0), (5, 0.6)])
def test_beam_search_finds_the_same_with_the_same_scores(make, every_backend, n_ends, beam_size, length_penalty):
    theirs, _, ours, params = models = make()
    ends = frequent(models, n_ends) or None
    wanted = theirs.generate(
        **BATCH,
        **{"num_beams": beam_size, "num_return_sequences": beam_size, "length_penalty": length_penalty},
        **{"do_sample": False, "early_stopping": True, "max_new_tokens": 8, "eos_token_id": ends},
        **{"return_dict_in_generate": True, "output_scores": True},
    )
    found = beam_search(
        *(ours, params, PROMPTS),
        **{"eos_id": ends, "max_len": 8, "beam_size": beam_size, "n_best": beam_size},
        **{"length_penalty": length_penalty, "backend": every_backend},
    )
    found = [hypothesis for row in found for hypothesis in row]
    for hypothesis, tokens, score in zip(
        found, wanted.sequences[:, 9:].tolist(), wanted.sequences_scores.tolist(), strict=True
    ):
        n = len(hypothesis.tokens)
        assert list(hypothesis.tokens) == tokens[:n]
        assert not {*tokens[n:]} - {*(ends or [])[:1]}  # with which they fill up
        assert hypothesis.score == pytest.approx(score, rel=1e-10)


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 1.7, "top_k": 5},
        {"temperature": 2.0, "top_p": 0.8},
        {"top_k": 6, "top_p": 0.7, "temperature": 3.0, "repetition_penalty": 1.5},
        {"repetition_penalty": 0.4},
    ],
    ids=str,
)
def test_samples_have_the_same_distribution(make, monkeypatch, options):
    """Below and above each step of their distribution function, the more probable tokens first."""
    theirs, _, ours, params = make()
    prompt = PROMPTS[0]
    scores = theirs.generate(
        **{"input_ids": torch.tensor([prompt]), "do_sample": True, "max_new_tokens": 1, "pad_token_id": 0},
        **{"return_dict_in_generate": True, "output_scores": True, "top_k": 0, **options},
    ).scores[0]
    p = scores.softmax(dim=-1)[0].numpy()
    ranked = np.argsort(-p)[: (p > 0).sum()]
    assert len(ranked) > 2
    steps = np.cumsum(p[ranked])[:-1]
    numbers = np.concatenate([steps - 1e-9, steps + 1e-9])
    monkeypatch.setattr("npformer.decoding.sampling.random_bits", lambda rows, key: numbers[rows] * 2.0**32 - 0.5)
    drawn = sample(ours, params, [prompt] * len(numbers), max_len=1, seed=0, **options)
    np.testing.assert_array_equal(drawn[:, 0], np.concatenate([ranked[:-1], ranked[1:]]))


@each_language_model
def test_a_penalty_of_what_was_said_changes_the_same_tokens(make, every_backend):
    theirs, _, ours, params = make()
    prompts, options = IDS[:, :5], {"repetition_penalty": 1.8}
    wanted = theirs.generate(torch.tensor(prompts), do_sample=False, max_new_tokens=9, pad_token_id=0, **options)
    said = sample(ours, params, prompts, max_len=9, seed=0, top_k=1, backend=every_backend, **options)
    np.testing.assert_array_equal(said, wanted.numpy()[:, 5:])


ENCODERS = {
    "BERT": {},
    "BERT, a head": {"H": 1, "K": 5, "F": 7, "N": 1, "V": 23, "eps": 1e-3, "activation": "relu"},
    "BERT, no id of padding": {"H": 5, "K": 3, "N": 3, "pad_id": None, "activation": "gelu_new"},
}
each_encoder = pytest.mark.parametrize("options", ENCODERS.values(), ids=list(ENCODERS))
TYPES = (np.arange(9) > 3) * KEEP


def their_encoder_output(theirs, labels=None):
    """The result of their model for the batch, whose positions after the end of a row are padding."""
    labels = {} if labels is None else {"labels": torch.tensor(labels)}
    arrays = {"input_ids": IDS * KEEP, "attention_mask": KEEP.astype(int), "token_type_ids": TYPES.astype(int)}
    return theirs(**{name: torch.tensor(x) for name, x in arrays.items()}, **labels)


def assert_same_outputs_loss_and_gradients(models, targets, labels):
    theirs, _, ours, params = models
    out = their_encoder_output(theirs, labels)
    at = KEEP if ours.by_position else ...
    for backend in (reference.ops, cpu.ops):
        logits = ours.outputs(params, IDS * KEEP, KEEP, TYPES.astype(int), backend=backend)
        assert_near(logits[at], out.logits.detach()[at], "logits")
    assert_same_loss_and_gradients(models, (IDS * KEEP, targets, KEEP, TYPES.astype(int)), out.loss)


@each_encoder
@pytest.mark.parametrize("tied", [True, False])
def test_masked_words_have_the_same_logits_loss_and_gradients(options, tied):
    models = bert("BertForMaskedLM", WORDS, tied=tied, task="words", **options)
    masked = KEEP & (np.random.default_rng(1).random(KEEP.shape) < 0.6)
    words = np.random.default_rng(2).integers(1, 19, KEEP.shape)
    assert_same_outputs_loss_and_gradients(models, np.where(masked, words, -1), np.where(masked, words, -100))


@each_encoder
def test_classes_of_sequences_have_the_same_logits_loss_and_gradients(options):
    models = bert(
        "BertForSequenceClassification", POOLED, labels=3, task="classes", pooling="first", pooler=True, **options
    )
    classes = np.array([2, 0, 1, 2])
    assert_same_outputs_loss_and_gradients(models, classes, classes)


def test_numbers_of_sequences_have_the_same_loss_and_gradients():
    models = bert("BertForSequenceClassification", POOLED, task="numbers", pooling="first", pooler=True)
    numbers = np.random.default_rng(1).standard_normal((4, 2))
    assert_same_outputs_loss_and_gradients(models, numbers, numbers)


def test_classes_of_positions_have_the_same_logits_loss_and_gradients():
    models = bert("BertForTokenClassification", CLASSES, labels=5, task="classes", pooling="none")
    classes = np.random.default_rng(1).integers(0, 5, KEEP.shape)
    assert_same_outputs_loss_and_gradients(models, classes, np.where(KEEP, classes, -100))


@each_encoder
def test_vectors_are_the_means_of_their_last_layer(options, every_backend):
    theirs, _, ours, params = bert("BertForTokenClassification", CLASSES, task="classes", **options)
    y = their_encoder_output(theirs.bert).last_hidden_state.detach().numpy()
    means = (y * KEEP[..., None]).sum(axis=1) / KEEP.sum(axis=1, keepdims=True)
    assert_near(ours.vectors(params, IDS * KEEP, KEEP, TYPES.astype(int), backend=every_backend), means, "vectors")
