"""Device memory that a workload needs, declared by its problem or measured by an earlier record.

It is the least with which the reference can be its own candidate: a reserve for contexts and the judge, the inputs, and
the largest of three: the inputs again, the outputs twice, and parameters with what the reference takes in its calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kernel_matrix.matrix import Policy
from kernel_matrix.model.enums import Dtype
from kernel_matrix.plan.cell import Skip, SkipReason
from kernel_matrix.plan.host_inventory import GIB
from kernel_matrix.platforms import Gpu
from kernel_matrix.sources import Problem, Workload

Footprints = Mapping[tuple[str, str, Dtype], int]
"""(Digest of a problem, name of a workload, dtype) → bytes that were measured."""


def usable_bytes(gpu: Gpu, policy: Policy) -> float:
    """Return the memory of ``gpu`` that a cell may use; 0 if it is not known."""
    sizes = (policy.device_memory_gib * GIB, gpu.memory_bytes)
    return min(filter(None, sizes), default=0)


def memory_skip_reason(
    problem: Problem, workloads: Iterable[Workload], dtype: Dtype, usable: float, measured: Footprints
) -> Skip | None:
    """Return the reason why a cell does not fit into ``usable`` bytes; None if it does, or if they are 0.

    A measured footprint overrules a declared one. Of held-out workloads the reason tells nothing.
    """
    for workload in (*workloads, *problem.held_out_workloads):
        found = measured.get((problem.digest, workload.name, dtype))
        needed = workload.memory.get(dtype) if found is None else found
        if needed is not None and 0 < usable < needed:
            origin = "the problem declares" if found is None else "an earlier record measured"
            text = (
                f"workload {workload.name} needs {needed / GIB:.1f} GiB of device memory, as {origin}; "
                f"there are {usable / GIB:.1f} GiB for it"
            )
            if workload.held_out:
                text = "a held-out workload needs more device memory than there is for it"
            return Skip(kind=SkipReason.DOES_NOT_FIT, text=text)
    return None
