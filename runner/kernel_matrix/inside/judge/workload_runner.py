"""Running one workload after the other: controls, verification, timing, verification again."""

from __future__ import annotations

import random
import statistics
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from kernel_matrix.inside.exception_kinds import classify
from kernel_matrix.inside.input_generation import nbytes_of
from kernel_matrix.inside.judge.claims import LOW_RESOLUTION, contradiction, gaps_of, hold_claims
from kernel_matrix.inside.judge.device_memory import SessionMemory
from kernel_matrix.inside.judge.device_readings import DeviceReadings
from kernel_matrix.inside.judge.earlier_cells import EarlierCells
from kernel_matrix.inside.judge.energy_counter import counter_of
from kernel_matrix.inside.judge.memory_blame import MemoryBlame, making_room, watching
from kernel_matrix.inside.judge.pause import CandidatePause
from kernel_matrix.inside.judge.quiet_device import QuietDevice
from kernel_matrix.inside.judge.reference import ReferenceModel, drawn_inputs, guarded
from kernel_matrix.inside.judge.session_ended import SessionEnded, excused, finding, lacking_memory
from kernel_matrix.inside.judge.timing import TimedPhase, Timer
from kernel_matrix.inside.judge.verification import Verifier
from kernel_matrix.inside.judge.warm_up import SensorWatch, watch_of
from kernel_matrix.inside.judge.worker_client import WorkerClient
from kernel_matrix.inside.phases import Phases
from kernel_matrix.inside.platform import EnergyCounter, load_platform
from kernel_matrix.inside.wire import CallFailure
from kernel_matrix.inside.worker.tracing import own
from kernel_matrix.model.enums import InputMode, Regime, Role, Stage, Status
from kernel_matrix.model.messages import (
    INTERPRETED,
    JudgeJob,
    ProtocolSpec,
    TracedKernel,
    TwoClocks,
    WorkloadReport,
    WorkloadSpec,
)

# Traces of a candidate, until a kernel of its own is seen: on two H100, one of 84 showed none, where others of the same
# source showed it.
TRACES = 2
NO_TRACE = "no_trace"  # label: the tracer saw no kernel of any contestant, so their origin is unknown

# Label: the problem writes to its inputs, or memory is so short that calls give theirs back, so calls cannot be
# repeated on them, and only ``cold`` calls are timed.
NOT_REPLAYABLE = "not_replayable"

LOAD_S = 8.0  # limit for each step of getting ready if nothing needs compiling
LOAD_FACTOR = 5  # or this multiple of the judge's time for the reference: models may be large, and the disk cold

SLOWEST_FACTOR = 200  # a call is given up after this multiple of the baseline's time
LEAST_PATIENCE_S = 4.0  # but not before this many seconds

DOUBLE = 2  # the judge's own reference computes in double precision, which takes about twice the baseline's temporaries
SUPPLIED_SETS = 4  # inputs and outputs that the judge has while it times: two sets of inputs, and one call's to compare


