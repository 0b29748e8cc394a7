"""Cells that are only compiled, by the real builder in its own process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("triton")

from kernel_matrix.attempt.assignment import Assignment, AttemptResult, CellCancelledError, RunContext
from kernel_matrix.attempt.buildcache import BuildCache
from kernel_matrix.attempt.compileonly import absent_gpu, compile_only
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.matrix import GpuAxis, Policy, Protocol, Toolchain
from kernel_matrix.model.enums import Dtype, Fault, Language, Stage, Status
from kernel_matrix.plan import Cell
from kernel_matrix.results.store import RecordStore
from kernel_matrix.sandboxes import open_sandbox
from kernel_matrix.sources import Candidate, Problem, Workload
from tests.inside.scale import KERNEL, PROBLEM

pytestmark = pytest.mark.torch

SOURCE = f"""{KERNEL}
class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scale_kernel[(1,)](x, out, x.numel(), BLOCK=1024)
        return out
"""

BIG = """
import torch, torch.nn as nn, triton, triton.language as tl

@triton.jit
def product_kernel(a, b, out, SIZE: tl.constexpr, DEPTH: tl.constexpr):
    row, column, deep = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :], tl.arange(0, DEPTH)
    left = tl.load(a + row * DEPTH + deep[None, :])
    right = tl.load(b + deep[:, None] * SIZE + column)
    tl.store(out + row * SIZE + column, tl.dot(left, right))

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(16, 16, device=x.device)
        product_kernel[(1,)](x, x, out, SIZE=16, DEPTH=1024)
        return x
"""


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[..., AttemptResult]:
    """Compiles a source for a GPU that is not here."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    tmp_path.chmod(0o755)

    def run(source: str, *, capability: str = "9.0", cancelled: bool = False, **changes: object) -> AttemptResult:
        path, reference = tmp_path / "candidate.py", tmp_path / "reference.py"
        path.write_text(source)
        reference.write_text(PROBLEM)
        values = {
            "id": "0" * 32,
            "gpu": GpuAxis(name="far", compute_capability=capability),
            "toolchain": Toolchain(name="cpu", torch="2.13.0", triton="3.7.1"),
            "dtype": Dtype.FP32,
            "problem": Problem(
                id="scale",
                source="folder",
                path=reference,
                category="c",
                digest="a" * 64,
                workloads=(Workload(name="smoke"),),
            ),
            "candidate": Candidate(
                id="scale/it", problem_id="scale", path=path, language=Language.TRITON, digest="b" * 64
            ),
            "workloads": (Workload(name="smoke"), Workload(name="odd", values={"N": 999})),
            "protocol": Protocol(),
            "policy": Policy(build_timeout_s=120),
            "reason": None,
            "expected_s": 1.0,
            "compile_only": True,
        }
        sandbox = open_sandbox("process")
        bench = RunContext(
            run_id="r",
            sandbox=sandbox,
            sandbox_status=sandbox.status(),
            owner=owner_token(),
            scratch=scratch,
            cancelled=lambda: cancelled,
        )
        cell = Cell(**{**values, **changes})
        return compile_only(Assignment(cell=cell, gpu=absent_gpu(cell.gpu)), bench, BuildCache(tmp_path / "cache"))

    return run


def test_a_kernel_for_a_gpu_that_is_not_here(compiled: Callable[..., AttemptResult], tmp_path: Path) -> None:
    ran = compiled(SOURCE)
    record = ran.record
    assert (record.outcome.status, record.outcome.stage) == (Status.COMPILED, Stage.BUILD)
    assert record.outcome.fault is Fault.NONE
    build = record.host.build
    assert build is not None
    assert build.arch == "9.0a"
    # 1000 is a multiple of 8 and 999 is not: two forms, two machine codes
    assert len({kernel.sha256 for kernel in build.kernels}) == len(build.kernels) <= 2
    assert {(k.name, k.arch, k.launchable, k.reason) for k in build.kernels} == {("scale_kernel", 90, True, "")}
    assert {(k.threads, k.matrix_instructions, k.occupancy) for k in build.kernels} == {(128, (), 1.0)}
    assert record.host.code is not None
    assert record.host.code.lines == len([line for line in SOURCE.splitlines() if line.strip()])
    assert not build.cached
    again = compiled(SOURCE).record.host.build
    assert again is not None
    assert again.cached
    assert again.kernels == build.kernels
    RecordStore(tmp_path / "results").save(record, ran.trace)  # which checks it against the schema


def test_a_kernel_that_builds_and_could_not_be_launched(compiled: Callable[..., AttemptResult]) -> None:
    record = compiled(BIG, capability="7.5").record
    assert record.outcome.status is Status.COMPILED
    (kernel,) = record.host.build.kernels
    assert kernel.shared_bytes > 64 << 10
    assert not kernel.launchable
    assert "shared memory" in kernel.reason
    assert "1 of them could not be launched" in record.outcome.evidence.message


def test_a_dtype_that_is_not_there(compiled: Callable[..., AttemptResult]) -> None:
    record = compiled(SOURCE, capability="7.5", dtype=Dtype.BF16).record
    assert not any(kernel.launchable for kernel in record.host.build.kernels)
    assert "bf16" in record.outcome.evidence.message


def test_a_source_that_does_not_compile(compiled: Callable[..., AttemptResult]) -> None:
    record = compiled(SOURCE.replace("tl.load(", "tl.no_such_thing(")).record
    assert record.outcome.status is Status.COMPILE_ERROR
    assert "no_such_thing" in record.outcome.evidence.message


def test_a_source_whose_kernels_depend_on_values(compiled: Callable[..., AttemptResult]) -> None:
    record = compiled(SOURCE.replace("out = ", "x.sum().item(); out = ")).record
    assert record.outcome.status is Status.UNSUPPORTED
    assert "the model did not run to its end without values" in record.outcome.evidence.message


def test_a_finding_that_the_policy_rejects(compiled: Callable[..., AttemptResult]) -> None:
    record = compiled(SOURCE + "\nimport os\nos.fork()\n", policy=Policy(reject_findings=("threads",))).record
    assert record.outcome.status is Status.POLICY_VIOLATION
    assert record.host.build is None
    assert [finding.rule for finding in record.host.findings] == ["threads"]


def test_a_run_that_is_called_off(compiled: Callable[..., AttemptResult]) -> None:
    with pytest.raises(CellCancelledError):
        compiled(SOURCE, cancelled=True)
