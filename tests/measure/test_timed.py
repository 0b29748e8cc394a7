"""Times by contestant and regime, and discarded samples."""

from dataclasses import replace

import pytest

from kernel_matrix.measure.timed import CANDIDATE, EAGER, WorkloadTimes, contestant_of, grain_ns
from kernel_matrix.model.enums import Regime, Role
from kernel_matrix.model.messages import to_json
from tests.results.factory import block, every_block, workload

GONE = ((0, "throttled: hw_thermal"),)


@pytest.mark.parametrize(
    "read", [WorkloadTimes.of_report, lambda one: WorkloadTimes.of_document(to_json(one))], ids=["report", "json"]
)
def test_report_and_document_say_the_same(read):
    times = read(workload(blocks=every_block()))
    assert times.device_ns(CANDIDATE) == [100, 101, 99, 100, 100]
    assert times.wall_ns(EAGER) == [210, 220, 200, 210, 210, 210]
    assert times.device_ns("compile") == [150, 160]
    assert times.device_ns(CANDIDATE, "warm") == [90, 91]
    assert (times.median_ns(CANDIDATE), times.median_ns(EAGER), times.median_ns("nobody")) == (100, 200, None)
    assert (times.speedup(), times.speedup("library"), times.speedup("nobody")) == (2.0, 1.55, None)


@pytest.mark.parametrize("read", [WorkloadTimes.of_report, lambda one: WorkloadTimes.of_document(to_json(one))])
@pytest.mark.parametrize(("bound_ns", "speedup"), [(160, 1.25), (None, None)])
def test_bounded_speedup_is_eager_over_the_bound(bound_ns, speedup, read):
    made = workload(blocks=every_block())
    made = replace(made, two_clocks=replace(made.two_clocks, bound_ns=bound_ns))
    assert read(made).bounded_speedup() == speedup
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


@pytest.mark.parametrize(("role", "name"), [("candidate", "candidate"), ("baseline", "eager")])
def test_blocks_of_old_records_are_named_after_their_role(role, name):
    assert contestant_of({"role": role}) == contestant_of({"role": role, "contestant": ""}) == name
    assert contestant_of({"role": "rival", "contestant": "compile"}) == "compile"


@pytest.mark.parametrize(("samples", "grain"), [([], 0), ([5, 5], 0), ([96, 32, 64, 32, 160], 32)])
def test_the_grain_is_the_smallest_step(samples, grain):
    assert grain_ns(samples) == grain
