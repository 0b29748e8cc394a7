"""Sessions from end to end: the status of each kind of candidate, and the reason."""

from __future__ import annotations

import subprocess
import textwrap
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kernel_matrix.inside.judge.judge import JudgeSession
from kernel_matrix.inside.judge.session_ended import finding
from kernel_matrix.inside.phases import Phases
from kernel_matrix.model.enums import Fault, InputMode, Regime, Role, Stage, Status
from kernel_matrix.model.messages import INTERPRETED, ContestantSpec, HealthReport, JudgeTimeouts, WorkloadSpec
from tests.inside.sessions import CANDIDATE, EAGER, LIBRARY, QUICK, SOFTMAX, make_job

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
    report = run_session(GOOD, check_health=True)
    assert report.status is Status.PASSED, report.evidence
    assert report.stage is Stage.DONE
    assert report.health == HealthReport(passed=True, reason="")
    (workload,) = report.workloads
    for role in (Role.BASELINE, Role.CANDIDATE):
        samples = [s for b in workload.blocks if b.role is role for s in b.device_ns]
        assert len(samples) >= 8
        assert min(samples) > 0
    assert {(t.mode, t.phase) for t in workload.trials} >= {
        (mode, phase) for mode in InputMode for phase in ("before", "after")
    }
    assert all(t.passed for t in workload.trials)
    assert workload.reference_dtype == "float64"
    assert report.transport == "memfd"
    assert "seed" not in str(report.evidence)


def test_judge_candidate_that_exits_has_crashed(run_session):
    report = run_session(body("os._exit(0)"))
    assert (report.status, report.stage) == (Status.CRASHED, Stage.VERIFY), report.evidence
    assert report.fault is Fault.CANDIDATE
    assert report.evidence.message


def test_a_forged_device_time_contradicts_the_judges_clock(run_session):
    candidate = """
import time, torch
real = time.perf_counter_ns
start = real()
time.perf_counter_ns = lambda: start + 1000   # the worker's clock stands still
class ModelNew(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.1)   # far above what a busy machine adds to a call
        return torch.softmax(x, -1)
"""
    report = run_session(candidate)
    assert report.status is Status.TIMING_MISMATCH, report.evidence


@pytest.mark.parametrize(
    ("imports", "status"), [(("tilelang",), Status.UNSUPPORTED), ((), Status.LOAD_ERROR)], ids=["imported", "raised"]
)
def test_judge_missing_package_counts_only_if_imported(imports, status, run_session):
    """The judge of this test has no TileLang either."""
    claims = "raise ModuleNotFoundError(\"No module named 'tilelang'\", name='tilelang')\n"
    report = run_session(claims + GOOD, contestants=(replace(CANDIDATE, imports=imports), EAGER))
    assert (report.status, report.stage) == (status, Stage.LOAD), report.evidence


def test_judge_late_missing_package_of_reference_is_problem(run_session):
    asks = "def get_inputs():\n    if rows == 4:\n        import no_such_package\n"
    problem = SOFTMAX.replace("def get_inputs():\n", asks)
    assert problem != SOFTMAX
    workloads = (WorkloadSpec("default"), WorkloadSpec("small", {"rows": 4}))
    report = run_session(GOOD, problem=problem, workloads=workloads)
    assert report.status is Status.INVALID_PROBLEM, report.evidence
    assert "no_such_package" in report.evidence.message


HELD_OUT = WorkloadSpec("concealed", {"rows": 5}, held_out=True), WorkloadSpec("smoke", {})


