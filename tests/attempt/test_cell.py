"""One attempt at one cell, on a sandbox without processes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kernel_matrix.attempt import Assignment, CellCancelledError, RunContext, run_cell
from kernel_matrix.attempt.contestants import contestants_of
from kernel_matrix.attempt.prepared_session import session_seed
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.lease import LeaseTerms, hold
from kernel_matrix.matrix import Policy, Protocol
from kernel_matrix.model.enums import Fault, Implementation, Language, Role, Stage, Status
from kernel_matrix.model.messages import ProtocolSpec, dumps
from kernel_matrix.results.reading import check_consistency
from kernel_matrix.results.record import record_to_json
from kernel_matrix.results.store import RecordStore
from kernel_matrix.sandboxes import ProcessExit
from kernel_matrix.sources import Origin
from tests.attempt.stage import FIRST, cannot_start, hangs, out_folder, report, says

PASSES = says(Status.PASSED)


@pytest.fixture
def attempt(stage):
    """Runs a cell once."""

    def attempted(cell, **changes):
        bench = RunContext(
            run_id="run-1", sandbox=stage, sandbox_status=stage.status(), owner=owner_token(), scratch=stage.scratch
        )
        return run_cell(Assignment(cell=cell, gpu=FIRST), replace(bench, **changes)).record

    yield attempted
    assert stage.alive == 0
    assert list(stage.scratch.iterdir()) == []


def test_the_record_has_both_halves(stage, attempt, tmp_path):
    record = attempt(stage.cell("good"))
    assert (record.outcome.status, record.attempt) == (Status.PASSED, 1)
    assert [report.status for report in record.sessions] == [Status.PASSED]
    roles = [Role.JUDGE, Role.CANDIDATE, Role.BASELINE]
    assert [(seen.role, seen.code) for seen in record.host.exits] == [(role, 0) for role in roles]
    assert record.host.device["uuid"] == FIRST.uuid
    assert record.host.isolation.keys() == {"judge", "candidate", "baseline"}
    assert record.host.phases_s.keys() == {
        *("lease_wait", "start", "inside", "teardown", "aftermath", "overhead", "total"),
    }
    check_consistency(record_to_json(record))
    RecordStore(tmp_path).save(record)


def test_sessions_end_with_the_first_that_does_not_pass(stage, attempt):
    cell = stage.cell("moody", PASSES, says(Status.INCORRECT_VALUES), protocol=Protocol(sessions=5))
    record = attempt(cell)
    assert record.outcome.status is Status.INCORRECT_VALUES
    assert [report.session for report in record.sessions] == [0, 1]
    assert [seen.session for seen in record.host.exits] == [0, 0, 0, 1, 1, 1]


def test_a_later_session_that_does_not_load_is_no_load_error(stage, attempt):
    cell = stage.cell("fickle", PASSES, says(Status.LOAD_ERROR), protocol=Protocol(sessions=5))
    record = attempt(cell)
    assert record.outcome.status is Status.RUNTIME_ERROR  # it did load, and was timed
    assert [session.status for session in record.sessions] == [Status.PASSED, Status.LOAD_ERROR]


def test_all_sessions_pass_with_secrets_of_their_own(stage, attempt):
    secrets = []

    def notes_the_secret(spec):
        folder = next(mount.source for mount in spec.mounts if mount.target == "/judge")
        secrets.append(json.loads((folder / "job.json").read_text())["seed"])
        return PASSES(spec)

    record = attempt(stage.cell("good", notes_the_secret, protocol=Protocol(sessions=3)))
    assert len(record.sessions) == 3
    assert len(set(secrets)) == 3
    assert all(len(secret) == 32 for secret in secrets)


def spread(*factors):
    """Make judges whose candidate's times grow by this factor from session to session."""

    def play(factor):
        def takes(spec):
            said = report(spec)
            (workload,) = said.workloads
            blocks = [
                replace(block, device_ns=tuple(round(ns * factor) for ns in block.device_ns))
                if block.role is Role.CANDIDATE
                else block
                for block in workload.blocks
            ]
            said = replace(said, workloads=(replace(workload, blocks=tuple(blocks)),))
            (out_folder(spec) / "report.json").write_text(dumps(said))
            return ProcessExit(role=spec.role, code=0)

        return takes

    return [play(factor) for factor in factors]


