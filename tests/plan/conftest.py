"""A small matrix and a host that has everything; tests change what they are about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plan.nouns import CPU, CPU_DEVICE, CPU_TOOLCHAIN, CU128, H200, H200_DEVICE, selected

from kernel_matrix.matrix import CandidateSet, Matrix, ProblemSet
from kernel_matrix.model.enums import Dtype
from kernel_matrix.plan import HostInventory, Plan, SelectedProblem, Selection, make_plan


@pytest.fixture
def matrix(tmp_path: Path) -> Matrix:
    return Matrix(
        name="small",
        path=tmp_path / "matrix.toml",
        gpus=(CPU, H200),
        toolchains=(CPU_TOOLCHAIN, CU128),
        dtypes=(Dtype.FP32, Dtype.BF16),
        problems=(ProblemSet(source="folder", path=tmp_path),),
        candidates=(CandidateSet(),),
    )


@pytest.fixture
def facts() -> HostInventory:
    """A host that has everything."""
    return HostInventory(
        gpus=(CPU_DEVICE, H200_DEVICE),
        sandbox="docker",
        uses_images=True,
        images={"cpu": "", "cu128": ""},
        clocks_reason="",
    )


@pytest.fixture
def plan(matrix: Matrix, facts: HostInventory) -> Callable[..., Plan]:
    """Plans the small matrix with what the test changes of it."""

    def made(*items: SelectedProblem, facts: HostInventory = facts, **changes: Any) -> Plan:
        return make_plan(replace(matrix, **changes), Selection(problems=items or (selected(),)), facts)

    return made