def test_judge_held_out_workload_is_verified_last(run_session):
    report = run_session(GOOD, workloads=HELD_OUT)
    assert (report.status, report.evidence.held_out) == (Status.PASSED, None), report.evidence
    shown, held_out = report.workloads
    assert [(one.name, one.held_out, bool(one.blocks)) for one in report.workloads] == [
        *(("smoke", False, True), ("concealed", True, False)),
    ]
    assert {(trial.mode, trial.passed) for trial in held_out.trials} == {(mode, True) for mode in InputMode}
    assert {trial.phase for trial in held_out.trials} == {"before"}
    assert held_out.tolerance == shown.tolerance


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("return torch.softmax(x, -1) * (len(x) == 8)", Status.INCORRECT_VALUES),
        ("time.sleep(60 * (len(x) == 5))\nreturn torch.softmax(x, -1)", Status.TIMEOUT),
    ],
)
def test_judge_says_that_it_ended_in_a_held_out_workload(run_session, code, status):
    timeouts = replace(make_job().timeouts, session_s=8, call_s=60, first_call_s=60)
    report = run_session(body(code), workloads=HELD_OUT, protocol=replace(QUICK, time=False), timeouts=timeouts)
    assert (report.status, report.evidence.held_out) == (status, True), report.evidence
    assert report.workloads[0].status is Status.PASSED


def test_a_peer_of_another_uid_is_not_taken_for_the_candidate(run_session):
    strangers = (replace(CANDIDATE, uid=4242), EAGER)
    report = run_session(GOOD, contestants=strangers, timeouts=replace(make_job().timeouts, connect_s=3))
    assert report.status is Status.INFRA_ERROR
    assert report.stage is Stage.START


def test_answers_written_before_the_question_are_not_taken(run_session):
    candidate = """
import os, socket, stat, torch
from kernel_matrix.inside.wire import Channel, FrameKind, OutputClaim, OutputsClaim, Structure, pack_done, pack_outputs

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
            judge().send(FrameKind.DONE, sequence, pack_done(1000))
            judge().send(FrameKind.OUTPUTS, sequence, pack_outputs(claim))
        return torch.softmax(x, -1)
"""
    report = run_session(candidate)
    assert report.status is Status.PROTOCOL_VIOLATION, report.evidence
    assert report.fault is Fault.CANDIDATE


TRITON = """
import torch, triton
import triton.language as tl

@triton.jit
def softmax_kernel(x, out, columns: tl.constexpr):
    row, places = tl.program_id(0), tl.arange(0, columns)
    values = tl.load(x + row * columns + places)
    grown = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + places, grown / tl.sum(grown, axis=0))

class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
        return out
"""


def test_a_kernel_of_the_candidates_own_is_seen_to_run(run_session):
    changes = {"own_kernels": ("softmax_kernel",), "require_own_kernel": True, "labels": (INTERPRETED,)}
    report = run_session(TRITON, protocol=replace(QUICK, time=False), **changes)
    assert report.status is Status.PASSED, report.evidence
    assert [(kernel.name, kernel.launches, kernel.own) for kernel in report.kernels] == [("softmax_kernel", 1, True)]


@pytest.mark.gpu
def test_a_session_on_a_gpu_measures_all_there_is(run_session):
    problem = SOFTMAX.replace("rows, columns = 8, 64", "rows, columns = 4096, 4096")
    compiled = ContestantSpec("compile", Role.RIVAL, "problem.py", "Model", compile_mode="default")
    report = run_session(
        TRITON,
        problem,
        device="cuda",
        contestants=(CANDIDATE, EAGER, compiled),
        protocol=replace(QUICK, min_samples=50, max_samples=60, budget_s=20.0, regimes=tuple(Regime)),
        timeouts=JudgeTimeouts(),
        own_kernels=("softmax_kernel",),
        require_own_kernel=True,
        check_health=True,
    )
    assert report.status is Status.PASSED, report.evidence
    assert report.health == HealthReport(passed=True, reason="")
    assert [anchor.phase for anchor in report.anchors] == [probe.phase for probe in report.clock_probes]
    assert any(kernel.own for kernel in report.kernels)
    (workload,) = report.workloads
    timed = {(block.contestant, block.regime) for block in workload.blocks}
    assert timed == {(name, regime) for name in ("candidate", "eager", "compile") for regime in Regime}
    assert not [label for label in workload.labels if label.startswith("not_capturable")]
    assert workload.two_clocks.resolution_ns > 0


