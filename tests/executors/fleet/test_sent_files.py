"""Files between the head of a fleet and a job that stays."""

from __future__ import annotations

import pytest

from kernel_matrix.executors.fleet import sent_files
from kernel_matrix.executors.fleet.sent_files import SentFiles


@pytest.fixture
def head(tmp_path):
    return SentFiles(tmp_path)


@pytest.fixture
def job(tmp_path):
    return SentFiles(tmp_path)


def test_take_yields_each_request_once_in_order(head, job):
    for number in range(12):
        head.send(f"cell-{number}", {"number": number})
    assert [*job.take()] == [(f"cell-{number}", {"number": number}) for number in range(12)]
    assert [*job.take()] == []


def test_take_leaves_out_what_is_no_request(tmp_path, head, job):
    head.send("cell", {})
    for name, text in (("1.json", "{"), ("2.json", "[]"), ("3.json", '{"cell_id": "x", "request": 3}')):
        (tmp_path / "sent" / name).write_text(text)
    assert [*job.take()] == [("cell", {})]


def test_ended_cells_are_told_until_they_are_forgotten(head, job):
    assert head.ended() == {}
    job.tell_ended("right")
    job.tell_ended("refused", "no such problem")
    assert head.ended() == {"right": "", "refused": "no such problem"}
    head.forget("right")
    assert head.ended() == {"refused": "no such problem"}


def test_job_knows_the_last_candidate(head, job):
    assert not job.is_last
    head.send_last()
    assert job.is_last


def test_head_that_gives_no_sign_is_gone(monkeypatch, head, job):
    now = [1000.0]
    monkeypatch.setattr(sent_files.time, "monotonic", lambda: now[0])
    job = SentFiles(job.folder)
    head.give_sign()
    for _ in range(10):
        now[0] += 60
        head.give_sign()
        assert not job.is_head_gone
    now[0] += 121
    assert job.is_head_gone
