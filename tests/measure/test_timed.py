"""Times by contestant and regime, and discarded samples."""

from dataclasses import replace

import pytest

from kernel_matrix.measure.timed import CANDIDATE, EAGER, WorkloadTimes, contestant_of, grain_ns
from kernel_matrix.model.enums import Regime, Role
from kernel_matrix.model.messages import BatchBlock, to_json
from tests.results.factory import block, every_block, workload

GONE = ((0, "throttled: hw_thermal"),)


@pytest.mark.parametrize(
    "read", [WorkloadTimes.of_report, lambda one: WorkloadTimes.of_document(to_json(one))], ids=["report", "json"]
)
def test_report_and_document_say_the_same(read):
    times = read(workload(blocks=every_block()))
    assert times.device_ns(CANDIDATE) == [99, 100, 100, 100, 101]
    assert times.wall_ns(EAGER) == [210, 220, 200, 210, 210, 210]
    assert times.device_ns("compile") == [150, 160]
    assert times.device_ns(CANDIDATE, "warm") == [90, 91]
    assert (times.time_ns(CANDIDATE), times.time_ns(EAGER), times.time_ns("nobody")) == (100, 200, None)
    assert times.samples_ns(CANDIDATE) == times.device_ns(CANDIDATE)
    assert (times.speedup(), times.speedup("library"), times.speedup("nobody")) == (2.0, 1.55, None)


@pytest.mark.parametrize("read", [WorkloadTimes.of_report, lambda one: WorkloadTimes.of_document(to_json(one))])
@pytest.mark.parametrize(("bound_ns", "speedup"), [(160, 1.25), (None, None)])
def test_bounded_speedup_is_eager_over_the_bound(bound_ns, speedup, read):
    made = workload(blocks=every_block())
    made = replace(made, two_clocks=replace(made.two_clocks, bound_ns=bound_ns))
    assert read(made).bounded_speedup() == read(made).speedup_limit() == speedup
    assert read(replace(made, two_clocks=None)).bounded_speedup() is None


def test_speedups_are_of_cold_calls_only():
    warm = replace(block(Role.CANDIDATE, 0, (10,)), regime=Regime.WARM)
    assert WorkloadTimes.of_report(workload(blocks=(warm, block(Role.BASELINE, 1, (100,))))).speedup() is None


def test_a_time_of_nothing_has_no_speedup():
    blocks = (block(Role.CANDIDATE, 0, (0,)), block(Role.BASELINE, 1, (100,)))
    times = WorkloadTimes.of_report(workload(blocks=blocks))
    assert (times.speedup(), times.paired_speedups()) == (None, [])


def test_neighbours_stay_pairs_where_one_block_does_not_count():
    blocks = (
        block(Role.BASELINE, 0, (200,)),
        block(Role.CANDIDATE, 1, (100,), GONE),
        block(Role.CANDIDATE, 2, (50,)),
        block(Role.BASELINE, 3, (150,)),
    )
    assert WorkloadTimes.of_report(workload(blocks=blocks)).paired_speedups() == [3.0]


def batches(call_ns, count=8, spread=0.0):
    """Make long batches of each contestant, and short ones of eager; times per call differ by up to ``spread``."""
    made, none = [], (0,) * count
    for name, time_ns in call_ns.items():
        steps = [round(time_ns * (1 + spread * (2 * one / (count - 1) - 1))) for one in range(count)]
        for short in (False, True) if name == EAGER else (False,):
            calls = 10 if short else 100
            walls = tuple(900 + calls * (time_ns if short else step) for step in steps)
            made.append(BatchBlock(name, 0, 1, False, short, (calls,) * count, none, none, walls, none))
    return tuple(made)


READ = [WorkloadTimes.of_report, lambda one: WorkloadTimes.of_document(to_json(one))]
SIDES = (block(Role.CANDIDATE, 0, (50,) * 4), block(Role.BASELINE, 1, (1000,) * 4))


@pytest.mark.parametrize("read", READ, ids=["report", "json"])
def test_batches_limit_a_claim_of_a_twentieth(read):
    made = workload(blocks=SIDES)
    assert read(made).speedup() == 20
    limited = read(replace(made, batches=batches({"candidate": 800, "eager": 1000})))
    assert limited.speedup() == 1.25
    assert limited.paired_speedups() == [1.25]
    assert limited.batches(CANDIDATE).estimate == 800
    assert limited.batches("compile") is None


