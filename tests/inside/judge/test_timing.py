"""The timed phase: interleaving, counts, budget, checks, rivals and the regimes of replayed calls."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import itertools
import math
import random
import statistics
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.batch_times import FEWEST, call_times
from kernel_matrix.inside.judge import timing as timing_module
from kernel_matrix.inside.judge.batches import CAPTURED_BELOW_NS, NoBatchesError, OutputsElsewhereError
from kernel_matrix.inside.judge.session_ended import SessionEnded, finding
from kernel_matrix.inside.judge.timing import (
    CHECK_S,
    COMPARED,
    COSTLY_S,
    FEWEST_WARM,
    MOVED_BYTES,
    SPOT_SHARE,
    CheckShare,
    TimedPhase,
    Timer,
    relative_half_width,
    round_half_width,
    samples_of,
)
from kernel_matrix.inside.judge.warm_up import WINDOW_S, SensorWatch
from kernel_matrix.inside.judge.worker_client import CallResult, CallTimes
from kernel_matrix.inside.platform import SensorError, load_platform
from kernel_matrix.inside.wire import OutputsClaim, Structure
from kernel_matrix.model.enums import InputMode, Regime, Role, Stage, Status
from kernel_matrix.model.messages import Block, ContestantSpec, EnergyReading, ProtocolSpec

pytestmark = pytest.mark.torch

BASELINE, CANDIDATE, RIVAL = Role.BASELINE, Role.CANDIDATE, Role.RIVAL
ROLES = {"eager": BASELINE, "candidate": CANDIDATE, "compile": RIVAL, "library": RIVAL}
US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000
CLAIM = OutputsClaim(Structure.TENSOR, ())
CAPTURED = OutputsClaim(Structure.TENSOR, (), captured=True)
PROTOCOL = ProtocolSpec(warmup_calls=4, min_samples=20, max_samples=60, budget_s=10.0, block_calls=5)


# --- precision -------------------------------------------------------------------------------------------------------


def test_the_half_width_of_a_known_sample():
    samples = list(range(1000, 1100))
    random.Random(1).shuffle(samples)
    # n = 100: ranks 40 and 61, the classic table's 95 % interval of a median.
    assert relative_half_width(samples) == (1060 - 1039) / 2 / 1049.5


def test_half_width_equal_samples_is_zero_and_few_infinite():
    assert relative_half_width([5] * 8) == 0.0
    assert relative_half_width([5] * 7) == math.inf
    assert relative_half_width([]) == math.inf
    assert relative_half_width([0] * 50) == 0.0


@pytest.mark.parametrize("count", [8, 9, 10, 20, 50, 51, 100, 400])
def test_the_interval_covers_the_median_as_often_as_it_claims(count):
    ranks = [10**12 + rank for rank in range(count)]
    width = round(relative_half_width(ranks) * 2 * statistics.median(ranks))
    low = (count - 1 - width) // 2
    assert width == count - 1 - 2 * low, "the interval lies even about the median"
    covered = sum(math.comb(count, below) for below in range(low + 1, count - low)) / 2**count
    assert 0.95 <= covered < 0.999


def test_noise_widens_the_interval_and_more_samples_narrow_it():
    dice = random.Random(3)
    quiet = [round(1e6 * dice.gauss(1, 0.001)) for _ in range(100)]
    loud = [round(1e6 * dice.gauss(1, 0.1)) for _ in range(100)]
    more = [round(1e6 * dice.gauss(1, 0.1)) for _ in range(3000)]
    assert relative_half_width(quiet) < 0.001 < relative_half_width(more) < relative_half_width(loud)


def blocks_of(*rounds):
    """Make two blocks of the candidate per round, each of five equal calls, and the baseline's between them."""
    made = [Block(CANDIDATE, 0, 0, 1, (ns,) * 5, (ns,) * 5, contestant="candidate") for ns in rounds for _ in range(2)]
    other = Block(BASELINE, 0, 0, 1, (7,) * 5, (7,) * 5, contestant="eager")
    return [block for one in made for block in (one, other)]


@pytest.mark.parametrize("count", [3, 5, 10, 11, 30])
def test_rounds_that_differ_are_known_by_their_t_interval(count):
    special = pytest.importorskip("scipy.special", reason="scipy is not installed")
    dice = random.Random(count)
    rounds = [round(MS * dice.gauss(1, 0.02)) for _ in range(count)]
    reach = special.stdtrit(count - 1, 0.975) * statistics.stdev(rounds) / math.sqrt(count)
    assert round_half_width(blocks_of(*rounds), "candidate") == pytest.approx(
        reach / statistics.fmean(rounds), rel=0.01
    )
    assert round_half_width(blocks_of(*rounds), "eager") == 0.0


def test_fewer_than_three_rounds_are_taken_at_their_word():
    assert round_half_width(blocks_of(100, 900), "candidate") == 0.0
    assert round_half_width(blocks_of(100, 900, 500), "candidate") > 1
    assert round_half_width([], "candidate") == 0.0


# --- the timer, over contestants that run nothing ------------------------------------------------------------------


class Clock:
    """A clock that moves only when a call is made, or the timer sleeps."""

    def __init__(self):
        self.ns = SECOND

    def monotonic_ns(self):
        return self.ns

    def monotonic(self):
        return self.ns / 1e9

    def sleep(self, seconds):
        self.ns += round(seconds * 1e9)


class FakeReference:
    def __init__(self, clock, log, device, expect_ns):
        self.platform = load_platform(device)
        self.call_bytes = 4
        self.like = (torch.empty(3, 5, device="meta"), torch.empty(2, dtype=torch.int64, device="meta"))
        self.drawn = []
        self.expected = 0
        self._clock = clock
        self._log = log
        self._expect_ns = expect_ns

    def draw(self, mode, *purpose):
        self.drawn.append((mode, *purpose))
        return list(purpose)

    def expect(self, inputs):
        self.expected += 1
        self._clock.ns += self._expect_ns
        return SimpleNamespace(inputs=inputs, calls_made=len(self._log))


