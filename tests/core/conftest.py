"""A whole session without an engine: the real judge and the real worker as two processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.core.messages import SessionReport, dumps, from_json
from tests.core.cuda import SimulatedCuda, compile_library
from tests.core.sessions import SOFTMAX, make_job

ROOT = Path(__file__).resolve().parents[2]

RunSession = Callable[..., SessionReport]


@pytest.fixture
def run_session(tmp_path: Path) -> RunSession:
    """Run one session of ``candidate`` against ``problem`` (sources) and return the judge's report."""

    def run(candidate: str, problem: str = SOFTMAX, **changes: Any) -> SessionReport:
        folders = {name: tmp_path / name for name in ("judge", "channel", "out", "code")}
        for folder in folders.values():
            folder.mkdir()
        (folders["judge"] / "job.json").write_text(dumps(make_job(**changes)))
        (folders["judge"] / "problem.py").write_text(textwrap.dedent(problem))
        (folders["code"] / "candidate.py").write_text(textwrap.dedent(candidate))
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": str(tmp_path),
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        command = (sys.executable, "-s", "-B", "-m")
        judge = subprocess.Popen(
            (
                *(*command, "runner.core.judge", "--job", str(folders["judge"] / "job.json")),
                *("--channel", str(folders["channel"]), "--out", str(folders["out"])),
            ),
            env=environment,
            cwd=tmp_path,
        )
        worker = subprocess.Popen(
            (*command, "runner.core.worker", "--channel", str(folders["channel"]), "--code", str(folders["code"])),
            env={**environment, "TRITON_INTERPRET": "1"},
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert judge.wait(90) == 0
        finally:
            for process in (judge, worker):
                process.kill()
                process.wait()
        return from_json(SessionReport, json.loads((folders["out"] / "report.json").read_text()))

    return run


@pytest.fixture(scope="session")
def simulated_libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated ``libcuda.so.1``, compiled once."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to compile the simulated driver with")
    return compile_library(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def cuda(simulated_libcuda: Path, tmp_path: Path) -> SimulatedCuda:
    """A simulated CUDA driver that nobody has called yet."""
    return SimulatedCuda(simulated_libcuda, tmp_path / "cuda-calls")
