"""A small matrix and a host that has everything; tests change what they are about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plan.nouns import CPU, CPU_DEVICE, CPU_TOOLCHAIN, CU128, H200, H200_DEVICE, selected

from runner.core.vocab import Dtype
from runner.matrix import CandidateSet, Matrix, ProblemSet
from runner.plan import HostFacts, Plan, Selected, Selection, make_plan


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
def facts() -> HostFacts:
    """A host that has everything."""
    return HostFacts(
        gpus=(CPU_DEVICE, H200_DEVICE),
        engine="docker",
        uses_images=True,
        images={"cpu": "", "cu128": ""},
        clocks_reason="",
    )


@pytest.fixture
def plan(matrix: Matrix, facts: HostFacts) -> Callable[..., Plan]:
    """Plans the small matrix with what the test changes of it."""

    def made(*items: Selected, facts: HostFacts = facts, **changes: Any) -> Plan:
        return make_plan(replace(matrix, **changes), Selection(problems=items or (selected(),)), facts)

    return made
