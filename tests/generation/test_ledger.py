"""The ledger: nothing that was paid for is lost, whenever the writer is killed."""

from __future__ import annotations

import json

import pytest

from kernel_matrix.errors import StoreError, UsageError
from kernel_matrix.generation.ledger import Ledger, LedgerLine

RESPONSE = '{"choices": [{"message": {"content": "half a character: \\ud83d"}}]}'


def line(digest, **changes):
    values = {
        "digest": digest,
        "answered_at": "2026-01-31T00:00:00.000+00:00",
        "model": "tester",
        "provider": "127.0.0.1",
        "prompt_sha256": "0" * 64,
        "problem": "tiny",
        "sample": 0,
        "round": 0,
        "parent": None,
        "tokens_prompt": 10,
        "tokens_cached": 0,
        "tokens_completion": 5,
        "tokens_reasoning": 0,
        "usd": 0.25,
        "latency_s": 1.5,
        "finish_reason": "stop",
        "retries": 0,
        "answer": f"answers/{digest}.json",
    }
    return LedgerLine(**{**values, **changes})


@pytest.fixture
def filled(tmp_path):
    ledger = Ledger(tmp_path)
    for digest in ("aa", "bb"):
        ledger.keep(line(digest), {"model": "tester"}, RESPONSE)
    ledger.close()
    return tmp_path


def reopened(folder):
    ledger = Ledger(folder)
    ledger.close()
    return ledger


def test_ledger_finds_what_it_kept(filled):
    ledger = reopened(filled)
    assert ledger.find("aa").line == line("aa")
    assert ledger.find("aa").response == RESPONSE
    assert ledger.find("cc") is None
    assert (ledger.tokens, ledger.usd) == (30, 0.5)
    assert [json.loads(text)["digest"] for text in (filled / "ledger.jsonl").read_text().splitlines()] == ["aa", "bb"]


@pytest.mark.parametrize("kept", [1, 60, -1])
def test_torn_last_line_is_written_again(filled, kept):
    path = filled / "ledger.jsonl"
    first, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + last[:kept])
    assert reopened(filled).lines == (line("aa"), line("bb"))
    assert path.read_bytes() == first + last


def test_answer_without_a_line_gets_it(filled):
    (filled / "ledger.jsonl").unlink()
    assert reopened(filled).tokens == 30
    assert len((filled / "ledger.jsonl").read_text().splitlines()) == 2


def test_damaged_line_is_told_with_its_number(filled):
    path = filled / "ledger.jsonl"
    path.write_text("nonsense\n" + path.read_text())
    with pytest.raises(StoreError, match=r"ledger.jsonl:1 is no line of a ledger"):
        Ledger(filled)


def test_damaged_answer_is_told(filled):
    (filled / "answers" / "aa.json").write_text("{")
    with pytest.raises(StoreError, match=r"aa.json is no stored answer"):
        reopened(filled).find("aa")


def test_second_writer_is_refused(filled):
    first = Ledger(filled)
    with pytest.raises(UsageError, match="another process generates into"):
        Ledger(filled)
    first.close()
    reopened(filled)


def test_folder_that_is_a_file_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be used"):
        Ledger(tmp_path / "file")