class WorkloadRunner:
    """Runner of the workloads of a session with all its contestants."""

    def __init__(
        self,
        job: JudgeJob,
        folder: Path,
        clients: Dict[str, WorkerClient],
        phases: Phases,
        pause: CandidatePause,
        *,
        earlier: Optional[EarlierCells] = None,
    ) -> None:
        """Prepare the runner; ``clients`` are opened contestants by name, and a rival that fails is removed.

        ``earlier`` has those that were kept from another cell, and what is known of the problem.
        """
        self._job = job
        self._problem = folder / job.problem_file
        self._clients = clients
        self._candidate = _of_role(clients, Role.CANDIDATE)
        self._baseline = _of_role(clients, Role.BASELINE)
        self._phases = phases
        self._pause = pause
        self._dice = random.Random(f"{job.seed}/dice")  # noqa: S311  # seeded from the judge's secret on purpose
        self._l2_bytes = load_platform(job.device).cache_bytes()
        self._flush_bytes = 2 * self._l2_bytes
        self._time = job.protocol.time and not job.sanitize
        self._limits_waits = not (INTERPRETED in job.labels or job.sanitize)  # False if a tool slows the candidate down
        self._in_batches = load_platform(job.device).IS_ACCELERATOR and not job.mutates_inputs
        self._timed = False
        self._watch: Optional[SensorWatch] = None
        self._counter: Optional[EnergyCounter] = None
        self._quiet = QuietDevice(load_platform(job.device), job.ranks)
        self._earlier = earlier or EarlierCells()
        self._loaded = list(self._earlier.clients)
        self._last: Optional[WorkloadState] = None
        self.memory = SessionMemory(load_platform(job.device), job.ranks, job.device_memory_bytes)
        self._blame = MemoryBlame(self.memory, clients, pause)
        self.readings = DeviceReadings(job.device)
        self.labels: List[str] = []
        """Labels of the session; some occur more than once."""
        self.kernels: Tuple[TracedKernel, ...] = ()
        """Kernels in the candidate's traced call, longest first."""
        self.launches: Dict[str, int] = {}
        """Baseline or rival → kernels that one call of it launched."""

    @contextmanager
    def open(self) -> Iterator[WorkloadRunner]:
        """Read the device's sensors while in this context; the candidate has not loaded its source before."""
        self._quiet.learn()
        self.memory.open()
        with watch_of(self._job) as self._watch, counter_of(self._job) as self._counter:
            yield self

    def run(self, spec: WorkloadSpec) -> Tuple[WorkloadReport, Optional[SessionEnded]]:
        """Verify, time and verify again; return the report, and the exception that ended it early, if any."""
        self._last = None  # there may be too little memory for two references
        state = WorkloadState(spec, Verifier(self._job, self._clients, self._dice, self._earlier.facts(spec.name)))
        ended, shortage = None, None
        try:
            with self._pause.ending_resumed():
                self._run_phases(spec, state)
        except SessionEnded as found:
            ended, shortage = found.at(workload=found.evidence.workload or spec.name), self._blame.shortage(found)
        except Exception as error:  # tensors of the judge's own checks may not fit either
            if classify(error) is not CallFailure.MEMORY:
                raise
            ended = lacking_memory(error, Stage.TIME if state.timing.blocks else Stage.VERIFY).at(workload=spec.name)
            shortage = self._blame.shortage(ended)
        if ended is not None and shortage is not None:
            self._last = None
            ended = self._blame.decide(ended, shortage, state.forget_reference)
        self.labels += state.timing.session_labels
        self._timed = self._timed or bool(state.timing.blocks)
        if ended is not None and self._timed:
            ended = ended.once_timed()
        return state.report(Status.PASSED if ended is None else ended.status, self._flush_bytes), ended

    def _run_phases(self, spec: WorkloadSpec, state: WorkloadState) -> None:
        self._phases.enter("load")
        self.memory.forget_peaks(self._earlier.facts(spec.name).peaks)
        state.reference = self._prepare(spec)
        self._last = state
        self._verify_first(state, state.reference, state.verifier)
        if self._time and not spec.held_out:
            with making_room(self.memory, self._clients):
                self._time_all(state.reference, state)
                self._park(*self._clients)
                self._phases.enter("after")
                state.verifier.verify(state.reference, "after", 1)
        self._ask_for_peaks(state.claimed_memory_bytes)

    def trace(self) -> None:
        """Trace one more call of the candidate, if it must or does define kernels of its own, then one of each other.

        Raises:
            SessionEnded: ``no_own_kernel`` if one is required, kernels were seen, and none of them is its own.
        """
        wanted = self._job.require_own_kernel or bool(self._job.own_kernels)
        if not wanted or self._last is None or self._job.sanitize:
            return
        self._phases.enter("trace")
        try:
            self._look_for_own_kernels(self._last)
        except SessionEnded as found:
            raise (found.once_timed() if self._timed else found) from None
        if self.kernels:
            self._count_launches(self._last)

    def _count_launches(self, last: WorkloadState) -> None:
        """Count the kernels that one call of the baseline and of each rival launches, unless an earlier cell has."""
        known = self._earlier.facts(last.spec.name).launches
        for name, client in self._clients.items():
            if client.role is Role.CANDIDATE:
                continue
            if name not in known:
                with suppress(SessionEnded):  # everything is timed, and a call that fails now has no launches
                    known[name] = sum(launches for _name, launches, _ns in self._traced(client, last))
            if known.get(name):
                self.launches[name] = known[name]

    def _look_for_own_kernels(self, last: WorkloadState) -> None:
        for _ in range(TRACES):
            seen = self._traced(self._candidate, last)
            self.kernels = tuple(TracedKernel(*one, own=own(one[0], self._job.own_kernels)) for one in seen)
            if any(kernel.own for kernel in self.kernels):
                return
        # If no kernel was seen, tracing the baseline shows whether the tracer works.
        interpreted = INTERPRETED in self._job.labels
        if not self.kernels and not interpreted and not self._traced(self._baseline, last):
            self.labels.append(NO_TRACE)
        elif self._job.require_own_kernel:
            raise finding(Status.NO_OWN_KERNEL, Stage.VERIFY, self._kernels_that_ran())

    # ---- getting ready

    def _prepare(self, spec: WorkloadSpec) -> ReferenceModel:
        """Make the workload's reference, and a model in every contestant, all at the same time."""
        job, values = self._job, dict(spec.values)
        loading = [name for name, client in self._clients.items() if name not in self._loaded or _has_constants(client)]
        self._each(lambda client: client.start_load(values), loading)
        started = time.monotonic()
        reference: ReferenceModel = guarded(
            "the reference",
            Stage.LOAD,
            lambda: ReferenceModel(
                *(self._problem, spec.values, job.device, job.dtype, f"{job.seed}/{spec.name}"),
                properties=self._earlier.facts(spec.name).properties,
                ranks=job.ranks,
            ),
        )
        self._earlier.facts(spec.name).properties = reference.properties
        self._limit_loading(time.monotonic() - started)
        self._each(lambda client: client.finish_load(), loading)
        self._loaded += loading
        self._construct_all(reference)
        return reference

    def _construct_all(self, reference: ReferenceModel) -> None:
        """Construct all models at the same time, or, where memory is counted, the candidate's first and alone.

        The candidate is paused from then on, until the controls are over.
        """
        if not self.memory.known:
            self._each(lambda client: client.start_construct(reference, self._flush_bytes), list(self._clients))
            self._each(lambda client: client.finish_construct(), list(self._clients))
            return
        first = self._candidate.name
        for name in (first, *(name for name in list(self._clients) if name != first)):
            self._each(lambda client: self._construct(client, reference), [name])
            self._pause.pause()

    def _construct(self, client: WorkerClient, reference: ReferenceModel) -> None:
        with self.memory.turn(client.name, client.role, sampled=False):
            client.construct(reference, self._flush_bytes)

    def _each(self, step: Callable[[WorkerClient], None], names: Sequence[str]) -> None:
        """Call ``step`` with those of the named contestants that are still in the session.

        Raises:
            SessionEnded: The first that a contestant caused, after all have had their step: none is left with an answer
                that the judge has not read.
        """
        first: Optional[SessionEnded] = None
        for client in [self._clients[name] for name in names if name in self._clients]:
            try:
                with excused(client.contestant, self._clients, self.labels):
                    step(client)
            except SessionEnded as ended:  # noqa: PERF203  # the others have their step, too
                first = first or ended
        if first is not None:
            raise first

    def _limit_loading(self, reference_s: float) -> None:
        """Limit each step of getting ready by the time that the reference took, ``reference_s`` seconds."""
        if self._limits_waits:
            for client in self._clients.values():
                client.limit_loading(max(LOAD_S, LOAD_FACTOR * reference_s))

    # ---- one workload

    def _verify_first(self, state: WorkloadState, reference: ReferenceModel, verifier: Verifier) -> None:
        self._phases.enter("controls")
        with self.memory.judge_alone(), watching(self.memory, self._clients, Role.BASELINE, Role.RIVAL):
            verifier.controls(reference)
            self._call_rivals(reference, verifier)
            self._limit_calls(verifier)
        state.needed_memory_bytes = self._blame.needed_bytes(nbytes_of(reference.like))
        self._park(*(name for name in list(self._clients) if name != self._candidate.name))
        self._pause.resume()
        self._phases.enter("verify")
        with watching(self.memory, self._clients, Role.CANDIDATE):
            verifier.verify(reference, "before", self._job.protocol.trials)
        state.memory_bytes = self._peaks(reference)
        self._earlier.facts(state.spec.name).peaks.update(
            {name: self.memory.peak(name) for name in self._clients if name != self._candidate.name}
        )

    def _park(self, *names: str) -> None:
        """Let contestants give back all memory that they do not need until their next call, if it is counted."""
        if self.memory.known:
            self._each(lambda client: client.park(), names)

    def _peaks(self, reference: ReferenceModel) -> Dict[str, int]:
        """Return the most memory that each contestant took beyond what it was given and its outputs."""
        outputs = nbytes_of(reference.like)
        names = list(self._clients) if self.memory.known else []
        return {name: max(0, self.memory.peak(name) - self._clients[name].given_bytes - outputs) for name in names}

    def _ask_for_peaks(self, claims: Dict[str, int]) -> None:
        """Add each contestant's own claim of its peak, and let it give back what it does not use."""
        if not self.memory.known:
            return

        self._each(lambda client: client.give_back_memory(), list(self._clients))
        for name, client in self._clients.items():
            if client.claimed_peak is not None:
                claims[name] = client.claimed_peak

    def _takes_turns(self, reference: ReferenceModel) -> bool:
        """Return True if the device cannot hold buffers and temporaries of all contestants and the judge at once."""
        if not self.memory.known:
            return False
        load_platform(self._job.device).release_memory()
        temporaries = self.memory.peak(self._baseline.name) - self._baseline.given_bytes
        lent = sum(sum(client.lent_bytes) for client in self._clients.values())
        taken = sum(self.memory.peak(name) for name in self._clients)
        own = self.memory.judge_and_contexts + SUPPLIED_SETS * reference.call_bytes
        return own + lent + taken + DOUBLE * temporaries > self.memory.capacity

    def _call_rivals(self, reference: ReferenceModel, verifier: Verifier) -> None:
        """Call each rival once, which is when it takes its memory; the candidate is paused."""
        rivals = [name for name, client in self._clients.items() if client.role is Role.RIVAL and self.memory.known]
        if not rivals:
            return
        inputs = drawn_inputs(reference, InputMode.STANDARD, "rivals")

        def call(client: WorkerClient) -> None:
            client.deliver_drawn(inputs, reference.like, frugal=verifier.is_frugal)
            client.call(stage=Stage.VERIFY)

        self._each(call, rivals)

    def _limit_calls(self, verifier: Verifier) -> None:
        """Limit the candidate's calls by the baseline's time."""
        if not self._limits_waits:
            return
        if not self._baseline.is_lent:
            verifier.deliver_first(self._baseline)
        self._baseline.call(stage=Stage.VERIFY)  # not its first call, which may have loaded libraries
        if self._baseline.fastest_s is not None:
            self._candidate.limit_calls(max(LEAST_PATIENCE_S, SLOWEST_FACTOR * self._baseline.fastest_s))

    def _time_all(self, reference: ReferenceModel, state: WorkloadState) -> None:
        self._phases.enter("warm_up")
        protocol = self._timed_protocol(state.verifier)
        timer = Timer(
            reference,
            self._clients,
            protocol,
            self._dice,
            state.verifier,
            pause=self._pause,
            in_batches=self._in_batches,
            takes_turns=self._takes_turns(reference),
            frugal=state.verifier.is_frugal,
            watch=self._watch,
            counter=self._counter,
            is_quiet=self._quiet.wait,
            warmed_up=self._warmed_up,
        )
        state.timing = timer.timing
        if protocol is not self._job.protocol:
            state.timing.labels.append(NOT_REPLAYABLE)
        timer.run()
        self._hold_claims(state, timer)
        self._phases.enter("anchor")
        self.readings.after()

    def _timed_protocol(self, verifier: Verifier) -> ProtocolSpec:
        """Return the job's protocol, without replayed calls if the problem writes to its inputs, or memory is short."""
        protocol, cold = self._job.protocol, (Regime.COLD,)
        if not (self._job.mutates_inputs or verifier.is_frugal) or protocol.regimes == cold:
            return protocol
        return replace(protocol, regimes=cold)

    def _warmed_up(self) -> None:
        """Read the device before the session's first timed calls."""
        self._phases.enter("anchor")
        self.readings.before()
        self._phases.enter("time")

    def _hold_claims(self, state: WorkloadState, timer: Timer) -> None:
        """Check the candidate's claims against the judge's clock and the peak rates.

        Raises:
            SessionEnded: ``timing_mismatch``, if a second series of timed calls confirms the first.
        """
        state.two_clocks, words = self._held(state, state.timing)
        if words:  # without other batches, which accuse of nothing
            state.two_clocks, words = self._held(state, timer.run_again())
        if state.two_clocks.low_resolution:
            state.timing.labels.append(LOW_RESOLUTION)
        if words:
            raise finding(Status.TIMING_MISMATCH, Stage.TIME, f"the candidate's side {words}")

    def _held(self, state: WorkloadState, timing: TimedPhase) -> Tuple[TwoClocks, str]:
        handovers, device = timing.handovers, self._job.device
        two_clocks = hold_claims(
            timing.blocks,
            state.spec,
            self._job.peak,
            self._l2_bytes,
            handovers=handovers,
            deliveries=timing.deliveries,
            output_bytes=timing.output_bytes,
            device=device,
            batches=state.timing.batches if self._in_batches else None,
            batches_broken=state.timing.batches_broken,
        )
        return two_clocks, contradiction(two_clocks, timing.blocks, handovers=handovers, device=device)

    # ---- the trace

    def _traced(self, client: WorkerClient, state: WorkloadState) -> List[Tuple[str, int, int]]:
        """Return the kernels of one call of ``client``, whose outputs are checked like those of any call."""
        reference, verifier = state.reference, state.verifier
        if reference is None:
            return []
        inputs = drawn_inputs(reference, InputMode.STANDARD, "trace", client.name)
        client.deliver_drawn(inputs, reference.like, frugal=verifier.is_frugal)
        result, kernels = client.trace(Stage.VERIFY)
        expected = guarded("the reference", Stage.VERIFY, lambda: reference.expect(inputs.values))
        verifier.judge_timed(client, result, expected)
        return kernels

    def _kernels_that_ran(self) -> str:
        mine = ", ".join(self._job.own_kernels) or "none that could be found in it"
        ran = ", ".join(kernel.name for kernel in self.kernels[:3]) or "nothing"
        return f"no kernel that the source defines ran ({mine}); what ran: {ran}"[:500]


