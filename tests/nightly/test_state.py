"""What one night leaves for the next, and the file it is in."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kernel_matrix.errors import StoreError
from kernel_matrix.nightly.state import NightState, read_state, write_state

STATE = NightState(night="2026-03-01.2", began_at="2026-03-01T22:00:00+00:00", planned=7)


def test_it_comes_back_as_it_was(tmp_path):
    path = tmp_path / "made" / "nightly.json"
    assert read_state(path) is None
    write_state(path, STATE)
    assert read_state(path) == STATE
    ended = replace(STATE, ended_at="2026-03-02T05:00:00+00:00", measured=5, left=2, end="cut", exit_code=0)
    write_state(path, ended)
    assert read_state(path) == ended
    assert [file.name for file in path.parent.iterdir()] == ["nightly.json"], "nothing is left aside"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version 2"),
        ({"night": "../../etc"}, "no name of a night"),
        ({"night": ".hidden"}, "no name of a night"),
        ({"night": ""}, "no name of a night"),
        ({"planned": "7"}, "planned"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_cannot_be_believed_is_refused_and_left_alone(change, words, tmp_path):
    path = tmp_path / "nightly.json"
    write_state(path, STATE)
    text = json.dumps({**json.loads(path.read_text()), **change})
    path.write_text(text)
    with pytest.raises(StoreError, match=words) as refused:
        read_state(path)
    assert "Move it away" in str(refused.value)
    assert path.read_text() == text


def test_an_enormous_file_is_not_read(tmp_path):
    path = tmp_path / "nightly.json"
    path.write_bytes(b" " * (2 << 20))
    with pytest.raises(StoreError, match="larger than"):
        read_state(path)


def test_what_cannot_be_written_keeps_what_was_there(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write_state(tmp_path / "file" / "nightly.json", STATE)
