"""``kernel-matrix nightly``: one night, from the plan to whoever wants to know of it."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_matrix.cli.options import Build, Engine, Filter, JsonAfterProgress, Lock, MatrixFile, Unpinned
from kernel_matrix.cli.output import console, duration, print_json
from kernel_matrix.errors import GpuBusyError, InfrastructureError, KernelMatrixError, UsageError
from kernel_matrix.results.descriptions import printable

if TYPE_CHECKING:
    from kernel_matrix.cli.run_request import PlannedRun
    from kernel_matrix.matrix import Matrix
    from kernel_matrix.model.enums import Status
    from kernel_matrix.nightly.finish import BaselineChoice, Night
    from kernel_matrix.nightly.night_summary import NightProgress, NightSummary
    from kernel_matrix.nightly.paths import NightPaths
    from kernel_matrix.nightly.schedules import Schedule
    from kernel_matrix.nightly.start import NightAgenda
    from kernel_matrix.plan import Cell
    from kernel_matrix.results.store import AttemptSummary, RecordStore

_Until = Annotated[str, typer.Option("--until", metavar="HH:MM", help="Begin nothing that would end after this time.")]
_Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="Nights go to DIR/<matrix name>/nights/.")]
_Baseline = Annotated[str, typer.Option("--baseline", metavar="NAME", help="Compare with it: see `baseline list`.")]
_Notify = Annotated[
    str, typer.Option("--notify", metavar="CMD", help="Run this once, with the summary as JSON on its stdin.")
]
_Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Where the page goes; default: the night's folder.")
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what the night would do, and do nothing.")]
_Systemd = Annotated[bool, typer.Option("--print-systemd", help="Print a user service and its timer, filled in.")]
_Cron = Annotated[bool, typer.Option("--print-cron", help="Print a line for crontab, filled in.")]
_At = Annotated[str, typer.Option("--at", metavar="HH:MM", help="When such a night begins.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyOptions:
    """The options of ``nightly``."""

    matrix: Path
    until: str
    results: Path
    baseline: str
    notify: str
    report: Path | None
    engine: str
    lock: Path | None
    filters: tuple[str, ...]
    allow_unpinned: bool
    build: bool
    json: bool


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def nightly(
        matrix: MatrixFile = Path("matrix.toml"),
        *,
        until: _Until = "",
        results: _Results = Path("results"),
        baseline: _Baseline = "",
        notify: _Notify = "",
        report: _Report = None,
        engine: Engine = "auto",
        lock: Lock = None,
        filter_: Filter = None,
        allow_unpinned: Unpinned = False,
        build: Build = False,
        dry_run: _DryRun = False,
        print_systemd: _Systemd = False,
        print_cron: _Cron = False,
        at: _At = "22:00",
        json: JsonAfterProgress = False,
    ) -> None:
        """Measure every cell anew until a deadline, compare with a baseline, report, and tell somebody.

        What a night does not come to is what the next one begins with. Exit 5: something broke or is slower; 4: the
        machine failed; 75: a GPU, or the night itself, was busy.
        """
        wishes = NightlyOptions(
            matrix=matrix,
            until=until,
            results=results,
            baseline=baseline,
            notify=notify,
            report=report,
            engine=engine,
            lock=lock,
            filters=tuple(filter_ or ()),
            allow_unpinned=allow_unpinned,
            build=build,
            json=json,
        )
        if not until:
            raise UsageError("nightly needs a deadline", next_step="e.g. --until 06:30")
        if print_systemd or print_cron:
            _print_schedules(wishes, at, units=print_systemd, line=print_cron)
        elif dry_run:
            _print_dry_run(wishes)
        else:
            code = _hold(wishes)
            if code:
                raise typer.Exit(code)


def _hold(wishes: NightlyOptions) -> int:
    """One night; returns its exit code."""
    from kernel_matrix.cli import Terminated  # noqa: PLC0415  # the package itself is there only when verbs run
    from kernel_matrix.nightly.notification import command_of, tell  # noqa: PLC0415  # --help must not wait for it

    command = command_of(wishes.notify) if wishes.notify else ()
    with redirect_stdout(sys.stderr) if wishes.json else nullcontext():
        try:
            summary, stop = _measured_and_ended(wishes)
        except (KernelMatrixError, Terminated) as error:
            # What cannot even begin is what somebody wants to know of; what is misspelt is seen at once.
            if command and not isinstance(error, (UsageError, GpuBusyError, Terminated)):
                _complain(tell(command, _not_begun(wishes, error)))
            raise
    failed = tell(command, summary.document()) if command else ""
    if wishes.json:
        print_json({**summary.document(), "notify": failed})
    else:
        console().print(summary.text, markup=False)
    _complain(failed)
    if stop is not None:
        raise stop
    return summary.exit_code


def _measured_and_ended(wishes: NightlyOptions) -> tuple[NightSummary, BaseException | None]:
    """The summary of the night, and the signal that stopped it, if one did."""
    from kernel_matrix.matrix.load import load_matrix  # noqa: PLC0415  # --help must not wait for it
    from kernel_matrix.nightly.finish import Night, begin_night, end_night  # noqa: PLC0415  # as above
    from kernel_matrix.nightly.paths import NightPaths  # noqa: PLC0415  # as above
    from kernel_matrix.nightly.start import new_night, one_at_a_time  # noqa: PLC0415  # as above

    now, until, against = _now(), _until(wishes), _against(wishes)
    matrix = load_matrix(wishes.matrix)
    places = NightPaths(wishes.results, matrix.name)
    with one_at_a_time(places):
        work, plan = _planned(wishes, places, matrix)
        night = Night(
            places=places,
            name=new_night(places, now.date()),
            began_at=now.astimezone(timezone.utc).isoformat(),
            until=until.isoformat(timespec="minutes"),
            against=against,
            report=wishes.report,
        )
        begin_night(night, len(work.runnable))
        measured, stop = _measure(work, plan, night, until)
        return end_night(night, measured, now=_now()), stop


def _planned(wishes: NightlyOptions, places: NightPaths, matrix: Matrix) -> tuple[PlannedRun, NightAgenda]:
    """What runs here, and in which order.

    :raises StoreError: when the state of the last night is damaged.
    """
    from kernel_matrix.cli.run_request import PlanScope, survey_work  # noqa: PLC0415  # --help must not wait for it
    from kernel_matrix.nightly.start import agenda  # noqa: PLC0415  # as above
    from kernel_matrix.nightly.state import read_state  # noqa: PLC0415  # as above

    last = read_state(places.state)
    scope = PlanScope(
        engine=wishes.engine,
        lock=wishes.lock,
        filters=wishes.filters,
        allow_unpinned=wishes.allow_unpinned,
        build=wishes.build,
        json=wishes.json,
    )
    work = survey_work(matrix, scope)
    return work, agenda(work.runnable, last, places, work.survey)


def _measure(
    work: PlannedRun, plan: NightAgenda, night: Night, until: datetime
) -> tuple[NightProgress, BaseException | None]:
    """Measure what is due, then the others; how far that came, and the signal that stopped it, if one did."""
    from kernel_matrix.cli import Terminated  # noqa: PLC0415  # the package itself is there only when verbs run
    from kernel_matrix.executors.local import Rerun, cells_left  # noqa: PLC0415  # as above
    from kernel_matrix.nightly.night_summary import NightEnd, NightProgress, worst  # noqa: PLC0415  # --help must not wait for it
    from kernel_matrix.results.store import RecordStore  # noqa: PLC0415  # as above

    store = RecordStore(night.folder)
    deadline = time.monotonic() + (until - datetime.now(timezone.utc)).total_seconds()
    codes: list[int] = []
    end, error, stop = NightEnd.COMPLETE, "", None
    try:
        # One run after the other: nothing is begun anew while something is due that fits into the night.
        for cells in (plan.due, plan.others):
            if cells and _run(work, cells, store, deadline, codes):
                end = NightEnd.CUT
    except Terminated as signal:
        end, stop = NightEnd.STOPPED, signal
    except KernelMatrixError as failure:
        end, error = NightEnd.FAILED, str(failure)
        codes.append(failure.exit_code)
    attempts = store.attempts()
    left = len(cells_left(work.runnable, attempts, work.survey, Rerun.NONE))
    if left and end is NightEnd.COMPLETE:
        end = NightEnd.INCOMPLETE
    measured = NightProgress(
        end=end,
        planned=len(work.runnable),
        left=left,
        statuses=_statuses(attempts),
        exit_code=worst(codes),
        error=error,
    )
    return measured, stop


def _run(work: PlannedRun, cells: Sequence[Cell], store: RecordStore, deadline: float, codes: list[int]) -> bool:
    """Run ``cells``; whether the deadline left some of them."""
    from kernel_matrix.cli.run_request import exit_code_of, new_run_id, run_work  # noqa: PLC0415  # --help must not wait for it
    from kernel_matrix.executors.local import Rerun, RunPolicy  # noqa: PLC0415  # as above

    workers = work.matrix.policy.build_workers
    orders = RunPolicy(run_id=new_run_id(), deadline=deadline, build_workers=workers)
    part = replace(work, runnable=tuple(cells))
    session = run_work(part, store, orders, Rerun.NONE, as_json=False)
    codes.append(exit_code_of(session, fail_on_candidate=False))
    return session.left > 0


def _statuses(attempts: Mapping[str, Sequence[AttemptSummary]]) -> Counter[Status]:
    """How every cell of the night ended at last."""
    return Counter(tried[-1].status for tried in attempts.values())


def _against(wishes: NightlyOptions) -> BaselineChoice | None:
    """The baseline, looked at before anything runs: a night without its comparison would be lost.

    :raises UsageError: when there is none of that name, or the accepted changes are not in order.
    :raises StoreError: when it is damaged.
    """
    from kernel_matrix.nightly.accept_changes import in_force  # noqa: PLC0415  # --help must not wait for it
    from kernel_matrix.nightly.baselines import verified_tables  # noqa: PLC0415  # as above
    from kernel_matrix.nightly.finish import BaselineChoice  # noqa: PLC0415  # as above
    from kernel_matrix.nightly.paths import accepted_file  # noqa: PLC0415  # as above

    if not wishes.baseline:
        return None
    baseline, tables = verified_tables(wishes.results, wishes.baseline)
    return BaselineChoice(baseline=baseline, tables=tables, accepted=in_force(accepted_file(wishes.results)))


def _until(wishes: NightlyOptions) -> datetime:
    from kernel_matrix.nightly.deadline import next_time  # noqa: PLC0415  # --help must not wait for it

    return next_time("--until", wishes.until, datetime.now())  # noqa: DTZ005  # local, see there


def _now() -> datetime:
    return datetime.now().astimezone()


def _not_begun(wishes: NightlyOptions, error: BaseException) -> dict[str, Any]:
    """The document of a night that could not begin."""
    code = error.exit_code if isinstance(error, KernelMatrixError) else InfrastructureError.exit_code
    text = printable(f"{wishes.matrix}: the night could not begin: {error}")
    return {"matrix": str(wishes.matrix), "end": "failed", "troubles": [text], "exit_code": code, "text": text}


def _complain(text: str) -> None:
    if text:
        sys.stderr.write(f"error: {printable(text)}\n")


# ---- without a night


def _print_dry_run(wishes: NightlyOptions) -> None:
    from kernel_matrix.matrix.load import load_matrix  # noqa: PLC0415  # --help must not wait for it
    from kernel_matrix.nightly.paths import NightPaths  # noqa: PLC0415  # as above

    until, against = _until(wishes), _against(wishes)
    matrix = load_matrix(wishes.matrix)
    places = NightPaths(wishes.results, matrix.name)
    work, plan = _planned(replace(wishes, build=False), places, matrix)
    expected = sum(cell.expected_s for cell in work.runnable)
    document = {
        "matrix": places.matrix,
        "engine": work.survey.engine.name,
        "until": until.isoformat(timespec="minutes"),
        "cells": len(work.runnable),
        "due": [cell.id for cell in plan.due],
        "skipped": len(work.skipped),
        "expected_s": expected,
        "baseline": against and against.baseline.name,
        "nights": str(places.nights),
    }
    if wishes.json:
        print_json(document)
        return
    out = console()
    cells = f"{len(work.runnable)} cells run here, {len(work.skipped)} do not; {len(plan.due)} are due first"
    out.print(f"{places.matrix}: {cells}", markup=False)
    out.print(f"about {duration(expected)} one after the other, until {document['until']}", markup=False)
    named = f"baseline {against.baseline.name} ({against.baseline.cells} cells)" if against else "no baseline"
    out.print(f"compared with {named}; the night goes to {places.nights}", markup=False)


def _print_schedules(wishes: NightlyOptions, at: str, *, units: bool, line: bool) -> None:
    from kernel_matrix.nightly.schedules import cron, systemd  # noqa: PLC0415  # --help must not wait for it

    schedule = _schedule(wishes, at)
    made = [*([systemd(schedule)] if units else []), *([cron(schedule)] if line else [])]
    sys.stdout.write("\n".join(made))


def _schedule(wishes: NightlyOptions, at: str) -> Schedule:
    from kernel_matrix.nightly.deadline import time_of_day  # noqa: PLC0415  # as above
    from kernel_matrix.nightly.schedules import Schedule  # noqa: PLC0415  # --help must not wait for it

    hour, minute = time_of_day("--at", at)
    time_of_day("--until", wishes.until)
    options = {
        "--until": wishes.until,
        "--results": str(wishes.results),
        "--baseline": wishes.baseline,
        "--notify": wishes.notify,
        "--report": str(wishes.report or ""),
        "--engine": "" if wishes.engine == "auto" else wishes.engine,
        "--lock": str(wishes.lock or ""),
    }
    given = [word for name, value in options.items() if value for word in (name, value)]
    given += [word for term in wishes.filters for word in ("--filter", term)]
    switches = {"--allow-unpinned": wishes.allow_unpinned, "--build": wishes.build}
    given += [name for name, wanted in switches.items() if wanted]
    command = (sys.executable, "-m", "kernel_matrix", "nightly", str(wishes.matrix), *given)
    # Beside the matrix, not among the results: a shell opens it before the first night has made their folder.
    return Schedule(hour=hour, minute=minute, folder=Path.cwd(), command=command, log=Path("nightly.log"))
