"""Time training steps on ranks that a network of limited bandwidth connects, against what
predict_ranks.py predicts.

    sudo python scripts/measure/measure_networks.py
    sudo python scripts/measure/measure_networks.py --ranks 2 --gbit 10 --step tiny --rounds 2

On one machine with Linux: each rank has a network namespace, whose interface a bridge connects to
those of the others; ``tc`` limits what enters and leaves it. The messages go through TCP, and the
kernel's counters show that they do. The namespaces belong to the process that measures, and
disappear with it.

The prediction needs no step with messages. It starts from a step in which the ranks compute side by
side but send neither gradients nor parameters, so that they share the cores as they do otherwise,
from one message at a time, and from the time that the messages take in a network without a limit:
then the processor is the limit.
"""

import copy
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import numpy as np

from npformer.commands.shared import (  # needs pip install -e .
    JsonFile,
    Positive,
    UsageError,
    command_line,
    write_json,
)
from scripts.bench.bench_ranks import messages, trainer_of
from scripts.bench.machine import machine
from scripts.bench.options import AboveZeros, Positives, Worker
from scripts.bench.predict_ranks import GBIT, Network, Step, predict
from scripts.bench.report import note, percent, print_table, short
from scripts.bench.steps import SHORT_STEPS, SIZES, batch_of
from scripts.bench.workers import MPIEXEC, found_by_worker, mpiexec, print_found

from npformer.errors import UserError
from npformer.extras import pip_install
from npformer.runtime.blas_threads import blas_threads
from npformer.runtime.ranks import world
from npformer.training.ranks import DividedOptimizer, Exchange

PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "mount": "util-linux"}
RECEIVED = Path("/sys/class/net/eth0/statistics/rx_bytes")  # of a rank's own namespace
TURNS = 3  # of messages
WAITING = {
    "finish": Exchange,
    "share_parameters": DividedOptimizer,
}  # methods that wait for messages, and their classes
TCP_ALONE = {"MPICH_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}  # MPICH: libfabric, and there TCP
# ``ip netns`` keeps the names of namespaces in /run, here one that no other process sees. mpiexec
# calls LAUNCHER as it would call ssh.
SWITCH = """
mount -t tmpfs none /run
echo '#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
rank=rank${1##*.}; shift; exec ip netns exec $rank sh -c "$*"' > /run/launcher
chmod +x /run/launcher
ip link add name switch type bridge
ip address add 10.0.0.254/24 dev switch
ip link set switch up
ip link set lo up
"""
PORT = """
ip netns add rank{i}
ip link add name port{i} type veth peer name eth0 netns rank{i}
ip link set port{i} master switch up
ip -n rank{i} address add 10.0.0.{i}/24 dev eth0
ip -n rank{i} link set eth0 up
ip -n rank{i} link set lo up
"""
LIMIT = """
tc qdisc add dev port{i} root tbf rate {mbit}mbit burst 128kb latency 50ms
tc -n rank{i} qdisc add dev eth0 root tbf rate {mbit}mbit burst 128kb latency 50ms
"""


@command_line
def main(
    *,
    step: Literal[*SHORT_STEPS] = "base",
    ranks: Positives = "2,3",
    gbit: AboveZeros = "1,2.5,10",
    rounds: Positive = 3,
    progress_thread: bool = False,
    json: JsonFile | None = None,
    worker: Worker | None = None,
):
    """Time steps in networks.

    Parameters
    ----------
    step
        size of the training step
    gbit
        Gbit/s
    rounds
        steps of each kind, in turns
    progress_thread
        with MPI's own thread (MPICH_ASYNC_PROGRESS=1)
    """
    if worker:
        print_found(work(**worker))
        return
    if min(ranks) < 2:
        raise UsageError("argument --ranks: 1 rank sends no messages, expected 2 or more")
    if reason := what_is_missing():
        raise UserError(reason)
    facts = machine()
    cases = []
    for n in ranks:
        free = measure(n, None, step, 0, progress_thread)
        for limit in gbit:
            found = measure(n, limit, step, rounds, progress_thread)
            cases.append(compared({"ranks": n, "gbit": limit} | found, free))
            note(f"{n} ranks, {limit:g} Gbit/s: measured")
    print_cases(cases)
    settings = {"step": step, "progress_thread": progress_thread}
    write_json(json, {"machine": facts} | settings | {"cases": cases})


def what_is_missing():
    """Why this cannot be measured here; empty if it can."""
    if sys.platform != "linux":
        return f"network namespaces are a part of Linux, this is {sys.platform}"
    for program, package in PROGRAMS.items():
        if not shutil.which(program):
            return f"{program} is missing: install {package}"
    if os.geteuid() != 0:
        return "only root can make network namespaces: start this with sudo"
    if not MPIEXEC.exists():
        return f"there is no MPI: {pip_install('mpi')}"
    tried = subprocess.run([*in_network(2, 1.0), "true"], capture_output=True, text=True)
    if tried.returncode:
        return f"network namespaces cannot be made here: {tried.stderr.strip()}"
    return ""


def in_network(n, gbit):
    """The beginning of a command that runs at the switch of a new network of n ranks."""
    lines = SWITCH
    for i in range(1, n + 1):
        lines += PORT.format(i=i)
        if gbit is not None:
            lines += LIMIT.format(i=i, mbit=round(1000 * gbit))
    return ["unshare", "--net", "--mount", "sh", "-ec", lines + 'exec "$@"', "sh"]


def measure(n, gbit, size, rounds, progress_thread):
    """Run the worker on n ranks in a network; ``gbit`` None is one without a limit."""
    hosts = ",".join(f"10.0.0.{i}" for i in range(1, n + 1))
    launch = ["-iface", "switch", "-launcher", "ssh", "-launcher-exec", "/run/launcher"]
    each = ["-ppn", "1", "-hosts", hosts]
    command = [*in_network(n, gbit), *mpiexec(n), *launch, *each, sys.executable, __file__]
    environment = TCP_ALONE | {"MPICH_ASYNC_PROGRESS": str(int(progress_thread))}
    return found_by_worker(command, {"size": size, "rounds": rounds}, **environment)


class Mute:
    """A communicator that carries all messages but gradients and parameters, and notes when
    gradients are sent.
    """

    def __init__(self, ranks):
        self.ranks = ranks
        self.sent = []
        comm = ranks.comm
        self.Iallgather = comm.Iallgather
        self.Ibarrier = comm.Ibarrier
        self.Igatherv = comm.Igatherv

    def Irecv(self, x, source):
        """Receive zeros."""
        x[...] = 0
        return self.ranks.mpi.REQUEST_NULL

    def Isend(self, x, dest):
        """Note the time."""
        self.sent.append(time.perf_counter())
        return self.ranks.mpi.REQUEST_NULL

    def Iallgatherv(self, sent, received):
        """Leave parameters as they are; numbers are gathered."""
        if sent is self.ranks.mpi.IN_PLACE:
            return self.ranks.mpi.REQUEST_NULL
        return self.ranks.comm.Iallgatherv(sent, received)


def work(size, rounds):
    """Measure messages, and steps with and without them, and return what they took."""
    ranks = world()
    size = SIZES[size]
    with blas_threads(1):
        trainer = trainer_of(size, ranks.size, ranks)
        trainer.state.flat_grads.fill(0)  # memory that nobody has written to is sent faster
        before = received()
        found = messages(trainer, ranks, TURNS)
        found["received"] = (received() - before) / TURNS
        found["parameters"] = trainer.flat_params.size
        found |= one_message(ranks, trainer.flat_params.nbytes // ranks.size)
        if rounds:
            batch = batch_of(size._replace(B=size.B * ranks.size))
            found |= steps(trainer, ranks, batch, rounds)
    return found


def received():
    """The bytes that the interface of this rank has received."""
    return int(RECEIVED.read_text())


def one_message(ranks, n_bytes):
    """The latency of a message, and the bandwidth of ``n_bytes`` from each rank to the next."""
    seconds = {}
    for size in (1, n_bytes):
        sent = np.zeros(size, np.uint8)
        arrived = np.zeros(size, np.uint8)
        taken = []
        for _ in range(TURNS):
            ranks.stack(np.zeros(1))  # all begin together
            start = time.perf_counter()
            request = ranks.comm.Irecv(arrived, source=(ranks.rank - 1) % ranks.size)
            ranks.wait(request, ranks.comm.Isend(sent, dest=(ranks.rank + 1) % ranks.size))
            taken.append(time.perf_counter() - start)
        seconds[size] = statistics.median(taken)
    return {"latency": seconds[1], "bandwidth": n_bytes / (seconds[n_bytes] - seconds[1])}


def steps(trainer, ranks, batch, rounds):
    """The medians of steps with and without messages, in turns, and of what they wait for.

    ``early`` has how long before the end of the slowest rank's backward pass each chunk is complete
    on all ranks. Of the waiting, that of the rank is taken which waits least: others also wait for
    this rank.
    """
    over_ranks = trainer.loss_and_grad
    optimizer = trainer.flat_optimizer
    backward_ended = after_backward(over_ranks, lambda exchange: time.perf_counter())
    waiting = {name: note_waiting(optimizer, owner, name) for name, owner in WAITING.items()}
    seconds = {"apart": [], "together": []}
    early = []
    for _ in range(1 + rounds):  # the first turn is to warm up
        for how, taken in seconds.items():
            own = copy.copy(ranks)
            if how == "apart":
                own.comm = Mute(ranks)
            over_ranks.ranks = optimizer.ranks = own
            start = time.perf_counter()
            trainer.step(*batch)
            taken.append(time.perf_counter() - start)
            if how == "apart":
                complete = own.comm.sent[:: ranks.size - 1]  # the first message of each chunk
                *chunks, end = ranks.stack(np.array([*complete, backward_ended[-1]])).max(0)
                early.append(np.maximum(end - chunks, 0))
    found = {how: statistics.median(taken[1:]) for how, taken in seconds.items()}
    for name, waited in waiting.items():
        of_ranks = ranks.stack(np.array(waited[3::2]))  # with messages, after the warm-up
        found[name] = float(np.median(of_ranks.min(0)))
    return found | {"early": np.median(early[1:], axis=0).tolist()}


def after_backward(over_ranks, look):
    """A list that gets, at each step, ``look(exchange)`` when the last backward pass of this rank
    has ended.
    """
    found = []
    exchange = None
    new_tree = over_ranks.sums_of_subtrees
    on_this_rank = over_ranks.on_this_rank
    loss_and_grad = on_this_rank.loss_and_grad

    def noting_tree(n_shards):
        nonlocal exchange
        gradients = new_tree(n_shards)
        exchange = gradients.exchange
        found.append(0)
        return gradients

    def noting(*args, **options):
        results = loss_and_grad(*args, **options)
        found[-1] = look(exchange)
        return results

    over_ranks.sums_of_subtrees = noting_tree
    on_this_rank.loss_and_grad = noting
    return found


def note_waiting(optimizer, owner, name):
    """A list that gets, at each call of this method of a class, the seconds in which it waits for
    messages.
    """
    found = []
    method = getattr(owner, name)

    def noting(self):
        before = optimizer.ranks.seconds_waited
        method(self)
        found.append(optimizer.ranks.seconds_waited - before)

    setattr(owner, name, noting)
    return found


def compared(found, free):
    """What was measured of a case, with what is predicted from the messages in it and in a network
    without a limit.
    """
    chunks = {"n_chunks": found["chunks"], "early": found["early"]}
    step = Step(found["apart"], 4.0 * found["parameters"], **chunks)
    processor = free["exchange"] / (free["bytes"] / 2)
    network = Network(found["latency"], found["bandwidth"], processor)
    predicted = predict(step, network, found["ranks"]).step
    hidden = 1 - found["finish"] / found["exchange"]
    return found | {"processor": processor, "predicted": predicted, "hidden": hidden}


def print_cases(cases):
    """Print a table of them."""
    times = ("exchange", "gathering", "apart", "together", "predicted")
    rows = []
    for case in cases:
        what = f"{case['ranks']} ranks, {case['gbit']:g} Gbit/s"
        message = [f"{1e6 * case['latency']:.0f}", f"{case['bandwidth'] / GBIT:.2f}"]
        milliseconds = [short(1e3 * case[time]) for time in times]
        difference = f"{case['predicted'] / case['together'] - 1:+.1%}"
        rows.append([what, *message, *milliseconds, difference, percent(case["hidden"])])
    print_table(["milliseconds", "µs", "Gbit/s", *times, "difference", "hidden"], rows)


if __name__ == "__main__":
    sys.exit(main())
