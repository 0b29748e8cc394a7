"""What is said of a cell as it ends."""

from dataclasses import replace

from runner.cli.telling import verdict_line
from runner.core.vocab import Role
from tests.results.factory import block, make_record, session, workload


def test_speeds_are_those_of_the_samples_that_count():
    gone = ((0, "throttled: hw_thermal"), (1, "throttled: hw_thermal"))
    blocks = (
        block(Role.CANDIDATE, 0, (9_000, 9_000, 2_000), gone),
        block(Role.BASELINE, 1, (4_000,)),
    )
    record = replace(make_record(), sessions=(session(workloads=(workload(name="smoke", blocks=blocks),)),))
    assert verdict_line(record) == "passed: smoke 2.0 µs, 2.00x of eager"
