"""The examples in docstrings and in ``docs/examples``."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

import kernel_matrix
from tests.sim.preloaded import warm_sources
from tests.warm_command import PACKAGES, ROOT, run_piped

pytestmark = pytest.mark.torch

API = Path(kernel_matrix.__file__).parent / "api"
MODULES = ["kernel_matrix", *(f"kernel_matrix.api.{path.stem}" for path in sorted(API.glob("[a-z]*.py")))]


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples_are_true(module, checkout):
    # In a process of its own: Docker's client leaves an open socket behind where no daemon answers, as in conftest.py.
    program = (str(Path(__file__).with_name("run_doctests.py")),)
    environment = {**os.environ, **warm_sources(), "PYTHONPATH": PACKAGES}
    ran = run_piped([module], Path.cwd(), environment, program=program)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_two_gpus_example_runs(checkout, capsys):
    pytest.importorskip("polars")
    shown = runpy.run_path(str(ROOT / "docs" / "examples" / "two_gpus.py"))
    assert shown["imported"].gpus == 2
    assert shown["compared"].rows.height == shown["eager"].height > 20
    assert "points" in capsys.readouterr().out


@pytest.mark.usefixtures("forked_roles")
def test_my_kernel_example_runs(checkout, capsys):
    shown = runpy.run_path(str(ROOT / "docs" / "examples" / "my_kernel.py"))
    assert shown["latest"]["status"].to_list() == ["passed"]
    assert "squares/mine passed" in capsys.readouterr().out
