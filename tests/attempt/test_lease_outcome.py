"""Effect of other processes on the GPU, a lost GPU and moving clocks on an outcome."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kernel_matrix.attempt.clock_verdict import ClockVerdict
from kernel_matrix.attempt.outcome import outcome_of, under_clocks, under_lease
from kernel_matrix.attempt.telemetry_join import JoinedReports
from kernel_matrix.matrix import Policy
from kernel_matrix.model.enums import ClockPolicy, ClockState, Stage, Status
from kernel_matrix.model.messages import Evidence
from kernel_matrix.platforms import EventReason
from tests.results import factory


@dataclass
class Ended:
    """What a verdict asks a lease that has ended."""

    lost: str = ""
    foreign_pids: tuple[int, ...] = ()
    reason: str = "foreign processes were seen: 7 (python)"


def outcome(status=Status.PASSED, stage=Stage.DONE):
    return outcome_of(status, stage, Evidence(message="as before", log="tail"))


def test_a_quiet_lease_leaves_everything_as_it_is():
    for status in Status:
        assert under_lease(outcome(status), Ended(), Policy()) == outcome(status)


@pytest.mark.parametrize("status", Status)
def test_on_a_lost_gpu_nothing_else_counts(status):
    found = under_lease(outcome(status), Ended(lost="it fell off the bus", foreign_pids=(7,)), Policy())
    assert (found.status, found.stage) == (Status.GPU_LOST, Stage.TIME)
    assert "fell off the bus" in found.evidence.message


@pytest.mark.parametrize("status", Status)
def test_company_spoils_what_it_can_bring_about(status):
    spoiled = {Status.PASSED, Status.OUT_OF_MEMORY, Status.TIMEOUT, Status.TIMING_MISMATCH}
    found = under_lease(outcome(status), Ended(foreign_pids=(7,)), Policy())
    assert (found.status is Status.CONTENDED) == (status in spoiled or status is Status.CONTENDED)
    if status in spoiled:
        assert "7 (python)" in found.evidence.message
        assert found.evidence.log == "tail"


def test_company_that_is_allowed_spoils_nothing():
    assert under_lease(outcome(), Ended(foreign_pids=(7,)), Policy(exclusive=False)).status is Status.PASSED


def judged(status=Status.PASSED, *reasons, clocks=ClockPolicy.OBSERVE, state=ClockState.UNLOCKED):
    joined = JoinedReports(reports=(), summary=factory.TELEMETRY, throttled=frozenset(reasons))
    return under_clocks(outcome(status), joined, ClockVerdict(state, "1755 MHz were measured"), Policy(clocks=clocks))


@pytest.mark.parametrize("policy", ClockPolicy)
def test_a_cell_under_an_ailing_gpu_is_tried_again(policy):
    found = judged(Status.PASSED, EventReason.SW_POWER_CAP, EventReason.POWER_BRAKE, clocks=policy)
    assert found.status is Status.THROTTLED
    assert found.evidence.message.endswith(": power_brake")


@pytest.mark.parametrize("policy", [ClockPolicy.OBSERVE, ClockPolicy.LOCK])
def test_a_kernel_that_reaches_the_power_limit_has_passed(policy):
    found = judged(Status.PASSED, EventReason.SW_POWER_CAP, clocks=policy, state=ClockState.THROTTLED)
    assert found == outcome()


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (ClockState.LOCKED, Status.PASSED),
        (ClockState.UNLOCKED, Status.CLOCKS_NOT_HELD),
        (ClockState.THROTTLED, Status.THROTTLED),
    ],
)
def test_required_clocks_have_to_be_held(state, status):
    found = judged(clocks=ClockPolicy.REQUIRE, state=state)
    assert found.status is status
    assert status is Status.PASSED or "1755 MHz were measured" in found.evidence.message


def test_wanted_clocks_need_not_be_held():
    assert judged(clocks=ClockPolicy.LOCK).status is Status.PASSED


def test_what_failed_anyway_failed_for_its_own_reason():
    found = judged(Status.INCORRECT_VALUES, EventReason.HW_THERMAL, clocks=ClockPolicy.REQUIRE)
    assert found == outcome(Status.INCORRECT_VALUES)
