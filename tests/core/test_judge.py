"""Sessions from end to end: what each kind of candidate ends as, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.core.messages import WorkloadSpec
from runner.core.vocab import Dtype, Fault, Mode, Role, Stage, Status
from tests.core.sessions import QUICK, SOFTMAX, make_job

pytestmark = pytest.mark.torch

GOOD = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(dim=-1, keepdim=True))
        return e / e.sum(dim=-1, keepdim=True)
"""


def body(code: str) -> str:
    """A candidate whose forward is ``code``."""
    lines = "\n        ".join(code.strip().splitlines())
    return f"import os, time, torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {lines}\n"


def test_a_good_candidate_passes_with_samples_of_both_sides(run_session):
    report = run_session(GOOD)
    assert report.status is Status.PASSED, report.evidence
    assert report.stage is Stage.DONE
    (workload,) = report.workloads
    for role in (Role.BASELINE, Role.CANDIDATE):
        samples = [s for b in workload.blocks if b.role is role for s in b.device_ns]
        assert len(samples) >= 8
        assert min(samples) > 0
    assert {(t.mode, t.phase) for t in workload.trials} >= {
        (mode, phase) for mode in Mode for phase in ("before", "after")
    }
    assert all(t.passed for t in workload.trials)
    assert workload.reference_dtype == "float64"
    assert report.transport == "memfd"
    assert "seed" not in str(report.evidence)


