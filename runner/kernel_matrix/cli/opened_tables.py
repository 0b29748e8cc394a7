"""Results that a verb reads, opened with a progress bar."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_matrix.cli.output import console, progress_bar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_matrix.api.results import Results


@contextmanager
def opened(folders: Sequence[Path], *, traces: bool = False) -> Iterator[Results]:
    """Open ``folders`` together for as long as the context lasts; count on stderr what is no valid record."""
    from kernel_matrix.api.results import Results

    with progress_bar() as progress:
        results = Results(*folders, traces=traces, progress=progress)
    with results:
        if results.rejected:
            where = " ".join(str(folder) for folder in results.record_folders)
            console(stderr=True).print(
                f"{results.rejected} files are no valid records; `kernel-matrix merge {where}` says why",
                markup=False,
            )
        yield results
