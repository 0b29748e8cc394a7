"""Views of a run: a live bar on a terminal, plain lines into a pipe, JSON events for scripts."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kernel_matrix.api.plan import Cell, HostSurvey, SkipReason, has_lockable_clocks, is_interpreted
from kernel_matrix.api.run_cells import (
    EventKind,
    Record,
    RunEvent,
    RunMessage,
    RunProgress,
    RunResult,
    RunStarted,
    RunStatus,
    WorkloadJudgement,
    judge_record,
)
from kernel_matrix.api.wording import describe_ranks, describe_reason
from kernel_matrix.cli.global_options import is_quiet, is_verbose
from kernel_matrix.cli.output import duration, print_json_line, write_line
from kernel_matrix.cli.run_conditions import RunConditions, complaints, conditions_document, conditions_line
from kernel_matrix.cli.run_outcomes import RunOutcomes, is_as_expected
from kernel_matrix.cli.safe_console import SafeConsole
from kernel_matrix.model.enums import ClockPolicy, Fault, Status
from kernel_matrix.model.messages import INTERPRETED

if TYPE_CHECKING:
    from typing_extensions import Self


_MOST_GPUS = 4
"""Absent GPUs that are named at the start."""


class RunPace:
    """Progress of a run over ``cells``, and the time that the rest takes at this pace."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.ended = 0
        self.planned = len(cells)
        self._behind_s = 0.0
        self._ahead_s = sum(cell.expected_s for cell in cells)
        self._started = time.monotonic()

    def note(self, event: RunEvent) -> None:
        """Count a cell that ended or is put off."""
        if event.happening in (EventKind.CELL_ENDED, EventKind.CELL_SKIPPED):
            self._ahead_s -= event.cell.expected_s
        if event.happening is EventKind.CELL_ENDED:
            self.ended += 1
            self._behind_s += event.cell.expected_s

    def left(self) -> str:
        """Return ``25 s left``; empty below a second."""
        elapsed_s = time.monotonic() - self._started
        seconds = self._ahead_s * (elapsed_s / self._behind_s if self._behind_s else 1.0)
        return f"{duration(seconds)} left" if seconds >= 1 else ""


class RunView(ABC):
    """Base of the views: use one as a context around runs, and :meth:`tell` as their listener."""

    def __init__(self) -> None:
        self.pace = RunPace(())
        self.conditions = RunConditions()
        self.outcomes = RunOutcomes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027  # a view that draws nothing has nothing to undo
        """Leave the screen as it was."""

    def tell(self, progress: RunProgress) -> None:
        """Show the start, an event, a message or the end of a run."""
        if isinstance(progress, RunStarted):
            self.pace, self.conditions, self.outcomes = RunPace(progress.cells), RunConditions(), RunOutcomes()
            self.begin(progress)
        elif isinstance(progress, RunMessage):
            tell = self.complain if progress.is_error else self.warn if progress.is_warning else self.say
            tell(progress.text)
        elif isinstance(progress, RunStatus):
            self.show_status(progress.text)
        elif isinstance(progress, RunResult):
            self.end(progress)
        else:
            self.pace.note(progress)
            if progress.happening is EventKind.CELL_ENDED and progress.record is not None:
                self.conditions.note(progress.record)
                self.outcomes.note(cell_name(progress.cell), progress.record)
            self.show(progress)

    def begin(self, started: RunStarted) -> None:
        """Say what is about to happen, and what does not run and why."""
        for line in opening_lines(started):
            self.say(line)

    @abstractmethod
    def show(self, event: RunEvent) -> None:
        """Show one event."""

    def show_status(self, text: str) -> None:  # noqa: B027  # a view without a place for it leaves it out
        """Show what runs where, in place of what was shown before."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Show a line for people."""

    @abstractmethod
    def complain(self, text: str) -> None:
        """Show that this machine is not in the state it should be in."""

    def warn(self, text: str) -> None:
        """Show that less runs than the matrix asks for."""
        self.say(f"warning: {text}")

    @abstractmethod
    def end(self, result: RunResult) -> None:
        """Show the counts, and where the records are."""

    def summary(self, result: RunResult) -> Iterator[str]:
        """Yield how many cells ended as what, under which conditions, and the next step."""
        yield from self.outcomes.lines(result)
        yield from self.conditions.lines(result)
        yield f"records: {result.records}"
        yield f"next: kernel-matrix results {result.folder}"


