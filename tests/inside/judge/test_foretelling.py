"""A candidate cannot tell which of its calls are compared in full, from all that it sees before and in them.

The judge's side runs here, and each contestant in a process of its own, since a candidate sees its own process only.
The candidate keeps a record of each call. The judge's side keeps the inputs of timed calls, and of the calls whose
expected outputs were worked out. Both are joined by these inputs afterwards. Two classifiers learn from every other
call, and predict the rest from the candidate's records.
"""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import json
import os
import random
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge import timing
from kernel_matrix.inside.judge.pause import CandidatePause
from kernel_matrix.inside.judge.reference import ReferenceModel
from kernel_matrix.inside.judge.worker_client import WorkerClient
from kernel_matrix.inside.judge.workload_runner import WorkloadRunner
from kernel_matrix.inside.phases import Phases
from kernel_matrix.inside.wire import MAX_FROM_WORKER, Channel
from kernel_matrix.model.messages import ProtocolSpec
from tests.cheats.night import with_internals
from tests.inside.sessions import SOFTMAX, make_job
from tests.inside.workers import TIMEOUTS

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[3]

CALLS = 2000
SHARE = 0.2  # compared in full, as the protocol has it unless it is set
BUDGET_S = 25.0  # a busy machine makes fewer calls in it
FEWEST = 500  # fewer are too few for the limits below, which chance must not reach

ACCURACY = 0.02  # beyond the share of the larger class
# Calls of both classes are put in the right order by chance in half of the pairs. With 500 calls, a fifth of them
# compared, the standard error is 0.033 for the half that is predicted; this is more than four of them away.
RANKED_RIGHT = 0.65

NEIGHBOURS = 25

# The reference takes much longer than what else the judge does between two calls, as it does on real problems.
SLOW_SOFTMAX = SOFTMAX.replace(
    "return torch.softmax(x, dim=-1)", "return [torch.softmax(x, dim=-1) for _ in range(100)][0]"
)

SPY = """
import json
import os
import resource
import time

import torch

from tests.cheats.worker_internals import lent_outputs, log_orders, on_order

orders = log_orders()
calls = []


def usage():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return [used.ru_minflt, used.ru_nvcsw, used.ru_nivcsw]


def write(kind, _sequence):
    if kind == "BYE":
        with open(os.environ["SPY"], "w") as file:
            json.dump(calls, file)


on_order(write)


class ModelNew(torch.nn.Module):
    used = [0, 0, 0]

    def forward(self, x):
        began = time.perf_counter()
        out = torch.softmax(x, -1)
        lent = lent_outputs()[0]
        with open("/proc/self/maps") as file:
            mapped = file.readlines()
        used = usage()
        seen = {
            "gap": orders[-1].gap_s,
            "gap before": orders[-2].gap_s if len(orders) > 1 else 0.0,
            "input address": x.data_ptr(),
            "output address": lent.data_ptr(),
            "own address": out.data_ptr(),
            "mappings": len(mapped),
            "lent mappings": sum("memfd" in line for line in mapped),
            "bytes left in output": int((lent.view(torch.uint8) != 255).sum()),
            "first bytes in output": int(lent.view(torch.int32).flatten()[0]),
            "part of a second": time.time() % 1,
            "part of a minute": time.time() % 60,
            "number of call": len(calls),
            "time in call": time.perf_counter() - began,
        }
        seen |= {f"use {index}": now - before for index, (now, before) in enumerate(zip(used, self.used))}
        for back in range(1, 6):
            kind = orders[-back].kind if len(orders) >= back else ""
            seen |= {f"{back} back: {name}": kind == name for name in ("CALL", "BUFFERS")}
        self.used = used
        calls.append({"inputs": repr(x.flatten()[:64].tolist()), "seen": seen})
        return out
"""

SERVE = """
import sys
from pathlib import Path
from socket import socket

from kernel_matrix.inside.wire import MAX_FROM_JUDGE, Channel
from kernel_matrix.inside.worker.service import serve

serve(Channel(socket(fileno=int(sys.argv[1])), MAX_FROM_JUDGE), Path(sys.argv[2]), "cpu")
"""


