"""A process that holds a simulated GPU and obeys one command per line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.board import Board

from tests.pipes import read_line

PROGRAM = """
import json, sys, threading, time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from kernel_matrix.model.enums import ClockPolicy
from kernel_matrix.errors import KernelMatrixError
from kernel_matrix.platforms import Gpu
from kernel_matrix.lease import LeaseTerms, hold, release_check, watch

settings = json.loads(sys.stdin.readline())
release_check._LIMIT_S, watch._HUNG_S = settings["patience_s"], settings["patience_s"]
terms = settings["terms"]
terms["clocks"] = ClockPolicy(terms.get("clocks", "observe"))
told, waits, session = {}, [], ExitStack()

def say(words="done"):
    print(words, flush=True)

def waiting():
    if not waits:
        say("waiting")
    waits.append(True)
    return False

def obey(lease, word, *rest):
    if word == "admit":
        lease.tenants.admit(int(rest[0]))
    elif word == "look":  # until so many looks more have begun and ended
        wanted = len(lease.snapshots) + 1 + int(rest[0])
        while len(lease.snapshots) < wanted and not lease.lost:
            time.sleep(0.002)
    elif word == "enter":
        session.enter_context(lease.session(processes=3))
    elif word == "leave":
        session.close()
    elif word == "lost":
        while not lease.lost:
            time.sleep(0.002)
    elif word == "raise":
        raise {"KeyboardInterrupt": KeyboardInterrupt, "ValueError": ValueError}[rest[0]]
    say()

def tell(lease):
    told.update(
        exclusive=lease.exclusive, reason=lease.reason, foreign=lease.foreign_pids, warnings=lease.warnings,
        lost=lease.lost, before=dict(lease.before), after=dict(lease.after), waited_s=lease.waited_s,
        looks=[[look.own, look.foreign, look.trouble] for look in lease.snapshots],
        aftermath=asdict(lease.aftermath), clocks=[lease.clocks.locked, lease.clocks.reset.value],
        threads=[thread.name for thread in threading.enumerate()],
    )

lease = None
try:
    gpu, locks = Gpu(**settings["gpu"]), Path(settings["locks"])
    with hold(gpu, LeaseTerms(**terms), lock_dir=locks, cancelled=waiting) as lease:
        say("held")
        with session:
            for line in sys.stdin:
                obey(lease, *line.split())
        say("leaving")
except KernelMatrixError as error:
    told.update(error=type(error).__name__, what=error.what, next_step=error.next_step, code=error.exit_code)
except BaseException as error:
    told.update(stopped=type(error).__name__)
if lease:
    tell(lease)
say(json.dumps(told))
"""


class Holder:
    """A process that asks for the simulated GPU, holds it, and does what it is told.

    :param patience_s: how long it waits for a driver that does not clear up, or does not answer.
    :param terms: as :class:`kernel_matrix.lease.LeaseTerms`; ``wait_s`` is 0 unless given.
    """

    def __init__(
        self,
        locks: Path,
        *,
        board: Board,
        prefix: Sequence[str] = (),
        patience_s: float = 10.0,
        **terms: Any,
    ) -> None:
        self.process = board.driver.start(PROGRAM, prefix=prefix)
        gpu = {"platform": board.platform, "uuid": board.uuid, "name": board.gpu["name"]}
        gpu["memory_bytes"] = board.gpu["memory"]
        settings = {"gpu": gpu, "locks": str(locks), "patience_s": patience_s, "terms": {"wait_s": 0.0, **terms}}
        self._write(json.dumps(settings))

    def reached(self, state: str = "held") -> Holder:
        """Wait until it says that it has come so far."""
        assert read_line(self.process) == state + "\n"
        return self

    def tell(self, *words: object) -> None:
        """Give a command and wait until it is done."""
        self._write(" ".join(map(str, words)))
        self.reached("done")

    def stop_by(self, kind: str) -> Any:
        """Have the body raise an exception; what the process told at its end."""
        self._write(f"raise {kind}")
        return self.end()

    def let_go(self) -> None:
        """Have the body end; what follows is the wait for the aftermath."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None
        self.reached("leaving")

    def end(self) -> Any:
        """Let it give the device back; what it told."""
        try:
            out, _ = self.process.communicate(timeout=200)
        finally:
            self.process.kill()
        assert self.process.returncode == 0
        return json.loads(out.splitlines()[-1])

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