class FakeSide:
    """Takes ``call_ns`` per call on its clock and records its orders."""

    def __init__(self, name, log, clock, pause, call_ns):
        self.name = name
        self.role = ROLES[name]
        self.contestant = ContestantSpec(name, self.role, "source.py", "Model")
        self._log = log
        self._clock = clock
        self._call_ns = call_ns
        self._pause = pause
        self.calls_while_paused = []
        """Per call, whether the candidate was paused."""
        self._calls = 0
        self._delivered = None
        self.replayed = []
        self.moved_before = []
        self.frugal = []
        self.parked = 0
        self.taken_back = 0
        self.claim = CAPTURED

    def take_back(self):
        self.taken_back += 1

    def park(self):
        self.parked += 1

    def lend_elsewhere(self):
        self.moved_before.append(self._calls)

    def deliver(self, inputs, like):
        self._delivered = (self.name, inputs, like)

    def deliver_drawn(self, inputs, like, *, frugal):
        self.deliver(inputs.values, like)
        self.frugal.append(frugal)

    def call(self, *, stage):
        return self._take(1, stage, CLAIM)

    def replay(self, count, stage):
        self.replayed.append((self._clock.ns, count))
        return self._take(count, stage, self.claim)

    def _take(self, count, stage, claim):
        assert stage is Stage.TIME
        sent = ()
        if self._delivered is not None:
            self._log.append(self._delivered)
            sent = tuple(self._delivered[1])
        self._delivered = None
        self.calls_while_paused.append(self._pause.is_paused)
        self._calls += 1
        took = self._call_ns(self._calls) * count
        self._clock.ns += took
        return result(claim, took, took + 10 * count, sent)


def result(claim, device_ns, wall_ns, sent=()):
    times = CallTimes(device_ns, wall_ns, handover_ns=7, delivered_ns=3)
    return CallResult(claim, times, outputs=(), sent=sent, inputs=(), damage="")


class FakePause:
    """Records whether the candidate is paused."""

    works = True

    def __init__(self, clock):
        self.is_paused = False
        self.takes_s = 0.0
        self._clock = clock

    @contextmanager
    def ending_resumed(self):
        try:
            yield
        finally:
            self.resume()

    def pause(self):
        self._change(paused=True)

    def resume(self):
        self._change(paused=False)

    def _change(self, *, paused):
        if self.is_paused != paused:
            self._clock.sleep(self.takes_s)
            self.is_paused = paused


class Checker:
    """Records the calls that it is asked to check."""

    def __init__(self, judge):
        self.checked = []
        self.glanced = []
        self.spotted = []
        self._judge = judge

    def judge_timed(self, side, result, expected):
        self.checked.append((side.role, result, expected))
        self._judge(side)

    def spot(self, side, result, reference, inputs):
        self.spotted.append((side.role, reference, inputs))

    def glance(self, side, result):
        self.glanced.append(side.role)


def constant(ns):
    return lambda _call: ns


class Bench:
    """A timer over fake contestants, and a record of its actions."""

    def __init__(self, monkeypatch, *, protocol=PROTOCOL, seed=0, device="cpu", expect_ns=0, sensors=None,
                 judge=lambda _side: None, in_batches=False, frugal=False, is_quiet=lambda: True, counter=None,
                 **call_ns):  # fmt: skip
        self.clock = Clock()
        self.warm_calls = []
        watch = (
            None
            if sensors is None
            else SensorWatch(lambda: sensors(self.clock.monotonic() - 1.0), self.clock.monotonic)
        )
        self.log = []
        self.reference = FakeReference(self.clock, self.log, device, expect_ns)
        self.checker = Checker(judge)
        monkeypatch.setattr(timing_module, "time", self.clock)
        call_ns = {"eager": constant(1000), "candidate": constant(1000), **call_ns}
        self.pause = FakePause(self.clock)
        self.sides = {name: FakeSide(name, self.log, self.clock, self.pause, ns) for name, ns in call_ns.items()}
        self.timer = Timer(
            self.reference,
            self.sides,
            protocol,
            random.Random(seed),
            self.checker,
            pause=self.pause,
            in_batches=in_batches,
            frugal=frugal,
            watch=watch,
            is_quiet=is_quiet,
            counter=counter,
            warmed_up=lambda: self.warm_calls.append(len(self.log)),
        )
        self.timing = self.timer.timing

    @property
    def checked(self):
        return self.checker.checked

    def run(self):
        assert self.timer.run() is self.timing
        return self

    def names(self, regime=Regime.COLD):
        return [block.contestant for block in self.timing.blocks if block.regime is regime]

    def samples(self, name):
        return samples_of(self.timing.blocks, name)

    def fewest(self):
        return min(len(self.samples(name)) for name in ("eager", "candidate"))


@pytest.fixture
def bench(monkeypatch):
    def make(**settings):
        return Bench(monkeypatch, **settings)

    return make


def noisy(call):
    """Be fast and slow in turn, so never precise."""
    return 1000 if call % 2 else 2000


def test_samples_are_told_apart_by_contestant_and_regime():
    def block(name, *device_ns, **rest):
        return Block(ROLES[name], 0, 0, 1, device_ns, device_ns, contestant=name, **rest)

    blocks = [block("eager", 1, 1), block("candidate", 3), block("eager", 5), block("eager", 9, regime=Regime.WARM)]
    assert samples_of(blocks, "eager") == [1, 1, 5]
    assert samples_of(blocks, "candidate") == [3]
    assert samples_of(blocks, "compile") == []


def test_timer_blocks_are_abba_with_random_first_side(bench):
    firsts = set()
    for seed in range(8):
        names = bench(seed=seed, candidate=noisy).run().names()
        rounds = [names[start : start + 4] for start in range(0, len(names), 4)]
        assert all(r[0] == r[3] != r[1] == r[2] for r in rounds)
        firsts |= {r[0] for r in rounds}
    assert firsts == {"eager", "candidate"}


def test_blocks_are_numbered_and_follow_each_other_in_time(bench):
    blocks = bench().run().timing.blocks
    assert [b.index for b in blocks] == list(range(len(blocks)))
    assert all(b.ended_ns - b.started_ns == sum(b.device_ns) for b in blocks)
    assert all(one.ended_ns <= other.started_ns for one, other in itertools.pairwise(blocks))
    assert all(w == d + 10 for b in blocks for w, d in zip(b.wall_ns, b.device_ns, strict=True))
    assert {(b.role, b.contestant, b.regime, b.calls_per_sample) for b in blocks} == {
        (BASELINE, "eager", Regime.COLD, 1),
        (CANDIDATE, "candidate", Regime.COLD, 1),
    }


def test_timer_each_call_leaves_sample_and_hand_over(bench):
    done = bench().run()
    timed = sum(len(b.device_ns) for b in done.timing.blocks)
    assert len(done.log) == timed + 2 * done.timing.warmup_calls
    for times, each in ((done.timing.handovers, 7), (done.timing.deliveries, 3)):
        assert times == {name: [each] * len(done.samples(name)) for name in ("eager", "candidate")}


