"""Cell ids: a digest over what determines a cell's answer, the same on every host and Python.

An id is the SHA-256 of two digests, one of everything but the candidate and one of the candidate, so that the many
cells which differ in nothing else cost one short hash each.
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


def digest(value: Any) -> bytes:
    """SHA-256 of ``value`` as canonical JSON: sorted keys, ASCII, no spaces."""
    return hashlib.sha256(json.dumps(to_json(value), separators=(",", ":"), sort_keys=True).encode()).digest()


def place_digest(gpu: GpuAxis, toolchain: Toolchain, dtype: Dtype) -> bytes:
    """Digest of where a cell runs: the axis name of the GPU, the versions of the toolchain, the dtype."""
    versions = (toolchain.name, toolchain.cuda, toolchain.torch, toolchain.triton)
    return digest((SCHEMA_VERSION, gpu.name, versions, dtype))


def settings_digest(protocol: Protocol, policy: Policy) -> bytes:
    """Digest of how a cell is measured, at what clocks, and what is demanded of a candidate beyond being right.

    A seed counts only when it is given: secrets drawn anew change no question. Targets count only where they are used.
    """
    document = to_json(protocol)
    if protocol.seed is None:
        del document["seed"]
    demands = (policy.require_own_kernel, policy.reject_findings, policy.sanitize)
    if policy.clocks is ClockPolicy.OBSERVE:
        return digest((document, demands, policy.clocks))
    return digest((document, demands, policy.clocks, policy.clock_target, policy.memory_clock))


def problem_digest(problem: Problem) -> bytes:
    """Digest of a problem: its content under its name."""
    return digest((problem.id, problem.digest))


def candidate_digest(candidate: Candidate) -> bytes:
    """Digest of a candidate: its content under its name."""
    return digest((candidate.id, candidate.digest))


def workloads_digest(workloads: Iterable[Workload]) -> bytes:
    """Digest of the workloads' names; their values are part of the problem's own digest."""
    return digest(tuple(workload.name for workload in workloads))


def compiling_digest(question: bytes) -> bytes:
    """Digest of whether a candidate builds, where ``question`` is that of how it runs: two answers, two ids."""
    return joined(question, digest("compile-only"))


def joined(*parts: bytes) -> bytes:
    """Digest of digests, in order."""
    return hashlib.sha256(b"".join(parts)).digest()


def cell_id(question: bytes, candidate: bytes) -> str:
    """The id of the cell that asks ``question`` (the joined digest of all else) of ``candidate``."""
    return hashlib.sha256(question + candidate).hexdigest()[:ID_DIGITS]
