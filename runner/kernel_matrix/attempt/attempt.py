"""One attempt at one cell: the lease, the sessions on it, the health of the GPU after them, and the record."""

from __future__ import annotations

import time
from typing import Any

from kernel_matrix.attempt.assignment import Assignment, AttemptResult, CellCancelledError, RunContext
from kernel_matrix.attempt.attempt_log import AttemptLog
from kernel_matrix.attempt.health_probe import NOT_RUN, HealthProbeResult, health_from_judges, never_held, probe_health
from kernel_matrix.attempt.host_record import AttemptOutcome, DeviceRecord, cell_key, make_host_record, of_cpu, of_gpu
from kernel_matrix.attempt.outcome import lost, machine_failed, once_timed, outcome_of
from kernel_matrix.attempt.prepared_session import SessionRequest, place_of
from kernel_matrix.attempt.role_specs import probe_spec
from kernel_matrix.attempt.session_prefetch import SessionPrefetch
from kernel_matrix.attempt.sessions import SessionLoop, admit
from kernel_matrix.attempt.source_findings import code_of, rejected, scan_of
from kernel_matrix.environments.inspection import check_unchanged
from kernel_matrix.errors import GpuBusyError, GpuLostError, GpuSettingError, InfrastructureError
from kernel_matrix.lease import Lease, LeaseTerms, WaitCancelledError, hold
from kernel_matrix.matrix import REQUIRE
from kernel_matrix.model.enums import ClockPolicy, Fault, Stage, Status
from kernel_matrix.model.messages import Evidence
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.results.record import HealthInfo, Outcome, Record


