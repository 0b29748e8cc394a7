"""A small matrix of one GPU cell, ``kernel-matrix`` run on it on a simulated driver, and what is left on the GPU."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sim.board import Board
from sim.driver import DriverPrograms

from tests.baddays.field import FORKED, ROOT, Field, new_field
from tests.baddays.living import containers, processes, until

TOOLCHAIN = "newest"

of_one_vendor = pytest.mark.parametrize("board", ["nvidia"], indirect=True)
"""What differs between vendors is only driver calls, which ``tests/lease`` and ``tests/platforms`` check for each."""

_CPU_AXES = """\
[[gpus]]
name = "cpu"
vendor = "cpu"

[[toolchains]]
name = "cpu"
"""
_GPU_AXES = """\
[[gpus]]
name = "board"
vendor = "{vendor}"
model = "{model}"

[[toolchains]]
name = "{toolchain}"
{more}
"""

_PAUSES = {"load": 0, "verify": 1, "time": 20}
"""Phase → the call in which a pausing candidate pauses; 0: when it is imported."""
_PAUSING = """\
import ctypes
import time
from pathlib import Path

import torch
from torch import nn

PR_SET_NAME = 15
calls = 0


def pause():
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"{mark}", 0, 0, 0)
    while not Path("/candidate/{go}").exists():
        time.sleep(0.01)
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"python3", 0, 0, 0)


class ModelNew(nn.Module):
    def forward(self, x):
        global calls
        calls += 1
        if calls == {call}:
            pause()
        time.sleep({call_s})
        return torch.add(x, x) + 1


if not {call}:
    pause()
"""
_MARK = "km-pausing"  # the name of its process while it pauses
_GO = "go"


@dataclass(frozen=True, kw_only=True)
class GpuField(Field):
    """A field whose cells run on a simulated GPU that is alone in its world."""

    board: Board
    sandbox: str

    @property
    def driver(self) -> DriverPrograms:
        """The GPU's driver."""
        return self.board.driver

    def change(self, **keys: Any) -> None:
        """Make the GPU say something else under some keys."""
        self.driver.change(self.board.uuid, **keys)

    def write_gpu_matrix(self, *select: str, **settings: Any) -> None:
        """Select candidates by glob; ``settings`` take the place of the matrix's own, or are added to its policy."""
        self.write_matrix(*select)
        path = self.root / "matrix.toml"
        text = path.read_text()
        assert _CPU_AXES in text
        board = self.board
        here = f'environment = "auto"\nplatform = "{board.platform}"'
        more = board.toolchain if self.sandbox == "docker" else here
        axes = {"vendor": board.vendor, "model": board.gpu["name"], "toolchain": TOOLCHAIN, "more": more}
        text = text.replace(_CPU_AXES, _GPU_AXES.format(**axes))
        if self.sandbox == "process":  # the environment decides them
            text = re.sub(r"^(torch|triton) = .*\n", "", text, flags=re.MULTILINE)
        for key, value in {**self.board.policy, **settings}.items():
            line = f"{key} = {json.dumps(value)}"
            text, found = re.subn(rf"^{key} = .*$", line, text, flags=re.MULTILINE)
            text += "" if found else f"{line}\n"
        path.write_text(text)

    def write_pausing(self, phase: str, *, call_s: float = 0.0) -> None:
        """Make the honest candidate pause in ``phase`` (``load``, ``verify`` or ``time``) of every attempt.

        :param call_s: how long each of its calls takes at least, in seconds.
        """
        text = _PAUSING.format(mark=_MARK, go=_GO, call=_PAUSES[phase], call_s=call_s)
        (self.candidates / "honest.py").write_text(text)

    def await_pause(self) -> Path:
        """Wait until a candidate pauses; where to make it go on, see :func:`go_on`."""
        found: list[Path] = []
        until(lambda: bool(found.extend(self._pausing()) or found))
        return found[0]

    def outcomes(self) -> list[tuple[int, str]]:
        """Attempt and status of every record."""
        return [(record["attempt"], record["outcome"]["status"]) for record in self.records()]

    def settings(self) -> list[str]:
        """Return the requests to set or reset something on the GPU, without PIDs and the GPU's name."""
        return [line.partition(" ")[2].replace(f" {self.board.uuid}", "") for line in self.driver.log()]

    @contextmanager
    def stranger(self) -> Iterator[int]:
        """Somebody else's process on the GPU; yields its PID."""
        with subprocess.Popen(("sleep", "600")) as process:
            try:
                self.driver.occupy(self.board.uuid, process.pid)
                yield process.pid
            finally:
                process.kill()

    def roles(self) -> list[int]:
        """Return the processes of sessions and builders, in containers or not."""
        return [pid for pid in processes(self) if self.scratch.name in _text(Path("/proc", str(pid), "mountinfo"))]

    def left_behind(self) -> list[str]:
        """Return what runs left: settings, journals, locks, containers, processes on the GPU, folders."""
        found = [path.name for path in self.lock_dir.iterdir() if path.suffix != ".lock"]
        found += [] if self.lock_is_free() else ["locked"]
        if not self.board.state.is_given_back:
            found.append(f"set: {self.board.state}")
        found += [f"on the GPU: {pid}" for pid in self.driver.tenants(self.board.uuid)]
        found += [f"role: {pid}" for pid in self.roles()]
        if self.sandbox == "docker":
            found += [name for run in self.runs() for name in containers(run["run_id"])]
        return found + self.leftovers() + [str(path) for path in self.unfinished_files()]

    def lock_is_free(self) -> bool:
        """Return True if no process holds the GPU's lock now."""
        return all(_free(path) for path in self.lock_dir.glob("*.lock"))

    def _pausing(self) -> list[Path]:
        """Folders of the candidates that pause now; that of one that was started ahead is not among them."""
        # Not Path.glob, which fails where a session's folders are removed meanwhile.
        sources = (Path(folder, name) for folder, _, names in os.walk(self.scratch) for name in names)
        candidates = [source for source in sources if source.match("code/candidate*/*.py")]
        folders = [source.parent for source in candidates if _MARK in _text(source)]
        waiting = [folder for folder in folders if not (folder / _GO).exists()]
        pausing = (pid for pid in self.roles() if _text(Path("/proc", str(pid), "comm")) == f"{_MARK}\n")
        return waiting if waiting and any(pausing) else []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # its session, or its process, has just ended
        return ""


def go_on(folder: Path) -> None:
    """Let the candidate go on whose folder :meth:`GpuField.await_pause` has named."""
    (folder / _GO).touch()


@contextmanager
def new_gpu_field(root: Path, board: Board, lock: Path | None = None) -> Iterator[GpuField]:
    """A field with one undisturbed GPU.

    Its cells run in processes that are forked; with ``lock`` in containers, of the image that it has for the CPU.
    """
    board.set()
    with new_field(root, lock) as made:
        if lock is not None:
            document = json.loads(lock.read_text())
            document["images"] = {TOOLCHAIN: document["images"]["cpu"]}
            (root / "images" / "images.lock").write_text(json.dumps(document))
        yield GpuField(
            root=made.root,
            scratch=made.scratch,
            lock_dir=made.lock_dir,
            environment=board.driver.environment,
            program=FORKED if lock is None else (str(ROOT / "tests" / "sim" / "launch.py"),),
            board=board,
            sandbox="process" if lock is None else "docker",
        )


def _free(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
