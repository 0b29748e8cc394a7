"""What is said of a cell as it ends."""

from dataclasses import replace

import pytest

from runner.cli.telling import verdict_line
from runner.core.vocab import Role, Status
from tests.results.factory import BUILD, CELL_KEY, HOST, block, failed_record, make_record, session, workload


def timed(number, candidate, eager, **changes):
    blocks = []
    for index in range(0, 8, 2):
        blocks += [block(Role.CANDIDATE, index, (candidate,) * 5), block(Role.BASELINE, index + 1, (eager,) * 5)]
    return replace(session(number, workloads=(workload(name="smoke", blocks=tuple(blocks)),)), **changes)


def test_speeds_are_those_of_the_samples_that_count():
    gone = ((0, "throttled: hw_thermal"), (1, "throttled: hw_thermal"))
    blocks = (
        block(Role.CANDIDATE, 0, (9_000, 9_000, 2_000), gone),
        block(Role.BASELINE, 1, (4_000,)),
    )
    record = replace(make_record(), sessions=(session(workloads=(workload(name="smoke", blocks=blocks),)),))
    assert verdict_line(record) == "passed: smoke 2.0 µs, 2.00x of eager"


@pytest.mark.parametrize(
    ("sessions", "line"),
    [
        ((timed(0, 2_000, 4_000),), "passed: smoke 2.0 µs, 2.00x of eager, faster"),
        ((timed(0, 2_000, 2_020),), "passed: smoke 2.0 µs, 1.01x of eager"),
        (
            (timed(0, 2_000, 4_000), timed(1, 2_000, 4_000)),
            "passed: smoke 2.0 µs, 2.00x of eager (2.000 to 2.000), faster, grade A",
        ),
        (
            (timed(0, 2_000, 4_000), timed(1, 2_000, 3_000)),
            "passed: smoke 2.0 µs, 1.73x of eager (0.278 to 10.772), inconclusive, grade A",
        ),
        ((timed(0, 2_000, 4_000, labels=("interpreted",)),), "passed (interpreted: its speed says nothing)"),
    ],
)
def test_a_verdict_is_told_where_there_is_one(sessions, line):
    assert verdict_line(replace(make_record(), sessions=sessions)) == line


def test_what_was_only_compiled_is_told_by_its_kernels():
    compiled = failed_record(status=Status.COMPILED, cell=CELL_KEY)
    assert verdict_line(compiled) == (
        "compiled: 2 kernels, at most 255 registers, 262144 bytes of shared memory, 24 bytes spilled, "
        "online_softmax_wide cannot be launched: 262144 bytes of shared memory, 232448 are there"
    )
    one = replace(BUILD, kernels=BUILD.kernels[:1])
    assert verdict_line(replace(compiled, host=replace(HOST, build=one))) == (
        "compiled: 1 kernel, at most 40 registers, 4096 bytes of shared memory"
    )
    assert verdict_line(replace(compiled, host=replace(HOST, build=None))) == "compiled"


def test_a_failure_is_told_by_its_evidence():
    said = "compile_error: expected ';'\nbefore '}'"
    assert verdict_line(failed_record()) == said
    expected = replace(CELL_KEY, expect=Status.COMPILE_ERROR)
    assert verdict_line(failed_record(cell=expected)) == said.replace(":", " (as expected):", 1)
