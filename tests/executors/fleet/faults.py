"""Faults of a cluster and of the head of a run, at random; used by tests and by ``benchmarks/fleet_slurm.py``."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.baddays.field import ROOT, Field
from tests.executors.engines.slurm_lab import NODES, SlurmLab

FLEET = """
[[sites]]
name = "lab"
engine = "slurm"
sandbox = "process"
workspace = "workspace"
gpus = {resources}
command = {command}
options = {{ partition = "night", cpus = 1 }}
"""
PLAYER = Path(__file__).with_name("quick_node.py")
_RUN = ("run", "--fleet", "fleet.toml", "--json")


def write_copies(place: Field, cells: int) -> None:
    """Write a matrix of ``cells`` cells, whose candidates are copies of one."""
    for number in range(cells):
        for end in (".py", ".toml"):
            shutil.copy(place.candidates / f"honest{end}", place.candidates / f"copy_{number:04}{end}")
    place.write_matrix("tiny/copy_*")


def prepare(place: Field, cells: int, seconds: float, resources: tuple[str, ...] = ("cpu",)) -> None:
    """Write a matrix of ``cells`` cells, and a fleet whose nodes take ``seconds`` for each."""
    write_copies(place, cells)
    start = ["env", f"PYTHONPATH={ROOT / 'runner'}:{ROOT}", sys.executable, str(PLAYER), str(seconds)]
    text = FLEET.format(resources=json.dumps(resources), command=json.dumps(start))
    (place.root / "fleet.toml").write_text(text)


@dataclass
class FaultyRun:
    """A run over a cluster to which faults happen; :meth:`run` returns when every cell has a record.

    Args:
        place: The matrix and its fleet file, as :func:`prepare` leaves them.
        lab: The cluster.
        faults: How many faults happen.
        seed: Decides which, and when.
    """

    place: Field
    lab: SlurmLab
    faults: int
    seed: int
    happened: Counter[str] = field(default_factory=Counter)
    heads: int = 0
    """How often the run was started."""
    _head: subprocess.Popen[bytes] | None = None
    _repairs: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)

    def run(self) -> None:
        """Run to the end, with the faults on the way."""
        rng = random.Random(self.seed)
        names = [name for name in dir(self) if name.startswith("fault_")]
        next_s = time.monotonic() + 3
        try:
            while self._go_on() or sum(self.happened.values()) < self.faults:
                now = time.monotonic()
                self._repair(now)
                if now >= next_s and sum(self.happened.values()) < self.faults:
                    name = rng.choice(names)
                    getattr(self, name)(rng)
                    self.happened[name.removeprefix("fault_")] += 1
                    next_s = now + rng.uniform(1, 6)
                time.sleep(0.2)
        finally:
            self._repair(float("inf"))
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

    def _repair(self, now: float) -> None:
        for due in [one for one in self._repairs if one[0] <= now]:
            self._repairs.remove(due)
            what, *words = due[1]
            getattr(self.lab, what)(*words)

    def _later(self, seconds: float, *what: str) -> None:
        self._repairs.append((time.monotonic() + seconds, what))

    def fault_head_killed(self, _: random.Random) -> None:
        """Kill the head."""
        if self._head is not None:
            self._head.send_signal(signal.SIGKILL)

    def fault_head_interrupted(self, _: random.Random) -> None:
        """Interrupt the head, which then ends its jobs."""
        if self._head is not None:
            self._head.send_signal(signal.SIGINT)

    def fault_node_killed(self, rng: random.Random) -> None:
        """Kill the daemon of a node, whose jobs go on; it comes back."""
        node = rng.choice(list(NODES))
        if self.lab.is_alive(f"slurmd.{node}"):
            self.lab.kill(f"slurmd.{node}")
            self._later(rng.choice((1, 15)), "start_node", node)

    def fault_controller_killed(self, rng: random.Random) -> None:
        """Kill the controller; it comes back with what it had written."""
        if self.lab.is_alive("slurmctld"):
            self.lab.kill("slurmctld")
            self._later(rng.uniform(0, 5), "start_controller")

    def fault_controller_forgets(self, rng: random.Random) -> None:
        """Kill the controller and let it lose what it had written: job numbers are handed out again."""
        if self.lab.is_alive("slurmctld"):
            self.lab.kill("slurmctld")
            for path in (self.lab.folder / "state").glob("job_state*"):
                path.unlink()
            self._later(rng.uniform(0, 3), "start_controller")

    def fault_network_cut(self, rng: random.Random) -> None:
        """Stop the daemon of a node for a while, as if its network were cut."""
        node = rng.choice(list(NODES))
        if self.lab.is_alive(f"slurmd.{node}"):
            self.lab.signal(f"slurmd.{node}", signal.SIGSTOP)
            self._later(rng.choice((2, 20)), "go_on", f"slurmd.{node}")

    def fault_node_drained(self, rng: random.Random) -> None:
        """Drain a node, and resume it."""
        node = rng.choice(list(NODES))
        self._ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
        self._later(5, "resume", node)

    def fault_job_cancelled(self, rng: random.Random) -> None:
        """Cancel a job."""
        self._of_a_job(rng, "scancel")

    def fault_job_requeued(self, rng: random.Random) -> None:
        """Requeue a job, which starts again."""
        self._of_a_job(rng, "scontrol", "requeue")

    def fault_job_preempted(self, rng: random.Random) -> None:
        """Let an urgent job take a node for a second."""
        node = rng.choice(list(NODES))
        self._ask("sbatch", "-p", "urgent", "-w", node, "--exclusive", "--wrap", "sleep 1", "-o", "/dev/null")

    def fault_runner_killed(self, rng: random.Random) -> None:
        """Kill the process that runs cells on a node."""
        found = subprocess.run(("pgrep", "-f", str(self.place.root)), capture_output=True, text=True, check=False)
        players = [int(pid) for pid in found.stdout.split() if _is_player(int(pid))]
        if players:
            with suppress(ProcessLookupError):
                os.kill(rng.choice(players), signal.SIGKILL)

    def _of_a_job(self, rng: random.Random, *words: str) -> None:
        jobs = self._ask("squeue", "-h", "-p", "night", "-o", "%i").split()
        if jobs:
            self._ask(*words, rng.choice(jobs))

    def _ask(self, *words: str) -> str:
        """Call Slurm; while the controller is away the fault does not happen."""
        return self.lab.call(*words, check=False) if self.lab.is_alive("slurmctld") else ""


def _is_player(pid: int) -> bool:
    try:
        return PLAYER.name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
