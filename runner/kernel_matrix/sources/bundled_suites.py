"""Bundled problems: operators of vLLM and routines of cuBLAS.

Both are folders of problems (:mod:`kernel_matrix.sources.folder`) whose ids start with the name of the source:
``vllm/rms_norm``, ``cublas/gemm``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernel_matrix.sources import LoadedSource, folder


def load(root: Path, *, name: str) -> LoadedSource:
    """Read every problem folder under ``root``; see :class:`kernel_matrix.sources.Source`."""
    loaded = folder.load(root, name=name)
    return replace(
        loaded,
        problems=tuple(replace(p, id=f"{name}/{p.id}") for p in loaded.problems),
        candidates=tuple(
            replace(c, id=f"{name}/{c.id}", problem_id=f"{name}/{c.problem_id}") for c in loaded.candidates
        ),
    )
