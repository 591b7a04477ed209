"""What a ``Trainer`` refuses, and what it takes in any order or type."""

import copy
import operator
import pickle
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from npformer import SGD, Adam, AdamW, Trainer, Transformer, tree
from npformer.training import load_checkpoint

SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 8, "dropout": 0.0}
MODEL = Transformer(11, 11, **SIZES)
SRC, TGT = np.array([[3, 4, 5]]), np.array([[1, 3, 4, 2]])


def reversed_order(params):
    return (
        {k: reversed_order(params[k]) for k in reversed(params)}
        if isinstance(params, dict)
        else params
    )


def test_parameters_in_another_order_are_the_same_parameters(tmp_path):
    pytest.importorskip("safetensors")
    one = Trainer(MODEL, Adam())
    other = Trainer(MODEL, Adam(), params=reversed_order(MODEL.init(0)))
    for trainer in (one, other):
        trainer.step(SRC, TGT)
    assert_array_equal(one.flat_params, other.flat_params)
    other.save(tmp_path / "other.safetensors")
    again = Trainer(MODEL, Adam())
    again.load(tmp_path / "other.safetensors")
    assert_array_equal(again.flat_params, one.flat_params)
    assert_array_equal(again.state.moments["m"], one.state.moments["m"])


@pytest.mark.parametrize("batches", [[], iter([]), [SRC]])
def test_no_batches_are_refused_and_nothing_moves(batches):
    trainer = Trainer(MODEL, SGD(0.1))
    trainer.step(SRC, TGT)
    before = trainer.flat_params.copy()
    with pytest.raises(
        ValueError, match=r"batches(\[0\])? is .*, expected (one or more tuples|a tuple) such as"
    ):
        trainer.step(batches=batches)
    for others in ([], zip()):
        with pytest.raises(ValueError, match="batches is empty, expected one or more tuples"):
            trainer.step(batches=others)
    with pytest.raises(ValueError, match="a batch of 2 items and batches=…, expected one of them"):
        trainer.step(SRC, TGT, batches=[(SRC, TGT)])
    assert_array_equal(trainer.flat_params, before)
    assert trainer.n_steps == 1


@pytest.mark.parametrize(
    "once",
    [
        iter,
        lambda pairs: (pair for pair in pairs),
        lambda pairs: zip(*zip(*pairs, strict=True), strict=True),
    ],
    ids=["iterator", "generator", "zip"],
)
def test_batches_that_can_be_read_once_make_a_whole_step(once):
    pairs = [(SRC, TGT), (TGT, TGT)]
    given, expected = Trainer(MODEL, Adam()), Trainer(MODEL, Adam())
    assert given.step(batches=once(pairs)) == expected.step(batches=pairs) > 0
    assert_array_equal(given.flat_params, expected.flat_params)
    assert given.last.n_tokens == 6


def test_what_can_be_read_once_is_no_part_of_a_batch():
    trainer, rows = Trainer(MODEL, Adam()), [[3, 4, 5]]
    before = trainer.flat_params.copy()
    for call in (
        lambda: trainer.step(SRC, iter(rows)),
        lambda: trainer.step(batches=[(SRC, TGT), (SRC, iter(rows))]),
        lambda: trainer.fit([(SRC, iter(rows))], progress=False),
        lambda: trainer.explain(SRC, iter(rows)),
    ):
        with pytest.raises(
            TypeError, match=r"batch\[1\] is a list_iterator, which can be read only once: expected"
        ):
            call()
    assert_array_equal(trainer.flat_params, before)


