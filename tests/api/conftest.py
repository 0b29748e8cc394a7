"""A checkout whose example set is merged already: opening its 583 records takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(example_tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder looks like a checkout whose example set is merged already."""
    for name in ("matrix.toml", "problems", "images"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "example-h200.kmz").symlink_to(example_tables)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path)
    return tmp_path
