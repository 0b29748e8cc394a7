"""Faults of the head of a run and of its cluster, at random; used by tests and by ``benchmarks/fleet_faults.py``."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from tests.baddays.field import Field

FLEET = """
[[sites]]
name = "lab"
sandbox = "{sandbox}"
workspace = "workspace"
gpus = {resources}
command = {command}
{engine}
"""
PLAYER = Path(__file__).with_name("quick_node.py")
_FILLER = "filler"
_RUN = ("run", "--fleet", "fleet.toml", "--json")


def write_copies(place: Field, cells: int) -> None:
    """Write a matrix of ``cells`` cells, whose candidates are copies of one."""
    for number in range(cells):
        for end in (".py", ".toml"):
            shutil.copy(place.candidates / f"honest{end}", place.candidates / f"copy_{number:04}{end}")
    place.write_matrix("tiny/copy_*")


def prepare(place: Field, engine: str, cells: int, seconds: float) -> None:
    """Write a matrix of ``cells`` cells, and a fleet whose nodes take ``seconds`` for each.

    Args:
        place: Where.
        engine: The lines of the fleet file that are about the engine.
        cells: How many.
        seconds: Of each.
    """
    write_copies(place, cells)
    write_fleet(replace(place, program=(str(PLAYER), str(seconds))), engine)


def write_fleet(place: Field, engine: str, *, sandbox: str = "process") -> None:
    """Write a fleet file of one site, whose nodes start what ``place`` starts."""
    text = FLEET.format(sandbox=sandbox, resources='["cpu"]', command=json.dumps(place.command), engine=engine)
    (place.root / "fleet.toml").write_text(text)


def players(place: Field) -> list[int]:
    """Processes that run cells of the matrix."""
    found = subprocess.run(("pgrep", "-f", str(place.root)), capture_output=True, text=True, check=False)
    return [pid for pid in map(int, found.stdout.split()) if _is_player(pid)]


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[str]:
    """Mount an empty disk at ``folder``; yield why that is not permitted, or nothing."""
    folder.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    refused = subprocess.run(mount, check=False, capture_output=True, text=True)
    try:
        yield refused.stderr.strip() if refused.returncode else ""
    finally:
        if not refused.returncode:
            subprocess.run(("umount", "--lazy", str(folder)), check=True)


def fill(disk: Path, left: int) -> None:
    """Leave ``left`` bytes free on a small disk, until :func:`make_room`."""
    room = os.statvfs(disk)
    with suppress(OSError), (disk / _FILLER).open("ab") as file:
        os.posix_fallocate(file.fileno(), 0, file.tell() + room.f_bavail * room.f_frsize - left)


def make_room(disk: Path) -> None:
    """Free what :func:`fill` has taken."""
    (disk / _FILLER).unlink(missing_ok=True)


class ClusterFaults:
    """Faults of a cluster: the methods ``fault_<name>`` of a subclass. It is mended some time later."""

    def __init__(self) -> None:
        self._repairs: list[tuple[float, Callable[[], object]]] = []

    def mend(self, now: float) -> None:
        """Mend what is due by ``now``, monotonic seconds."""
        for due in [one for one in self._repairs if one[0] <= now]:
            self._repairs.remove(due)
            due[1]()

    def later(self, seconds: float, repair: Callable[[], object]) -> None:
        """Call ``repair`` after ``seconds``."""
        self._repairs.append((time.monotonic() + seconds, repair))


@dataclass
class FaultyRun:
    """A run over a cluster to which faults happen; :meth:`run` returns when every cell has a record.

    Args:
        place: The matrix and its fleet file, as :func:`prepare` leaves them.
        cluster: What may happen to the cluster.
        faults: How many faults happen.
        seed: Decides which, and when.
    """

    place: Field
    cluster: ClusterFaults
    faults: int
    seed: int
    happened: Counter[str] = field(default_factory=Counter)
    heads: int = 0
    """How often the run was started."""
    _head: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Run to the end, with the faults on the way."""
        rng = random.Random(self.seed)
        faults = _faults(self) | _faults(self.cluster)
        if not self._workspace.is_mount():
            del faults["disk_full"]
        next_s = time.monotonic() + 3
        try:
            while self._go_on() or sum(self.happened.values()) < self.faults:
                now = time.monotonic()
                self.cluster.mend(now)
                if now >= next_s and sum(self.happened.values()) < self.faults:
                    name = rng.choice(sorted(faults))
                    faults[name](rng)
                    self.happened[name] += 1
                    next_s = now + rng.uniform(1, 6)
                time.sleep(0.2)
        finally:
            self.cluster.mend(float("inf"))
            if self._head is not None and self._head.poll() is None:
                self._head.kill()
                self._head.wait()

    def _go_on(self) -> bool:
        """Start the head if there is none; return False if one has ended with everything done."""
        code = self._head.poll() if self._head is not None else -1
        if code == 0 and sum(self.happened.values()) >= self.faults:
            return False
        if code is not None:
            self._head = self.place.start_logged(self.place.root / "head.log", *_RUN)
            self.heads += 1
        return True

    def fault_head_killed(self, _: random.Random) -> None:
        """Kill the head."""
        if self._head is not None:
            self._head.send_signal(signal.SIGKILL)

    def fault_head_interrupted(self, _: random.Random) -> None:
        """Interrupt the head, which then ends its jobs."""
        if self._head is not None:
            self._head.send_signal(signal.SIGINT)

    def fault_disk_full(self, rng: random.Random) -> None:
        """Fill the disk of the workspace for a while; it must be a small one: see :func:`small_disk`."""
        fill(self._workspace, 0)
        self.cluster.later(rng.choice((1, 8)), partial(make_room, self._workspace))

    @property
    def _workspace(self) -> Path:
        return self.place.root / "workspace"

    def fault_runner_killed(self, rng: random.Random) -> None:
        """Kill the process that runs cells on a node."""
        if running := players(self.place):
            with suppress(ProcessLookupError):
                os.kill(rng.choice(running), signal.SIGKILL)


def _faults(owner: object) -> dict[str, Callable[[random.Random], object]]:
    names = (name for name in dir(owner) if name.startswith("fault_"))
    return {name.removeprefix("fault_"): getattr(owner, name) for name in names}


def _is_player(pid: int) -> bool:
    try:
        return PLAYER.name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
