"""What tests of recipes for servers share: a checkout, the programs of its machine, and a script run as servers do."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from tests.baddays.field import PRELOADED, Field
from tests.warm_command import command_text

ROOT = Path(__file__).parents[1]
OWN = ("SANDBOX", "BASELINE", "RESULTS", "UNTIL", "METRICS")
"""Variables in which a recipe says what is particular to a machine."""
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")


class Machine:
    """A checkout of somebody's kernels, and the programs of a runner."""

    def __init__(self, field: Field) -> None:
        self.field, self.root = field, field.root
        self.programs = self.root / "bin"
        self.programs.mkdir()
        self.add_program("kernel-matrix", command_text(PRELOADED))
        late = (datetime.now().astimezone() - timedelta(minutes=1)).strftime("%H:%M")
        self.summary = self.root / "summary.md"
        self.environment = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "SANDBOX": "process",
            "BASELINE": str(self.root / "kept" / "baselines" / "usual"),
            "RESULTS": str(self.root / "kept"),
            "METRICS": str(self.root / "made.prom"),
            "UNTIL": late,
            "no_proxy": "*",
        }

    def add_program(self, name: str, text: str) -> None:
        """Put a program into this machine's ``PATH``."""
        path = self.programs / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def script(
        self,
        text: str,
        variables: Mapping[str, object],
        *,
        folder: Path | None = None,
        shell: Sequence[str] = BASH,
        **more: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a step as servers do: with bash, up to the first command that fails."""
        own = {name: str(value) for name, value in variables.items() if name not in OWN}
        assert "${{" not in "".join((text, *own.values()))
        environment = {**self.field._environment({}), **own, **self.environment, **more}
        return subprocess.run(
            (*shell, text),
            cwd=folder or self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )

    def commands(self, *words: str) -> None:
        """Run ``kernel-matrix``, which must succeed."""
        ran = self.field.call(*words)
        assert ran.returncode == 0, ran.stderr


def with_baseline(machine: Machine, candidate: str = "wrong") -> None:
    """Freeze what tiny/honest was before a change: no times are compared if it was wrong, and is right now."""
    honest = machine.field.candidates / "honest.py"
    now = honest.read_text()
    honest.write_text((machine.field.candidates / f"{candidate}.py").read_text())
    machine.commands("run", "--sandbox", "process", "--results", "before")
    machine.commands("baseline", "set", "usual", "before", "--results", "kept")
    honest.write_text(now)
