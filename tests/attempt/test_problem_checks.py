"""Problems checked on a sandbox: staged files, accepted answers, and blame."""

from __future__ import annotations

import json
import os
import socket
import textwrap
from dataclasses import fields, replace
from pathlib import Path

import pytest

from kernel_matrix.attempt.assignment import RunContext
from kernel_matrix.attempt.problem_checks import ProblemCheckSubject, check_in_sandbox
from kernel_matrix.errors import SandboxError
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.images import ResolvedImage
from kernel_matrix.inside.problem_check.job import (
    MAX_REASON,
    ProblemCheckJob,
    ProblemCheckLimits,
    ProblemCheckResult,
)
from kernel_matrix.inside.problem_check.pool import JOB_NAME, MAX_LINE, READY, SOCKET_NAME
from kernel_matrix.model.enums import Dtype, Role, Status
from kernel_matrix.model.messages import ContractSpec, JudgeJob, dumps, from_json
from kernel_matrix.sandboxes import ProcessExit, open_sandbox
from kernel_matrix.sources import Problem, Workload

SMOKE = Workload(name="smoke", values={"ROWS": 4})
MODEL = """
    import torch

    ROWS = 8

    class Model(torch.nn.Module):
        def forward(self, x):
            return x * 2

    def get_inputs():
        return [torch.randn(ROWS, 24)]
"""
ADAPTER = """
    import pathlib, runpy
    import torch

    text = (pathlib.Path(__file__).parent / "scale.txt").read_text()
    theirs = runpy.run_path(str(pathlib.Path(__file__).parent / "theirs.py"))

    class Model(torch.nn.Module):
        def forward(self, x):
            return theirs["scaled"](x, float(text))

    def get_inputs():
        return [torch.randn(8, 24)]
"""
KILLS = "import os\nos.kill(os.getppid(), 9)\n"


@pytest.fixture
def problem(tmp_path):
    """Makes a problem from a source."""

    def make(name, source=MODEL, **changes):
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(source))
        return Problem(id=name, source="folder", path=path, category="c", workloads=(SMOKE,), digest=name, **changes)

    return make


def bench_of(sandbox, scratch):
    return RunContext(
        run_id="r", sandbox=sandbox, sandbox_status=sandbox.status(), owner=owner_token(), scratch=scratch
    )


def allowed(jobs=2, limit_s=20.0):
    return ProblemCheckLimits(jobs=jobs, limit_s=limit_s, memory_bytes=2 << 30)


def subject(problem):
    return ProblemCheckSubject(problem=problem, workload=problem.workloads[0], dtype=Dtype.FP32)


# ---- real processes


@pytest.fixture
def tried(tmp_path):
    """Checks problems in local processes; returns the results by id."""

    def on_processes(*problems, **allowance):
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        scratch.chmod(0o711)
        bench = bench_of(open_sandbox("process"), scratch)
        answers = check_in_sandbox([subject(one) for one in problems], None, bench, allowed(**allowance))
        found = {of.problem.id: tried for of, tried in answers}
        assert list(scratch.iterdir()) == []
        return found

    tmp_path.chmod(0o711)
    return on_processes


@pytest.mark.torch
def test_problem_that_ends_the_process_spares_the_others(tried, problem):
    found = tried(problem("one"), problem("kills", KILLS), problem("two"), problem("three"), jobs=1)
    assert {name: one.status for name, one in found.items()} == {
        **dict.fromkeys(("one", "two", "three"), Status.PASSED),
        "kills": Status.PROBLEM_ERROR,
    }
    # Judge and baseline both import it, at the same time, so either one's parent may be killed first.
    assert found["kills"].reason in {
        "it ended the process that checked it: killed by SIGKILL",
        "its process was ended by SIGKILL, most likely because memory ran out",
    }


