"""How a run over a real Slurm or Ray of two nodes bears faults, and how close it comes to the ideal time without any.

``python benchmarks/fleet_faults.py [--engine slurm|ray] [--cells N] [--seconds S] [--jobs N] [--faults N] [--seed N]``,
as root where Debian's Slurm, or Ray, is installed. Cells take a fixed time and measure nothing, on one CPU slot of each
node; ``--jobs 1`` leaves one of the two slots free.
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernel_matrix.model.instants import parse_instant
from tests.baddays.field import ROOT, new_field
from tests.executors.engines.ray_lab import ray_lab
from tests.executors.engines.slurm_lab import slurm_lab
from tests.executors.fleet.faults import FaultyRun, prepare, small_disk
from tests.executors.fleet.ray_faults import RayFaults
from tests.executors.fleet.slurm_faults import SlurmFaults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("slurm", "ray"), default="slurm")
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=2)
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    # A shell lets what it starts in the background ignore it, and so would the heads.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (
        tempfile.TemporaryDirectory(prefix="km", ignore_cleanup_errors=True) as name,
        _cluster(asked.engine, Path(name) / "lab") as (faults, variables),
    ):
        project = Path(name) / "project"
        project.mkdir()
        with (
            new_field(project, environment={**variables, "PYTHONPATH": str(ROOT / "runner")}) as place,
            small_disk(project / "workspace", "16m"),
        ):
            prepare(place, f"{faults.engine}\njobs = {asked.jobs}", asked.cells, asked.seconds)
            place.call("fleet", "check")
            run = FaultyRun(place, faults, asked.faults, asked.seed)
            started = time.monotonic()
            run.run()
            took_s = time.monotonic() - started
            records = place.records()
    cells = Counter(record["cell_id"] for record in records)
    document = {
        "took_s": round(took_s, 1),
        "over_ideal": round(took_s / (asked.cells * asked.seconds / asked.jobs), 3),
        "lost": asked.cells - len(cells),
        "measured_again": cells.total() - len(cells),
        "chunks": len({record["run_id"] for record in records}),
        "between_cells_s": round(_between_s(records), 1),
        "heads": run.heads,
        "faults": dict(sorted(run.happened.items())),
    }
    print(json.dumps(document))


def _between_s(records: Sequence[Mapping[str, Any]]) -> float:
    """Return how long no cell ran between the begin of the first and the end of the last, seconds."""
    hosts = sorted((record["host"] for record in records), key=lambda host: host["started_at"])
    idle_s, until = 0.0, parse_instant(hosts[0]["started_at"])
    for began, ended in ((parse_instant(host["started_at"]), parse_instant(host["ended_at"])) for host in hosts):
        idle_s += max(0.0, (began - until).total_seconds())
        until = max(until, ended)
    return idle_s


@contextmanager
def _cluster(engine: str, folder: Path) -> Iterator[tuple[SlurmFaults | RayFaults, Mapping[str, str]]]:
    """Run a cluster; yield what may happen to it, and the variables for its commands."""
    if engine == "slurm":
        with slurm_lab(folder) as slurm:
            yield SlurmFaults(slurm), slurm.environment
    else:
        folder.mkdir()
        with ray_lab(folder) as ray:
            yield RayFaults(ray), {}


if __name__ == "__main__":
    main()
