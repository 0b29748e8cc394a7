"""The stopping rule."""

from dataclasses import replace

import pytest

from kernel_matrix.matrix import Protocol
from kernel_matrix.measure.stopping import wants_more
from kernel_matrix.model.enums import Role, Status
from tests.results.factory import block, session, workload

PUBLISH = Protocol(sessions=3, max_sessions=6, session_half_width=0.005)


def report(number, eager, candidate=1000, name="default", **changes):
    blocks = (block(Role.CANDIDATE, 0, (candidate,)), block(Role.BASELINE, 1, (eager,)))
    return replace(session(number, workloads=(workload(name, blocks=blocks),)), **changes)


def reports(*eager):
    return [report(number, time_ns) for number, time_ns in enumerate(eager)]


@pytest.mark.parametrize(
    ("eager", "more"),
    [
        ((), True),
        ((2000, 2000), True),
        ((2000, 2001, 1999), False),
        ((2000, 2100, 1900), True),
        ((2000, 2100, 1900, 2000, 2100), True),
        ((2000, 2100, 1900, 2000, 2100, 1900), False),
    ],
)
def test_sessions_go_on_until_the_interval_is_narrow_enough(eager, more):
    assert wants_more(reports(*eager), PUBLISH) is more


def test_one_session_is_enough_where_one_is_asked_for():
    assert wants_more(reports(2000), Protocol()) is False


def test_every_workload_has_to_be_known_well_enough():
    steady, shaky = report(0, 2000).workloads, report(0, 2000, name="large").workloads
    other = report(0, 2200, name="large").workloads
    both = [session(number, workloads=(*steady, *(shaky if number % 2 else other))) for number in range(4)]
    assert wants_more(both, PUBLISH) is True
    assert wants_more([replace(one, workloads=steady) for one in both], PUBLISH) is False


def test_decided_or_untimed_cell_gets_no_more_sessions():
    failed = [*reports(2000), session(1, Status.INCORRECT_VALUES, workloads=())]
    assert wants_more(failed, PUBLISH) is False
    interpreted = [replace(one, labels=("interpreted",)) for one in reports(2000, 2500, 1500)]
    assert wants_more(interpreted, PUBLISH) is False
    untimed = [session(number, workloads=(workload(blocks=()),)) for number in range(3)]
    assert wants_more(untimed, PUBLISH) is False
