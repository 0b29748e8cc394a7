"""Views and the summary of ``kernel-matrix problems try``."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kernel_matrix.api.problems import CheckedProblem, LoadedSource, ProblemCheckStarted, ProblemCheckSummary
from kernel_matrix.cli.collection import plain, unreadable_documents
from kernel_matrix.cli.output import console, print_json
from kernel_matrix.model.enums import Status, fault_of

if TYPE_CHECKING:
    from typing_extensions import Self


class ProblemCheckView:
    """Nothing on standard output: one document follows. Says on stderr what an interrupt left unchecked."""

    def __init__(self) -> None:
        self._count, self._checked = 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Say how many problems are left where the check was stopped."""
        if kind is not None and self._count:
            self.say(f"stopped: {self._count - self._checked} of {self._count} problems were not tried")

    def tell(self, progress: ProblemCheckStarted | CheckedProblem) -> None:
        """Show the start, or a problem that was checked."""
        if isinstance(progress, ProblemCheckStarted):
            self._count = progress.count
            self.begin(progress)
        else:
            self._checked += 1
            self.show(progress)

    def begin(self, started: ProblemCheckStarted) -> None:
        """Show the number of problems and where they are checked."""

    def show(self, checked: CheckedProblem) -> None:
        """Show one problem."""

    def say(self, text: str) -> None:
        """Show a line."""
        sys.stderr.write(f"{text}\n")


class _Lines(ProblemCheckView):
    """A line for each problem that cannot be used, and for nothing else."""

    def begin(self, started: ProblemCheckStarted) -> None:
        self.say(f"{started.count} problems to try; {started.where}")

    def show(self, checked: CheckedProblem) -> None:
        if checked.result.status is not Status.PASSED:
            self.say(str(checked))

    def say(self, text: str) -> None:
        sys.stdout.write(f"{plain(text)}\n")
        sys.stdout.flush()


class _Bar(_Lines):
    """A progress bar, and those lines above it."""

    def __init__(self) -> None:
        super().__init__()
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self._progress = Progress(*columns, console=console(), transient=True)
        self._bar = self._progress.add_task("problems", total=None)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._progress.stop()
        super().__exit__(kind, *rest)

    def begin(self, started: ProblemCheckStarted) -> None:
        super().begin(started)
        self._progress.update(self._bar, total=started.count)
        self._progress.start()

    def show(self, checked: CheckedProblem) -> None:
        super().show(checked)
        self._progress.advance(self._bar)

    def say(self, text: str) -> None:
        self._progress.console.print(plain(text))


def problem_check_view(*, as_json: bool) -> ProblemCheckView:
    """Return the view that suits the options and standard output."""
    if as_json:
        return ProblemCheckView()
    return _Bar() if sys.stdout.isatty() else _Lines()


def show_summary(summary: ProblemCheckSummary, loaded: LoadedSource, *, as_json: bool) -> None:
    """Print what came of all problems."""
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
    for reason, number in Counter(summary.left_out.values()).items():
        screen.print(plain(f"not tried: {number}, each of which {reason}"))
    screen.print(f"{len(summary.checked)} problems tried in {summary.seconds:.1f} s")
