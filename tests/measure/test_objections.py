"""Objections to single calls: too few, or scattered; none to times in batches."""

import pytest

from kernel_matrix.measure.objections import object_to_calls
from kernel_matrix.measure.timed import TimedBlock, WorkloadTimes
from kernel_matrix.measure.verdict import compare_sessions
from kernel_matrix.model.enums import Verdict, VerdictReason
from tests.results.factory import batches

STEADY = (1000, 1001, 1002, 999, 998) * 4


def session(candidate, eager=STEADY, **more):
    blocks = [TimedBlock("candidate", "cold", candidate, ()), TimedBlock("eager", "cold", eager, ())]
    return WorkloadTimes(blocks, **more)


LATE = (1000,) * 15 + (2000,) * 5
"""A quarter of the calls took twice as long."""


@pytest.mark.parametrize(
    ("candidate", "eager", "objection"),
    [
        (STEADY, STEADY, None),
        (STEADY[:9], STEADY, (VerdictReason.FEW_CALLS, 9)),
        (STEADY, STEADY[:3], (VerdictReason.FEW_CALLS, 3)),
        (LATE, STEADY, (VerdictReason.SCATTERED, 0.25)),
        (STEADY, LATE, (VerdictReason.SCATTERED, 0.25)),
        (LATE[1:], LATE[5:], (VerdictReason.SCATTERED, pytest.approx(1 / 3))),
        ((1000,) * 16 + (2000,) * 4, STEADY, None),  # exactly a fifth
        ((1000,) * 10 + (600,) * 5, STEADY, (VerdictReason.SCATTERED, pytest.approx(1 / 3))),
    ],
)
def test_object_to_calls_of_one_session(candidate, eager, objection):
    assert object_to_calls([session(candidate, eager)]) == objection


def test_object_to_calls_needs_more_than_half_of_the_sessions():
    steady, late = session(STEADY), session(LATE)
    assert object_to_calls([steady, late]) is None
    assert object_to_calls([steady, steady, late]) is None
    assert object_to_calls([steady, late, late]) == (VerdictReason.SCATTERED, 0.25)


def test_object_to_calls_timed_in_batches_never():
    kept = [batches("candidate", 1000), batches("eager", 1000)]
    assert object_to_calls([session(LATE, batches=kept)]) is None


def test_compare_sessions_of_scattered_calls_withholds_the_verdict():
    twice = tuple(2 * time_ns for time_ns in STEADY)
    assert compare_sessions([session(STEADY, twice)] * 3).verdict is Verdict.FASTER
    found = compare_sessions([session(LATE, twice)] * 3)
    assert (found.verdict, found.reason, found.figure) == (Verdict.INCONCLUSIVE, VerdictReason.SCATTERED, 0.25)
    assert found.estimate == pytest.approx(2)
