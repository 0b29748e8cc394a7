"""Problems of several ranks with another number of ranks."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from kernel_matrix.sources import Problem, folder


def with_ranks(problem: Problem, ranks: int) -> Problem:
    """Return ``problem`` with calls of ``ranks`` ranks; a problem of one rank, or of so many, stays as it is.

    A problem in a folder is what its folder says with that number. What a call computes and moves is not known for
    others, since they were read for the number that they name.

    Raises:
        kernel_matrix.sources.document.UnreadableFileError: Its folder cannot be used with that number.
    """
    if problem.ranks in (1, ranks):
        return problem
    if problem.source == "folder":
        return folder.read_problem(problem.path.parent, problem.source, ranks=ranks)
    workloads = tuple(replace(it, flops=None, bytes={}, collective_bytes={}, memory={}) for it in problem.workloads)
    digest = hashlib.sha256(f"{problem.digest} with {ranks} ranks".encode()).hexdigest()
    return replace(problem, ranks=ranks, workloads=workloads, digest=digest)
