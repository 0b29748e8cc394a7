"""``kernel-matrix try``: one file, here and now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_matrix.cli import completion
from kernel_matrix.cli.options import Json
from kernel_matrix.cli.output import console, print_json, write_line
from kernel_matrix.errors import KernelMatrixError
from kernel_matrix.model.enums import Fault, Status
from kernel_matrix.model.messages import INTERPRETED

if TYPE_CHECKING:
    from kernel_matrix.api.run_cells import Listener, Record, RunProgress
    from kernel_matrix.api.try_kernel import TriedKernel

_File = Annotated[Path, typer.Argument(metavar="FILE", help="A .py file with a class ModelNew, or a .cu or .hip file.")]
_Problem = Annotated[
    str,
    typer.Option(
        "--problem",
        metavar="ID",
        help="What it computes: see `problems list`.",
        autocompletion=completion.problem,
    ),
]
_Reference = Annotated[
    Path | None,
    typer.Option("--reference", metavar="FILE", help="Your own problem: a module with Model and get_inputs."),
]
_Dtype = Annotated[
    str,
    typer.Option("--dtype", metavar="NAME", help="The problem's first by default.", autocompletion=completion.dtype),
]
_Workload = Annotated[str, typer.Option("--workload", metavar="NAME", help="`default` on a GPU, `smoke` on a CPU.")]
_Platform = Annotated[
    str, typer.Option("--platform", metavar="NAME", help="Where to judge it: `cpu`, for example; a GPU if one is here.")
]
_Ranks = Annotated[
    int | None, typer.Option("--ranks", metavar="N", help="Processes of a call, for a problem of several ranks.")
]
_Sessions = Annotated[int, typer.Option("--sessions", metavar="N", min=1, help="Sets of fresh processes.")]
_Watch = Annotated[bool, typer.Option("--watch", help="Judge it again each time it is saved, until Ctrl-C.")]

_POLL_S = 0.2
"""How often a watched file is looked at, seconds."""
_LOG_LINES = 12
"""Lines of a log's end that are printed."""


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command("try")(try_file)


def try_file(
    file: _File,
    *,
    problem: _Problem = "",
    reference: _Reference = None,
    dtype: _Dtype = "",
    workload: _Workload = "",
    platform: _Platform = "",
    ranks: _Ranks = None,
    sessions: _Sessions = 1,
    watch: _Watch = False,
    json: Json = False,
) -> None:
    """Judge one kernel here and now, on the GPU if there is one, with the PyTorch of this Python.

    Exit code 1 unless it passes; 4 if this machine failed.
    """
    from kernel_matrix.api.try_kernel import try_kernel

    def judge() -> Record:
        with spinner() as tell:
            tried = try_kernel(
                file,
                problem=problem,
                reference=reference,
                dtype=dtype,
                workload=workload,
                platform=platform,
                ranks=ranks,
                sessions=sessions,
                listener=tell,
            )
        if json:
            print_json(_document(tried))
        else:
            for line in tried_lines(tried):
                write_line(line)
        return tried.record

    if not watch:
        outcome = judge().outcome
        if outcome.status is not Status.PASSED:
            raise typer.Exit(4 if outcome.fault is Fault.INFRA else 1)
        return
    for _ in _saves([file, *([reference] if reference else [])]):
        try:
            judge()
        except KernelMatrixError as error:  # a file that is half written: the next save mends it
            write_line(f"error: {error}", stderr=True)
        write_line("")


def _saves(files: Sequence[Path]) -> Iterator[None]:
    """Yield at once, and again whenever one of ``files`` was saved."""
    before = None
    while True:
        now = [_stamp(file) for file in files]
        if now != before:
            before = now
            yield
        time.sleep(_POLL_S)


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:  # an editor may replace a file by removing it first
        return None
    return status.st_mtime_ns, status.st_size


@contextmanager
def spinner() -> Iterator[Listener]:
    """Show what goes on, on a terminal; yields a listener of a run."""
    from kernel_matrix.api.run_cells import RunEvent, RunMessage

    err = console(stderr=True)
    with err.status("starting") as status:

        def tell(progress: RunProgress) -> None:
            if isinstance(progress, RunEvent):
                status.update(progress.happening.value.replace("_", " "))
            elif isinstance(progress, RunMessage) and (progress.is_error or progress.is_warning):
                err.print(progress.text, markup=False)

        yield tell


def _document(tried: TriedKernel) -> dict[str, Any]:
    outcome = tried.record.outcome
    return {
        "status": outcome.status.value,
        "stage": outcome.stage.value,
        "fault": outcome.fault.value,
        "message": tried.record.shown_evidence.message,
        "device": tried.device,
        "intervals_ns": dict(tried.intervals_ns),
        "objections": [{"check": check, "evidence": evidence} for check, evidence in tried.objections],
        "rows": list(tried.rows),
        "record": str(tried.record_path),
        "matrix": str(tried.matrix),
    }


