"""A night of measuring, from the plan to the notification; and schedules that begin one."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import mode
from typing import Any

from kernel_matrix.analysis.tables import open_tables
from kernel_matrix.api.fleet_plan import check_fleet_options
from kernel_matrix.api.images import build_missing_images
from kernel_matrix.api.plan import RunPlan, load_matrix, make_plan
from kernel_matrix.api.run_cells import (
    CellSelection,
    Listener,
    RunMessage,
    new_run_id,
    selected_cells,
    warn_of_unreadable,
)
from kernel_matrix.errors import GpuBusyError, KernelMatrixError, UsageError
from kernel_matrix.executors.local import Rerun, RunPolicy, cells_left
from kernel_matrix.hosts.survey import AUTO
from kernel_matrix.matrix import Matrix
from kernel_matrix.model.instants import utc_now
from kernel_matrix.nightly.accept_changes import in_force
from kernel_matrix.nightly.baselines import Baseline, verified_tables
from kernel_matrix.nightly.deadline import next_time, on_monotonic_clock, time_of_day
from kernel_matrix.nightly.finish import BaselineChoice, Night, begin_night, end_night
from kernel_matrix.nightly.foresight import FIND, warn_of_noise
from kernel_matrix.nightly.night_summary import NightEnd, NightProgress, NightSummary, worst
from kernel_matrix.nightly.notification import command_of, tell
from kernel_matrix.nightly.paths import NightPaths, accepted_file
from kernel_matrix.nightly.prometheus import check_metrics_file, write_metrics
from kernel_matrix.nightly.retention import OldNights, RemovedNights, check_keep, old_nights, remove_old_nights
from kernel_matrix.nightly.schedules import Schedule, cron, systemd
from kernel_matrix.nightly.start import NightAgenda, agenda, new_night, one_at_a_time
from kernel_matrix.nightly.state import read_state
from kernel_matrix.nightly.webhook import check_webhooks, post, without_webhooks
from kernel_matrix.report.formats import format_of
from kernel_matrix.results.descriptions import printable
from kernel_matrix.results.store import RecordStore

__all__ = [
    "FIND",
    "NightOptions",
    "NightPlan",
    "NightResult",
    "NightSummary",
    "Schedule",
    "cron",
    "plan_night",
    "run_night",
    "schedule_of",
    "systemd",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NightOptions:
    """Options of a night."""

    until: str
    """``HH:MM``, local time: nothing is begun that would end later."""
    matrix: Path = Path("matrix.toml")
    results: Path = Path("results")
    """Nights go to ``<results>/<matrix name>/nights/``."""
    baseline: str = ""
    """Name of the baseline to compare with; empty: none."""
    notify: str = ""
    """A command that is run once, with the summary as JSON on its standard input; empty: none."""
    webhooks: tuple[str, ...] = field(default=(), repr=False)
    """URLs that the summary's text is posted to. They are secrets."""
    prometheus: Path | None = None
    """File for the metrics of the night; ``None``: none."""
    keep: int | None = None
    """Nights with results that stay, this one included; older ones are removed. ``None``: all stay."""
    report: Path | None = None
    """Path of the page; ``None``: in the night's folder."""
    sandbox: str = AUTO
    lock: Path | None = None
    filters: tuple[str, ...] = ()
    allow_unpinned: bool = False
    build: bool = False
    """Build local images that are missing first."""
    fleet: Path | None = None
    """The fleet file; ``None``: the night is on this host."""
    find: float = FIND
    """Warn first if a slow-down of this share would be missed in half of the cells of the baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightResult:
    """The end of a night."""

    summary: NightSummary
    errors: Mapping[str, str]
    """Error of ``notify``, ``webhook`` and ``prometheus``; empty texts where they succeeded or were not wanted."""
    removed: RemovedNights
    stopped_by: BaseException | None
    """The interrupt that stopped the night; raise it again to pass it on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightPlan:
    """The plan of a night."""

    plan: RunPlan
    agenda: NightAgenda
    """Every cell once; those that the last night did not come to are first."""
    until: datetime
    baseline: Baseline | None
    warning: str
    """That the night would miss the slow-down that it is to find; empty if it would not."""
    folder: Path
    """The folder of all nights of the matrix."""
    old: OldNights
    """The nights that will be removed after it."""

    @property
    def expected_s(self) -> float:
        """The time of all cells, one after the other on each of their units."""
        return sum(cell.expected_s * cell.gpu.units for cell in self.plan.runnable)


