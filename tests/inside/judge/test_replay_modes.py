"""Calls per sample of each regime, for calls of any length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_matrix.inside.judge.replay_modes import (
    BLOCK_NS,
    FEWEST_SAMPLES,
    MOST_SAMPLES,
    REPLAY_MODES,
    BlockPlan,
    plan_of,
)
from kernel_matrix.model.enums import Regime

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000
PLANS = {
    # (regime, call ns): (calls, samples)
    (Regime.WARM, 5 * US): (20, 10),
    (Regime.WARM, 5 * MS): (10, 10),
    (Regime.WARM, 2 * SECOND): (1, 3),
    (Regime.BURST, 5 * US): (100, 10),
    (Regime.BURST, 400 * US): (12, 10),
    (Regime.BURST, 6 * MS): (1, 10),
    (Regime.SUSTAINED, 5 * US): (1000, 10),
    (Regime.SUSTAINED, 5 * MS): (10, 10),
    (Regime.SUSTAINED, 0): (1000, 10),
}


@pytest.mark.parametrize(("regime", "call_ns"), PLANS)
def test_a_plan_fits_the_call(regime, call_ns):
    plan = plan_of(regime, call_ns)
    assert (plan.calls, plan.samples) == PLANS[regime, call_ns]
    assert (plan.rest_s, plan.lead_s) == (REPLAY_MODES[regime].rest_s, REPLAY_MODES[regime].lead_s)


@given(st.sampled_from(sorted(REPLAY_MODES, key=str)), st.integers(0, 100 * SECOND))
def test_a_sample_and_a_block_take_no_longer_than_they_may(regime, call_ns):
    plan = plan_of(regime, call_ns)
    assert isinstance(plan, BlockPlan)
    assert plan.calls == 1 or plan.calls * call_ns <= REPLAY_MODES[regime].busy_ns
    assert FEWEST_SAMPLES <= plan.samples <= MOST_SAMPLES
    assert plan.samples == FEWEST_SAMPLES or plan.samples * plan.calls * call_ns <= BLOCK_NS


def test_burst_has_5_ms_of_work_and_20_ms_of_rest():
    assert (REPLAY_MODES[Regime.BURST].busy_ns, REPLAY_MODES[Regime.BURST].rest_s) == (5 * MS, 0.02)
    assert REPLAY_MODES[Regime.SUSTAINED].lead_s >= 1.0


def test_every_regime_but_cold_is_replayed():
    assert set(REPLAY_MODES) == set(Regime) - {Regime.COLD}
    with pytest.raises(KeyError):
        plan_of(Regime.COLD, US)
