"""MIG, MPS and compute mode."""

from __future__ import annotations

import pytest
from sim.board import Board
from sim.nvml import A100, H200, SimulatedDriver

from tests.hosts.doctor.clinic import Clinic

SHARED = ({**H200, "mig": "1 1"}, {**A100, "mps": "77"})


def test_modes_in_which_nobody_is_alone_are_faults(gpu_clinic: Clinic, driver: SimulatedDriver) -> None:
    driver.set(*SHARED)
    gpu_clinic.write_matrix()
    report = gpu_clinic.examine("--sandbox", "process")
    assert report.code == 4
    for subject, number in (("MIG", 0), ("MPS", 1)):
        shared = [line for line in report.about(subject) if line["verdict"] == "fail"]
        assert [line["found"].partition(":")[0] for line in shared] == [f"GPU {number}"]
        assert "cells are refused" in shared[0]["found"]


def test_a_divided_gpu_is_a_fault(board_clinic: Clinic, board: Board) -> None:
    board.set(board.divided)
    line = board_clinic.examine("--sandbox", "process")[board.division]
    assert line["verdict"] == "fail"
    assert "cells are refused" in line["found"]
    assert line["advice"]


def test_they_are_warnings_where_the_matrix_allows_them(gpu_clinic: Clinic, driver: SimulatedDriver) -> None:
    driver.set(*SHARED)
    gpu_clinic.write_matrix("allow_mig = true\nallow_mps = true\n")
    report = gpu_clinic.examine("--sandbox", "process")
    assert {line["verdict"] for subject in ("MIG", "MPS") for line in report.about(subject)} == {"ok", "warn"}


@pytest.mark.parametrize(("mode", "verdict"), [(0, "ok"), (1, "fail"), (2, "fail"), (3, "fail")])
def test_a_cell_needs_room_for_several_processes(
    gpu_clinic: Clinic, driver: SimulatedDriver, mode: int, verdict: str
) -> None:
    driver.set({**H200, "compute_mode": mode})
    line = gpu_clinic.examine("--sandbox", "process")["compute mode"]
    assert line["verdict"] == verdict
    assert ("kernel-matrix sweep" in line["advice"]) == (verdict == "fail")
