"""``kernel-matrix nightly`` on processes of this machine: whole nights, cut ones, and what goes wrong in them."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import signal
import stat
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.baddays.field import PRELOADED, REAL, new_field
from tests.baddays.living import processes, until
from tests.nightly.chat import SECRET, Chat, served

LATE = (datetime.now().astimezone() - timedelta(minutes=1)).strftime("%H:%M")
"""Nearly a day from now."""
DEAR = """
[[override]]
match = {candidate = "tiny/wrong"}
protocol = {max_samples = 50000, budget_s = 900.0, target_half_width = 0.9}
policy = {session_timeout_s = 2000.0}
"""
"""A cell that is expected to take a quarter of an hour."""
SLOW = """
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        time.sleep(0.005)
        return torch.add(x, x) + 1
"""


def soon():
    """Between one and two minutes from now."""
    return (datetime.now().astimezone() + timedelta(minutes=2)).strftime("%H:%M")


def night(field, *args, deadline=LATE, **environment):
    told = ("nightly", "--sandbox", "process", "--until", deadline, "--json", *args)
    return field.call(*told, no_proxy="*", **environment)  # chats of these tests are on this machine


def nights(field):
    return sorted(path.name for path in (field.store / "nights").iterdir())


def records_of(field, name):
    paths = (field.store / "nights" / name / "records").glob("*.json")
    records = [json.loads(path.read_text()) for path in paths]
    return sorted(records, key=lambda record: record["host"]["started_at"])


def candidates_of(field, name):
    return [record["cell"]["candidate"] for record in records_of(field, name)]


def state(field):
    return json.loads((field.store / "nightly.json").read_text())


def script(field, text):
    """A command of the user's."""
    path = field.root / "tell"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A field after its first night, with the baseline ``usual``; tests work on copies."""
    with new_field(tmp_path_factory.mktemp("first"), program=PRELOADED) as field:
        field.write_matrix("tiny/honest", "tiny/wrong")
        matrix = field.root / "matrix.toml"
        matrix.write_text(matrix.read_text().replace("sessions = 1", "sessions = 4"))
        ran = night(field)
        assert ran.returncode == 0, ran.stderr
        (name,) = nights(field)
        made = field.call("baseline", "set", "usual", "--night", name)
        assert made.returncode == 0, made.stderr
        yield field, json.loads(ran.stdout)


@pytest.fixture
def second(first, tmp_path):
    """A field on which a further night may be held."""
    with new_field(tmp_path, program=PRELOADED) as field:
        shutil.copyfile(first[0].root / "matrix.toml", field.root / "matrix.toml")
        shutil.copytree(first[0].results, field.results)
        yield field


@pytest.mark.torch
def test_a_whole_night_measures_merges_reports_and_says_so(first):
    field, summary = first
    assert (summary["end"], summary["planned"], summary["measured"], summary["left"]) == ("complete", 2, 2, 0)
    assert summary["statuses"] == {"passed": 1, "incorrect_values": 1}
    assert (summary["comparison"], summary["troubles"], summary["exit_code"]) == (None, [], 0)
    (name,) = nights(field)
    assert sorted(candidates_of(field, name)) == ["tiny/honest", "tiny/wrong"]
    folder = field.store / "nights" / name
    assert (folder / "tables" / "cells.parquet").is_file()
    assert summary["report"] == str(folder / "report.html")
    assert "<html" in (folder / "report.html").read_text()[:200]
    kept = state(field)
    assert (kept["night"], kept["end"], kept["left"], kept["exit_code"]) == (name, "complete", 0, 0)


@pytest.mark.torch
def test_a_candidate_made_slower_is_found_and_told(second):
    (second.candidates / "honest.py").write_text(SLOW)
    told = second.root / "told.json"
    text = f"import os, sys\nopen({str(told)!r}, 'w').write(sys.stdin.read())\nos.environ['KERNEL_MATRIX_SUMMARY']\n"
    ran = night(second, "--baseline", "usual", "--notify", script(second, text))
    assert ran.returncode == 5, ran.stderr
    summary = json.loads(ran.stdout)
    assert summary["comparison"]["counts"]["regression"] == 1
    (row,) = summary["comparison"]["flagged"]
    assert (row["candidate"], row["change"]) == ("tiny/honest", "regression")
    assert row["ratio"] > 10
    assert "1 regression" in summary["text"].splitlines()[0]
    untold = {"notify": "", "webhook": "", "prometheus": "", "removed": []}
    assert {**json.loads(told.read_text()), **untold} == summary
    assert state(second)["exit_code"] == 5
    assert len(nights(second)) == 2, "the first night stays as it was"


@pytest.mark.torch
def test_a_night_cut_by_its_deadline_goes_on_with_what_is_left(field):
    field.write_matrix("tiny/honest", "tiny/wrong", more=DEAR)
    cut = night(field, "--report", "page.md", deadline=soon())
    assert cut.returncode == 0, cut.stderr
    summary = json.loads(cut.stdout)
    assert (summary["end"], summary["measured"], summary["left"]) == ("cut", 1, 1)
    assert (field.root / "page.md").is_file()
    (one,) = nights(field)
    assert candidates_of(field, one) == ["tiny/honest"]

    planned = json.loads(night(field, "--dry-run").stdout)
    assert (planned["cells"], len(planned["due"])) == (2, 1)
    part = json.loads(night(field, "--dry-run", "--filter", "candidate=tiny/honest").stdout)
    assert (part["cells"], len(part["due"])) == (1, 0)
    assert nights(field) == [one], "a dry run makes no night"

    whole = json.loads(night(field).stdout)
    assert (whole["end"], whole["left"]) == ("complete", 0)
    assert candidates_of(field, nights(field)[1]) == ["tiny/wrong", "tiny/honest"], "what was left comes first"


@pytest.mark.torch
def test_night_stopped_by_signal_keeps_records_and_next_resumes(field):
    waits = field.candidates / "waits.py"
    # Only what may compile is waited for as long as the policy says.
    waits.write_text(SLOW.replace("0.005", "600") + "\n# torch.compile\n")
    field.write_matrix("tiny/honest", "tiny/waits")
    matrix = field.root / "matrix.toml"
    matrix.write_text(re.sub(r"_timeout_s = \d+", "_timeout_s = 600", matrix.read_text()))
    # Real processes: what a stopped night leaves of them is looked for by what they were started with.
    with replace(field, program=REAL).start("nightly", "--sandbox", "process", "--until", LATE, "--json") as runner:
        until(lambda: list(field.store.glob("nights/*/records/*.json")), timeout_s=120)
        runner.send_signal(signal.SIGTERM)
        out, err = runner.communicate(timeout=120)
    assert runner.returncode == 128 + signal.SIGTERM, err
    summary = json.loads(out)
    assert (summary["end"], summary["measured"], summary["left"]) == ("stopped", 1, 1), candidates_of(
        field, *nights(field)
    )
    assert Path(summary["report"]).is_file()
    assert processes(field) == []
    (one,) = nights(field)
    assert candidates_of(field, one) == ["tiny/honest"]
    waits.write_text(SLOW)
    assert json.loads(night(field).stdout)["end"] == "complete"
    assert candidates_of(field, nights(field)[1]) == ["tiny/waits", "tiny/honest"], "what was left comes first"


@pytest.mark.torch
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sys; print('no carrier'); sys.exit(7)", "ended with 7: no carrier"),
        (None, "cannot be run: No such file or directory"),
    ],
)
def test_a_command_that_fails_is_told_and_changes_nothing(text, words, field):
    command = script(field, text) if text else "/nonexistent/tell"
    ran = night(field, "--notify", command)
    assert ran.returncode == 0
    assert words in json.loads(ran.stdout)["notify"]
    assert words in ran.stderr
    assert (state(field)["end"], state(field)["exit_code"]) == ("complete", 0)


@pytest.mark.torch
def test_a_night_tells_chats_and_prometheus_and_makes_room(second):
    old = nights(second)
    with served(Chat()) as chat, served(Chat(status=500)) as broken:
        options = ("--keep", "1", "--prometheus", "made.prom", "--webhook", broken.url, f"--webhook={chat.url}")
        planned = night(second, *options, "--dry-run")
        assert json.loads(planned.stdout)["removes"] == old
        assert (nights(second), chat.asked) == (old, [])
        ran = night(second, *options)
    assert ran.returncode == 0, ran.stderr
    summary = json.loads(ran.stdout)
    assert summary["removed"] == old
    assert nights(second) == [summary["night"]]
    assert json.loads(chat.asked[0][2])["text"].splitlines()[0] == summary["text"].splitlines()[0]
    assert "answers 500" in summary["webhook"]
    assert f"error: {summary['webhook']}\n" in ran.stderr
    assert 'kernel_matrix_night_cells{matrix="baddays",status="passed"} 1\n' in (second.root / "made.prom").read_text()
    (run,) = (second.store / "nights" / summary["night"] / "runs").iterdir()
    assert f"--webhook={chat.url.removesuffix(f':{urlsplit(chat.url).port}/services/{SECRET}')}/…" in run.read_text()
    written = (path for path in second.root.rglob("*") if path.is_file())
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in ran.stdout + ran.stderr


@pytest.mark.parametrize("text", ["{", "[]", '{"night": 7}', '{"version": 2}', "\udcff", "null", "[" * 100_000])
def test_damaged_state_file_is_one_error_and_loses_nothing(text, field):
    folder = field.store / "nights" / "2026-01-01" / "records"
    folder.mkdir(parents=True)
    (folder / "x.json").write_text("kept")
    file = field.store / "nightly.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    before = file.read_bytes()
    ran = night(field)
    assert (ran.returncode, ran.stdout) == (4, "")
    assert ran.stderr.startswith(f"error: {file.relative_to(field.root)} is damaged: ")
    assert ran.stderr.count("\n") == 2, "the error and what to do"
    assert file.read_bytes() == before
    assert (folder / "x.json").read_text() == "kept"
    assert nights(field) == ["2026-01-01"]


def test_what_cannot_begin_is_told_to_the_command_as_well(field):
    field.store.mkdir(parents=True)
    (field.store / "nightly.json").write_text("{")
    told = field.root / "told.json"
    text = f"import sys\nopen({str(told)!r}, 'w').write(sys.stdin.read())\n"
    with served(Chat()) as chat, served(Chat(status=404)) as gone:
        urls = f"{gone.url} {chat.url}"
        words = ("--notify", script(field, text), "--prometheus", "made.prom")
        ran = night(field, *words, KERNEL_MATRIX_WEBHOOK=urls)
    assert ran.returncode == 4
    assert "is damaged" in json.loads(told.read_text())["text"]
    assert "is damaged" in json.loads(chat.asked[0][2])["text"]
    assert "error: the webhook http://127.0.0.1/… answers 404" in ran.stderr
    metrics = (field.root / "made.prom").read_text()
    assert 'kernel_matrix_night_exit_code{matrix="baddays"} 4\n' in metrics
    assert 'kernel_matrix_night_end{matrix="baddays",end="failed"} 1\n' in metrics


@pytest.mark.torch
def test_night_that_would_miss_a_slowdown_warns_first(second):
    for find, said in (("0.0001", "a slow-down of 0.01 % would be missed in 1 of 1 timed rows; "), ("90", "")):
        planned = night(second, "--dry-run", "--baseline", "usual", "--find", find)
        assert json.loads(planned.stdout)["warning"].partition("one of ")[0] == said


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "needs a deadline"),
        (("--until", "25:00"), "--until '25:00'"),
        (("--until", "06:30", "--baseline", "none"), "there is no baseline none"),
        (("--until", "06:30", "--baseline", "../x"), "is no name of a baseline"),
        (("--until", "06:30", "--notify", "'"), "--notify"),
        (("--until", "06:30", "--find", "0"), "--find 0 is no share above 0"),
        (("--until", "06:30", "--keep", "0"), "--keep 0: at least the last night is kept"),
        (("--until", "06:30", "--prometheus", "made"), "node_exporter reads only files that end in .prom"),
        (("--until", "06:30", "--webhook", f"http://example.org/{SECRET}"), "would be sent in the clear"),
        (("--until", "06:30", "--webhook", f"example.org/{SECRET}", "--dry-run"), "a webhook is not a URL"),
        (("--until", "06:30", "--at", "x", "--print-cron"), "--at 'x'"),
        (("--until", "06:30", "--at", "6:30", "--print-cron"), "--until 06:30 is when the night begins"),
    ],
)
def test_what_is_misspelt_is_exit_2_before_anything_runs(argv, words, field):
    ran = field.call("nightly", "--sandbox", "process", *argv)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert words in ran.stderr
    assert SECRET not in ran.stderr
    assert not (field.store / "nights").exists()


def test_two_nights_of_one_matrix_do_not_go_on_at_once(field):
    field.store.mkdir(parents=True)
    with (field.store / "nightly.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ran = night(field)
    assert (ran.returncode, ran.stdout) == (75, "")
    assert "another night of baddays goes on" in ran.stderr


def test_schedules_are_printed_filled_in(field):
    ran = replace(field, program=REAL).call(
        "nightly", "--until", "6:30", "--at", "21:05", "--print-systemd", "--print-cron", "--notify", "a%b c",
        "--filter", "gpu=h200", "--filter", "dtype=fp16", "--build", "--keep", "30",
        "--prometheus", "a.prom", KERNEL_MATRIX_WEBHOOK=f"https://example.org/{SECRET}",
    )  # fmt: skip
    assert (ran.returncode, ran.stderr.count("\n")) == (0, 1)
    assert ran.stderr.startswith("note: the webhook is a secret and was left out")
    assert SECRET not in ran.stdout
    assert f"WorkingDirectory={field.root}\n" in ran.stdout
    assert "OnCalendar=*-*-* 21:05:00\n" in ran.stdout
    assert f'ExecStart="{sys.executable}" "-m" "kernel_matrix" "nightly" "matrix.toml" "--until" "6:30"' in ran.stdout
    assert '"a%%b c" "--prometheus" "a.prom" "--keep" "30"' in ran.stdout
    assert '"--filter" "gpu=h200" "--filter" "dtype=fp16" "--build"\n' in ran.stdout
    assert f"\n5 21 * * * cd {field.root} && " in ran.stdout
    assert "'a\\%b c'" in ran.stdout
    assert "@" not in ran.stdout
    assert not field.results.exists()