FAILURES = {
    "wrong": (body("return torch.softmax(x, dim=0)"), Status.INCORRECT_VALUES, Stage.VERIFY),
    "zeros": (body("return torch.zeros_like(x)"), Status.INCORRECT_VALUES, Stage.VERIFY),
    "nan": (body("return torch.softmax(x, -1) * float('nan')"), Status.NONFINITE, Stage.VERIFY),
    "shape": (body("return torch.softmax(x, -1)[:-1]"), Status.INCORRECT_SHAPE, Stage.VERIFY),
    "dtype": (body("return torch.softmax(x, -1).double()"), Status.INCORRECT_DTYPE, Stage.VERIFY),
    "structure": (body("return (torch.softmax(x, -1),)"), Status.INCORRECT_STRUCTURE, Stage.VERIFY),
    "writes its input": (
        body("out = torch.softmax(x, -1)\nx.zero_()\nreturn out"),
        Status.INPUT_MODIFIED,
        Stage.VERIFY,
    ),
    "raises": (body("raise RuntimeError('no idea')"), Status.RUNTIME_ERROR, Stage.VERIFY),
    "exits": (body("os._exit(0)"), Status.CRASHED, Stage.VERIFY),
    "hangs": (body("while True: time.sleep(1)"), Status.TIMEOUT, Stage.VERIFY),
    "does not import": ("import nothing_of_this_name\n", Status.LOAD_ERROR, Stage.LOAD),
    "is no Python": ("class ModelNew(:\n", Status.COMPILE_ERROR, Stage.LOAD),
    "has no class": ("x = 1\n", Status.LOAD_ERROR, Stage.LOAD),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_bad_candidate_ends_as_what_it_is(name, run_session):
    candidate, status, stage = FAILURES[name]
    changes = {}
    if status is Status.TIMEOUT:
        changes["timeouts"] = replace(make_job().timeouts, first_call_s=2)
    report = run_session(candidate, **changes)
    assert (report.status, report.stage) == (status, stage), report.evidence
    assert report.fault is Fault.CANDIDATE
    assert report.evidence.message


def test_a_candidate_that_turns_bad_while_timed_is_caught(run_session):
    candidate = """
import torch
calls = 0
class ModelNew(torch.nn.Module):
    def forward(self, x):
        global calls
        calls += 1
        return torch.softmax(x, -1) if calls < 8 else torch.full_like(x, 1 / 64)
"""
    report = run_session(candidate, protocol=replace(QUICK, check_share=1.0))
    assert report.status is Status.INCORRECT_VALUES
    assert report.stage is Stage.TIME


def test_values_of_a_workload_replace_module_constants(run_session):
    report = run_session(GOOD, workloads=(WorkloadSpec("smoke", {"rows": 3, "columns": 5}),))
    assert report.status is Status.PASSED, report.evidence
    assert report.workloads[0].values == {"rows": 3, "columns": 5}


@pytest.mark.parametrize("dtype", [Dtype.FP16, Dtype.BF16])
def test_half_precision_is_judged_in_its_own_precision(dtype, run_session):
    report = run_session(body("return torch.softmax(x, -1)"), dtype=dtype)
    assert report.status is Status.PASSED, report.evidence


PARAMETERS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.table = nn.Embedding(10, width)
    def forward(self, x, index):
        return self.linear(x) + self.table(index), index + 1

def get_inputs():
    return [torch.randn(4, 16), torch.randint(0, 10, (4,))]

def get_init_inputs():
    return [16]
"""


def test_parameters_are_copied_by_name_and_integers_stay_integers(run_session):
    candidate = """
import torch
from torch import nn
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.table = nn.Embedding(10, width)   # another order than the reference's: seeds alone would not match
        self.linear = nn.Linear(width, width)
    def forward(self, x, index):
        assert index.dtype == torch.int64
        return x @ self.linear.weight.T + self.linear.bias + self.table.weight[index], index + 1
"""
    report = run_session(candidate, PARAMETERS, dtype=Dtype.FP16)
    assert report.status is Status.PASSED, report.evidence


BAD_PROBLEMS = {
    "zeros pass": ("return x * 0", Status.INVALID_PROBLEM),
    "a constant passes": ("return x * 1e-9 + 1", Status.INVALID_PROBLEM),
    "random": ("return x + torch.rand_like(x)", Status.INVALID_PROBLEM),
    "raises": ("return x @ x", Status.PROBLEM_ERROR),
    "returns no tensor": ("return 1", Status.PROBLEM_ERROR),
}


@pytest.mark.parametrize("name", BAD_PROBLEMS)
def test_a_bad_problem_is_not_the_candidates_fault(name, run_session):
    code, status = BAD_PROBLEMS[name]
    report = run_session(GOOD, SOFTMAX.replace("return torch.softmax(x, dim=-1)", code))
    assert report.status is status, report.evidence
    assert report.fault is Fault.PROBLEM


def test_a_forged_device_time_contradicts_the_judges_clock(run_session):
    candidate = """
import time, torch
real = time.perf_counter_ns
start = real()
time.perf_counter_ns = lambda: start + 1000   # the worker's clock stands still
class ModelNew(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.01)
        return torch.softmax(x, -1)
"""
    report = run_session(candidate)
    assert report.status is Status.TIMING_MISMATCH, report.evidence


def test_a_peer_of_another_uid_is_not_taken_for_the_candidate(run_session):
    report = run_session(GOOD, candidate_uid=4242, timeouts=replace(make_job().timeouts, connect_s=3))
    assert report.status is Status.INFRA_ERROR
    assert report.stage is Stage.START


def test_answers_written_before_the_question_are_not_taken(run_session):
    candidate = """
import os, socket, stat, torch
from runner.core.wire import Channel, Kind, OutputClaim, OutputsClaim, Structure, pack_done, pack_outputs

def judge():
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                return Channel(socket.socket(fileno=os.dup(fd)), 1 << 20)
        except OSError:
            pass

class ModelNew(torch.nn.Module):
    def forward(self, x):
        claim = OutputsClaim(Structure.TENSOR, (OutputClaim("float32", tuple(x.shape), True, True),))
        for sequence in range(1, 50):
            judge().send(Kind.DONE, sequence, pack_done(1000))
            judge().send(Kind.OUTPUTS, sequence, pack_outputs(claim))
        return torch.softmax(x, -1)
"""
    report = run_session(candidate)
    assert report.status is Status.PROTOCOL_VIOLATION, report.evidence
    assert report.fault is Fault.CANDIDATE
