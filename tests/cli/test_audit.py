"""The verb that tells what cannot be believed."""

import json

import pytest

from kernel_matrix.analysis.audit import CHECKS
from tests.analysis.made import cell, write
from tests.cli.terminal import on_terminal, piped

TIMES = {"baseline_median_ns": 20_007.0, "candidate_median_ns": 10_003.0}


@pytest.fixture
def lab(tmp_path):
    good = [cell(candidate=f"softmax/{number}", **TIMES, host_id=None) for number in range(3)]
    write(tmp_path / "good", good)
    bad = [{**row, "gpu_name": "NVIDIA L4\x1b[2J", "exclusive": None} for row in good]
    many = [cell(candidate=f"relu/{number}", **TIMES, host_id=None, machine_drift=0.5) for number in range(8)]
    write(tmp_path / "bad", [*bad, *many])
    return tmp_path


def test_findings_stand_under_their_check_the_worst_first(lab):
    done = piped(lab, "audit", "bad")
    assert (done.returncode, done.stderr) == (0, "")
    heads = [line for line in done.stdout.splitlines() if line.startswith(("error ", "warning ", "note "))]
    assert [head.split(":")[0] for head in heads] == [
        *("error wrong_board", "error two_boards", "warning not_alone", "warning drift", "note no_bound")
    ]
    assert r"h200: 3 rows were measured on NVIDIA L4\x1b[2J; the name means NVIDIA H200" in done.stdout
    assert "… and 3 more: --all --only drift" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("11 rows, 41 checks: 2 errors,")


def test_all_tells_each_and_only_asks_one(lab):
    done = piped(lab, "audit", "bad", "--all", "--only", "drift")
    assert done.stdout.count("machine_drift 50 %") == 8
    assert "two_boards" not in done.stdout


def test_strict_exits_for_errors_alone(lab):
    assert piped(lab, "audit", "bad").returncode == 0
    done = piped(lab, "audit", "bad", "--strict")
    assert done.returncode == 4
    assert "2 findings of severity error (wrong_board, two_boards)" in done.stderr
    assert piped(lab, "audit", "good", "--strict").returncode == 0
    assert piped(lab, "audit", "bad", "--strict", "--only", "drift").returncode == 0


def test_json_has_every_check_and_its_first_findings(lab):
    done = piped(lab, "audit", "bad", "--json", "--strict")
    assert done.returncode == 4
    document = json.loads(done.stdout)
    assert document["rows"] == 11
    assert [check["name"] for check in document["checks"]] == list(CHECKS.built_in)
    drift = next(check for check in document["checks"] if check["name"] == "drift")
    assert (drift["severity"], drift["findings"], drift["count"], len(drift["rows"])) == ("warning", 8, 8, 5)
    assert drift["rows"][0]["candidate"] == "relu/0"


def test_what_cannot_be_asked_is_said(lab):
    unknown = piped(lab, "audit", "bad", "--only", "copies")
    assert (unknown.returncode, "unknown check 'copies'" in unknown.stderr) == (2, True)
    write(lab / "empty", [])
    empty = piped(lab, "audit", "empty")
    assert (empty.returncode, "the tables have no rows" in empty.stderr) == (3, True)


def test_nothing_that_a_terminal_would_obey_is_printed(lab):
    assert "\x1b[2J" not in on_terminal(lab, "audit", "bad")
