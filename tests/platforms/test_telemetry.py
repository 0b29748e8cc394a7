"""Samples of a GPU of each vendor. The sampler runs in a program while its world changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sim.board import Board

LOOKING = """
import dataclasses, sys
from kernel_matrix.errors import InfrastructureError
platform = get_platform(gpu.platform)
with platform.opened():
    look = platform.sampler(gpu)
    print("ready", flush=True)
    for _ in sys.stdin:
        try:
            said = dataclasses.asdict(look())
        except InfrastructureError as error:
            said = {"error": type(error).__name__, **vars(error)}
        print(json.dumps(said), flush=True)
"""


@contextmanager
def looking(board: Board) -> Iterator[Callable[[], Any]]:
    """A function that makes one sampler, always the same, look again."""
    with board.driver.start(board.program + LOOKING) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"

        def look() -> Any:
            print("look", file=program.stdin, flush=True)
            assert program.stdout is not None
            return json.loads(program.stdout.readline())

        yield look
        program.stdin.close()
    assert program.returncode == 0


def test_samples_follow_the_world(board: Board) -> None:
    board.set()
    with looking(board) as look:
        first = look()
        board.driver.change(board.uuid, clock_sm=1200, power_instant=700_000, compute="42")
        second = look()
    power_w = board.gpu["power_instant"] / 1000
    assert (first["sm_clock_mhz"], first["power_w"], first["pids"]) == (board.clock, power_w, [])
    assert (second["sm_clock_mhz"], second["power_w"], second["pids"]) == (1200, 700.0, [42])
    assert second["at_ns"] > first["at_ns"]


def test_process_list_that_fails_is_an_error_and_not_nobody(board: Board) -> None:
    for kind in board.kinds:
        board.set({kind: f"!{board.failed}"})
        with looking(board) as look:
            said = look()
            assert (said["error"], board.uuid in said["what"]) == ("InfrastructureError", True)
            board.driver.change(board.uuid, **{kind: "42"})
            assert look()["pids"] == [42]


def test_gpu_lost_between_two_samples_is_lost(board: Board) -> None:
    for code in board.gone:
        board.set()
        with looking(board) as look:
            assert look()["sm_clock_mhz"] == board.clock
            board.driver.change(board.uuid, lost=f"!{code}")
            assert look()["error"] == "GpuLostError"


def test_sensor_that_stumbles_is_null_once_and_hides_nobody(board: Board) -> None:
    board.set({"compute": "42", **dict.fromkeys(board.temperature, f"!{board.failed}")})
    with looking(board) as look:
        first = look()
        board.driver.change(board.uuid, **board.temperature)
        second = look()
    assert (first["temperature_c"], first["pids"]) == (None, [42])
    assert second["temperature_c"] == 41


@pytest.mark.parametrize("without", ["power_w", "energy_mj"])
def test_clocks_are_those_of_the_snapshot_without_the_rest(board: Board, without: str) -> None:
    failing = {"power_w": "power", "energy_mj": "energy"}[without]
    board.set({failing: f"!{board.failed}"})
    assert board.ask("platform.clocks(gpu)") == [board.clock, board.gpu["clock_memory"]]


def test_snapshot_field_that_fails_is_not_unsupported(board: Board) -> None:
    board.set({"energy": f"!{board.failed}"})
    said = board.ask("platform.snapshot(gpu)")
    assert said["error"] == "InfrastructureError"
    assert f"{board.error} {board.failed}" in said["what"]