class PlainLines(RunView):
    """One line per event.

    Args:
        say: Writes one line.
        complain: Writes one line about the state of this machine.
    """

    def __init__(self, say: Callable[[str], None], complain: Callable[[str], None]) -> None:
        super().__init__()
        self._say, self._complain = say, complain

    def begin(self, started: RunStarted) -> None:
        """Say what is about to happen."""
        if not is_quiet():
            super().begin(started)

    def show(self, event: RunEvent) -> None:
        """Write a line for builds that end, and for cells that end or are put off."""
        if not is_quiet():
            self._show(event)
        for line in complaints(event):
            self.complain(line)

    def _show(self, event: RunEvent) -> None:
        line = event_line(event)
        if event.happening is EventKind.CELL_STARTED and is_verbose():
            line = f"{cell_name(event.cell)}: started"
        elif event.happening is EventKind.CELL_ENDED:
            left = self.pace.left()
            line = f"[{self.pace.ended}/{self.pace.planned}] {line}{f'  ({left})' if left else ''}"
        elif event.happening is EventKind.BUILD_ENDED:
            line = f"built {event.cell.candidate.id}: {event.text}"
        if line:
            self.say(line)

    def say(self, text: str) -> None:
        """Write the line."""
        self._say(text)

    def complain(self, text: str) -> None:
        """Write the line as an error."""
        self._complain(text)

    def end(self, result: RunResult) -> None:
        """Write what came of it, and the next step."""
        for line in self.summary(result):
            self.say(line)


class LiveView(RunView):
    """A progress bar with the time left, and a line per cell above it."""

    def __init__(self) -> None:
        super().__init__()
        self._console = SafeConsole(highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[counts]}", markup=False),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            transient=True,
        )
        self._bar = self._progress.add_task("cells", total=0, counts="", left="")

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        self._progress.stop()

    def begin(self, started: RunStarted) -> None:
        """Say what is about to happen, and show the bar."""
        super().begin(started)
        self._progress.reset(self._bar, total=len(started.cells), description="cells", counts="", left="")
        self._progress.start()

    def show(self, event: RunEvent) -> None:
        """Move the bar; leave a line for what ended or is put off."""
        if event.happening is EventKind.CELL_STARTED:
            self._progress.update(self._bar, description=cell_name(event.cell))
        line = event_line(event)
        if line:
            self._console.print(line, style=_style(event), markup=False)
            counts, left = str(self.outcomes), self.pace.left()
            self._progress.update(self._bar, completed=self.pace.ended, counts=counts, left=left)
        for line in complaints(event):
            self.complain(line)

    def show_status(self, text: str) -> None:
        """Show what runs where before the bar."""
        self._progress.update(self._bar, description=text)

    def say(self, text: str) -> None:
        """Print the line above the bar."""
        self._console.print(text, markup=False)

    def complain(self, text: str) -> None:
        """Print the line in red."""
        self._console.print(f"error: {text}", style="bold red", markup=False)

    def warn(self, text: str) -> None:
        """Print the lines in yellow."""
        self._console.print(f"warning: {text}", style="yellow", markup=False)

    def end(self, result: RunResult) -> None:
        """Replace the bar by what came of the run, and the next step."""
        self._progress.stop()
        for line in self.summary(result):
            self.say(line)


