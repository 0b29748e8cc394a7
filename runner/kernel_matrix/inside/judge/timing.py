"""Timed calls: interleaved blocks, fresh inputs, random counts, every sample kept.

Warm-up, timed and checked calls use the same protocol and frames: fresh inputs arrive, outputs are poisoned, one call
runs, outputs are taken. The number of each is derived from the judge's secret.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Optional, Sequence, Set

from kernel_matrix.inside.batch_times import FEWEST, call_times, median_interval
from kernel_matrix.inside.exception_kinds import classify
from kernel_matrix.inside.input_generation import nbytes_of
from kernel_matrix.inside.judge.batches import CAPTURED_BELOW_NS, NoBatchesError, OutputsElsewhereError, batches_of
from kernel_matrix.inside.judge.energy_counter import NO_ENERGY, measure_energy
from kernel_matrix.inside.judge.input_supply import FRESH, InputSupply
from kernel_matrix.inside.judge.memory_blame import SHORTAGES
from kernel_matrix.inside.judge.pause import NOT_PAUSED
from kernel_matrix.inside.judge.replay_modes import NOT_CAPTURABLE, BlockPlan, plan_of
from kernel_matrix.inside.judge.session_ended import SessionEnded, excused, finding
from kernel_matrix.inside.judge.warm_up import UNKNOWN, UNSTEADY, SensorWatch
from kernel_matrix.inside.wire import CallFailure
from kernel_matrix.model.enums import Implementation, Regime, Role, Stage, Status
from kernel_matrix.model.messages import DEVICE_STAYS_BUSY, BatchBlock, Block, EnergyReading, ProtocolSpec

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.batches import Batches, BatchResult
    from kernel_matrix.inside.judge.pause import CandidatePause
    from kernel_matrix.inside.judge.reference import ReferenceModel
    from kernel_matrix.inside.judge.verification import Verifier
    from kernel_matrix.inside.judge.worker_client import CallResult, CallTimes, WorkerClient
    from kernel_matrix.inside.platform import EnergyCounter

WARM_S = 0.15  # warm-up calls that took this long suffice, however few: long kernels warm up a device in few calls
FEWEST_WARM = 3  # least number of warm-up rounds
CHECK_S = 0.02  # if comparing one call's outputs takes longer than this, fewer calls are compared
SPOT_SHARE = 0.25  # share of the candidate's other timed calls that are compared at some places
COSTLY_S = 0.4  # after this time for single calls a part of `min_samples` suffices, if the medians are precise by then
COSTLY_SHARE = 4  # which is one in so many
# Average number of full comparisons, however long they take, among as few calls as suffice for costly ones; a wrong
# result must not go unseen.
FEWEST_CHECKS = 1
# If a call's inputs and outputs are at most this large, they move to other memory in each round of blocks. Their place
# decides which parts of a GPU's cache they share, and made identical code differ by up to 5 %.
MOVED_BYTES = 1 << 30

LONG_BATCHES = 2  # of one contestant in a row
SHORT_BATCHES = 2  # of the baseline, after each block of long ones
# When the time for precision is over, this many of each side suffice: their interval leaves out two at each end, which
# may have been disturbed. After LATEST_BATCHES_S more seconds the fewest that have an interval suffice.
ENOUGH_BATCHES = 12
LATEST_BATCHES_S = 1.0
COMPARED = 3  # calls of a batch that are compared with the reference
BUDGET_REACHED = "budget_reached"  # label: the time for precision ended before times were precise enough
NO_BATCHES = "no_batches"  # label: batches were impossible, or there was too little memory for them
HOST_BOUND = "host_bound"  # label: short calls could not be captured, so the time of a call includes launching it

FEWEST_ROUNDS = 3  # fewer rounds do not show how much rounds differ
# Degrees of freedom → Student's t at 97.5 %. From ten on, 1.96 + 2.5 ÷ degrees is within 1 %.
_T_QUANTILES = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


@dataclass
class TimedPhase:
    """Results of a workload's timed phase."""

    blocks: List[Block] = field(default_factory=list)
    batches: List[BatchBlock] = field(default_factory=list)
    energies: List[EnergyReading] = field(default_factory=list)
    batches_broken: bool = False
    """They ended early: memory ran out, or an output was elsewhere. A candidate can bring that about, so nothing can be
    concluded in its favour."""
    handovers: Dict[str, List[int]] = field(default_factory=dict)
    """Contestant → times of handing over the outputs of ``cold`` timed calls, nanoseconds."""
    deliveries: Dict[str, List[int]] = field(default_factory=dict)
    """Contestant → times of delivering their inputs, nanoseconds."""
    output_bytes: int = 0
    """Bytes of one call's outputs."""
    inputs: str = FRESH
    """Kind of the inputs, as in :attr:`InputSupply.kind`."""
    warmup_calls: int = 0
    checked_calls: int = 0
    labels: List[str] = field(default_factory=list)
    session_labels: List[str] = field(default_factory=list)
    """Labels that concern the whole session: of rivals that failed."""

    def add(self, later: TimedPhase) -> None:
        """Append the results of a later series."""
        self.blocks += later.blocks
        self.batches += later.batches
        self.energies += later.energies
        for mine, theirs in ((self.handovers, later.handovers), (self.deliveries, later.deliveries)):
            for name, times in theirs.items():
                mine.setdefault(name, []).extend(times)
        self.checked_calls += later.checked_calls
        self.labels += [label for label in later.labels if label not in self.labels]
        self.session_labels += later.session_labels


