"""The example set, merged once: opening its 583 records takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernel_matrix

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def example_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of ``results/example-h200``."""
    out = tmp_path_factory.mktemp("example") / "tables"
    kernel_matrix.merge(ROOT / "results" / "example-h200", out)
    return out


@pytest.fixture
def checkout(example_tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder looks like a checkout whose example set is merged already."""
    for name in ("matrix.toml", "problems", "images"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "example-h200").symlink_to(example_tables)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path)
    return tmp_path
