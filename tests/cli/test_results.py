from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_matrix.api.results import newest_results
from kernel_matrix.api.wording import describe_label
from kernel_matrix.model.enums import Role, Status
from kernel_matrix.results.store import RecordStore
from tests.analysis.made import cell, write
from tests.cli.terminal import piped
from tests.results.factory import (
    CELL_KEY,
    CLOCKS,
    HEALTH,
    HOST,
    block,
    cell_id,
    failed_record,
    make_record,
    outcome,
    put,
    session,
    workload,
)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    store = RecordStore(tmp_path / "results" / "nightly")
    store.save(make_record())
    store.save(failed_record(cell_id(1), cell=replace(CELL_KEY, candidate="softmax/broken")))
    return tmp_path


def test_a_result_folder_is_shown_as_it_is_now(lab: Path) -> None:
    done = piped(lab, "results")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[1] == [
        "softmax",
        "[default]",
        "online",
        "fp16",
        "h200",
        "cu128",
        "passed",
        "0.1",
        "0.2",
        "2.00×",
        "inconclusive",
        "C",
        "few_calls",
        "5",
        "5",
        "0.1",
        "%",
        "5",
        "locked",
        "3,072",
        "/",
        "1",
        "1",
        "contended",
    ]
    assert "low_resolution, 1 result: caution: the calls are so short that they can have taken " in done.stdout
    assert "a kernel builds and cannot be launched, 2 results" in done.stdout
    assert lines[2] == ["softmax", "broken", "fp16", "h200", "cu128", "compile_error", "locked"]
    assert (
        "softmax/broken fp16 h200 cu128: compile_error at verify, fault candidate: expected ';' before '}'"
        in done.stdout
    )
    assert done.stdout.splitlines()[-2] == "2 results: 1 passed, 1 did not"
    assert sorted(p.name for p in lab.iterdir()) == ["results"]


def test_results_prints_information_only_where_it_is_rare(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "results" / "nightly")
    for number in range(10):
        labels = ("budget_reached", "unsteady") if number == 0 else ("unsteady",)
        sessions = (session(workloads=(replace(workload(), labels=labels),), cell_id=cell_id(number)),)
        store.save(make_record(cell_id(number), sessions=sessions))
    assert "budget_reached" not in piped(tmp_path, "results").stdout
    store.save(make_record(cell_id(10)))
    shown = piped(tmp_path, "results").stdout
    assert f"budget_reached, 1 result: {describe_label('budget_reached')}" in " ".join(shown.split())
    assert "unsteady, 10 results: caution: " in shown
    labels = [row["labels"] for row in json.loads(piped(tmp_path, "results", "--json").stdout)]
    assert sum("budget_reached" in one for one in labels) == 1


def test_merged_tables_are_shown_too(lab: Path) -> None:
    assert piped(lab, "merge").returncode == 0
    assert piped(lab, "results", "tables").stdout == piped(lab, "results", "results").stdout


def test_json_and_filters(lab: Path) -> None:
    done = piped(lab, "results", "--json", "--filter", "status=passed", "--filter", "candidate!=*/broken")
    (row,) = json.loads(done.stdout)
    assert (row["candidate"], row["speedup"], row["sessions"]) == ("softmax/online", 2.0, 1)
    nothing = piped(lab, "results", "--filter", "dtype=bf16")
    assert (nothing.returncode, nothing.stdout) == (3, "")
    wrong = piped(lab, "results", "--filter", "prblem=red")
    assert (wrong.returncode, "did you mean 'problem'?" in wrong.stderr, "Keys are gpu" in wrong.stderr) == (
        2,
        True,
        True,
    )


@pytest.mark.parametrize("verb", [("results",), ("analyze", "scores"), ("audit",), ("report",)])
def test_value_that_matches_nothing_is_told_the_closest(verb: tuple[str, ...], lab: Path) -> None:
    done = piped(lab, *verb, "--filter", "problem=SoftMax")
    assert (done.returncode, done.stdout) == (3, "")
    assert "no problem is 'SoftMax'; did you mean 'softmax'?" in done.stderr