class CheckShare:
    """Random choice of the calls that are compared in full; fewer of them if comparisons take long."""

    def __init__(self, protocol: ProtocolSpec, dice: random.Random) -> None:
        self._asked = protocol.check_share
        self._least = min(self._asked, FEWEST_CHECKS * COSTLY_SHARE / protocol.min_samples)
        self._dice = dice
        self._slowest_s = CHECK_S

    def due(self) -> bool:
        """Return True if the next call is to be compared."""
        share = max(self._least, self._asked * CHECK_S / self._slowest_s)
        return self._dice.random() < share

    def took(self, seconds: float) -> None:
        """Record the time of one comparison, including the reference's own run."""
        self._slowest_s = max(self._slowest_s, seconds)


class Timer:
    """Runner of the timed phase of one workload over all contestants."""

    def __init__(
        self,
        reference: ReferenceModel,
        clients: Dict[str, WorkerClient],
        protocol: ProtocolSpec,
        dice: random.Random,
        verifier: Verifier,
        *,
        pause: CandidatePause,
        in_batches: bool = False,
        takes_turns: bool = False,
        frugal: bool = False,
        watch: Optional[SensorWatch] = None,
        counter: Optional[EnergyCounter] = None,
        is_quiet: Callable[[], bool] = lambda: True,
        warmed_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the timed phase; a rival that fails is removed from ``clients``.

        ``pause`` stops the candidate while others are timed. ``in_batches`` asks for batches, too. With ``takes_turns``
        only one contestant at a time has buffers and temporaries, because the device cannot hold those of all; there
        are no batches then. If ``frugal``, it has them during a call only, and the judge has little beside them.
        ``watch`` tells when the device is steady; without it, the device counts as warm after the warm-up calls.
        ``counter`` is read while calls keep the device busy. ``is_quiet`` waits until the device does nothing, and
        returns False if it stays busy.
        """
        self._protocol = protocol
        self._clients = clients
        self._main = [name for name, client in clients.items() if client.role is not Role.RIVAL]
        self._dice = dice
        self._verifier = verifier
        self._pause = pause
        takes_turns = takes_turns or frugal
        # Where batches give the time of a call, single calls need not be precise.
        self._batches_to_come = in_batches and not takes_turns
        self._in_batches = in_batches
        self._takes_turns = takes_turns
        self._frugal = frugal
        self._present: Optional[WorkerClient] = None  # the one that has memory, if they take turns
        self._watch = watch
        self._counter = counter
        self._is_quiet = is_quiet
        self._warmed_up = warmed_up
        self._reference = reference
        self._supply = InputSupply(reference, protocol, dice, keeps=not frugal)
        self._checks = CheckShare(protocol, dice)
        # Drawn at random, so that a candidate cannot tell the last call by counting.
        self._fewest = protocol.min_samples + dice.randrange(max(1, protocol.min_samples // 10))
        self._blocks_begun = 0
        self._without_batches: Set[str] = set()  # rivals that take no part in batches
        self._switching_s = 0.0  # time spent on changes of turn, which the budget does not pay for
        self.timing = TimedPhase()

    def run(self) -> TimedPhase:
        """Warm up, then time ``cold`` blocks, those of the other regimes, and batches.

        Without batches there are more ``cold`` blocks in their place, until these are precise enough.

        Raises:
            SessionEnded: If a checked call is wrong, or the candidate or the baseline fails. Blocks timed before that
                are in :attr:`timing`.
        """
        self.timing.inputs = self._supply.kind
        self.timing.output_bytes = nbytes_of(self._reference.like)
        self._warm_up()
        self._warmed_up()
        self._time_regimes()
        if self._in_batches:
            with self._turns():
                self._try_batches()
                if self._batches_to_come and not self.timing.batches:
                    self._batches_to_come = False
                    self._time_cold(self._now() + self._protocol.budget_s)
        return self.timing

    def run_again(self) -> TimedPhase:
        """Time again without warming up; return the new results, which are also added to :attr:`timing`.

        This confirms a claim that looks false, since on a busy host this may happen by chance.

        Raises:
            SessionEnded: As in :meth:`run`.
        """
        before, self.timing = self.timing, TimedPhase(output_bytes=self.timing.output_bytes, inputs=self.timing.inputs)
        again = self.timing
        try:
            self._time_regimes()
        finally:
            self.timing = before
            self.timing.add(again)
            self._forget_removed()
        return again

    def _time_regimes(self) -> None:
        with self._turns():
            self._time_cold(self._now() + self._protocol.budget_s)
            for regime in self._protocol.regimes:
                if regime is not Regime.COLD:
                    self._time_replays(regime)

    @contextmanager
    def _turns(self) -> Iterator[None]:
        """Let contestants run in turns inside; label what could not be paused."""
        with self._pause.ending_resumed():
            yield
            self._end_others_turn()
        if not self._pause.works and NOT_PAUSED not in self.timing.labels:
            self.timing.labels.append(NOT_PAUSED)

    # ---- warming up

    def _warm_up(self) -> None:
        """Make the protocol's warm-up calls, then more until the device is steady."""
        self._warm_up_once()  # outside of the time budget, since rivals may compile in their first call
        deadline = time.monotonic() + self._protocol.budget_s
        if self._watch is not None:
            self._watch.start()
        warm_at = time.monotonic() + WARM_S
        for done in range(self._protocol.warmup_calls - 1 + self._dice.randrange(4)):
            now = time.monotonic()
            if now > deadline or (now > warm_at and done >= FEWEST_WARM):
                break
            self._warm_up_once()
        if self._watch is not None:
            self._steady(self._watch, min(deadline, time.monotonic() + self._protocol.steady_cap_s))

    def _steady(self, watch: SensorWatch, deadline: float) -> None:
        while not watch.steady():
            if watch.blind or time.monotonic() > deadline:
                self.timing.labels.append(UNKNOWN if watch.blind else UNSTEADY)
                return
            self._warm_up_once()

    def _warm_up_once(self) -> None:
        for client in list(self._clients.values()):
            with self._tolerating_rival(client):
                self._make_room(client)
                self._call(client)
            if self._watch is not None:
                self._watch.steady()
        self.timing.warmup_calls += 1

    # ---- single calls

    def _time_cold(self, deadline: float) -> None:
        """Time rounds of blocks until they are precise enough, or until the time for precision or the budget is spent.

        Where batches follow, ``min_samples`` are enough, however precise. After the budget each block still gets one
        call, so that slow candidates are timed too, evenly interleaved.
        """
        enough = False
        costly_at = self._now() + COSTLY_S
        while True:
            self._move()
            least = math.inf if enough else self._least_samples(costly=self._now() > costly_at)
            for name in self._round():
                self._block(name, deadline, self._calls_due(name, least))
            if not enough and self._samples() >= self._least_samples(costly=self._now() > costly_at):
                enough = True
                deadline = min(deadline, self._now() + self._protocol.precision_s)
            if enough and (self._batches_to_come or self._precise() or self._samples() >= self._protocol.max_samples):
                return
            if self._now() > deadline:
                self.timing.labels.append(BUDGET_REACHED if enough else "too_few_samples")
                return

    def _move(self) -> None:
        """Move all buffers to other memory; the first call there is a timed one like any other."""
        if self._reference.platform.IS_ACCELERATOR and self._reference.call_bytes <= MOVED_BYTES:
            for client in self._clients.values():
                client.lend_elsewhere()

    def _round(self) -> List[str]:
        """Return the order of a round: A B B A over candidate and baseline, then each rival once."""
        first, second = self._dice.sample(self._main, 2)
        rivals = [name for name in self._clients if name not in self._main]
        self._dice.shuffle(rivals)
        return [first, second, second, first, *rivals]

    def _block(self, name: str, deadline: float, calls: int) -> None:
        client = self._clients[name]
        with self._recording(client, Regime.COLD, 1) as times:
            while not times or (len(times) < calls and self._now() <= deadline):
                times.append(self._call(client))
            self.timing.handovers.setdefault(name, []).extend(call.handover_ns for call in times)
            self.timing.deliveries.setdefault(name, []).extend(call.delivered_ns for call in times)

    def _calls_due(self, name: str, least: float) -> int:
        """Draw the number of calls in the next block, no more than are missing of ``least``."""
        calls = max(1, self._protocol.block_calls + self._dice.randrange(-2, 3))
        return int(max(1, min(calls, least - len(samples_of(self.timing.blocks, name)))))

    def _call(self, client: WorkerClient) -> CallTimes:
        return self._ask(client, lambda: client.call(stage=Stage.TIME)).times

    # ---- replayed calls

    def _time_replays(self, regime: Regime) -> None:
        """Time one round of blocks whose samples are means over calls replayed back to back."""
        blocks = self.timing.blocks
        plans = {name: plan_of(regime, statistics.median(samples_of(blocks, name))) for name in self._clients}
        for name, plan in plans.items():
            client = self._clients[name]
            self._give_turn(client)
            with self._tolerating_rival(client):
                self._replay(client, plan)  # untimed: the first replay on these buffers captures the graph
        for name in self._round():
            self._replay_block(name, plans[name])

    def _replay_block(self, name: str, plan: BlockPlan) -> None:
        client = self._clients[name]
        with self._recording(client, plan.regime, plan.calls) as times:
            self._keep_busy(client, plan)
            self._measure_energy(client, plan)
            times.extend(self._replay(client, plan) for _ in range(plan.samples))

    def _keep_busy(self, client: WorkerClient, plan: BlockPlan) -> None:
        """Replay on the present inputs until the plan's lead time is over."""
        left_ns = plan.lead_s * 1e9
        while left_ns > 0:
            left_ns -= max(1, client.replay(plan.calls, Stage.TIME).times.wall_ns)

    def _measure_energy(self, client: WorkerClient, plan: BlockPlan) -> None:
        """Read the energy counter while calls like those before go on, if the regime keeps the device busy."""
        if not plan.lead_s or not self._reference.platform.IS_ACCELERATOR:
            return

        def make_calls() -> int:
            client.replay(plan.calls, Stage.TIME)
            return plan.calls

        reading = None if self._counter is None else measure_energy(self._counter, client.name, make_calls)
        if reading is not None:
            self.timing.energies.append(reading)
        elif NO_ENERGY not in self.timing.labels:
            self.timing.labels.append(NO_ENERGY)

    def _replay(self, client: WorkerClient, plan: BlockPlan) -> CallTimes:
        def replay() -> CallResult:
            time.sleep(plan.rest_s)
            return client.replay(plan.calls, Stage.TIME)

        result = self._ask(client, replay)
        label = f"{NOT_CAPTURABLE}:{client.name}"
        if self._reference.platform.IS_ACCELERATOR and not result.claim.captured and label not in self.timing.labels:
            self.timing.labels.append(label)
        return result.times

    # ---- batches

    def _try_batches(self) -> None:
        """Time batches, unless there is too little memory for them, for which no contestant is blamed."""
        try:
            self._time_batches()
        except NoBatchesError:
            pass
        except OutputsElsewhereError:
            self.timing.batches_broken = True
        except SessionEnded as ended:
            if ended.status not in SHORTAGES:
                raise
            self.timing.batches_broken = True
        except Exception as error:  # the judge's own tensors
            if classify(error) is not CallFailure.MEMORY:
                raise
            self.timing.batches_broken = True
        else:
            return
        self.timing.batches.clear()
        self.timing.labels.append(NO_BATCHES)

    def _time_batches(self) -> None:
        """Time rounds of batches until the times per call are precise enough, or the time for precision is spent."""
        if self._takes_turns:
            raise NoBatchesError
        call_ns = min(statistics.median(samples_of(self.timing.blocks, name)) for name in self._main)
        for client in self._clients.values():
            client.take_back()  # both kinds of buffers need not fit into memory together
        slowest_ns = max(statistics.median(cold_walls(self.timing.blocks, name)) for name in self._clients)
        prepared = batches_of(
            self._reference, self._supply, self._dice, call_ns, slowest_ns, contestants=len(self._clients)
        )
        with closing(prepared) as batches:
            captured = self._lend_batches(batches, capture=call_ns < CAPTURED_BELOW_NS)
            deadline = self._now() + self._protocol.precision_s
            while not self._batches_suffice(deadline):
                for name in self._round():
                    self._time_batches_of(self._clients[name], batches, captured=captured)
        if self._batches_half_width() > self._protocol.target_half_width:
            self.timing.labels.append(BUDGET_REACHED)

    def _lend_batches(self, batches: Batches, *, capture: bool) -> bool:
        """Lend memory for batches to all; return True if their calls are captured: those of all sides, or of none."""
        failed = []
        for name in list(self._clients):
            client = self._clients[name]
            self._give_turn(client)
            with self._tolerating_rival(client):
                if not batches.lend(client, capture=capture) and capture:
                    failed.append(name)
        if any(name in self._main for name in failed):
            self.timing.labels.append(HOST_BOUND)
            return self._lend_batches(batches, capture=False)
        self._without_batches = set(failed)
        for client in [self._clients[name] for name in list(self._clients) if name not in failed]:
            self._give_turn(client)
            with self._tolerating_rival(client), self._leaving_rival_out(client):
                self._batch(client, batches, batches.draw_length())  # untimed: libraries load code in a first one
        return capture

    def _time_batches_of(self, client: WorkerClient, batches: Batches, *, captured: bool) -> None:
        """Make a block of long batches, and for the baseline one of short batches, too."""
        if client.name in self._without_batches:
            return  # no time that could be compared
        self._give_turn(client)
        with self._tolerating_rival(client), self._leaving_rival_out(client):
            lengths = [batches.draw_length() for _ in range(LONG_BATCHES)]
            self.timing.batches.append(self._batch_block(client, batches, lengths, captured=captured))
            if client.role is Role.BASELINE:
                self.timing.batches.append(
                    self._batch_block(client, batches, [1] * SHORT_BATCHES, captured=captured, short=True)
                )

    @contextmanager
    def _leaving_rival_out(self, client: WorkerClient) -> Iterator[None]:
        """Go on without the batches of a rival one of whose outputs lies elsewhere than in its first one."""
        try:
            yield
        except OutputsElsewhereError:
            if client.role is not Role.RIVAL:
                raise
            self._without_batches.add(client.name)
            self.timing.batches[:] = [block for block in self.timing.batches if block.contestant != client.name]

    def _batch_block(
        self, client: WorkerClient, batches: Batches, lengths: Sequence[int], *, captured: bool, short: bool = False
    ) -> BatchBlock:
        started_ns = time.monotonic_ns()
        made = [self._batch(client, batches, length) for length in lengths]
        return block_of(client.name, made, started_ns, captured=captured, short=short)

    def _batch(self, client: WorkerClient, batches: Batches, chunks: int) -> BatchResult:
        """Make one batch and check its outputs: all of them at some places, those of a few calls further."""
        batch = batches.call(client, chunks)
        if batch.inputs is not None:
            for number in batch.numbers:
                self._verifier.glance(client, batches.result_of(batch, number)[0])
        self._verifier.glance(client, batches.result_of_all(batch))
        if client.role is Role.BASELINE:
            return batch
        for number in self._dice.sample(batch.numbers, min(COMPARED, batch.calls)):
            result, inputs = batches.result_of(batch, number)
            if self._checks.due():
                started = time.monotonic()
                self._verifier.judge_timed(client, result, self._reference.expect(inputs))
                self._checks.took(time.monotonic() - started)
                self.timing.checked_calls += client.role is Role.CANDIDATE
            else:
                self._verifier.spot(client, result, self._reference, inputs)
        return batch

    def _batches_suffice(self, deadline: float) -> bool:
        """Return True if both sides' times are precise enough, or have an interval and the time is over."""
        made = min(map(len, self._batch_times()))
        if made < FEWEST:
            return False
        late_s = self._now() - deadline
        if late_s > 0 and (made >= ENOUGH_BATCHES or late_s > LATEST_BATCHES_S):
            return True
        return self._batches_half_width() <= self._protocol.target_half_width

    def _batches_half_width(self) -> float:
        """Return half the width of the interval of a time per call, as a share of it; of the less precise side."""
        return max(median_interval(times).half_width for times in self._batch_times())

    def _batch_times(self) -> List[List[float]]:
        """Return candidate's and baseline's times per call, one per batch, nanoseconds."""
        return [call_times(self.timing.batches, name, Implementation.EAGER.value) for name in self._main]

    # ---- both

    def _ask(self, client: WorkerClient, ask: Callable[[], CallResult]) -> CallResult:
        """Deliver fresh inputs, make the call with ``ask``, and check the outputs.

        The check is chosen only when the outputs are out of the worker's reach: what happens before a call, and from
        its end until they are taken, is the same whatever is chosen.
        """
        inputs = self._supply.next_drawn()
        client.deliver_drawn(inputs, self._reference.like, frugal=self._frugal)
        result = ask()
        # The controls have compared the baseline with the reference, and it is not hostile.
        if client.role is Role.BASELINE:
            self._verifier.glance(client, result)
        elif self._checks.due():
            started = time.monotonic()
            self._verifier.judge_timed(client, result, self._reference.expect(inputs.values))
            self._checks.took(time.monotonic() - started)
            self.timing.checked_calls += client.role is Role.CANDIDATE
        elif self._dice.random() < SPOT_SHARE:
            self._verifier.spot(client, result, self._reference, inputs.values)
        else:
            self._verifier.glance(client, result)
        return result

    @contextmanager
    def _recording(self, client: WorkerClient, regime: Regime, calls: int) -> Iterator[List[CallTimes]]:
        """Record a block of the times that the caller adds to the list; no block for a rival that fails."""
        times: List[CallTimes] = []
        self._give_turn(client)
        started = time.monotonic_ns()
        with self._tolerating_rival(client):
            yield times
            block = Block(
                role=client.role,
                contestant=client.name,
                regime=regime,
                calls_per_sample=calls,
                index=self._blocks_begun,
                started_ns=started,
                ended_ns=time.monotonic_ns(),
                device_ns=tuple(round(call.device_ns / calls) for call in times),
                wall_ns=tuple(round(call.wall_ns / calls) for call in times),
            )
            self.timing.blocks.append(block)
        self._blocks_begun += 1

    def _give_turn(self, client: WorkerClient) -> None:
        """Let the candidate run in its own blocks only.

        Raises:
            SessionEnded: ``timing_mismatch`` if the device stays busy though the candidate is paused.
        """
        started = time.monotonic()
        if client.role is Role.CANDIDATE:
            self._end_others_turn()
            self._pause.resume()
        is_new = self._make_room(client)
        if client.role is not Role.CANDIDATE:
            self._pause.pause()
            self._check_quiet()
        if is_new and not self._frugal:
            with self._tolerating_rival(client):
                self._call(client)  # untimed: takes the memory again
        self._switching_s += time.monotonic() - started

    def _end_others_turn(self) -> None:
        """Check after a turn of others, too: work of the candidate may have begun within it."""
        if self._pause.is_paused:
            self._check_quiet()

    def _check_quiet(self) -> None:
        """Check that the device is idle while the candidate is paused, between the calls of others.

        Raises:
            SessionEnded: ``timing_mismatch``.
        """
        if not self._is_quiet():
            message = f"{DEVICE_STAYS_BUSY}: work that the candidate has queued goes on"
            raise finding(Status.TIMING_MISMATCH, Stage.TIME, message)

    def _make_room(self, client: WorkerClient) -> bool:
        """Let the contestant that has memory give it back for ``client``; return False if nothing had to change."""
        before = self._present
        if not self._takes_turns or before is client:
            return False
        if before is not None and before.name in self._clients:
            with self._tolerating_rival(before):
                before.park()
        self._present = client
        return True

    def _now(self) -> float:
        """Return the monotonic time, seconds, without what changes of turn have taken."""
        return time.monotonic() - self._switching_s

    @contextmanager
    def _tolerating_rival(self, client: WorkerClient) -> Iterator[None]:
        """Remove a rival that fails, together with its times."""
        with excused(client.contestant, self._clients, self.timing.session_labels):
            yield
        if client.name not in self._clients:
            self._forget_removed()

    def _forget_removed(self) -> None:
        self.timing.blocks[:] = [block for block in self.timing.blocks if block.contestant in self._clients]
        self.timing.batches[:] = [block for block in self.timing.batches if block.contestant in self._clients]
        self.timing.energies[:] = [reading for reading in self.timing.energies if reading.contestant in self._clients]

    def _samples(self) -> int:
        return min(len(samples_of(self.timing.blocks, name)) for name in self._main)

    def _least_samples(self, *, costly: bool) -> int:
        """Return how many samples each side needs.

        Fewer suffice if calls are costly, and batches follow or the medians are precise by then.
        """
        few = self._fewest // COSTLY_SHARE
        suffice = self._samples() < few or self._batches_to_come or self._precise()
        return few if costly and suffice else self._fewest

    def _precise(self) -> bool:
        blocks = self.timing.blocks
        by_call = (relative_half_width(samples_of(blocks, name)) for name in self._main)
        by_round = (round_half_width(blocks, name) for name in self._main)
        return max(*by_call, *by_round) <= self._protocol.target_half_width


def block_of(
    contestant: str, made: Sequence[BatchResult], started_ns: int, *, captured: bool, short: bool
) -> BatchBlock:
    """Return the block of batches that ``contestant`` has made since ``started_ns``."""
    return BatchBlock(
        contestant=contestant,
        started_ns=started_ns,
        ended_ns=time.monotonic_ns(),
        captured=captured,
        short=short,
        calls=tuple(batch.calls for batch in made),
        delivered_ns=tuple(batch.times.delivered_ns for batch in made),
        least_ns=tuple(batch.times.least_ns for batch in made),
        wall_ns=tuple(batch.times.wall_ns for batch in made),
        handover_ns=tuple(batch.times.handover_ns for batch in made),
        in_place=all(batch.in_place for batch in made),
    )


def samples_of(blocks: Sequence[Block], contestant: str) -> List[int]:
    """Return all device times of a contestant's ``cold`` calls, nanoseconds, in order."""
    chosen = [block for block in blocks if block.contestant == contestant and block.regime is Regime.COLD]
    return [sample for block in chosen for sample in block.device_ns]


def cold_walls(blocks: Sequence[Block], contestant: str) -> List[int]:
    """Return the times of a contestant's ``cold`` calls by the judge's clock, nanoseconds, in order."""
    chosen = [block for block in blocks if block.contestant == contestant and block.regime is Regime.COLD]
    return [wall for block in chosen for wall in block.wall_ns]


def round_half_width(blocks: Sequence[Block], contestant: str) -> float:
    """Return half the width of the 95 % t interval of a contestant's mean over rounds, as a share of the mean.

    Rounds are those of ``cold`` blocks. All calls of one round use the same buffers, whose place may change a time more
    than it varies from call to call. With fewer than :data:`FEWEST_ROUNDS` it is 0, since the protocol asks for no
    more.
    """
    chosen = [block for block in blocks if block.contestant == contestant and block.regime is Regime.COLD]
    medians = [statistics.median(block.device_ns) for block in chosen]
    rounds = [(first + second) / 2 for first, second in zip(medians[::2], medians[1::2])]
    if len(rounds) < FEWEST_ROUNDS:
        return 0.0
    middle, degrees = statistics.fmean(rounds), len(rounds) - 1
    quantile = _T_QUANTILES.get(degrees, 1.96 + 2.5 / degrees)
    return quantile * statistics.stdev(rounds) / math.sqrt(len(rounds)) / middle if middle else 0.0


def relative_half_width(samples: Sequence[int]) -> float:
    """Return half the width of the median's distribution-free 95 % interval, as a share of the median.

    It covers the noise within this session only.
    """
    if len(samples) < FEWEST:
        return math.inf
    found = median_interval(samples)
    return found.half_width if found.estimate else 0.0
