"""Add to the file of accepted changes, in the form that :mod:`kernel_matrix.analysis.accepted` reads."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

from kernel_matrix.analysis.accepted import Acceptance, accepted_text, parse_accepted, read_accepted
from kernel_matrix.errors import UsageError
from kernel_matrix.results.store import replace_document


def accept(path: Path, candidate: str, *, reason: str, until: date) -> Acceptance:
    """Add an entry to the file at ``path``, which need not exist.

    Args:
        path: The file of accepted changes.
        candidate: Glob on candidate ids, ``<problem>/<candidate>``.
        reason: Why they are accepted.
        until: The last day on which it holds.

    Raises:
        UsageError: The file has faults, or the entry would have; nothing is written then.
        StoreError: The file cannot be written.
    """
    if "/" not in candidate:
        raise UsageError(f"{candidate!r} matches no candidate", next_step="Give PROBLEM/CANDIDATE: 'softmax/triton_*'")
    before = accepted_text(path) if path.exists() else ""
    parse_accepted(before, path)
    entry = f"[[accept]]\ncandidate = {_text(candidate)}\nuntil = {until.isoformat()}\nreason = {_text(reason)}\n"
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    after = f"{before}{gap}{entry}"
    added = parse_accepted(after, path)[-1]
    replace_document(path, after)
    return added


def in_force(path: Path) -> tuple[Acceptance, ...]:
    """Return all accepted changes; none where there is no file.

    Raises:
        UsageError: The file has faults.
    """
    return read_accepted(path) if path.exists() else ()


def _text(words: str) -> str:
    """Return ``words`` as a TOML string."""
    if not words.strip() or not words.isprintable():
        raise UsageError(f"{words!r:.80} is empty, or holds what cannot be printed", next_step="Write it on one line.")
    return json.dumps(words.strip(), ensure_ascii=False)
