"""Cells that do not fit into a device's memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan.nouns import CPU_DEVICE, CPU_TOOLCHAIN, CU128, H200, H200_DEVICE, problem, selected

from kernel_matrix.matrix import Match, Override, Policy
from kernel_matrix.model.enums import Dtype
from kernel_matrix.plan import SkipReason, make_plan
from kernel_matrix.plan.footprint import usable_bytes
from kernel_matrix.plan.selection import Selection
from kernel_matrix.sources import Workload

GIB = 1 << 30
LARGE = problem(workloads=(Workload(name="small"), Workload(name="large", memory={Dtype.FP32: 100 * GIB})))


@pytest.fixture
def reasons(matrix, facts):
    """Return the reasons of the cells on the GPU, by dtype."""

    def found(of=LARGE, footprints=None, **changes):
        gpu = replace(matrix, toolchains=(CPU_TOOLCHAIN, CU128), **changes)
        plan = make_plan(gpu, Selection(problems=(selected(of),)), facts, footprints=footprints)
        return {cell.dtype: cell.reason for cell in plan.cells() if cell.gpu is H200}

    return found


def test_plan_declared_memory_within_device_runs(reasons):
    assert reasons() == {Dtype.FP32: None, Dtype.BF16: None}


def test_plan_declared_memory_beyond_cap_does_not_fit(reasons):
    found = reasons(policy=Policy(device_memory_gib=80.0))
    assert found[Dtype.BF16] is None, "declared for fp32 only"
    assert found[Dtype.FP32].kind is SkipReason.DOES_NOT_FIT
    assert found[Dtype.FP32].text == (
        "workload large needs 100.0 GiB of device memory, as the problem declares; there are 80.0 GiB for it"
    )


def test_plan_held_out_workload_that_does_not_fit_is_not_named(reasons):
    secret = Workload(name="secret", memory={Dtype.FP32: 200 * GIB}, held_out=True)
    reason = reasons(problem(workloads=(Workload(name="small"), secret)))[Dtype.FP32]
    assert reason.kind is SkipReason.DOES_NOT_FIT
    assert reason.text == "a held-out workload needs more device memory than there is for it"


def test_plan_cap_of_an_override_counts_for_its_cells(reasons):
    rule = Override(match=Match(problem=("softmax",)), policy={"device_memory_gib": 80.0})
    assert reasons(overrides=(rule,))[Dtype.FP32].kind is SkipReason.DOES_NOT_FIT
    only_small = replace(rule, workloads=("small",))
    assert reasons(overrides=(only_small,))[Dtype.FP32] is None


def test_plan_measured_memory_overrules_declared(reasons):
    key = (LARGE.digest, "large", Dtype.FP32)
    assert reasons(footprints={key: 150 * GIB})[Dtype.FP32].kind is SkipReason.DOES_NOT_FIT
    assert "an earlier record measured" in reasons(footprints={key: 150 * GIB})[Dtype.FP32].text
    assert reasons(footprints={key: 20 * GIB}, policy=Policy(device_memory_gib=80.0))[Dtype.FP32] is None
    other = (f"another {LARGE.digest}", "large", Dtype.FP32)
    assert reasons(footprints={other: 150 * GIB})[Dtype.FP32] is None


def test_usable_bytes_of_unknown_memory_is_the_cap():
    assert usable_bytes(H200_DEVICE, Policy()) == 141 * GIB
    assert usable_bytes(CPU_DEVICE, Policy()) == 0
    assert usable_bytes(CPU_DEVICE, Policy(device_memory_gib=2.0)) == 2 * GIB
