"""Protocol, policy and workloads of a cell: those of the matrix, with the matching overrides applied in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernel_matrix.matrix import Matrix, Override, Policy, Protocol
from kernel_matrix.matrix.tiers import with_policy, with_protocol
from kernel_matrix.sources import Workload


@dataclass(frozen=True, slots=True)
class CellSettings:
    """Settings of all cells that the same overrides match."""

    protocol: Protocol
    policy: Policy
    workloads: tuple[tuple[str, ...], ...]
    """Workload names that overrides ask for, one tuple per override, in order."""

    def choose(self, selected: tuple[Workload, ...], offered: tuple[Workload, ...]) -> tuple[Workload, ...]:
        """Return the workloads of one problem: those of the last override that names one it has, else ``selected``."""
        for names in reversed(self.workloads):
            named = tuple(workload for workload in offered if workload.name in names)
            if named:
                return named
        return selected


def resolve_settings(matrix: Matrix, overrides: Iterable[Override]) -> CellSettings:
    """Return the settings of ``matrix`` with ``overrides`` applied; later ones win."""
    protocol, policy, workloads = matrix.protocol, matrix.policy, []
    for override in overrides:
        protocol = with_protocol(protocol, override.protocol)
        policy = with_policy(policy, override.policy)
        if override.workloads:
            workloads.append(override.workloads)
    return CellSettings(protocol, policy, tuple(workloads))
