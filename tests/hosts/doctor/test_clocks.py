"""The right to lock clocks: said, never tried."""

from __future__ import annotations

import os

import pytest
from sim.board import Board

from tests.hosts.doctor.clinic import Clinic

SUBJECT = "right to lock clocks"


@pytest.mark.parametrize(
    ("policy", "verdict", "words"),
    [
        ("observe", "ok", "policy observe needs no such right"),
        ("lock", "warn", "policy lock records `unlocked`"),
        ("require", "fail", "cells with policy require do not run"),
    ],
)
def test_forbidden_settings_verdict_depends_on_clock_policy(
    board_clinic: Clinic, board: Board, policy: str, verdict: str, words: str
) -> None:
    board.set()
    board_clinic.write_matrix(f'clocks = "{policy}"\n')
    (board_clinic.root / "host.toml").write_text('gpu_settings = "forbid"\n')
    line = board_clinic.examine()[SUBJECT]
    assert line["verdict"] == verdict
    assert "host.toml says gpu_settings = 'forbid'" in line["found"]
    assert words in line["found"]


def test_the_strictest_that_any_cell_may_want_decides(board_clinic: Clinic, board: Board) -> None:
    board.set()
    board_clinic.write_matrix('clocks = "lock"\n[[override]]\nmatch.gpu = "h200"\npolicy.clocks = "require"\n')
    (board_clinic.root / "host.toml").write_text('gpu_settings = "forbid"\n')
    assert board_clinic.examine().verdict(SUBJECT) == "fail"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lock clocks")
def test_root_may_where_nobody_forbids_it_and_nothing_is_tried(board_clinic: Clinic, board: Board) -> None:
    board.set()
    board_clinic.write_matrix('clocks = "require"\n')
    line = board_clinic.examine()[SUBJECT]
    assert line["verdict"] == "ok"
    assert "not tried" in line["found"]
    assert board.driver.log() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may lock clocks")
def test_clocks_required_by_a_plain_user_fail(board_clinic: Clinic, board: Board) -> None:
    board.set()
    board_clinic.write_matrix('clocks = "require"\n')
    line = board_clinic.examine()[SUBJECT]
    assert line["verdict"] == "fail"
    assert line["advice"].startswith("run as root")
    assert board.driver.log() == []


def test_without_a_gpu_there_is_nothing_to_lock(clinic: Clinic) -> None:
    assert clinic.examine().about(SUBJECT) == []
