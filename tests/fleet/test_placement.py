"""Cells on the kinds of GPU that can run them, by plans for hosts that differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_matrix.fleet.chunks import SlotKind
from kernel_matrix.fleet.placement import place
from kernel_matrix.matrix import CandidateSet, GpuAxis, Matrix, ProblemSet, Toolchain
from kernel_matrix.model.enums import Dtype
from kernel_matrix.plan import HostInventory, Selection, SkipReason, make_plan
from kernel_matrix.platforms import GpuLink
from tests.plan.nouns import CPU, CPU_DEVICE, CPU_TOOLCHAIN, CU128, H200, H200_DEVICE, candidate, problem, selected

A100 = GpuAxis(name="a100", model="NVIDIA A100*")
CU130 = Toolchain(name="cu130", cuda="13.0", torch="2.10.0", triton="3.6.0")
BIG, SECOND, SMALL = SlotKind("big", "h200"), SlotKind("second", "h200"), SlotKind("small", "cpu")


def host(*devices, **images):
    """A host with these devices; toolchain → why its image cannot be used, empty if it can."""
    return HostInventory(gpus=devices, sandbox="docker", uses_images=True, images=images, clocks_reason="")


@pytest.fixture
def placed(tmp_path):
    """Places a matrix of one problem on hosts."""

    def made(hosts, *, gpus=(H200,), toolchains=(CU128,), names=("softmax/good",), ranks=1):
        matrix = Matrix(
            name="small",
            path=tmp_path / "matrix.toml",
            gpus=gpus,
            toolchains=toolchains,
            dtypes=(Dtype.FP32,),
            problems=(ProblemSet(source="folder", path=tmp_path),),
            candidates=(CandidateSet(),),
        )
        selection = Selection(problems=(selected(problem(ranks=ranks), *map(candidate, names)),))
        return place({slot: make_plan(matrix, selection, one).cells() for slot, one in hosts.items()})

    return made


def where(placed):
    """(GPU axis, toolchain) → where its cells can run."""
    return {(cell.gpu.name, cell.toolchain.name): placed.slots[cell.id] for cell in placed.runnable}


def reasons(placed):
    return {(cell.gpu.name, cell.toolchain.name): cell.reason.kind for cell in placed.skipped}


def test_cells_go_where_their_gpu_is(placed):
    found = placed(
        {BIG: host(H200_DEVICE, cu128="", cpu=""), SMALL: host(CPU_DEVICE, cu128="", cpu="")},
        gpus=(CPU, H200),
        toolchains=(CPU_TOOLCHAIN, CU128),
    )
    assert where(found) == {("h200", "cu128"): {BIG}, ("cpu", "cpu"): {SMALL}}


def test_cells_go_where_their_toolchain_is(placed):
    found = placed(
        {BIG: host(H200_DEVICE, cu128="", cu130="not pulled"), SECOND: host(H200_DEVICE, cu128="not pulled", cu130="")},
        toolchains=(CU128, CU130),
    )
    assert where(found) == {("h200", "cu128"): {BIG}, ("h200", "cu130"): {SECOND}}
    assert found.skipped == ()


def test_cell_that_several_sites_can_run_is_there_once(placed):
    found = placed(
        {BIG: host(H200_DEVICE, cu128=""), SECOND: host(H200_DEVICE, cu128=""), SMALL: host(CPU_DEVICE, cu128="")},
        names=("softmax/good", "softmax/better"),
    )
    assert len(found.runnable) == 2
    assert {found.slots[cell.id] for cell in found.runnable} == {frozenset({BIG, SECOND})}
    assert {cell.reason for cell in found.runnable} == {None}
    assert found.skipped == ()


def test_cell_of_linked_devices_is_not_skipped_elsewhere(placed):
    pair = [replace(H200_DEVICE, uuid=uuid, links=(GpuLink(to=to, kind="pcie"),)) for uuid, to in ("ab", "ba")]
    found = placed({SMALL: host(CPU_DEVICE, cu128=""), BIG: host(*pair, cu128="")}, ranks=2)
    assert where(found) == {("h200", "cu128"): {BIG}}
    assert found.skipped == ()


@pytest.mark.parametrize("is_last_first", [False, True])
def test_reason_is_the_nearest_miss_in_any_order(placed, is_last_first):
    hosts = {
        SMALL: host(CPU_DEVICE, cu128=""),
        BIG: host(H200_DEVICE, cu128="its image is not pulled"),
        SECOND: host(CPU_DEVICE, cu128=""),
    }
    if is_last_first:
        hosts = dict(reversed(hosts.items()))
    found = placed(hosts)
    assert (found.runnable, found.slots) == ((), {})
    (cell,) = found.skipped
    assert cell.reason.kind is SkipReason.IMAGE_MISSING
    assert "its image is not pulled" in cell.reason.text


def test_each_cell_has_its_own_nearest_miss(placed):
    found = placed(
        {BIG: host(H200_DEVICE, cu128="", cu130="not pulled"), SMALL: host(CPU_DEVICE, cu128="", cu130="")},
        gpus=(H200, A100),
        toolchains=(CU128, CU130),
    )
    assert where(found) == {("h200", "cu128"): {BIG}}
    assert reasons(found) == {
        ("h200", "cu130"): SkipReason.IMAGE_MISSING,
        ("a100", "cu128"): SkipReason.NO_SUCH_GPU,
        ("a100", "cu130"): SkipReason.NO_SUCH_GPU,
    }


def test_reason_of_equal_misses_is_the_first_sites(placed):
    found = placed({BIG: host(H200_DEVICE, cu128="one"), SECOND: host(H200_DEVICE, cu128="two")})
    assert [cell.reason.text for cell in found.skipped] == [
        cell.reason.text for cell in placed({BIG: host(H200_DEVICE, cu128="one")}).skipped
    ]


def test_fleet_without_sites_has_no_cells(placed):
    found = placed({})
    assert (found.runnable, found.slots, found.skipped) == ((), {}, ())