@contextmanager
def serving_process(code, record):
    """The judge's end of a connection to a worker in a process of its own, which has ended afterwards."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "runner"), "SPY": str(record), "OMP_NUM_THREADS": "1"}
    command = (sys.executable, "-s", "-B", "-c", SERVE, str(theirs.fileno()), str(code))
    with ours, subprocess.Popen(command, env=environment, pass_fds=(theirs.fileno(),)) as process:
        theirs.close()
        try:
            yield Channel(ours, MAX_FROM_WORKER)
        finally:
            ours.close()
            process.wait(20)


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Observations of the candidate at each timed call, each with whether the judge compared all outputs."""
    timed, compared = set(), set()
    draw, expect = ReferenceModel.draw, ReferenceModel.expect

    def key(inputs):
        return repr(inputs[0].flatten()[:64].tolist())

    def draw_and_note(self, mode, *purpose, **options):
        inputs = draw(self, mode, *purpose, **options)
        if purpose[:1] == ("timed",):
            timed.add(key(inputs))
        return inputs

    def expect_and_note(self, inputs):
        compared.add(key(inputs))
        return expect(self, inputs)

    monkeypatch.setattr(ReferenceModel, "draw", draw_and_note)
    monkeypatch.setattr(ReferenceModel, "expect", expect_and_note)
    # One slow comparison on a busy machine would lower the share for all later calls.
    monkeypatch.setattr(timing, "CHECK_S", 60.0, raising=False)
    monkeypatch.setitem(sys.modules, "kernel_matrix_problem", None)  # removed afterwards
    (tmp_path / "problem.py").write_text(SLOW_SOFTMAX)
    (tmp_path / "candidate.py").write_text(with_internals(SPY))
    protocol = ProtocolSpec(
        trials=2,
        warmup_calls=2,
        min_samples=CALLS,
        max_samples=CALLS,
        block_calls=40,
        check_share=SHARE,
        budget_s=BUDGET_S,
    )
    job = make_job(timeouts=TIMEOUTS, protocol=replace(protocol, steady_cap_s=0.0))
    with ExitStack() as undo:
        clients = {}
        for spec in job.contestants:
            channel = undo.enter_context(serving_process(tmp_path, tmp_path / f"{spec.name}.json"))
            clients[spec.name] = undo.enter_context(closing_last(WorkerClient(spec, channel, "cpu", TIMEOUTS)))
        for client in clients.values():
            client.open()
        runner = undo.enter_context(WorkloadRunner(job, tmp_path, clients, Phases(), CandidatePause(None)).open())
        runner.run(job.workloads[0])
    seen = json.loads((tmp_path / "candidate.json").read_text())
    return [(call["seen"], call["inputs"] in compared) for call in seen if call["inputs"] in timed]


@contextmanager
def closing_last(client):
    """Say goodbye to the worker at the end."""
    yield client
    client.close()


# --- classifiers -----------------------------------------------------------------------------------------------------


def as_ranks(rows, learnt_from):
    """Return each number as its rank among ``learnt_from``, from -1 to 1: outliers of a busy machine are ranks too."""
    columns = [
        (torch.searchsorted(known, column) + torch.searchsorted(known, column, right=True)) / len(known) - 1
        for column, known in zip(rows.T.contiguous(), learnt_from.T.contiguous().sort().values, strict=True)
    ]
    return torch.stack(columns, dim=1).double()


def logistic(rows, labels, wanted):
    """Return the probabilities of logistic regression, fitted by Newton's method with a weak ridge."""
    rows, wanted = (torch.cat([part, torch.ones(len(part), 1)], dim=1) for part in (rows, wanted))
    weights = torch.zeros(rows.shape[1], dtype=torch.float64)
    for _step in range(30):
        guessed = torch.sigmoid(rows @ weights)
        curvature = rows.T @ (rows * (guessed * (1 - guessed))[:, None]) + torch.eye(len(weights))
        weights += torch.linalg.solve(curvature, rows.T @ (labels - guessed) - weights)
    return torch.sigmoid(wanted @ weights)


def neighbours(rows, labels, wanted):
    """Return the share of compared calls among the nearest neighbours."""
    return labels[torch.cdist(wanted, rows).topk(NEIGHBOURS, largest=False).indices].mean(dim=1)


def ranked_right(scores, labels):
    """Return the share of pairs of a compared call and another one in which the compared one has the higher score."""
    differences = scores[labels == 1][:, None] - scores[labels == 0][None, :]
    return float((differences > 0).double().mean() + (differences == 0).double().mean() / 2)


def foretold(calls):
    """Return (accuracy beyond the larger class, pairs ranked right) of both classifiers on every other call."""
    names = sorted(calls[0][0])
    rows = torch.tensor([[float(seen[name]) for name in names] for seen, _ in calls], dtype=torch.float64)
    labels = torch.tensor([float(compared) for _, compared in calls], dtype=torch.float64)
    known, learnt, asked, truth = rows[::2], labels[::2], rows[1::2], labels[1::2]
    known, asked = as_ranks(known, known), as_ranks(asked, known)
    larger = max(truth.mean(), 1 - truth.mean())
    found = {}
    for classify in (logistic, neighbours):
        scores = classify(known, learnt, asked)
        right = ((scores > 0.5).double() == truth).double().mean()
        found[classify.__name__] = (float(right - larger), ranked_right(scores, truth))
    return found


def test_foretold_calls_with_a_telling_gap_are_found():
    dice = random.Random(1)
    calls = [({"gap": dice.lognormvariate(0, 1), "noise": dice.random()}, dice.random() < SHARE) for _ in range(CALLS)]
    assert all(gain <= ACCURACY and ranks < RANKED_RIGHT for gain, ranks in foretold(calls).values())
    telling = [({**seen, "gap": seen["gap"] * (8 if compared else 1)}, compared) for seen, compared in calls]
    assert all(gain > 3 * ACCURACY and ranks > 0.9 for gain, ranks in foretold(telling).values())


# A busy machine delays calls of both kinds alike. It adds noise to what the candidate sees, and nothing about a draw
# that was not made yet. So it can only lower what is foretold, and no time is compared with any limit here.
@pytest.mark.alone
def test_timed_calls_do_not_show_which_are_compared(calls):
    if len(calls) < FEWEST:
        pytest.skip(f"only {len(calls)} calls in {BUDGET_S:g} s: this machine is too busy to learn from them")
    assert 0.5 * SHARE < sum(compared for _, compared in calls) / len(calls) < 2 * SHARE
    for name, (gain, ranks) in foretold(calls).items():
        assert gain <= ACCURACY, f"{name}: {gain:.1%} of the calls beyond the larger class"
        assert ranks < RANKED_RIGHT, f"{name}: {ranks:.1%} of the pairs"
