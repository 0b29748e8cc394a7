"""What of a run is alive: containers by label, processes by what they descend from or were shown."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_matrix.hosts.process_token import owner_alive, owner_token
from kernel_matrix.sandboxes.freezer import find_freezer
from tests.baddays.field import Field, events
from tests.pipes import lines_of
from tests.sim.family import family

MODULES = (
    "kernel_matrix.inside.judge.judge",
    "kernel_matrix.inside.worker.worker",
    "kernel_matrix.inside.worker.worker",
)
"""What the processes of a session run: judge, candidate and baseline."""


def containers(run_id: str, *, running: bool = False) -> list[str]:
    """Names of the containers of a run, in any state or only running ones."""
    state = () if running else ("--all",)
    argv = ("docker", "ps", *state, "--filter", f"label=kernel-matrix.run={run_id}", "--format", "{{.Names}}")
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()


def is_frozen(name: str) -> bool:
    """Return whether a container is frozen by its control group; with version 1 it cannot be killed then."""
    argv = ("docker", "inspect", "--format", "{{.State.Pid}} {{.Id}}", name)
    told = subprocess.run(argv, check=False, capture_output=True, text=True)
    if told.returncode != 0:  # it was removed since it was listed
        assert "No such object" in told.stderr, told.stderr
        return False
    pid, container_id = told.stdout.split()
    freezer = find_freezer(int(pid), container_id) if pid != "0" else None
    return freezer is not None and freezer.is_frozen in _bytes(freezer.state).decode().splitlines()


def processes(field: Field) -> list[int]:
    """Processes that were started with, or shown, anything below the field's temporary folder."""
    files = ("cmdline", "environ", "mountinfo")
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and any(field.scratch.name.encode() in _bytes(entry / name) for name in files)
    ]


def await_event(process: subprocess.Popen[str], name: str, times: int = 1) -> list[dict[str, Any]]:
    """Read events until the one called ``name`` has come ``times`` times; returns all that were read."""
    told = []
    for line in lines_of(process):
        told += events([line])
        if [event["event"] for event in told].count(name) == times:
            return told
    assert process.stderr is not None
    raise AssertionError(f"the run ended without {name}: {process.stderr.read()}")


def await_roles(field: Field, sandbox: str, runner: subprocess.Popen[str]) -> set[str]:
    """Wait until a session of the newest run has all its processes; tokens of all processes of the runner."""
    run_id = field.runs()[-1]["run_id"]
    if sandbox == "docker":
        until(lambda: len(containers(run_id, running=True)) == len(MODULES))
    else:
        until(lambda: all(_running(runner.pid, module) >= MODULES.count(module) for module in MODULES))
    return {owner_token(pid) for pid in family([runner.pid])}


def alive(tokens: set[str]) -> set[str]:
    """Those of the processes that still run."""
    return {token for token in tokens if owner_alive(token)}


def until(holds: Callable[[], bool], timeout_s: float = 240.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def _running(pid: int, module: str) -> int:
    """How many processes of the family of ``pid`` run ``module``."""
    return sum(module in line for line in _command_lines(pid))


def _command_lines(pid: int) -> list[str]:
    return [_bytes(Path("/proc", str(member), "cmdline")).decode() for member in family([pid])]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""
