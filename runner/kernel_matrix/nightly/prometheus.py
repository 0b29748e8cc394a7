"""Metrics of a night in Prometheus's text format, for the textfile collector of node_exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kernel_matrix.analysis.comparison import Change
from kernel_matrix.errors import GpuBusyError, KernelMatrixError, UsageError
from kernel_matrix.model.enums import Status
from kernel_matrix.model.instants import parse_instant
from kernel_matrix.nightly.night_summary import NightEnd
from kernel_matrix.results.store import replace_document

_SUFFIX: Final = ".prom"
_PREFIX: Final = "kernel_matrix_night_"

_Samples = Mapping[str, float]
"""Value of the metric's own label → value; the label is empty where the metric has none."""


def check_metrics_file(path: Path) -> None:
    """Check the name of the file.

    Raises:
        UsageError: node_exporter would not read it.
    """
    if path.suffix != _SUFFIX:
        raise UsageError(f"--prometheus {path}: node_exporter reads only files that end in {_SUFFIX}")


def write_metrics(path: Path, matrix: str, document: Mapping[str, Any]) -> str:
    """Replace the file by the metrics of a night; a reader sees the old ones or the new ones, whole.

    Args:
        path: The file.
        matrix: Name of the matrix.
        document: The night's summary, as in :meth:`~kernel_matrix.nightly.night_summary.NightSummary.document`.

    Returns:
        What went wrong, in a sentence; empty where nothing did.
    """
    try:
        replace_document(path, metrics_text(matrix, document))
    except KernelMatrixError as error:
        return f"--prometheus: {error.what}"
    return ""


def metrics_text(matrix: str, document: Mapping[str, Any]) -> str:
    """Return the metrics of a night; see :func:`write_metrics`."""
    return "".join(f"{line}\n" for line in _lines(matrix, document))


def _lines(matrix: str, document: Mapping[str, Any]) -> Iterator[str]:
    for name, (label, explanation), samples in _metrics(document):
        yield f"# HELP {_PREFIX}{name} {explanation}"
        yield f"# TYPE {_PREFIX}{name} gauge"
        for value, number in samples.items():
            own = f',{label}="{_escaped(value)}"' if label else ""
            yield f'{_PREFIX}{name}{{matrix="{_escaped(matrix)}"{own}}} {number:.15g}'


def _metrics(document: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, str], _Samples]]:
    """Yield name, own label with explanation, and samples of each metric.

    Every status, end and change has a sample, also with 0: a series that vanishes looks like one that was not read.
    """
    began, ended = (parse_instant(document[name]).timestamp() for name in ("began_at", "ended_at"))
    yield "start_time_seconds", ("", "Start of the last night, in seconds since 1970."), {"": began}
    yield "end_time_seconds", ("", "End of the last night, in seconds since 1970."), {"": ended}
    yield "duration_seconds", ("", "Duration of the last night."), {"": ended - began}
    yield "exit_code", ("", "Exit code of the last night; 5 is a regression."), {"": document["exit_code"]}
    busy = {"": document["exit_code"] == GpuBusyError.exit_code}
    yield "gpu_busy", ("", "1 if a GPU stayed in use by others and nothing worse happened, else 0."), busy
    ends = {end.value: end.value == document["end"] for end in NightEnd}
    yield "end", ("end", "1 for the way in which the last night ended, 0 for all others."), ends
    progress = {name: document.get(name, 0) for name in ("planned", "measured", "left")}
    yield "progress_cells", ("state", "Cells that could run, that were measured, and that are left."), progress
    cells = {status.value: document.get("statuses", {}).get(status.value, 0) for status in Status}
    yield "cells", ("status", "Cells of the last night by status."), cells
    yield "troubles", ("", "Errors of the night itself, besides its cells."), {"": len(document["troubles"])}
    comparison = document.get("comparison")
    yield "compared", ("", "1 if the night was compared with a baseline, else 0."), {"": comparison is not None}
    if comparison is not None:  # without it 0 regressions would be a claim
        rows = {change.value: comparison["counts"].get(change.value, 0) for change in Change}
        yield "compared_rows", ("change", "Rows of the comparison with the baseline, by change."), rows


def _escaped(value: str) -> str:
    """Return the value of a label as the text format wants it; what UTF-8 cannot hold becomes a question mark."""
    text = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return text.encode(errors="replace").decode()