@pytest.mark.parametrize(
    ("factors", "sessions"),
    [((1.0, 1.0, 1.0), 2), ((1.0, 2.0, 1.0), 4)],
    ids=["steady", "never precise enough"],
)
def test_sessions_go_on_until_the_speedup_is_known_well_enough(factors, sessions, stage, attempt):
    protocol = Protocol(sessions=2, max_sessions=4, session_half_width=0.01)
    record = attempt(stage.cell("moody", *spread(*factors), protocol=protocol))
    assert record.outcome.status is Status.PASSED
    assert len(record.sessions) == sessions


def test_a_fixed_seed_repeats_and_still_differs_between_sessions(stage):
    cell = stage.cell("good", protocol=Protocol(seed=7))
    assert session_seed(cell, 0) == session_seed(cell, 0) != session_seed(cell, 1)
    assert len(session_seed(cell, 0)) == 32


@pytest.fixture
def observed(stage, attempt):
    """Runs a cell; returns ``look`` of each process, by its title."""

    def attempted(cell, look):
        seen = {}

        def notes(spec):
            seen[spec.title] = look(spec)
            return PASSES(spec) if spec.role is Role.JUDGE else ProcessExit(role=spec.role, code=0)

        for title in ("judge", "candidate", *(implementation.value for implementation in Implementation)):
            stage.plays[title, cell.id] = [notes]
        attempt(cell)
        return seen

    return attempted


def everybody(stage):
    """Make a cell that is timed against all baselines."""
    cell = stage.cell("good", protocol=Protocol(spec=ProtocolSpec(baselines=tuple(Implementation))))
    library = cell.problem.path.with_name("library.py")
    library.write_text("y = 1\n")
    return replace(cell, problem=replace(cell.problem, library=library))


def test_contestants_see_nothing_of_judge_or_each_other(stage, observed):
    def look(spec):
        return {mount.target: mount.writable for mount in spec.mounts}

    seen = observed(everybody(stage), look)
    assert seen.pop("judge") == {"/judge": False, "/channel": True, "/out": True}
    assert seen.pop("candidate") == {"/candidate": False, "/channel": False, "/artifact": False}
    assert seen == {name.value: {"/candidate": False, "/channel": False} for name in Implementation}


def test_contestants_have_own_folder_with_one_source(stage, observed):
    def look(spec):
        mounts = {mount.target: mount.source for mount in spec.mounts}
        code = mounts.get("/candidate")
        files = {path.name: path.read_text() for path in code.iterdir()} if code is not None else {}
        return mounts["/channel"], files

    cell = everybody(stage)
    seen = observed(cell, look)
    channel, _ = seen.pop("judge")
    assert {folder for folder, _ in seen.values()} == {channel / name for name in seen}
    problem = {"problem.py": cell.problem.path.read_text()}
    assert {name: files for name, (_, files) in seen.items()} == {
        "candidate": {"candidate.py": cell.candidate.path.read_text()},
        "eager": problem,
        "compile": problem,
        "compile-max-autotune": problem,
        "library": {"library.py": "y = 1\n"},
    }


def test_roles_have_own_users_and_equal_limits(stage, observed):
    seen = observed(everybody(stage), lambda spec: (spec.role, spec.uid, spec.limits))
    _, judge, _ = seen.pop("judge")
    users = {role: uid for role, uid, _ in seen.values()}
    assert users == {Role.CANDIDATE: 65534, Role.BASELINE: 65532, Role.RIVAL: 65531}
    assert judge not in users.values()
    assert len({limits for _, _, limits in seen.values()}) == 1


