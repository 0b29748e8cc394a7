"""What ``kernel-matrix run`` tells of clocks, company and GPUs that are given up; real cells on a simulated GPU."""

from __future__ import annotations

import pytest

from tests.baddays.field import events

pytestmark = pytest.mark.torch

PROCESSES = ("--sandbox", "process")
FORBID = {"KERNEL_MATRIX_GPU_SETTINGS": "forbid"}


def test_locked_clocks_are_told_per_cell_and_at_the_end(gpu_field):
    gpu_field.write_gpu_matrix("tiny/honest", clocks="lock")
    ran = gpu_field.call("run", *PROCESSES)
    assert (ran.returncode, ran.stderr) == (0, "")
    (line,) = [
        line for line in ran.stdout.splitlines() if line.startswith("[1/1] tiny/honest fp32 board/newest: passed")
    ]
    assert line.rpartition(" [")[2].startswith("locked, ")
    assert "low_resolution, 1 cells: caution: the calls are so short" in ran.stdout
    assert "clocks of timed cells: 1 locked" in ran.stdout


def test_clocks_that_may_not_be_locked_are_told_before_and_after(gpu_field):
    gpu_field.write_gpu_matrix("tiny/honest", clocks="lock")
    ran = gpu_field.call("run", *PROCESSES, **FORBID)
    assert (ran.returncode, ran.stderr) == (0, "")
    reason = "KERNEL_MATRIX_GPU_SETTINGS=forbid"
    assert f"clocks will not be locked, and records say so: {reason}" in ran.stdout
    assert "[unlocked (policy lock), " in ran.stdout
    assert "clocks of timed cells: 1 unlocked\n  1 wanted locked, and not: " in ran.stdout
    planned = gpu_field.call("plan", *PROCESSES, **FORBID)
    assert f"GPU clocks cannot be locked here: {reason}" in planned.stdout


def test_clocks_not_given_back_are_an_error_and_quarantine_gpu(gpu_field):
    gpu_field.change(reset="!999")
    gpu_field.write_gpu_matrix("tiny/honest", "tiny/wrong", clocks="lock")
    ran = gpu_field.call("run", *PROCESSES)
    assert ran.returncode == 4
    failed, quarantined = sorted(ran.stderr.splitlines(), key=lambda line: "QUARANTINED" in line)
    assert failed.startswith(f"error: the clocks of {gpu_field.board.uuid} were NOT given back: ")
    assert quarantined.startswith(f"error: QUARANTINED {gpu_field.board.uuid}, nothing more runs on it in this run: ")
    assert f"quarantined: {gpu_field.board.uuid}: its clocks could not be given back" in ran.stdout
    assert "1 cells are left, for want of a GPU to run them on" in ran.stdout

    later = gpu_field.call("run", "--json", *PROCESSES)
    told = events(later.stdout)
    assert later.returncode == 4
    assert told[0]["event"] == "error"
    assert told[0]["text"].startswith(f"not repaired: settings of {gpu_field.board.uuid}")


def test_gpu_quarantined_after_its_last_cell_is_an_error_too(gpu_field):
    gpu_field.change(reset="!999")
    gpu_field.write_gpu_matrix("tiny/honest", clocks="lock")
    ran = gpu_field.run(*PROCESSES)
    told = {event["event"]: event for event in events(ran.stdout)}
    assert ran.returncode == 4
    assert (told["cell_ended"]["status"], told["cell_ended"]["clock_reset"]) == ("passed", "failed")
    assert (told["cell_ended"]["clock_state"], told["cell_ended"]["exclusive"]) == ("locked", "proven")
    assert told["cell_ended"]["quarantined"]
    assert (told["run_ended"]["left"], list(told["run_ended"]["quarantined"])) == (0, [gpu_field.board.uuid])
    assert told["run_ended"]["clocks"] == {"locked": 1}
