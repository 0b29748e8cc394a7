"""How verbs speak."""

import pytest

from runner.cli.output import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (7.4, "7 s"), (89, "89 s"), (120, "2 min"), (5399, "90 min"), (9000, "2.5 h"), (345600, "4.0 d")],
)
def test_durations_are_said_in_a_unit_one_can_feel(seconds, text):
    assert duration(seconds) == text
