"""The judge's desk over workers in threads: what several workloads end as when something fails late."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import json
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from runner.core.messages import Evidence, SessionReport, WorkloadSpec, dumps, from_json
from runner.core.vocab import Fault, Mode, Stage, Status
from runner.core.workload import Desk
from tests.core.sessions import QUICK, SOFTMAX, make_job
from tests.core.workers import TIMEOUTS, served

pytestmark = pytest.mark.torch

GOOD = "return torch.softmax(x, -1)"
WORKLOADS = (WorkloadSpec("one", {"rows": 4}), WorkloadSpec("two", {"rows": 6}))


def candidate(forward):
    return (
        "import torch\nclass CompilationError(Exception): pass\ncalls = 0\nclass ModelNew(torch.nn.Module):\n"
        f"    def forward(self, x):\n        global calls\n        calls += 1\n        {forward}\n        {GOOD}\n"
    )


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """The outcomes of all workloads up to the one that ended it."""
    for name in ("candidate", "baseline", "kernel_matrix_problem"):
        monkeypatch.setitem(sys.modules, name, None)  # and out again afterwards

    def run(source, problem=SOFTMAX, **changes):
        (tmp_path / "problem.py").write_text(problem)
        (tmp_path / "candidate.py").write_text(source)
        job = make_job(workloads=WORKLOADS, timeouts=TIMEOUTS, **changes)
        with ExitStack() as undo:
            baseline, channel = undo.enter_context(served(tmp_path)), undo.enter_context(served(tmp_path))
            desk = undo.enter_context(Desk(job, tmp_path, baseline, channel).open())
            outcomes = []
            for spec in job.workloads:
                outcomes.append(desk.run(spec, lambda _phase: nullcontext()))
                if outcomes[-1].ended is not None:
                    break
        return outcomes

    return run


def report(outcomes):
    """The session's report of these outcomes, as the judge writes and the host reads it."""
    ended = outcomes[-1].ended
    made = SessionReport(
        cell_id="c",
        session=0,
        status=ended.status if ended else Status.PASSED,
        stage=ended.stage if ended else Stage.DONE,
        evidence=ended.evidence if ended else Evidence(),
        environment=None,
        seed_sha256="0" * 64,
        transport="memfd",
        candidate_peer={},
        workloads=tuple(outcome.report for outcome in outcomes),
        durations_s={},
    )
    assert from_json(SessionReport, json.loads(dumps(made))) == made
    return made


def test_all_workloads_pass_with_trials_and_samples_of_their_own(judged):
    outcomes = judged(candidate("pass"))
    assert report(outcomes).status is Status.PASSED
    assert [(o.report.name, o.report.values) for o in outcomes] == [("one", {"rows": 4}), ("two", {"rows": 6})]
    for outcome in outcomes:
        phases = {(t.mode, t.phase) for t in outcome.report.trials}
        assert phases >= {(mode, phase) for mode in Mode for phase in ("before", "after")}
        assert outcome.report.blocks
        assert outcome.report.wall_overhead_ns > 0


# A verification has 2 trials in 2 modes; then come 2 to 5 calls of warm-up, and blocks of 1 to 5 calls.
LATE = {
    "a compiler error while timed": (
        "if calls > 20: raise CompilationError('of another shape')",
        "one",
        Status.RUNTIME_ERROR,
        Stage.TIME,
    ),
    "a compiler error of the second workload": (
        "if len(x) == 6: raise CompilationError('of another shape')",
        "two",
        Status.RUNTIME_ERROR,
        Stage.VERIFY,
    ),
    "a wrong second workload": ("if len(x) == 6: return x", "two", Status.INCORRECT_VALUES, Stage.VERIFY),
    "memory in the second workload": ("if len(x) == 6: raise MemoryError", "two", Status.OUT_OF_MEMORY, Stage.VERIFY),
}


@pytest.mark.parametrize("name", LATE)
def test_a_candidate_that_fails_late_is_blamed_and_its_samples_are_kept(name, judged):
    forward, workload, status, stage = LATE[name]
    outcomes = judged(candidate(forward), protocol=replace(QUICK, min_samples=40, max_samples=40))
    told = report(outcomes)
    assert (told.status, told.stage, told.fault) == (status, stage, Fault.CANDIDATE)
    assert told.evidence.workload == workload
    assert told.workloads[0].blocks


