"""Snapshots of several devices as one series."""

from __future__ import annotations

from kernel_matrix.lease.group_snapshots import joined_snapshots
from kernel_matrix.lease.watch import DeviceSnapshot
from kernel_matrix.platforms import EventReason, TelemetrySample


def taken(at_ns, *, own=(), foreign=(), **values):
    return DeviceSnapshot(TelemetrySample(at_ns=at_ns, **values), own=own, foreign=foreign)


def test_joined_snapshots_of_one_device_are_its_own():
    alone = [taken(1), taken(2)]
    assert joined_snapshots([alone]) == alone


def test_joined_snapshot_has_the_worst_of_all_devices():
    first = taken(10, sm_clock_mhz=1980, temperature_c=40, power_w=300.0, memory_used_bytes=5, own=(1,))
    other = taken(11, sm_clock_mhz=1200, temperature_c=70, power_w=200.0, memory_used_bytes=7, own=(2,))
    (joined,) = joined_snapshots([[first], [other]])
    assert joined.sample.at_ns == 10
    assert (joined.sample.sm_clock_mhz, joined.sample.temperature_c) == (1200, 70)
    assert (joined.sample.power_w, joined.sample.memory_used_bytes) == (500.0, 12)
    assert joined.own == (1, 2)


def test_joined_snapshots_lose_no_process_of_the_faster_device():
    first = [taken(10), taken(20), taken(30)]
    other = [taken(5), taken(12, foreign=(7,)), taken(14), taken(21), taken(33, foreign=(9,))]
    assert [one.foreign for one in joined_snapshots([first, other])] == [(7,), (), (9,)]


def test_joined_snapshots_repeat_the_last_of_the_slower_device():
    first = [taken(10), taken(20), taken(30)]
    other = [taken(9, sm_clock_mhz=7)]
    joined = joined_snapshots([[taken(at.sample.at_ns, sm_clock_mhz=9) for at in first], other])
    assert [one.sample.sm_clock_mhz for one in joined] == [7, 7, 7]


def test_joined_counters_grow_if_one_of_them_does():
    heat = EventReason.SW_THERMAL
    first = [taken(10, reason_ns={heat: 5}), taken(20, reason_ns={heat: 5})]
    other = [taken(10, reason_ns={heat: 1}), taken(20, reason_ns={heat: 9}, reasons=(heat,))]
    joined = joined_snapshots([first, other])
    assert [one.sample.reason_ns[heat] for one in joined] == [6, 14]
    assert joined[1].sample.reasons == (heat,)


def test_joined_value_is_unknown_if_one_device_does_not_say():
    (joined,) = joined_snapshots([[taken(1, power_w=3.0)], [taken(1)]])
    assert joined.sample.power_w is None


def test_joined_trouble_of_any_device_is_told():
    troubled = DeviceSnapshot(TelemetrySample(at_ns=1), trouble="no answer")
    assert joined_snapshots([[taken(1)], [troubled]])[0].trouble == "no answer"
