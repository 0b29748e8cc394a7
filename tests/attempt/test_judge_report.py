"""Reading a judge's report as untrusted input."""

from __future__ import annotations

import json
import os

import pytest

from kernel_matrix.attempt.judge_report import read_report
from kernel_matrix.model.messages import dumps, to_json
from kernel_matrix.sandboxes import ProcessLabels
from kernel_matrix.untrusted_json import MAX_BYTES
from tests.results import factory

LABELS = ProcessLabels(run_id="run-1", cell_id=factory.CELL, session=0, gpu_uuid="cpu", owner="1:1:x")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "report.json"


def test_an_honest_report_is_read(path):
    path.write_text(dumps(factory.session()))
    assert read_report(path, LABELS) == (factory.session(), "")


def _changed(**changes):
    return json.dumps({**to_json(factory.session()), **changes})


REFUSED = {
    "nothing": (lambda path: None, "there is no such file"),
    "a link": (lambda path: path.symlink_to("/etc/passwd"), "symbolic link"),
    "a pipe that nobody writes": (os.mkfifo, "not a regular file"),
    "a folder": (lambda path: path.mkdir(), "not a regular file"),
    "an endless file": (lambda path: path.touch() or os.truncate(path, MAX_BYTES + 1), "at most"),
    "half a file": (lambda path: path.write_text(dumps(factory.session())[:100]), "report"),
    "nothing in it": (lambda path: path.touch(), "report"),
    "not text": (lambda path: path.write_bytes(b"\xff\xfe"), "report"),
    "not an object": (lambda path: path.write_text("[]"), "not an object"),
    "a number that is none": (lambda path: path.write_text(_changed(labels=float("nan"))), "report"),
    "nested without end": (lambda path: path.write_text("[" * 100_000), "report"),
    "a word nobody knows": (lambda path: path.write_text(_changed(status="excellent")), "malformed"),
    "a key nobody knows": (lambda path: path.write_text(_changed(grade="A")), "malformed"),
    "evidence of another kind": (lambda path: path.write_text(_changed(evidence=[])), "malformed"),
    "text for seconds": (lambda path: path.write_text(_changed(durations_s={"total": "1"})), "malformed"),
    "passed without a workload": (lambda path: path.write_text(_changed(workloads=[])), "malformed"),
    "what no record can hold": (lambda path: path.write_text(_changed(seed_sha256="secret")), "malformed"),
    "another cell's": (lambda path: path.write_text(_changed(cell_id="f" * 32)), "another cell"),
    "another session's": (lambda path: path.write_text(_changed(session=1)), "another cell"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_anything_else_is_refused_with_the_reason(what, path):
    make, words = REFUSED[what]
    make(path)
    report, trouble = read_report(path, LABELS)
    assert report is None
    assert words in trouble
