"""``kernel-matrix run`` as a person or a script meets it, on processes of this machine."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from datetime import datetime, timedelta

import pytest

from tests.baddays.field import PRELOADED, events, new_field
from tests.cli.terminal import on_terminal

NOT_ON_SUNDAYS = """
[[exclude]]
candidate = "tiny/honest"
reason = "not on Sundays"
"""
NOBODY = "unix:///nonexistent/docker.sock"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A field where one cell passed and one did not; tests work on copies."""
    with new_field(tmp_path_factory.mktemp("done"), program=PRELOADED) as field:
        field.write_matrix("tiny/honest", "tiny/wrong")
        ran = field.call("run", "--sandbox", "process")
        assert (ran.returncode, ran.stderr) == (0, "")
        yield field, ran.stdout


@pytest.fixture
def again(done, tmp_path):
    """A field that may be changed, with those two records."""
    with new_field(tmp_path, program=PRELOADED) as field:
        field.write_matrix("tiny/honest", "tiny/wrong")
        shutil.copytree(done[0].results, field.results)
        yield field


def attempts(field):
    return Counter(record["cell"]["candidate"].removeprefix("tiny/") for record in field.records())


def ran_cells(ran):
    return [event["cell"].split()[0] for event in events(ran.stdout) if event["event"] == "cell_ended"]


@pytest.mark.torch
def test_run_into_a_pipe_prints_plain_lines_and_the_next_step(done):
    lines = done[1].splitlines()
    assert lines[0].startswith("sandbox process ")
    assert "2 cells to run, about" in lines[2]
    assert "[1/2] tiny/honest fp32 cpu/cpu: passed: smoke " in done[1]
    assert "[2/2] tiny/wrong fp32 cpu/cpu: incorrect_values (as expected): output 0: 24 of 24" in done[1]
    assert lines[-1] == "next: kernel-matrix results results/baddays"


@pytest.mark.torch
def test_the_runs_own_file_says_what_came_of_it(done):
    (run,) = done[0].runs()
    assert (run["planned"], run["counts"]) == (2, {"passed": 1, "incorrect_values": 1})
    assert (run["interrupted"], run["engine"]) == (False, "process")
    assert run["started_at"] < run["ended_at"]
    assert {record["run_id"] for record in done[0].records()} == {run["run_id"]}


@pytest.mark.torch
@pytest.mark.parametrize("rerun", ["none", "stale"])
def test_what_has_a_record_does_not_run_again(rerun, again):
    ran = again.run("--sandbox", "process", "--rerun", rerun)
    assert ran.returncode == 0
    assert [event["event"] for event in events(ran.stdout)] == ["run_started", "run_ended"]
    assert events(ran.stdout)[0]["done_before"] == 2
    assert attempts(again) == {"honest": 1, "wrong": 1}


@pytest.mark.torch
@pytest.mark.parametrize(
    ("spoiled", "place"),
    [
        ("dtipes = ['fp32']", ":1: dtipes: unknown key; allowed: category, description,"),
        ("level = 1\ndtypes = [fp32", ":2: not valid TOML: "),
        ("level = 1", ":1: 'category' is a required property"),
    ],
)
def test_run_with_invalid_problem_warns_once_and_runs_the_rest(spoiled, place, again):
    broken = again.root / "problems" / "broken"
    broken.mkdir()
    shutil.copy(again.root / "problems" / "tiny" / "reference.py", broken)
    (broken / "problem.toml").write_text(spoiled)
    ran = again.call("run", "--sandbox", "process", "--rerun", "failed")
    assert (ran.returncode, ran.stderr) == (0, "")
    warning = ran.stdout[: ran.stdout.index("sandbox process ")]
    assert warning.startswith("warning: 1 file cannot be used, and nothing of what it defines runs\n")
    assert f"problems/broken/problem.toml{place}" in warning
    assert warning.endswith("→ kernel-matrix docs problems says what such files hold\n")
    assert ran.stdout.count("broken") == 1
    assert attempts(again) == {"honest": 1, "wrong": 2}
    first, *others = events(again.run("--sandbox", "process").stdout)
    assert (first["event"], place in first["text"]) == ("warning", True)
    assert [event["event"] for event in others] == ["run_started", "run_ended"]


