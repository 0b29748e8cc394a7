"""``kernel-matrix sweep`` on a simulated GPU that a dead runner left locked."""

from __future__ import annotations

import pytest

from tests.hosts.doctor.clinic import Clinic
from tests.lease.settings import killed_while_holding


@pytest.fixture
def clinic(clinic, board):
    """Where the GPU's clocks are still those of a killed runner."""
    board.set()
    killed_while_holding(board, clinic.root / "locks")
    assert board.state == board.locked
    return Clinic(clinic.root, board.driver.environment)


def cleared_here(done):
    """Return what a sweep says to have cleared in the clinic.

    Control groups are the whole machine's, and another test may just have killed a runner.
    """
    *lines, last = done.stdout.splitlines()
    assert last == (f"{len(lines)} leftovers cleared up" if lines else "nothing to sweep")
    return [line for line in lines if "/sys/fs/cgroup" not in line]


def test_clocks_are_given_back_once(clinic, board):
    done = clinic.call("sweep")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = cleared_here(done)
    assert f"clocks of {board.uuid} ({board.gpu['name']}), locked by run run-7" in line
    assert board.state.is_given_back
    assert cleared_here(clinic.call("sweep")) == []


def test_clocks_that_cannot_be_given_back_are_an_error(clinic, board):
    board.driver.change(board.uuid, reset="!999")
    done = clinic.call("sweep")
    assert done.returncode == 4
    assert done.stderr.startswith(f"error: not repaired: settings of {board.uuid}")
    assert board.by_hand[0] in done.stderr
    assert done.stdout.endswith(" leftovers cleared up, 1 NOT\n")
    assert board.uuid not in done.stdout
    board.driver.change(board.uuid, reset=None)
    assert clinic.call("sweep").returncode == 0
    assert board.state.is_given_back


def test_sweep_with_forbidden_settings_exits_4_and_calls_nothing(clinic, board):
    before = board.driver.log()
    done = clinic.call("sweep", KERNEL_MATRIX_GPU_SETTINGS="forbid")
    assert done.returncode == 4
    assert "KERNEL_MATRIX_GPU_SETTINGS=forbid" in done.stderr
    assert board.driver.log() == before


def test_a_folder_is_removed_although_a_gpu_is_not_repaired(clinic, board):
    board.driver.change(board.uuid, reset="!999")
    folder = clinic.root / "scratch" / "kernel-matrix-run-1.1.00000000.dead"
    folder.mkdir()
    done = clinic.call("sweep")
    assert (done.returncode, folder.exists()) == (4, False)
    assert str(folder) in done.stdout
    assert done.stdout.endswith(" leftovers cleared up, 1 NOT\n")
