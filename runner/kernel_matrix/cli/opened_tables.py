"""Results that a verb reads, opened with a progress bar."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_matrix.cli.output import console, progress_bar
from kernel_matrix.errors import NothingSelectedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_matrix.api.results import Results


@contextmanager
def opened(folders: Sequence[Path], filters: Sequence[str] | None = None, *, traces: bool = False) -> Iterator[Results]:
    """Open ``folders`` together for as long as the context lasts; count on stderr what is no valid record.

    Args:
        folders: Merged tables or result folders.
        filters: Terms that the results must satisfy.
        traces: Also merge telemetry.

    Raises:
        NothingSelectedError: No result satisfies ``filters``.
    """
    from kernel_matrix.api.results import Results

    with progress_bar() as progress:
        results = Results(*folders, traces=traces, progress=progress)
    with results:
        if results.rejected:
            where = " ".join(str(folder) for folder in results.merged_aside)
            console(stderr=True).print(
                f"{results.rejected} files are no valid records; `kernel-matrix merge {where}` says why",
                markup=False,
            )
        if filters:
            chosen = results.filter(*filters)
            if not chosen.cells_count():
                raise nothing_matches(results, filters)
            results = chosen
        yield results


def nothing_matches(results: Results, filters: Sequence[str]) -> NothingSelectedError:
    """Return the error for filters that no result satisfies."""
    where = " ".join(str(folder) for folder in results.folders)
    why = results.explain_no_match(*filters)
    what = f"no result in {where} matches {' '.join(f'--filter {term}' for term in filters)}".rstrip()
    return NothingSelectedError(
        what + (f": {why}" if why else ""), next_step="Loosen --filter, or name another folder."
    )
