"""Open record folders and tables: frames, filters and charts."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import polars as pl

from kernel_matrix.analysis.outcomes import outcomes
from kernel_matrix.analysis.tables import Tables, open_tables
from kernel_matrix.api.make_tables import merge
from kernel_matrix.report.charts import Chart, compare_axis, speedup_by_gpu
from kernel_matrix.results.latest import explain_no_rows, filter_rows, overview
from kernel_matrix.results.packed_set import unpack_sets

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Chart", "Results", "newest_results"]

_CELL = ["cell_id", "host_id", "workload"]
"""The key of :meth:`Results.latest`."""


class Results:
    """Results of one or several folders or packed sets.

    A folder with tables is read as it is. Records are checked and merged into a temporary folder first, which
    :meth:`close` removes, or the end of the object: merge a large folder once with :func:`kernel_matrix.merge`.

    Args:
        folders: Folders of merged tables or of records, or packed sets; ``results`` where none is named.
        traces: Also merge the telemetry of records, which is large.
        progress: Called with the number of record files that were merged, and of all.

    Raises:
        UsageError: A folder does not exist.
        StoreError: A table is damaged, or was written by a version with another schema; a packed set is refused.

    Examples:
        >>> import kernel_matrix
        >>> results = kernel_matrix.Results("results/example-h200.kmz")
        >>> results
        Results('results/example-h200.kmz')
        >>> softmax = results.filter("problem=softmax", "dtype=fp32")
        >>> softmax.latest()["problem"].unique().to_list()
        ['softmax']
    """

    def __init__(
        self, *folders: str | Path, traces: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.folders = tuple(map(Path, folders or ("results",)))
        self.rejected = 0
        """Files that are no valid records; ``kernel-matrix merge`` says why."""
        opened = [folder for folder in self.folders if (folder / "cells.parquet").is_file()]
        self.merged_aside = tuple(folder for folder in self.folders if folder not in opened)
        """Those of the folders whose records were merged aside."""
        self.record_folders = self.merged_aside
        """Where these records are; of a packed set that is a temporary folder too."""
        self._owner: Results | None = None  # what this was filtered from: it keeps the merged files
        self._remove: Callable[[], object] = _nothing
        if self.merged_aside:
            aside = Path(tempfile.mkdtemp(prefix="kernel-matrix-"))
            self._remove = weakref.finalize(self, shutil.rmtree, aside, ignore_errors=True)
            try:
                self.record_folders = tuple(unpack_sets(self.merged_aside, aside / "sets"))
                report = merge(self.record_folders, aside, traces=traces, progress=progress)
            except BaseException:
                self.close()
                raise
            self.rejected = len(report.rejected)
            opened.append(aside)
        self.tables: Tables = open_tables(opened)
        """All tables as lazy frames. They are read from files: collect them before :meth:`close`."""

    def __repr__(self) -> str:
        return f"Results({', '.join(repr(str(folder)) for folder in self.folders)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was merged aside; frames that were returned before stay."""
        self._remove()

    @property
    def cells(self) -> pl.DataFrame:
        """One row per record, session and workload."""
        return self.tables.cells.collect()

    @property
    def samples(self) -> pl.DataFrame:
        """One row per timed call."""
        return self.tables.samples.collect()

    @property
    def batches(self) -> pl.DataFrame:
        """One row per batch of calls."""
        return self.tables.batches.collect()

    @property
    def kernels(self) -> pl.DataFrame:
        """One row per kernel that was built or seen to run."""
        return self.tables.kernels.collect()

    @property
    def hosts(self) -> pl.DataFrame:
        """One row per host, sandbox and device."""
        return self.tables.hosts.collect()

    def cells_count(self) -> int:
        """Return the number of rows of :attr:`cells`, without reading them."""
        return int(self.tables.cells.select(pl.len()).collect().item())

    def latest(self, *terms: str) -> pl.DataFrame:
        """Return the latest attempt at each cell, one row per host and workload; medians over its sessions.

        Args:
            terms: As for :meth:`filter`; rows that do not satisfy all of them are left out.
        """
        return filter_rows(overview(self.cells), terms)

    def explain_no_match(self, *terms: str) -> str:
        """Say which globs of ``terms`` match no result, and what may have been meant; empty if each matches one."""
        return explain_no_rows(self.latest(), terms)

    def outcomes(self) -> pl.DataFrame:
        """Return the frame that every analysis starts from: see :data:`kernel_matrix.analysis.outcomes.OUTCOMES`."""
        return outcomes(self.tables.cells).collect()

    def filter(self, *terms: str) -> Results:
        """Return the results of the cells whose latest attempt satisfies every term.

        All attempts at these cells stay. The new object shares the files of this one: closing one closes both.

        Args:
            terms: ``KEY=GLOB[,GLOB]`` or ``KEY!=GLOB[,GLOB]``, as ``kernel-matrix results --filter`` takes them.

        Raises:
            UsageError: A term has another form or an unknown key.
        """
        latest = self.latest()
        kept = filter_rows(latest, terms)
        dropped = latest.join(kept, on=_CELL, how="anti", nulls_equal=True).select(_CELL)
        # Not a join with what is kept: an earlier attempt may have ended before it came to that workload.
        cells = self.tables.cells.join(kept.select(_CELL[:2]).unique().lazy(), on=_CELL[:2], how="semi").join(
            dropped.lazy(), on=_CELL, how="anti", nulls_equal=True
        )
        records = cells.select("record").unique()
        workloads = cells.select("record", "workload").unique()
        chosen = object.__new__(Results)
        chosen.__dict__.update(self.__dict__)
        chosen._owner = self
        chosen.tables = Tables(
            cells=cells,
            samples=self.tables.samples.join(workloads, on=["record", "workload"], how="semi", nulls_equal=True),
            batches=self.tables.batches.join(workloads, on=["record", "workload"], how="semi", nulls_equal=True),
            kernels=self.tables.kernels.join(records, on="record", how="semi"),
            hosts=self.tables.hosts.join(cells.select("host_id").unique(), on="host_id", how="semi"),
            telemetry=self.tables.telemetry,
        )
        return chosen

    def chart_speedups(self) -> Chart:
        """Chart the speed-up of every candidate over eager, by GPU.

        Examples:
            >>> import kernel_matrix
            >>> results = kernel_matrix.Results("results/example-h200.kmz")
            >>> results.filter("problem=softmax").chart_speedups().spec["mark"]["type"]
            'point'
        """
        return speedup_by_gpu(self.outcomes())

    def chart_axis(self, axis: str, base: str, new: str) -> Chart:
        """Chart the times of two values of an axis against each other, one point per candidate and workload.

        Args:
            axis: A column of :meth:`outcomes` such as ``gpu``, ``toolchain``, ``dtype`` or ``gpu_uuid``.
            base: The value across.
            new: The value upwards; a point above the diagonal is slower there.
        """
        return compare_axis(self.outcomes(), axis, base, new)


def newest_results(folder: str | Path = "results") -> Path:
    """Return the result folder below ``folder`` to which a run added last.

    It is ``folder`` itself where that has results, or no folder below it does.
    """
    root = Path(folder)
    if not root.is_dir() or _added_to(root):
        return root
    found = [one for one in root.iterdir() if _added_to(one)]
    return max(found, key=_added_to, default=root)


def _added_to(folder: Path) -> int:
    """Return when a result was last added to a result folder, in nanoseconds since 1970; 0 where it is none."""
    parts = (folder / name for name in ("records", "runs", "cells.parquet"))
    return max((part.stat().st_mtime_ns for part in parts if part.exists()), default=0)


def _nothing() -> None:
    """Remove nothing: all folders had tables."""


def as_results(results: Results | str | Path) -> Results:
    """Return ``results``, opened where it is a path."""
    return results if isinstance(results, Results) else Results(results)
