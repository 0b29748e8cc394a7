"""What a night could find, foretold from its baseline."""

import numpy as np
import pytest

from kernel_matrix.nightly.foresight import warn_of_noise
from tests.analysis.made import cells, failed, timed


def baseline(noise, sessions, count=25, nights=1):
    rng = np.random.default_rng(1)
    return cells(
        row
        for night in range(nights)
        for number in range(count)
        for row in timed(1e5 * np.exp(rng.normal(0, noise, sessions)), candidate=f"softmax/{number}", night=night)
    )


def test_quiet_baseline_needs_no_warning():
    assert warn_of_noise(baseline(0.002, 5), 5, 0.05) == ""


def test_noisy_baseline_is_warned_of_with_what_can_be_found():
    said = warn_of_noise(baseline(0.05, 5), 5, 0.05)
    assert said.startswith("a slow-down of 5 % would be missed in 25 of 25 timed rows; one of ")
    assert 10 < float(said.split("; one of ")[1].split(" %")[0]) < 30


def test_fewer_sessions_than_the_baseline_find_less():
    base = baseline(0.012, 8)
    assert warn_of_noise(base, 8, 0.05) == ""
    assert "would be missed in 25 of 25" in warn_of_noise(base, 1, 0.05)


@pytest.mark.parametrize("rows", [[], [failed()]])
def test_baseline_without_times_foretells_nothing(rows):
    assert warn_of_noise(cells(rows), 5, 0.05) == ""