@dataclass
class WorkloadState:
    """Results of one workload so far."""

    spec: WorkloadSpec
    verifier: Verifier
    reference: Optional[ReferenceModel] = None
    precision: str = ""
    """The reference's precision for comparisons, once the reference is forgotten."""
    pieces: int = 1
    """In how many pieces it computed expected outputs, likewise."""
    memory_bytes: Dict[str, int] = field(default_factory=dict)
    needed_memory_bytes: Optional[int] = None
    claimed_memory_bytes: Dict[str, int] = field(default_factory=dict)
    timing: TimedPhase = field(default_factory=TimedPhase)
    two_clocks: Optional[TwoClocks] = None

    def forget_reference(self) -> None:
        """Free the reference and everything that was computed with it."""
        if self.reference is not None:
            self.precision, self.pieces = self.reference.precision, self.reference.pieces
        self.reference = None
        self.verifier.forget_reference()

    def report(self, status: Status, flush_bytes: int) -> WorkloadReport:
        """Make the report for the record."""
        spec, timing, verifier = self.spec, self.timing, self.verifier
        gaps = gaps_of(timing.blocks, Role.BASELINE, Regime.COLD).calls
        return WorkloadReport(
            name=spec.name,
            values=dict(spec.values),
            flops=spec.flops,
            bytes=spec.bytes,
            status=status,
            tolerance=verifier.tolerance.to_json(),
            reference_dtype=self.precision if self.reference is None else self.reference.precision,
            trials=tuple(verifier.trials),
            blocks=tuple(timing.blocks),
            batches=tuple(timing.batches),
            energies=tuple(timing.energies),
            warmup_calls=timing.warmup_calls,
            flush_bytes=flush_bytes,
            inputs=timing.inputs,
            checked_calls=timing.checked_calls,
            wall_overhead_ns=max(0, int(statistics.median(gaps))) if gaps else None,
            two_clocks=self.two_clocks,
            traits=verifier.traits,
            memory_bytes=self.memory_bytes,
            needed_memory_bytes=self.needed_memory_bytes,
            reference_pieces=self.pieces if self.reference is None else self.reference.pieces,
            claimed_memory_bytes=self.claimed_memory_bytes,
            labels=tuple(dict.fromkeys((*timing.labels, *verifier.labels))),
            held_out=spec.held_out,
            collective=spec.collective,
        )


def _of_role(clients: Mapping[str, WorkerClient], role: Role) -> WorkerClient:
    return next(client for client in clients.values() if client.role is role)


def _has_constants(client: WorkerClient) -> bool:
    """Return True if its source is a problem's, whose constants differ between workloads."""
    return client.contestant.entry == "Model"
