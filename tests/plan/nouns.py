"""Devices, axis values, problems and candidates that the tests of plans are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_matrix.matrix import GpuAxis, Toolchain
from kernel_matrix.model.enums import Language
from kernel_matrix.plan import SelectedProblem
from kernel_matrix.platforms import Gpu
from kernel_matrix.sources import Candidate, Problem, Workload

CPU = GpuAxis(name="cpu", platform="cpu")
H200 = GpuAxis(name="h200", model="NVIDIA H200*", compute_capability="9.0")
CPU_TOOLCHAIN = Toolchain(name="cpu", torch="2.13.0", triton="3.7.1")
HERE = Toolchain(name="here", environment="auto")
CU128 = Toolchain(name="cu128", cuda="12.8", torch="2.9.0", triton="3.5.0")

CPU_DEVICE = Gpu(platform="cpu", uuid="cpu", name="EPYC")
H200_DEVICE = Gpu(
    platform="cuda",
    uuid="GPU-1",
    name="NVIDIA H200",
    compute_capability="9.0",
    memory_bytes=141 << 30,
    driver="580.159.04",
    cuda_driver="13.0",
)


def problem(name: str = "softmax", **values: Any) -> Problem:
    given = {
        "id": name,
        "source": "folder",
        "path": Path(f"/problems/{name}/reference.py"),
        "category": "reduction",
        "workloads": (Workload(name="smoke"), Workload(name="default")),
        "digest": f"digest of {name}",
    }
    return Problem(**{**given, **values})


def candidate(name: str = "softmax/good", **values: Any) -> Candidate:
    given = {
        "id": name,
        "problem_id": name.rpartition("/")[0],
        "path": Path(f"/problems/{name}.py"),
        "language": Language.TRITON,
        "digest": f"digest of {name}",
    }
    return Candidate(**{**given, **values})


def selected(of: Problem | None = None, *candidates: Candidate) -> SelectedProblem:
    of = of or problem()
    return SelectedProblem(
        problem=of, workloads=of.shown_workloads, candidates=candidates or (candidate(f"{of.id}/good"),)
    )
