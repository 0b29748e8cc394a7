"""The timed phase: interleaving, counts, budget, checks, and the judge's own clock against the claims."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import itertools
import math
import random
import statistics
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from runner.core import timing as timing_module
from runner.core.finding import Finding, finding
from runner.core.messages import Block, ProtocolSpec
from runner.core.nvml import NvmlError
from runner.core.side import Result
from runner.core.steady import WINDOW_S, Watch
from runner.core.timing import InputSupply, Timer, clocks_disagree, relative_half_width, samples_of
from runner.core.vocab import Mode, Role, Stage, Status
from runner.core.wire import OutputsClaim, Structure

pytestmark = pytest.mark.torch

BASELINE, CANDIDATE = Role.BASELINE, Role.CANDIDATE
CLAIM = OutputsClaim(Structure.TENSOR, ())
PROTOCOL = ProtocolSpec(warmup_calls=4, min_samples=20, max_samples=60, budget_s=10.0, block_calls=5)


# --- precision -------------------------------------------------------------------------------------------------------


def test_the_half_width_of_a_known_sample():
    samples = list(range(1000, 1100))
    random.Random(1).shuffle(samples)
    # n = 100: ranks 40 and 61, the classic table's 95 % interval of a median.
    assert relative_half_width(samples) == (1060 - 1039) / 2 / 1049.5


def test_equal_samples_are_as_precise_as_can_be_and_few_say_nothing():
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


# --- the judge's clock -----------------------------------------------------------------------------------------------

US, MS = 1_000, 1_000_000
CLOCKS = {
    # name: baseline (claim, wall), candidate (claim, wall), overhead, words
    "honest": ((100 * US, 200 * US), (50 * US, 150 * US), 100 * US, ""),
    "slower than the baseline": ((1 * MS, 2 * MS), (30 * MS, 31 * MS), 900 * US, ""),
    "claims more than the call took": ((100 * US, 200 * US), (300 * US, 200 * US), 100 * US, "claims 300.0 µs in a"),
    "claims a little more than the call took": ((100 * US, 200 * US), (220 * US, 200 * US), 100 * US, ""),
    "sleeps outside its clock": ((1 * MS, 2 * MS), (1 * MS, 12 * MS), 1 * MS, "10000.0 µs are unexplained"),
    "half a call is unexplained": ((1 * MS, 2 * MS), (4 * MS, 9_900 * US), 1 * MS, ""),
    "more than half a call is unexplained": ((1 * MS, 2 * MS), (4 * MS, 10_100 * US), 1 * MS, "5100.0 µs are unexpl"),
    "a millisecond is below the clock": ((1 * US, 2 * US), (1 * US, 1_001 * US), 0, ""),
    "more than a millisecond is not": ((1 * US, 2 * US), (1 * US, 1_003 * US), 0, "1001.0 µs are unexplained"),
    "the protocol explains it": ((1 * MS, 2 * MS), (1 * MS, 12 * MS), 11 * MS, ""),
    "the baseline has the same": ((1 * MS, 12 * MS), (1 * MS, 12 * MS), 10 * US, ""),
    "nothing took any time": ((0, 0), (0, 0), 0, ""),
}


def block(role, claim, wall, count=3):
    return Block(role, 0, 0, 1, (claim,) * count, (wall,) * count)


@pytest.mark.parametrize("name", CLOCKS)
def test_claims_are_held_against_the_judges_clock(name):
    base, candidate, overhead, words = CLOCKS[name]
    lies, said = clocks_disagree([block(BASELINE, *base), block(CANDIDATE, *candidate)], overhead)
    assert lies is bool(words)
    assert words in said


def test_one_call_that_was_interrupted_is_no_lie():
    blocks = [block(BASELINE, 1 * MS, 2 * MS), block(CANDIDATE, 1 * MS, 2 * MS), block(CANDIDATE, 1 * MS, 90 * MS, 1)]
    assert clocks_disagree(blocks, 1 * MS) == (False, "")


def test_a_busy_host_that_delays_most_calls_is_no_lie():
    delayed = [block(CANDIDATE, 1 * MS, 9 * MS, 6), block(CANDIDATE, 1 * MS, 2 * MS, 4)]
    assert clocks_disagree([block(BASELINE, 1 * MS, 2 * MS), *delayed], 1 * MS) == (False, "")


def test_samples_are_told_apart_by_side_and_clock():
    blocks = [block(BASELINE, 1, 2, 2), block(CANDIDATE, 3, 4, 1), block(BASELINE, 5, 6, 1)]
    assert samples_of(blocks, BASELINE) == [1, 1, 5]
    assert samples_of(blocks, BASELINE, "wall_ns") == [2, 2, 6]
    assert samples_of(blocks, CANDIDATE) == [3]


# --- the timer, over sides that run nothing --------------------------------------------------------------------------


class Clock:
    """Time that passes only when a call is made."""

    def __init__(self):
        self.ns = 10**9

    def monotonic_ns(self):
        return self.ns

    def monotonic(self):
        return self.ns / 1e9


class FakeReference:
    def __init__(self):
        self.drawn = []
        self.expected = 0

    def draw(self, mode, *purpose):
        self.drawn.append((mode, *purpose))
        return list(purpose)

    def expect(self, inputs):
        self.expected += 1
        return SimpleNamespace(inputs=inputs)


class FakeSide:
    """Takes ``call_ns`` a call on its clock and writes down what it was asked."""

    def __init__(self, role, log, clock, call_ns):
        self.role = role
        self._log = log
        self._clock = clock
        self._call_ns = call_ns
        self._calls = 0

    def deliver(self, inputs, expected):
        self._log.append((self.role, inputs, expected))
        return ("sent", *inputs)

    def call(self, *, stage):
        assert stage is Stage.TIME
        self._calls += 1
        took = self._call_ns(self._calls)
        self._clock.ns += took
        return Result(CLAIM, took, took + 10)


class Bench:
    """A timer over two fake sides, and all that it did."""

    def __init__(
        self,
        monkeypatch,
        *,
        protocol=PROTOCOL,
        seed=0,
        baseline=lambda _: 1000,
        candidate=lambda _: 1000,
        judge=None,
        sensors=None,
    ):
        self.clock = Clock()
        self.warm_calls = []
        watch = None if sensors is None else Watch(lambda: sensors(self.clock.monotonic() - 1.0), self.clock.monotonic)
        self.log = []
        self.checked = []
        self.reference = FakeReference()
        monkeypatch.setattr(timing_module, "time", self.clock)
        sides = {
            role: FakeSide(role, self.log, self.clock, call_ns)
            for role, call_ns in ((BASELINE, baseline), (CANDIDATE, candidate))
        }
        self.timer = Timer(
            self.reference,
            sides,
            protocol,
            random.Random(seed),
            judge or self._note,
            watch=watch,
            warmed_up=lambda: self.warm_calls.append(len(self.log)),
        )
        self.timing = self.timer.timing

    def _note(self, side, expected, call):
        self.checked.append((side.role, expected, call))

    def run(self):
        assert self.timer.run() is self.timing
        return self

    def roles(self):
        return [block.role for block in self.timing.blocks]

    def samples(self, role):
        return samples_of(self.timing.blocks, role)


@pytest.fixture
def bench(monkeypatch):
    def make(**settings):
        return Bench(monkeypatch, **settings)

    return make


def noisy(call):
    """Alternately fast and slow: never precise."""
    return 1000 if call % 2 else 2000


def test_blocks_come_in_the_order_a_b_b_a_and_either_side_may_be_a(bench):
    firsts = set()
    for seed in range(8):
        roles = bench(seed=seed, candidate=noisy).run().roles()
        rounds = [roles[start : start + 4] for start in range(0, len(roles), 4)]
        assert all(r[0] is r[3] is not r[1] is r[2] for r in rounds)
        firsts |= {r[0] for r in rounds}
    assert firsts == {BASELINE, CANDIDATE}


def test_blocks_are_numbered_and_follow_each_other_in_time(bench):
    blocks = bench().run().timing.blocks
    assert [b.index for b in blocks] == list(range(len(blocks)))
    assert all(b.ended_ns - b.started_ns == sum(b.device_ns) for b in blocks)
    assert all(one.ended_ns <= other.started_ns for one, other in itertools.pairwise(blocks))
    assert all(w == d + 10 for b in blocks for w, d in zip(b.wall_ns, b.device_ns, strict=True))


def test_every_timed_call_left_a_sample(bench):
    done = bench().run()
    timed = sum(len(b.device_ns) for b in done.timing.blocks)
    assert len(done.log) == timed + 2 * done.timing.warmup_calls


def test_precise_sides_stop_at_the_least_number_of_samples(bench):
    done = bench().run()
    fewest = min(len(done.samples(role)) for role in (BASELINE, CANDIDATE))
    assert PROTOCOL.min_samples <= fewest < PROTOCOL.min_samples + 2 * (PROTOCOL.block_calls + 2)
    assert done.timing.labels == []


@pytest.mark.parametrize("loud", [BASELINE, CANDIDATE])
def test_one_noisy_side_goes_on_to_the_largest_number_of_samples(loud, bench):
    done = bench(**{loud.value: noisy}).run()
    fewest = min(len(done.samples(role)) for role in (BASELINE, CANDIDATE))
    assert PROTOCOL.max_samples <= fewest < PROTOCOL.max_samples + 2 * (PROTOCOL.block_calls + 2)
    assert done.timing.labels == []


def test_the_budget_ends_the_wish_for_precision(bench):
    done = bench(protocol=replace(PROTOCOL, max_samples=10**9, budget_s=0.001), candidate=noisy).run()
    assert done.timing.labels == ["budget_reached"]
    assert 1e6 <= sum(sum(b.device_ns) for b in done.timing.blocks) < 1.2e6


def test_a_slow_candidate_is_timed_a_little_and_evenly(bench):
    second = 10**9
    done = bench(candidate=lambda _: 5 * second, protocol=replace(PROTOCOL, warmup_calls=10, budget_s=20.0)).run()
    assert done.timing.labels == ["too_few_samples"]
    assert done.timing.warmup_calls == 4, "the warm-up has the budget's time too, and ends with the call that passes it"
    assert len(done.timing.blocks) == 4
    assert len(done.samples(CANDIDATE)) <= 6
    assert min(len(b.device_ns) for b in done.timing.blocks) == 1
    assert done.clock.ns < 60 * second


def test_warm_up_calls_look_like_timed_ones_and_their_number_is_drawn(bench):
    done = bench().run()
    warm = done.log[: 2 * done.timing.warmup_calls]
    assert [role for role, _, _ in warm] == [BASELINE, CANDIDATE] * done.timing.warmup_calls
    assert {bench(seed=seed).run().timing.warmup_calls for seed in range(20)} == {4, 5, 6, 7}


def test_what_is_to_be_done_on_a_warm_device_is_done_once_between_warm_up_and_timing(bench):
    done = bench().run()
    assert done.warm_calls == [2 * done.timing.warmup_calls]


MS_CALL = {"baseline": lambda _: MS, "candidate": lambda _: MS}
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


def test_a_device_that_never_rests_is_timed_after_the_cap_and_says_so(bench):
    done = bench(**MS_CALL, protocol=STEADY, sensors=lambda at: (1980, round(at * 20))).run()
    assert done.timing.labels == ["unsteady"]
    assert 2.0 < done.timing.warmup_calls * 0.002 < 2.1
    assert len(done.timing.blocks) >= 4


def test_waiting_for_a_steady_device_ends_with_the_budget_too(bench):
    done = bench(**MS_CALL, protocol=replace(STEADY, budget_s=0.2), sensors=lambda at: (1980, round(at * 20))).run()
    assert done.timing.labels[0] == "unsteady"
    assert done.timing.warmup_calls * 0.002 < 0.21


def test_a_device_whose_sensors_fail_gets_the_calls_asked_for_and_says_so(bench):
    def sensors(_at):
        raise NvmlError("gone")

    done = bench(**MS_CALL, protocol=STEADY, sensors=sensors).run()
    assert done.timing.labels == ["steadiness_unknown"]
    assert done.timing.warmup_calls <= STEADY.warmup_calls + 3


def test_the_number_of_calls_in_a_block_is_drawn(bench):
    sizes = {len(b.device_ns) for seed in range(5) for b in bench(seed=seed).run().timing.blocks}
    assert sizes == {3, 4, 5, 6, 7}


def test_a_block_has_a_call_even_where_few_are_asked_for(bench):
    done = bench(protocol=replace(PROTOCOL, block_calls=1, min_samples=8, max_samples=8)).run()
    assert {len(b.device_ns) for b in done.timing.blocks} == {1, 2, 3}


def test_the_same_secret_makes_the_same_session(bench):
    one, same, other = (bench(seed=seed, candidate=noisy).run() for seed in (1, 1, 2))
    assert one.timing.blocks == same.timing.blocks
    assert one.timing.blocks != other.timing.blocks


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0.0, 0.0), (0.25, 0.15, 0.35), (1.0, 1.0, 1.0)])
def test_about_the_asked_share_of_calls_is_checked(share, low, high, bench):
    protocol = replace(PROTOCOL, check_share=share, min_samples=300, max_samples=300)
    done = bench(protocol=protocol).run()
    assert low <= len(done.checked) / len(done.log) <= high
    assert done.timing.checked_calls == sum(role is CANDIDATE for role, _, _ in done.checked)


def test_a_check_gets_what_the_reference_returns_for_the_very_inputs_of_the_call(bench):
    done = bench(protocol=replace(PROTOCOL, check_share=0.5)).run()
    assert {role for role, _, _ in done.checked} == {BASELINE, CANDIDATE}
    for _, expected, (result, sent) in done.checked:
        assert sent == ("sent", *expected.inputs)
        assert result.claim is CLAIM
    assert 0 < done.reference.expected <= len(done.checked) + 1


def test_a_wrong_checked_call_ends_the_session_and_keeps_what_was_timed(bench):
    def judge(side, _expected, _call):
        if side.role is CANDIDATE and len(stopped.timing.blocks) >= 5:
            raise finding(Status.INCORRECT_VALUES, Stage.TIME, "wrong")

    stopped = bench(protocol=replace(PROTOCOL, check_share=1.0, min_samples=100), judge=judge)
    with pytest.raises(Finding, match="wrong"):
        stopped.run()
    assert 5 <= len(stopped.timing.blocks) < 8


def test_fresh_inputs_are_never_drawn_twice(bench):
    done = bench().run()
    assert len(set(done.reference.drawn)) == len(done.log)
    assert {purpose[:2] for purpose in done.reference.drawn} == {(Mode.STANDARD, "timed")}


def test_rotating_inputs_are_drawn_once_and_used_at_random(bench):
    done = bench(protocol=replace(PROTOCOL, inputs="rotating", rotation=3)).run()
    assert done.reference.drawn == [(Mode.STANDARD, "rotation", n) for n in range(3)]
    used = [inputs[1] for _, inputs, _ in done.log]
    assert set(used) == {0, 1, 2}
    assert used != sorted(used)
    assert used != [n % 3 for n in range(len(used))]


@given(seed=st.integers(0, 2**32))
def test_a_supply_hands_out_what_it_drew(seed):
    reference = FakeReference()
    supply = InputSupply(reference, PROTOCOL, random.Random(seed))
    assert [supply.next() for _ in range(3)] == [["timed", 1], ["timed", 2], ["timed", 3]]
