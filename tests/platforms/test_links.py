"""Links between the GPUs of a host, of each vendor on its simulated driver; and the weakest one of a group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sim.board import Board

from kernel_matrix.platforms import Gpu, GpuLink
from kernel_matrix.platforms.links import describe_links, group_link, has_peer_access

PCIE_5 = 16 * 32e9 * 128 / 130 / 8


def inventory(board: Board, *links: str | None, **changes: Any) -> list[Gpu]:
    """GPUs whose links the world describes so; each has an address of its own."""
    board.driver.set(
        *(
            {**board.gpu, "uuid": f"gpu-{i}", "pci_bus_id": f"00000000:{i + 1:02X}:00.0", "links": text, **changes}
            for i, text in enumerate(links)
        )
    )
    found = board.ask("platform.inventory()")
    assert found["reason"] == ""
    return [
        Gpu(**{**gpu, "devices": (), "links": tuple(GpuLink(**link) for link in gpu["links"])}) for gpu in found["gpus"]
    ]


def two_pairs(board: Board) -> list[Gpu]:
    """Pairs with the fast link, and PCIe between the pairs."""
    fast = board.fast_link
    return inventory(board, f"1:{fast}:4", f"0:{fast}:4", f"3:{fast}:4", f"2:{fast}:4")


def test_one_device_has_no_links(board: Board) -> None:
    (gpu,) = inventory(board, None)
    assert (gpu.links, group_link([gpu])) == ((), None)


def test_devices_are_linked_by_pcie_unless_told_otherwise(board: Board) -> None:
    gpus = inventory(board, None, None)
    assert [[(link.to, link.kind, link.peer) for link in gpu.links] for gpu in gpus] == [
        [("gpu-1", "pcie", True)],
        [("gpu-0", "pcie", True)],
    ]


def test_pairs_have_their_lanes_and_bandwidth(board: Board) -> None:
    gpus = two_pairs(board)
    speed = 4 * board.gpu["link_speed"] * 1e6
    fast = GpuLink(to="gpu-1", kind=board.fast_link, lanes=4, bytes_per_s=speed, peer=True)
    assert gpus[0].links[0] == fast
    assert [link.kind for link in gpus[0].links] == [board.fast_link, "pcie", "pcie"]


def test_processors_between_devices_are_told_from_pcie(board: Board) -> None:
    assert group_link(inventory(board, "1:host", "0:host")) == GpuLink(to="gpu-1", kind="host", peer=True)


def test_missing_access_to_memory_is_known(board: Board) -> None:
    gpus = inventory(board, "1:pcie-", None)
    assert [gpu.links[0].peer for gpu in gpus] == [False, True]
    assert not has_peer_access(*gpus)
    assert group_link(gpus).peer is False


@pytest.mark.parametrize("code", ["not_supported", "failed"])
def test_driver_that_says_nothing_leaves_links_unknown(board: Board, code: str) -> None:
    answer = f"!{board.failed}" if code == "failed" else {"cuda": "!3", "rocm": "!2"}[board.platform]
    gpus = inventory(board, answer, answer)
    assert [gpu.links for gpu in gpus] == [(GpuLink(to="gpu-1"),), (GpuLink(to="gpu-0"),)]
    assert group_link(gpus) is None
    assert has_peer_access(*gpus)
    assert describe_links(gpus) == ""


def test_group_has_the_weakest_link_of_its_pairs(board: Board) -> None:
    gpus = two_pairs(board)
    assert group_link(gpus[:2]).kind == board.fast_link
    assert group_link(gpus[1:3]).kind == group_link(gpus).kind == "pcie"


def test_group_with_an_unknown_pair_has_no_known_link(board: Board) -> None:
    gpus = inventory(board, None, None, None)
    assert group_link([*gpus[:2], replace(gpus[2], links=())]) is None


def test_description_joins_equal_pairs(board: Board) -> None:
    speed = f"{4 * board.gpu['link_speed'] / 1e3:.4g} GB/s each way"
    start = f"GPU 0-1, 2-3: {board.fast_link} (4 lanes, {speed}); GPU 0-2, 0-3, 1-2, 1-3: pcie"
    assert describe_links(two_pairs(board)).startswith(start)
    assert describe_links(inventory(board, None, None, None)).startswith("all of GPU 0, 1, 2: pcie")
    assert "no access to each other's memory" in describe_links(inventory(board, "1:pcie-", None))


def test_switch_links_all_devices_with_all_lanes(nvidia: Board) -> None:
    gpus = inventory(nvidia, "1:switch:18 2:switch:18", "0:switch:18 2:switch:18", "0:switch:18 1:switch:18")
    speed = 18 * 26_562e6
    assert {link for gpu in gpus for link in gpu.links} == {
        GpuLink(to=f"gpu-{i}", kind="nvswitch", lanes=18, bytes_per_s=speed, peer=True) for i in range(3)
    }


def test_speed_that_the_driver_hides_is_that_of_the_data_sheet(nvidia: Board) -> None:
    gpus = inventory(nvidia, "1:switch:18", "0:switch:18", link_speed="!3")
    assert group_link(gpus).bytes_per_s == 450e9
    gpus = inventory(nvidia, "1:switch:18", "0:switch:18", link_speed="!3", name="NVIDIA Unheard-of")
    assert group_link(gpus) == GpuLink(to="gpu-1", kind="nvswitch", lanes=18, peer=True)


def test_hidden_far_ends_leave_the_word_to_the_driver(nvidia: Board) -> None:
    gpus = inventory(nvidia, "1:switch:18", "0:switch:18", far_ends="!3")
    assert group_link(gpus) == GpuLink(to="gpu-1", kind="nvlink", peer=True)


def test_pcie_is_as_fast_as_the_weaker_device(nvidia: Board) -> None:
    assert group_link(inventory(nvidia, None, None)).bytes_per_s == PCIE_5
    slower = {**nvidia.gpu, "uuid": "other", "pcie_generation_max": 4, "pcie_width_max": 8}
    nvidia.driver.set(nvidia.gpu, slower)
    (link,) = nvidia.ask("platform.inventory()")["gpus"][0]["links"]
    assert (link["lanes"], link["bytes_per_s"]) == (8, PCIE_5 / 4)
