"""Options and output that the verbs ``problems`` and ``candidates`` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.text import Text

    from kernel_matrix.api.problems import Candidate, LoadedSource, Problem

Source = Annotated[str, typer.Option("--source", metavar="NAME", help="What reads them: folder, kernelbench, aten, …")]
SourcePath = Annotated[
    Path | None,
    typer.Option("--path", help="Read what is there, and not what ./matrix.toml names (or ./problems, without one)."),
]
Glob = Annotated[str, typer.Argument(help="Only ids that match, e.g. 'softmax*'.")]
Id = Annotated[str, typer.Argument(metavar="ID")]


def warn_of_unreadable(loaded: LoadedSource) -> None:
    """Say on stderr what could not be read."""
    from kernel_matrix.cli.output import console

    for item in loaded.unreadable:
        console(stderr=True).print(plain(f"not read: {item}"))


def plain(text: str) -> Text:
    """Return ``text`` without markup: it comes from files of others."""
    from rich.text import Text

    from kernel_matrix.api.wording import visible

    return Text(visible(text))


def problem_document(problem: Problem) -> dict[str, Any]:
    """Return a problem as JSON."""
    return {
        "id": problem.id,
        "source": problem.source,
        "path": str(problem.path),
        "category": problem.category,
        "level": problem.level,
        "tags": list(problem.tags),
        "dtypes": [dtype.value for dtype in problem.dtypes],
        "workloads": [
            {
                "name": workload.name,
                "values": dict(workload.values),
                "flops": workload.flops,
                "bytes": {dtype.value: count for dtype, count in workload.bytes.items()},
                "collective_bytes": {dtype.value: count for dtype, count in workload.collective_bytes.items()},
                "held_out": workload.held_out,
            }
            for workload in problem.workloads
        ],
        "tolerance": dict(problem.tolerance),
        "outliers": problem.outliers,
        "mutates_inputs": problem.mutates_inputs,
        "random": problem.random,
        "ranks": problem.ranks,
        "collective": None if problem.collective is None else problem.collective.value,
        "digest": problem.digest,
        "description": problem.description,
    }


def candidate_document(candidate: Candidate) -> dict[str, Any]:
    """Return a candidate as JSON, with what is known of its origin."""
    from dataclasses import asdict

    origin = {key: value for key, value in asdict(candidate.origin).items() if value is not None}
    return {
        "id": candidate.id,
        "problem": candidate.problem_id,
        "path": str(candidate.path),
        "language": candidate.language.value,
        "entry": candidate.entry,
        "dtypes": [dtype.value for dtype in candidate.dtypes],
        "origin": origin,
        "expect": candidate.expect.value if candidate.expect else None,
        "digest": candidate.digest,
        "description": candidate.description,
    }


def unreadable_documents(loaded: LoadedSource) -> list[dict[str, Any]]:
    """Return what could not be read, as JSON."""
    return [{"path": str(item.path), "line": item.line, "reason": item.reason} for item in loaded.unreadable]
