"""Likelihoods of shapes in correlated nights, their chance, and series with two states."""

import numpy as np
import pytest

from kernel_matrix.analysis.correlated_nights import (
    CORRELATIONS,
    LINE,
    STEP,
    chance_ratios,
    likelihoods,
    two_states,
    usual_correlations,
    without_strays,
)


def wandering(dice, count, nights, correlation):
    found = dice.normal(size=(count, nights))
    for night in range(1, nights):
        found[:, night] = correlation * found[:, night - 1] + np.sqrt(1 - correlation**2) * found[:, night]
    return found


def switching(dice, count, nights, stays=0.85):
    state = dice.random((count, nights)) < 0.5
    for night in range(1, nights):
        state[:, night] = state[:, night - 1] ^ (dice.random(count) > stays)
    return dice.normal(0, 0.003, (count, nights)) + 0.03 * state


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.9])
@pytest.mark.parametrize("shape", [STEP, LINE])
def test_chance_of_ratios_holds_for_the_sets_noise(correlation, shape):
    noise = likelihoods(wandering(np.random.default_rng(1), 6000, 40, correlation))
    weights = usual_correlations([noise], [40])
    p = chance_ratios(40, weights).chance(shape, noise.ratios(weights)[shape])
    assert 0.002 <= np.mean(p <= 0.01) <= 0.02
    assert np.mean(p <= 0.001) <= 0.003


def test_likelihoods_find_the_split_and_its_shape():
    values = np.random.default_rng(2).normal(0, 1, (200, 40))
    stepped, sloped = values.copy(), values + np.linspace(0, 10, 40)
    stepped[:, 15:] += 5
    even = np.full(CORRELATIONS.size, 1 / CORRELATIONS.size)
    found = likelihoods(stepped)
    assert np.mean(np.abs(found.split(even) - 15) <= 1) > 0.95
    assert np.mean(found.ratios(even)[STEP] > found.ratios(even)[LINE]) > 0.99
    assert np.mean(np.diff(likelihoods(sloped).ratios(even), axis=0) > 0) > 0.99


def test_usual_correlations_are_those_of_the_set():
    dice = np.random.default_rng(3)
    half = np.concatenate([wandering(dice, 300, 50, 0.0), wandering(dice, 300, 50, 0.9)])
    weights = usual_correlations([likelihoods(half)], [50])
    assert weights.sum() == pytest.approx(1)
    assert weights[CORRELATIONS <= 0.2].sum() == pytest.approx(0.5, abs=0.1)
    assert weights[CORRELATIONS >= 0.75].sum() == pytest.approx(0.5, abs=0.1)


def test_inflation_is_that_of_the_correlation():
    dice = np.random.default_rng(4)
    for correlation in (0.0, 0.6):
        found = likelihoods(wandering(dice, 400, 60, correlation))
        weights = usual_correlations([found], [60])
        wanted = (1 + correlation) / (1 - correlation)
        assert np.median(found.inflation(STEP, weights)) == pytest.approx(wanted, rel=0.25)


def test_stray_nights_are_limited_and_steps_kept():
    values = np.random.default_rng(5).normal(0, 0.01, (100, 30))
    values[:, 15:] += 0.05
    strayed = values.copy()
    strayed[:, 7] += 1.0
    strayed[:, -2:] += 1.0
    assert np.abs(without_strays(values) - values).max() < 0.04
    assert np.mean(without_strays(strayed).max(axis=1) < 0.2) > 0.95
    assert np.array_equal(without_strays(np.zeros((2, 10))), np.zeros((2, 10)))


def test_two_states_are_told_from_steps_noise_and_strays():
    dice = np.random.default_rng(6)
    assert two_states(switching(dice, 200, 50)).returning.mean() > 0.7
    noise = dice.normal(0, 0.01, (500, 40))
    stepped = noise.copy()
    stepped[:, 20:] += 0.05
    strayed = noise.copy()
    strayed[:, [8, 25]] += 0.3
    for values in (noise, stepped, strayed, noise + 0.003 * np.arange(40)):
        assert two_states(values).returning.mean() < 0.02


def test_three_levels_are_not_two_states():
    values = np.random.default_rng(7).normal(0, 0.005, (200, 45))
    values[:, 15:30] += 0.05
    values[:, 30:] += 0.02
    assert two_states(values).returning.mean() < 0.05


@pytest.mark.parametrize("values", [np.zeros((3, 20)), np.full((2, 10), 7.0)])
def test_equal_nights_show_nothing(values):
    found = likelihoods(values)
    even = np.full(CORRELATIONS.size, 1 / CORRELATIONS.size)
    assert np.abs(found.ratios(even)).max() < 1e-9
    assert not two_states(values).returning.any()
