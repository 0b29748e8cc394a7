"""Differences that chance makes, from sessions whose sides are exchanged."""

import numpy as np
import pytest

from kernel_matrix.analysis.relabelled_sessions import SessionTable, chance_differences
from kernel_matrix.analysis.variance_prior import fit_prior


def table_of(logs, base):
    return SessionTable(rows=np.arange(len(logs)), base=logs[:, :base], new=logs[:, base:])


def chance_of(table, shift=0.0):
    own = table.statistics(np.arange(table.base.shape[1] + table.new.shape[1])[None, :] < table.base.shape[1])[1][:, 0]
    return chance_differences([table], fit_prior(own, np.full(own.size, float(table.degrees))), shift)


def test_statistics_are_those_of_two_samples():
    logs = np.random.default_rng(1).normal(0, 0.01, (3, 7))
    table = table_of(logs, 3)
    chosen = np.array([[True, False, True, False, True, False, False]])
    difference, variance = table.statistics(chosen)
    base, new = logs[:, chosen[0]], logs[:, ~chosen[0]]
    assert difference[:, 0] == pytest.approx(new.mean(axis=1) - base.mean(axis=1))
    assert variance[:, 0] == pytest.approx((base.var(axis=1) * 3 + new.var(axis=1) * 4) / 5)
    assert (table.degrees, table.weight) == (5, pytest.approx(1 / 3 + 1 / 4))


def test_statistics_of_pairs_turn_pairs_round():
    logs = np.array([[0.01, 0.03]])
    pairs = SessionTable(rows=np.zeros(1), base=logs, new=logs[:, :0])
    difference, variance = pairs.statistics(np.array([[False, False], [True, False]]))
    assert difference[0] == pytest.approx([0.02, 0.01])
    assert variance[0] == pytest.approx([0.0002, 0.0008])
    assert (pairs.degrees, pairs.weight) == (1, 0.5)


def test_expected_number_is_that_of_the_distribution():
    """Of 4,000 normal cells, 4.6 % lie beyond two standard errors and 0.27 % beyond three."""
    chance = chance_of(table_of(np.random.default_rng(2).normal(0, 0.01, (4000, 10)), 5))
    assert chance.expected_beyond(np.array([2.0, 3.0])) / 4000 == pytest.approx([0.0455, 0.0027], rel=0.1)
    assert chance.factors[0.95] == pytest.approx(1, abs=0.02)
    assert chance.middle == pytest.approx(0.6745, rel=0.03)


def test_cells_that_changed_are_no_evidence_of_chance():
    logs = np.random.default_rng(3).normal(0, 0.005, (500, 10))
    quiet = chance_of(table_of(logs, 5)).expected_beyond(np.array([6.0]))[0]
    logs[:50, 5:] += 0.03
    assert chance_of(table_of(logs, 5)).expected_beyond(np.array([6.0]))[0] <= 10 * max(quiet, 1e-3)


def test_two_states_show_how_often_they_fall_apart():
    """A fifth of the cells is 3 % slower in half of the sessions: of 100, all three a side agree in 3."""
    rng = np.random.default_rng(4)
    logs = rng.normal(0, 0.003, (500, 6))
    logs[:100] += 0.03 * (rng.random((100, 6)) < 0.5)
    chance = chance_of(table_of(logs, 3))
    assert 1 < chance.expected_beyond(np.array([5.0]))[0] < 8
    assert chance.size_for(0.01) > 8  # a larger difference than 3 % still counts
    assert chance.expected_beyond(np.array([60.0]))[0] < 0.01


def test_a_shift_of_all_cells_is_not_chance():
    logs = np.random.default_rng(5).normal(0, 0.005, (500, 10))
    logs[:, 5:] += 0.03
    chance = chance_of(table_of(logs, 5), shift=0.03)
    assert chance.factors[0.95] == pytest.approx(1, abs=0.04)
    assert chance.own.min() > 4  # as measured, with the shift


def test_the_same_sessions_give_the_same_answer():
    table = table_of(np.random.default_rng(6).normal(0, 0.01, (50, 16)), 8)  # more exchanges than are made
    first, second = chance_of(table), chance_of(table)
    assert first.factors == second.factors
    assert first.tail.expected.tolist() == second.tail.expected.tolist()
