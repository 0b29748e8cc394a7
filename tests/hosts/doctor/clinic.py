"""``kernel-matrix doctor`` as a process of its own, in a folder and an environment that a test makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.pipes import Program
from tests.warm_command import PACKAGES, run_piped

ROOT = Path(__file__).resolve().parents[3]
NOBODY = "unix:///nonexistent/docker.sock"

MATRIX = f"""\
name = "small"
dtypes = ["fp32"]

[[gpus]]
name = "cpu"
vendor = "cpu"
[[gpus]]
name = "h200"
model = "NVIDIA H200*"

[[toolchains]]
name = "cpu"
torch = "2.13.0"
triton = "3.7.1"
[[toolchains]]
name = "cu130"
cuda = "13.0"
torch = "2.11.0"
triton = "3.6.0"

[[problems]]
source = "folder"
path = "{ROOT / "problems"}"

[[candidates]]
select = "*"

[policy]
"""


@dataclass(frozen=True)
class Report:
    """The exit code and the findings of one ``doctor --json``."""

    code: int
    findings: list[dict[str, str]]

    def __getitem__(self, subject: str) -> dict[str, str]:
        """The one line about ``subject``."""
        (finding,) = self.about(subject)
        return finding

    def about(self, subject: str) -> list[dict[str, str]]:
        """Every line about ``subject``."""
        return [finding for finding in self.findings if finding["subject"] == subject]

    def verdict(self, subject: str) -> str:
        """Of the one line about ``subject``."""
        return self[subject]["verdict"]


@dataclass(frozen=True)
class Clinic:
    """A folder to call the doctor in, with locks, scratch and state of its own."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def write_matrix(self, policy: str = "") -> None:
        """A matrix of a CPU and an H200."""
        (self.root / "matrix.toml").write_text(MATRIX + policy)

    def own(self, **environment: str) -> dict[str, str]:
        """The variables that a verb is given here; what ``environment`` says goes before all else."""
        return {
            **self.environment,
            "TMPDIR": str(self.root / "scratch"),
            "KERNEL_MATRIX_LOCK_DIR": str(self.root / "locks"),
            "KERNEL_MATRIX_STATE_DIR": str(self.root / "state"),
            "KERNEL_MATRIX_HOST_FILE": str(self.root / "host.toml"),
            "KERNEL_MATRIX_GPU_SETTINGS": "allow",
            "PYTHONPATH": PACKAGES,
            "DOCKER_HOST": NOBODY,
            **environment,
        }

    def start(self, *args: str, prefix: Sequence[str] = (), **environment: str) -> Program:
        """Start a verb of ``kernel-matrix``; its output comes through pipes.

        :param prefix: a command that runs it.
        """
        return Program(
            (*prefix, sys.executable, "-m", "kernel_matrix", *args),
            cwd=self.root,
            env={**os.environ, **self.own(**environment)},
        )

    def call(self, *args: str, prefix: Sequence[str] = (), **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end, in a new Python only where ``prefix`` starts it."""
        if not prefix:
            return run_piped(args, self.root, {**os.environ, **self.own(**environment)}, limit_s=100)
        with self.start(*args, prefix=prefix, **environment) as process:
            out, err = process.communicate(timeout=100)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def examine(self, *args: str, prefix: Sequence[str] = (), **environment: str) -> Report:
        """``kernel-matrix doctor --json``, without the trial, which has tests of its own."""
        done = self.call("doctor", "--json", "--no-trial", *args, prefix=prefix, **environment)
        assert done.stderr == ""
        return Report(done.returncode, json.loads(done.stdout))
