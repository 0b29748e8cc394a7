"""Verdicts: error rates, limits of the clock's tick, and power."""

import math
import random
from dataclasses import replace

import pytest
import scipy.stats

from kernel_matrix.measure.timed import WorkloadTimes
from kernel_matrix.measure.verdict import compare, compare_sessions, compare_within
from kernel_matrix.model.enums import Role, Verdict, VerdictReason
from kernel_matrix.model.messages import BatchBlock
from tests.results.factory import block, workload


def drawn(dice: random.Random, truth: float, spread: float, number: int) -> list[float]:
    return [truth * math.exp(dice.gauss(0, spread)) for _ in range(number)]


@pytest.mark.parametrize(
    ("speedups", "verdict", "reason", "figure"),
    [
        ([1.5, 1.51, 1.49], Verdict.FASTER, VerdictReason.BEYOND_MARGIN, 1.483),
        ([0.90, 0.905, 0.895, 0.90], Verdict.SLOWER, VerdictReason.BEYOND_MARGIN, 0.905),
        ([1.001, 0.999, 1.0, 1.002], Verdict.EQUIVALENT, VerdictReason.WITHIN_MARGIN, 1.002),
        # A difference, and a small one.
        ([1.005, 1.0052, 1.0051, 1.0049], Verdict.EQUIVALENT, VerdictReason.WITHIN_MARGIN, 1.005),
        ([1.1, 0.95, 1.02, 0.99], Verdict.INCONCLUSIVE, VerdictReason.SESSIONS_DISAGREE, 1.158),
        # A difference that may be the margin or more.
        ([1.009, 1.0101, 1.0105, 1.0095], Verdict.INCONCLUSIVE, VerdictReason.SMALL_DIFFERENCE, 1.009),
        ([1.5, 1.2], Verdict.INCONCLUSIVE, VerdictReason.FEW_SESSIONS, 0.001),
        ([0.5, 0.8], Verdict.INCONCLUSIVE, VerdictReason.FEW_SESSIONS, 1_985_347),
        ([1.5], Verdict.INCONCLUSIVE, VerdictReason.ONE_SESSION, 0.05),
    ],
)
def test_compare_sessions_of_each_kind_gives_its_reason(speedups, verdict, reason, figure):
    found = compare(speedups)
    assert (found.verdict, found.reason, found.sessions) == (verdict, reason, len(speedups))
    assert found.figure == pytest.approx(figure, rel=1e-3, abs=1e-3)
    assert found.low <= found.estimate <= found.high


def test_compare_chance_is_that_of_a_t_test():
    expected = scipy.stats.ttest_1samp([math.log(value) for value in (1.1, 0.95, 1.02, 0.99)], 0).pvalue
    assert compare([1.1, 0.95, 1.02, 0.99]).chance == pytest.approx(expected)
    assert compare([1.0, 1.0]).chance == 1.0
    assert compare([1.1, 1.1]).chance == 0.0
    assert compare([1.1]).chance == 1.0


def test_compare_a_difference_of_the_margin_is_rarely_beyond_it():
    dice = random.Random(3)
    verdicts = [compare(drawn(dice, 1.01, 0.003, 5)).verdict for _ in range(2000)]
    assert verdicts.count(Verdict.FASTER) / 2000 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000)


def test_difference_below_clock_tick_is_inconclusive():
    one_tick = [1.05] * 5
    assert compare(one_tick).verdict is Verdict.FASTER
    assert compare(one_tick, grain=0.06).verdict is Verdict.INCONCLUSIVE
    assert compare([1.0] * 5, grain=0.06).verdict is Verdict.INCONCLUSIVE
    assert (compare(one_tick, grain=0.06).reason, compare(one_tick, grain=0.06).figure) == (
        VerdictReason.COARSE_CLOCK,
        0.06,
    )
    assert compare([1.2] * 5, grain=0.06).verdict is Verdict.FASTER


def test_a_wider_margin_forgives_more():
    assert compare([1.02, 1.021, 1.019]).verdict is Verdict.FASTER
    assert compare([1.02, 1.021, 1.019], margin=0.05).verdict is Verdict.EQUIVALENT