def run_night(options: NightOptions, *, listener: Listener | None = None, command: Sequence[str] = ()) -> NightResult:
    """Measure every cell anew until a deadline; merge, compare with a baseline, report, notify, remove old nights.

    An interrupt ends the measuring; what was measured is still merged, reported and notified of, no night is removed,
    and the interrupt is in the result.

    Args:
        options: What to measure, until when, and what becomes of it.
        listener: As for :func:`kernel_matrix.run`; a night has up to two runs.
        command: As for :func:`kernel_matrix.run`.

    Raises:
        UsageError: An option, the matrix or the baseline is not usable.
        GpuBusyError: Another night of the matrix goes on.
        KernelMatrixError: The night could not begin; command, webhooks and metrics say so.
    """
    _check(options)
    began_at = utc_now()
    try:
        summary, removed, stop = _measured_and_ended(options, listener, without_webhooks(command, options.webhooks))
    except KernelMatrixError as error:
        # A wrong option or a busy machine is seen at once on the terminal; all else is announced.
        if not isinstance(error, (UsageError, GpuBusyError)):
            for failed in _announce(options, *_not_begun(options, error, began_at)).values():
                if failed and listener is not None:
                    listener(RunMessage(text=printable(failed), is_error=True))
        raise
    errors = _announce(options, summary.matrix, summary.document())
    return NightResult(summary=summary, errors=errors, removed=removed, stopped_by=stop)


def plan_night(options: NightOptions) -> NightPlan:
    """Plan a night; nothing is built, run or removed."""
    _check(options)
    until, against = _until(options), _against(options)
    matrix = load_matrix(options.matrix)
    places = NightPaths(options.results, matrix.name)
    plan, order = _planned(options, places, matrix)
    return NightPlan(
        plan=plan,
        agenda=order,
        until=until,
        baseline=against.baseline if against else None,
        warning=_warning(options, against, plan),
        folder=places.nights,
        old=old_nights(places, options.keep - 1) if options.keep is not None else OldNights(),
    )


def schedule_of(options: NightOptions, at: str) -> Schedule:
    """Return the schedule that begins such a night at ``HH:MM``, with this Python and in this folder.

    It has no webhook, whose URL is a secret: the environment of the night has to name it.

    Raises:
        UsageError: A time is not ``HH:MM``, or the night would begin at its own deadline.
    """
    _check(options)
    hour, minute = time_of_day("--at", at)
    if time_of_day("--until", options.until) == (hour, minute):
        raise UsageError(f"--until {options.until} is when the night begins", next_step="give another minute")
    values = {
        "--until": options.until,
        "--results": str(options.results),
        "--baseline": options.baseline,
        "--notify": options.notify,
        "--prometheus": str(options.prometheus or ""),
        "--keep": "" if options.keep is None else str(options.keep),
        "--report": str(options.report or ""),
        "--sandbox": "" if options.sandbox == AUTO else options.sandbox,
        "--lock": str(options.lock or ""),
        "--fleet": str(options.fleet or ""),
        "--find": "" if options.find == FIND else f"{options.find:g}",
    }
    given = [word for name, value in values.items() if value for word in (name, value)]
    given += [word for term in options.filters for word in ("--filter", term)]
    switches = {"--allow-unpinned": options.allow_unpinned, "--build": options.build}
    given += [name for name, wanted in switches.items() if wanted]
    command = (sys.executable, "-m", "kernel_matrix", "nightly", str(options.matrix), *given)
    # Beside the matrix, not among the results: a shell opens it before the first night has made their folder.
    return Schedule(hour=hour, minute=minute, folder=Path.cwd(), command=command, log=Path("nightly.log"))


def _measured_and_ended(
    options: NightOptions, listener: Listener | None, command: Sequence[str]
) -> tuple[NightSummary, RemovedNights, BaseException | None]:
    now, until, against = _now(), _until(options), _against(options)
    matrix = load_matrix(options.matrix)
    places = NightPaths(options.results, matrix.name)
    with one_at_a_time(places):
        if options.build:
            say = listener or (lambda _: None)
            build_missing_images(
                matrix, sandbox=options.sandbox, lock=options.lock, say=lambda text: say(RunMessage(text=text))
            )
        plan, order = _planned(options, places, matrix)
        night = Night(
            places=places,
            name=new_night(places, now.date()),
            began_at=now.astimezone(timezone.utc).isoformat(),
            until=until.isoformat(timespec="minutes"),
            against=against,
            report=options.report,
        )
        begin_night(night, len(plan.runnable))
        cells = selected_cells(plan, command=command)
        warn_of_unreadable(plan, listener)
        warning = _warning(options, against, plan)
        if warning and listener is not None:
            listener(RunMessage(text=printable(warning), is_warning=True))
        measured, stop = _measure(cells, order, night, until, listener)
        summary = end_night(night, measured, now=_now())
        if options.keep is None or stop is not None:
            return summary, RemovedNights(), stop
        return summary, remove_old_nights(places, options.keep, running=night.name), None