@pytest.mark.torch
def test_adapter_files_are_staged_and_reported_by_path(tried, problem, tmp_path):
    theirs = tmp_path / "their scale.py"
    theirs.write_text("def scaled(x, by):\n    return x * by\n")
    broken = tmp_path / "broken.py"
    broken.write_text("def scaled(x, by):\n    return x * by * nothing\n")
    made = {"adapter": textwrap.dedent(ADAPTER), "workloads": (Workload(name="default"),)}
    good = replace(
        problem("good", "what its author wrote"), **made, extra_files={"scale.txt": b"3", "theirs.py": theirs}
    )
    bad = replace(problem("bad", "what its author wrote"), **made, extra_files={"scale.txt": b"3", "theirs.py": broken})
    found = tried(good, bad)
    assert found["good"].status is Status.PASSED
    assert (found["bad"].status, found["bad"].file, found["bad"].line) == (Status.PROBLEM_ERROR, str(broken), 2)


@pytest.mark.torch
def test_a_file_that_cannot_be_read_any_more_is_told(tried, problem):
    lost = problem("lost")
    lost.path.unlink()
    found = tried(lost, problem("there"))
    assert found["there"].status is Status.PASSED
    assert found["lost"].status is Status.PROBLEM_ERROR
    assert found["lost"].reason.startswith("cannot be read: ")


# ---- a scripted process


def folder_of(spec, target):
    return next(mount.source for mount in spec.mounts if mount.target == target)


def orders_of(spec):
    return from_json(ProblemCheckJob, json.loads((folder_of(spec, "/problems") / JOB_NAME).read_text()))


def says(make, *, ready=READY):
    """Make a process that prints ``make`` of its job, and ends."""

    def play(spec):
        channel = os.open(folder_of(spec, "/channel"), os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"/proc/self/fd/{channel}/{SOCKET_NAME}")
            connection.sendall(ready + make(orders_of(spec)))
        os.close(channel)
        return ProcessExit(role=spec.role, code=0, log_tail="its last words\n")

    return play


def answers(orders, **changes):
    return b"".join(f"{dumps(ProblemCheckResult(job.cell_id, Status.PASSED))}\n".encode() for job in orders.problems)


@pytest.fixture
def played(stage, problem):
    """Checks three problems with these scripts, one after the other, and returns the results."""

    def play(*plays, image=None, **allowance):
        stage.plays["problem_check", "problem_check"] = list(plays)
        problems = [subject(problem(name)) for name in ("one", "two", "three")]
        found = list(check_in_sandbox(problems, image, bench_of(stage, stage.scratch), allowed(**allowance)))
        return {of.problem.id: tried for of, tried in found}

    yield play
    assert stage.alive == 0
    assert list(stage.scratch.iterdir()) == []


def statuses(found):
    return {name: tried.status for name, tried in found.items()}


ALL_PASSED = dict.fromkeys(("one", "two", "three"), Status.PASSED)
NOBODY = says(lambda orders: b"")


def test_answers_are_taken_as_they_come(played):
    assert statuses(played(says(answers))) == ALL_PASSED


def first_only(orders):
    return answers(replace(orders, problems=orders.problems[:1]))


def test_problem_running_when_process_ends_runs_alone(played, stage):
    found = played(says(first_only), says(answers), NOBODY, jobs=2)
    assert statuses(found) == {**ALL_PASSED, "three": Status.PROBLEM_ERROR}
    words = "it ended the process that checked it: exit code 0: its last words"
    assert found["three"].reason == words
    assert len(stage.launched) == 3


def test_whoever_was_not_begun_is_tried_with_the_rest(played, stage):
    assert statuses(played(NOBODY, says(answers), says(answers), jobs=1)) == ALL_PASSED
    assert len(stage.launched) == 3


def forged(**changes):
    def lines(orders):
        document = {"cell_id": orders.problems[0].cell_id, "status": "passed", **changes}
        return f"{json.dumps(document)}\n".encode()

    return lines


