"""Contestants of several ranks: real processes, judged in whole sessions."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack, contextmanager, suppress

import pytest

pytest.importorskip("torch")

from kernel_matrix.inside.judge.pause import CandidatePause
from kernel_matrix.inside.judge.worker_client import WorkerClient
from kernel_matrix.inside.judge.workload_runner import WorkloadRunner
from kernel_matrix.inside.phases import Phases
from kernel_matrix.inside.wire import MAX_FROM_JUDGE, MAX_FROM_WORKER, Channel
from kernel_matrix.inside.worker.rank_leader import serve_ranks
from kernel_matrix.model.enums import Status
from tests.inside.sessions import make_job
from tests.inside.workers import TIMEOUTS

RANKS = 2

ALL_REDUCE = """
import torch
import torch.distributed as dist
from torch import nn

N = 64

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((N,), 3.0))

    def forward(self, x):
        total = x * self.scale
        dist.all_reduce(total)
        return total

def get_inputs():
    return [torch.randn(N) + dist.get_rank()]
"""

CANDIDATE = """
import os
import signal
import sys
import time
import torch
import torch.distributed as dist
from torch import nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(64))

    def forward(self, x):
        rank = dist.get_rank()
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        {code}
"""

HONEST = """dist.all_gather(parts, x * self.scale)
        return sum(parts)"""
ONE_DIES = f"""if rank:
            os.kill(os.getpid(), signal.SIGKILL)
        {HONEST}"""
ONE_LEAVES = f"""if rank:
            os._exit(0)
        {HONEST}"""


@contextmanager
def opened(folder, code):
    """Open a runner whose contestants are processes of two ranks."""
    (folder / "problem.py").write_text(ALL_REDUCE)
    (folder / "candidate.py").write_text(CANDIDATE.format(code=code))
    job = make_job(ranks=RANKS)
    with ExitStack() as undo:
        clients = {}
        for spec in job.contestants:
            channel = undo.enter_context(_served(folder))
            clients[spec.name] = WorkerClient(spec, channel, "cpu", TIMEOUTS, ranks=RANKS)
        for client in clients.values():
            undo.callback(client.close)
            client.open()
        runner = WorkloadRunner(job, folder, clients, Phases(), CandidatePause(None))
        yield job, undo.enter_context(runner.open())


@contextmanager
def _served(folder):
    """The judge's end of a connection to a process that leads the ranks."""
    ours, theirs = socket.socketpair()
    leader = os.fork()
    if leader == 0:
        os.setsid()
        ours.close()
        try:
            serve_ranks(Channel(theirs, MAX_FROM_JUDGE), folder, "cpu", None, RANKS)
        finally:
            os._exit(0)
    theirs.close()
    try:
        yield Channel(ours, MAX_FROM_WORKER)
    finally:
        ours.close()
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)
        os.waitpid(leader, 0)


def judged(folder, code):
    """Judge a candidate; return the report of its workload, and how it ended."""
    with opened(folder, code) as (job, runner):
        report, ended = runner.run(job.workloads[0])
        return report, Status.PASSED if ended is None else ended.status, ended


def test_honest_candidate_of_two_ranks_passes_and_is_timed(tmp_path):
    report, status, _ = judged(tmp_path, HONEST)
    assert status is Status.PASSED
    assert {block.contestant for block in report.blocks} == {"candidate", "eager"}


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("return x * self.scale", Status.INCORRECT_VALUES),
        (HONEST.replace("sum(parts)", "sum(parts) if rank == 0 else x + 1"), Status.INCORRECT_VALUES),
        (HONEST.replace("sum(parts)", "sum(parts) if rank == 0 else sum(parts)[1:]"), Status.INCORRECT_SHAPE),
        ("raise ValueError('of one rank')\n        " + HONEST, Status.RUNTIME_ERROR),
        ("if rank:\n            raise ValueError('of one rank')\n        " + HONEST, Status.RUNTIME_ERROR),
        # Alone: on a busy machine the leader may read the first rank's error before it sees that the other one ended.
        pytest.param(ONE_DIES, Status.CRASHED, marks=pytest.mark.alone),
        pytest.param(ONE_LEAVES, Status.CRASHED, marks=pytest.mark.alone),
    ],
    ids=["no exchange", "wrong on one", "other shape on one", "both raise", "one raises", "one dies", "one leaves"],
)
def test_candidate_that_fails_on_a_rank_ends_as_what_it_is(tmp_path, code, wanted):
    _, status, ended = judged(tmp_path, code)
    assert (status, ended.evidence.message) == (wanted, ended.evidence.message)


def test_rank_that_raises_alone_is_told_at_once_with_its_error(tmp_path):
    _, _, ended = judged(tmp_path, "if rank:\n            raise ValueError('of one rank')\n        " + HONEST)
    assert ended.evidence.message == "ValueError: of one rank (rank 1)"
