"""The examples in docstrings and in ``docs/examples``."""

from __future__ import annotations

import doctest
import runpy
from importlib import import_module
from pathlib import Path

import pytest

import kernel_matrix

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
API = Path(kernel_matrix.__file__).parent / "api"
MODULES = ["kernel_matrix", *(f"kernel_matrix.api.{path.stem}" for path in sorted(API.glob("[a-z]*.py")))]


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples_are_true(module, checkout):
    failed, _ = doctest.testmod(import_module(module))
    assert not failed


def test_two_gpus_example_runs(checkout, capsys):
    pytest.importorskip("polars")
    shown = runpy.run_path(str(ROOT / "docs" / "examples" / "two_gpus.py"))
    assert shown["imported"].gpus == 2
    assert shown["compared"].rows.height == shown["eager"].height > 20
    assert "points" in capsys.readouterr().out


@pytest.mark.torch
def test_my_kernel_example_runs(checkout, capsys):
    shown = runpy.run_path(str(ROOT / "docs" / "examples" / "my_kernel.py"))
    assert shown["latest"]["status"].to_list() == ["passed"]
    assert "squares/mine passed" in capsys.readouterr().out