@pytest.mark.parametrize("claimed", [2000, 1000, 100])
def test_batches_say_the_time_whatever_is_claimed(claimed):
    blocks = (block(Role.CANDIDATE, 0, (claimed,)), block(Role.BASELINE, 1, (1000,)))
    times = WorkloadTimes.of_report(workload(blocks=blocks, batches=batches({"candidate": 800, "eager": 1200})))
    assert (times.time_ns(CANDIDATE), times.time_ns(EAGER), times.claimed_ns(CANDIDATE)) == (800, 1200, claimed)
    assert times.samples_ns(CANDIDATE) == [800] * 8
    assert (times.speedup(), times.paired_speedups()) == (1.5, [1.5])


def test_speedup_limit_is_that_of_the_intervals_ends():
    noisy = batches({"candidate": 800, "eager": 1000}, spread=0.1)
    times = WorkloadTimes.of_report(workload(blocks=SIDES, batches=noisy))
    assert times.speedup_limit() == pytest.approx(1100 / 720, rel=0.01)
    assert times.speedup() == pytest.approx(1.25, rel=0.01)


def test_batches_with_outputs_in_place_on_one_side_are_a_limit():
    made = batches({"candidate": 800, "eager": 1000})
    made = tuple(replace(one, in_place=one.contestant == EAGER) for one in made)
    times = WorkloadTimes.of_report(workload(blocks=SIDES, batches=made))
    assert not times.in_batches()
    assert (times.time_ns(CANDIDATE), times.speedup()) == (50, 1.25)


def test_discarded_batches_do_not_count_and_stay_pairs():
    slow, usual = (batches({"candidate": ns, "eager": 1000}) for ns in (4000, 800))
    made = (*(replace(one, discarded="contended: pid 1") for one in slow), *usual)
    times = WorkloadTimes.of_report(workload(blocks=SIDES, batches=made))
    assert (times.time_ns(CANDIDATE), times.paired_speedups()) == (800, [1.25])


def test_rivals_without_batches_are_compared_by_claims():
    rival = replace(block(Role.RIVAL, 2, (2000,)), contestant="compile")
    made = workload(blocks=(*SIDES, rival), batches=batches({"candidate": 800, "eager": 1000}))
    times = WorkloadTimes.of_report(made)
    assert (times.time_ns("compile"), times.speedup("compile")) == (2000, 40)


def test_batches_of_rivals_limit_speedups_over_them():
    rival = replace(block(Role.RIVAL, 2, (2000,)), contestant="compile")
    made = workload(blocks=(*SIDES, rival), batches=batches({"candidate": 800, "eager": 1000, "compile": 2400}))
    times = WorkloadTimes.of_report(made)
    assert (times.speedup("compile"), times.speedup()) == (3.0, 1.25)


ONE_SIDED = {
    "none": {},
    "the candidate only": {"candidate": 800},
    "eager only": {"eager": 1000},
    "no time at all": {"candidate": 0, "eager": 1000},
}


@pytest.mark.parametrize("name", ONE_SIDED)
def test_batches_of_one_side_limit_nothing(name):
    times = WorkloadTimes.of_report(workload(blocks=SIDES, batches=batches(ONE_SIDED[name])))
    assert (times.speedup(), times.paired_speedups()) == (20, [20])


def test_batches_too_few_for_an_interval_limit_nothing():
    few = batches({"candidate": 800, "eager": 1000}, count=7)
    assert WorkloadTimes.of_report(workload(blocks=SIDES, batches=few)).speedup() == 20


def test_bounded_speedup_with_batches_is_of_their_clock():
    made = workload(blocks=SIDES, batches=batches({"candidate": 800, "eager": 1500}))
    made = replace(made, two_clocks=replace(made.two_clocks, bound_ns=1000))
    assert WorkloadTimes.of_report(made).bounded_speedup() == 1.5
    assert WorkloadTimes.of_report(replace(made, batches=())).bounded_speedup() == 1.0


def test_records_without_batches_are_read_as_before():
    document = to_json(workload(blocks=SIDES))
    del document["batches"]
    times = WorkloadTimes.of_document(document)
    assert times.speedup() == 20
    assert times.batches(CANDIDATE) is None


@pytest.mark.parametrize(("role", "name"), [("candidate", "candidate"), ("baseline", "eager")])
def test_blocks_of_old_records_are_named_after_their_role(role, name):
    assert contestant_of({"role": role}) == contestant_of({"role": role, "contestant": ""}) == name
    assert contestant_of({"role": "rival", "contestant": "compile"}) == "compile"


@pytest.mark.parametrize(("samples", "grain"), [([], 0), ([5, 5], 0), ([96, 32, 64, 32, 160], 32)])
def test_the_grain_is_the_smallest_step(samples, grain):
    assert grain_ns(samples) == grain
