"""One cell on each kind of GPU of a site, from the job to the record at home, to prove that cells can run there."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from kernel_matrix.errors import StoreError
from kernel_matrix.executors.engines import EngineError, EngineSession
from kernel_matrix.executors.fleet.site_run import SiteRun
from kernel_matrix.fleet import Site
from kernel_matrix.fleet.chunks import Chunk, PlacedCell, SlotKind
from kernel_matrix.model.enums import Fault
from kernel_matrix.results.record import Record
from kernel_matrix.results.store import RecordStore

_LOOK_EVERY_S: Final = 0.5


def run_trials(
    site: Site,
    session: EngineSession,
    cells: Mapping[SlotKind, PlacedCell],
    *,
    prefix: str,
    order: dict[str, Any],
    limit_s: float,
) -> dict[SlotKind, Record | str]:
    """Run one cell on each kind of GPU, and take its record to a store that is removed again.

    Args:
        site: The site.
        session: Its engine, for jobs whose names begin with ``prefix``.
        cells: Kind of GPU → the cell.
        prefix: What the names of all jobs of the store of results begin with.
        order: What ``chunk.json`` holds besides the cells.
        limit_s: How long jobs may wait and take.

    Returns:
        Kind of GPU → the record, or why there is none, or none that counts.
    """
    found: dict[SlotKind, Record | str] = {}
    with TemporaryDirectory(prefix="kernel-matrix-check-") as folder:
        run = SiteRun(site, session, prefix=prefix, order=order, home=RecordStore(Path(folder)))
        try:
            for number, (slot, cell) in enumerate(cells.items(), 1):
                run.submit(Chunk(number=number, slot=slot, cells=(cell,)), f"check-{secrets.token_hex(3)}")
            tokens = [chunk.token for chunk in run.active.values()]
            end_s = time.monotonic() + limit_s
            while run.active and time.monotonic() < end_s:
                news = run.look()
                found |= {chunk.slot: _verdict(record) for chunk, record in news.records}
                for chunk, _ in news.ended:
                    found.setdefault(chunk.slot, f"its trial cell left no record; {chunk.log_tail[-500:].strip()}")
                time.sleep(_LOOK_EVERY_S)
            session.cancel(tokens)
        except (EngineError, StoreError) as error:
            return dict.fromkeys(cells, f"its trial cell: {error}") | found
    waiting = f"its trial cell did not end within {limit_s:.0f} s"
    return {slot: found.get(slot, waiting) for slot in cells}


def _verdict(record: Record) -> Record | str:
    outcome = record.outcome
    return f"its trial cell: {outcome.evidence.message}" if outcome.fault is Fault.INFRA else record
