"""Cell ids: digests of everything that determines a cell's result, equal on every host and Python.

An id is the SHA-256 of two digests, one of the candidate and one of everything else, so that the many cells which
differ only in the candidate cost one short hash each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from kernel_matrix.matrix import GpuAxis, Policy, Protocol, Toolchain
from kernel_matrix.model.enums import ClockPolicy, Dtype
from kernel_matrix.model.messages import SCHEMA_VERSION, to_json
from kernel_matrix.sources import Candidate, Problem, Workload

ID_DIGITS = 32
"""Hex digits of an id: 128 bits make a collision of cells impossible in practice."""


def digest(value: Any) -> bytes:
    """Return the SHA-256 of ``value`` as canonical JSON: sorted keys, ASCII, no spaces."""
    return hashlib.sha256(json.dumps(to_json(value), separators=(",", ":"), sort_keys=True).encode()).digest()


def place_digest(gpu: GpuAxis, toolchain: Toolchain, dtype: Dtype) -> bytes:
    """Return the digest of the axis name of the GPU, the versions of the toolchain, and the dtype.

    An environment counts by its name alone. What it holds is in the record, and makes a result stale as an image does.
    A toolkit that came later than others counts only where there is one, so that older ids stay.
    """
    versions: tuple[str | None, ...] = (toolchain.name, "environment")
    if not toolchain.environment:
        versions = (toolchain.name, toolchain.cuda, toolchain.torch, toolchain.triton)
        versions += () if toolchain.rocm is None else (toolchain.rocm,)
    return digest((SCHEMA_VERSION, gpu.name, versions, dtype))


def settings_digest(protocol: Protocol, policy: Policy) -> bytes:
    """Return the digest of how a cell is measured, at which clocks, and of further demands on the candidate.

    A seed counts only if the matrix sets it, because random seeds change no result. Targets, and a cap of the device's
    memory, count only where they are used.
    """
    document = to_json(protocol)
    if protocol.seed is None:
        del document["seed"]
    demands: tuple[object, ...] = (policy.require_own_kernel, policy.reject_findings, policy.sanitize)
    if policy.device_memory_gib:
        demands = (*demands, policy.device_memory_gib)
    if policy.clocks is ClockPolicy.OBSERVE:
        return digest((document, demands, policy.clocks))
    return digest((document, demands, policy.clocks, policy.clock_target, policy.memory_clock))


def problem_digest(problem: Problem) -> bytes:
    """Return the digest of a problem's id and content."""
    return digest((problem.id, problem.digest))


def candidate_digest(candidate: Candidate) -> bytes:
    """Return the digest of a candidate's id and content."""
    return digest((candidate.id, candidate.digest))


def workloads_digest(workloads: Iterable[Workload]) -> bytes:
    """Return the digest of the workloads' names; their values are part of the problem's own digest."""
    return digest(tuple(workload.name for workload in workloads))


def linked_digest(question: bytes, link: str | None) -> bytes:
    """Return ``question`` with the kind of link between the devices of several ranks, which counts only if known."""
    return question if link is None else joined(question, digest(("link", link)))


def compiling_digest(question: bytes) -> bytes:
    """Return the digest for only building a candidate, from the digest ``question`` for running it.

    The two results are different, so they need different ids.
    """
    return joined(question, digest("compile-only"))


def joined(*parts: bytes) -> bytes:
    """Return the digest of ``digests``, in order."""
    return hashlib.sha256(b"".join(parts)).digest()


def cell_id(question: bytes, candidate: bytes) -> str:
    """Return the id of the cell of ``candidate``; ``question`` is the joined digest of everything else."""
    return hashlib.sha256(question + candidate).hexdigest()[:ID_DIGITS]
