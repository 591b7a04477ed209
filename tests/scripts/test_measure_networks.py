"""The measurement of ranks in a network: what it predicts, what it needs, and a small run of it."""

import json
import sys

import pytest

from scripts.bench.predict_ranks import Network, Step, exchanged, predict
from scripts.measure import measure_networks
from scripts.measure.measure_networks import in_network, main, what_is_missing

CASE = {"apart": 1.0, "together": 2.4, "parameters": 250}
CASE |= {"chunks": 2, "early": [0.5, 0.0], "ranks": 2, "gbit": 1.0}
CASE |= {"latency": 0.0, "bandwidth": 1000.0, "exchange": 0.5}
CASE |= {"gathering": 0.5, "finish": 0.2, "bytes": 1000}


def test_both_directions_of_every_rank_are_limited():
    *_, script, _ = in_network(3, 2.5)
    for i in (1, 2, 3):
        assert f"tc qdisc add dev port{i} root tbf rate 2500mbit" in script
        assert f"tc -n rank{i} qdisc add dev eth0 root tbf rate 2500mbit" in script
    assert "tc " not in in_network(2, None)[-2]


def test_a_chunk_is_sent_when_it_is_complete_and_the_one_before_has_arrived():
    step = Step(1.0, n_bytes=1.0, n_chunks=3, early=[0.5, 0.4, 0.0])
    assert exchanged(step, seconds=0.1, busy=0.0) == pytest.approx(0.1)
    # three, from 0.5 before the end
    assert exchanged(step, seconds=0.3, busy=0.0) == pytest.approx(0.4)
    # the processor sent two meanwhile
    assert exchanged(step, seconds=0.1, busy=0.1) == pytest.approx(0.3)


def test_chunks_that_are_complete_at_equal_intervals_need_not_be_measured():
    step = Step(3.0, n_bytes=1e9, n_chunks=4)
    network = Network(1e-3, 1e9)
    measured = step._replace(early=[1.5, 1.0, 0.5, 0.0])
    assert predict(step, network, 8) == predict(measured, network, 8)


def test_a_case_is_compared_with_its_prediction():
    case = measure_networks.compared(CASE, {"exchange": 0.05, "bytes": 1000})
    assert case["processor"] == 1e-4
    # the first chunk kept the processor busy
    assert case["predicted"] == pytest.approx(1.0 + 0.025 + 0.25 + 0.5)
    assert case["hidden"] == pytest.approx(0.6)


def test_what_is_missing_is_said(monkeypatch, capsys):
    monkeypatch.setattr(measure_networks.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(measure_networks.shutil, "which", lambda name: name)
    assert main([]) == 1
    assert "only root can make network namespaces: start this with sudo" in capsys.readouterr().err
    monkeypatch.setattr(
        measure_networks.shutil, "which", lambda name: None if name == "tc" else name
    )
    assert what_is_missing() == "tc is missing: install iproute2"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert what_is_missing() == "network namespaces are a part of Linux, this is darwin"


def test_two_ranks_send_through_the_network(tmp_path, capsys):
    if reason := what_is_missing():
        pytest.skip(reason)
    file = tmp_path / "networks.json"
    arguments = ["--step", "tiny", "--ranks", "2", "--gbit", "1", "--rounds", "1", "--json"]
    assert main([*arguments, str(file)]) == 0
    (case,) = json.loads(file.read_text())["cases"]
    assert case["received"] > case["bytes"] > 0
    assert case["together"] > 0
    assert "2 ranks, 1 Gbit/s" in capsys.readouterr().out
