"""Groups of devices for several ranks, and what the links in them mean for cells."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan.nouns import CPU, CPU_DEVICE, H200, H200_DEVICE, candidate, problem, selected

from kernel_matrix.executors.local.cell_queue import CellQueue
from kernel_matrix.model.enums import Language
from kernel_matrix.plan import SkipReason, groups_matching, linked_by
from kernel_matrix.platforms import GpuLink

RING = {(0, 1): "nvlink", (1, 2): "nvlink", (2, 3): "nvlink", (0, 3): "nvlink"}
PAIRS = {(0, 2): "nvlink", (1, 3): "nvlink"}
NO_ACCESS = {(0, 1): "pcie-"}


def fleet_of(count, links=None, others=None):
    """So many H200, whose UUIDs are in the reverse order of their indices.

    Args:
        count: how many.
        links: pair of indices → kind of its link, with a minus if the two cannot access each other's memory.
        others: kind of all other links; None if the driver says nothing.
    """

    def link(one, other):
        kind = (links or {}).get((min(one, other), max(one, other)), others)
        return GpuLink(to=f"GPU-{9 - other}", kind=kind and kind.rstrip("-"), peer=kind and not kind.endswith("-"))

    return tuple(
        replace(
            H200_DEVICE,
            uuid=f"GPU-{9 - one}",
            index=one,
            links=tuple(link(one, other) for other in range(count) if other != one),
        )
        for one in range(count)
    )


@pytest.fixture
def cell_of(plan, facts):
    """The cell of a problem of two ranks on the GPUs of a host."""

    def found(gpus, axis=H200, ranks=2):
        of = selected(problem("all_reduce", ranks=ranks), candidate("all_reduce/good", language=Language.TORCH))
        return next(iter(plan(of, gpus=(axis,), facts=replace(facts, gpus=(CPU_DEVICE, *gpus))).cells()))

    return found


def indices(groups):
    return [sorted(gpu.index for gpu in group.members) for group in groups]


def test_groups_without_known_links_are_consecutive_devices():
    groups = groups_matching(H200, fleet_of(5), 2)
    assert indices(groups) == [[0, 1], [2, 3]]
    assert [group.uuid for group in groups] == ["GPU-8+GPU-9", "GPU-6+GPU-7"]
    assert linked_by(groups) is None


def test_groups_of_one_rank_and_on_a_cpu_are_the_devices():
    assert groups_matching(H200, fleet_of(2), 1) == fleet_of(2)
    assert groups_matching(CPU, (CPU_DEVICE,), 4) == (CPU_DEVICE,)


@pytest.mark.parametrize(
    ("gpus", "ranks", "groups", "link"),
    [
        (fleet_of(4, PAIRS, "pcie"), 2, [[0, 2], [1, 3]], "nvlink"),
        (fleet_of(4, PAIRS, "pcie"), 4, [[0, 1, 2, 3]], "pcie"),
        (fleet_of(4, {(1, 3): "nvlink"}, "pcie"), 2, [[1, 3]], "nvlink"),
        (fleet_of(4, others="nvswitch"), 2, [[0, 1], [2, 3]], "nvswitch"),
        (fleet_of(4, RING, "pcie"), 2, [[0, 1], [2, 3]], "nvlink"),
        (fleet_of(4, RING, "pcie"), 3, [[0, 1, 2]], "pcie"),
        (fleet_of(4, {**RING, (0, 2): "nvlink"}, "pcie"), 3, [[0, 1, 2]], "nvlink"),
        (fleet_of(4, {(0, 1): "nvlink", (0, 2): "nvlink", (0, 3): "nvlink", (2, 3): "nvlink"}, "host"), 3, [[0, 2, 3]],
         "nvlink"),
        (fleet_of(3, NO_ACCESS, "pcie"), 2, [[0, 2]], "pcie"),
        (fleet_of(2, NO_ACCESS), 2, [], None),
    ],
)  # fmt: skip
def test_groups_have_the_best_link_of_the_host(gpus, ranks, groups, link):
    found = groups_matching(H200, gpus, ranks)
    assert (indices(found), linked_by(found)) == (groups, link)


@pytest.mark.parametrize(
    ("wanted", "links", "groups"),
    [
        ("pcie", PAIRS, [[0, 2], [1, 3]]),
        ("nvlink", PAIRS, [[0, 2], [1, 3]]),
        ("nvlink", {}, []),
        ("nvswitch", PAIRS, []),
    ],
)
def test_axis_with_a_link_has_groups_of_it_or_a_better_one(wanted, links, groups):
    assert indices(groups_matching(replace(H200, link=wanted), fleet_of(4, links, "pcie"), 2)) == groups


@pytest.mark.parametrize(
    ("axis", "gpus", "words"),
    [
        (replace(H200, link="nvlink"), fleet_of(2, others="pcie"), "linked by nvlink or better; GPU 0-1: pcie"),
        (replace(H200, link="nvlink"), fleet_of(2), "linked by nvlink or better; how devices are linked is not known"),
        (H200, fleet_of(2, NO_ACCESS), "that can access each other's memory; GPU 0-1: pcie (no access to each other's"),
    ],
)
def test_devices_without_the_link_are_a_reason_to_skip(cell_of, axis, gpus, words):
    reason = cell_of(gpus, axis).reason
    assert reason.kind is SkipReason.NO_SUCH_GPU
    assert reason.text.startswith(f"2 ranks need 2 devices {words}")


def test_link_is_part_of_the_id_where_it_is_known(cell_of):
    unknown, pcie, nvlink = (cell_of(fleet_of(2, others=kind)) for kind in (None, "pcie", "nvlink"))
    assert [cell.link for cell in (unknown, pcie, nvlink)] == [None, "pcie", "nvlink"]
    assert len({cell.id for cell in (unknown, pcie, nvlink)}) == 3
    assert unknown.id == cell_of(()).id
    assert cell_of(fleet_of(2, others="nvlink"), replace(H200, link="pcie")).id == nvlink.id


def test_link_is_not_part_of_the_id_of_one_rank(cell_of):
    one, other = (cell_of(fleet_of(2, others=kind), ranks=1) for kind in (None, "pcie"))
    assert (one.id, one.link) == (other.id, other.link)


def test_queue_runs_no_cell_over_another_link_than_planned(cell_of):
    gpus = fleet_of(4, PAIRS, "pcie")
    cell = cell_of(gpus)
    assert indices(CellQueue([cell], gpus).devices()) == [[0, 2], [1, 3]]
    assert CellQueue([cell], gpus[:2]).devices() == []
