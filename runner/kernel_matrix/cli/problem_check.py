"""The view and the summary of ``kernel-matrix problems try``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kernel_matrix.api.check_problems import CheckedProblem, ProblemCheckStarted, ProblemCheckSummary
from kernel_matrix.api.problems import LoadedSource
from kernel_matrix.api.wording import describe_label
from kernel_matrix.cli.collection import plain, unreadable_documents
from kernel_matrix.cli.output import console, print_json
from kernel_matrix.model.enums import Status, fault_of

if TYPE_CHECKING:
    from typing_extensions import Self


class ProblemCheckView:
    """Shows a line for each problem that cannot be used, and a progress bar on a terminal.

    With ``as_json``, one document follows on standard output, so that only an interrupt is shown, on stderr.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._console = console(stderr=as_json)
        self._progress = Progress(
            TextColumn("problems"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=as_json or not self._console.is_terminal,
        )
        self._bar = self._progress.add_task("problems", total=None)
        self._count, self._checked = 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Remove the bar; show the number of problems that are left if the check was stopped."""
        self._progress.stop()
        if kind is not None and self._count:
            left = self._count - self._checked
            # Not through the console: an interrupt may have left it with a line to print again.
            self._console.file.write(f"stopped: {left} of {self._count} problems were not tried\n")
            self._console.file.flush()

    def tell(self, progress: ProblemCheckStarted | CheckedProblem) -> None:
        """Show the start, or a problem that was checked."""
        if isinstance(progress, ProblemCheckStarted):
            self._count = progress.count
            self._say(f"{progress.count} problems to try; {progress.where}")
            self._progress.update(self._bar, total=progress.count)
            self._progress.start()
        else:
            self._checked += 1
            self._progress.advance(self._bar)
            if progress.result.status is not Status.PASSED:
                self._say(str(progress))

    def _say(self, text: str) -> None:
        if not self._as_json:
            self._console.print(plain(text))


def show_summary(summary: ProblemCheckSummary, loaded: LoadedSource, *, as_json: bool) -> None:
    """Print the results of all problems."""
    if as_json:
        print_json(_document(summary, loaded))
    else:
        _print_summary(summary)


def _document(summary: ProblemCheckSummary, loaded: LoadedSource) -> dict[str, Any]:
    return {
        "problems": [_document_of_one(one) for one in summary.checked],
        "counts": dict(Counter(one.result.status.value for one in summary.checked)),
        "left_out": summary.left_out,
        "unreadable": unreadable_documents(loaded),
        "engine": summary.sandbox,
        "image": summary.image,
        "seconds": round(summary.seconds, 3),
    }


def _document_of_one(one: CheckedProblem) -> dict[str, Any]:
    subject, result = one.subject, one.result
    return {
        "id": subject.problem.id,
        "workload": subject.workload.name,
        "dtype": subject.dtype.value,
        "status": result.status.value,
        "fault": fault_of(result.status).value,
        "reason": result.reason,
        "path": result.file or None,
        "line": result.line,
        "labels": list(result.labels),
        "seconds": result.seconds,
    }


def _print_summary(summary: ProblemCheckSummary) -> None:
    screen = console()
    table = Table("status", "problems", box=None)
    for status, number in Counter(one.result.status for one in summary.checked).most_common():
        table.add_row(status.value, str(number))
    screen.print(table)
    labelled: dict[str, list[str]] = {}
    for one in summary.checked:
        for label in one.result.labels:
            labelled.setdefault(label, []).append(one.subject.problem.id)
    for label, ids in sorted(labelled.items()):
        screen.print(plain(f"labelled {label}: {', '.join(ids)}"))
        screen.print(plain(f"  {describe_label(label)}"))
    for reason, number in Counter(summary.left_out.values()).items():
        screen.print(plain(f"not tried: {number}, each of which {reason}"))
    screen.print(f"{len(summary.checked)} problems tried in {summary.seconds:.1f} s")
