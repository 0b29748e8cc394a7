"""A record against another of the same cell."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from scipy import stats

from kernel_matrix.analysis.reproduce import expected_between, reproduction
from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Role, Status
from kernel_matrix.model.messages import INTERPRETED
from kernel_matrix.results.record import record_to_json
from tests.results.factory import block, failed_record, make_record, session, workload


def document(*medians, name="default", eager=4_000_000):
    """A record whose sessions have these medians, nanoseconds."""
    sessions = tuple(
        session(
            number,
            workloads=(
                workload(
                    name,
                    blocks=(
                        block(Role.BASELINE, 0, (eager, eager + 1) * 5),
                        block(Role.CANDIDATE, 1, (median,) * 10),
                    ),
                ),
            ),
        )
        for number, median in enumerate(medians)
    )
    return record_to_json(make_record(sessions=sessions))


def failed(status=Status.INCORRECT_VALUES):
    return record_to_json(failed_record(status=status))


def test_equal_times_are_reproduced_with_environment():
    was = document(1_000_000, 1_010_000, 990_000)
    now = document(1_004_000, 995_000, 1_003_000)
    now["host"]["device"]["driver"] = "590.1"
    now["host"]["clocks"]["driver_sm_mhz"] = 1785.5
    found = reproduction(was, now)
    assert found.reproduced
    assert (found.was_status, found.is_status) == ("passed", "passed")
    (time,) = found.times
    assert time.within
    assert time.was_ns == pytest.approx(stats.gmean([1_000_000, 1_010_000, 990_000]))
    assert [one.name for one in found.environment if not one.same] == ["driver"]
    driver = next(one for one in found.environment if one.name == "driver")
    assert (driver.was, driver.now) == ("580.159.04", "590.1")
    names = {one.name for one in found.environment}
    assert {"GPU model", "GPU unit", "image", "torch", "triton", "CUDA", "clocks", "measurement version"} <= names


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1, 2.0])
def test_a_time_beyond_its_interval_differs(factor):
    was = document(1_000_000, 1_002_000, 998_000)
    now = document(*(round(factor * ns) for ns in (1_000_000, 1_001_000, 999_000)), eager=round(factor * 4_000_000))
    found = reproduction(was, now)
    assert not found.reproduced
    (said,) = found.differences
    assert said.startswith("default: 1000 µs then, ")
    assert f"({100 * (factor - 1):+.1f} %)" in said


def test_one_session_stands_for_the_usual_noise():
    was = document(1_000_000)
    assert reproduction(was, document(1_070_000)).reproduced
    assert not reproduction(was, document(1_120_000)).reproduced
    assert reproduction(was, document(1_000_000)).times[0].rests_on == (
        "usual noise of a single session, 0.5 % between runs"
    )


def test_processor_cores_are_expected_to_vary_more():
    was, now = document(1_000_000), document(871_000)  # 12.9 % faster, forty minutes later
    assert not reproduction(was, now).reproduced
    for one in (was, now):
        one["host"]["device"]["uuid"] = None
    assert reproduction(was, now).reproduced


def test_equal_sessions_still_leave_room_for_the_run():
    was = document(1_000_000, 1_000_000, 1_000_000)
    assert reproduction(was, document(1_015_000, 1_015_000, 1_015_000)).reproduced
    assert not reproduction(was, document(1_030_000, 1_030_000, 1_030_000)).reproduced


def test_advice_is_about_the_environment_only_if_it_differs():
    was, now = document(1_000_000, 1_001_000), document(2_000_000, 2_001_000)
    assert reproduction(was, now).next_step.startswith("The recorded environment is the same")
    now["host"]["device"]["driver"] = "590.1"
    assert reproduction(was, now).next_step.startswith("Look at what differs in the environment")


def test_interval_of_noisy_sessions_is_that_of_the_textbook():
    medians, repeats = np.array([100.0, 140.0, 75.0, 110.0]), 3  # the noise of runs hardly counts beside theirs
    logs = np.log(medians)
    reach = stats.t.ppf(0.975, 3) * logs.std(ddof=1) * math.sqrt(1 / 4 + 1 / repeats)
    low, high = expected_between(medians.tolist(), repeats, level=0.95)
    assert low == pytest.approx(math.exp(logs.mean() - reach), rel=2e-3)
    assert high == pytest.approx(math.exp(logs.mean() + reach), rel=2e-3)


@pytest.mark.parametrize("between", [0.0, 0.005])
@pytest.mark.parametrize(("sessions", "repeats"), [(2, 2), (3, 3), (5, 5), (5, 3)])
def test_faithful_repetitions_lie_inside_as_often_as_stated(sessions, repeats, between):
    random = np.random.default_rng(7)
    inside = 0
    for _ in range(2000):
        was = np.exp(random.normal(0, between) + random.normal(0, 0.03, sessions))
        low, high = expected_between(was.tolist(), repeats, level=0.95)
        inside += low <= math.exp(random.normal(0, between) + random.normal(0, 0.03, repeats).mean()) <= high
    assert 0.93 <= inside / 2000 <= 0.98


def test_another_status_differs_and_says_why():
    now = failed()
    now["outcome"]["evidence"]["message"] = "output 0: 3 of 24"
    found = reproduction(document(1_000_000), now)
    assert found.differences == ("the status was passed and is incorrect_values: output 0: 3 of 24",)


def test_the_same_failure_is_reproduced_without_times():
    was = failed()
    found = reproduction(was, copy.deepcopy(was))
    assert found.reproduced
    assert found.times == ()


def test_verdicts_that_contradict_each_other_differ():
    was = document(1_000_000, 1_000_500, 999_500, eager=1_200_000)
    now = document(1_000_000, 1_000_500, 999_500, eager=800_000)
    assert reproduction(was, now).differences == ("default: the verdict was faster and is slower",)


def test_a_workload_timed_on_one_side_only_differs():
    was, now = document(1_000_000, 1_000_000), document(1_000_000, 1_000_000, name="other")
    assert reproduction(was, now).differences == ("default: timed only in the record", "other: timed only now")


def test_interpreted_times_are_not_compared():
    was, now = document(1_000_000), document(9_000_000)
    for one in (was, now):
        one["sessions"][0]["labels"] = [INTERPRETED]
    found = reproduction(was, now)
    assert found.reproduced
    assert found.times == ()
    assert any("interpreter" in note for note in found.notes)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("candidate_sha256", "9" * 64, "content of the candidate"),
        ("problem_sha256", "9" * 64, "content of the problem"),
        ("dtype", "bf16", "dtype (fp16, bf16)"),
        (None, None, "the protocol, the policy or the versions"),
    ],
)
def test_records_of_two_cells_are_refused_by_what_differs(key, value, words):
    was, now = document(1_000_000), document(1_000_000)
    now["cell_id"] = "f" * 32
    if key:
        now["cell"][key] = value
    with pytest.raises(UsageError) as refused:
        reproduction(was, now)
    assert words in str(refused.value)


def test_a_machine_that_failed_says_nothing():
    with pytest.raises(UsageError, match="infrastructure failure"):
        reproduction(document(1_000_000), failed(Status.CONTAINER_LOST))


def test_zero_times_are_none_and_huge_spreads_exclude_nothing():
    assert reproduction(document(0), document(0)).times == ()
    found = reproduction(document(1_000, 10**15), document(10**9, 10**9))
    assert found.reproduced
    assert found.times[0].low_ns < 1e-9
