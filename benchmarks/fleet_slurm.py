"""How a run over a real Slurm of two nodes bears faults, and how close it comes to the ideal time without any.

``python benchmarks/fleet_slurm.py [--cells N] [--seconds S] [--faults N] [--seed N]``, as root where Debian's Slurm is
installed. Cells take a fixed time and measure nothing, on one CPU slot of each node.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.baddays.field import ROOT, new_field
from tests.executors.engines.slurm_lab import NODES, slurm_lab
from tests.executors.fleet.faults import FaultyRun, prepare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, slurm_lab(Path(name) / "slurm") as lab:
        environment = {**lab.environment, "PYTHONPATH": str(ROOT / "runner")}
        (Path(name) / "project").mkdir()
        with new_field(Path(name) / "project", environment=environment) as place:
            prepare(place, asked.cells, asked.seconds)
            place.call("fleet", "check")
            run = FaultyRun(place, lab, asked.faults, asked.seed)
            started = time.monotonic()
            run.run()
            took_s = time.monotonic() - started
            records = Counter(record["cell_id"] for record in place.records())
    ideal_s = asked.cells * asked.seconds / len(NODES)
    document = {
        "took_s": round(took_s, 1),
        "over_ideal": round(took_s / ideal_s, 3),
        "lost": asked.cells - len(records),
        "measured_again": sum(records.values()) - len(records),
        "heads": run.heads,
        "faults": dict(run.happened),
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