def test_callbacks_may_be_a_generator():
    seen: list = []
    callbacks = (lambda trainer, info, i=i: seen.append((info.step, i)) for i in range(2))
    Trainer(MODEL, SGD(0.1)).fit([(SRC, TGT)] * 2, callbacks=callbacks, progress=False)
    assert seen == [(1, 0), (1, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize(
    "callbacks, message",
    [
        (
            print,
            r"callbacks is a builtin_function_or_method, expected a list of functions: "
            r"try \[callbacks\]",
        ),
        (3, "callbacks is a int, expected a list of functions$"),
        ([print, 3], r"callbacks\[1\]=3 is a int, expected a function"),
    ],
    ids=str,
)
def test_callbacks_that_cannot_be_called_are_refused_before_the_first_step(
    callbacks, message, watch
):
    trainer = Trainer(MODEL, SGD(0.1))
    with pytest.raises(TypeError, match=message):
        trainer.fit([(SRC, TGT)] * 2, callbacks=callbacks, watch=watch, progress=False)
    assert trainer.n_steps == 0


@pytest.mark.parametrize(
    "change, name",
    [
        (
            lambda trainer: trainer.params["output"].update(bias=np.ones(11, "float32")),
            "parameter 'bias'",
        ),
        (
            lambda trainer: operator.setitem(trainer.params["output"], "bias", np.ones(11)),
            "parameter 'bias'",
        ),
        (
            lambda trainer: trainer.params.update({"output": MODEL.init(1)["output"]}),
            "parameter 'name'",
        ),
        (
            lambda trainer: operator.ior(trainer.params, {"output": MODEL.init(1)["output"]}),
            "parameter 'name'",
        ),
        (lambda trainer: setattr(trainer, "params", MODEL.init(1)), "trainer.params"),
        (lambda trainer: setattr(trainer, "params", None), "trainer.params"),
        (
            lambda trainer: trainer.params["output"].setdefault("more", np.ones(2)),
            "parameter 'more'",
        ),
        (lambda trainer: trainer.params["output"].pop("bias"), "parameter 'bias'"),
        (lambda trainer: operator.delitem(trainer.params, "encoder"), "parameter 'encoder'"),
        (lambda trainer: trainer.params.popitem(), "parameter 'name'"),
        (lambda trainer: trainer.params["encoder"].clear(), "parameter 'name'"),
        (
            lambda trainer: setattr(trainer, "flat_params", trainer.flat_params * 2),
            "trainer.flat_params",
        ),
        (lambda trainer: setattr(trainer, "ops", None), "trainer.ops"),
    ],
)
def test_parameters_cannot_be_replaced(change, name):
    trainer = Trainer(MODEL, Adam())
    with pytest.raises(ValueError, match=f"^{name} cannot be replaced.*: write into "):
        change(trainer)
    assert trainer.step(SRC, TGT) == Trainer(MODEL, Adam()).step(SRC, TGT)  # nothing had changed


def test_a_copy_of_the_parameters_is_an_ordinary_tree():
    trainer = Trainer(MODEL, Adam())
    for params in (copy.deepcopy(trainer.params), pickle.loads(pickle.dumps(trainer.params))):
        assert type(params) is type(params["output"]) is dict
        assert MODEL.loss(params, SRC, TGT) == MODEL.loss(trainer.params, SRC, TGT)
        params["output"]["bias"] = params["output"]["bias"][:-1]
        with pytest.raises(ValueError, match="parameter output.bias"):
            MODEL.loss(params, SRC, TGT)


def test_parameters_are_changed_in_place():
    trainer, other = (Trainer(MODEL, SGD(0.1)) for _ in range(2))
    trainer.params["output"]["bias"][...] = 1
    other.params["output"]["bias"] += 1
    other.flat_params *= 1
    assert (trainer.flat_params == 1).sum() >= 11
    assert trainer.step(SRC, TGT) == other.step(SRC, TGT)


def test_frozen_may_be_a_generator():
    trainer = Trainer(MODEL, SGD(0.1), frozen=(name for name in ["encoder"]))
    before = trainer.params["encoder"]["0"]["attention"]["qkv"]["weight"].copy()
    trainer.step(SRC, TGT)
    assert trainer.settings.frozen == ["encoder"]
    assert_array_equal(trainer.params["encoder"]["0"]["attention"]["qkv"]["weight"], before)


def test_numbers_of_numpy_are_saved_as_those_of_python(tmp_path):
    pytest.importorskip("safetensors")
    sizes = SIZES | {"n_layers": (1, 1)}
    model = Transformer(np.int64(11), 11, **sizes | {"dropout": np.float32(0.5)})
    trainer = Trainer(
        model, AdamW(weight_decay=np.float32(0.5)), seed=np.int64(1), clip_norm=np.float32(1)
    )
    trainer.save(tmp_path / "x.safetensors")
    model = Transformer(11, 11, **sizes | {"dropout": 0.5})
    Trainer(model, AdamW(weight_decay=0.5), seed=1, clip_norm=1.0).load(tmp_path / "x.safetensors")


def test_a_fraction_is_saved_as_the_float_that_it_is_computed_as(tmp_path):
    pytest.importorskip("safetensors")
    trainer = Trainer(
        MODEL, Adam(Fraction(1, 8), [np.float32(0.5), Fraction(3, 4)]), clip_norm=Fraction(1, 3)
    )
    trainer.step(SRC, TGT)
    trainer.save(tmp_path / "x.safetensors")
    again = Trainer(MODEL, Adam(0.125, (0.5, 0.75)), clip_norm=1 / 3)
    again.load(tmp_path / "x.safetensors")
    assert again.optimizer == trainer.optimizer


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seed": 10**400}, ValueError, "seed=an int of 1329 bits, expected at least 0 and below"),
        ({"seed": 2**64}, ValueError, "seed=18446744073709551616, expected at least 0 and below"),
        ({"clip_norm": True}, TypeError, "clip_norm=True is a bool, expected a number"),
        ({"frozen": 5}, TypeError, "frozen=5 is a int, expected a sequence of paths such as"),
        (
            {"frozen": None},
            TypeError,
            "frozen=None is a NoneType, expected a sequence of paths such as",
        ),
        ({"frozen": [5]}, ValueError, "frozen has 5, expected paths of parameters such as"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_it_trains(arguments, error, message):
    with pytest.raises(error, match=message):
        Trainer(MODEL, SGD(0.1), **arguments)


def test_the_largest_seed_trains_and_is_saved(tmp_path):
    pytest.importorskip("safetensors")
    trainer = Trainer(MODEL, SGD(0.1), seed=2**64 - 1)
    trainer.step(SRC, TGT)
    trainer.save(tmp_path / "x.safetensors")
    Trainer(MODEL, SGD(0.1), seed=2**64 - 1).load(tmp_path / "x.safetensors")


def test_names_of_the_trainer_are_refused_before_they_are_saved(tmp_path):
    with pytest.raises(
        ValueError,
        match="arrays has 'params.average', expected names that do not begin with 'params.'",
    ):
        Trainer(MODEL, SGD(0.1)).save(
            tmp_path / "x.safetensors", arrays={"params.average": np.ones(2)}
        )
    assert not list(tmp_path.iterdir())


def test_what_is_saved_beside_a_training_is_a_dict(tmp_path):
    for given in (
        {"info": "note"},
        {"info": ["note"]},
        {"arrays": "note"},
        {"arrays": [np.ones(2)]},
    ):
        [(name, value)] = given.items()
        with pytest.raises(TypeError, match=f"{name} is a {type(value).__name__}, expected a dict"):
            Trainer(MODEL, SGD(0.1)).save(tmp_path / "x.safetensors", **given)
    with pytest.raises(TypeError, match="arrays has the key 1, expected strings"):
        Trainer(MODEL, SGD(0.1)).save(tmp_path / "x.safetensors", arrays={1: np.ones(2)})
    assert not list(tmp_path.iterdir())


def test_ranks_are_those_of_this_program():
    with pytest.raises(
        TypeError, match=r"ranks is a str, expected npformer\.runtime\.ranks\.world\(\), or None"
    ):
        Trainer(MODEL, SGD(0.1), ranks="x")


def test_a_checkpoint_that_lacks_an_array_changes_nothing(tmp_path):
    pytest.importorskip("safetensors")
    trainer = Trainer(MODEL, Adam())
    trainer.step(SRC, TGT)
    trainer.save(tmp_path / "x.safetensors")
    arrays, info = load_checkpoint(tmp_path / "x.safetensors")
    del arrays["optimizer.v"]
    again = Trainer(MODEL, Adam())
    with pytest.raises(ValueError, match="parameter v: given nothing, expected float32 of shape"):
        again.restore(arrays, info, "x")
    assert_array_equal(again.flat_params, Trainer(MODEL, Adam()).flat_params)


@pytest.mark.parametrize(
    "params, message",
    [
        ((1, 2), "params is a tuple, expected a nested dict"),
        ("path", "params is a str, expected a nested dict"),
        (
            dict(tree.leaves(MODEL.init(0))),
            "parameter .*: given nothing, expected float32 of shape",
        ),
    ],
    ids=["tuple", "str", "flat"],
)
def test_parameters_are_a_nested_dict(params, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Trainer(MODEL, SGD(0.1), params=params)


def test_a_model_needs_its_methods():
    class Model:
        def init(self, seed):
            return {"w": np.zeros(1)}

    with pytest.raises(TypeError, match=r"model is a Model without loss_and_grad\(\)"):
        Trainer(Model(), SGD(0.1))


def test_a_source_that_is_too_long_is_noticed_before_the_step():
    model = Transformer(11, 11, **SIZES, max_len=3)
    with pytest.raises(ValueError, match="src has length 4, expected at most max_len=3"):
        model.count(np.ones((1, 4), int), TGT)
    assert model.count(SRC, TGT) == 3


def test_what_decides_the_shards_is_the_largest_array(monkeypatch):
    """Of (tokens, labels) the labels are few; and what is no array is handed on as it is."""
    monkeypatch.setattr("npformer.operations.host.n_threads", lambda: 2)
    seen = []

    class Classifier:
        def init(self, seed):
            return {"w": np.zeros(10**5, "float32")}

        def count(self, tokens, labels, note=None):
            return len(labels)

        def loss_and_grad(self, params, tokens, labels, note=None, **options):
            seen.append(len(tokens))
            return 0.0, {"w": np.zeros(10**5, "float32")}, len(labels)

    trainer = Trainer(Classifier(), SGD(0.1))
    trainer.step(np.zeros((4, 500), int), np.zeros(4, int))
    trainer.step(np.zeros((4, 500), int), np.zeros(4, int), "as it is")
    assert seen == [2, 2, 4]


@pytest.mark.parametrize("use", [lambda model: pickle.loads(pickle.dumps(model)), copy.deepcopy])
def test_a_model_that_was_used_can_be_copied(use):
    params = MODEL.init(0)
    logits = MODEL.logits(params, SRC, TGT)
    twin = use(MODEL)
    assert twin == MODEL
    assert_array_equal(twin.logits(params, SRC, TGT), logits)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_refused_token_leaves_the_decoder_as_it_was(backend):
    params = MODEL.init(0)
    decoder = MODEL.decoder(params, SRC, max_rows=1, max_len=9, backend=backend)
    row = np.array([0])
    decoder.step(np.array([1]), row)
    with pytest.raises(ValueError, match=r"tokens\[0\] is 99, expected 0 <= id < 11"):
        decoder.step(np.array([99]), row)
    logits = decoder.step(np.array([3]), row)
    assert_allclose(logits, MODEL.logits(params, SRC, np.array([[1, 3]]))[:, -1], atol=1e-5)


def test_merging_takes_dicts():
    with pytest.raises(TypeError, match="tree is a Trainer, expected a nested dict"):
        tree.merged(Trainer(MODEL, SGD(0.1)), MODEL.init(0))