@pytest.mark.parametrize(
    ("language", "module"), [(Language.TRITON, ["triton"]), (Language.CUDA, ["torch.utils.cpp_extension"])]
)
def test_contestant_preloads_the_modules_it_always_needs(language, module, stage, observed):
    def look(spec):
        return [value for key, value in zip(spec.args, spec.args[1:], strict=False) if key == "--preload"]

    cell = everybody(stage)
    seen = observed(replace(cell, candidate=replace(cell.candidate, language=language)), look)
    compiler = ["torch._dynamo", "torch._inductor.compile_fx"]
    assert seen.pop("candidate") == module
    assert {name for name, modules in seen.items() if modules == compiler} == {"compile", "compile-max-autotune"}
    assert [modules for modules in seen.values() if modules not in ([], compiler)] == []


@pytest.fixture
def job_of(observed):
    """Runs a cell; returns its judge's job."""

    def look(spec):
        folders = [mount.source for mount in spec.mounts if mount.target == "/judge"]
        return json.loads((folders[0] / "job.json").read_text()) if folders else None

    return lambda cell: observed(cell, look)["judge"]


def test_the_judge_is_told_who_takes_part(stage, job_of):
    told = job_of(everybody(stage))["contestants"]
    assert [(one["name"], one["role"], one["file"], one["entry"], one["compile_mode"]) for one in told] == [
        ("candidate", "candidate", "candidate.py", "ModelNew", ""),
        ("eager", "baseline", "problem.py", "Model", ""),
        ("compile", "rival", "problem.py", "Model", "default"),
        ("compile-max-autotune", "rival", "problem.py", "Model", "max-autotune-no-cudagraphs"),
        ("library", "rival", "library.py", "ModelNew", ""),
    ]


MAY_COMPILE = {
    "plain torch": (Language.TORCH, "import torch\n", False),
    "torch.compile": (Language.TORCH, "import torch\ncompiled = torch.compile(torch.relu)\n", True),
    "Triton": (Language.TRITON, "import triton\n", True),
    "an extension that nobody built ahead": (Language.TORCH, "from torch.utils import cpp_extension\n", True),
}


@pytest.mark.parametrize("name", MAY_COMPILE)
def test_the_judge_is_told_whose_source_may_take_time_to_compile(name, stage, job_of):
    language, source, expected = MAY_COMPILE[name]
    cell = stage.cell("good")
    cell.candidate.path.write_text(source)
    job = job_of(replace(cell, candidate=replace(cell.candidate, language=language)))
    assert {one["name"]: one["may_compile"] for one in job["contestants"]} == {"candidate": expected, "eager": False}


def test_the_judge_is_told_what_the_candidate_must_have(stage, job_of):
    source = "import torch, tilelang\n\ndef f():\n    import cupy\n\nif f:\n    import xformers\n"
    job = job_of(stage.cell("needs", source=source))
    assert {one["name"]: one["imports"] for one in job["contestants"]} == {
        "candidate": ["cupy", "tilelang"],
        "eager": [],
    }


def test_what_was_built_ahead_takes_no_time_to_compile(stage):
    cell = stage.cell("good")
    cell.candidate.path.write_text("from torch.utils.cpp_extension import load_inline\n")
    for built in (False, True):
        assert contestants_of(cell, built=built)[0].may_compile is not built


def test_a_library_that_there_is_not_is_left_out_and_said(stage, job_of):
    protocol = Protocol(spec=ProtocolSpec(baselines=(Implementation.LIBRARY, Implementation.EAGER)))
    job = job_of(stage.cell("good", protocol=protocol))
    assert [one["name"] for one in job["contestants"]] == ["candidate", "eager"]
    assert job["labels"] == ["no_library"]


KERNEL = """
import triton

@triton.jit
def own_kernel(x):
    pass
"""


