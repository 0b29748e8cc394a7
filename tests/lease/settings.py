"""Programs that hold and repair the settings of a simulated GPU, each in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.board import Board

_PROGRAM = """
import dataclasses, json, os, signal, sys
from pathlib import Path
from kernel_matrix.model.enums import ClockPolicy
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.platforms import Gpu
from kernel_matrix.lease.clock_lock import clocks_held
from kernel_matrix.lease.exclusive_mode import refusing_others
from kernel_matrix.lease.repair import repair, sweep_gpus
from kernel_matrix.lease.terms import LeaseTerms

verb, job = sys.argv[1], json.loads(sys.argv[2])
gpu = Gpu(platform=job["platform"], uuid=job["uuid"], name=job["name"])
folder = Path(job["folder"])
terms = LeaseTerms(wait_s=0, run_id="run-7", cell_id="cell-9", **{**job["terms"], "clocks": ClockPolicy(job["policy"])})

def die_at(event, args):
    if event == "ctypes.dlsym" and job["die_at"] in args:  # the function is about to be called for the first time
        os.kill(os.getpid(), signal.SIGKILL)

if job["die_at"]:
    sys.addaudithook(die_at)

def tell(what):
    print(json.dumps(what, default=str), flush=True)

def obey(thing):
    for line in sys.stdin:
        if line == "raise\\n":
            raise ValueError("the body's own")
        thing.engage() if line == "engage\\n" else None
        tell(seen(thing))

def seen(thing):
    if dataclasses.is_dataclass(thing):
        return dataclasses.asdict(thing)
    return {"engaged": thing.engaged, "trouble": thing.trouble, "restored": thing.restored}

def hold(context):
    with context as thing:
        try:
            tell(seen(thing))
            obey(thing)
        finally:
            told.append(thing)

told = []
try:
    if verb == "clocks":
        hold(clocks_held(gpu, terms, folder))
    elif verb == "hard":
        hold(refusing_others(gpu, terms, folder))
    elif verb == "both":
        with clocks_held(gpu, terms, folder):
            hold(refusing_others(gpu, terms, folder))
    else:
        tell({"lines": repair(gpu, folder) if verb == "repair" else sweep_gpus(folder)})
except (InfrastructureError, ValueError) as error:
    tell({"error": type(error).__name__, "permitted": getattr(error, "permitted", None), "what": str(error)})
for thing in told:
    tell(seen(thing))
"""


class Program:
    """A program that holds settings of one GPU until it is told to end.

    :param verb: ``clocks``, ``hard``, ``both``, ``repair`` or ``sweep``.
    :param gpu: another GPU than the board.
    :param die_at: function of the driver's library; the program is killed when it is about to call that the first time.
    """

    def __init__(
        self,
        board: Board,
        folder: Path,
        verb: str,
        *,
        gpu: Mapping[str, Any] | None = None,
        policy: str = "lock",
        die_at: str = "",
        environment: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        **terms: Any,
    ) -> None:
        chosen = board.gpu if gpu is None else gpu
        job = {"platform": board.platform, "folder": str(folder), "policy": policy, "die_at": die_at, "terms": terms}
        job |= {key: chosen[key] for key in ("platform", "uuid", "name") if key in chosen}
        self._process = board.driver.start(_PROGRAM, verb, json.dumps(job), prefix=prefix, **(environment or {}))
        self.pid = self._process.pid

    def hears(self) -> dict[str, Any]:
        """The next thing that the program tells."""
        assert self._process.stdout
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told

    def obey(self, word: str) -> dict[str, Any]:
        """Have the program do something, and hear what it tells then."""
        assert self._process.stdin
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self.hears()

    def end(self) -> dict[str, Any]:
        """Have the program end; the last thing that it tells."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        told: dict[str, Any] = json.loads(self._process.stdout.read().splitlines()[-1])
        assert self._process.wait() == 0
        self._process.stdout.close()
        return told

    def kill(self) -> None:
        """Kill the program."""
        self._process.kill()
        self._process.communicate()

    def dies(self) -> None:
        """Wait until the program has killed itself."""
        self._process.communicate(timeout=60)
        assert self._process.returncode == -9


def killed_while_holding(
    board: Board, folder: Path, *, gpu: Mapping[str, Any] | None = None, clock_target: int = 1500
) -> Program:
    """A program that was killed while it held the clocks of a GPU, which are locked still."""
    program = Program(board, folder, "clocks", gpu=gpu, clock_target=clock_target)
    assert program.hears()["locked"] is True
    program.kill()
    return program


def calls(board: Board) -> list[str]:
    """The setting calls so far: ``SetGpuLockedClocks 1500 1500 -> 0``, without process and GPU."""
    words = [line.split() for line in board.driver.log()]
    return [
        " ".join([function.removeprefix("nvmlDevice").removeprefix("amdsmi_"), *rest])
        for _, function, _, *rest in words
    ]