class EventLines(RunView):
    """One JSON document per event."""

    def __init__(self, write: Callable[[Any], None]) -> None:
        super().__init__()
        self._write = write

    def begin(self, started: RunStarted) -> None:
        """Write the run's size and why the rest does not run."""
        reasons = Counter(cell.reason.kind.value for cell in started.skipped if cell.reason is not None)
        document = {"event": "run_started", "engine": started.host.sandbox.name, "cells": len(started.cells)}
        self._write({**document, "done_before": started.done, "skipped": dict(reasons)})

    def show(self, event: RunEvent) -> None:
        """Write the event, with the outcome where there is one."""
        document: dict[str, Any] = {"event": event.happening.value, "cell_id": event.cell.id, "lane": event.lane}
        document |= {"cell": cell_name(event.cell), "text": event.text}
        if event.record is not None:
            outcome = event.record.outcome
            document |= {"attempt": event.record.attempt, "status": outcome.status.value, "fault": outcome.fault.value}
            document |= {"stage": outcome.stage.value, "message": outcome.evidence.message}
            document |= conditions_document(event.record)
        self._write(document)

    def show_status(self, text: str) -> None:
        """Write what runs where as an event."""
        self._write({"event": "status", "text": text})

    def say(self, text: str) -> None:
        """Write the line as an event."""
        self._write({"event": "message", "text": text})

    def complain(self, text: str) -> None:
        """Write the line as an event of its own kind."""
        self._write({"event": "error", "text": text})

    def warn(self, text: str) -> None:
        """Write the lines as an event of their own kind."""
        self._write({"event": "warning", "text": text})

    def end(self, result: RunResult) -> None:
        """Write the counts, and where the records are."""
        counts = {status.value: number for status, number in result.counts.items()}
        document = {"event": "run_ended", "counts": counts, "left": result.left, "records": str(result.records)}
        self._write({**document, "clocks": dict(self.conditions.clocks), "quarantined": dict(result.quarantined)})


def run_view(*, as_json: bool) -> RunView:
    """Return the view that suits the options and standard output."""
    if as_json:
        return EventLines(print_json_line)
    return LiveView() if sys.stdout.isatty() and not is_quiet() else PlainLines(write_line, _write_error)


def _write_error(text: str) -> None:
    write_line(f"error: {text}", stderr=True)


def _style(event: RunEvent) -> str:
    if event.record is not None and is_as_expected(event.record):
        return "green"
    fault = event.record.outcome.fault if event.record is not None else Fault.INFRA
    return "yellow" if fault is Fault.INFRA else "red"


def event_line(event: RunEvent) -> str:
    """Return the line for a cell that ended, is tried again or put off, or for the sandbox; empty for other events."""
    if event.happening is EventKind.CELL_SKIPPED:
        return f"{cell_name(event.cell)}: put off: {event.text}"
    if event.happening in (EventKind.SANDBOX_LOST, EventKind.SANDBOX_BACK):
        return event.text
    if event.record is None:
        return ""
    again = "; trying again" if event.happening is EventKind.CELL_RETRIED else ""
    return f"{cell_name(event.cell)}: {verdict_line(event.record)}{conditions_line(event.record)}{again}"


def cell_name(cell: Cell) -> str:
    """Return for example ``softmax/triton_rows fp32 cpu/cpu``."""
    name = f"{cell.candidate.id} {cell.dtype.value} {cell.gpu.name}/{cell.toolchain.name}"
    return ", ".join(filter(None, (name, describe_ranks(cell.problem.ranks))))


def verdict_line(record: Record) -> str:
    """Return the status, and the speed-up or the reason."""
    outcome = record.outcome
    if outcome.status is Status.COMPILED:
        return f"compiled{_built(record)}"
    if outcome.fault is Fault.NONE:
        return f"{outcome.status.value}{_speeds(record)}"
    expected = " (as expected)" if record.cell.expect is outcome.status else ""
    return f"{outcome.status.value}{expected}: {outcome.evidence.message}"


def _built(record: Record) -> str:
    if record.host.build is None or not record.host.build.kernels:
        return ""
    kernels = record.host.build.kernels
    spilled = max(kernel.spill_store_bytes + kernel.spill_load_bytes for kernel in kernels)
    parts = [
        "1 kernel" if len(kernels) == 1 else f"{len(kernels)} kernels",
        f"at most {max(kernel.registers for kernel in kernels)} registers",
        f"{max(kernel.shared_bytes for kernel in kernels)} bytes of shared memory",
        *([f"{spilled} bytes spilled"] if spilled else []),
        *(f"{kernel.name} cannot be launched: {kernel.reason}" for kernel in kernels if not kernel.launchable),
    ]
    return f": {', '.join(dict.fromkeys(parts))}"


