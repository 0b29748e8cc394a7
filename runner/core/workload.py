"""One workload on the judge's desk: controls, verification, timing, verification again."""

from __future__ import annotations

import random
import statistics
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from runner.core.checks import Call, Judgement, judge_call
from runner.core.checks.values import compare, finite
from runner.core.clockprobe import measure_clock
from runner.core.environment import l2_bytes
from runner.core.finding import Finding, finding
from runner.core.libcuda import DriverError
from runner.core.messages import ClockProbe, JudgeJob, Trial, WorkloadReport, WorkloadSpec
from runner.core.reference import Expected, Reference, guarded
from runner.core.side import Result, Side
from runner.core.steady import Watch, watch_of
from runner.core.timing import Timer, Timing, clocks_disagree
from runner.core.tolerance import Tolerance
from runner.core.vocab import Mode, Role, Stage, Status
from runner.core.wire import Channel, OutputClaim, OutputsClaim

Clock = Callable[[str], ContextManager[None]]

PROBE_CALLS = 20
"""Empty calls that calibrate the judge's clock."""

NO_CLOCK_PROBE = "no_clock_probe"
"""Label: the SM clock could not be read from inside a kernel, before or after the timed calls."""


@dataclass(frozen=True)
class Outcome:
    """What one workload left; ``ended`` is the finding that ended it."""

    report: WorkloadReport
    labels: Tuple[str, ...]
    ended: Optional[Finding]


