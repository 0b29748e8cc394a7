"""A real Slurm of two nodes on this machine, without accounting; its GPUs are device files."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
Nodes = Mapping[str, tuple[str, tuple[str, ...]]]
"""Node → its GPU model and device files; those that do not exist are made in the folder of the cluster."""
NODES: Nodes = {"h1": ("h200", ("nvidia0", "nvidia1")), "l1": ("l40s", ("nvidia2",))}
_CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=10
MessageTimeout=10
KillWait=5
MinJobAge=600
SlurmdParameters=config_overrides
"""


def missing_programs() -> list[str]:
    """The programs of Slurm that this machine lacks."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


class SlurmLab:
    """A running cluster; ``environment`` makes Slurm's commands talk to it."""

    def __init__(self, folder: Path, nodes: Nodes = NODES) -> None:
        self.folder = folder
        self.nodes = nodes
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def configure(self) -> None:
        """Write the configuration, a key and the device files."""
        for name in ("state", "spool/h1", "spool/l1"):
            (self.folder / name).mkdir(parents=True)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        port, host = _free_ports(1 + len(self.nodes)), socket.gethostname().partition(".")[0]
        lines, gres = [_CONFIGURATION.format(folder=self.folder, host=host, port=port)], ["AutoDetect=off"]
        for number, (node, (model, devices)) in enumerate(self.nodes.items(), start=1):
            lines.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port + number} CPUs=8 RealMemory=2000"
                f" Gres=gpu:{model}:{len(devices)} Features={model} State=UNKNOWN"
            )
            for device in (self.folder / name for name in devices):
                if not device.exists():
                    # As `mknod … c 195 0`, like a driver's: plain files leave CUDA_VISIBLE_DEVICES empty.
                    os.mknod(device, 0o20666, os.makedev(195, int(device.name.removeprefix("nvidia"))))
                gres.append(f"NodeName={node} Name=gpu Type={model} File={device}")
        lines += [
            "PartitionName=night Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE MaxTime=INFINITE State=UP",
            "PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP",
            "PartitionName=small Nodes=l1 MaxTime=INFINITE State=UP",
        ]
        (self.folder / "slurm.conf").write_text("\n".join(lines) + "\n")
        (self.folder / "gres.conf").write_text("\n".join(gres) + "\n")
        version = 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1
        more = "IgnoreSystemd=yes" if version == 2 else "CgroupAutomount=no"
        (self.folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v{version}\n{more}\n")

    def call(self, *words: str, check: bool = True) -> str:
        """Run a command of Slurm; return what it prints."""
        done = subprocess.run(
            words, env={**os.environ, **self.environment}, capture_output=True, text=True, check=check, timeout=60
        )
        return done.stdout

    def start_controller(self) -> None:
        """Start ``slurmctld``."""
        self.call("slurmctld", "-i")

    def start_node(self, node: str) -> None:
        """Start ``slurmd`` of a node."""
        self.call("slurmd", "-N", node)

    def start_blind_node(self, node: str, folder: Path) -> None:
        """Start ``slurmd`` of a node that sees another, empty folder in place of ``folder``."""
        script = 'mount -t tmpfs none "$1" && exec slurmd -N "$2"'
        self.call("unshare", "--mount", "sh", "-c", script, "sh", str(folder), node)

    def kill(self, daemon: str) -> None:
        """Kill ``slurmctld`` or ``slurmd.<node>`` at once."""
        self.signal(daemon, signal.SIGKILL)

    def go_on(self, daemon: str) -> None:
        """Let a stopped daemon go on."""
        self.signal(daemon, signal.SIGCONT)

    def resume(self, node: str) -> None:
        """Let a drained node run jobs again."""
        self.call("scontrol", "update", f"nodename={node}", "state=resume", check=False)

    def signal(self, daemon: str, number: signal.Signals) -> None:
        """Send a signal to ``slurmctld``, ``slurmd.<node>`` or ``munge``."""
        os.kill(self._pid(daemon), number)

    def is_alive(self, daemon: str) -> bool:
        """Return whether ``slurmctld`` or ``slurmd.<node>`` runs and is not stopped."""
        try:
            status = Path(f"/proc/{self._pid(daemon)}/stat").read_text()
        except (OSError, ValueError):
            return False
        return f"({daemon.partition('.')[0]})" in status and status.rpartition(")")[2].split()[0] not in "TZ"

    def _pid(self, daemon: str) -> int:
        return int((self.folder / f"{daemon}.pid").read_text())

    def wait_until(self, true: object, limit_s: float = 60.0) -> None:
        """Wait until ``true()`` is."""
        end = time.monotonic() + limit_s
        while not true():  # type: ignore[operator]
            if time.monotonic() > end:
                raise TimeoutError(self.call("squeue", "-t", "all", check=False))
            time.sleep(0.1)


@contextmanager
def slurm_lab(folder: Path, nodes: Nodes = NODES) -> Iterator[SlurmLab]:
    """Run a cluster of nodes ``h1`` and ``l1``, whose files are in ``folder``; every daemon and job of it ends."""
    lab = SlurmLab(folder, nodes)
    lab.configure()
    munge = [f"--{what}={folder}/munge.{end}" for what, end in _MUNGE.items()]
    lab.call("munged", "--force", *munge)
    try:
        lab.start_controller()
        for node in nodes:
            lab.start_node(node)
        lab.wait_until(lambda: lab.call("sinfo", "-h", "-N", "-p", "urgent", "-o", "%T").split() == ["idle", "idle"])
        yield lab
    finally:
        lab.call("scancel", "-u", "root", check=False)
        for daemon in ("slurmctld", *(f"slurmd.{node}" for node in nodes), "munge"):
            with suppress(FileNotFoundError, ValueError, ProcessLookupError):
                lab.signal(daemon, signal.SIGTERM)


_MUNGE = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}


def _free_ports(number: int) -> int:
    """Return the first of ``number`` consecutive free ports; labs that start at once look at different ones."""
    for first in range(20_000 + 16 * os.getpid() % 10_000, 60_000, number):
        with ExitStack() as opened, suppress(OSError):
            for port in range(first, first + number):
                opened.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise OSError("no ports are free")