def test_frugal_calls_are_made_in_turns_and_not_in_batches(bench):
    done = bench(frugal=True, in_batches=True).run()
    assert done.timing.labels == ["no_batches"]
    assert {name for name, inputs, _ in done.log} == set(done.sides)
    assert len({tuple(inputs) for _, inputs, _ in done.log}) == len(done.log)
    for side in done.sides.values():
        assert set(side.frugal) == {True}
        assert side.parked


def test_outputs_are_asked_for_as_the_reference_makes_them(bench):
    done = bench().run()
    assert {id(like) for _, _, like in done.log} == {id(done.reference.like)}
    assert done.timing.output_bytes == 3 * 5 * 4 + 2 * 8


def test_precise_sides_stop_at_about_the_least_number_of_samples(bench):
    counts = set()
    for seed in range(40):
        done = bench(seed=seed).run()
        assert done.timing.labels == []
        counts |= {len(done.samples(name)) for name in ("eager", "candidate")}
    assert min(counts) == PROTOCOL.min_samples
    assert PROTOCOL.min_samples < max(counts) <= PROTOCOL.min_samples * 1.2, "which one is the last is not known"


def test_timer_costly_precise_calls_need_a_quarter_of_the_least(bench):
    protocol = replace(PROTOCOL, min_samples=120)
    costly = constant(round(COSTLY_S * SECOND / 40))
    precise, loud = (
        bench(eager=costly, candidate=costly, protocol=protocol).run(),
        bench(eager=costly, candidate=lambda call: costly(call) * (1 + call % 2), protocol=protocol).run(),
    )
    assert 30 <= precise.fewest() < 60
    assert loud.fewest() >= 120
    assert precise.timing.labels == []


@pytest.mark.parametrize("seed", range(10))
def test_timer_costly_calls_end_at_about_a_quarter_of_the_least(seed, bench):
    protocol = replace(PROTOCOL, min_samples=120, block_calls=14)
    costly = constant(round(COSTLY_S * SECOND / 40))
    done = bench(seed=seed, eager=costly, candidate=costly, protocol=protocol).run()
    counts = [len(done.samples(name)) for name in ("eager", "candidate")]
    assert 30 <= min(counts) <= max(counts) <= 34, "the second round has few calls"


@pytest.mark.parametrize("loud", ["eager", "candidate"])
def test_one_noisy_side_goes_on_to_the_largest_number_of_samples(loud, bench):
    done = bench(**{loud: noisy}).run()
    assert PROTOCOL.max_samples <= done.fewest() < PROTOCOL.max_samples + 2 * (PROTOCOL.block_calls + 2)
    assert done.timing.labels == []


def test_sides_that_differ_from_round_to_round_go_on_too(bench, monkeypatch):
    monkeypatch.setattr(
        "kernel_matrix.inside.judge.timing.round_half_width", lambda _blocks, name: 0.1 * (name == "eager")
    )
    assert bench().run().fewest() >= PROTOCOL.max_samples


def test_on_a_gpu_each_round_finds_its_buffers_elsewhere(bench):
    done = bench(device="cuda").run()
    rounds = len(done.names()) // 4
    for side in done.sides.values():
        calls = [done.timing.warmup_calls, *(len(b.device_ns) for b in done.timing.blocks if b.role is side.role)]
        assert side.moved_before == [sum(calls[: 1 + 2 * round_]) for round_ in range(rounds)]


@pytest.mark.parametrize(("device", "nbytes"), [("cpu", 4), ("cuda", MOVED_BYTES + 1)])
def test_timer_large_or_cpu_buffers_do_not_move(device, nbytes, bench):
    made = bench(device=device)
    made.reference.call_bytes = nbytes
    made.run()
    assert [side.moved_before for side in made.sides.values()] == [[], []]


@pytest.mark.parametrize("limit", ["budget_s", "precision_s"])
def test_the_budget_ends_the_wish_for_precision(limit, bench):
    done = bench(protocol=replace(PROTOCOL, max_samples=10**9, **{limit: 0.001}), candidate=noisy).run()
    assert done.timing.labels == ["budget_reached"]
    assert 1e6 <= sum(sum(b.device_ns) for b in done.timing.blocks) < 1.2e6


def test_a_slow_candidate_is_timed_a_little_and_evenly(bench):
    protocol = replace(PROTOCOL, warmup_calls=10, budget_s=20.0)
    done = bench(candidate=constant(5 * SECOND), protocol=protocol).run()
    assert done.timing.labels == ["too_few_samples"]
    assert done.timing.warmup_calls == 1 + FEWEST_WARM, "long calls warm a device in few"
    assert len(done.timing.blocks) == 4
    assert len(done.samples("candidate")) <= 6
    assert min(len(b.device_ns) for b in done.timing.blocks) == 1
    assert done.clock.ns < 70 * SECOND


def test_timer_slow_first_call_is_not_in_warm_up_budget(bench):
    def compiles(call):
        return 60 * SECOND if call == 1 else 1000

    assert bench(compile=compiles).run().timing.warmup_calls >= PROTOCOL.warmup_calls


def test_timer_warm_up_calls_are_like_timed_ones(bench):
    done = bench().run()
    warm = done.log[: 2 * done.timing.warmup_calls]
    assert [name for name, _, _ in warm] == ["eager", "candidate"] * done.timing.warmup_calls
    assert {bench(seed=seed).run().timing.warmup_calls for seed in range(20)} == {4, 5, 6, 7}


def test_timer_warmed_up_is_called_once_before_timing(bench):
    done = bench().run()
    assert done.warm_calls == [2 * done.timing.warmup_calls]


MS_CALL = {"eager": constant(MS), "candidate": constant(MS)}
STEADY = replace(PROTOCOL, steady_cap_s=2.0)


def test_a_steady_device_is_warm_when_the_readings_span_a_window(bench):
    done = bench(**MS_CALL, protocol=STEADY, sensors=lambda _: (1980, 50)).run()
    assert done.timing.labels == []
    assert WINDOW_S <= done.timing.warmup_calls * 0.002 < WINDOW_S + 0.03


def test_warm_up_goes_on_until_the_clock_is_steady(bench):
    done = bench(**MS_CALL, protocol=STEADY, sensors=lambda at: (1980 if at > 0.5 else 1000 + 1000 * at, 50)).run()
    assert done.timing.labels == []
    assert 0.5 + WINDOW_S - 0.03 < done.timing.warmup_calls * 0.002 < 0.5 + WINDOW_S + 0.03
    assert done.warm_calls == [2 * done.timing.warmup_calls]


