"""A planned matrix: its cells, which of them can run and where, and what they would be started with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from kernel_matrix.attempt.compileonly import absent_gpu
from kernel_matrix.attempt.preview import preview
from kernel_matrix.errors import NothingSelectedError
from kernel_matrix.hosts.survey import HostSurvey
from kernel_matrix.matrix import Matrix
from kernel_matrix.plan import Cell, CellFilter, Plan, PlanTotals, devices_matching, shard, tally
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A matrix planned on this host.

    Cells are made when they are asked for: a plan may have millions.
    """

    plan: Plan
    host: HostSurvey
    """The devices, the sandbox and the images that cells would run with."""
    wanted: CellFilter
    part: tuple[int, int] | None = None
    """Index and number of shards; ``None`` for all cells."""

    where: ClassVar[str] = "here"
    """Where a cell without a reason can run, for messages."""

    @property
    def matrix(self) -> Matrix:
        """The matrix that was planned."""
        return self.plan.matrix

    @property
    def engine(self) -> str:
        """The sandbox that cells would run in."""
        return self.host.inventory.sandbox

    @property
    def devices(self) -> list[str]:
        """The names of the devices that cells would run on."""
        return [gpu.name for gpu in self.host.inventory.gpus]

    def place_lines(self) -> tuple[str, ...]:
        """Return lines about where cells would run."""
        inventory = self.host.inventory
        line = f"This host: {', '.join(self.devices) or 'no device'}; sandbox {self.engine}"
        if inventory.clocks_reason and any(has_lockable_clocks(gpu.platform) for gpu in inventory.gpus):
            return line, f"GPU clocks cannot be locked here: {inventory.clocks_reason}"
        return (line,)

    def cells(self) -> Iterator[Cell]:
        """Yield the selected cells; ``cell.reason`` says why one cannot run here, else it is ``None``."""
        cells = filter(self.wanted, self.plan.cells())
        return cells if self.part is None else shard(cells, *self.part)

    @property
    def runnable(self) -> tuple[Cell, ...]:
        """The selected cells that can run here."""
        return self._split[0]

    @property
    def skipped(self) -> tuple[Cell, ...]:
        """The selected cells that cannot run here, each with its reason."""
        return self._split[1]

    @cached_property
    def _split(self) -> tuple[tuple[Cell, ...], tuple[Cell, ...]]:
        cells = tuple(self.cells())
        return tuple(c for c in cells if c.reason is None), tuple(c for c in cells if c.reason is not None)

    def explain_no_match(self) -> str:
        """Say which globs of the filters match no cell, and what may have been meant; empty if each matches one."""
        return self.wanted.explain_unmatched(self.plan.cells())

    @cached_property
    def totals(self) -> PlanTotals:
        """Counts and expected time per axis value, and the reasons why cells do not run here."""
        return tally(self.cells())

    def frame(self) -> pl.DataFrame:
        """Return one row per selected cell.

        Units: ``expected_s`` in seconds.
        """
        import polars as pl  # noqa: PLC0415  # planning alone does not need it

        rows = (
            (
                *(cell.id, cell.gpu.name, cell.toolchain.name, cell.dtype.value, cell.problem.id, cell.candidate.id),
                *(cell.reason is None, cell.reason and cell.reason.text, cell.expected_s),
            )
            for cell in self.cells()
        )
        schema: dict[str, pl.DataType] = {
            **dict.fromkeys(("cell_id", "gpu", "toolchain", "dtype", "problem", "candidate"), pl.String()),
            "runnable": pl.Boolean(),
            "reason": pl.String(),
            "expected_s": pl.Float64(),
        }
        return pl.DataFrame(rows, schema=schema, orient="row")

    def process_settings(self) -> list[dict[str, Any]]:
        """Return the exact settings of every process of the runnable cells, without starting one."""
        host = self.host
        return [preview(cell, self._device_of(cell), host.sandbox, host.images) for cell in self.runnable]

    def _device_of(self, cell: Cell) -> Gpu:
        """Return the first device that a cell would run on, or the absent one that it would be compiled for."""
        return absent_gpu(cell.gpu) if cell.compile_only else devices_matching(cell.gpu, self.host.inventory.gpus)[0]

    def check_runnable(self) -> None:
        """Check that at least one selected cell can run here.

        Raises:
            NothingSelectedError: None can; the error has the most frequent reasons.
        """
        if self.runnable:
            return
        why = self.explain_no_match()
        what = "no cell is selected" + (f": {why}" if why else "")
        if self.skipped:
            counts = Counter(cell.reason.text for cell in self.skipped if cell.reason is not None)
            reasons = "".join(f"\n  {number} × {text}" for text, number in counts.most_common(3))
            what = f"{len(self.skipped)} cells selected, none of which can run {self.where}:{reasons}"
        raise NothingSelectedError(what, next_step="kernel-matrix plan --all says why for each cell")


def has_lockable_clocks(platform: str) -> bool:
    """Return whether devices of ``platform`` have clocks that a run could lock."""
    return get_platform(platform).settings() is not None