def test_last_run_is_shown_without_the_others(lab: Path) -> None:
    other = RecordStore(lab / "results" / "another")
    other.save(make_record(cell_id(7)))
    os.utime(other.root / "records", (1_000, 1_000))
    done = piped(lab, "results")
    assert done.stdout.splitlines()[-2:] == [
        "2 results: 1 passed, 1 did not",
        "shown: results/nightly (kernel-matrix results FOLDER shows another)",
    ]
    assert "3 results: 2 passed, 1 did not" in piped(lab, "results", "results").stdout


def test_folder_that_changed_last_is_the_newest(lab: Path) -> None:
    first, second = lab / "results" / "nightly", lab / "results" / "second"
    RecordStore(second).save(make_record(cell_id(7)))
    for newest, other in ((first, second), (second, first)):
        os.utime(other / "records", (1_000, 1_000))
        os.utime(newest / "records", (2_000, 2_000))
        assert newest_results(lab / "results") == newest


def test_packed_sets_are_named_where_there_are_no_results(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "example.kmz").touch()
    done = piped(tmp_path, "results")
    assert done.returncode == 2
    assert "Name one of the packed sets in it: results/example.kmz." in done.stderr


def test_newest_folder_is_the_root_where_there_is_no_other(tmp_path: Path) -> None:
    assert newest_results(tmp_path) == tmp_path
    assert newest_results(tmp_path / "absent") == tmp_path / "absent"


def test_expected_failures_are_counted_apart(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "results" / "nightly")
    declared = replace(CELL_KEY, candidate="softmax/wrong", expect=Status.COMPILE_ERROR)
    store.save(failed_record(cell_id(1), cell=declared))
    store.save(failed_record(cell_id(2), cell=replace(CELL_KEY, candidate="softmax/broken")))
    shown = piped(tmp_path, "results").stdout
    assert "2 results: 0 passed, 1 failed as expected, 1 did not" in shown
    assert ("softmax/broken fp16" in shown, "softmax/wrong fp16" in shown) == (True, False)
    assert "softmax/wrong fp16" in piped(tmp_path, "results", "-v").stdout


def test_quiet_results_are_warnings_and_the_summary(lab: Path) -> None:
    done = piped(lab, "results", "-q")
    assert "median µs" not in done.stdout
    assert "2 results: 1 passed, 1 did not" in done.stdout


def test_one_run_is_chosen_by_its_id(lab: Path) -> None:
    run = json.loads(piped(lab, "results", "--json").stdout)[0]["run_id"]
    assert len(json.loads(piped(lab, "results", "--json", "--run", "latest").stdout)) == 2
    assert len(json.loads(piped(lab, "results", "--json", "--run", run[:8]).stdout)) == 2
    assert piped(lab, "results", "--run", "nonesuch").returncode == 3


def test_interval_rate_and_share_of_peak_have_columns(tmp_path: Path) -> None:
    timed = cell(
        baseline_median_ns=2000.0,
        candidate_median_ns=1000.0,
        verdict_speedup=2.0,
        verdict_low=1.9,
        verdict_high=2.04,
        bytes_per_s=2.5e12,
        share_of_peak=0.521,
    )
    write(tmp_path / "tables", [timed])
    head, row = piped(
        tmp_path, "results", "tables", "--columns", "plus_minus,gb_per_s,percent_of_peak"
    ).stdout.splitlines()[:2]
    assert (head.split(), row.split()) == (["±", "GB/s", "of", "peak"], ["±5.0", "%", "2,500", "52.1", "%"])


