"""``scripts/bench/``: what they compute, and that they run; not how fast anything is."""

import json
import math
from importlib import import_module

import numpy as np
import pytest
from counter import build_counter
from refusals import refuses

import npformer as nf
from npformer.operations.host import HOST
from npformer.runtime import threads
from npformer.runtime.blas_threads import blas_threads
from npformer.training.shards import Sharding

pytest.importorskip("resource", reason="the benchmarks need a Unix system")
from npformer.commands.shared import output  # noqa: E402
from scripts.bench import (  # noqa: E402
    bench_attention,
    bench_limits,
    bench_ops,
    bench_pretrained,
    bench_ranks,
    bench_train,
    contenders,
    limits,
    machine,
    options,
    own_limit,
    predict_ranks,
    report,
    steps,
)

NO_PEERS = {
    "bench_train": ("--without", "pytorch,fused,compile,jax"),
    "bench_attention": ("--without", "pytorch,dropout"),
    "bench_ops": ("--without", "pytorch"),
    "bench_decode": ("--without", "npformer_int8,ctranslate2,ctranslate2_int8,huggingface"),
}


SHORT = "--quick", "--rounds", 1, "--seconds", 0.001
build_limits = limits.build_limits
SMALL = {"AT_LEAST": 2**16, "SECONDS": 1e-4, "MOST_WEIGHTS": 2**20}
SMALL["READING"] = own_limit.READING._replace(depth=256, n=256)


def build_small_limits(sizes, build=None):
    """In the process that measures them: what the test has changed is not changed there."""
    vars(own_limit).update(SMALL)
    return build_limits((128,), build, copied=2**16)


@pytest.fixture(autouse=True)
def pauses_are_short_and_limits_small(monkeypatch):
    monkeypatch.setattr(limits, "build_limits", build_small_limits)
    for module in (contenders, machine):
        monkeypatch.setattr(module, "PAUSE", 0.01)
    for name, small in SMALL.items():
        monkeypatch.setattr(own_limit, name, small)


@pytest.fixture
def in_this_process(monkeypatch):
    """Contenders without a process of their own, which would import npformer for each."""

    def start(contender, name, libraries, build):
        contender.name = name
        contender.worker = contenders._Worker(libraries, build)

    def ask(contender, command, *arguments):
        return getattr(contender.worker, command)(*arguments)

    replaced = {"__init__": start, "_ask": ask, "__exit__": lambda *_: None}
    for name, method in (replaced | {"cpu_seconds": lambda _: 0.0}).items():
        monkeypatch.setattr(contenders.Contender, name, method)


IN_THIS_PROCESS = pytest.mark.usefixtures("in_this_process")


@pytest.fixture
def run_npformer_alone(measure):
    """The shortest possible run, in this process. Returns the figures that it writes."""

    def run_here(script, *arguments):
        main = import_module(f"scripts.bench.{script}").main
        own = "--backends", "reference", *NO_PEERS[script], *arguments
        code, shown, _, figures = measure(main, *SHORT, *own)
        assert code == 0
        assert "sgemm" in shown and "NumPy's BLAS" in shown
        assert figures["machine"]["versions"]["numpy"] == np.__version__
        return figures

    return run_here


def alone(result):
    """The figures of the only contender, and its median in seconds."""
    (found,) = result["contenders"].values()
    return found, found["seconds"]["median"]


# -- as a user runs them ---------------------------------------------------------------------------


def test_training_steps_are_measured(run_npformer_alone):
    step = run_npformer_alone("bench_train", "--steps", "tiny")["steps"]["tiny"]
    found, seconds = alone(step)
    assert found["times_as_long"] == 1
    assert found["gflops"] == pytest.approx(step["flops"] / seconds / 1e9)
    assert found["share_of_sgemm"] == pytest.approx(found["gflops"] / step["limits"]["sgemm"])
    own = step["own_limit"]
    parts = sum(of["products"] + of["bytes"] for of in own["operations"].values())
    assert own["seconds"] == pytest.approx(parts)
    assert found["share_of_own_limit"] == pytest.approx(own["seconds"] / seconds)
    assert abs(found["first_value"] - math.log(11)) < 1.5
    assert found["libraries_bytes"] > 1e6 and found["training_bytes"] > 1e6


@IN_THIS_PROCESS
def test_recurrent_steps_are_measured(run_npformer_alone):
    found, _ = alone(run_npformer_alone("bench_train", "--steps", "gru-dot")["steps"]["gru-dot"])
    assert found["times_as_long"] == 1
    assert abs(found["first_value"] - math.log(1000)) < 0.5


