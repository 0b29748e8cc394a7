"""Cells of a small plan."""

from __future__ import annotations

from pathlib import Path

from kernel_matrix.matrix import CandidateSet, Matrix, ProblemSet
from kernel_matrix.model.enums import Dtype
from kernel_matrix.plan import HostInventory, Selection, make_plan
from tests.plan.nouns import CPU, CPU_DEVICE, CPU_TOOLCHAIN, candidate, problem, selected


def cpu_cells(number):
    """Cells that run on a CPU, in the order in which a chunk has them."""
    matrix = Matrix(
        name="small",
        path=Path("/matrix.toml"),
        gpus=(CPU,),
        toolchains=(CPU_TOOLCHAIN,),
        dtypes=(Dtype.FP32,),
        problems=(ProblemSet(source="folder", path=Path("/problems")),),
        candidates=(CandidateSet(),),
    )
    selection = Selection(problems=(selected(problem(), *(candidate(f"softmax/{n}") for n in range(number))),))
    host = HostInventory(gpus=(CPU_DEVICE,), sandbox="docker", uses_images=True, images={"cpu": ""}, clocks_reason="")
    return list(make_plan(matrix, selection, host).cells())
