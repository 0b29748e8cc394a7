from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from runner.core.vocab import Status
from runner.results.store import Store
from tests.results.factory import CELL_KEY, cell_id, failed_record, make_record, outcome, put

ROOT = Path(__file__).parents[2]


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "runner", *arguments),
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    store = Store(tmp_path / "results" / "nightly")
    store.save(make_record())
    store.save(failed_record(cell_id(1), cell=replace(CELL_KEY, candidate="softmax/broken")))
    return tmp_path


def test_a_result_folder_is_shown_as_it_is_now(lab: Path) -> None:
    done = call(lab, "results")
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
        "5",
        "locked",
    ]
    assert lines[2] == ["softmax", "broken", "fp16", "h200", "cu128", "compile_error", "locked"]
    assert (
        "softmax/broken fp16 h200 cu128: compile_error at verify, fault candidate: expected ';' before '}'"
        in done.stdout
    )
    assert done.stdout.splitlines()[-1] == "2 results: 1 passed, 1 did not"
    assert sorted(p.name for p in lab.iterdir()) == ["results"]


def test_merged_tables_are_shown_too(lab: Path) -> None:
    assert call(lab, "merge").returncode == 0
    assert call(lab, "results", "tables").stdout == call(lab, "results").stdout


def test_json_and_filters(lab: Path) -> None:
    done = call(lab, "results", "--json", "--filter", "status=passed", "--filter", "candidate!=*/broken")
    (row,) = json.loads(done.stdout)
    assert (row["candidate"], row["speedup"], row["sessions"]) == ("softmax/online", 2.0, 1)
    nothing = call(lab, "results", "--filter", "dtype=bf16")
    assert (nothing.returncode, nothing.stdout) == (3, "")
    wrong = call(lab, "results", "--filter", "colour=red")
    assert (wrong.returncode, "keys are gpu" in wrong.stderr) == (2, True)


def test_what_was_put_aside_is_said_on_stderr(lab: Path) -> None:
    put(lab / "results" / "nightly" / "records", make_record(cell_id(5)), schema_version=2)
    done = call(lab, "results")
    assert (done.returncode, "1 files are no valid records" in done.stderr) == (0, True)


def test_evidence_cannot_speak_to_the_terminal(lab: Path) -> None:
    said = outcome(Status.CRASHED, "\x1b[2Jgone [bold red]really[/bold red]\u202e")
    Store(lab / "results" / "nightly").save(make_record(cell_id(6), outcome=said))
    done = call(lab, "results")
    assert "\x1b" not in done.stdout
    assert "[2Jgone [bold red]really[/bold red]" in done.stdout
