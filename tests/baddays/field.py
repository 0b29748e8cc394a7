"""A small matrix in a folder of its own, and ``kernel-matrix`` run on it as a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.pipes import Program
from tests.sim.preloaded import warm_sources
from tests.warm_command import PACKAGES, REAL, RUN_LIMIT_S, run_piped

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

MATRIX = """\
name = "baddays"
dtypes = ["fp32"]

[[gpus]]
name = "cpu"
vendor = "cpu"

[[toolchains]]
name = "cpu"
torch = "{torch}"
triton = "{triton}"

[[problems]]
source = "folder"
path = "problems"

[[candidates]]
select = {select}

[protocol]
sessions = 1
trials = 1
warmup_calls = 1
min_samples = 4
max_samples = 8
budget_s = 0.2
block_calls = 2

[policy]
memory_mib = 2048
pids = 256
tmpfs_mib = 64
file_mib = 256
gpu_wait_s = 60
load_timeout_s = 60
first_call_timeout_s = 10
call_timeout_s = 10
session_timeout_s = 90
build_timeout_s = 60
"""

LOCAL_FLEET = """
[[sites]]
name = "here"
engine = "local"
sandbox = "process"
workspace = "workspace"
"""
"""A fleet of this machine alone."""

LABEL = "kernel-matrix.run"
CONTROL_GROUPS = "/sys/fs/cgroup/"

PRELOADED = (str(ROOT / "tests" / "sim" / "launch_preloaded.py"),)
"""The command whose processes are forked from one that has torch: a session costs a tenth."""


FORKED = (str(ROOT / "tests" / "sim" / "launch_forked.py"),)
"""The same on a machine whose only GPUs are simulated."""


@dataclass(frozen=True)
class Field:
    """A folder with a matrix, its problems and its results; nothing that other runners on this machine share."""

    root: Path
    scratch: Path
    """Where the runner's temporary folders go."""
    lock_dir: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    program: Sequence[str] = REAL
    """What Python is started on."""

    @property
    def command(self) -> tuple[str, ...]:
        """The words that start ``kernel-matrix`` on a fleet's nodes, which get few variables of this environment."""
        variables = {"PYTHONPATH": PACKAGES, **self._warm}
        return ("env", *(f"{name}={value}" for name, value in variables.items()), sys.executable, *self.program)

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def store(self) -> Path:
        return self.results / "baddays"

    @property
    def candidates(self) -> Path:
        return self.root / "problems" / "tiny" / "candidates"

    def write_matrix(self, *select: str, more: str = "") -> None:
        """Select candidates by glob; ``more`` goes to the end of the file."""
        text = MATRIX.format(torch=_installed("torch"), triton=_installed("triton"), select=json.dumps(select))
        (self.root / "matrix.toml").write_text(text + more)

    def slow_down(self, seconds: float) -> None:
        """Let each candidate sleep when it is loaded, so that a test can act while the run goes on."""
        for path in self.candidates.glob("*.py"):
            path.write_text(f"import time\ntime.sleep({seconds})\n{path.read_text()}")

    def start(self, *args: str, **environment: str) -> Program:
        """Start a verb; its output comes through pipes."""
        return Program(
            (sys.executable, *self.program, *args),
            cwd=self.root,
            env=self._environment(environment),
        )

    def start_logged(self, log: Path, *args: str) -> subprocess.Popen[bytes]:
        """Start a verb whose output goes to the end of a file, however much it is."""
        with log.open("ab") as out:
            return subprocess.Popen(
                (sys.executable, *self.program, *args),
                cwd=self.root,
                env=self._environment({}),
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def call(self, *args: str, limit_s: float = RUN_LIMIT_S, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end; what it says of other tests' control groups is left out of its output."""
        if self.program != REAL:
            ran = run_piped(args, self.root, self._environment(environment), program=self.program, limit_s=limit_s)
        else:
            with self.start(*args, **environment) as process:
                out, err = process.communicate(timeout=limit_s)
            ran = subprocess.CompletedProcess(process.args, process.returncode, out, err)
        # Control groups are the machine's: any run removes those of a runner that another test has just killed.
        told = [line for line in ran.stdout.splitlines(keepends=True) if f"swept: folder {CONTROL_GROUPS}" not in line]
        return subprocess.CompletedProcess(ran.args, ran.returncode, "".join(told), ran.stderr)

    def run(self, *args: str, limit_s: float = RUN_LIMIT_S, **environment: str) -> subprocess.CompletedProcess[str]:
        """``kernel-matrix run`` with events."""
        return self.call("run", "--json", *args, limit_s=limit_s, **environment)

    def records(self) -> list[dict[str, Any]]:
        """Every record, in the order in which the attempts began."""
        found = [json.loads(path.read_text()) for path in (self.store / "records").glob("*.json")]
        return sorted(found, key=lambda record: record["host"]["started_at"])

    def runs(self) -> list[dict[str, Any]]:
        """Every run's own file, oldest first."""
        return [json.loads(path.read_text()) for path in sorted((self.store / "runs").glob("*.json"))]

    def unfinished_files(self) -> list[Path]:
        """Files of the store that are not whole records, traces or runs."""
        files = [path for path in self.store.rglob("*") if path.is_file()]
        return [path for path in files if not path.name.endswith((".json", ".json.gz"))]

    def leftovers(self) -> list[str]:
        """Return the names of what is left in the folder of temporary files."""
        return sorted(path.name for path in self.scratch.iterdir())

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        own = {
            "TMPDIR": str(self.scratch),
            "KERNEL_MATRIX_LOCK_DIR": str(self.lock_dir),
            "KERNEL_MATRIX_CACHE_DIR": str(self.root / "cache"),
            "PYTHONPATH": PACKAGES,
        }
        return {**os.environ, **self.environment, **own, **self._warm, **more}

    @property
    def _warm(self) -> Mapping[str, str]:
        return warm_sources() if self.program in (PRELOADED, FORKED) else {}


@contextmanager
def new_field(
    root: Path,
    lock: Path | None = None,
    *,
    program: Sequence[str] = REAL,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Field]:
    """A fresh copy of the problems under ``root``; ``lock`` becomes its images' lock."""
    shutil.copytree(HERE / "problems", root / "problems")
    (root / "images").mkdir()
    (root / "locks").mkdir()
    if lock is not None:
        shutil.copyfile(lock, root / "images" / "images.lock")
    # Short, since sockets are made in it, and open to pass through, since other users run in it.
    with tempfile.TemporaryDirectory(prefix="km-test-") as scratch:
        Path(scratch).chmod(0o711)
        made = Field(root, Path(scratch), root / "locks", environment or {}, program=program)
        made.write_matrix("tiny/honest")
        yield made


def local_fleet(place: Field) -> str:
    """Return a fleet of this machine alone, whose jobs start what ``place`` starts."""
    return f"{LOCAL_FLEET}command = {json.dumps(place.command)}\n"


def events(lines: str | Sequence[str]) -> list[dict[str, Any]]:
    """The events of a run, one JSON document per line."""
    return [json.loads(line) for line in (lines.splitlines() if isinstance(lines, str) else lines)]


def _installed(package: str) -> str:
    try:
        return version(package).partition("+")[0]
    except PackageNotFoundError:
        return "0.0.0"
