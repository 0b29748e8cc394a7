"""Workloads of a session, with workers in threads: outcomes of several workloads if one fails late."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import json
import sys
from dataclasses import replace
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.inside.judge.verification import Verifier
from kernel_matrix.inside.judge.worker_client import WorkerClient
from kernel_matrix.inside.judge.workload_runner import LOAD_FACTOR, SLOWEST_FACTOR, WorkloadRunner
from kernel_matrix.model.enums import Dtype, Fault, InputMode, Regime, Role, Stage, Status
from kernel_matrix.model.messages import (
    INTERPRETED,
    Evidence,
    SessionReport,
    WorkloadReport,
    WorkloadSpec,
    dumps,
    from_json,
)
from tests.inside.runners import opened_runner
from tests.inside.sessions import CANDIDATE, EAGER, LIBRARY, QUICK, SOFTMAX, make_job
from tests.inside.workers import TIMEOUTS

pytestmark = pytest.mark.torch

GOOD = "return torch.softmax(x, -1)"
WORKLOADS = (WorkloadSpec("one", {"rows": 4}), WorkloadSpec("two", {"rows": 6}))


def candidate(forward):
    return (
        "import torch\nclass CompilationError(Exception): pass\ncalls = 0\nclass ModelNew(torch.nn.Module):\n"
        f"    def forward(self, x):\n        global calls\n        calls += 1\n        {forward}\n        {GOOD}\n"
    )


class Outcome(NamedTuple):
    """Results of one workload."""

    report: WorkloadReport
    ended: SessionEnded | None
    desk: WorkloadRunner


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """The outcomes of all workloads up to the one that ended it, and then of the traced call."""
    for name in ("candidate", "eager", "library", "kernel_matrix_problem"):
        monkeypatch.setitem(sys.modules, name, None)  # removed afterwards

    def run(source, problem=SOFTMAX, library="", **changes):
        (tmp_path / "problem.py").write_text(problem)
        (tmp_path / "candidate.py").write_text(source)
        (tmp_path / "library.py").write_text(library)
        job = make_job(**{"workloads": WORKLOADS, "timeouts": TIMEOUTS, **changes})
        with opened_runner(job, tmp_path) as desk:
            outcomes = []
            for spec in job.workloads:
                outcomes.append(Outcome(*desk.run(spec), desk))
                if outcomes[-1].ended is not None:
                    return outcomes
            desk.trace()
        return outcomes

    return run


def report(outcomes):
    """Return the session's report of these outcomes, as the judge writes it and the host reads it."""
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
        assert phases >= {(mode, phase) for mode in InputMode for phase in ("before", "after")}
        assert outcome.report.blocks
        assert outcome.report.wall_overhead_ns > 0


