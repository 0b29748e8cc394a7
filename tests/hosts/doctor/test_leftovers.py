"""What dead runners left, found and left alone."""

from __future__ import annotations

from pathlib import Path

from sim.board import Board

from tests.hosts.doctor.clinic import Clinic, Report
from tests.lease.settings import killed_while_holding


def left_here(report: Report) -> list[dict[str, str]]:
    """Return what the doctor found left in the clinic.

    Control groups are the whole machine's, and another test may just have killed a runner.
    """
    lines = report.about("leftovers")
    return [line for line in lines if line["verdict"] != "ok" and "/sys/fs/cgroup" not in line["found"]]


def test_clocks_of_a_dead_runner_fail_until_swept(board_clinic: Clinic, board: Board) -> None:
    board.set()
    killed_while_holding(board, board_clinic.root / "locks")
    calls = board.driver.log()

    report = board_clinic.examine("--sandbox", "process")
    (line,) = left_here(report)
    assert (report.code, line["verdict"]) == (4, "fail")
    clocks = "SM clock, memory clock" if board.locked.memory_locked else "SM clock"
    assert line["found"] == f"{clocks} of {board.uuid}, set by run run-7, whose runner is gone"
    assert "kernel-matrix sweep" in line["advice"]
    assert board.driver.log() == calls

    assert board_clinic.call("sweep").returncode == 0
    assert left_here(board_clinic.examine("--sandbox", "process")) == []


def test_a_folder_of_a_dead_run_is_a_warning_and_stays(clinic: Clinic) -> None:
    folder = clinic.root / "scratch" / "kernel-matrix-run-1.1.00000000.dead"
    folder.mkdir()
    (line,) = left_here(clinic.examine())
    assert line["verdict"] == "warn"
    assert str(folder) in line["found"]
    assert folder.exists()


def test_a_journal_that_cannot_be_read_is_a_fault(clinic: Clinic) -> None:
    Path(clinic.root / "locks" / "GPU-1.settings.json").write_text("{")
    (line,) = left_here(clinic.examine())
    assert line["verdict"] == "fail"
    assert "something was set on GPU-1" in line["found"]
