"""How verbs speak."""

import json
from datetime import date, datetime, timezone

import pytest

from kernel_matrix.cli.output import duration, print_json


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (7.4, "7 s"), (89, "89 s"), (120, "2 min"), (5399, "90 min"), (9000, "2.5 h"), (345600, "4.0 d")],
)
def test_durations_are_said_in_a_unit_one_can_feel(seconds, text):
    assert duration(seconds) == text


def test_json_is_strict_whatever_a_table_holds(capsys):
    print_json(
        {
            "times": [1.5, float("inf"), float("nan")],
            "night": date(2026, 3, 1),
            "at": datetime(2026, 3, 1, 2, tzinfo=timezone.utc),
        }
    )
    text = capsys.readouterr().out
    assert json.loads(text) == {"times": [1.5, None, None], "night": "2026-03-01", "at": "2026-03-01T02:00:00+00:00"}
    assert "NaN" not in text