def test_bus_bandwidth_and_share_of_link_can_be_asked_for(tmp_path: Path) -> None:
    timed = cell(candidate_median_ns=1000.0, bus_bytes_per_s=3.12e11, link_share_of_peak=0.693)
    write(tmp_path / "tables", [timed])
    columns = "bus_gb_per_s,percent_of_link"
    head, row = piped(tmp_path, "results", "tables", "--columns", columns).stdout.splitlines()[:2]
    assert (head.split(), row.split()) == (["bus", "GB/s", "of", "link"], ["312", "69.3", "%"])
    assert "bus GB/s" not in piped(tmp_path, "results", "tables").stdout


def test_what_was_put_aside_is_said_on_stderr(lab: Path) -> None:
    put(lab / "results" / "nightly" / "records", make_record(cell_id(5)), schema_version=2)
    done = piped(lab, "results")
    assert (done.returncode, "1 files are no valid records" in done.stderr) == (0, True)


def test_evidence_cannot_speak_to_the_terminal(lab: Path) -> None:
    said = outcome(Status.CRASHED, "\x1b[2Jgone [bold red]really[/bold red]\u202e")
    RecordStore(lab / "results" / "nightly").save(make_record(cell_id(6), outcome=said))
    done = piped(lab, "results")
    assert "\x1b" not in done.stdout
    assert "[2Jgone [bold red]really[/bold red]" in done.stdout


def test_clocks_that_are_not_as_wanted_are_never_hidden(lab: Path) -> None:
    store = RecordStore(lab / "results" / "nightly")
    forbidden = replace(HOST, clock_state="unlocked", clock_reason="this host forbids it")
    for number in (2, 3):
        store.save(make_record(cell_id(number), host=forbidden, cell=replace(CELL_KEY, candidate=f"softmax/u{number}")))
    observed = replace(HOST, clock_policy="observe", clock_state="unlocked", clock_reason="nothing was set")
    store.save(make_record(cell_id(4), host=observed, cell=replace(CELL_KEY, candidate="softmax/observed")))
    hot = replace(HOST, clock_policy="observe", clock_state="throttled", clock_reason="hw_thermal in 80 % of it")
    said = outcome(Status.THROTTLED, "too hot")
    store.save(make_record(cell_id(5), host=hot, outcome=said, cell=replace(CELL_KEY, candidate="softmax/hot")))
    shown = piped(lab, "results").stdout
    assert shown.count(" unlocked (policy lock) ") == 2
    assert "clocks unlocked (policy lock), 2 results: this host forbids it" in shown
    assert "clocks throttled, 1 result: hw_thermal in 80 % of it" in shown
    assert "nothing was set" not in shown
    merged = piped(lab, "merge").stdout
    assert "clocks: 2 locked, 1 throttled, 1 unlocked, 2 unlocked (policy lock)" in merged


def test_a_gpu_that_was_not_left_as_it_was_is_told(lab: Path) -> None:
    stuck = replace(
        HOST,
        clocks=replace(CLOCKS, reset="failed", reset_reason="no permission"),
        health=replace(HEALTH, probe="failed", quarantined=True),
    )
    RecordStore(lab / "results" / "nightly").save(make_record(cell_id(2), host=stuck))
    shown = piped(lab, "results").stdout
    assert "clocks not given back after 1 result: run `kernel-matrix sweep`" in shown
    assert "GPU quarantined for the rest of its run after 1 result" in shown


def test_a_table_without_discards_has_no_column_for_them(lab: Path) -> None:
    whole = (workload(blocks=(block(Role.CANDIDATE, 0, (100,)), block(Role.BASELINE, 1, (200,)))),)
    RecordStore(lab / "results" / "other").save(
        make_record(cell_id(2), sessions=(session(workloads=whole, cell_id=cell_id(2)),))
    )
    assert "discarded" not in piped(lab, "results", "results/other").stdout
    assert "1 contended" in piped(lab, "results", "results/nightly").stdout
    assert "samples discarded: 1 contended" in piped(lab, "merge").stdout
    assert "discarded" not in piped(lab, "merge", "results/other").stdout
