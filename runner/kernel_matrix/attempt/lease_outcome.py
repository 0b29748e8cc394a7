"""What the lease makes of an outcome: a time counts only when the GPU was ours, well, and in the state asked for."""

from __future__ import annotations

from dataclasses import replace

from kernel_matrix.attempt.clock_verdict import ClockVerdict
from kernel_matrix.attempt.outcome import outcome_of
from kernel_matrix.attempt.telemetry_join import JoinedReports, names_of
from kernel_matrix.lease import Lease
from kernel_matrix.matrix import Policy
from kernel_matrix.model.enums import ClockPolicy, ClockState, Stage, Status
from kernel_matrix.model.messages import Evidence
from kernel_matrix.platforms import AILING
from kernel_matrix.results.record import Outcome

_DISTURBED = frozenset({Status.PASSED, Status.OUT_OF_MEMORY, Status.TIMEOUT, Status.TIMING_MISMATCH})
"""Outcomes that company on the GPU can bring about or spoil."""


def under_lease(outcome: Outcome, lease: Lease, policy: Policy) -> Outcome:
    """``outcome`` of a GPU's cell, in the light of who else was on the GPU and whether it stayed."""
    if lease.lost:
        return lost(lease.lost, outcome.stage)
    if lease.foreign_pids and policy.exclusive and outcome.status in _DISTURBED:
        message = f"somebody else came onto the GPU: {lease.reason}"
        return _instead(outcome, Status.CONTENDED, message)
    return outcome


def under_clocks(outcome: Outcome, joined: JoinedReports, clocks: ClockVerdict, policy: Policy) -> Outcome:
    """``outcome`` in the light of the clocks; only a cell that passed can fail for them."""
    if outcome.status is not Status.PASSED:
        return outcome
    if joined.throttled & AILING:
        names = ", ".join(names_of(joined.throttled & AILING))
        return _instead(
            outcome, Status.THROTTLED, f"the GPU slowed itself down for too much of the measurement: {names}"
        )
    if policy.clocks is ClockPolicy.REQUIRE and clocks.state is not ClockState.LOCKED:
        status = Status.THROTTLED if clocks.state is ClockState.THROTTLED else Status.CLOCKS_NOT_HELD
        return _instead(outcome, status, f"locked clocks are required: {clocks.reason}")
    return outcome


def lost(why: str, stage: Stage) -> Outcome:
    """The outcome of a cell whose GPU stopped answering."""
    return outcome_of(Status.GPU_LOST, _before_the_end(stage), Evidence(message=f"the GPU is lost: {why}"))


def _instead(outcome: Outcome, status: Status, message: str) -> Outcome:
    return outcome_of(status, _before_the_end(outcome.stage), replace(outcome.evidence, message=message))


def _before_the_end(stage: Stage) -> Stage:
    return Stage.TIME if stage is Stage.DONE else stage