def test_timer_unsteady_device_is_timed_after_cap_with_label(bench):
    done = bench(**MS_CALL, protocol=STEADY, sensors=lambda at: (1980, round(at * 20))).run()
    assert done.timing.labels == ["unsteady"]
    assert 2.0 < done.timing.warmup_calls * 0.002 < 2.1
    assert len(done.timing.blocks) >= 4


def test_waiting_for_a_steady_device_ends_with_the_budget_too(bench):
    done = bench(**MS_CALL, protocol=replace(STEADY, budget_s=0.2), sensors=lambda at: (1980, round(at * 20))).run()
    assert done.timing.labels[0] == "unsteady"
    assert done.timing.warmup_calls * 0.002 < 0.21


def test_timer_failing_sensors_give_label_and_asked_calls(bench):
    def sensors(_at):
        raise SensorError("gone")

    done = bench(**MS_CALL, protocol=STEADY, sensors=sensors).run()
    assert done.timing.labels == ["steadiness_unknown"]
    assert done.timing.warmup_calls <= STEADY.warmup_calls + 3


def test_the_number_of_calls_in_a_block_is_drawn(bench):
    protocol = replace(PROTOCOL, min_samples=100)
    sizes = [len(b.device_ns) for seed in range(5) for b in bench(seed=seed, protocol=protocol).run().timing.blocks]
    assert {3, 4, 5, 6, 7} <= set(sizes)
    assert max(sizes) == 7


def test_a_block_has_a_call_even_where_few_are_asked_for(bench):
    done = bench(protocol=replace(PROTOCOL, block_calls=1, min_samples=8, max_samples=8)).run()
    assert {len(b.device_ns) for b in done.timing.blocks} == {1, 2, 3}


def test_the_same_secret_makes_the_same_session(bench):
    one, same, other = (bench(seed=seed, candidate=noisy).run() for seed in (1, 1, 2))
    assert one.timing.blocks == same.timing.blocks
    assert one.timing.blocks != other.timing.blocks


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0.0, 0.0), (0.25, 0.15, 0.35), (1.0, 1.0, 1.0)])
def test_timer_checks_asked_share_and_glances_at_the_rest(share, low, high, bench):
    protocol = replace(PROTOCOL, check_share=share, min_samples=300, max_samples=300)
    done = bench(protocol=protocol).run()
    calls = sum(name == "candidate" for name, _, _ in done.log)
    assert low <= len(done.checked) / calls <= high
    spotted = len(done.checker.spotted)
    assert len(done.checked) + len(done.checker.glanced) + spotted == len(done.log)
    assert spotted == pytest.approx(SPOT_SHARE * (calls - len(done.checked)), rel=0.4)
    assert {role for role, _, _ in done.checker.spotted} <= {CANDIDATE}
    assert done.timing.checked_calls == len(done.checked)


@pytest.mark.parametrize(("took_s", "share"), [(CHECK_S / 2, 0.2), (CHECK_S, 0.2), (2 * CHECK_S, 0.1), (9.0, 0.08)])
def test_checks_that_take_long_are_fewer_but_never_too_few(took_s, share):
    checks = CheckShare(replace(PROTOCOL, check_share=0.2, min_samples=50), random.Random(1))
    checks.took(took_s)
    assert sum(checks.due() for _ in range(20_000)) / 20_000 == pytest.approx(share, rel=0.1)


def test_what_the_reference_takes_is_part_of_a_check(bench):
    protocol = replace(PROTOCOL, check_share=0.5, min_samples=300, max_samples=300, budget_s=1e6)
    quick, slow = (len(bench(protocol=protocol, expect_ns=ns).run().checked) for ns in (MS, 400 * MS))
    assert slow < quick / 5


def test_timer_check_uses_the_inputs_of_the_call(bench):
    done = bench(protocol=replace(PROTOCOL, check_share=0.5)).run()
    assert {role for role, _, _ in done.checked} == {CANDIDATE}, "the baseline was held against it in the controls"
    for _, result, expected in done.checked:
        assert result.sent == tuple(expected.inputs)
        assert result.claim is CLAIM
    assert done.reference.expected == len(done.checked)


def test_timer_check_is_prepared_only_after_its_call(bench):
    done = bench(protocol=replace(PROTOCOL, check_share=0.5)).run()
    assert done.checked
    for _, result, expected in done.checked:
        (_, inputs, _) = done.log[expected.calls_made - 1]
        assert tuple(inputs) == result.sent


def test_timer_wrong_checked_call_ends_and_keeps_blocks(bench):
    def judge(side):
        if side.role is CANDIDATE and len(stopped.timing.blocks) >= 5:
            raise finding(Status.INCORRECT_VALUES, Stage.TIME, "wrong")

    stopped = bench(protocol=replace(PROTOCOL, check_share=1.0, min_samples=100), judge=judge)
    with pytest.raises(SessionEnded, match="wrong"):
        stopped.run()
    assert 5 <= len(stopped.timing.blocks) < 8


def test_supply_fresh_inputs_are_never_drawn_twice(bench):
    done = bench().run()
    assert len(set(done.reference.drawn)) == len(done.log)
    assert {purpose[:2] for purpose in done.reference.drawn} == {(InputMode.STANDARD, "timed")}
    assert done.timing.inputs == "fresh"
    assert bench(protocol=replace(PROTOCOL, inputs="rotating")).run().timing.inputs == "rotating"


def test_timer_candidate_runs_in_its_own_blocks_only(bench):
    done = bench(protocol=EVERY, **RIVALS).run()
    warm = done.timing.warmup_calls
    for name, side in done.sides.items():
        assert not any(side.calls_while_paused[:warm]), "all contestants warm up in turn"
        assert set(side.calls_while_paused[warm:]) == {name != "candidate"}
    assert not done.pause.is_paused


def test_timer_wrong_call_leaves_candidate_running(bench):
    def judge(_side):
        raise finding(Status.INCORRECT_VALUES, Stage.TIME, "wrong")

    stopped = bench(protocol=replace(PROTOCOL, check_share=1.0, warmup_calls=0), judge=judge)
    with pytest.raises(SessionEnded, match="wrong"):
        stopped.run()
    assert not stopped.pause.is_paused


def test_timer_budget_does_not_pay_for_changes_of_turn(bench):
    quick, slow = bench(candidate=noisy), bench(candidate=noisy)
    slow.pause.takes_s = PROTOCOL.budget_s
    assert len(slow.run().samples("candidate")) == len(quick.run().samples("candidate"))
    assert slow.timing.labels == quick.timing.labels


