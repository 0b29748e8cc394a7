"""Processes that are on the GPUs."""

from __future__ import annotations

import os
from pathlib import Path

from sim.board import Board
from sim.nvml import A100, H200, RTX_4090, SimulatedDriver

from tests.hosts.doctor.clinic import Clinic


def test_processes_are_named_and_unexplained_memory_is_a_warning(gpu_clinic: Clinic, driver: SimulatedDriver) -> None:
    driver.set({**H200, "compute": os.getpid(), "memory_used": 3 << 30}, {**A100, "memory_used": 3 << 30}, RTX_4090)
    report = gpu_clinic.examine("--sandbox", "process")
    busy, free = report.about("processes now")
    name = Path("/proc/self/comm").read_text().strip()
    assert (busy["verdict"], busy["found"]) == ("warn", f"GPU 0: {os.getpid()} ({name})")
    assert (free["verdict"], free["found"]) == ("ok", "GPU 1, 2: none")
    used, hidden, little = report.about("memory in use")
    assert (used["verdict"], used["found"]) == ("ok", "GPU 0: 3072 MiB")
    assert (hidden["verdict"], hidden["found"]) == ("warn", "GPU 1: 3072 MiB, with no process listed")
    assert (little["verdict"], little["found"]) == ("ok", "GPU 2: 4 MiB")


def test_a_process_on_a_gpu_is_named(board_clinic: Clinic, board: Board) -> None:
    board.set({"compute": os.getpid()})
    line = board_clinic.examine("--sandbox", "process")["processes now"]
    name = Path("/proc/self/comm").read_text().strip()
    assert (line["verdict"], line["found"]) == ("warn", f"GPU 0: {os.getpid()} ({name})")


def test_memory_that_no_process_explains_is_a_warning(board_clinic: Clinic, board: Board) -> None:
    board.set({"memory_used": 3 << 30})
    line = board_clinic.examine("--sandbox", "process")["memory in use"]
    assert (line["verdict"], line["found"]) == ("warn", "GPU 0: 3072 MiB, with no process listed")
