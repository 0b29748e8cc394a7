"""How often the audit finds a slow board, and how often it accuses a board of a healthy fleet.

``python benchmarks/slow_units.py [--fleets N] [--seed N] [--json]`` makes fleets of one model from the noise of real
records and runs the checks ``slow_unit`` and ``units_apart``. Cells are those of ``results/example-h200.kmz`` whose
baseline was timed twice or more, on either of two boards; the logarithm of a time is off by what one of these times,
of a cell of its size, was off its cell's median, strays included. All times of a board in one night are off together,
with a standard deviation of 0.5 %, and in some fleets those of a board in all nights too. Half of the fleets are
healthy; in the others, boards are 5 % slower.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.audit import chosen
from kernel_matrix.analysis.differences import DEFAULT_RUN_DEVIATION, SIZES_NS
from kernel_matrix.analysis.outcomes import sessions
from kernel_matrix.analysis.tables import Tables, open_tables
from kernel_matrix.results.merge import merge
from kernel_matrix.results.schema import CELLS

RECORDS: Final = Path(__file__).parents[1] / "results" / "example-h200.kmz"
START: Final = datetime(2026, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Design:
    """Boards of a fleet, and what they measure."""

    units: int
    nights: int = 1
    dealt: int | None = None
    """Boards that measure a cell in a night; None: all."""
    spread: float = 0.0
    """Standard deviation between healthy boards."""
    slow: int = 1
    """Boards that are slower where any is."""


DESIGNS: Final = {
    "4 boards": Design(4),
    "8 boards": Design(8),
    "8 boards, 2 of them slow": Design(8, slow=2),
    "4 boards that differ by 1 %": Design(4, spread=0.01),
    "8 boards that differ by 1 %": Design(8, spread=0.01),
    "8 boards, each cell on 2": Design(8, dealt=2),
    "8 boards, each cell on 2, 8 nights": Design(8, dealt=2, nights=8),
    "3 boards, 3 nights": Design(3, nights=3),
    "2 boards": Design(2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleets", type=int, default=200)
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        merge([RECORDS], Path(folder))
        real = real_noise(open_tables([Path(folder)]))
    for name, design in DESIGNS.items():
        dice = np.random.default_rng(options.seed)
        healthy = [accused(fleet(real, design, dice, 0.0)) for _ in range(options.fleets)]
        slow = [accused(fleet(real, design, dice, 0.05)) for _ in range(options.fleets)]
        wanted = {f"GPU-{number}" for number in range(design.slow)}
        row = {
            "design": name,
            "fleets": options.fleets,
            "alarms": sum(map(bool, healthy)),
            "found": sum(wanted <= units for units in slow) / options.fleets,
            "others accused": sum(bool(units - wanted) for units in slow),
        }
        print(
            json.dumps(row) if options.json else "  ".join(f"{key}: {value}" for key, value in row.items()), flush=True
        )


def real_noise(tables: Tables) -> pl.DataFrame:
    """Return the ``cell``, its ``size``, and ``off``, the logarithm of each time less the median of its cell."""
    found = sessions(tables.cells).filter(pl.col("baseline_median_ns") > 0).collect()
    cell = ("problem", "dtype", "workload")
    log = pl.col("baseline_median_ns").log()
    several = found.filter(pl.len().over(cell) > 1).sort(*cell, "record", "session")
    return several.select(
        cell=pl.concat_str(pl.col(cell).cast(pl.String), separator=" "),
        size=sum((pl.col("baseline_median_ns").median().over(cell) > size).cast(pl.Int8) for size in SIZES_NS),
        # The median of few times is near each of them.
        off=(log - log.median().over(cell)) * (pl.len().over(cell) / (pl.len().over(cell) - 1)).sqrt(),
    )


def fleet(real: pl.DataFrame, design: Design, dice: np.random.Generator, slower: float) -> Tables:
    """Draw the table of a fleet whose first boards are slower by ``slower``."""
    cells = real.unique("cell", maintain_order=True)
    shape = (cells.height, design.nights, design.units)
    run = dice.normal(0, DEFAULT_RUN_DEVIATION, shape[1:]) + dice.normal(0, design.spread, design.units)
    run[:, : design.slow] += np.log1p(slower)
    log = np.empty(shape)
    off = {size: rows["off"].to_numpy() for (size,), rows in real.partition_by("size", as_dict=True).items()}
    for place, size in enumerate(cells["size"]):
        log[place] = run + dice.choice(off[size], shape[1:])
    order = dice.random(shape).argsort(axis=2)
    cell, night, unit = np.nonzero(order < (design.dealt or design.units))
    return table_of(cells["cell"].gather(cell), night, unit, np.exp(log[cell, night, unit]))


def table_of(problem: pl.Series, night: Any, unit: Any, time: Any) -> Tables:
    """Make tables of which the checks read what is given here."""
    started = pl.Series([START + timedelta(days=int(at)) for at in night])
    rows = pl.DataFrame({"problem": problem, "run_started_at": started, "baseline_median_ns": 1e5 * time}).with_columns(
        gpu_uuid=pl.Series([f"GPU-{number}" for number in unit]),
        record=pl.int_range(pl.len()),
        gpu=pl.lit("h200"),
        gpu_name=pl.lit("NVIDIA H200"),
        candidate_median_ns=pl.lit(1e5),
        status=pl.lit("passed"),
        session_status=pl.lit("passed"),
        session=pl.lit(0),
        workload=pl.lit("default"),
    )
    known = rows.columns
    whole = rows.select(
        (pl.col(name) if name in known else pl.lit(None)).cast(kind).alias(name) for name, kind in CELLS.items()
    )
    empty = pl.LazyFrame()
    return Tables(cells=whole.lazy(), samples=empty, batches=empty, kernels=empty, hosts=empty)


def accused(tables: Tables) -> set[str]:
    """Return the boards that the checks call slower."""
    found = [
        row["evidence"] for check in chosen(["slow_unit", "units_apart"]) for row in check.findings(tables).to_dicts()
    ]
    return {evidence.split(" is ")[0] for evidence in found}


if __name__ == "__main__":
    main()