def tried_lines(tried: TriedKernel) -> Iterator[str]:
    """Yield the lines that ``kernel-matrix try`` prints."""
    record = tried.record
    cell, outcome = record.cell, record.outcome
    yield f"{cell.candidate} {cell.dtype.value} on {tried.device}"
    if tried.remark:
        yield _field("note", tried.remark)
    status = outcome.status.value
    yield _field("status", status if outcome.fault is Fault.NONE else f"{status} at {outcome.stage.value}")
    if outcome.fault is not Fault.NONE:
        yield from _failure_lines(tried)
    else:
        for row in tried.rows:
            yield from _workload_lines(row, tried.intervals_ns)
        if not any(INTERPRETED in row["labels"] for row in tried.rows):
            for check, evidence in tried.objections:
                yield _field("audit", f"{check}: {evidence}")
    yield _field("record", str(tried.record_path))
    yield _field("next", _next_step(tried))


def _failure_lines(tried: TriedKernel) -> Iterator[str]:
    evidence, fault = tried.record.shown_evidence, tried.record.outcome.fault
    yield _field("fault", fault.value)
    yield _field("why", evidence.message or "no reason is recorded")
    if evidence.expected:
        where = f"[{', '.join(map(str, evidence.index))}]" if evidence.index else ""
        worst = f"{where} expected {evidence.expected}, got {evidence.got}"
        limit = f", allowed error {evidence.allowed:.3g}" if evidence.allowed is not None else ""
        yield _field("worst", f"{worst}{limit}".strip())
    if evidence.mode:
        yield _field("inputs", f"{evidence.mode}, trial {evidence.trial}, shapes {evidence.workload}")
    for line in evidence.log.rstrip().splitlines()[-_LOG_LINES:]:
        yield f"  | {line}"


def _workload_lines(row: Mapping[str, Any], intervals_ns: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    from kernel_matrix.api.wording import describe_label, labels_worth_printing

    yield _field("shapes", row["workload"])
    if INTERPRETED not in row["labels"]:
        yield from _speed_lines(row, intervals_ns)
    for label in labels_worth_printing([row]):
        yield _field("label", f"{label}: {describe_label(label)}")


def _speed_lines(row: Mapping[str, Any], intervals_ns: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    from kernel_matrix.api.wording import explain_reason

    if row["candidate_median_ns"] is not None:
        low, high = intervals_ns.get(row["workload"], (None, None))
        interval = "" if low is None or high is None else f"  ({_us(low)} to {_us(high)}, 95 % of medians)"
        yield _field("time", f"{_us(row['candidate_median_ns'])} µs{interval}")
    if row["baseline_median_ns"] is not None:
        yield _field("eager", f"{_us(row['baseline_median_ns'])} µs")
    if row["speedup"] is not None:
        limit = row["speedup_limit"]
        bound = "" if limit is None else f"  (the judge's own clock allows {limit:.2f}x at most)"
        yield _field("speed-up", f"{row['speedup']:.2f}x{bound}")
    if row["verdict_low"] is not None:
        yield _field("", f"{row['verdict_low']:.3f}x to {row['verdict_high']:.3f}x between sessions, 95 %")
    if row["share_of_peak"] is not None:
        yield _field("reached", _reached(row))
    if row["bus_bytes_per_s"] is not None:
        yield _field("exchanged", _exchanged(row))
    if row["verdict"] is not None:
        yield _field("verdict", f"{row['verdict']}, grade {row['grade']}")
        yield _field("", explain_reason(row["verdict_reason"], row["verdict_figure"]))


def _reached(row: Mapping[str, Any]) -> str:
    """Write for example ``2,870 GB/s, 86 % of the memory bandwidth``."""
    if row["bytes_share_of_peak"] == row["share_of_peak"]:
        return f"{row['bytes_per_s'] / 1e9:,.0f} GB/s, {row['share_of_peak']:.0%} of the memory bandwidth"
    return f"{row['flops_per_s'] / 1e12:,.3g} TFLOP/s, {row['share_of_peak']:.0%} of the peak rate in {row['dtype']}"


def _exchanged(row: Mapping[str, Any]) -> str:
    """Write for example ``312 GB/s bus bandwidth, 69 % of the link``."""
    share = "" if row["link_share_of_peak"] is None else f", {row['link_share_of_peak']:.0%} of the link"
    return f"{row['bus_bytes_per_s'] / 1e9:,.3g} GB/s bus bandwidth{share}"


def _next_step(tried: TriedKernel) -> str:
    outcome, sessions = tried.record.outcome, len(tried.record.sessions)
    if outcome.fault is Fault.INFRA:
        return "kernel-matrix doctor looks for the cause on this machine"
    if outcome.fault is Fault.PROBLEM:
        return "kernel-matrix docs problems says what is asked of a problem"
    if outcome.fault is not Fault.NONE:
        return "mend it and try again; the record has all evidence"
    if any(INTERPRETED in row["labels"] for row in tried.rows):
        return "on a machine with a GPU the same command measures its speed"
    if sessions == 1:
        return "--sessions 5 measures how much fresh processes differ"
    return "kernel-matrix init writes a matrix, for more dtypes, shapes, toolchains and GPUs"


def _us(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e3:,.1f}"


def _field(name: str, text: str) -> str:
    return f"  {name:9}{text}"