def test_timer_labels_a_candidate_that_cannot_be_paused(bench):
    done = bench()
    done.pause.works = False
    assert done.run().timing.labels == ["candidate_not_paused"]


# --- rivals ----------------------------------------------------------------------------------------------------------

RIVALS = {"compile": constant(3000), "library": constant(900)}


def test_each_rival_has_one_block_behind_each_round_in_any_order(bench):
    orders = set()
    for seed in range(6):
        names = bench(seed=seed, candidate=noisy, **RIVALS).run().names()
        rounds = [names[start : start + 6] for start in range(0, len(names), 6)]
        assert all(r[0] == r[3] != r[1] == r[2] for r in rounds)
        orders |= {tuple(r[4:]) for r in rounds}
    assert orders == {("compile", "library"), ("library", "compile")}


def test_timer_rivals_do_not_affect_precision(bench):
    done = bench(compile=noisy).run()
    assert PROTOCOL.min_samples <= done.fewest() <= PROTOCOL.min_samples * 1.2
    assert 0 < len(done.samples("compile")) < done.fewest()
    assert {b.role for b in done.timing.blocks if b.contestant == "compile"} == {RIVAL}


def failing_at(call):
    def call_ns(number):
        if number == call:
            raise finding(Status.RUNTIME_ERROR, Stage.TIME, "no such operator")
        return 1000

    return call_ns


@pytest.mark.parametrize("call", [1, 3, 9])
def test_timer_failed_rival_leaves_with_its_times(call, bench):
    done = bench(compile=failing_at(call), library=constant(900)).run()
    assert (done.timing.session_labels, done.timing.labels) == (["rival_failed:compile"], [])
    assert set(done.names()) == {"eager", "candidate", "library"}
    assert sum(name == "compile" for name, _, _ in done.log) == call, "and is not asked again"
    assert len({b.index for b in done.timing.blocks}) == len(done.timing.blocks)


def test_a_rival_that_is_wrong_leaves_too(bench):
    def judge(side):
        if side.role is RIVAL:
            raise finding(Status.INCORRECT_VALUES, Stage.TIME, "wrong")

    done = bench(protocol=replace(PROTOCOL, check_share=1.0), judge=judge, **RIVALS).run()
    assert done.timing.session_labels == ["rival_failed:compile", "rival_failed:library"]
    assert set(done.names()) == {"eager", "candidate"}


@pytest.mark.parametrize("name", ["eager", "candidate"])
def test_nobody_else_may_fail(name, bench):
    with pytest.raises(SessionEnded, match="no such operator"):
        bench(**{name: failing_at(9)}).run()


# --- the other regimes -----------------------------------------------------------------------------------------------

EVERY = replace(PROTOCOL, regimes=(Regime.COLD, Regime.WARM, Regime.BURST, Regime.SUSTAINED))
REPLAYED = (Regime.WARM, Regime.BURST, Regime.SUSTAINED)


def of_regime(done, regime):
    return [block for block in done.timing.blocks if block.regime is regime]


@pytest.mark.parametrize("regime", REPLAYED)
def test_replay_blocks_interleave_and_give_time_per_call(regime, bench):
    done = bench(protocol=EVERY, candidate=constant(200 * US), eager=constant(400 * US), **RIVALS).run()
    names = done.names(regime)
    assert names[0] == names[3] != names[1] == names[2]
    assert sorted(names[4:]) == ["compile", "library"]
    for block in of_regime(done, regime):
        assert block.calls_per_sample > 1
        if block.contestant == "candidate":
            assert set(block.device_ns) == {200 * US}
            assert set(block.wall_ns) == {200 * US + 10}
    assert done.timing.handovers["candidate"] == [7] * len(done.samples("candidate")), "of single calls only"


def test_only_the_regimes_asked_for_are_timed(bench):
    assert {b.regime for b in bench().run().timing.blocks} == {Regime.COLD}
    some = replace(PROTOCOL, regimes=(Regime.WARM, Regime.COLD))
    assert {b.regime for b in bench(protocol=some).run().timing.blocks} == {Regime.COLD, Regime.WARM}


def test_replay_counted_ones_have_fresh_checked_inputs(bench):
    done = bench(protocol=replace(EVERY, regimes=(Regime.COLD, Regime.WARM)), candidate=constant(200 * US)).run()
    counted = sum(len(b.device_ns) for b in of_regime(done, Regime.WARM) if b.contestant == "candidate")
    assert len(done.sides["candidate"].replayed) == counted + 1, "and one that captures"
    looked_at = sum(map(len, (done.checked, done.checker.glanced, done.checker.spotted)))
    assert len(set(done.reference.drawn)) == len(done.log) == looked_at


def test_bursts_are_short_and_the_device_rests_in_between(bench):
    call_ns = 400 * US
    protocol = replace(PROTOCOL, regimes=(Regime.COLD, Regime.BURST))
    done = bench(protocol=protocol, candidate=constant(call_ns), eager=constant(call_ns)).run()
    replays = sorted(replay for side in done.sides.values() for replay in side.replayed)
    assert all(count * call_ns <= 5 * MS for _, count in replays)
    ended = [at + count * call_ns for at, count in replays]
    assert all(start - end >= 20 * MS for end, (start, _) in zip(ended, replays[1:], strict=False))


def test_a_sustained_block_comes_behind_a_second_of_nothing_else(bench):
    call_ns = 400 * US
    protocol = replace(PROTOCOL, regimes=(Regime.COLD, Regime.SUSTAINED))
    done = bench(protocol=protocol, candidate=constant(call_ns), eager=constant(call_ns)).run()
    for block in of_regime(done, Regime.SUSTAINED):
        replayed = [at for at, _ in done.sides[block.contestant].replayed if block.started_ns <= at < block.ended_ns]
        before = replayed[-len(block.device_ns)] - block.started_ns
        assert SECOND <= before < 1.1 * SECOND


def test_what_could_not_be_captured_says_so_on_a_gpu_only(bench):
    def labels(device):
        made = bench(protocol=EVERY, device=device)
        made.sides["candidate"].claim = CLAIM
        return made.run().timing.labels

    assert labels("cuda") == ["not_capturable:candidate", "no_energy"]
    assert labels("cpu") == []


def reading_of(_counter, contestant, make_calls):
    return EnergyReading(contestant, make_calls(), 0, 1, 1, 1, 1)