# --- a judge that was started ahead ----------------------------------------------------------------------------------


def connected(folder):
    return (folder / "judge.sock").exists()


def test_judge_and_workers_import_nothing_before_the_job(started):
    marked = "import pathlib\npathlib.Path('loaded').touch()\n" + textwrap.dedent(GOOD)
    workers = [started.start_worker(CANDIDATE, marked), started.start_worker(EAGER, SOFTMAX)]
    judge = started.start_judge()
    until(lambda: connected(started.root / "channel" / "candidate"))
    with pytest.raises(subprocess.TimeoutExpired):
        judge.wait(2)
    assert [worker.poll() for worker in workers] == [None, None]
    assert not (started.root / "loaded").exists()
    started.begin(make_job(protocol=replace(QUICK, time=False)), SOFTMAX)
    assert judge.wait(60) == 0
    assert (started.root / "loaded").exists()
    report = started.report()
    assert report.status is Status.PASSED, report.evidence
    phases = {"import", "wait", "connect", "open", "load", "controls", "verify", "total"}
    assert set(report.durations_s) == phases


def test_a_judge_whose_job_never_comes_leaves_without_a_report(processes):
    assert processes.start_judge("--patience", "0.1").wait(60) == 1
    assert list((processes.root / "out").iterdir()) == []


def test_a_contestant_without_a_folder_is_this_machines_fault(processes):
    processes.begin(make_job(), SOFTMAX)
    assert processes.start_judge().wait(60) == 0
    report = processes.report()
    assert (report.status, report.stage) == (Status.INFRA_ERROR, Stage.START)
    assert "no folder for the contestant 'candidate'" in report.evidence.message


# --- a judge that is kept for another candidate ----------------------------------------------------------------------

KEPT = {"protocol": replace(QUICK, time=False), "keep": True}


@pytest.fixture
def kept(processes):
    """A judge and its baseline; judges one candidate after the other with them."""
    baseline = processes.start_worker(EAGER, SOFTMAX)
    judges = []

    def judged(candidate, number, **changes):
        worker = processes.start_worker(CANDIDATE, candidate, number=number)
        processes.begin(make_job(number=number, cell_id=f"{number:032x}", **{**KEPT, **changes}), SOFTMAX)
        if not judges:
            judges.append(processes.start_judge())
        report = processes.root / "out" / ("report.json" if number == 0 else f"report-{number}.json")
        until(report.exists)
        worker.kill()
        worker.wait(60)
        return processes.report(number)

    return SimpleNamespace(judged=judged, baseline=baseline, judge=lambda: judges[0], out=processes.root / "out")


def test_judge_kept_serves_candidates_one_after_the_other(kept):
    first = kept.judged(GOOD, 0)
    assert first.status is Status.PASSED, first.evidence
    assert (kept.out / "waiting").exists()
    wrong = kept.judged(GOOD.replace("e.sum(", "1.01 * e.sum("), 3)  # candidates with other numbers never came
    assert (wrong.status, wrong.cell_id) == (Status.INCORRECT_VALUES, f"{3:032x}")
    last = kept.judged(GOOD, 4, keep=False)
    assert last.status is Status.PASSED, last.evidence
    assert [report.earlier_cells for report in (first, wrong, last)] == [0, 1, 2]
    assert kept.judge().wait(60) == kept.baseline.wait(60) == 0
    assert not (kept.out / "waiting-4").exists()


def test_judge_kept_times_candidates_against_the_same_baseline(kept):
    timed = {"protocol": QUICK, "workloads": (WorkloadSpec("smoke"), WorkloadSpec("small", {"rows": 4}))}
    reports = [kept.judged(GOOD, number, seed=f"{number:032x}", **timed) for number in (0, 1)]
    for report in reports:
        assert report.status is Status.PASSED, report.evidence
        for workload in report.workloads:
            assert {block.contestant for block in workload.blocks} == {"candidate", "eager"}
    assert kept.baseline.poll() is None
    first, second = ([workload.traits.sensitivity for workload in report.workloads] for report in reports)
    assert first == second  # other inputs would give other values: a fact about the problem is found once


