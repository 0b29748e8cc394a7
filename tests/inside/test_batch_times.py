"""Times per call from batches, and the longest that a call can have taken, whatever a contestant hides."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_matrix.inside.batch_times import (
    FEWEST,
    LATE_NS,
    MedianInterval,
    call_times,
    calls_begin_early,
    longest_ns,
    median_interval,
    start_ns,
    with_hidden_ns,
)
from kernel_matrix.model.messages import BatchBlock

TIMES = st.floats(1.0, 1e9)
LONG = (100,) * 8


def block(name, calls, *, call=1000, start=0, handover=100, delivered=5000, least=5000, short=False):
    """Make a block of batches, nanoseconds."""
    walls = tuple(start + count * call for count in calls)
    late = tuple(count * handover for count in calls)
    deliveries = (delivered,) * len(calls), (least,) * len(calls)
    return BatchBlock(name, 0, 1, False, short, tuple(calls), deliveries[0], deliveries[1], walls, late)


@pytest.mark.parametrize("count", [1, FEWEST - 1])
def test_median_interval_of_few_has_no_end(count):
    assert median_interval([7.0] * count) == MedianInterval(7.0, -math.inf, math.inf)
    assert median_interval([7.0] * count).half_width == math.inf


@pytest.mark.parametrize(("count", "beyond"), [(8, 0), (9, 1), (12, 2), (25, 7), (200, 85), (201, 85)])
def test_median_interval_leaves_out_what_95_percent_allow(count, beyond):
    made = median_interval(range(count))
    assert (made.low, made.high) == (beyond, count - 1 - beyond)


def test_median_interval_of_known_sample():
    numbers = [float(rank) for rank in range(1000, 1100)]
    random.Random(1).shuffle(numbers)
    # n = 100: ranks 40 and 61, the classic table's 95 % interval of a median.
    assert median_interval(numbers) == MedianInterval(1049.5, 1039.0, 1060.0)
    assert median_interval(numbers).half_width == (1060 - 1039) / 2 / 1049.5


@pytest.mark.parametrize("count", [8, 9, 10, 20, 50, 51, 100, 400])
def test_median_interval_covers_as_often_as_claimed(count):
    found = median_interval([float(rank) for rank in range(count)])
    low = round(found.low)
    assert found.high == count - 1 - low, "the interval lies even about the median"
    covered = sum(math.comb(count, below) for below in range(low + 1, count - low)) / 2**count
    assert 0.95 <= covered < 0.999


def test_half_width_without_a_positive_time_is_infinite():
    assert MedianInterval(0.0, -1.0, 1.0).half_width == math.inf


def test_start_ns_is_of_the_baselines_batches_alone():
    eager = [block("eager", (100, 90), start=400), block("eager", (10, 10), start=400, short=True)]
    slow_start = [block("candidate", (100,), start=400), block("candidate", (10,), start=90_000, short=True)]
    assert start_ns([*eager, *slow_start], "eager") == 400
    assert start_ns(eager[:1], "eager") == start_ns([], "eager") == 0
    assert call_times([*eager, *slow_start], "candidate", "eager") == [1000]
    assert call_times(eager, "eager", "eager") == [1000, 1000]
    assert call_times(eager, "compile", "eager") == []


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("step", ["delivered_ns", "handover_ns"])
def test_call_times_count_work_outside_of_the_clock(step, share, in_place):
    call, usual = 20_000, 100
    ours, theirs = (replace(block(name, LONG, call=call), in_place=in_place) for name in ("candidate", "eager"))
    ours = replace(ours, wall_ns=tuple(round((1 - share) * ns) for ns in ours.wall_ns))
    saved = 0 if in_place or step == "delivered_ns" else share * usual
    late = tuple(round(ns + share * 100 * call - 100 * saved) for ns in getattr(ours, step))
    found = call_times([replace(ours, **{step: late}), theirs], "candidate", "eager")
    assert found == pytest.approx([call] * 8, rel=1e-3)


@pytest.mark.parametrize(
    ("late", "time"), [(0, 1000), (LATE_NS, 1000), (LATE_NS + 1000, 1000 + (LATE_NS + 1000) / 100)]
)
def test_call_times_do_not_count_noise_of_deliveries(late, time):
    blocks = [block("candidate", LONG, delivered=5000 + late), block("eager", LONG)]
    assert call_times(blocks, "candidate", "eager") == pytest.approx([time] * 8)


def test_call_times_do_not_count_noise_of_hand_overs():
    blocks = [block("candidate", LONG, handover=110), block("eager", LONG), block("eager", (100,), handover=110)]
    assert call_times(blocks, "candidate", "eager") == [1000] * 8


def test_call_times_of_a_delayed_judge_are_not_too_short():
    usual, delayed = block("candidate", LONG, call=20_000), block("candidate", (100,), call=0, delivered=2_000_000)
    found = call_times([usual, delayed, block("eager", LONG)], "candidate", "eager")
    assert found[:-1] == [20_000] * 8
    assert found[-1] == pytest.approx(20_000, rel=0.01)


def early(name, calls, *, call, switch=3_500_000, hidden=1.0, short=False):
    """Make a block of which a share of the calls, ``hidden``, ran while the inputs were delivered."""
    made = block(name, calls, call=round((1 - hidden) * call), delivered=0, short=short)
    return replace(made, delivered_ns=tuple(round(switch + hidden * count * call) for count in calls))


@pytest.mark.parametrize("hidden", [0.5, 1.0])
def test_call_times_with_early_calls_contain_deliveries(hidden):
    baseline = [early("eager", LONG, call=100_000, hidden=hidden), early("eager", (4,) * 8, call=100_000, short=True)]
    ours = early("candidate", LONG, call=80_000, hidden=hidden)
    assert calls_begin_early([*baseline, ours], "eager")
    assert call_times([*baseline, ours], "eager", "eager") == pytest.approx([100_000] * 8, rel=0.001)
    assert call_times([*baseline, ours], "candidate", "eager") == pytest.approx([80_000] * 8, rel=0.001)


def test_call_times_with_early_calls_of_some_batches_agree():
    baseline = [early("eager", LONG, call=100_000), early("eager", (4,) * 8, call=100_000, short=True)]
    some = [early("candidate", (100,), call=80_000, hidden=share) for share in (0.0, 0.3, 1.0)]
    assert call_times([*baseline, *some], "candidate", "eager") == pytest.approx([80_000] * 3, rel=0.001)


@pytest.mark.parametrize(("more", "is_early"), [(0, False), (LATE_NS, False), (LATE_NS + 1, True)])
def test_calls_begin_early_where_long_deliveries_take_longer(more, is_early):
    short, long = block("eager", (4,) * 8, short=True), block("eager", LONG, delivered=5000 + more)
    assert calls_begin_early([short, long], "eager") is is_early
    assert not calls_begin_early([long], "eager")
    assert not calls_begin_early([block("candidate", LONG, delivered=10**9), short, block("eager", LONG)], "eager")


# Time until the end of the batch, usual hand-over, excess → the longest that a call can have taken.
BY_HAND = {
    "nothing is hidden": (1000, 100, 0, 1000),
    "half of 1000 is put off": (500, 100, 450, 1000),
    "everything is put off": (0, 100, 900, 1000),
    "outputs that cost more than the call": (30, 100, 0, 100),
    "outputs that cost nothing": (600, 0, 400, 1000),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_with_hidden_ns_is_as_worked_out_by_hand(name):
    *known, longest = map(float, BY_HAND[name])
    assert with_hidden_ns(*known) == pytest.approx(longest)


@given(call=TIMES, usual=TIMES, share=st.floats(0.0, 1.0))
def test_with_hidden_ns_holds_for_any_share_put_off(call, usual, share):
    shown, excess = (1 - share) * call, max(0.0, share * (call - usual))
    assert with_hidden_ns(shown, usual, excess) >= call * (1 - 1e-6)


@given(call=TIMES, usual=TIMES)
def test_with_hidden_ns_honest_is_time_or_hand_over(call, usual):
    assert with_hidden_ns(call, usual, 0.0) == pytest.approx(max(call, usual), rel=1e-6)


@pytest.mark.parametrize("unknown", range(3))
def test_with_hidden_ns_unknown_is_infinite(unknown):
    known = [1000.0, 100.0, 0.0]
    known[unknown] = math.inf
    assert with_hidden_ns(*known) == math.inf


def test_longest_ns_counts_the_start_of_a_batch():
    blocks = [
        block("candidate", LONG, start=5_000),
        block("eager", LONG),
        block("eager", LONG, start=9_000, short=True),
    ]
    assert longest_ns(blocks, "candidate", "eager") == 1050


@pytest.mark.parametrize("hidden_ns", [0, 500, 20_000, 10**6])
def test_longest_ns_covers_what_was_worked_ahead(hidden_ns):
    whole = max(0, 100 * 1000 - hidden_ns)
    blocks = [block("candidate", LONG, call=whole // 100, delivered=5000 + hidden_ns), block("eager", LONG)]
    assert longest_ns(blocks, "candidate", "eager") >= 1000


def test_longest_ns_covers_work_in_the_time_of_messages():
    ours = block("candidate", LONG, call=900, delivered=12_000, least=12_000)
    assert longest_ns([ours, block("eager", LONG, delivered=12_000, least=2000)], "candidate", "eager") == 1000


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_longest_ns_covers_what_waits_for_hand_over(share):
    late = round(100 + share * 900)
    blocks = [block("candidate", LONG, call=round((1 - share) * 1000), handover=late), block("eager", LONG)]
    assert longest_ns(blocks, "candidate", "eager") == pytest.approx(1000)


@pytest.mark.parametrize(("ours", "theirs"), [((), LONG), (LONG, ()), (LONG[:7], LONG), (LONG, LONG[:7])])
def test_longest_ns_of_too_few_batches_is_infinite(ours, theirs):
    sides = {"candidate": ours, "eager": theirs}
    blocks = [block(name, calls) for name, calls in sides.items() if calls]
    assert longest_ns(blocks, "candidate", "eager") == math.inf


def in_place(name, calls, *, call=1000, late=0, noise=0):
    """Make a block whose outputs are in place: taking them takes 7000 ns, noise, and what is ``late`` per call."""
    made = block(name, calls, call=call)
    handover = tuple(7000 + noise * number + count * late for number, count in enumerate(calls))
    return replace(made, in_place=True, handover_ns=handover)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_longest_ns_in_place_is_all_that_was_put_off(share):
    ours = in_place("candidate", LONG, call=round((1 - share) * 1000), late=round(share * 1000))
    assert longest_ns([ours, in_place("eager", LONG)], "candidate", "eager") == pytest.approx(1000)


def test_longest_ns_in_place_noise_of_taking_hides_nothing():
    blocks = [in_place("candidate", LONG, late=2), in_place("eager", LONG, noise=10**6)]
    assert longest_ns(blocks, "candidate", "eager") == pytest.approx(1002)


def test_longest_ns_of_one_side_in_place_counts_its_hand_over():
    theirs = in_place("eager", LONG)
    assert longest_ns([block("candidate", LONG, handover=40), theirs], "candidate", "eager") == pytest.approx(1040)
    ours = in_place("candidate", LONG)
    assert longest_ns([ours, block("eager", LONG)], "candidate", "eager") == pytest.approx(1070)