@pytest.mark.parametrize("sessions", [2, 3, 5, 10])
@pytest.mark.parametrize("spread", [0.001, 0.01, 0.05])
def test_identical_code_is_hardly_ever_told_apart(sessions, spread):
    dice = random.Random(f"{sessions} {spread}")
    verdicts = [compare(drawn(dice, 1.0, spread, sessions)).verdict for _ in range(2000)]
    false = sum(verdict in (Verdict.FASTER, Verdict.SLOWER) for verdict in verdicts)
    assert false / 2000 <= 0.01 + 4 * math.sqrt(0.01 / 2000)


def test_two_per_cent_are_found_in_ten_noisy_sessions():
    dice = random.Random(2)
    found = [compare(drawn(dice, 1 / 1.02, 0.0098, 10)).verdict for _ in range(500)]
    assert found.count(Verdict.SLOWER) >= 440  # 92 % are expected


@pytest.mark.parametrize("sessions", [3, 10])
def test_code_differing_by_margin_is_rarely_equivalent(sessions):
    dice = random.Random(sessions)
    verdicts = [compare(drawn(dice, 1.01, 0.003, sessions)).verdict for _ in range(2000)]
    assert verdicts.count(Verdict.EQUIVALENT) / 2000 == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 2000))


def test_one_session_tells_only_what_no_noise_explains():
    assert compare_within(2.0, [2.0, 2.01, 1.99, 2.0]).verdict is Verdict.FASTER
    assert compare_within(0.5, [0.5, 0.51, 0.5, 0.5]).verdict is Verdict.SLOWER
    assert compare_within(1.04, [1.04] * 10).verdict is Verdict.INCONCLUSIVE  # sessions were seen to differ by as much
    assert compare_within(1.0, [1.0] * 10).verdict is Verdict.INCONCLUSIVE
    assert compare_within(2.0, [2.0]).verdict is Verdict.INCONCLUSIVE
    assert compare_within(1.2, [1.2] * 5, grain=0.3).verdict is Verdict.INCONCLUSIVE
    noisy = [1.2 * math.exp(deviation) for deviation in (-0.1, 0.1) * 20]
    assert compare_within(1.2, noisy).verdict is Verdict.INCONCLUSIVE
    noisy_found, coarse = compare_within(1.2, noisy), compare_within(1.2, [1.2] * 5, grain=0.3)
    assert (noisy_found.reason, noisy_found.figure) == (VerdictReason.BLOCKS_DISAGREE, pytest.approx(0.304, abs=1e-3))
    assert (coarse.reason, coarse.figure) == (VerdictReason.COARSE_CLOCK, 0.3)
    assert compare_within(1.04, [1.04] * 10).reason is VerdictReason.ONE_SESSION
    assert compare_within(2.0, [2.0]).reason is VerdictReason.ONE_BLOCK
    assert compare_within(1.11, [1.11, 0.95, 1.0]).reason is VerdictReason.BLOCKS_DISAGREE
    assert compare_within(2.0, [2.0, 2.01, 1.99, 2.0]).reason is VerdictReason.BEYOND_FLOOR
    at_floor = compare_within(1.05, [1.05, 1.05])
    assert at_floor.chance == pytest.approx(0.01)
    found = compare_within(2.0, [2.1, 2.0])
    assert (found.estimate, found.low, found.high, found.sessions) == (2.0, 0.0, math.inf, 1)


def times(candidate: int, eager: int) -> WorkloadTimes:
    blocks = [block(Role.CANDIDATE, 0, (candidate,) * 5), block(Role.BASELINE, 1, (eager,) * 5)]
    blocks += [replace(one, index=one.index + 2) for one in blocks]
    return WorkloadTimes.of_report(workload(blocks=tuple(blocks)))


def test_compare_sessions_uses_grain_of_their_clock():
    found = compare_sessions([times(100_000, 200_000), times(100_010, 200_030), times(100_020, 200_050)])
    assert found is not None
    assert (found.verdict, found.sessions, found.estimate) == (Verdict.FASTER, 3, pytest.approx(2, rel=1e-3))
    assert compare_sessions([times(100_000, 200_000)]).verdict is Verdict.FASTER  # type: ignore[union-attr]  # it is one
    coarse = compare_sessions([times(4096, 5120), times(4096, 5120), times(5120, 5120), times(4096, 5120)])
    assert coarse is not None
    assert coarse.verdict is Verdict.INCONCLUSIVE


