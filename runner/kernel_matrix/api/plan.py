"""Plan a matrix on this host or over a fleet: which cells run there, which do not and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kernel_matrix.api.fleet_plan import check_fleet_options, plan_fleet
from kernel_matrix.api.run_plan import RunPlan, has_lockable_clocks
from kernel_matrix.fleet import Fleet
from kernel_matrix.hosts.survey import AUTO, HostSurvey, survey
from kernel_matrix.matrix import Matrix
from kernel_matrix.matrix.load import load_matrix as _load_matrix
from kernel_matrix.matrix.tiers import with_policy
from kernel_matrix.plan import (
    Cell,
    CellCounts,
    Plan,
    PlanTotals,
    SkipReason,
    load_selection,
    parse_filter,
    parse_shard,
    tally,
)
from kernel_matrix.plan import make_plan as _make_plan
from kernel_matrix.plan.footprint import Footprints, usable_bytes
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.results.store import RecordStore

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


def is_interpreted(cell: Cell) -> bool:
    """Return whether an interpreter runs the cell's candidate, so that its time says nothing."""
    return get_platform(cell.gpu.platform).interprets(cell.candidate.language)
