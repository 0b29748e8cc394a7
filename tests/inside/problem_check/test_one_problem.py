"""The process that checks a problem: results for errors outside of the problem's own code."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.problem_check import one_problem
from kernel_matrix.inside.problem_check.job import ProblemCheckLimits
from kernel_matrix.model.enums import Status
from tests.inside.sessions import make_job

pytestmark = pytest.mark.torch

GIB = 1 << 30
WHILE_COMPARING = {
    "the device's memory": (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 12.00 GiB."),
        Status.PROBLEM_ERROR,
        "the check failed: OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 GiB.",
    ),
    "the host's memory": (MemoryError(), Status.PROBLEM_ERROR, "wants more memory than its limit of 4 GiB"),
    "anything else": (ValueError("off by one"), Status.INFRA_ERROR, "the check failed: ValueError: off by one"),
}


@pytest.mark.parametrize("what", WHILE_COMPARING)
def test_only_memory_that_comparing_lacks_is_the_problems(what, monkeypatch, tmp_path):
    error, status, reason = WHILE_COMPARING[what]

    def run_controls(*_arguments):
        raise error

    monkeypatch.setattr(one_problem, "_run_controls", run_controls)
    monkeypatch.setattr(torch, "set_num_threads", lambda _count: None)  # this process has other tests to run
    limits = ProblemCheckLimits(jobs=1, limit_s=1.0, memory_bytes=4 * GIB)
    result = one_problem.check_problem(make_job(cell_id="7"), tmp_path, limits)
    assert (result.cell_id, result.status, result.reason) == ("7", status, reason)