class Desk:
    """Both sides of a session and what they are asked to do, one workload after the other."""

    def __init__(self, job: JudgeJob, folder: Path, baseline: Channel, candidate: Channel) -> None:
        self._job = job
        self._problem = folder / job.problem_file
        self._tolerance = Tolerance.of(job.dtype, job.tolerance)
        self._dice = random.Random(f"{job.seed}/dice")  # noqa: S311  # seeded from the judge's secret on purpose
        self._candidate = Side(Role.CANDIDATE, candidate, job.device, job.timeouts)
        self._baseline = Side(Role.BASELINE, baseline, job.device, job.timeouts)
        self._sides = {Role.BASELINE: self._baseline, Role.CANDIDATE: self._candidate}
        self._flush_bytes = 2 * l2_bytes(job.device) if job.protocol.flush == "cold" else 0
        self._trials: List[Trial] = []
        self._timed = False
        self._watch: Optional[Watch] = None
        self._clocks: Dict[str, ClockProbe] = {}

    @property
    def clock_probes(self) -> Tuple[ClockProbe, ...]:
        """The SM clock before the session's first timed calls and after its last ones; nothing on a CPU."""
        return tuple(self._clocks.values())

    @contextmanager
    def open(self) -> Iterator[Desk]:
        """Have the candidate's side import its source; both sides are told goodbye at the end."""
        with ExitStack() as undo:
            for side in self._sides.values():
                undo.callback(side.close)
            self._watch = undo.enter_context(watch_of(self._job))
            values = dict(self._job.workloads[0].values)
            self._candidate.load(file=self._job.candidate_file, entry=self._job.candidate_entry, values=values)
            yield self

    def run(self, spec: WorkloadSpec, clock: Clock) -> Outcome:
        """Controls, verification, timing, verification again, for one workload."""
        self._trials = []
        timing, overhead, precision, ended = Timing(), None, "", None
        try:
            with clock("load"):
                reference = self._prepare(spec)
                precision = reference.precision
            with clock("verify"):
                self._verify(reference, "before", self._job.protocol.trials)
            if self._job.protocol.time:
                with clock("time"):
                    overhead = self._calibrate(reference)
                    self._time(reference, timing, overhead)
                with clock("verify"):
                    self._verify(reference, "after", 1)
        except Finding as found:
            ended = found if found.evidence.workload else found.at(workload=spec.name)
        self._timed = self._timed or bool(timing.blocks)
        if ended is not None and self._timed:
            ended = ended.once_timed()
        status = ended.status if ended is not None else Status.PASSED
        report = WorkloadReport(
            name=spec.name,
            values=dict(spec.values),
            flops=spec.flops,
            bytes=spec.bytes,
            status=status,
            tolerance=dict(self._tolerance.to_json()),
            reference_dtype=precision,
            trials=tuple(self._trials),
            blocks=tuple(timing.blocks),
            warmup_calls=timing.warmup_calls,
            flush_bytes=self._flush_bytes,
            inputs=self._job.protocol.inputs,
            checked_calls=timing.checked_calls,
            wall_overhead_ns=overhead,
        )
        return Outcome(report, tuple(timing.labels), ended)

    def _prepare(self, spec: WorkloadSpec) -> Reference:
        """The reference of this workload, and a model on either side."""
        job = self._job
        reference: Reference = guarded(
            "the reference",
            Stage.LOAD,
            lambda: Reference(self._problem, spec.values, job.device, job.dtype, f"{job.seed}/{spec.name}"),
        )
        self._baseline.load(file=job.problem_file, entry="Model", values=dict(spec.values))
        for side in self._sides.values():
            side.construct(reference, self._flush_bytes)
        return reference

    def _verify(self, reference: Reference, phase: str, trials: int) -> None:
        """``trials`` calls per mode; the first of each mode also runs the problem's own controls.

        :raises Finding: for the first call that does not pass.
        """
        for mode in self._job.protocol.modes:
            if mode is Mode.OUTLIER and not self._job.outliers:
                continue
            for index in range(trials):
                inputs = guarded("get_inputs()", Stage.VERIFY, lambda: reference.draw(mode, phase, index))  # noqa: B023
                expected = guarded("the reference", Stage.VERIFY, lambda: reference.expect(inputs))  # noqa: B023
                if index == 0 and phase == "before":
                    self._control(reference, expected, inputs, mode)
                self._try(expected, inputs, mode, index, phase)

    def _try(self, expected: Expected, inputs: List[Any], mode: Mode, index: int, phase: str) -> None:
        judgement = self._judge(self._candidate, expected, *self._call(self._candidate, expected, inputs))
        self._note(judgement, mode, index, phase)
        if judgement.failed is not None:
            raise Finding(judgement.failed.status, Stage.VERIFY, judgement.failed.evidence).at(
                mode=mode.value, trial=index
            )

    def _control(self, reference: Reference, expected: Expected, inputs: List[Any], mode: Mode) -> None:
        """The problem's own controls.

        The reference must agree with itself, in this process and as the baseline; zeros and a constant must not pass.

        :raises Finding: ``invalid_problem``.
        """
        again = guarded("the reference", Stage.VERIFY, lambda: reference.expect(inputs)).trusted
        if not self._accepts(again, Expected(expected.structure, expected.trusted, expected.trusted)):
            raise finding(
                Status.INVALID_PROBLEM, Stage.VERIFY, "the reference differs between two runs on equal inputs"
            )
        judgement = self._judge(self._baseline, expected, *self._call(self._baseline, expected, inputs))
        if judgement.failed is not None:
            message = f"the reference fails against itself: {judgement.failed.evidence.message}"
            evidence = replace(judgement.failed.evidence, message=message, mode=mode.value)
            raise Finding(Status.INVALID_PROBLEM, Stage.VERIFY, evidence)
        if mode is Mode.STANDARD:
            for name, outputs in self._worthless(reference, expected):
                if self._accepts(outputs, expected):
                    message = f"{name} would pass: the output says nothing about the computation"
                    raise finding(Status.INVALID_PROBLEM, Stage.VERIFY, message)

    def _worthless(self, reference: Reference, expected: Expected) -> Iterator[Tuple[str, Sequence[torch.Tensor]]]:
        """Outputs that no judge may accept, with their names."""
        yield "zeros", [torch.zeros_like(t) for t in expected.trusted]
        if any(t.numel() > 1 for t in expected.trusted):
            yield "a constant", [_constant(t) for t in expected.trusted]
        else:
            # A single number is a constant by itself; it must at least depend on the input.
            inputs = guarded("get_inputs()", Stage.VERIFY, lambda: reference.draw(Mode.STANDARD, "another"))
            other = guarded("the reference", Stage.VERIFY, lambda: reference.expect(inputs))
            yield "the answer to another input", other.trusted

    def _accepts(self, outputs: Sequence[torch.Tensor], expected: Expected) -> bool:
        """Whether these outputs would pass for the expected ones."""
        triples = zip(outputs, expected.outputs, expected.trusted)
        return all(not compare(got, want, same, self._tolerance).mismatched for got, want, same in triples)

    def _call(self, side: Side, expected: Expected, inputs: List[Any]) -> Tuple[Result, Tuple[torch.Tensor, ...]]:
        sent = side.deliver(inputs, expected)
        return side.call(stage=Stage.VERIFY), sent

    def _judge(self, side: Side, expected: Expected, result: Result, sent: Tuple[torch.Tensor, ...]) -> Judgement:
        outputs = side.outputs() if _all_copied(result.claim) else ()
        call = Call(
            claim=result.claim,
            outputs=outputs,
            expected=expected,
            tolerance=self._tolerance,
            inputs_sent=sent,
            inputs_now=side.inputs_now(),
            mutates_inputs=self._job.mutates_inputs,
        )
        return judge_call(call)

    def _judge_timed(self, side: Side, expected: Expected, call: Sequence[Any]) -> Judgement:
        """Check a timed call.

        :raises Finding: when it does not pass; for the baseline that is the problem's fault.
        """
        result, sent = call
        judgement = self._judge(side, expected, result, sent)
        if side.role is Role.CANDIDATE:
            self._note(judgement, Mode.STANDARD, len(self._trials), "timed")
        if judgement.failed is not None:
            candidate = side.role is Role.CANDIDATE
            status = judgement.failed.status if candidate else Status.INVALID_PROBLEM
            raise Finding(status, Stage.TIME, judgement.failed.evidence)
        return judgement

    def _note(self, judgement: Judgement, mode: Mode, index: int, phase: str) -> None:
        passed = judgement.failed is None
        trial = Trial(mode, index, phase, passed, finite(judgement.max_error), finite(judgement.error_ratio))
        self._trials.append(trial)

    def _calibrate(self, reference: Reference) -> int:
        """Median of the judge's clock around calls that run nothing, nanoseconds."""
        inputs = reference.draw(Mode.STANDARD, "calibrate")
        expected = reference.expect(inputs)
        walls = []
        for _ in range(PROBE_CALLS):
            self._baseline.deliver(inputs, expected)
            result = self._baseline.call(probe=True, stage=Stage.TIME)
            walls.append(result.wall_ns - result.device_ns)
        return int(statistics.median(walls))

    def _time(self, reference: Reference, timing: Timing, overhead: int) -> None:
        timer = Timer(
            reference,
            self._sides,
            self._job.protocol,
            self._dice,
            self._judge_timed,
            watch=self._watch,
            warmed_up=lambda: self._read_first_clock(timing),
        )
        timer.timing = timing
        timer.run()
        self._read_clock("after", timing)
        lies, words = clocks_disagree(timing.blocks, overhead)
        if lies:
            raise finding(Status.TIMING_MISMATCH, Stage.TIME, f"the candidate's side {words}")

    def _read_first_clock(self, timing: Timing) -> None:
        if "before" not in self._clocks:
            self._read_clock("before", timing)

    def _read_clock(self, phase: str, timing: Timing) -> None:
        """Read the SM clock under load; a later reading of the same phase takes the place of an earlier one."""
        if self._job.device == "cpu":
            return
        try:
            self._clocks[phase] = measure_clock(phase)
        except DriverError:
            if NO_CLOCK_PROBE not in timing.labels:
                timing.labels.append(NO_CLOCK_PROBE)


def _all_copied(claim: OutputsClaim) -> bool:
    outputs: Tuple[OutputClaim, ...] = claim.outputs
    return bool(outputs) and all(output.copied for output in outputs)


def _constant(like: torch.Tensor) -> torch.Tensor:
    """The output's own mean everywhere: what a constant could do at best."""
    if not like.is_floating_point():
        return torch.full_like(like, like.reshape(-1)[0].item()) if like.numel() else like
    finite = like[torch.isfinite(like)]
    return torch.full_like(like, float(finite.double().mean()) if finite.numel() else 0.0)
