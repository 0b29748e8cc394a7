"""Write tables: from records, or from results that others measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kernel_matrix.analysis.audit import write_objections
from kernel_matrix.results.importing import ImportReport
from kernel_matrix.results.importing import import_results as _import_results
from kernel_matrix.results.merge import MergeReport
from kernel_matrix.results.merge import merge as _merge
from kernel_matrix.results.publishing import REJECTED
from kernel_matrix.sources.measurement import ImportedFile

__all__ = ["ImportReport", "ImportedFile", "MergeReport", "import_results", "merge", "rejected_list"]


def merge(
    folders: str | Path | Sequence[str | Path] = "results",
    out: str | Path = "tables",
    *,
    traces: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> MergeReport:
    """Check every record and write the tables ``cells``, ``samples``, ``kernels`` and ``hosts`` as Parquet.

    Verdicts to which the audit objects are listed beside them, and withheld where the tables are read.

    Args:
        folders: Result folders; records of all of them go into one set of tables.
        out: The folder the tables are written to.
        traces: Also write the table ``telemetry``, with every sample of every trace.
        progress: Called with the number of record files that were read, and of all.

    Raises:
        UsageError: A folder does not exist.
        StoreError: The tables cannot be written.

    Examples:
        >>> import kernel_matrix
        >>> kernel_matrix.merge("results/example-h200.kmz", "tables").records  # doctest: +SKIP
        583
    """
    report = _merge(as_paths(folders), Path(out), traces=traces, progress=progress)
    write_objections(Path(out))
    return report


def import_results(
    paths: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    form: str = "auto",
    name: str | None = None,
    gpu: str | None = None,
    toolchain: str | None = None,
    dtype: str | None = None,
    mapping: str | Path | None = None,
) -> ImportReport:
    """Write results that others measured as tables, which every analysis reads.

    Args:
        paths: Files, or folders of ``.json`` and ``.jsonl`` files.
        out: The folder the tables are written to.
        form: The files' format; ``auto`` recognises each by its content.
        name: The matrix's name in the tables; by default the format.
        gpu: The GPU of results whose file does not say it; it counts more than the name of a folder.
        toolchain: The toolchain of results whose file does not say it.
        dtype: The dtype of results whose file does not say it, such as ``fp16``.
        mapping: A TOML file that says what the columns of the files mean, which may then be CSV, TSV and Parquet too.

    Raises:
        UsageError: A path does not exist, the format or the dtype is not known, or the mapping is not valid.
        NothingSelectedError: Nothing could be read.
        StoreError: The tables cannot be written.
    """
    report = _import_results(
        as_paths(paths),
        Path(out),
        format_name=form,
        name=name,
        gpu=gpu,
        toolchain=toolchain,
        dtype=dtype,
        mapping=None if mapping is None else Path(mapping),
    )
    write_objections(Path(out))
    return report


def rejected_list(out: str | Path) -> Path:
    """Return the file beside the tables in ``out`` that lists everything put aside, with the reason."""
    return Path(out) / REJECTED


def as_paths(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return one path or several as a list."""
    return [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