class Attempt:
    """One attempt at an assignment; ``ahead``, if given, starts the processes of later sessions early."""

    def __init__(self, assignment: Assignment, context: RunContext, ahead: SessionPrefetch | None = None) -> None:
        self._of = assignment
        self._context = context
        self._ahead = ahead
        self._log = AttemptLog()
        self._lease: Lease | None = None
        self._details: dict[str, Any] = {}
        self._probed = HealthProbeResult(NOT_RUN, "")
        self._barred: HealthInfo | None = None  # set if the GPU cannot be used for the rest of the run

    def run(self) -> AttemptResult:
        """Run the cell and make its record.

        Raises:
            CellCancelledError: If the run was cancelled meanwhile.
        """
        return self._result(self._without_device() or self._leased())

    def _without_device(self) -> Outcome | None:
        """Return the outcome of a cell whose source is not allowed or does not build; None if it can go on."""
        try:
            self._log.scan = scan_of(self._of.cell)
            self._log.code = code_of(self._of.cell)
        except OSError as error:
            return machine_failed(error, Stage.BUILD)
        build = self._of.build
        if build is not None:
            self._log.phases["build"] = build.seconds
            self._log.saw_ends(build.exits, 0)
        return rejected(self._of.cell, self._log.scan) or (build.outcome if build is not None else None)

    def _leased(self) -> Outcome:
        """Run on the leased device; return the outcome, also if the lease fails."""
        try:
            return self._on_the_device()
        except WaitCancelledError:
            raise CellCancelledError from None
        except GpuBusyError as error:
            return outcome_of(Status.GPU_BUSY, Stage.LEASE, Evidence(message=str(error)))
        except GpuLostError as error:
            self._barred = never_held(str(error))
            return lost(str(error), Stage.LEASE)
        except GpuSettingError as error:
            return self._setting_failed(error)
        except (InfrastructureError, OSError) as error:
            return machine_failed(error, Stage.LEASE)

    def _setting_failed(self, error: GpuSettingError) -> Outcome:
        if self._of.cell.policy.clocks is ClockPolicy.REQUIRE:
            return outcome_of(Status.CLOCKS_NOT_HELD, Stage.LEASE, Evidence(message=str(error)))
        # The policy requires no clocks, so a dead runner's setting is what could not be reset.
        self._barred = never_held(str(error))
        return machine_failed(error, Stage.LEASE)

    def _on_the_device(self) -> Outcome:
        gpu, policy, kept = self._of.gpu, self._of.cell.policy, None
        if self._ahead is not None:
            self._ahead.end_unsuited(SessionRequest(of=self._of, session=0))
            kept = self._ahead.kept
        sweep, cancelled = self._context.sandbox.sweep, self._context.cancelled
        terms = _terms(self._of, self._context)
        with hold(gpu, terms, reap=sweep, cancelled=cancelled, kept=kept) as lease:
            self._lease = lease
            self._log.phases["lease_wait"] = lease.waited_s
            self._details = _details(gpu.members[0])
            outcome = self._while_held(lease)
            if policy.health_probe and get_platform(gpu.platform).IS_ACCELERATOR and not lease.lost:
                self._probed = health_from_judges(self._log.seen) or self._probe(lease)
            over = time.monotonic()
        self._log.phases["aftermath"] = time.monotonic() - over
        return outcome

    def _while_held(self, lease: Lease) -> Outcome:
        try:
            return SessionLoop(self._of, self._context, lease, self._log, ahead=self._ahead).run()
        except (InfrastructureError, OSError) as error:
            return machine_failed(error, Stage.START)

    def _probe(self, lease: Lease) -> HealthProbeResult:
        place = place_of(self._of, self._context, 0)
        with self._log.timed("probe"):
            return probe_health(
                self._context.sandbox,
                lambda out: probe_spec(place, out),
                scratch=self._context.scratch,
                started=lambda running: admit(lease, running),
                called_off=lambda: self._context.cancelled() or bool(lease.lost),
            )

    def _result(self, outcome: Outcome) -> AttemptResult:
        found = self._after_lease(outcome)
        record = Record(
            run_id=self._context.run_id,
            cell_id=self._of.cell.id,
            attempt=self._of.attempt,
            cell=cell_key(self._of.cell),
            outcome=once_timed(self._in_known_environment(found.outcome), found.reports),
            host=make_host_record(self._of, self._context, found.device, self._log),
            sessions=found.reports,
        )
        health = found.device.health
        quarantine = health.reason if health is not None and health.quarantined else ""
        return AttemptResult(record=record, trace=found.trace, quarantine=quarantine)

    def _in_known_environment(self, outcome: Outcome) -> Outcome:
        """Return ``outcome``, or a failure of the infrastructure if the environment was changed during the cell."""
        environment = self._of.image.environment if self._of.image is not None else None
        if environment is None or outcome.fault is Fault.INFRA:
            return outcome
        try:
            check_unchanged(environment)
        except InfrastructureError as error:
            return machine_failed(error, Stage.DONE)
        return outcome

    def _after_lease(self, outcome: Outcome) -> AttemptOutcome:
        lease, of = self._lease, self._of
        if lease is None:
            return AttemptOutcome(outcome=outcome, reports=(), device=DeviceRecord(health=self._barred))
        if not get_platform(of.gpu.platform).IS_ACCELERATOR:
            return of_cpu(lease, outcome, self._log, self._details)
        return of_gpu(lease, outcome, self._log, self._details, assignment=of, probed=self._probed)


def _terms(of: Assignment, context: RunContext) -> LeaseTerms:
    policy = of.cell.policy
    return LeaseTerms(
        wait_s=policy.gpu_wait_s,
        exclusive=bool(policy.exclusive),
        require_proof=policy.exclusive == REQUIRE,
        hard_exclusive=policy.hard_exclusive,
        allow_mig=policy.allow_mig,
        allow_mps=policy.allow_mps,
        clocks=policy.clocks,
        clock_target=policy.clock_target,
        memory_clock=policy.memory_clock,
        owner=context.owner,
        run_id=context.run_id,
        cell_id=of.cell.id,
    )


def _details(gpu: Gpu) -> dict[str, Any]:
    """Return further properties of ``gpu`` from its driver, with the reasons for those that are missing."""
    try:
        details = get_platform(gpu.platform).details(gpu)
    except InfrastructureError as error:
        return {"missing": {"everything": error.what}}
    return {**details.values, "missing": dict(details.missing)}