def test_energy_is_of_the_calls_that_keep_the_device_busy(bench, monkeypatch):
    monkeypatch.setattr(timing_module, "measure_energy", reading_of)
    done = bench(protocol=EVERY, device="cuda", counter=lambda: 0, candidate=constant(MS), **RIVALS).run()
    busy = {block.contestant: block.calls_per_sample for block in of_regime(done, Regime.SUSTAINED)}
    found = [(reading.contestant, reading.calls) for reading in done.timing.energies]
    assert found == [(name, busy[name]) for name in done.names(Regime.SUSTAINED)]
    assert "no_energy" not in done.timing.labels


def test_a_counter_that_says_too_little_is_labelled_once(bench, monkeypatch):
    monkeypatch.setattr(timing_module, "measure_energy", lambda *_: None)
    done = bench(protocol=EVERY, device="cuda", counter=lambda: 0).run()
    assert (done.timing.energies, done.timing.labels.count("no_energy")) == ([], 1)


def test_a_rival_that_leaves_takes_its_energies_with_it(bench, monkeypatch):
    monkeypatch.setattr(timing_module, "measure_energy", reading_of)
    kept = bench(protocol=EVERY, device="cuda", counter=lambda: 0, compile=constant(1000)).run()
    assert "compile" in {reading.contestant for reading in kept.timing.energies}
    calls = kept.sides["compile"]._calls
    left = bench(protocol=EVERY, device="cuda", counter=lambda: 0, compile=failing_at(calls)).run()
    assert "rival_failed:compile" in left.timing.session_labels
    assert {reading.contestant for reading in left.timing.energies} == {"eager", "candidate"}


def test_a_rival_that_cannot_be_replayed_leaves(bench):
    singles = len(bench(compile=constant(1000)).run().samples("compile"))
    done = bench(protocol=EVERY, compile=failing_at(singles + 20)).run()
    assert "rival_failed:compile" in done.timing.session_labels
    assert set(done.names(Regime.SUSTAINED)) == {"eager", "candidate"}


# --- batches ---------------------------------------------------------------------------------------------------------


class FakeBatches:
    """Batches that take 100 µs, 1 µs around each call, and the contestants' time of each call."""

    def __init__(self, bench, uncaptured=(), call_ns=None):
        self.asked = []
        """Times of the quickest and of the slowest call of each request to prepare batches."""
        self.lent = []
        self.made = []
        """(contestant, whether the candidate was paused, calls) of each batch."""
        self.results = []
        self.inputs_changed = False
        self.in_place = False
        self._bench = bench
        self._uncaptured = uncaptured
        self._call_ns = call_ns or {}
        self._dice = random.Random(5)
        self.closed = False

    def prepare(self, reference, supply, dice, call_ns, slowest_ns, *, contestants):
        assert contestants == len(self._bench.sides)
        assert reference is self._bench.reference
        assert [side.taken_back for side in self._bench.sides.values()] == [1] * len(self._bench.sides)
        self.asked.append((call_ns, slowest_ns))
        return self

    def lend(self, client, *, capture):
        self.lent.append((client.name, capture))
        return capture and client.name not in self._uncaptured

    def draw_length(self):
        return self._dice.randint(24, 32)

    def call(self, client, chunks):
        self.made.append((client.name, self._bench.pause.is_paused, chunks))
        call_ns = self._call_ns.get(client.name, constant(10 * US))
        took = 100 * US + chunks * call_ns(len(self.made))
        self._bench.clock.ns += took
        times = CallTimes(0, took, 3 * US + chunks, delivered_ns=5 * US, least_ns=4 * US)
        self.results.append((client.name, chunks, times))
        inputs = "changed" if self.inputs_changed else None
        return SimpleNamespace(
            calls=chunks,
            times=times,
            in_place=self.in_place,
            numbers=range(chunks),
            inputs=inputs,
        )

    def result_of(self, batch, number):
        return result(CLAIM, 1, 1, sent=(number,)), [number]

    def result_of_all(self, batch):
        return result(CLAIM, 1, 1, sent=("all", batch.calls))

    def close(self):
        self.closed = True


IN_BATCHES = replace(PROTOCOL, precision_s=0.01)


@pytest.fixture
def in_batches(bench, monkeypatch):
    """Makes a timer that also times batches, and these batches."""

    def make(*, uncaptured=(), batch_ns=None, **settings):
        made = bench(**{"in_batches": True, "protocol": IN_BATCHES, **settings})
        batches = FakeBatches(made, uncaptured, batch_ns)
        monkeypatch.setattr(timing_module, "batches_of", batches.prepare)
        return made, batches

    return make


def test_batches_are_timed_only_where_asked_for(bench, monkeypatch):
    monkeypatch.setattr(timing_module, "batches_of", lambda *_: pytest.fail("batches were prepared"))
    assert bench().run().timing.batches == []


def test_batches_come_in_rounds_of_abba_with_rivals_behind(in_batches):
    made, _ = in_batches(**RIVALS)
    names = [block.contestant for block in made.run().timing.batches if not block.short]
    assert len(names) % 6 == 0
    for start in range(0, len(names), 6):
        first, second, third, fourth, *rivals = names[start : start + 6]
        assert first == fourth != second == third
        assert sorted(rivals) == ["compile", "library"]


def test_batches_of_candidate_alone_run_unpaused(in_batches):
    made, batches = in_batches(**RIVALS)
    made.run()
    assert {(name == "candidate", paused) for name, paused, _ in batches.made} == {(True, False), (False, True)}
    assert not made.pause.is_paused


def test_batches_block_keeps_all_times(in_batches):
    made, batches = in_batches()
    made.run()
    untimed = [one[1] for one in batches.results[:2]]
    assert min(untimed) > 1, "first of all an untimed long batch of either side"
    assert {block.contestant for block in made.timing.batches if block.short} == {"eager"}
    timed = iter(batches.results[2:])
    for block in made.timing.batches:
        results = [next(timed) for _ in block.calls]
        assert {name for name, _, _ in results} == {block.contestant}
        assert block.calls == tuple(calls for _, calls, _ in results)
        assert (block.calls == (1, 1)) is block.short
        assert block.wall_ns == tuple(times.wall_ns for _, _, times in results)
        assert block.handover_ns == tuple(times.handover_ns for _, _, times in results)
        assert block.delivered_ns == (5 * US,) * len(results)
        assert block.least_ns == (4 * US,) * len(results)
        assert block.ended_ns - block.started_ns == sum(block.wall_ns)
        assert not block.in_place
    assert next(timed, None) is None


