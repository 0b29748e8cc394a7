"""A whole service, killed at random moments while clients send; in full size it is a benchmark."""

from __future__ import annotations

import subprocess
import sys

from tests.own_python import ROOT


def test_nothing_is_lost_by_kills_of_a_whole_service():
    sized = ("--evaluations", "300", "--clients", "6", "--kills", "3")
    argv = (sys.executable, ROOT / "benchmarks" / "service_kills.py", *sized)
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "problems    none" in done.stdout
