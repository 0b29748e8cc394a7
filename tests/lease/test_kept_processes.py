"""Processes that stay on a simulated GPU between two leases, and the lock that is kept for them."""

from __future__ import annotations

from typing import Any

import pytest

PROGRAM = """
import os, subprocess, sys
from pathlib import Path
from kernel_matrix.errors import GpuBusyError
from kernel_matrix.lease import LeaseTerms, KeptProcesses, hold, release_check

release_check._LIMIT_S = 0.3
gpu, locks = get_platform(gpu.platform).inventory().gpus[0], Path(os.environ["KERNEL_MATRIX_LOCK_DIR"])
world, kept, told = World.here(), KeptProcesses(), []

def process():
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

def used_by(*running, mib=1):
    world.change(gpu.uuid, compute=" ".join(str(one.pid) for one in running), memory_used=mib << 20)

def lease(body=lambda lease: None, mine=kept, wait_s=0.0):
    with hold(gpu, LeaseTerms(wait_s=wait_s), lock_dir=locks, kept=mine) as held:
        body(held)
    told.append([held.exclusive, held.aftermath.processes_gone, held.aftermath.memory_back, held.aftermath.reason])

def is_locked():
    try:
        lease(mine=None)
    except GpuBusyError as error:
        return "another runner holds" in error.what
    told.pop()
    return False

judge, candidate = process(), process()

def first_cell(held):
    held.tenants.admit(judge.pid)
    held.tenants.admit(candidate.pid)
    used_by(judge, candidate, mib=900)
    candidate.communicate()
    used_by(judge, mib=500)
    kept.set([judge.pid])
"""


@pytest.fixture
def told(board, tmp_path):
    """Runs the program with these lines at its end; returns what it printed."""
    board.set()

    def run(lines: str) -> Any:
        program = f"{PROGRAM}\n{lines}\nfor one in (judge, candidate):\n    one.kill()\n    one.communicate()\n"
        return board.driver.ask(board.program + program, KERNEL_MATRIX_LOCK_DIR=str(tmp_path))

    return run


def test_kept_processes_are_no_leftovers_of_their_cell(told):
    exclusive, gone, back, reason = told("lease(first_cell)\nprint(json.dumps(told[0]))")
    assert (exclusive, gone, back) == ("proven", True, None)
    assert "1 processes stay for the next cell" in reason


def test_kept_processes_are_the_next_cells_own(told):
    _, (exclusive, gone, _, _) = told("lease(first_cell)\nlease()\nprint(json.dumps(told))")
    assert (exclusive, gone) == ("proven", True)


def test_kept_processes_keep_the_lock_until_they_end(told):
    lines = "lease(first_cell)\nprint(json.dumps([is_locked(), kept.set([]), used_by(), is_locked()]))"
    assert told(lines) == [True, None, None, False]


def test_kept_process_that_another_lease_ends_frees_the_lock(told):
    ends = "def ends(held):\n    kept.set([])\n    told.append(is_locked())\n    used_by()\n"
    assert told(f"{ends}lease(first_cell)\nlease(ends)\nprint(json.dumps([told[1], is_locked()]))") == [True, False]


def test_kept_none_leaves_a_leftover_blamed(told):
    lines = "def forgets(held):\n    first_cell(held)\n    kept.set([])\nlease(forgets)\nprint(json.dumps(told[0]))"
    _, gone, back, reason = told(lines)
    assert (gone, back) == (False, False)
    assert "still listed" in reason
