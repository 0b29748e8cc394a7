"""Machine drift and code drift."""

import pytest

from kernel_matrix.measure.drift import code_drift, machine_drift


def test_the_worse_of_both_anchors_tells_the_machines_drift():
    assert machine_drift([(1000, 500), (1010, 500)]) == pytest.approx(0.01)
    assert machine_drift([(1000, 500), (1010, 520), (1005, 510)]) == pytest.approx(0.04)
    assert machine_drift([(1000, 500)]) is None
    assert machine_drift([(1000, 0), (1000, 500)]) is None
    assert machine_drift([]) is None


def test_a_slower_machine_explains_slower_code():
    anchors = [[(1000, 500)], [(1100, 500)], [(1200, 500)]]
    assert code_drift([100, 110, 120], anchors) == pytest.approx(0)
    memory_bound = [[(1000, 500)], [(1000, 550)], [(1000, 600)]]
    assert code_drift([100, 110, 120], memory_bound) == pytest.approx(0)


def test_what_the_machine_does_not_explain_is_the_codes():
    steady = [[(1000, 500), (1000, 500)]] * 3
    assert code_drift([100, 110, 120], steady) == pytest.approx(0.2)
    assert code_drift([100, 100, 100], [[(1000, 500)], [(1200, 600)], [(1000, 500)]]) == 0


def test_code_drift_without_anchor_or_second_session_is_none():
    assert code_drift([100, 110], [[(1000, 500)], []]) is None
    assert code_drift([100, 110], [[(1000, 500)], [(0, 0)]]) is None
    assert code_drift([100], [[(1000, 500)]]) is None
