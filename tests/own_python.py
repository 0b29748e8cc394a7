"""Python in a process of its own, with packages that a test built and installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

_OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet")


def pip(verb: str, *arguments: str, folder: Path) -> None:
    """Run pip in ``folder`` without the network; skip where what builds packages is absent."""
    pytest.importorskip("hatchling", reason="hatchling is not installed (the `dev` extra)")
    command = (sys.executable, "-m", "pip", verb, *_OFFLINE, *arguments)
    subprocess.run(command, check=True, cwd=folder, timeout=250)


def run_python(*arguments: str, packages: str, folder: Path = ROOT) -> str:
    """Run Python with ``packages`` as its path; returns what it printed."""
    environment = {**os.environ, "PYTHONPATH": packages}
    command = (sys.executable, *arguments)
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
