"""Problem folders made for a test."""

from pathlib import Path

import pytest

from tests.sources.examples import PROBLEM, REFERENCE, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with one good problem, ``half``, that has one good candidate."""
    write(tmp_path / "half/problem.toml", PROBLEM)
    write(tmp_path / "half/reference.py", REFERENCE)
    write(tmp_path / "half/candidates/plain.py", "class ModelNew:\n    pass\n")
    return tmp_path