@pytest.mark.torch
def test_failed_cells_run_again_when_that_is_asked_for(again):
    ran = again.run("--sandbox", "process", "--rerun", "failed")
    assert ran_cells(ran) == ["tiny/wrong"]
    assert attempts(again) == {"honest": 1, "wrong": 2}
    assert sorted(record["attempt"] for record in again.records()) == [1, 1, 2]


@pytest.mark.torch
def test_rerun_all_with_filter_repeats_only_matching_cells(again):
    ran = again.run("--sandbox", "process", "--rerun", "all", "--filter", "candidate=*/honest")
    assert ran_cells(ran) == ["tiny/honest"]
    assert attempts(again) == {"honest": 2, "wrong": 1}


@pytest.mark.torch
def test_changed_candidate_is_a_new_cell_and_old_record_stays(again):
    source = again.candidates / "wrong.py"
    source.write_text(source.read_text().replace("2 * x", "2 * x + 1"))
    ran = again.run("--sandbox", "process")
    assert ran_cells(ran) == ["tiny/wrong"]
    ended = [event for event in events(ran.stdout) if event["event"] == "cell_ended"]
    assert (ended[0]["status"], ended[0]["attempt"]) == ("passed", 1)
    assert len({record["cell_id"] for record in again.records()}) == 3


@pytest.mark.torch
def test_failed_candidate_exits_1_only_with_fail_on(again):
    options = ("--sandbox", "process", "--rerun", "failed")
    assert again.run(*options, "--fail-on", "candidate").returncode == 1


@pytest.mark.torch
def test_dry_run_shows_settings_of_processes_and_runs_nothing(field):
    field.write_matrix("tiny/honest", "tiny/wrong")
    ran = field.call("run", "--dry-run", "--sandbox", "process")
    assert (ran.returncode, ran.stderr) == (0, "")
    cells = json.loads(ran.stdout)
    assert [cell["candidate"] for cell in cells] == ["tiny/honest", "tiny/wrong"]
    orders = {role: process["orders"] for role, process in cells[0]["processes"].items()}
    assert orders.keys() == {"judge", "candidate", "eager"}
    assert "kernel_matrix.inside.judge.judge" in orders["judge"]["argv"]
    assert "kernel_matrix.inside.worker.worker" in orders["candidate"]["argv"]
    assert orders["candidate"]["tmpfs_bytes"] == 64 << 20
    assert not field.results.exists()
    assert field.leftovers() == []


@pytest.mark.docker
@pytest.mark.timeout(1800)  # see below
def test_an_unpacked_image_is_what_docker_runs(tmp_path, cpu_lock, unpacked_cpu):
    with new_field(tmp_path, cpu_lock, environment=unpacked_cpu) as field:
        for sandbox in ("docker", "unpacked"):
            ran = field.run("--sandbox", sandbox, "--rerun", "all")
            assert (ran.returncode, ran.stderr) == (0, "")
        contained, unpacked = field.records()
    assert [record["host"]["engine"] for record in (contained, unpacked)] == ["docker", "unpacked"]
    assert {record["outcome"]["status"] for record in (contained, unpacked)} == {"passed"}
    assert contained["host"]["environment"] == unpacked["host"]["environment"]
    pins = [
        {name: record["host"]["image"][name] for name in ("reference", "repo_digest", "state")}
        for record in (contained, unpacked)
    ]
    assert pins[0] == pins[1]
    assert unpacked["host"]["image"]["id"] == json.loads(cpu_lock.read_text())["images"]["cpu"]["config_digest"]
    assert unpacked["host"]["image"]["store"] == "unpacked"


@pytest.mark.docker
@pytest.mark.timeout(1800)  # where the CPU image is missing, it is built first
def test_a_dry_run_on_docker_shows_the_create_requests(tmp_path, cpu_lock):
    with new_field(tmp_path, cpu_lock) as field:
        ran = field.call("run", "--dry-run", "--sandbox", "docker")
        (cell,) = json.loads(ran.stdout)
        assert not field.results.exists()
    pinned = json.loads(cpu_lock.read_text())["images"]["cpu"]
    for role, module in (
        ("judge", "kernel_matrix.inside.judge.judge"),
        ("candidate", "kernel_matrix.inside.worker.worker"),
    ):
        request = cell["processes"][role]["create"]
        assert request["Image"] in (pinned["config_digest"], pinned["digest"])
        assert module in request["Entrypoint"]
        assert request["HostConfig"]["NetworkMode"] == "none"
        assert request["HostConfig"]["PidsLimit"] == 256
        assert request["HostConfig"]["Memory"] == (2048 << 20) * (2 if role == "judge" else 1)