@IN_THIS_PROCESS
def test_attention_is_measured(run_npformer_alone):
    figures = run_npformer_alone("bench_attention", "--lengths", "130,64", "--masks", "causal")
    assert [result["T"] for result in figures["results"]] == [64, 130]
    for result in figures["results"]:
        for part in ("both", "forward"):
            found, _ = alone(result[part])
            assert found["seconds"]["min"] > 0
            assert found["share_of_sgemm"] > 0


@IN_THIS_PROCESS
def test_operations_are_measured(run_npformer_alone):
    figures = run_npformer_alone("bench_ops", "--ops", "layer_norm,linear_backward")
    assert list(figures["operations"]) == ["layer_norm", "linear_backward"]
    for result in figures["operations"].values():
        found, seconds = alone(result)
        assert found["gb_per_second"] == pytest.approx(result["bytes"] / seconds / 1e9)
        assert found["gflops"] == pytest.approx(result["flops"] / seconds / 1e9)


@IN_THIS_PROCESS
def test_decoding_is_measured(run_npformer_alone):
    sizes = ("--size", "tiny", "--batches", "1,3", "--beams", "1,2")
    figures = run_npformer_alone("bench_decode", *sizes)
    settings = [(result["batch"], result["beam"]) for result in figures["results"]]
    assert settings == [(1, 1), (1, 2), (3, 1), (3, 2)]
    for result in figures["results"]:
        found, seconds = alone(result)
        assert found["tokens_per_second"] == pytest.approx(32 * result["batch"] / seconds)


def test_nobody_is_compared_with_a_contender_that_dropped_out():
    turns = {"b": [(2.0, None)]}
    assert report.timing(turns, "b", "a")["times_as_long"] is None
    assert report.timing({"a": [(1.0, None)], **turns}, "b", "a")["times_as_long"] == 2


@pytest.mark.parametrize("name", bench_ops.OPERATIONS)
def test_every_operation_is_called_as_it_has_to_be(name, monkeypatch):
    """With small arrays: sizes that differ still do."""
    operation = bench_ops.OPERATIONS[name]
    sizes = {}
    for axis, n in operation.sizes.items():
        sizes[axis] = tuple(map(math.isqrt, n)) if axis == "..." else math.isqrt(n)
    monkeypatch.setitem(bench_ops.OPERATIONS, name, operation._replace(sizes=sizes))
    bench_ops.build_npformer(name, "reference")()


# -- statistics ------------------------------------------------------------------------------------


