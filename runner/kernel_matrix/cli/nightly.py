"""``kernel-matrix nightly``."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_matrix.api.wording import printable
from kernel_matrix.cli.options import (
    Build,
    Filter,
    FleetFile,
    JsonAfterProgress,
    Lock,
    MatrixFile,
    Sandbox,
    Unpinned,
    command_line,
)
from kernel_matrix.cli.output import console, duration, print_json
from kernel_matrix.errors import UsageError

if TYPE_CHECKING:
    from kernel_matrix.api.nightly import NightOptions

_Until = Annotated[str, typer.Option("--until", metavar="HH:MM", help="Begin nothing that would end after this time.")]
_Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="Nights go to DIR/<matrix name>/nights/.")]
_Baseline = Annotated[str, typer.Option("--baseline", metavar="NAME", help="Compare with it: see `baseline list`.")]
_Notify = Annotated[
    str, typer.Option("--notify", metavar="CMD", help="Run this once, with the summary as JSON on its stdin.")
]
_Webhook = Annotated[
    list[str] | None,
    typer.Option(
        "--webhook",
        metavar="URL",
        envvar="KERNEL_MATRIX_WEBHOOK",
        show_envvar=False,
        help="Post the text of the summary there, as Slack wants it; better by $KERNEL_MATRIX_WEBHOOK: it is a secret.",
    ),
]
_Prometheus = Annotated[
    Path | None, typer.Option("--prometheus", metavar="FILE.prom", help="Write metrics for node_exporter.")
]
_Keep = Annotated[
    int | None, typer.Option("--keep", metavar="N", help="Remove what is older than the last N nights with results.")
]
_Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Where the page goes; default: the night's folder.")
]
_Find = Annotated[
    float, typer.Option("--find", metavar="SHARE", help="Warn first if a slow-down of this share would be missed.")
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what the night would do, and do nothing.")]
_Systemd = Annotated[bool, typer.Option("--print-systemd", help="Print a user service and its timer, filled in.")]
_Cron = Annotated[bool, typer.Option("--print-cron", help="Print a line for crontab, filled in.")]
_At = Annotated[str, typer.Option("--at", metavar="HH:MM", help="When such a night begins.")]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(nightly)


def nightly(
    matrix: MatrixFile = Path("matrix.toml"),
    *,
    until: _Until = "",
    results: _Results = Path("results"),
    baseline: _Baseline = "",
    find: _Find = 0.05,
    notify: _Notify = "",
    webhook: _Webhook = None,
    prometheus: _Prometheus = None,
    keep: _Keep = None,
    report: _Report = None,
    sandbox: Sandbox = "auto",
    lock: Lock = None,
    filter_: Filter = None,
    allow_unpinned: Unpinned = False,
    build: Build = False,
    fleet: FleetFile = None,
    dry_run: _DryRun = False,
    print_systemd: _Systemd = False,
    print_cron: _Cron = False,
    at: _At = "22:00",
    json: JsonAfterProgress = False,
) -> None:
    """Measure every cell anew until a deadline, compare with a baseline, report, and notify.

    What a night does not come to is what the next one begins with. Exit 5: something broke or is slower; 4: the
    machine failed; 75: a GPU, or the night itself, was busy; 6: nothing could be compared.
    """
    from kernel_matrix.api.nightly import NightOptions

    _check(until, find)
    options = NightOptions(
        matrix=matrix,
        until=until,
        results=results,
        baseline=baseline,
        find=find,
        notify=notify,
        webhooks=tuple(webhook or ()),
        prometheus=prometheus,
        keep=keep,
        report=report,
        sandbox=sandbox,
        lock=lock,
        filters=tuple(filter_ or ()),
        allow_unpinned=allow_unpinned,
        build=build,
        fleet=fleet,
    )
    if print_systemd or print_cron:
        _print_schedules(options, at, units=print_systemd, line=print_cron)
    elif dry_run:
        _print_dry_run(options, as_json=json)
    else:
        code = _run(options, as_json=json)
        if code:
            raise typer.Exit(code)


def _check(until: str, find: float) -> None:
    if not 0 < find < 100:
        raise UsageError(f"--find {find:g} is no share above 0", next_step="0.05 means slower by 5 %")
    if not until:
        raise UsageError("nightly needs a deadline", next_step="e.g. --until 06:30")


def _run(options: NightOptions, *, as_json: bool) -> int:
    """Hold one night; return its exit code."""
    from kernel_matrix.api.nightly import run_night
    from kernel_matrix.cli.progress import run_view

    with redirect_stdout(sys.stderr) if as_json else nullcontext(), run_view(as_json=False) as view:
        result = run_night(options, listener=view.tell, command=command_line())
    if as_json:
        print_json({**result.summary.document(), **result.errors, "removed": list(result.removed.names)})
    else:
        console().print(result.summary.text, markup=False)
        if result.removed.names:
            console().print(f"removed old nights: {', '.join(result.removed.names)}", markup=False)
    for spared in result.removed.spared:
        sys.stderr.write(f"warning: {printable(spared)}\n")
    for failed in filter(None, (*result.errors.values(), result.removed.error)):
        sys.stderr.write(f"error: {printable(failed)}\n")
    if result.stopped_by is not None:
        raise result.stopped_by
    return result.summary.exit_code


def _print_dry_run(options: NightOptions, *, as_json: bool) -> None:
    from kernel_matrix.api.nightly import plan_night

    night = plan_night(options)
    plan, due, baseline = night.plan, night.agenda.due, night.baseline
    until = night.until.isoformat(timespec="minutes")
    if as_json:
        print_json(
            {
                "matrix": plan.matrix.name,
                "engine": plan.engine,
                "until": until,
                "cells": len(plan.runnable),
                "due": [cell.id for cell in due],
                "warning": night.warning,
                "skipped": len(plan.skipped),
                "expected_s": night.expected_s,
                "baseline": baseline and baseline.name,
                "nights": str(night.folder),
                "removes": [old.name for old in night.old.removable],
                "spares": list(night.old.spared),
            }
        )
        return
    out = console()
    cells = f"{len(plan.runnable)} cells run {plan.where}, {len(plan.skipped)} do not; {len(due)} are due first"
    out.print(f"{plan.matrix.name}: {cells}", markup=False)
    out.print(f"about {duration(night.expected_s)} one after the other, until {until}", markup=False)
    named = f"baseline {baseline.name} ({baseline.cells} cells)" if baseline else "no baseline"
    out.print(f"compared with {named}; the night goes to {night.folder}", markup=False)
    if night.old.removable:
        out.print(f"then removes old nights: {', '.join(old.name for old in night.old.removable)}", markup=False)
    for warning in (*([night.warning] if night.warning else []), *night.old.spared):
        out.print(printable(f"warning: {warning}"), markup=False)


def _print_schedules(options: NightOptions, at: str, *, units: bool, line: bool) -> None:
    from kernel_matrix.api.nightly import cron, schedule_of, systemd

    schedule = schedule_of(options, at)
    made = [*([systemd(schedule)] if units else []), *([cron(schedule)] if line else [])]
    sys.stdout.write("\n".join(made))
    if options.webhooks:
        sys.stderr.write("note: the webhook is a secret and was left out; a comment says where it goes\n")
