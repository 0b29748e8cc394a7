"""What may happen to a Slurm of two nodes."""

from __future__ import annotations

import random
import signal
from functools import partial

from tests.executors.engines.slurm_lab import NODES, SlurmLab
from tests.executors.fleet.faults import ClusterFaults

ENGINE = 'engine = "slurm"\noptions = { partition = "night", cpus = 1 }'
"""Lines of a fleet file; each node takes one job."""


class SlurmFaults(ClusterFaults):
    """Faults of ``lab``."""

    def __init__(self, lab: SlurmLab) -> None:
        super().__init__()
        self.engine = ENGINE
        self._lab = lab

    def fault_node_killed(self, rng: random.Random) -> None:
        """Kill the daemon of a node, whose jobs go on; it comes back."""
        node = rng.choice(list(NODES))
        if self._lab.is_alive(f"slurmd.{node}"):
            self._lab.kill(f"slurmd.{node}")
            self.later(rng.choice((1, 15)), partial(self._lab.start_node, node))

    def fault_controller_killed(self, rng: random.Random) -> None:
        """Kill the controller; it comes back with what it had written."""
        if self._lab.is_alive("slurmctld"):
            self._lab.kill("slurmctld")
            self.later(rng.uniform(0, 5), self._lab.start_controller)

    def fault_controller_forgets(self, rng: random.Random) -> None:
        """Kill the controller and let it lose what it had written: job numbers are handed out again."""
        if self._lab.is_alive("slurmctld"):
            self._lab.kill("slurmctld")
            for path in (self._lab.folder / "state").glob("job_state*"):
                path.unlink()
            self.later(rng.uniform(0, 3), self._lab.start_controller)
            for node in NODES:  # which Slurm drains when a number that is handed out again is still known there
                self.later(20, partial(self._lab.resume, node))

    def fault_network_cut(self, rng: random.Random) -> None:
        """Stop the daemon of a node for a while, as if its network were cut."""
        node = rng.choice(list(NODES))
        if self._lab.is_alive(f"slurmd.{node}"):
            self._lab.signal(f"slurmd.{node}", signal.SIGSTOP)
            self.later(rng.choice((2, 20)), partial(self._lab.go_on, f"slurmd.{node}"))

    def fault_node_drained(self, rng: random.Random) -> None:
        """Drain a node, and resume it."""
        node = rng.choice(list(NODES))
        self._ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
        self.later(5, partial(self._lab.resume, node))

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

    def _of_a_job(self, rng: random.Random, *words: str) -> None:
        jobs = self._ask("squeue", "-h", "-p", "night", "-o", "%i").split()
        if jobs:
            self._ask(*words, rng.choice(jobs))

    def _ask(self, *words: str) -> str:
        """Call Slurm; while the controller is away the fault does not happen."""
        return self._lab.call(*words, check=False) if self._lab.is_alive("slurmctld") else ""