def _speeds(record: Record) -> str:
    if any(INTERPRETED in session.labels for session in record.sessions):
        return " (interpreted: its speed says nothing)"
    said = [f"{name} {_speed(found)}" for name, found in judge_record(record).items()]
    return ": " + "; ".join(said) if said else ""


def _speed(found: WorkloadJudgement) -> str:
    """Write for example ``2.0 µs, 2.000x of eager (1.990 to 2.010), faster (beyond_margin 1.99x), grade B``."""
    time_us, compared = f"{found.candidate_ns / 1e3:.1f} µs", found.comparison
    if compared is None:
        return time_us
    verdict = f"{compared.verdict.value} ({describe_reason(compared.reason.value, compared.figure)})"
    if compared.sessions > 1:
        ratio = f"{compared.estimate:.3f}x of eager ({compared.low:.3f} to {compared.high:.3f})"
        why = f" ({found.graded.reason})" if found.graded.reason else ""
        return f"{time_us}, {ratio}, {verdict}, grade {found.graded.grade.value}{why}"
    return f"{time_us}, {compared.estimate:.2f}x of eager, {verdict}"


def opening_lines(started: RunStarted) -> Iterator[str]:
    """Yield lines about where cells run, what ran before, and what does not run and why."""
    yield from started.places or _host_lines(started.host)
    cells, survey = started.cells, started.host
    expected = duration(sum(cell.expected_s for cell in cells))
    yield f"{len(cells)} cells to run, about {expected} one after the other; {started.done} have a record already"
    if not started.places and survey.inventory.clocks_reason and any(_wants_lock(cell) for cell in cells):
        yield f"clocks will not be locked, and records say so: {survey.inventory.clocks_reason}"
    if any(is_interpreted(cell) for cell in cells):
        yield "Triton runs through its interpreter on the CPU: correctness is known, speed is not"
    yield from skipped_lines(started.skipped)


def _host_lines(survey: HostSurvey) -> Iterator[str]:
    name, version = survey.sandbox.name, survey.status.version
    # Processes of this host have no version but that of the Python that runs them.
    yield f"sandbox {name} (Python {version})" if name == "process" else f"sandbox {name} {version}".rstrip()
    if survey.inventory.sandbox_reason:
        yield f"  not Docker: {survey.inventory.sandbox_reason}"
    devices = ", ".join(gpu.name for gpu in survey.inventory.gpus)
    yield f"devices: {devices}" + (f"  ({survey.inventory.gpu_reason})" if survey.inventory.gpu_reason else "")


def skipped_lines(skipped: Sequence[Cell]) -> Iterator[str]:
    """Yield two lines at most on why cells do not run here; every reason with ``-v``."""
    if is_verbose():
        counts = Counter(cell.reason.text for cell in skipped if cell.reason is not None)
        yield from (f"{number:6,d} do not run here: {text}" for text, number in counts.most_common())
        return
    absent = [cell for cell in skipped if _lacks_gpu(cell)]
    others = Counter(cell.reason.text for cell in skipped if cell.reason is not None and not _lacks_gpu(cell))
    hint = "kernel-matrix plan lists them"
    if absent:
        names = list(dict.fromkeys(cell.gpu.name for cell in absent))
        more = ", …" if len(names) > _MOST_GPUS else ""
        yield f"{len(absent):,} cells need GPUs that are not here ({', '.join(names[:_MOST_GPUS])}{more}); {hint}"
    if others:
        ((text, _),) = others.most_common(1)
        often = "most often: " if len(others) > 1 else ""
        yield f"{others.total():,} cells cannot run here, {often}{text}; {hint}"


def _lacks_gpu(cell: Cell) -> bool:
    return cell.reason is not None and cell.reason.kind is SkipReason.NO_SUCH_GPU


def _wants_lock(cell: Cell) -> bool:
    return has_lockable_clocks(cell.gpu.platform) and cell.policy.clocks is ClockPolicy.LOCK
