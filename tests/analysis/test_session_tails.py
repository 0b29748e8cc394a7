"""Heavy tails between sessions."""

import numpy as np
import polars as pl
import pytest

from kernel_matrix.analysis.session_tails import have_heavy_tails, session_groups, shows_tails
from kernel_matrix.analysis.timed_sessions import RECURRING, TimedSessions


def sessions(values):
    cell, _session = (axis.ravel() for axis in np.indices(values.shape))
    frame = pl.DataFrame({"cell": cell, "log_candidate": values.ravel()})
    frame = frame.with_columns(host=pl.lit("a"), unit=pl.lit("b"), night=pl.lit(0))
    frame = frame.with_columns(log_baseline=pl.col("log_candidate"), log_speedup=pl.lit(0.0))
    return session_groups(TimedSessions(values=frame, cells=pl.DataFrame(), chain=RECURRING))


@pytest.mark.parametrize("count", [3, 5, 10])
def test_tails_of_uneven_normal_cells_are_not_heavy(count):
    dice = np.random.default_rng(1)
    uneven = dice.choice([0.001, 0.01, 0.1], (400, 1))
    found = [have_heavy_tails(sessions(dice.normal(0, 1, (400, count)) * uneven), "candidate") for _ in range(30)]
    assert sum(found) <= 1


@pytest.mark.parametrize("count", [5, 10])
def test_tails_of_student_and_stray_sessions_are_heavy(count):
    dice = np.random.default_rng(2)
    stray = dice.normal(0, 1, (400, count)) + (dice.random((400, count)) < 0.05) * 15
    for values in (dice.standard_t(3, (400, count)), stray):
        assert have_heavy_tails(sessions(values), "candidate")


def test_tails_are_shown_by_enough_sessions():
    assert shows_tails(sessions(np.ones((100, 4))), "candidate")
    assert not shows_tails(sessions(np.ones((100, 3))), "candidate")
    assert not shows_tails(sessions(np.ones((99, 4))), "candidate")


@pytest.mark.parametrize("values", [np.zeros((5, 4)), np.zeros((0, 3)), np.ones((4, 1)), np.ones((4, 2))])
def test_tails_that_cannot_be_seen_are_not_heavy(values):
    assert not have_heavy_tails(sessions(values), "candidate")
