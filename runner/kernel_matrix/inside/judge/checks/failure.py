"""Failure of a check."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence


@dataclass(frozen=True)
class CheckFailure:
    """Status and evidence of a check that a call fails."""

    status: Status
    evidence: Evidence


_PLACE = re.compile(r"(input|output) (\d+)\b")


def with_rank(failed: CheckFailure, ranks: int, inputs: int, outputs: int) -> CheckFailure:
    """Return ``failed`` with the rank concerned, and its own index of the input or output, if the message names one.

    Args:
        failed: Failure of a call of all ranks, whose inputs and outputs come one rank after the other.
        ranks: Number of ranks.
        inputs: Number of inputs of all ranks.
        outputs: Number of outputs of all ranks.
    """
    evidence = failed.evidence
    found = _PLACE.match(evidence.message)
    if ranks == 1 or found is None or evidence.rank is not None:
        return failed
    each = (inputs if found[1] == "input" else outputs) // ranks
    rank, index = divmod(int(found[2]), each)
    message = f"rank {rank}: {found[1]} {index}{evidence.message[found.end() :]}"
    place = index if found[1] == "output" else None
    return replace(failed, evidence=replace(evidence, message=message, output=place, rank=rank))