def test_what_was_not_timed_cannot_be_compared():
    alone = WorkloadTimes.of_report(workload(blocks=(block(Role.CANDIDATE, 0, (100,)),)))
    assert compare_sessions([alone, alone]) is None
    assert compare_sessions([]) is None


BOUNDED = tuple(
    block(role, index, (time_ns, time_ns + 1, time_ns - 1))
    for index, (role, time_ns) in enumerate([(Role.CANDIDATE, 100), (Role.BASELINE, 1000)] * 4)
)


def bounded(*bounds_ns: int) -> list[WorkloadTimes]:
    """Make sessions of a candidate that claims a tenth of eager's 1,000 ns, and whose calls took this much at most."""
    made = workload(blocks=BOUNDED)
    return [
        WorkloadTimes.of_report(replace(made, two_clocks=replace(made.two_clocks, bound_ns=bound_ns)))
        for bound_ns in bounds_ns
    ]


@pytest.mark.parametrize(
    ("bounds_ns", "verdict", "estimate"),
    [
        ((800, 800, 810), Verdict.FASTER, 1.25),
        ((990, 1010, 1000), Verdict.INCONCLUSIVE, 1.0),
        ((200, 800, 5000), Verdict.INCONCLUSIVE, 1.84),
        ((800,), Verdict.FASTER, 1.25),
        ((980,), Verdict.INCONCLUSIVE, 1.02),
        ((None, None, None), Verdict.FASTER, 10.0),
    ],
)
def test_faster_needs_the_bound_to_beat_the_baseline(bounds_ns, verdict, estimate):
    found = compare_sessions(bounded(*bounds_ns))
    assert found.verdict is verdict
    assert found.estimate == pytest.approx(estimate, rel=0.01)


def in_batches(*candidates_ns: int, bound_ns: int | None) -> list[WorkloadTimes]:
    """Make sessions that claim a tenth of eager's 1,000 ns, and whose batches take this long per call."""
    nothing = (0,) * 2
    sessions = []
    for candidate_ns in candidates_ns:
        batches = tuple(
            BatchBlock(name, 0, 1, False, False, (100,) * 2, nothing, nothing, (100 * time_ns,) * 2, nothing)
            for name, time_ns in (("candidate", candidate_ns), ("eager", 1000))
            for _ in range(4)
        )
        made = workload(blocks=BOUNDED, batches=batches)
        clocks = replace(made.two_clocks, bound_ns=bound_ns)  # type: ignore[type-var]  # it has clocks
        sessions.append(WorkloadTimes.of_report(replace(made, two_clocks=clocks)))
    return sessions


@pytest.mark.parametrize(
    ("candidates_ns", "bound_ns", "estimate", "verdict"),
    [
        ((500, 502, 498), 600, 2.0, Verdict.FASTER),
        ((500, 502, 498), 1010, 2.0, Verdict.INCONCLUSIVE),
        ((1000, 1001, 999), 1100, 1.0, Verdict.EQUIVALENT),
        ((1200, 1202, 1198), 1300, 1 / 1.2, Verdict.SLOWER),
        ((500,), 600, 2.0, Verdict.FASTER),
        ((1000,), 600, 1.0, Verdict.INCONCLUSIVE),
        ((50, 51, 49), 60, 20.0, Verdict.FASTER),
    ],
)
def test_verdict_of_a_false_claim_is_that_of_batches(candidates_ns, bound_ns, estimate, verdict):
    found = compare_sessions(in_batches(*candidates_ns, bound_ns=bound_ns))
    assert found.verdict is verdict
    if bound_ns == 1010:
        assert (found.reason, found.figure) == (VerdictReason.BOUND_BELOW_1, pytest.approx(1000 / 1010))
    assert found.estimate == pytest.approx(estimate, rel=0.01)