def test_batches_block_says_what_was_in_place(in_batches):
    made, batches = in_batches()
    batches.in_place = True
    made.run()
    assert all(block.in_place for block in made.timing.batches)


def test_batches_exact_times_end_at_fewest(in_batches):
    made, _ = in_batches(protocol=replace(IN_BATCHES, precision_s=1e9))
    made.run()
    for name in ("eager", "candidate"):
        assert call_times(made.timing.batches, name, "eager") == [10 * US] * FEWEST


def unsteady(number):
    """Take between 10 and 18 µs per call in a batch."""
    return round(random.Random(number).uniform(10, 18) * US)


@pytest.mark.parametrize(("batch_ns", "labels"), [({}, []), ({"candidate": unsteady}, ["budget_reached"])])
def test_batches_that_are_precise_need_no_precise_single_calls(batch_ns, labels, in_batches):
    made, _ = in_batches(batch_ns=batch_ns, candidate=noisy)
    made.run()
    assert made.timing.labels == labels
    assert made.fewest() <= 1.1 * IN_BATCHES.min_samples + IN_BATCHES.block_calls


@pytest.mark.parametrize("loud", ["eager", "candidate"])
def test_batches_that_differ_go_on_until_the_deadline(loud, in_batches):
    made, _ = in_batches(batch_ns={loud: unsteady}, protocol=replace(IN_BATCHES, precision_s=1.0))
    made.run()
    blocks = made.timing.batches
    assert SECOND <= blocks[-1].ended_ns - blocks[0].started_ns < 1.1 * SECOND
    assert min(len(call_times(blocks, name, "eager")) for name in ("eager", "candidate")) > 10 * FEWEST


def test_batches_past_the_deadline_still_have_fewest(in_batches):
    made, _ = in_batches(
        batch_ns={"candidate": lambda number: MS * number}, protocol=replace(IN_BATCHES, precision_s=0.0)
    )
    made.run()
    for name in ("eager", "candidate"):
        assert len(call_times(made.timing.batches, name, "eager")) == FEWEST


def test_batches_changes_of_turn_do_not_use_up_the_time(in_batches):
    quick, _ = in_batches(batch_ns={"eager": unsteady})
    quick.run()
    slow, _ = in_batches(batch_ns={"eager": unsteady})
    slow.pause.takes_s = 1.0
    slow.run()
    assert len(slow.timing.batches) == len(quick.timing.batches)


def test_batches_are_sized_by_quickest_and_slowest_calls(in_batches):
    made, batches = in_batches(candidate=constant(3 * MS), eager=constant(MS), library=constant(1000))
    made.run()
    assert batches.asked == [(MS, 3 * MS + 10)], "by claims of either main side, and by the judge's clock"


@pytest.mark.parametrize(("call_ns", "capture"), [(CAPTURED_BELOW_NS - 1, True), (CAPTURED_BELOW_NS, False)])
def test_batches_of_short_calls_are_captured(call_ns, capture, in_batches):
    made, batches = in_batches(candidate=constant(call_ns), eager=constant(call_ns))
    made.run()
    assert {captured for _, captured in batches.lent} == {capture}
    assert {block.captured for block in made.timing.batches} == {capture}
    assert made.timing.labels == []


@pytest.mark.parametrize("name", ["eager", "candidate"])
def test_batches_main_side_not_captured_means_none_is(name, in_batches):
    made, batches = in_batches(uncaptured=(name, "compile"), **RIVALS)
    made.run()
    assert made.timing.labels == ["host_bound"]
    assert [captured for _, captured in batches.lent] == [True] * 4 + [False] * 4
    assert {block.captured for block in made.timing.batches} == {False}
    assert {block.contestant for block in made.timing.batches} == {"eager", "candidate", "compile", "library"}


def test_batches_leave_out_a_rival_not_captured(in_batches):
    made, _ = in_batches(uncaptured=("compile",), **RIVALS)
    made.run()
    assert {block.contestant for block in made.timing.batches} == {"eager", "candidate", "library"}
    assert {block.captured for block in made.timing.batches} == {True}
    assert (made.timing.labels, made.timing.session_labels) == ([], [])
    assert "compile" in made.names(), "its single calls count"


@pytest.mark.parametrize("batch", [4, 18])  # in its first block, and in one of the second round
def test_batches_leave_out_a_rival_that_fails(batch, in_batches):
    failing = {"compile": lambda number: failing_at(number)(number) if number > batch else US}
    made, _ = in_batches(batch_ns=failing, protocol=replace(IN_BATCHES, precision_s=0.1), **RIVALS)
    made.run()
    assert {block.contestant for block in made.timing.batches} == {"eager", "candidate", "library"}
    assert made.timing.session_labels == ["rival_failed:compile"]
    assert "compile" not in made.names()


def test_batches_rival_that_fails_when_lent_leaves(in_batches):
    made, batches = in_batches(**RIVALS)
    lend = batches.lend

    def refuse(client, *, capture):
        if client.name == "library":
            raise finding(Status.OUT_OF_MEMORY, Stage.TIME, "no")
        return lend(client, capture=capture)

    batches.lend = refuse
    made.run()
    assert made.timing.session_labels == ["rival_failed:library"]
    assert {block.contestant for block in made.timing.batches} == {"eager", "candidate", "compile"}


def with_outputs_elsewhere(batches, name, after):
    """Let outputs of ``name`` lie elsewhere in the batch after so many; return how many it has made."""
    call, made = batches.call, []

    def elsewhere(client, chunks):
        if client.name == name:
            made.append(chunks)
            if len(made) > after:
                raise OutputsElsewhereError
        return call(client, chunks)

    batches.call = elsewhere
    return made


@pytest.mark.parametrize("after", [0, 3])
def test_batches_rival_with_outputs_elsewhere_makes_no_more(after, in_batches):
    made, batches = in_batches(**RIVALS)
    count = with_outputs_elsewhere(batches, "library", after)
    made.run()
    assert len(count) == after + 1
    assert {block.contestant for block in made.timing.batches} == {"eager", "candidate", "compile"}
    assert not made.timing.batches_broken
    assert made.samples("library"), "its single calls stay"


@pytest.mark.parametrize("name", ["eager", "candidate"])
def test_batches_main_side_with_outputs_elsewhere_ends_them(name, in_batches):
    made, batches = in_batches(**RIVALS)
    with_outputs_elsewhere(batches, name, 3)
    made.run()
    assert (made.timing.batches, made.timing.labels) == ([], ["no_batches"])
    assert made.timing.batches_broken
    assert batches.closed


