"""Plan a matrix on this host: which cells run here, which do not and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kernel_matrix.attempt.compileonly import absent_gpu
from kernel_matrix.attempt.preview import preview
from kernel_matrix.errors import NothingSelectedError
from kernel_matrix.fleet import Fleet
from kernel_matrix.hosts.survey import AUTO, HostSurvey, survey
from kernel_matrix.matrix import Matrix
from kernel_matrix.matrix.load import load_matrix as _load_matrix
from kernel_matrix.matrix.tiers import with_policy
from kernel_matrix.plan import (
    Cell,
    CellCounts,
    CellFilter,
    Plan,
    PlanTotals,
    SkipReason,
    devices_matching,
    load_selection,
    parse_filter,
    parse_shard,
    shard,
    tally,
)
from kernel_matrix.plan import make_plan as _make_plan
from kernel_matrix.plan.footprint import Footprints, usable_bytes
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.results.store import RecordStore

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "Cell",
    "CellCounts",
    "HostSurvey",
    "Matrix",
    "Plan",
    "PlanTotals",
    "RunPlan",
    "SkipReason",
    "has_lockable_clocks",
    "is_interpreted",
    "load_matrix",
    "make_plan",
    "tally",
]


def load_matrix(path: str | Path = "matrix.toml") -> Matrix:
    """Read and check a matrix file.

    Args:
        path: The matrix file; ``-`` is standard input.

    Raises:
        ConfigError: The file has faults; the error names all of them with line and column.

    Examples:
        >>> import kernel_matrix
        >>> matrix = kernel_matrix.load_matrix("matrix.toml")
        >>> [gpu.name for gpu in matrix.gpus][:1]
        ['cpu']
    """
    return _load_matrix(Path(path))


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


def make_plan(
    matrix: Matrix | str | Path = "matrix.toml",
    *,
    sandbox: str = AUTO,
    lock: str | Path | None = None,
    filters: Sequence[str] = (),
    shard: str | None = None,
    compile_only: bool = False,
    allow_unpinned: bool = False,
    results: str | Path | None = None,
    fleet: Fleet | str | Path | None = None,
) -> RunPlan:
    """Plan a matrix on this host or over a fleet; nothing is run.

    Args:
        matrix: A loaded matrix or its file.
        sandbox: ``auto``, ``docker``, ``unpacked`` or ``process``.
        lock: The images lock; the matrix's own by default.
        filters: Terms ``KEY=GLOB[,GLOB]`` or ``KEY!=GLOB[,GLOB]``; a cell must satisfy all of them.
        shard: ``I/N`` keeps the I-th of N parts of the cells.
        compile_only: Plan to build for every GPU of the matrix, here or not, and to run nothing.
        allow_unpinned: Also use images that the lock does not pin.
        results: Folder of records, which tell how much device memory workloads need. For a fleet, where records will
            go (``results`` by default): what is known of nodes is kept for them.
        fleet: A fleet or its file: cells run at its sites. A job on each kind of GPU is asked what its node has, unless
            one was before.

    Raises:
        UsageError: The matrix, the fleet, a filter, the shard or the sandbox's name is not usable, or a fleet is given
            with an option about this host.
        InfrastructureError: The sandbox asked for cannot be used here, or no site of the fleet can run anything.

    Examples:
        >>> import kernel_matrix
        >>> plan = kernel_matrix.make_plan("matrix.toml", sandbox="process", filters=["problem=softmax", "dtype=fp32"])
        >>> plan.frame()["problem"].unique().to_list()
        ['softmax']
    """
    wanted, part = parse_filter(filters), parse_shard(shard) if shard is not None else None
    loaded = matrix if isinstance(matrix, Matrix) else load_matrix(matrix)
    if fleet is not None:
        from kernel_matrix.api.fleet_plan import check_fleet_options, plan_fleet  # noqa: PLC0415  # needs this module

        check_fleet_options(sandbox=sandbox, compile_only=compile_only, allow_unpinned=allow_unpinned)
        return plan_fleet(loaded, fleet, results or "results", lock=lock, wanted=wanted, part=part)
    host = survey(loaded, sandbox=sandbox, lock_path=Path(lock) if lock else None, allow_unpinned=allow_unpinned)
    footprints = {} if results is None else _measured_footprints(loaded, host, Path(results))
    selection = load_selection(loaded)
    plan = _make_plan(loaded, selection, host.inventory, compile_only=compile_only, footprints=footprints)
    return RunPlan(plan=plan, host=host, wanted=wanted, part=part)


def _measured_footprints(matrix: Matrix, host: HostSurvey, results: Path) -> Footprints:
    """Return the footprints in the matrix's records that are larger than the least memory a cell may have."""
    policies = [matrix.policy, *(with_policy(matrix.policy, rule.policy) for rule in matrix.overrides)]
    sizes = [usable_bytes(gpu, policy) for gpu in host.inventory.gpus for policy in policies]
    return RecordStore(results / matrix.name).footprints(min(filter(None, sizes), default=0))


def every_cell(matrix: Matrix, host: HostSurvey) -> Iterator[Cell]:
    """Yield every cell, runnable here or not: first those that are run, then those that are only compiled."""
    selection = load_selection(matrix)
    for only in (False, True):
        yield from _make_plan(matrix, selection, host.inventory, compile_only=only).cells()


def has_lockable_clocks(platform: str) -> bool:
    """Return whether devices of ``platform`` have clocks that a run could lock."""
    return get_platform(platform).settings() is not None


def is_interpreted(cell: Cell) -> bool:
    """Return whether an interpreter runs the cell's candidate, so that its time says nothing."""
    return get_platform(cell.gpu.platform).interprets(cell.candidate.language)