def test_summary():
    assert report.summary([3.0, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 3.0, "spread": 1.0}


def test_ratios_are_taken_round_by_round():
    """A slow round affects both contenders; the ratio of the medians would be 10."""
    assert report.times_as_long([2.0, 20.0, 20.0], [1.0, 10.0, 2.0]) == 2.0


def test_numbers_keep_three_digits():
    numbers = 26914.4, 123.4, 12.34, 0.01234, 0, math.nan
    assert list(map(report.short, numbers)) == ["26,914", "123", "12.3", "0.0123", "0", "–"]


def test_nan_becomes_null_in_json(tmp_path):
    output.write_json(tmp_path / "a" / "b.json", {"x": [math.nan, 1.0], "y": (2, None)})
    assert json.loads((tmp_path / "a" / "b.json").read_text()) == {"x": [None, 1.0], "y": [2, None]}


def test_what_distorts_the_figures_is_pointed_out():
    assert machine.warnings_about({}, busy=0.0) == []
    (of_setting,) = machine.warnings_about({"OPENBLAS_CORETYPE": "Zen"}, busy=0.0)
    assert "OPENBLAS_CORETYPE=Zen" in of_setting
    (of_others,) = machine.warnings_about({}, busy=1.5)
    assert "other programs use 1.5 cores" in of_others


# -- FLOPs -----------------------------------------------------------------------------------------


def test_training_flops_by_hand():
    """18 entries of matrices, 6 FLOPs each; 12 for each of 1 + 1 + ½ pairs of query and key."""
    ones = steps.Size(V=2, N=1, D=1, H=1, F=1, B=1, S=1, T=1)
    assert bench_train.training_flops(ones) == 6 * 18 + 12 * 2.5


def test_attention_flops():
    assert bench_attention.forward_flops(2, causal=False) == 4 * 2 * 2 * 64 * 8
    assert bench_attention.forward_flops(2, causal=True) == 2 * 2 * 2 * 64 * 8


# -- own limits ------------------------------------------------------------------------------------


def works_of(size):
    """The work of each operation in a step of ``bench_train.py``, which the reference computes."""
    step = steps.build_npformer(size, "reference")
    with nf.explain() as calls:
        step()
    return own_limit.sum_of_works(calls)


def test_the_products_of_a_step_are_those_that_its_mathematics_needs():
    size = steps.Size(V=13, N=2, D=8, H=2, F=24, B=3, S=5, T=4)
    counted = 0
    for work in works_of(size).values():
        counted += sum(2 * n * product.multiplications for product, n in work.products.items())
    diagonal = 12 * size.N * size.B * size.T / 2 * size.D  # a query also sees its own position
    pairs = size.S * size.S + size.T * size.S + size.T * (size.T + 1) / 2
    # once more in the backward pass, as they are not stored
    scores_again = 2 * size.N * size.B * size.D * pairs
    assert counted == pytest.approx(bench_train.training_flops(size) + diagonal + scores_again)


@pytest.mark.parametrize("by_columns", [False, True])
def test_bytes_of_a_product_are_not_counted_beside_it(by_columns):
    x, residual = np.ones((6, 4), "float32"), np.ones((6, 5), "float32")
    weight = np.ones((4, 5), "float32", order="F" if by_columns else "C")
    bias = np.ones(5, "float32")
    math_of = nf.reference
    with nf.explain() as calls:
        math_of.linear(x, weight, bias)
        math_of.linear_dropout_residual(x, weight, bias, residual)
        y, h = math_of.linear_activation_dropout(x, weight, bias, activation="relu")
        math_of.linear_backward(y, x, weight, bias)
        math_of.linear_dropout_residual_backward(y, x, weight, bias)
        math_of.linear_dropout_residual_backward(
            y, x, weight, bias, dropout_rate=0.5, dropout_key=1
        )
        math_of.linear_activation_dropout_backward(y, x, weight, bias, h, activation="relu")
        math_of.layer_norm(x, bias[:4], bias[:4])
        math_of.adam_update(bias, bias.copy(), bias.copy(), bias.copy(), lr=0.1, step=1)
    moved = [own_limit.work_of(call).moved // 4 for call in calls]
    a_bias, y_size = 5, 30
    of_linear = [a_bias, a_bias + y_size, a_bias + y_size]
    of_backward = [2 * a_bias, 2 * a_bias, 2 * a_bias + y_size, 2 * a_bias + 2 * y_size]
    assert moved == [*of_linear, *of_backward, 2 * 24 + 2 * 4 + 2 * 6, 7 * 5]
    product = own_limit.Product
    assert own_limit.work_of(calls[0]).products == {
        product(6, 4, 5, right_by_columns=by_columns): 1
    }
    of_weight = product(4, 6, 5, left_by_columns=True)
    assert own_limit.work_of(calls[3]).products == {
        product(6, 5, 4, right_by_columns=not by_columns): 1,
        of_weight: 1,
    }


@IN_THIS_PROCESS
def test_the_time_of_a_step_is_divided_among_its_operations(measure):
    code, shown, _, figures = measure(bench_limits.main, *SHORT, "--steps", "tiny", "--rounds", 2)
    assert code == 0
    [step] = figures["steps"].values()
    operations = step["operations"]
    assert operations["layer_norm"]["calls"] == 12
    assert operations["layer_norm"]["products"] == 0 < operations["linear"]["products"]
    assert all(of["seconds"] > 0 and of["bytes"] >= 0 for of in operations.values())
    assert all(name in shown for name in [*operations, "outside of operations"])


def test_an_operation_of_unknown_products_is_named():
    with nf.explain() as calls:
        nf.reference.product(np.ones((2, 3)), np.ones((3, 2)))
    message = "product: nobody has said which products it has"
    refuses(ValueError, message, own_limit.work_of, calls[0])


@pytest.mark.parametrize(
    "product",
    [
        own_limit.Product(6, 40, 8, right_by_columns=True),
        own_limit.Product(300, 6, 8, left_by_columns=True),
        own_limit.Product(100, 16, 300, right_by_columns=True, in_tiles=True),
        own_limit.Product(10, 30, 16, in_tiles=True),
        own_limit.Product(300, 100, 16, left_by_columns=True, in_tiles=True),
    ],
)
def test_a_product_has_the_time_of_its_fastest_way(product):
    timed = own_limit.Timed(product, number=3)
    timed.measure()
    timed.measure(spinning=True)
    first = timed.best
    timed.measure()
    assert 0 < timed.best <= first < 1


@IN_THIS_PROCESS
def test_a_gpt_is_measured(measure):
    alone = "--gpt2", "--lengths", 8, "--without", "transformers"
    code, *_, figures = measure(bench_pretrained.main, *SHORT, *alone)
    assert code == 0
    step, prompt, generation = figures["results"]
    assert step["what"] == "a step of 4 × 8" and generation["what"] == "and 64 new tokens"
    for result in (step, prompt, generation):
        found = result["contenders"]["npformer"]
        own_limit = result["own_limit"]["seconds"]
        assert found["share_of_own_limit"] == own_limit / found["seconds"]["median"]
        # Integers generate, but do not train; a step is not limited by reading the weights.
        assert ("npformer int8" in result["contenders"]) == (result is not step)
        assert (found["share_of_reading"] is None) == (result is step)
    assert generation["own_limit"]["operations"]["stack_step"]["bytes"] > 0


# -- contenders ------------------------------------------------------------------------------------


def test_contenders_take_turns_and_say_why_they_are_left_out(capsys):
    libraries = {"a": ("math",), "b": ("math",), "c": ("no_such_library",)}
    with contenders.started((*each, build_counter) for each in libraries.items()) as (a, b, c):
        a.build(0)
        assert a.built.first_value == 1
        assert a.run(5)[1] == 7  # two calls to warm up
        a.build(100, warm_up=1)
        b.build(900)
        turns, others = contenders.alternate([a, b], options.Turns(rounds=2, seconds=0.0))
        assert [value for _, value in turns["a"]] == [102, 103]
        assert [value for _, value in turns["b"]] == [903, 904]
        assert others >= 0
        memory = a.memory()
        assert memory["libraries_bytes"] > 0
        assert memory["training_bytes"] >= max(0, memory["running_bytes"])

        assert contenders.build_all([a, c], 0) == [a]
        refuses(contenders.LeftOut, "^ValueError: start is negative$", a.build, -1)
        refuses(contenders.LeftOut, "ended with exit code 3", b.run, 1000)
    left_out = "left out: c: ModuleNotFoundError: No module named 'no_such_library'"
    assert left_out in capsys.readouterr().out


# -- ranks -----------------------------------------------------------------------------------------


def test_the_benchmark_of_ranks_compares_its_contenders(monkeypatch, measure):
    one = {"step": 2.0, "waited": 0.0, "memory": 500.0}
    one |= {"parameters": 10**6, "bytes": 4e6, "chunks": 15}
    messages = {"exchange": 0.01, "gathering": 0.01, "one number": 1e-4}
    seconds = {"shards": 1.0, "rows": 2.1}

    def measured(n, settings):
        times = (seconds[name] for name in seconds if settings.get(name, 1) > 1)
        return one | messages | {"step": next(times, 2 / n)}

    monkeypatch.setattr(bench_ranks, "measure", measured)
    monkeypatch.setattr(bench_ranks, "cores", lambda: 2)
    _, shown, _, figures = measure(bench_ranks.main, "--steps", "base", "--rounds", 1)
    assert "throughput of 2 ranks / 1 process with 2 shards: 1.000" in shown
    assert "weak scaling, 2 ranks: 0.952" in shown
    found = figures["steps"]["base"]
    assert found["messages"]["2"]["bandwidth"] == pytest.approx(4e6 / 0.02)


def test_messages_that_take_no_time_cost_nothing():
    step = predict_ranks.Step(1.0, n_bytes=1e9)
    free, slow = predict_ranks.Network(0.0, math.inf), predict_ranks.Network(1e-3, 1e8)
    assert predict_ranks.predict(step, free, 1024).efficiency == 1
    falling = [predict_ranks.predict(step, slow, n).efficiency for n in (1, 2, 8, 64, 1024)]
    assert falling == sorted(falling, reverse=True)


def test_a_chunk_is_sent_when_it_is_complete_and_the_one_before_has_arrived():
    # complete 0.4, 0.2 and 0 seconds before the end of the backward pass
    step = predict_ranks.Step(0.9, n_bytes=1.0, n_chunks=3)
    assert predict_ranks.exchanged(step, seconds=0.1, busy=0.0) == pytest.approx(0.1)
    # three, from 0.4 before the end
    assert predict_ranks.exchanged(step, seconds=0.3, busy=0.0) == pytest.approx(0.5)
    # the processor sent two meanwhile
    assert predict_ranks.exchanged(step, seconds=0.1, busy=0.1) == pytest.approx(0.3)


def test_the_steps_that_are_measured_have_a_shard_for_each_of_two_threads_except_the_smallest(
    monkeypatch,
):
    def shards(size, cores):
        monkeypatch.setattr(threads, "cores", lambda: cores)
        with blas_threads(cores):
            sharding = Sharding(HOST, 1, None, steps.model_of(size).shapes())
            return sharding.count(steps.batch_of(size))

    assert [shards(size, 2) for size in steps.SIZES.values()] == [1, 2, 2, 2, 2]
    assert shards(steps.SIZES["base"], 64) == 16
