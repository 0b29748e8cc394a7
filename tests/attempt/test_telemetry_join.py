"""Snapshots joined to blocks, rule by rule, on an imagined clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_matrix.attempt.telemetry_join import join
from kernel_matrix.model.enums import Regime, Role
from kernel_matrix.model.messages import BatchBlock, EnergyReading
from kernel_matrix.results.record import FieldSpread
from tests.attempt.looking import CAP, HOT, IDLE, MS, A, B, block, changed, four_blocks, look, looks, report, session


def joined(series, *workloads, exclusive=True, **bounds):
    return join(series, [session(report(*workloads), **bounds)], exclusive=exclusive, trace="t")


def blocks_of(found, workload=0, number=0):
    return found.reports[number].workloads[workload].blocks


def causes(found, workload=0):
    """Return per block the one cause that all its samples are discarded for; empty if all of them count."""
    told = []
    for one in blocks_of(found, workload):
        assert len(one.discarded) in (0, len(one.device_ns))
        assert [index for index, _ in one.discarded] == list(range(len(one.discarded)))
        told.append("".join({cause for _, cause in one.discarded}))
    return told


# ---- Readings


def test_a_block_gets_the_mean_of_the_looks_that_fall_into_it():
    series = [
        look(0),
        look(100, sm_clock_mhz=1400, power_w=100.0),
        look(150, sm_clock_mhz=1500, power_w=200.0),
        look(300),
    ]
    found = joined(series, [block(A, 0, 90, 160)])
    (one,) = blocks_of(found)
    assert (one.sm_clock_mhz, one.power_w, one.mem_clock_mhz, one.temperature_c) == (1450.0, 150.0, 2619.0, 50.0)


@pytest.mark.parametrize(("start_ms", "clock"), [(110, 1400), (180, 1500)])
def test_a_block_between_two_looks_gets_the_nearer_one(start_ms, clock):
    series = [look(100, sm_clock_mhz=1400), look(200, sm_clock_mhz=1500)]
    (one,) = blocks_of(joined(series, [block(A, 0, start_ms, start_ms + 5)]))
    assert one.sm_clock_mhz == clock


def test_snapshot_over_100_ms_away_is_not_used():
    series = [look(0), look(800)]
    near, far = blocks_of(joined(series, [block(A, 0, 95, 96), block(B, 1, 101, 102)]))
    assert (near.sm_clock_mhz, far.sm_clock_mhz) == (1500.0, None)


def test_what_the_driver_does_not_say_stays_unknown():
    (one,) = blocks_of(joined(looks(0, 500, power_w=None), [block(A, 0, 90, 260)]))
    assert (one.power_w, one.sm_clock_mhz) == (None, 1500.0)


def test_block_over_a_second_without_snapshot_is_unknown():
    series = [*looks(0, 200), *looks(1250, 2000)]
    before, over, after = blocks_of(
        joined(series, [block(A, 0, 90, 160), block(B, 1, 190, 1300), block(B, 2, 1310, 1400)], end_ms=3000)
    )
    assert (before.sm_clock_mhz, over.sm_clock_mhz, after.sm_clock_mhz) == (1500.0, None, 1500.0)


def test_block_a_second_past_last_snapshot_is_unknown():
    within, beyond = [
        blocks_of(joined(looks(0, 200), [block(A, 0, 150, end_ms)], end_ms=3000))[0] for end_ms in (1100, 1300)
    ]
    assert (within.sm_clock_mhz, beyond.sm_clock_mhz) == (1500.0, None)


def test_a_look_the_driver_did_not_answer_is_none():
    series = [*looks(0, 200), *[look(at_ms, trouble="no answer") for at_ms in range(250, 1300, 50)], *looks(1300, 1500)]
    (one,) = blocks_of(joined(series, [block(A, 0, 600, 700)], end_ms=3000))
    assert one.sm_clock_mhz is None


# ---- Discarding


def test_nothing_is_discarded_on_a_quiet_gpu():
    found = joined(looks(0, 1000), four_blocks())
    assert causes(found) == ["", "", "", ""]
    assert (found.summary.discarded, found.throttled, found.summary.joined) == ({}, frozenset(), "yes")


def test_throttled_snapshot_discards_all_overlapping_blocks():
    blocks = [block(role, n, 110 + 100 * n, 190 + 100 * n) for n, role in enumerate((A, B, A, B))]
    found = joined(changed(looks(0, 1000), 300, CAP), blocks)  # between the second and the third
    assert causes(found) == ["", "throttled: sw_power_cap", "throttled: sw_power_cap", ""]


def test_throttled_samples_go_if_half_of_each_side_remains():
    found = joined(changed(looks(0, 1000), 250, HOT), four_blocks())
    assert causes(found) == ["", "throttled: hw_thermal", "", ""]
    assert found.summary.discarded == {"throttled: hw_thermal": 10}
    assert not found.throttled


def test_throttled_samples_stay_if_over_half_would_go():
    series = changed(changed(looks(0, 1000), 250, HOT), 350, HOT)
    found = joined(series, four_blocks())
    assert causes(found) == ["", "", "", ""]
    assert found.throttled == {HOT}
    assert found.summary.discarded == {}


def test_half_is_of_each_side_for_itself():
    blocks = [block(A, 0, 110, 190), *(block(B, 1 + n, 210 + 100 * n, 290 + 100 * n) for n in range(5))]
    found = joined(changed(looks(0, 1000), 150, HOT), blocks)
    assert causes(found) == [""] * 6
    assert found.throttled == {HOT}


def test_exactly_half_may_go():
    found = joined(changed(looks(0, 1000), 150, HOT), four_blocks())
    assert causes(found) == ["throttled: hw_thermal", "", "", ""]


def test_workloads_are_weighed_apart():
    first, second = four_blocks(110), four_blocks(610)
    series = looks(0, 1100)
    for at_ms in (650, 750, 850, 950):
        series = changed(series, at_ms, HOT)
    found = joined(changed(series, 150, CAP), first, second, end_ms=1100)
    assert causes(found, 0) == ["throttled: sw_power_cap", "", "", ""]
    assert causes(found, 1) == ["", "", "", ""]
    assert found.throttled == {HOT}


def in_regime(regime, one, contestant=""):
    return replace(one, regime=regime, contestant=contestant)


def test_contestants_are_weighed_apart():
    one, other = (
        in_regime(Regime.COLD, block(Role.RIVAL, 4 + i, 510 + 200 * i, 590 + 200 * i), name)
        for i, name in enumerate(("compile", "library"))
    )
    found = joined(changed(looks(0, 900), 550, reasons=(CAP,)), [*four_blocks(), one, other])
    assert causes(found) == [""] * 6
    assert found.throttled == {CAP}


def test_power_cap_in_sustained_blocks_does_not_discard():
    busy = [
        in_regime(Regime.SUSTAINED, block(role, 4 + i, 510 + 90 * i, 590 + 90 * i)) for i, role in enumerate((A, B))
    ]
    capped = [look(at_ms, reasons=(CAP,), sm_clock_mhz=900) for at_ms in range(510, 900, 10)]
    found = joined([*looks(0, 500), *capped], [*four_blocks(), *busy])
    assert causes(found) == [""] * 6
    assert not found.throttled
    assert blocks_of(found)[4].sm_clock_mhz == 900.0
    assert found.under_load[0]["sm_clock_mhz"].low == 1500.0


def test_company_counts_in_every_regime():
    warm = in_regime(Regime.WARM, block(A, 4, 510, 590))
    found = joined(changed(looks(0, 700), 550, foreign=(4242,)), [*four_blocks(), warm])
    assert causes(found)[4] == "contended: pid 4242"


def test_a_reason_that_only_its_counter_tells_of_counts():
    # The reason appeared and vanished between two snapshots, so none shows it.
    series = [look(at_ms, counters={HOT: 7 if at_ms < 250 else 9}) for at_ms in range(0, 1001, 50)]
    assert causes(joined(series, four_blocks())) == ["", "throttled: hw_thermal", "", ""]


def test_a_counter_that_stands_still_says_nothing():
    assert causes(joined(looks(0, 1000, counters={HOT: 7}), four_blocks())) == ["", "", "", ""]


def test_reasons_that_do_not_slow_down_say_nothing():
    assert causes(joined([look(at_ms, IDLE) for at_ms in range(0, 1001, 50)], four_blocks())) == ["", "", "", ""]


def test_a_failing_machine_is_weighed_before_a_power_cap():
    """A few hot samples are discarded; the power cap, which is nearly everywhere, discards none and is reported."""
    series = [look(at_ms, CAP, *([HOT] if at_ms == 150 else [])) for at_ms in range(0, 1001, 50)]
    found = joined(series, four_blocks())
    assert causes(found) == ["throttled: hw_thermal", "", "", ""]
    assert found.throttled == {CAP}


def test_both_kinds_together_leave_half():
    series = changed(changed(looks(0, 1000), 150, HOT), 450, CAP)  # each on a block of the baseline's two
    found = joined(series, four_blocks())
    assert causes(found) == ["throttled: hw_thermal", "", "", ""]
    assert found.throttled == {CAP}


def test_beside_somebody_else_nothing_counts_however_much_it_is():
    found = joined(looks(0, 1000, foreign=(4242,)), four_blocks())
    assert causes(found) == ["contended: pid 4242"] * 4
    assert found.summary.discarded == {"contended: pid 4242": 40}


def test_only_blocks_that_somebody_else_touched_are_contended():
    found = joined(changed(looks(0, 1000), 450, foreign=(7, 8)), four_blocks())
    assert causes(found) == ["", "", "", "contended: pid 7,8"]


def test_company_is_no_cause_where_it_is_allowed():
    found = joined(looks(0, 1000, foreign=(4242,)), four_blocks(), exclusive=False)
    assert causes(found) == ["", "", "", ""]


def test_contended_samples_do_not_count_as_remaining():
    # One of the baseline's two blocks is contended, so nothing of the other one may be discarded.
    series = changed(changed(looks(0, 1000), 150, foreign=(7,)), 450, HOT)
    found = joined(series, four_blocks())
    assert causes(found) == ["contended: pid 7", "", "", ""]
    assert found.throttled == {HOT}


def test_a_crowd_is_counted_and_not_listed():
    found = joined(looks(0, 1000, foreign=range(1, 2001)), four_blocks())
    assert causes(found)[0] == "contended: pid 1,2,3,4,5,6,7,8 and 1992 more"


# ---- Energy


def test_an_energy_beside_somebody_else_does_not_count():
    made = report(four_blocks())
    energies = tuple(
        EnergyReading(
            *("candidate", 10, start * MS, (start + 80) * MS, 50_000),
            shortest_ns=60 * MS,
            longest_ns=70 * MS,
        )
        for start in (200, 500)
    )
    said = replace(made, workloads=(replace(made.workloads[0], energies=energies),))
    series = changed(looks(0, 1000), 550, foreign=(7,))
    for exclusive, told in ((True, "contended: pid 7"), (False, None)):
        found = join(series, [session(said)], exclusive=exclusive, trace="t")
        assert [one.discarded for one in found.reports[0].workloads[0].energies] == [None, told]


# ---- Batches


def with_batches(series, **bounds):
    """Join ``series`` to a session of four blocks, and to as many blocks of batches that follow it."""
    made = report(four_blocks())
    batches = tuple(
        BatchBlock(name, (610 + 100 * n) * MS, (690 + 100 * n) * MS, False, False, *((100, 100),) * 5)
        for n, name in enumerate(("eager", "candidate", "candidate", "eager"))
    )
    said = replace(made, workloads=(replace(made.workloads[0], batches=batches),))
    return join(series, [replace(session(said), **bounds)], exclusive=True, trace="t")


def test_batches_beside_somebody_else_do_not_count():
    found = with_batches(changed(looks(0, 1000, sm_clock_mhz=1400), 750, foreign=(7,), sm_clock_mhz=1500))
    assert causes(found) == [""] * 4
    batches = found.reports[0].workloads[0].batches
    assert [one.discarded for one in batches] == [None, "contended: pid 7", None, None]
    assert [one.sm_clock_mhz for one in batches] == [1400, 1500, 1400, 1400]
    assert found.summary.discarded == {"contended: pid 7": 2}


def test_batches_that_are_throttled_are_weighed_apart():
    series = looks(0, 1000)
    for at_ms in (750, 850):
        series = changed(series, at_ms, CAP)
    found = with_batches(series)
    assert [one.discarded for one in found.reports[0].workloads[0].batches] == [None] * 4
    assert found.throttled == {CAP}


def test_batches_outside_their_session_are_not_joined():
    found = with_batches(looks(0, 1000), ended_ns=900 * MS)
    assert found.summary.joined == "a block of batches of a session lies outside that session by this host's clock"


# ---- Refusing


@pytest.mark.parametrize(("start_ms", "end_ms"), [(150, 1000), (0, 300)])
def test_blocks_outside_their_session_are_not_joined(start_ms, end_ms):
    found = joined(looks(0, 1000, foreign=(4242,)), four_blocks(), start_ms=start_ms, end_ms=end_ms)
    assert "by this host's clock" in found.summary.joined
    assert causes(found) == ["", "", "", ""]
    assert all(one.sm_clock_mhz is None for one in blocks_of(found))
    assert found.under_load == ({},)


def test_a_block_that_ends_before_it_begins_is_not_joined():
    found = joined(looks(0, 1000), [block(A, 0, 300, 200)])
    assert "by this host's clock" in found.summary.joined


def test_without_an_answer_of_the_driver_nothing_is_joined():
    found = joined([look(100, trouble="no answer")], four_blocks())
    assert found.summary.joined == "the driver never answered"
    assert found.summary.samples == 0


# ---- The summary


def test_summary_spans_sessions_and_spreads_timed_blocks():
    series = [look(at_ms, sm_clock_mhz=1000 + at_ms, own=(at_ms,)) for at_ms in range(0, 1001, 50)]
    summary = joined(series, four_blocks(), start_ms=100, end_ms=600).summary
    assert summary.samples == 11
    assert summary.spread["sm_clock_mhz"] == FieldSpread(low=1150, median=1300, high=1450)
    assert summary.own_pids == tuple(range(100, 601, 50))
    assert (summary.interval_s, summary.longest_gap_s) == (0.05, 0.05)
    assert summary.energy_j == pytest.approx(500 * 300 / 1000)
    assert summary.trace == "t"


def test_where_nothing_was_timed_the_spread_is_over_everything():
    seen = [session(None, 100, 300)]
    found = join(looks(0, 1000), seen, exclusive=True, trace=None)
    assert found.reports == ()
    assert found.summary.samples == 5
    assert found.summary.spread["power_w"] == FieldSpread(low=300, median=300, high=300)


def test_without_any_session_every_look_counts():
    assert join(looks(0, 1000), [], exclusive=True, trace=None).summary.samples == 21


def test_reasons_are_told_as_shares_and_as_seconds():
    series = [
        look(at_ms, *([HOT] if at_ms < 50 else []), IDLE, counters={HOT: at_ms * MS}) for at_ms in range(0, 200, 50)
    ]
    summary = joined([*series, look(200, reasons=None)], [], end_ms=200).summary
    assert summary.reasons == {"idle": 1.0, "hw_thermal": 0.25}
    assert summary.reason_s == {"hw_thermal": pytest.approx(0.15)}


def test_an_energy_counter_that_began_anew_says_nothing():
    series = [look(0, energy_mj=900), look(50, energy_mj=10)]
    assert joined(series, [], end_ms=200).summary.energy_j is None


def test_sessions_are_joined_each_for_itself():
    first, second = report(four_blocks(110)), report(four_blocks(1110), number=1)
    series = [look(at_ms, sm_clock_mhz=1500 if at_ms < 1000 else 1700) for at_ms in range(0, 2001, 50)]
    found = join(
        series, [session(first), session(None, 1000, 1050), session(second, 1050, 2000)], exclusive=True, trace=None
    )
    assert [spreads["sm_clock_mhz"].median for spreads in found.under_load] == [1500, 1700]
    assert [said.session for said in found.reports] == [0, 1]


def test_a_trace_of_hours_is_joined_in_a_moment():
    """Check that every block reads only the few snapshots around it."""
    series = looks(0, 3_600_000)
    blocks = [block((A, B, B, A)[n % 4], n, 1000 * n + 10, 1000 * n + 900) for n in range(2000)]
    assert len(blocks_of(joined(series, blocks, end_ms=3_600_000))) == 2000
