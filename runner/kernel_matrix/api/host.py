"""Diagnose this host, and remove what dead runs left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Final

from kernel_matrix.attempt.scratch import sweep_scratch
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.hosts.doctor import examine
from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.hosts.survey import AUTO, check_sandbox
from kernel_matrix.lease.repair import NOT_REPAIRED, sweep_gpus
from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict
from kernel_matrix.sandboxes import SANDBOXES

__all__ = ["CheckResult", "CheckVerdict", "SweepResult", "diagnose_host", "sweep"]

_MATRIX = Path("matrix.toml")


def diagnose_host(
    matrix: str | Path | None = None,
    *,
    results: str | Path = "results",
    sandbox: str = AUTO,
    lock: str | Path | None = None,
    trial: bool = False,
) -> Iterator[CheckResult]:
    """Look at everything a cell needs on this host; changes nothing.

    Args:
        matrix: The matrix to examine for; by default ``./matrix.toml`` where it exists.
        results: The folder that records would go to.
        sandbox: ``auto``, ``docker``, ``unpacked`` or ``process``.
        lock: The images lock; the matrix's own by default.
        trial: Also import torch and run a reference in the sandbox, which takes seconds.

    Returns:
        The results as they come, since some checks take their time.

    Raises:
        UsageError: The matrix or the sandbox's name is not usable.

    Examples:
        >>> import kernel_matrix
        >>> next(kernel_matrix.diagnose_host()).subject
        'Python'
    """
    check_sandbox(sandbox)
    folder, lock_path = Path(results), Path(lock) if lock else None
    if matrix is None and not _MATRIX.is_file():
        reason = f"there is no {_MATRIX} in this folder"
        host = Host(sandbox=sandbox, matrix_reason=reason, lock_path=lock_path, results=folder, trial=trial)
    else:
        loaded = load_matrix(Path(matrix or _MATRIX))
        host = Host(sandbox=sandbox, matrix=loaded, lock_path=lock_path, results=folder, trial=trial)
    return examine(replace(host, plugin_faults=plugin_faults()))


REGISTRIES: Final = (
    "kernel_matrix.platforms.registry:PLATFORMS",
    "kernel_matrix.sandboxes:SANDBOXES",
    "kernel_matrix.executors:EXECUTORS",
    "kernel_matrix.executors.engines:ENGINES",
    "kernel_matrix.generation.strategies:STRATEGIES",
    "kernel_matrix.sources:SOURCES",
    "kernel_matrix.sources:CANDIDATE_SOURCES",
    "kernel_matrix.judge_checks:CHECKS",
    "kernel_matrix.scan:RULES",
    "kernel_matrix.analysis.audit:CHECKS",
    "kernel_matrix.analysis.questions:QUESTIONS",
    "kernel_matrix.report.formats:FORMATS",
    "kernel_matrix.results.importing:FORMATS",
)
"""Everything that other packages can add to. By name, since a host that only runs cells may lack polars."""


def plugin_faults() -> tuple[str, ...]:
    """Return one line for each extension of an installed package that cannot be used; everything else works."""
    lines: list[str] = []
    for place in REGISTRIES:
        module, _, name = place.partition(":")
        with suppress(ImportError):
            lines += getattr(import_module(module), name).faults()
    return tuple(lines)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Leftovers of dead runs, removed or not."""

    cleared: Sequence[str]
    """Things that were removed or reset, one line each."""
    failed: Sequence[str]
    """Things that could not be removed or reset, one line each."""


def sweep() -> SweepResult:
    """Remove containers and folders of dead runs, and give back the GPU settings they had made."""
    opened = [module.open_sandbox() for module in SANDBOXES.usable().values()]
    sandboxes = [sandbox for sandbox in opened if sandbox.status().available]
    # Containers first: what still runs on a GPU is not to see its clocks change.
    sweeps = (*(sandbox.sweep for sandbox in sandboxes), sweep_scratch, sweep_gpus)
    lines = [line for one in sweeps for line in _lines(one)]
    failed = [line for line in lines if line.startswith(NOT_REPAIRED)]
    return SweepResult([line for line in lines if line not in failed], failed)


def _lines(sweep_one: Callable[[], Sequence[str]]) -> Sequence[str]:
    """Return what a sweep did; one that fails says so in its place and does not stop the others."""
    try:
        return sweep_one()
    except InfrastructureError as error:
        return [f"{NOT_REPAIRED}{error}"]