# A verification has 2 trials in 3 modes, one call is repeated; then come 2 to 5 calls of warm-up, and blocks of 1 to 5.
LATE = {
    "a compiler error while timed": (
        "if calls > 25: raise CompilationError('of another shape')",
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
    "a wrong second workload": ("if len(x) == 6: return x * 2", "two", Status.INCORRECT_VALUES, Stage.VERIFY),
    "memory in the second workload": ("if len(x) == 6: raise MemoryError", "two", Status.OUT_OF_MEMORY, Stage.VERIFY),
}


@pytest.mark.parametrize("name", LATE)
def test_run_late_failure_blames_candidate_keeps_samples(name, judged):
    forward, workload, status, stage = LATE[name]
    outcomes = judged(candidate(forward), protocol=replace(QUICK, min_samples=40, max_samples=40))
    told = report(outcomes)
    assert (told.status, told.stage, told.fault) == (status, stage, Fault.CANDIDATE)
    assert told.evidence.workload == workload
    assert told.workloads[0].blocks


BAD = {
    "wrong": ("return torch.softmax(x, dim=0)", Status.INCORRECT_VALUES),
    "zeros": ("return torch.zeros_like(x)", Status.INCORRECT_VALUES),
    "nan": ("return torch.softmax(x, -1) * float('nan')", Status.NONFINITE),
    "shape": ("return torch.softmax(x, -1)[:-1]", Status.INCORRECT_SHAPE),
    "dtype": ("return torch.softmax(x, -1).double()", Status.INCORRECT_DTYPE),
    "structure": ("return (torch.softmax(x, -1),)", Status.INCORRECT_STRUCTURE),
    "writes its input": ("out = torch.softmax(x, -1); x.zero_(); return out", Status.INPUT_MODIFIED),
    "returns its input": ("x.copy_(torch.softmax(x, -1)); return x", Status.OUTPUT_ALIASED),
    "writes behind its input": (
        "x.as_strided((x.numel() + 4,), (1,))[-4:] = 0; return torch.softmax(x, -1)",
        Status.OUT_OF_BOUNDS,
    ),
    "raises": ("raise RuntimeError('no idea')", Status.RUNTIME_ERROR),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_candidate_ends_as_what_it_is(name, judged):
    forward, status = BAD[name]
    told = report(judged(candidate(forward)))
    assert (told.status, told.stage, told.fault) == (status, Stage.VERIFY, Fault.CANDIDATE), told.evidence
    assert told.evidence.message


LOADS = {
    "does not import": ("import nothing_of_this_name\n", Status.LOAD_ERROR),
    "is no Python": ("class ModelNew(:\n", Status.COMPILE_ERROR),
    "has no class": ("x = 1\n", Status.LOAD_ERROR),
}


@pytest.mark.parametrize("name", LOADS)
def test_a_source_that_cannot_be_loaded_ends_as_what_it_is(name, judged):
    source, status = LOADS[name]
    told = report(judged(source))
    assert (told.status, told.stage, told.fault) == (status, Stage.LOAD, Fault.CANDIDATE), told.evidence


BAD_PROBLEMS = {
    "zeros pass": ("return x * 0", Status.INVALID_PROBLEM),
    "a constant passes": ("return x * 1e-9 + 1", Status.INVALID_PROBLEM),
    "random": ("return x + torch.rand_like(x)", Status.INVALID_PROBLEM),
    "raises": ("return x @ x", Status.PROBLEM_ERROR),
    "returns no tensor": ("return 1", Status.PROBLEM_ERROR),
}


@pytest.mark.parametrize("name", BAD_PROBLEMS)
def test_a_bad_problem_is_not_the_candidates_fault(name, judged):
    code, status = BAD_PROBLEMS[name]
    told = report(judged(candidate("pass"), SOFTMAX.replace("return torch.softmax(x, dim=-1)", code)))
    assert (told.status, told.fault) == (status, Fault.PROBLEM), told.evidence


@pytest.mark.parametrize("dtype", [Dtype.FP16, Dtype.BF16])
def test_half_precision_is_judged_in_its_own_precision(dtype, judged):
    assert report(judged(candidate("pass"), dtype=dtype)).status is Status.PASSED


def test_a_candidate_that_turns_bad_while_timed_is_caught(judged):
    source = """
import torch
calls = 0
class ModelNew(torch.nn.Module):
    def forward(self, x):
        global calls
        calls += 1
        return torch.softmax(x, -1) if calls < 12 else torch.full_like(x, 1 / 64)
"""
    told = report(judged(source, protocol=replace(QUICK, check_share=1.0)))
    assert told.status is Status.INCORRECT_VALUES
    assert told.stage is Stage.TIME


def test_values_of_a_workload_replace_module_constants(judged):
    (outcome,) = judged(candidate("pass"), workloads=(WorkloadSpec("smoke", {"rows": 3, "columns": 5}),))
    assert outcome.ended is None
    assert outcome.report.values == {"rows": 3, "columns": 5}


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


def test_run_copies_parameters_by_name_keeps_integers(judged):
    source = """
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
    told = report(judged(source, PARAMETERS, dtype=Dtype.FP16, workloads=(WorkloadSpec("only"),)))
    assert told.status is Status.PASSED, told.evidence


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
def test_run_second_workload_failure_is_problem_error(name, judged):
    old, new = PROBLEMS[name]
    problem = SOFTMAX.replace(old, new).replace("def forward(self, x)", "def forward(self, x, *rest)")
    assert old in SOFTMAX
    told = report(judged(candidate("pass"), problem))
    assert (told.status, told.fault) == (Status.INVALID_PROBLEM, Fault.PROBLEM)
    assert told.evidence.message
    assert told.workloads[0].status is Status.PASSED
    assert told.workloads[0].blocks


def test_run_without_timing_has_no_blocks_or_second_check(judged):
    outcomes = judged(candidate("pass"), protocol=replace(QUICK, time=False))
    assert [o.report.blocks for o in outcomes] == [(), ()]
    assert {t.phase for o in outcomes for t in o.report.trials} == {"before"}


def test_run_fixed_range_inputs_get_no_outliers(judged):
    outcomes = judged(candidate("pass"), outliers=False, protocol=replace(QUICK, time=False))
    assert {t.mode for o in outcomes for t in o.report.trials} == {InputMode.STANDARD}


SINGLE = {
    "depends on the input": ("x.double().sum().to(x.dtype)", Status.PASSED),
    "does not": ("x.sum() * 0 + 3", Status.INVALID_PROBLEM),
}


@pytest.mark.parametrize("name", SINGLE)
def test_run_single_number_must_depend_on_its_input(name, judged):
    value, status = SINGLE[name]
    problem = SOFTMAX.replace("torch.softmax(x, dim=-1)", value)
    told = report(judged(candidate(f"return {value}"), problem, protocol=replace(QUICK, time=False)))
    assert told.status is status
    assert (told.evidence.message == "") is (status is Status.PASSED)


WRITES = "x.add_(1.5); return torch.softmax(x, dim=-1) * x"


MOMENTUM = """
import torch
rows = 4
class Model(torch.nn.Module):
    def forward(self, weights, steps):
        weights.sub_(0.5 * steps)
        return weights * 2
def get_inputs(): return [torch.randn(rows, 90), torch.randn(rows, 90)]
"""
STEPS = {
    "as the reference does": ("weights.sub_(0.5 * steps)", "passed", ""),
    "nowhere": ("weights = weights - 0.5 * steps", "incorrect_values", "input 0 is written into, and 360 of its 360"),
    "almost": ("weights.sub_(0.51 * steps); weights = weights + 0.01 * steps", "incorrect_values", "input 0 is "),
    "everywhere": ("weights.sub_(0.5 * steps); steps.zero_()", "input_modified", "input 1 was written to"),
}


@pytest.mark.parametrize("name", STEPS)
def test_run_mutated_inputs_are_expected_like_outputs(name, judged):
    step, status, words = STEPS[name]
    source = MOMENTUM.replace("class Model", "class ModelNew").replace("weights.sub_(0.5 * steps)", step)
    told = report(judged(source, MOMENTUM, workloads=WORKLOADS[:1], mutates_inputs=True))
    assert told.status.value == status
    assert words in told.evidence.message


def test_run_mutated_inputs_are_not_replayed(judged):
    problem = SOFTMAX.replace("return torch.softmax(x, dim=-1)", WRITES)
    protocol = replace(QUICK, regimes=(Regime.COLD, Regime.WARM), check_share=1.0)
    (outcome,) = judged(
        candidate(WRITES), problem, workloads=WORKLOADS[:1], mutates_inputs=True, outliers=False, protocol=protocol
    )
    assert report([outcome]).status is Status.PASSED, outcome.ended
    assert {block.regime for block in outcome.report.blocks} == {Regime.COLD}
    assert "not_replayable" in outcome.report.labels
    assert outcome.desk.labels == []


def test_run_label_stays_with_its_workload(judged, monkeypatch):
    controls = Verifier.controls

    def blind_at_first(verifier, reference):
        controls(verifier, reference)
        if not blind:
            blind.append(verifier)
            verifier.labels += ["precision_blind", "precision_blind"]

    blind = []
    monkeypatch.setattr(Verifier, "controls", blind_at_first)
    first, second = judged(candidate("pass"), protocol=UNTIMED)
    assert (first.report.labels, second.report.labels, second.desk.labels) == (("precision_blind",), (), [])


# --- rivals ----------------------------------------------------------------------------------------------------------


RIVAL = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        "
RIVALS = {
    "does not import": "import nothing_of_this_name\n",
    "cannot be constructed": "class ModelNew:\n    def __init__(self):\n        raise ValueError('no')\n",
    "raises": RIVAL + "raise ValueError('no')",
    "is wrong": RIVAL + "return x + 1",
}


@pytest.mark.parametrize("name", RIVALS)
def test_run_failed_rival_leaves_and_session_goes_on(name, judged):
    contestants, protocol = (CANDIDATE, EAGER, LIBRARY), replace(QUICK, check_share=1.0)
    outcomes = judged(candidate("pass"), library=RIVALS[name], contestants=contestants, protocol=protocol)
    assert report(outcomes).status is Status.PASSED
    assert outcomes[0].desk.labels.count("rival_failed:library") == 1
    for outcome in outcomes:
        assert {block.contestant for block in outcome.report.blocks} == {"candidate", "eager"}


def test_a_rival_that_does_not_fail_is_timed_in_every_workload(judged):
    outcomes = judged(
        candidate("pass"), library=RIVAL + "return torch.softmax(x, -1)", contestants=(CANDIDATE, EAGER, LIBRARY)
    )
    assert report(outcomes).status is Status.PASSED
    for outcome in outcomes:
        timed = {(block.contestant, block.role) for block in outcome.report.blocks}
        assert timed == {("candidate", Role.CANDIDATE), ("eager", Role.BASELINE), ("library", Role.RIVAL)}


# --- how long a candidate is waited for ------------------------------------------------------------------------------


def test_run_limits_candidate_by_the_baselines_calls(judged, monkeypatch):
    told = []
    monkeypatch.setattr(WorkerClient, "limit_calls", lambda side, seconds: told.append((side.name, seconds)))
    problem = SOFTMAX.replace("return torch", "__import__('time').sleep(0.02); return torch")
    judged(candidate("pass"), problem, workloads=WORKLOADS[:1], protocol=replace(QUICK, time=False))
    ((name, seconds),) = told
    assert name == "candidate"
    assert seconds >= SLOWEST_FACTOR * 0.02


SLOW_TO_LOAD = {
    "is imported": "import time\ntime.sleep(1)\nclass ModelNew: pass\n",
    "is constructed": "import time\nclass ModelNew:\n    def __init__(self):\n        time.sleep(1)\n",
}


@pytest.mark.parametrize("name", SLOW_TO_LOAD)
def test_a_candidate_that_hangs_while_it(name, judged, monkeypatch):
    monkeypatch.setattr("kernel_matrix.inside.judge.workload_runner.LOAD_S", 0.1)
    monkeypatch.setattr("kernel_matrix.inside.judge.workload_runner.LOAD_FACTOR", 0)
    told = report(judged(SLOW_TO_LOAD[name]))
    assert (told.status, told.stage) == (Status.TIMEOUT, Stage.LOAD), told.evidence
    assert told.evidence.message == "no answer within 0.1 s"


def test_a_model_is_waited_for_as_the_reference_suggests(judged, monkeypatch):
    told = []
    monkeypatch.setattr(WorkerClient, "limit_loading", lambda side, seconds: told.append((side.name, seconds)))
    monkeypatch.setattr("kernel_matrix.inside.judge.workload_runner.LOAD_S", 0)
    problem = SOFTMAX.replace("return []", "__import__('time').sleep(0.2); return []")
    judged(candidate("pass"), problem, workloads=WORKLOADS[:1], protocol=replace(QUICK, time=False))
    assert [name for name, _ in told] == ["candidate", "eager"]
    assert all(seconds >= LOAD_FACTOR * 0.2 for _, seconds in told)


@pytest.mark.parametrize(
    "changes", [{"labels": (INTERPRETED,)}, {"sanitize": ("memcheck",)}], ids=["interpreter", "tool"]
)
def test_run_under_a_tool_has_no_tightened_limits(changes, judged, monkeypatch):
    monkeypatch.setattr(WorkerClient, "limit_calls", lambda *_: pytest.fail("its calls were limited"))
    monkeypatch.setattr(WorkerClient, "limit_loading", lambda *_: pytest.fail("getting ready was limited"))
    (outcome,) = judged(candidate("pass"), workloads=WORKLOADS[:1], protocol=replace(QUICK, time=False), **changes)
    assert outcome.ended is None


def test_under_a_sanitizer_nothing_is_timed(judged):
    outcomes = judged(candidate("pass"), sanitize=("memcheck",))
    assert [outcome.report.blocks for outcome in outcomes] == [(), ()]


# --- whose kernels ran -----------------------------------------------------------------------------------------------


UNTIMED = replace(QUICK, time=False)


def test_a_candidate_none_of_whose_kernels_ran_is_told_so(judged):
    changes = {"own_kernels": ("mine",), "labels": (INTERPRETED,), "protocol": UNTIMED}
    with pytest.raises(
        SessionEnded, match=r"no kernel that the source defines ran \(mine\); what ran: nothing"
    ) as found:
        judged(candidate("pass"), require_own_kernel=True, **changes)
    assert (found.value.status, found.value.stage) == (Status.NO_OWN_KERNEL, Stage.VERIFY)
    outcomes = judged(candidate("pass"), require_own_kernel=False, **changes)
    assert report(outcomes).status is Status.PASSED, "where the policy does not ask for one"


def test_a_compiler_error_of_the_traced_call_is_one_of_the_run(judged, monkeypatch):
    class CompilationError(Exception):
        pass

    def fail(_function, _platform):
        raise CompilationError("late")

    monkeypatch.setattr("kernel_matrix.inside.worker.service.trace", fail)
    with pytest.raises(SessionEnded, match="CompilationError: late") as found:
        judged(candidate("pass"), own_kernels=("mine",))
    assert found.value.status is Status.RUNTIME_ERROR, "it was timed before: it does compile"


def test_where_nothing_can_be_traced_nobody_is_blamed(judged):
    outcomes = judged(candidate("pass"), own_kernels=("mine",), require_own_kernel=True, protocol=UNTIMED)
    assert outcomes[0].desk.labels == ["no_trace"]


def test_the_traced_call_must_be_right_too(judged, monkeypatch):
    monkeypatch.setattr("kernel_matrix.inside.worker.service.trace", lambda function, _platform: (function() + 1, []))
    with pytest.raises(SessionEnded, match="beyond tolerance"):
        judged(candidate("pass"), own_kernels=("mine",), protocol=UNTIMED)


def test_trace_keeps_kernels_and_whose_they_are(judged, monkeypatch):
    seen = [("void mine<float>(float*)", 2, 30), ("void at::fill()", 1, 10)]
    monkeypatch.setattr("kernel_matrix.inside.worker.service.trace", lambda function, _platform: (function(), seen))
    (outcome,) = judged(
        candidate("pass"), own_kernels=("mine",), require_own_kernel=True, protocol=UNTIMED, workloads=WORKLOADS[:1]
    )
    assert [(k.name, k.launches, k.device_ns, k.own) for k in outcome.desk.kernels] == [
        ("void mine<float>(float*)", 2, 30, True),
        ("void at::fill()", 1, 10, False),
    ]


@pytest.mark.parametrize("first", [[], [("void at::fill()", 1, 10)]])
def test_a_trace_that_misses_the_own_kernel_is_repeated(judged, monkeypatch, first):
    traces = iter([first, [("mine", 1, 30)], []])
    monkeypatch.setattr(
        "kernel_matrix.inside.worker.service.trace", lambda function, _platform: (function(), next(traces))
    )
    (outcome,) = judged(
        candidate("pass"), own_kernels=("mine",), require_own_kernel=True, protocol=UNTIMED, workloads=WORKLOADS[:1]
    )
    assert [kernel.name for kernel in outcome.desk.kernels] == ["mine"]


def test_launches_of_the_others_are_counted_once_per_workload(judged, monkeypatch):
    counts = iter((1, 2))

    def traced(function, _platform):
        return function(), [("mine", next(counts), 30), ("other", 10, 5)]

    monkeypatch.setattr("kernel_matrix.inside.worker.service.trace", traced)
    (outcome,) = judged(candidate("pass"), own_kernels=("mine",), protocol=UNTIMED, workloads=WORKLOADS[:1])
    assert [kernel.launches for kernel in outcome.desk.kernels] == [1, 10]
    assert outcome.desk.launches == {"eager": 12}


def test_a_baseline_that_fails_when_traced_has_no_launches(judged, monkeypatch):
    sides = iter(("candidate", "eager"))

    def traced(function, _platform):
        if next(sides) == "eager":
            raise RuntimeError("no tracer here")
        return function(), [("mine", 1, 30)]

    monkeypatch.setattr("kernel_matrix.inside.worker.service.trace", traced)
    outcomes = judged(candidate("pass"), own_kernels=("mine",), protocol=UNTIMED, workloads=WORKLOADS[:1])
    assert report(outcomes).status is Status.PASSED
    assert outcomes[0].desk.launches == {}


# --- the two clocks --------------------------------------------------------------------------------------------------


def test_claims_are_held_and_kept(judged):
    for outcome in judged(candidate("pass")):
        assert outcome.report.two_clocks is not None
        assert outcome.report.wall_overhead_ns > 0


def test_a_contradiction_is_a_finding_with_all_samples_kept(judged, monkeypatch):
    series = []

    def contradiction(_two_clocks, blocks, **_rest):
        series.append(tuple(blocks))
        return "claims too little"

    monkeypatch.setattr("kernel_matrix.inside.judge.workload_runner.contradiction", contradiction)
    told = report(judged(candidate("pass")))
    first, second = series
    assert told.workloads[0].blocks == first + second, "the second time, the second series alone was looked at"
    assert (told.status, told.stage) == (Status.TIMING_MISMATCH, Stage.TIME)
    assert told.evidence.message == "the candidate's side claims too little"
    assert told.workloads[0].two_clocks is not None