def _planned(options: NightOptions, places: NightPaths, matrix: Matrix) -> tuple[RunPlan, NightAgenda]:
    """Return what runs here, and in which order."""
    last = read_state(places.state)
    plan = make_plan(
        matrix,
        sandbox=options.sandbox,
        lock=options.lock,
        filters=options.filters,
        allow_unpinned=options.allow_unpinned,
        results=None if options.fleet is None else options.results,
        fleet=options.fleet,
    )
    plan.check_runnable()
    return plan, agenda(plan.runnable, last, places, plan.host)


def _measure(
    cells: CellSelection, order: NightAgenda, night: Night, until: datetime, listener: Listener | None
) -> tuple[NightProgress, BaseException | None]:
    """Measure what is due, then the others; return how far that came, and the interrupt that stopped it."""
    deadline = on_monotonic_clock(until)
    codes: list[int] = []
    end, error, stop = NightEnd.COMPLETE, "", None
    try:
        # One run after the other: nothing is begun anew while something is due that fits into the night.
        for part in (order.due, order.others):
            if part and _run(replace(cells, runnable=part), night.folder, deadline, codes, listener):
                end = NightEnd.CUT
    except KernelMatrixError as failure:
        end, error = NightEnd.FAILED, str(failure)
        codes.append(failure.exit_code)
    except Exception:
        raise
    except BaseException as interrupt:  # noqa: BLE001  # a signal: the night is ended, and the caller gets it
        end, stop = NightEnd.STOPPED, interrupt
    attempts = RecordStore(night.folder).attempts()
    left = len(cells_left(cells.runnable, attempts, cells.host, Rerun.NONE))
    if left and end is NightEnd.COMPLETE:
        end = NightEnd.INCOMPLETE
    measured = NightProgress(
        end=end,
        planned=len(cells.runnable),
        left=left,
        statuses=Counter(tried[-1].status for tried in attempts.values()),
        exit_code=worst(codes),
        error=error,
    )
    return measured, stop


def _run(cells: CellSelection, folder: Path, deadline: float, codes: list[int], listener: Listener | None) -> bool:
    """Run the cells; return whether the deadline left some of them."""
    policy = RunPolicy(run_id=new_run_id(), deadline=deadline, build_workers=cells.matrix.policy.build_workers)
    result = cells.run(folder, policy=policy, listener=listener)
    codes.append(result.exit_code)
    return result.left > 0


def _against(options: NightOptions) -> BaselineChoice | None:
    """Return the baseline, checked before anything runs: a night without its comparison would be lost."""
    if not options.baseline:
        return None
    baseline, tables = verified_tables(options.results, options.baseline)
    return BaselineChoice(baseline=baseline, tables=tables, accepted=in_force(accepted_file(options.results)))


def _warning(options: NightOptions, against: BaselineChoice | None, plan: RunPlan) -> str:
    if against is None:
        return ""
    sessions = mode(cell.protocol.sessions for cell in plan.runnable)
    return warn_of_noise(open_tables([against.tables]).cells, sessions, options.find)


def _until(options: NightOptions) -> datetime:
    return next_time("--until", options.until, datetime.now())  # noqa: DTZ005  # local, see there


def _now() -> datetime:
    return datetime.now().astimezone()


def _check(options: NightOptions) -> None:
    """Raise a usage error for what would fail only when the night is over, or cannot be meant."""
    if options.fleet is not None:
        check_fleet_options(build=options.build)
    if options.notify:
        command_of(options.notify)
    check_webhooks(options.webhooks)
    check_keep(options.keep)
    if options.report is not None:
        format_of(options.report)
    if options.prometheus is not None:
        check_metrics_file(options.prometheus)


def _announce(options: NightOptions, matrix: str, document: Mapping[str, Any]) -> dict[str, str]:
    """Write the metrics, post to the webhooks and run the command; return the :attr:`NightResult.errors`."""
    file = options.prometheus
    return {
        "prometheus": write_metrics(file, matrix, document) if file is not None else "",
        "webhook": post(options.webhooks, document["text"]),
        "notify": tell(command_of(options.notify), document) if options.notify else "",
    }


def _not_begun(options: NightOptions, error: KernelMatrixError, began_at: str) -> tuple[str, dict[str, Any]]:
    """Return the matrix's name and the summary's document for a night that could not begin."""
    text = printable(f"{options.matrix}: the night could not begin: {error}")
    document = {"matrix": str(options.matrix), "end": "failed", "troubles": [text], "exit_code": error.exit_code}
    return load_matrix(options.matrix).name, {**document, "began_at": began_at, "ended_at": utc_now(), "text": text}
