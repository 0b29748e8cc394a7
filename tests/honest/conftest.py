"""One fixture: the modules that a problem and its candidates become are removed after each test."""

import sys

import pytest


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A folder for the sources of one cell."""
    for name in ("candidate", "eager", "problem", "kernel_matrix_problem"):
        monkeypatch.setitem(sys.modules, name, None)  # removed afterwards
    return tmp_path