LIES = {
    "no JSON": lambda orders: b"\xff{\n",
    "nested without end": lambda orders: b"[" * (MAX_LINE - 1) + b"\n",
    "no object": lambda orders: b"[]\n",
    "a line without end": lambda orders: b"x" * (MAX_LINE * 4),
    "a problem nobody has": forged(cell_id="99"),
    "a status that no problem has": forged(status="compile_error"),
    "no status": forged(status="splendid"),
    "a reason too long": forged(reason="x" * (MAX_REASON + 1)),
    "no time": forged(seconds=float("nan")),
    "no number": forged(seconds="long"),
    "more than was asked": forged(more=1),
    "an answer twice": lambda orders: forged()(orders) * 2,
}


@pytest.mark.parametrize("name", LIES)
def test_what_is_no_answer_ends_the_process_it_comes_from(name, played, stage):
    found = played(says(LIES[name]), says(answers), says(answers), jobs=1)
    assert statuses(found) == ALL_PASSED
    assert len(stage.launched) > 1


@pytest.mark.parametrize("ready", [b"", b"hello\n"])
def test_check_process_not_ready_raises_with_last_words(ready, played):
    with pytest.raises(SandboxError, match="no problem could be checked: exit code 0: its last words"):
        played(says(lambda orders: b"", ready=ready))


def test_it_is_confined_as_a_baseline_and_writes_nowhere(played):
    seen = []

    def looked_at(spec):
        seen.append(spec)
        return says(answers)(spec)

    image = ResolvedImage(
        toolchain="cpu", reference="r", id="sha256:1", repo_digest=None, store="graphdriver", state="local"
    )
    played(looked_at, image=image, jobs=3)
    (spec,) = seen
    assert (spec.role, spec.module, spec.image, spec.gpu) == (
        Role.BASELINE,
        "kernel_matrix.inside.problem_check.pool",
        "sha256:1",
        None,
    )
    assert not any(mount.writable for mount in spec.mounts)
    assert spec.limits.memory_bytes >= 3 * (2 << 30)
    assert spec.env["OMP_NUM_THREADS"] == "1"


def test_all_that_a_problem_says_of_itself_goes_into_its_job(stage, problem):
    contract = ContractSpec("w8a8", 0.9, 0.1, 0.1, 10.0, 50.0)
    told = {"tolerance": {"rtol": 0.5}, "outliers": False, "mutates_inputs": True, "contract": contract, "random": True}
    told["ranks"] = 2
    shared = {field.name for field in fields(Problem)} & {field.name for field in fields(JudgeJob)}
    assert shared - {"dtypes", "workloads"} == set(told)
    seen = []

    def looked_at(spec):
        seen.append(orders_of(spec))
        return says(answers)(spec)

    stage.plays["problem_check", "problem_check"] = [looked_at]
    list(check_in_sandbox([subject(problem("p", **told))], None, bench_of(stage, stage.scratch), allowed()))
    (job,) = seen[0].problems
    assert {name: getattr(job, name) for name in told} == told
    assert (job.dtype, job.device) == (Dtype.FP32, "cpu")
    assert [(w.name, w.values) for w in job.workloads] == [("smoke", {"ROWS": 4})]


def test_staged_files_are_readable_by_all_and_writable_by_none(stage, problem):
    seen = []

    def looked_at(spec):
        folder = folder_of(spec, "/problems") / "0"
        seen.extend((path.name, path.read_bytes(), path.stat().st_mode & 0o777) for path in sorted(folder.iterdir()))
        return says(answers)(spec)

    stage.plays["problem_check", "problem_check"] = [looked_at]
    made = replace(problem("p"), adapter="x = 1", extra_files={"b": b"bytes", "c": Path(__file__)})
    list(check_in_sandbox([subject(made)], None, bench_of(stage, stage.scratch), allowed()))
    here = Path(__file__).read_bytes()
    assert seen == [("b", b"bytes", 0o444), ("c", here, 0o444), ("problem.py", b"x = 1", 0o444)]
