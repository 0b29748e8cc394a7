"""``kernel-matrix baseline`` as a person or a script meets it."""

from __future__ import annotations

import json
from datetime import date, timedelta

import pytest

from kernel_matrix.analysis.accepted import read_accepted
from tests.results.factory import cell_id, make_record, put


@pytest.fixture
def measured(field):
    """A field with results, and a night of them."""
    for number in range(3):
        put(field.store / "records", make_record(cell_id(number)))
        put(field.store / "nights" / "2026-03-01" / "records", make_record(cell_id(number)))
    return field


def test_a_baseline_is_set_listed_and_shown(measured):
    made = measured.call("baseline", "set", "release", "results", "--json")
    assert (made.returncode, made.stderr) == (0, "")
    facts = json.loads(made.stdout)
    assert (facts["name"], facts["records"], facts["cells"], facts["gpus"]) == ("release", 3, 3, ["h200"])
    assert facts["made_from"] == str(measured.results)
    listed = json.loads(measured.call("baseline", "list", "--json").stdout)
    assert (listed["baselines"], listed["damaged"]) == ([facts], {})
    assert json.loads(measured.call("baseline", "show", "release", "--json").stdout) == facts
    assert "release" in measured.call("baseline", "list").stdout
    assert facts["content_sha256"] in measured.call("baseline", "show", "release").stdout


def test_a_night_becomes_a_baseline_by_its_date(measured):
    made = measured.call("baseline", "set", "march", "--night", "2026-03-01", "--json")
    assert json.loads(made.stdout)["made_from"] == str(measured.store / "nights" / "2026-03-01")


def test_a_name_that_is_taken_needs_force(measured):
    assert measured.call("baseline", "set", "a", "results").returncode == 0
    again = measured.call("baseline", "set", "a", "results")
    assert (again.returncode, again.stdout) == (2, "")
    assert "--force" in again.stderr
    assert measured.call("baseline", "set", "a", "results", "--force").returncode == 0


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("set", "a"), 2, "either FOLDER or --night"),
        (("set", "a", "results", "--night", "2026-03-01"), 2, "either FOLDER or --night"),
        (("set", "a", "--night", "2026-03-02"), 2, "The last ones: 2026-03-01"),
        (("set", "a", "--night", "../x"), 2, "is no night"),
        (("set", "a/b", "results"), 2, "is no name of a baseline"),
        (("set", "a", "nowhere"), 2, "is not a folder"),
        (("show", "a"), 2, "there is no baseline a"),
        (("accept", "softmax", "--reason", "x"), 2, "PROBLEM/CANDIDATE"),
        (("accept", "a/b", "--reason", " "), 2, "is empty"),
        (("accept", "a/b", "--reason", "x", "--until", "soon"), 2, "YYYY-MM-DD"),
        (("accept", "a/b", "--reason", "x", "--until", "2020-01-01"), 2, "is over already"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(argv, code, words, measured):
    ran = measured.call("baseline", *argv)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert words in ran.stderr
    assert not (measured.results / "baselines" / "a").exists()
    assert not (measured.results / "accepted.toml").exists()


def test_a_damaged_baseline_is_told_and_costs_the_others_nothing(measured):
    for name in ("good", "bad"):
        assert measured.call("baseline", "set", name, "results").returncode == 0
    facts = measured.results / "baselines" / "bad" / "baseline.json"
    facts.chmod(0o644)
    facts.write_text("{")
    listed = json.loads(measured.call("baseline", "list", "--json").stdout)
    assert [one["name"] for one in listed["baselines"]] == ["good"]
    assert "is damaged" in listed["damaged"]["bad"]
    assert measured.call("baseline", "show", "bad").returncode == 4


def test_accepted_changes_are_added_one_by_one(field):
    day = date.today() + timedelta(days=3)  # noqa: DTZ011  # a day, local by intention
    first = field.call("baseline", "accept", "softmax/triton_*", "--reason", 'driver "580"', "--until", str(day))
    assert (first.returncode, first.stderr) == (0, "")
    assert field.call("baseline", "accept", "mätmul/x", "--reason", "größer", "--json").returncode == 0
    one, two = read_accepted(field.results / "accepted.toml")
    assert (dict(one.globs), one.reason, one.until) == ({"candidate": "softmax/triton_*"}, 'driver "580"', day)
    assert (dict(two.globs), two.reason) == ({"candidate": "mätmul/x"}, "größer")
    assert two.until - date.today() == timedelta(days=90)  # noqa: DTZ011  # as above


def test_a_file_that_is_not_in_order_is_left_as_it_is(field):
    file = field.results / "accepted.toml"
    file.parent.mkdir()
    file.write_text("[[accept]\n")
    ran = field.call("baseline", "accept", "a/b", "--reason", "x")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "is not valid TOML" in ran.stderr
    assert file.read_text() == "[[accept]\n"


def test_without_any_the_list_says_how_to_make_one(field):
    assert "baseline set NAME FOLDER" in field.call("baseline", "list").stdout
