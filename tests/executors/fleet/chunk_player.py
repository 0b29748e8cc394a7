"""A node that measures nothing: ``python chunk_player.py ORDERS cell run chunk.json --out DIR --json``.

The folder ORDERS has one empty file for each chunk to come, ``<place>.<order>``; when they are used up, every cell is
recorded.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from kernel_matrix.executors.fleet.sent_files import SentFiles
from kernel_matrix.model.enums import Status
from kernel_matrix.results.store import RecordStore
from tests.results.factory import HOST, failed_record, make_record

ORDERS = Path(sys.argv[1])


def play(order: str, ids: list[str], out: Path) -> int:  # noqa: C901  # one branch per order
    """Do what ``order`` says; return the exit code."""
    store = RecordStore(out)
    sys.stdout.write(f"order: {order}\n")
    sys.stdout.flush()
    if order == "fails":
        return 3
    if order == "serves":
        serve(SentFiles(out), store)
    if order in {"refuses", "serves"}:
        return 0
    if order == "writes_garbage":
        store.records.mkdir()
        (store.records / f"{ids[0]}.1.json").write_text("{")
        return 0
    if order == "retries":
        for id_ in ids:
            store.save(failed_record(id_, status=Status.INFRA_ERROR, run_id=out.name))
            again = replace(HOST, started_at="2026-01-02T03:09:00Z")
            store.save(make_record(id_, attempt=2, host=again, run_id=out.name))
        return 0
    if order == "keeps_its_order":
        (ORDERS / "kept").write_bytes((out / "chunk.json").read_bytes())
        (ORDERS / "builds").write_text(os.environ["KERNEL_MATRIX_CACHE_DIR"])
    if order.startswith("fails_the_cell"):
        store.save(failed_record(ids[0], status=Status.INFRA_ERROR, run_id=out.name))
    if order.endswith("is_killed"):
        os.killpg(0, signal.SIGKILL)
    if order == "fails_the_cell":
        return 0
    if order == "fails_the_first":
        store.save(failed_record(ids[0], status=Status.CRASHED, run_id=out.name))
        time.sleep(100)  # until the run ends it
    for id_ in ids[:1] if order == "records_one" else ids:
        store.save(make_record(id_, run_id=out.name))
    return 0


def serve(files: SentFiles, store: RecordStore) -> None:
    """Record what is sent, until nothing more is."""
    while not files.is_last:
        for id_, _request in files.take():
            store.save(make_record(id_))
            files.tell_ended(id_)
        time.sleep(0.05)


def main(orders: Path, spec: Path) -> int:
    """Play the next order for a chunk."""
    left = sorted(orders.iterdir())
    order = left[0].name.partition(".")[2] if left else "records_all"
    if left:
        left[0].unlink()
    return play(order, json.loads(spec.read_bytes())["cell_ids"], spec.parent)


if __name__ == "__main__":
    sys.exit(main(ORDERS, Path(sys.argv[4])))
