"""The rules on every bundled candidate: honest ones have no findings, examples of faults have theirs.

Honest ones that share memory with peers keep it by shape, as a cache of results would be kept.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.scan import scan_files
from kernel_matrix.sources import Candidate, load_source

PROBLEMS = Path(__file__).parents[2] / "problems"
SHIPPED = load_source("folder", PROBLEMS).candidates

KNOWN = {
    "matmul/torch_downcast": {"precision"},
    "relu/leaves_a_child": {"threads"},
    "relu/phones_home": {"frames"},
    "relu/segfaults": {"frames"},
    "all_gather/triton_pull": {"memo"},
    "all_reduce_rms_norm/triton_fused": {"memo"},
    "all_to_all/triton_pull": {"memo"},
    "distributed_softmax/triton_shared_sums": {"memo"},
    "gemm_reduce_scatter/triton_pull": {"memo", "library_calls"},
    "moe_dispatch/triton_pull": {"memo"},
    "reduce_scatter/triton_pull": {"memo"},
    "vocab_parallel_cross_entropy/triton_shared_sums": {"memo"},
}
"""Candidates in which rules find something."""


@pytest.mark.parametrize("candidate", SHIPPED, ids=lambda candidate: candidate.id)
def test_a_shipped_candidate_has_the_findings_it_should(candidate: Candidate) -> None:
    files = {candidate.path.name: candidate.path.read_bytes()}
    scan = scan_files(files, candidate.language, Dtype.FP32, entry=candidate.entry)
    assert {finding.rule for finding in scan.findings} == KNOWN.get(candidate.id, set())


@pytest.mark.parametrize("candidate", SHIPPED, ids=lambda candidate: candidate.id)
def test_kernels_are_known_by_name_where_there_are_any(candidate: Candidate) -> None:
    scan = scan_files({candidate.path.name: candidate.path.read_bytes()}, candidate.language, Dtype.FP32)
    assert bool(scan.own_kernels) is (candidate.language is not Language.TORCH)
