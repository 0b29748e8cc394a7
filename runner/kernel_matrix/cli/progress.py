"""How a run tells of itself: a live view on a terminal, plain lines into a pipe, JSON events for scripts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kernel_matrix.cli.output import duration
from kernel_matrix.cli.run_conditions import RunConditions, complaints, conditions_document, conditions_line
from kernel_matrix.executors.local import EventKind, Run, RunEvent
from kernel_matrix.hosts.survey import HostSurvey
from kernel_matrix.model.enums import ClockPolicy, Fault, Status, Verdict
from kernel_matrix.model.messages import INTERPRETED
from kernel_matrix.plan import Cell, SkipReason
from kernel_matrix.results.judged import WorkloadJudgement, judge, times_of
from kernel_matrix.results.record import Record, record_to_json
from kernel_matrix.results.store import RecordStore


class RunView(Protocol):
    """Whoever is told of a run."""

    def begin(self, survey: HostSurvey, cells: Sequence[Cell], *, done: int, skipped: Sequence[Cell]) -> None:
        """What will run, what is done already, and what cannot run here."""
        ...

    def watching(self) -> Any:
        """A context around the events."""
        ...

    def tell(self, event: RunEvent) -> None:
        """One event."""
        ...

    def say(self, text: str) -> None:
        """A line for people."""
        ...

    def complain(self, text: str) -> None:
        """A line that nobody may miss: this machine is not in the state it should be in."""
        ...

    def end(self, session: Run, store: RecordStore, conditions: RunConditions) -> None:
        """How many ended as what, and where to look."""
        ...


class RunPace:
    """How far a run over ``cells`` has come, and how long the rest takes at its pace up to now."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.ended = 0
        self.planned = len(cells)
        self._behind_s = 0.0
        self._ahead_s = sum(cell.expected_s for cell in cells)
        self._started = time.monotonic()

    def note(self, event: RunEvent) -> None:
        """Count a cell that ended, or that is put off."""
        if event.happening in (EventKind.CELL_ENDED, EventKind.CELL_SKIPPED):
            self._ahead_s -= event.cell.expected_s
        if event.happening is EventKind.CELL_ENDED:
            self.ended += 1
            self._behind_s += event.cell.expected_s

    def left(self) -> str:
        """``25 s left``; empty where that is less than a second."""
        elapsed_s = time.monotonic() - self._started
        seconds = self._ahead_s * (elapsed_s / self._behind_s if self._behind_s else 1.0)
        return f"{duration(seconds)} left" if seconds >= 1 else ""


