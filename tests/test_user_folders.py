from __future__ import annotations

from pathlib import Path

import pytest

from kernel_matrix.user_folders import cache_root, state_root


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "kernel-matrix"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_root() == Path.home() / ".cache" / "kernel-matrix"


def test_the_state_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_root() == tmp_path / "kernel-matrix"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_root() == Path.home() / ".local" / "state" / "kernel-matrix"