@pytest.mark.torch
def test_shards_share_the_cells_without_a_rest(field):
    field.write_matrix("tiny/*")
    parts = [
        json.loads(field.call("run", "--dry-run", "--sandbox", "process", "--shard", f"{i}/2").stdout) for i in (1, 2)
    ]
    ids = [cell["cell_id"] for part in parts for cell in part]
    assert len(ids) == len(set(ids)) == len(list(field.candidates.glob("*.py")))
    assert all(parts)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--rerun", "some"), "allowed: none, failed, stale, all"),
        (("--deadline", "25:00"), "--deadline '25:00' is no time of day"),
        (("--sandbox", "podman"), "allowed: auto, docker, unpacked, process"),
        (("--filter", "colour=red"), "unknown key 'colour'"),
        (("--shard", "3/2"), "1 ≤ I ≤ N"),
        (("--fail-on", "problem"), "--fail-on problem is not known"),
        (("absent.toml",), "absent.toml"),
    ],
)
def test_what_cannot_be_understood_is_exit_2_and_nothing_happens(options, words, field):
    ran = field.call("run", *options, DOCKER_HOST=NOBODY)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert words in ran.stderr
    assert not field.results.exists()


@pytest.mark.torch
def test_nothing_selected_is_exit_3(field):
    ran = field.run("--sandbox", "process", "--filter", "candidate=tiny/nobody")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "no cell is selected" in ran.stderr


@pytest.mark.torch
def test_nothing_that_can_run_is_exit_3_and_says_why(field):
    field.write_matrix("tiny/honest", "tiny/wrong", more=NOT_ON_SUNDAYS)
    ran = field.run("--sandbox", "process", "--filter", "candidate=*/honest")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "1 cells selected, none of which can run here" in ran.stderr
    assert "1 × excluded because not on Sundays" in ran.stderr


@pytest.mark.torch
def test_a_deadline_that_is_too_near_puts_cells_off(field):
    matrix = field.root / "matrix.toml"
    matrix.write_text(matrix.read_text().replace("sessions = 1\n", "sessions = 1000\n"))
    soon = (datetime.now().astimezone() + timedelta(minutes=2)).strftime("%H:%M")
    ran = field.run("--sandbox", "process", "--deadline", soon)
    assert ran.returncode == 0
    assert [event["event"] for event in events(ran.stdout)] == ["run_started", "cell_skipped", "run_ended"]
    assert events(ran.stdout)[-1]["left"] == 1
    assert field.runs()[0]["interrupted"]


HOSTILE = """
class ModelNew:
    def __init__(self):
        raise ValueError("\\x1b[2J\\x1b]0;owned\\x07 \\u202edessap \\x9b31m passed")
"""
SHOWN = r"ValueError: \x1b[2J\x1b]0;owned\x07 \u202edessap \x9b31m passed"


@pytest.mark.torch
def test_text_of_hostile_exception_is_shown_not_obeyed(tmp_path):
    with new_field(tmp_path, program=PRELOADED) as field:
        (field.candidates / "hostile.py").write_text(HOSTILE)
        field.write_matrix("tiny/hostile")
        ran = field.call("run", "--sandbox", "process")
        assert SHOWN in ran.stdout
        kept = next(field.store.glob("records/*.json")).read_text()
        shown = [ran.stdout, ran.stderr, *(field.call(*verb).stdout for verb in AFTERWARDS)]
        on_screen = on_terminal(field.root, "run", "--sandbox", "process", "--rerun", "all")
    assert "owned" in kept
    for text in shown:
        assert not set("\x1b\x07\x9b\r\u202e") & set(text)
    without_styles = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", on_screen)
    on_one_line = "".join(SHOWN.replace(r"\x07", "").split())  # rich drops this character, and may wrap lines
    assert on_one_line in "".join(without_styles.split())
    assert not set("\x07\x9b\u202e") & set(on_screen)
    assert "\x1b[2J" not in on_screen
    assert "\x1b]" not in on_screen


AFTERWARDS = (
    ("results", "results/baddays"),
    ("report", "results/baddays", "--format", "text"),
    ("report", "results/baddays", "--format", "md"),
)
