"""What a killed runner leaves: 20 times SIGKILL at any moment of a cell, then `sweep`, in each sandbox.

    python benchmarks/kills.py [--sandboxes docker unpacked process] [--kills 20] [--lock FILE]

A small cell of the CPU. Docker and ``unpacked`` need the CPU image of the lock. Wanted: after the next start there is
no process, container, mount, control group or file of the runs that were killed.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kernel_matrix.sandboxes.memory_groups import find_memory_groups  # noqa: E402  # as above
from tests.baddays.field import Field, new_field  # noqa: E402  # as above
from tests.baddays.living import await_event, containers, processes  # noqa: E402


def main() -> None:
    """Kill, look, and print one line per sandbox."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandboxes", nargs="+", default=["docker", "unpacked", "process"])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--lock", type=Path, default=ROOT / "images" / "images.lock")
    arguments = parser.parse_args()
    for sandbox in arguments.sandboxes:
        with tempfile.TemporaryDirectory() as folder, new_field(Path(folder, "field"), arguments.lock) as field:
            began = time.monotonic()
            left = kill_often(field, sandbox, arguments.kills)
            seconds = time.monotonic() - began
            print(f"{sandbox:<10} {arguments.kills} kills in {seconds:.0f} s; left: {'; '.join(left) or 'nothing'}")


def kill_often(field: Field, sandbox: str, kills: int) -> list[str]:
    """Kill runners of one small cell at moments drawn over its whole time; return what is left in the end."""
    field.write_matrix("tiny/honest")
    began = time.monotonic()
    if field.run("--sandbox", sandbox).returncode:
        raise SystemExit(f"the cell does not run in sandbox {sandbox}")
    whole_s = time.monotonic() - began
    dice = random.Random(0)  # the same moments in each run
    for _ in range(kills):
        with field.start("run", "--json", "--rerun", "all", "--sandbox", sandbox) as runner:
            await_event(runner, "run_started")
            time.sleep(dice.uniform(0, whole_s))
            runner.send_signal(signal.SIGKILL)
    if field.call("sweep").returncode:
        return ["sweep failed"]
    return [
        *(f"process {pid}" for pid in processes(field)),
        *(f"container {name}" for run in field.runs() for name in containers(run["run_id"])),
        *(f"mount {line}" for line in mounts(field)),
        *(f"group {path}" for path in orphaned_groups()),
        *(f"file {name}" for name in field.leftovers()),
        *(f"file {path}" for path in field.unfinished_files()),
    ]


def orphaned_groups() -> Sequence[Path]:
    """Return the control groups of roles whose runner is gone."""
    groups = find_memory_groups()
    return () if isinstance(groups, str) else groups.orphans()


def mounts(field: Field) -> list[str]:
    """Return the mounts of this host below the folders of the runs."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if field.scratch.name in line or str(field.root) in line]


if __name__ == "__main__":
    main()