def test_judge_kept_after_a_source_that_does_not_load(kept):
    assert kept.judged("raise ImportError('no')\n", 0).status is Status.LOAD_ERROR
    assert kept.judged(GOOD, 1, keep=False).status is Status.PASSED


@pytest.mark.parametrize("source", ["os._exit(0)", "while True: time.sleep(1)"])
def test_judge_not_kept_after_a_candidate_that_leaves_doubt(source, kept):
    report = kept.judged(body(source), 0, timeouts=replace(make_job().timeouts, call_s=0.5, first_call_s=0.5))
    assert report.status in {Status.CRASHED, Status.TIMEOUT}
    assert kept.judge().wait(60) == 0
    assert not (kept.out / "waiting").exists()


def test_judge_not_kept_without_its_baseline(kept):
    kept.judged(GOOD, 0)
    kept.baseline.kill()
    kept.baseline.wait(60)
    report = kept.judged(GOOD, 1)
    assert report.fault is Fault.INFRA or report.status is Status.PROBLEM_ERROR, report.evidence
    assert kept.judge().wait(60) == 0


def test_a_rival_that_never_comes_costs_nothing_but_itself(processes):
    processes.start_worker(CANDIDATE, GOOD)
    processes.start_worker(EAGER, SOFTMAX)
    (processes.root / "channel" / "library").mkdir()
    timeouts = replace(make_job().timeouts, connect_s=3)
    contestants = (CANDIDATE, EAGER, LIBRARY)
    processes.begin(make_job(contestants=contestants, timeouts=timeouts, protocol=replace(QUICK, time=False)), SOFTMAX)
    assert processes.start_judge().wait(60) == 0
    report = processes.report()
    assert report.status is Status.PASSED, report.evidence
    assert "rival_failed:library" in report.labels


# --- candidates that hang --------------------------------------------------------------------------------------------


def test_judge_hanging_candidate_is_given_up_early(run_session):
    report = run_session(body("while True: time.sleep(1)"), timeouts=JudgeTimeouts(), check_health=True)
    assert (report.status, report.stage) == (Status.TIMEOUT, Stage.VERIFY), report.evidence
    assert report.evidence.message == "no answer within 4 s"
    assert report.health is None, "with a process still there nothing can be said of the device"


AWAITED = {
    "the candidate": ([Role.CANDIDATE], Status.TIMEOUT),
    "the baseline": ([Role.BASELINE], Status.INFRA_ERROR),
    "nobody": ([], Status.INFRA_ERROR),
}


@pytest.mark.parametrize("name", AWAITED)
def test_who_was_waited_for_when_the_session_ended_is_to_blame(name, tmp_path):
    roles, status = AWAITED[name]
    session = JudgeSession(make_job(), tmp_path, {}, Phases())
    session._admitted = [
        SimpleNamespace(role=role, awaited=role in roles) for role in (Role.CANDIDATE, Role.BASELINE, Role.RIVAL)
    ]
    assert session._expired()[0] is status


def test_judge_slow_farewell_keeps_the_verdict(tmp_path, monkeypatch):
    def find(_undo):
        raise finding(Status.CRASHED, Stage.VERIFY, "gone")

    session = JudgeSession(make_job(timeouts=replace(make_job().timeouts, session_s=0.1)), tmp_path, {}, Phases())
    monkeypatch.setattr(session, "_run_workloads", find)
    monkeypatch.setattr(session, "_dismiss", lambda: time.sleep(0.3))
    assert session.run().status is Status.CRASHED


def test_judge_deadline_while_judge_works_is_infra(run_session):
    problem = SOFTMAX.replace("def get_inputs():", "def get_inputs():\n    __import__('time').sleep(9)")
    report = run_session(GOOD, problem, timeouts=replace(make_job().timeouts, session_s=3))
    assert (report.status, report.fault) == (Status.INFRA_ERROR, Fault.INFRA), report.evidence


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