@pytest.mark.parametrize(
    ("language", "required", "told"),
    [(Language.TRITON, True, True), (Language.TRITON, False, False), (Language.TORCH, True, False)],
)
def test_cell_own_kernels_are_named_and_required(language, required, told, stage, job_of):
    cell = stage.cell("kernels", source=KERNEL, policy=Policy(require_own_kernel=required))
    job = job_of(replace(cell, candidate=replace(cell.candidate, language=language)))
    assert job["require_own_kernel"] is told
    if language is Language.TRITON:
        assert job["own_kernels"] == ["own_kernel"]


def test_cpu_judge_has_no_health_check_and_no_sanitizer(stage, job_of):
    job = job_of(stage.cell("good", policy=Policy(sanitize=("memcheck",))))
    assert (job["check_health"], job["sanitize"], job["labels"]) == (False, [], ["no_sanitizer"])


# ---- What reading the source finds


READS_FRAMES = "import sys\n\n\nclass ModelNew:\n    def forward(self, x):\n        return sys._getframe(1)\n"


def test_findings_are_told_and_cost_nothing_by_default(stage, attempt):
    record = attempt(stage.cell("peeks", source=READS_FRAMES))
    assert record.outcome.status is Status.PASSED
    assert {found.rule for found in record.host.findings} >= {"frames"}
    assert (record.host.code.lines, record.host.code.complexity) == (4, 1)


def test_cell_rejected_finding_ends_before_any_process(stage, attempt):
    record = attempt(stage.cell("peeks", source=READS_FRAMES, policy=Policy(reject_findings=("frames",))))
    assert (record.outcome.status, record.outcome.stage) == (Status.POLICY_VIOLATION, Stage.BUILD)
    assert record.outcome.fault is Fault.CANDIDATE
    assert "frames" in record.outcome.evidence.message
    assert "sys._getframe" in record.outcome.evidence.log
    assert stage.launched == []


def test_answer_without_code_ends_before_any_process(stage, attempt):
    cell = stage.cell("empty", source="# The answer holds no code.\n")
    cell = replace(cell, candidate=replace(cell.candidate, origin=Origin(no_code="the model refused", cost_usd=0.5)))
    record = attempt(cell)
    assert (record.outcome.status, record.outcome.fault) == (Status.COMPILE_ERROR, Fault.CANDIDATE)
    assert record.outcome.evidence.message == "the answer holds no code: the model refused"
    assert (record.cell.origin["cost_usd"], record.host.code) == (0.5, None)
    assert stage.launched == []


def test_a_device_that_stays_busy_is_said(stage, attempt):
    cell = stage.cell("good", policy=Policy(gpu_wait_s=0.05))
    with hold(FIRST, LeaseTerms(wait_s=1)):
        record = attempt(cell)
    assert (record.outcome.status, record.outcome.stage) == (Status.GPU_BUSY, Stage.LEASE)
    assert record.outcome.fault is Fault.INFRA
    assert stage.launched == []


def test_a_wait_for_the_device_is_called_off(stage, attempt):
    with hold(FIRST, LeaseTerms(wait_s=1)), pytest.raises(CellCancelledError):
        attempt(stage.cell("good"), cancelled=lambda: True)


def test_a_cell_that_is_called_off_leaves_no_record(stage, attempt):
    with pytest.raises(CellCancelledError):
        attempt(stage.cell("good", hangs), cancelled=lambda: Role.JUDGE in stage.launched)


def test_a_sandbox_that_cannot_start_it_is_told(stage, attempt):
    record = attempt(stage.cell("good", cannot_start))
    assert (record.outcome.status, record.outcome.stage) == (Status.INFRA_ERROR, Stage.START)
    assert "cannot be started" in record.outcome.evidence.message


def test_a_full_disk_is_the_machines_fault(stage, attempt, monkeypatch):
    def full(*_paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    record = attempt(stage.cell("good"))
    assert (record.outcome.status, record.outcome.fault) == (Status.INFRA_ERROR, Fault.INFRA)
    assert "No space left" in record.outcome.evidence.message