class PlainLines:
    """One line per event.

    :param say: writes one line for people.
    :param complain: writes one that nobody may miss.
    """

    def __init__(self, say: Callable[[str], None], complain: Callable[[str], None]) -> None:
        self.say = say
        self.complain = complain
        self._pace = RunPace(())

    def begin(self, survey: HostSurvey, cells: Sequence[Cell], *, done: int, skipped: Sequence[Cell]) -> None:
        """Say what is about to happen, and in plain words what is not."""
        self._pace = RunPace(cells)
        for line in opening_lines(survey, cells, done=done, skipped=skipped):
            self.say(line)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Nothing needs keeping."""
        yield

    def tell(self, event: RunEvent) -> None:
        """A line for builds that end, cells that end or are put off."""
        self._pace.note(event)
        line = event_line(event)
        if event.happening is EventKind.CELL_ENDED:
            left = self._pace.left()
            line = f"[{self._pace.ended}/{self._pace.planned}] {line}{f'  ({left})' if left else ''}"
        elif event.happening is EventKind.BUILD_ENDED:
            line = f"built {event.cell.candidate.id}: {event.text}"
        if line:
            self.say(line)
        for line in complaints(event):
            self.complain(line)

    def end(self, session: Run, store: RecordStore, conditions: RunConditions) -> None:
        """A table, and the next step."""
        print_summary(Console(highlight=False, width=100), session, store, conditions)


class LiveView:
    """A progress bar with the time left, and a line per cell above it."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            transient=True,
        )
        self._pace = RunPace(())
        self._bar = self._progress.add_task("cells", total=0, left="")

    def begin(self, survey: HostSurvey, cells: Sequence[Cell], *, done: int, skipped: Sequence[Cell]) -> None:
        """Say what is about to happen, and in plain words what is not."""
        self._pace = RunPace(cells)
        for line in opening_lines(survey, cells, done=done, skipped=skipped):
            self._console.print(line, markup=False)
        self._progress.update(self._bar, total=len(cells))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Show the bar."""
        with self._progress:
            yield

    def tell(self, event: RunEvent) -> None:
        """Move the bar; leave a line for what ended or is put off."""
        self._pace.note(event)
        if event.happening is EventKind.CELL_STARTED:
            self._progress.update(self._bar, description=cell_name(event.cell))
        line = event_line(event)
        if line:
            self._progress.console.print(line, style=_style(event), markup=False)
            self._progress.update(self._bar, completed=self._pace.ended, left=self._pace.left())
        for line in complaints(event):
            self.complain(line)

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._console.print(text, markup=False)

    def complain(self, text: str) -> None:
        """The same, in red."""
        self._console.print(f"error: {text}", style="bold red", markup=False)

    def end(self, session: Run, store: RecordStore, conditions: RunConditions) -> None:
        """A table, and the next step."""
        print_summary(self._console, session, store, conditions)


class EventLines:
    """One JSON document per event."""

    def __init__(self, write: Callable[[Any], None]) -> None:
        self._write = write

    def begin(self, survey: HostSurvey, cells: Sequence[Cell], *, done: int, skipped: Sequence[Cell]) -> None:
        """The run's size and why the rest does not run."""
        reasons = Counter(cell.reason.hurdle.value for cell in skipped if cell.reason is not None)
        document = {"event": "run_started", "engine": survey.engine.name, "cells": len(cells), "done_before": done}
        self._write({**document, "skipped": dict(reasons)})

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Nothing needs keeping."""
        yield

    def tell(self, event: RunEvent) -> None:
        """The event, with the outcome where there is one."""
        document: dict[str, Any] = {"event": event.happening.value, "cell_id": event.cell.id, "lane": event.lane}
        document |= {"cell": cell_name(event.cell), "text": event.text}
        if event.record is not None:
            outcome = event.record.outcome
            document |= {"attempt": event.record.attempt, "status": outcome.status.value, "fault": outcome.fault.value}
            document |= {"stage": outcome.stage.value, "message": outcome.evidence.message}
            document |= conditions_document(event.record)
        self._write(document)

    def say(self, text: str) -> None:
        """As an event."""
        self._write({"event": "message", "text": text})

    def complain(self, text: str) -> None:
        """As an event of its own kind."""
        self._write({"event": "error", "text": text})

    def end(self, session: Run, store: RecordStore, conditions: RunConditions) -> None:
        """The counts, and where the records are."""
        counts = {status.value: number for status, number in session.counts.items()}
        document = {"event": "run_ended", "counts": counts, "left": session.left, "records": str(store.records)}
        self._write({**document, "clocks": dict(conditions.clocks), "quarantined": dict(session.quarantined)})


def _style(event: RunEvent) -> str:
    fault = event.record.outcome.fault if event.record is not None else Fault.INFRA
    return {Fault.NONE: "green", Fault.INFRA: "yellow"}.get(fault, "red")


def event_line(event: RunEvent) -> str:
    """What became of a cell that ended, is tried again or is put off; empty for any other event."""
    if event.happening is EventKind.CELL_SKIPPED:
        return f"{cell_name(event.cell)}: put off: {event.text}"
    if event.record is None:
        return ""
    again = "; trying again" if event.happening is EventKind.CELL_RETRIED else ""
    return f"{cell_name(event.cell)}: {verdict_line(event.record)}{conditions_line(event.record)}{again}"


def cell_name(cell: Cell) -> str:
    """``softmax/triton_rows fp32 cpu/cpu``."""
    return f"{cell.candidate.id} {cell.dtype.value} {cell.gpu.name}/{cell.toolchain.name}"


def verdict_line(record: Record) -> str:
    """Status, and the speed-up or the reason."""
    outcome = record.outcome
    if outcome.status is Status.COMPILED:
        return f"compiled{_built(record)}"
    if outcome.fault is Fault.NONE:
        return f"passed{_speeds(record)}"
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
    document = record_to_json(record)
    said = [f"{name} {_speed(found)}" for name, found in judge(document, times_of(document)).items()]
    return ": " + "; ".join(said) if said else ""


def _speed(found: WorkloadJudgement) -> str:
    """``2.0 µs, 2.000x of eager (1.990 to 2.010), faster, grade B (clocks not locked)``; less of a single session."""
    time_us, compared = f"{found.candidate_ns / 1e3:.1f} µs", found.comparison
    if compared is None:
        return time_us
    if compared.sessions > 1:
        ratio = f"{compared.estimate:.3f}x of eager ({compared.low:.3f} to {compared.high:.3f})"
        why = f" ({found.graded.reason})" if found.graded.reason else ""
        return f"{time_us}, {ratio}, {compared.verdict.value}, grade {found.graded.grade.value}{why}"
    ratio = f"{time_us}, {compared.estimate:.2f}x of eager"
    return ratio if compared.verdict is Verdict.INCONCLUSIVE else f"{ratio}, {compared.verdict.value}"


def opening_lines(survey: HostSurvey, cells: Sequence[Cell], *, done: int, skipped: Sequence[Cell]) -> Iterator[str]:
    """What runs here, what ran before, and in plain words what does not run and why."""
    yield f"engine {survey.engine.name} {survey.status.version}".rstrip()
    if survey.facts.engine_reason:
        yield f"  not Docker: {survey.facts.engine_reason}"
    devices = ", ".join(gpu.name for gpu in survey.facts.gpus)
    yield f"devices: {devices}" + (f"  ({survey.facts.gpu_reason})" if survey.facts.gpu_reason else "")
    expected = sum(cell.expected_s for cell in cells)
    yield f"{len(cells)} cells to run, about {duration(expected)} one after the other; {done} have a record already"
    if survey.facts.clocks_reason and any(_wants_lock(cell) for cell in cells):
        yield f"clocks will not be locked, and records say so: {survey.facts.clocks_reason}"
    if any(cell.gpu.vendor == "cpu" and cell.candidate.language.value == "triton" for cell in cells):
        yield "Triton runs through its interpreter on the CPU: right or wrong can be told, speed cannot"
    counts = Counter((cell.reason.hurdle, _short(cell)) for cell in skipped if cell.reason is not None)
    if counts:
        yield f"{len(skipped)} cells do not run here:"
    for (_, text), count in counts.most_common(12):
        yield f"  {count:5d}  {text}"
    if len(counts) > 12:
        yield f"         … and {len(counts) - 12} more reasons: kernel-matrix plan"


def _wants_lock(cell: Cell) -> bool:
    return cell.gpu.vendor != "cpu" and cell.policy.clocks is ClockPolicy.LOCK


def _short(cell: Cell) -> str:
    if cell.reason is None:
        return ""
    if cell.reason.hurdle is SkipReason.NO_SUCH_GPU:
        return "no such GPU here: " + cell.gpu.name
    return cell.reason.text


def print_summary(console: Console, session: Run, store: RecordStore, conditions: RunConditions) -> None:
    """The end of a run for people."""
    if session.counts:
        table = Table("outcome", "cells", title=f"{sum(session.counts.values())} cells ended", title_justify="left")
        for status, number in session.counts.most_common():
            table.add_row(status.value, str(number))
        console.print(table)
    for line in conditions.lines(session):
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"records: {store.records}\nnext: kernel-matrix results {store.root}", markup=False, soft_wrap=True)