def test_a_compiler_error_before_anything_was_timed_stays_one(judged):
    told = report(judged(candidate("raise CompilationError('at once')")))
    assert told.status is Status.COMPILE_ERROR
    assert "CompilationError: at once" in told.evidence.message


PROBLEMS = {
    "whose inputs cannot be drawn": (
        "    return [torch.randn(rows",
        "    assert rows != 6\n    return [torch.randn(rows",
    ),
    "whose reference raises": ("        return torch", "        assert len(x) != 6\n        return torch"),
    "whose arguments cannot be handed over": ("columns)]", "columns)] + ([{1, 2}] if rows == 6 else [])"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_that_fails_in_its_second_workload_is_the_problems_fault(name, judged):
    old, new = PROBLEMS[name]
    problem = SOFTMAX.replace(old, new).replace("def forward(self, x)", "def forward(self, x, *rest)")
    assert old in SOFTMAX
    told = report(judged(candidate("pass"), problem))
    assert (told.status, told.fault) == (Status.INVALID_PROBLEM, Fault.PROBLEM)
    assert told.evidence.message
    assert told.workloads[0].status is Status.PASSED
    assert told.workloads[0].blocks


def test_without_timing_there_are_no_blocks_and_no_second_verification(judged):
    outcomes = judged(candidate("pass"), protocol=replace(QUICK, time=False))
    assert [o.report.blocks for o in outcomes] == [(), ()]
    assert {t.phase for o in outcomes for t in o.report.trials} == {"before"}


def test_a_problem_whose_inputs_must_keep_their_range_sees_no_outliers(judged):
    outcomes = judged(candidate("pass"), outliers=False, protocol=replace(QUICK, time=False))
    assert {t.mode for o in outcomes for t in o.report.trials} == {Mode.STANDARD}


SINGLE = {
    "depends on the input": ("x.double().sum().to(x.dtype)", Status.PASSED),
    "does not": ("x.sum() * 0 + 3", Status.INVALID_PROBLEM),
}


@pytest.mark.parametrize("name", SINGLE)
def test_a_problem_that_returns_a_single_number_must_depend_on_its_input(name, judged):
    value, status = SINGLE[name]
    problem = SOFTMAX.replace("torch.softmax(x, dim=-1)", value)
    told = report(judged(candidate(f"return {value}"), problem, protocol=replace(QUICK, time=False)))
    assert told.status is status
    assert (told.evidence.message == "") is (status is Status.PASSED)


# --- the SM clock ----------------------------------------------------------------------------------------------------


def test_a_processor_has_no_clock_to_probe(judged):
    outcomes = judged(candidate("pass"))
    assert [o.labels for o in outcomes if "no_clock_probe" in o.labels] == []


PROBES = """
import json, socket
from pathlib import Path
from dataclasses import replace
from runner.core.messages import to_json
from runner.core.timing import Timing
from runner.core.wire import Channel
from runner.core.workload import Desk
from tests.core.sessions import QUICK, make_job

channels = [Channel(end, 1 << 16) for end in socket.socketpair()]
desk = Desk(make_job(device="cuda", protocol=replace(QUICK, flush="warm")), Path(), *channels)
timing = Timing()
for _workload in range(2):
    desk._read_first_clock(timing)
    desk._read_clock("after", timing)
print(json.dumps({"probes": to_json(desk.clock_probes), "labels": timing.labels}))
"""


def test_the_clock_is_read_before_the_first_workload_and_after_the_last(cuda):
    told = cuda.ask(PROBES, wrong="mhz=1980")
    before, after = told["probes"]
    assert (before["phase"], after["phase"]) == ("before", "after")
    assert before["ended_ns"] < after["started_ns"]
    assert (before["sm_mhz"], after["sm_mhz"], told["labels"]) == (1978.5, 1978.5, [])
    assert cuda.calls()["cuLaunchKernel"] == 3, "once before, and after each of both workloads"


def test_a_clock_that_cannot_be_read_is_said_and_ends_nothing(cuda):
    told = cuda.ask(PROBES, wrong="cuLaunchKernel=719")
    assert told["probes"] == []
    assert told["labels"] == ["no_clock_probe"]