@pytest.mark.parametrize("name", ["eager", "candidate"])
def test_batches_main_side_that_fails_ends_the_session(name, in_batches):
    made, _ = in_batches(batch_ns={name: lambda number: failing_at(9)(9) if number > 8 else US})
    with pytest.raises(SessionEnded, match="no such operator"):
        made.run()
    assert made.timing.blocks
    assert not made.pause.is_paused


def raising(error):
    def raise_it(*_args, **_named):
        raise error

    return raise_it


SHORT_OF_MEMORY = {
    "cannot be made": NoBatchesError(),
    "has outputs elsewhere": OutputsElsewhereError(),
    "find no memory of the judge's": MemoryError(),
    "find no memory of a contestant's": finding(Status.OUT_OF_MEMORY, Stage.TIME, "no"),
}


@pytest.mark.parametrize("batches", [False, True])
def test_single_calls_are_precise_where_there_are_no_batches(batches, in_batches, monkeypatch):
    protocol = replace(PROTOCOL, max_samples=500)
    made, _ = in_batches(candidate=noisy, protocol=protocol)
    if not batches:
        monkeypatch.setattr(timing_module, "batches_of", raising(NoBatchesError()))
    made.run()
    assert (made.fewest() >= protocol.max_samples) is not batches


@pytest.mark.parametrize("name", SHORT_OF_MEMORY)
def test_batches_that_end_with_a_label(name, bench, monkeypatch):
    monkeypatch.setattr(timing_module, "batches_of", raising(SHORT_OF_MEMORY[name]))
    done = bench(in_batches=True).run()
    assert (done.timing.batches, done.timing.labels) == ([], ["no_batches"])
    assert done.timing.batches_broken is (name != "cannot be made")


def test_batches_are_not_made_again(in_batches):
    made, batches = in_batches()
    made.run()
    blocks, count = list(made.timing.batches), len(batches.made)
    again = made.timer.run_again()
    assert again.batches == []
    assert made.timing.batches == blocks
    assert len(batches.made) == count


def test_batches_outputs_of_every_batch_are_looked_at(in_batches):
    made, batches = in_batches(protocol=replace(IN_BATCHES, check_share=0.5))
    looked = []
    made.checker.glance = lambda side, result: looked.append((side.name, result.sent))
    made.run()
    whole = [(name, sent[1]) for name, sent in looked if sent[:1] == ("all",)]
    assert whole == [(name, calls) for name, _, calls in batches.made]


def test_batches_some_calls_of_the_candidate_are_compared(in_batches):
    made, batches = in_batches(protocol=replace(IN_BATCHES, check_share=0.5, warmup_calls=0))
    compared = []
    made.checker.judge_timed = lambda side, result, expected: compared.append((side.name, result, expected.inputs))
    made.checker.spot = lambda side, result, _reference, inputs: compared.append((side.name, result, inputs))
    made.timer._time_batches = lambda: (compared.clear(), type(made.timer)._time_batches(made.timer))
    made.run()
    assert len(compared) == sum(min(COMPARED, calls) for name, _, calls in batches.made if name == "candidate")
    assert all(name == "candidate" and list(result.sent) == inputs for name, result, inputs in compared)


def test_batches_changed_inputs_are_looked_at_call_by_call(in_batches):
    made, batches = in_batches()
    batches.inputs_changed = True
    looked = []
    made.checker.glance = lambda side, result: looked.append((side.name, result.sent))
    made.run()
    single = [name for name, sent in looked if len(sent) == 1]
    assert single.count("eager") == sum(calls for name, _, calls in batches.made if name == "eager")


# --- once more -------------------------------------------------------------------------------------------------------


def test_run_again_returns_new_results_and_adds_them(bench):
    done = bench(protocol=replace(EVERY, check_share=1.0), compile=constant(1000)).run()
    first, handovers = list(done.timing.blocks), len(done.timing.handovers["eager"])
    warm, checked = done.timing.warmup_calls, done.timing.checked_calls
    again = done.timer.run_again()
    assert isinstance(again, TimedPhase)
    assert done.timer.timing is done.timing
    assert done.timing.blocks == first + again.blocks
    assert [b.index for b in done.timing.blocks] == list(range(len(done.timing.blocks)))
    assert {b.regime for b in again.blocks} == set(EVERY.regimes)
    assert len(samples_of(again.blocks, "candidate")) >= EVERY.min_samples
    assert len(done.timing.handovers["eager"]) == handovers + len(again.handovers["eager"])
    assert len(done.timing.deliveries["eager"]) == len(done.timing.handovers["eager"])
    assert done.timing.warmup_calls == warm
    assert done.timing.checked_calls == checked + again.checked_calls
    assert again.output_bytes == done.timing.output_bytes


def test_a_rival_that_fails_in_the_second_series_leaves_both(bench):
    done = bench(compile=constant(1000)).run()
    assert "compile" in done.names()
    done.sides["compile"]._call_ns = failing_at(done.sides["compile"]._calls + 1)
    done.timer.run_again()
    assert "compile" not in done.names()
    assert "rival_failed:compile" in done.timing.session_labels


def test_a_finding_in_the_second_series_keeps_what_was_timed(bench):
    done = bench().run()
    count = len(done.timing.blocks)
    done.sides["candidate"]._call_ns = failing_at(done.sides["candidate"]._calls + 9)
    with pytest.raises(SessionEnded):
        done.timer.run_again()
    assert len(done.timing.blocks) > count
    assert done.timer.timing is done.timing


# --- a device that stays busy ----------------------------------------------------------------------------------------


def test_device_is_looked_at_while_candidate_is_paused(bench):
    paused = []
    made = bench(is_quiet=lambda: paused.append(made.pause.is_paused) or True, compile=constant(1000))
    made.run()
    names = made.names()
    turns = sum(name != "candidate" for name in names)
    ends = sum(one != "candidate" == other for one, other in itertools.pairwise([*names, "candidate"]))
    assert paused == [True] * (turns + ends), "before each turn of others, and when the candidate may go on"


def test_device_that_stays_busy_is_the_candidates_doing(bench):
    made = bench(is_quiet=lambda: len(made.timing.blocks) < 6)
    with pytest.raises(SessionEnded, match="stays busy") as found:
        made.run()
    assert (found.value.status, found.value.stage) == (Status.TIMING_MISMATCH, Stage.TIME)
    assert not made.pause.is_paused
    assert len(made.timing.blocks) >= 6
