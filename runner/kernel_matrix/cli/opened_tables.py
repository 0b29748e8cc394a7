"""Tables to read: merged ones as they are, result folders merged aside for as long as they are looked at."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernel_matrix.cli.merge import merge_with_progress
from kernel_matrix.cli.output import console


@contextmanager
def merged(folders: Sequence[Path], *, traces: bool = False) -> Iterator[list[Path]]:
    """Folders of tables that hold everything in ``folders``.

    A folder with tables stays as it is; the records of all others go together into one temporary folder. What is no
    valid record is counted on stderr.

    :param traces: of these records too, into the table ``telemetry``.
    """
    tables = [folder for folder in folders if (folder / "cells.parquet").is_file()]
    records = [folder for folder in folders if folder not in tables]
    if not records:
        yield tables
        return
    with tempfile.TemporaryDirectory(prefix="kernel-matrix-") as aside:
        report = merge_with_progress(records, Path(aside), traces=traces)
        if report.rejected:
            where = " ".join(str(folder) for folder in records)
            console(stderr=True).print(
                f"{len(report.rejected)} files are no valid records; `kernel-matrix merge {where}` says why",
                markup=False,
            )
        yield [*tables, Path(aside)]
