"""Settings of a GPU of each vendor: whose they are, who may make them, and what a refusal means."""

from __future__ import annotations

from pathlib import Path

import pytest
from sim.board import Board

from kernel_matrix.platforms.permission import SETTINGS_VARIABLE

CALLS = {
    "lock_sm_clock": "platform.settings().lock_sm_clock(gpu, 1500)",
    "lock_memory_clock": "platform.settings().lock_memory_clock(gpu, {memory_clock})",
    "reset_sm_clock": "platform.settings().reset_sm_clock(gpu)",
    "reset_memory_clock": "platform.settings().reset_memory_clock(gpu)",
    "set_compute_mode": "platform.settings().set_compute_mode(gpu, ComputeMode.EXCLUSIVE_PROCESS)",
}
"""Every setting → a call of it."""


@pytest.fixture(params=CALLS)
def setting(request: pytest.FixtureRequest) -> str:
    """Every setting in turn."""
    return str(request.param)


@pytest.fixture
def offered(setting: str, board: Board) -> str:
    """Every setting that the device has."""
    if setting == "set_compute_mode" and not board.alone:
        pytest.skip("these devices have no compute modes")
    return setting


def make(board: Board, setting: str) -> dict[str, object]:
    """Make a setting; what is said of it."""
    said = board.ask(CALLS[setting].format(memory_clock=board.gpu["clock_memory"]))
    return said or {}


def test_only_the_gpu_that_is_meant_is_changed(board: Board, offered: str) -> None:
    board.driver.set({**board.gpu, "uuid": "another"}, dict(board.gpu))
    assert make(board, offered) == {}
    assert board.driver.state("another").is_given_back
    assert {line.split()[2] for line in board.driver.log()} == {board.uuid}


def test_host_that_forbids_by_its_environment_makes_no_call(board: Board, setting: str) -> None:
    board.set()
    board.driver.environment[SETTINGS_VARIABLE] = "forbid"
    said = make(board, setting)
    assert (said["error"], said["permitted"], said["supported"]) == ("GpuSettingError", False, True)
    assert f"{SETTINGS_VARIABLE}=forbid" in str(said["what"])
    assert board.uuid in str(said["what"])
    assert board.driver.log() == []


def test_host_that_forbids_by_its_file_makes_no_call(board: Board, setting: str, tmp_path: Path) -> None:
    board.set()
    (tmp_path / "host.toml").write_text('gpu_settings = "forbid"\n')
    said = make(board, setting)
    assert (said["error"], said["permitted"]) == ("GpuSettingError", False)
    assert str(tmp_path / "host.toml") in str(said["what"])
    assert board.driver.log() == []


def test_permission_is_asked_before_the_driver(board: Board, setting: str) -> None:
    board.set(init=f"!{board.failed}")
    board.driver.environment[SETTINGS_VARIABLE] = "forbid"
    assert "forbids" in str(make(board, setting)["what"])


def test_user_without_the_right_is_told_to_become_root(board: Board, offered: str) -> None:
    board.set(unprivileged=1)
    said = make(board, offered)
    assert (said["error"], said["permitted"], said["supported"]) == ("GpuSettingError", False, True)
    assert "sudo" in str(said["next_step"])
    assert board.state.is_given_back


def test_device_without_the_setting_does_not_support_it(board: Board, setting: str) -> None:
    board.set({"sm_lockable": None, "memory_lockable": None, "compute_mode": None})
    said = make(board, setting)
    assert (said["error"], said["permitted"], said["supported"]) == ("GpuSettingError", False, False)
    assert "no such setting" in str(said["next_step"])


def test_call_that_fails_was_permitted(board: Board, offered: str) -> None:
    board.set(dict.fromkeys(("lock", "lock_memory", "reset", "set_compute_mode"), f"!{board.failed}"))
    said = make(board, offered)
    assert (said["error"], said["permitted"], said["supported"]) == ("GpuSettingError", True, True)
    assert f"{board.error} {board.failed}" in str(said["what"])


def test_lost_gpu_is_lost_and_not_merely_refusing(board: Board, offered: str) -> None:
    for code in board.gone:
        board.set({"lost": f"!{code}"})
        assert make(board, offered)["error"] == "GpuLostError"
