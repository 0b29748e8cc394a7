"""A node that measures nothing: ``python quick_node.py SECONDS cell run chunk.json --out DIR --json``.

Each cell takes SECONDS. Cells that are withdrawn, recorded, or not for this node's board are skipped. Other verbs are
the real ones.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from kernel_matrix.model.instants import utc_now
from kernel_matrix.results.store import RecordStore
from tests.results.factory import HOST, make_record


def measure(seconds: float, spec: Path) -> None:
    """Record the cells of a chunk, one after the other."""
    store = RecordStore(spec.parent)
    withdrawn = spec.parent / "withdrawn.json"
    done = set(store.attempts())
    run_id = f"run-{os.getpid()}-{time.time_ns()}"
    order = json.loads(spec.read_bytes())
    board = os.environ.get("SLURMD_NODENAME", "CPU")
    for id_ in order["cell_ids"]:
        if board in order.get("not_on", {}).get(id_, ()):
            continue
        if id_ in done or (withdrawn.is_file() and id_ in json.loads(withdrawn.read_bytes())):
            continue
        started_at = utc_now()
        time.sleep(seconds)
        device = {**HOST.device, "uuid": board}
        host = replace(HOST, device=device, hostname=os.uname().nodename, started_at=started_at, ended_at=utc_now())
        store.save(make_record(id_, store.next_attempt(id_), host=host, run_id=run_id))


if __name__ == "__main__":
    if sys.argv[2:4] != ["cell", "run"]:
        os.execv(sys.executable, [sys.executable, "-m", "kernel_matrix", *sys.argv[2:]])
    measure(float(sys.argv[1]), Path(sys.argv[4]))
