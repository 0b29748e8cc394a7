"""``kernel-matrix results``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kernel_matrix.api.wording import (
    clocks_match_policy,
    describe_clocks,
    describe_discards,
    describe_label,
    describe_reason,
    describe_shapes,
    describe_verdict,
    discards,
    labels_worth_printing,
    printable,
)
from kernel_matrix.cli.global_options import is_quiet, is_verbose
from kernel_matrix.cli.opened_tables import nothing_matches, opened
from kernel_matrix.cli.options import Filter
from kernel_matrix.cli.output import console, write_cut_line, write_line
from kernel_matrix.cli.table_options import TableOptions, table_verb
from kernel_matrix.cli.table_writer import Row, TableColumn, on_request, write_table
from kernel_matrix.model.enums import ClockState, Fault, Status

_NOTES = 8
"""Reasons that are printed one by one."""


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    @table_verb
    def results(
        folder: Annotated[
            Path | None,
            typer.Argument(
                metavar="[FOLDER]",
                help="Merged tables, result folder or packed set; default: the folder below results that changed last.",
                show_default=False,
            ),
        ] = None,
        *,
        filter_: Filter = None,
        run: Annotated[
            str, typer.Option("--run", metavar="ID", help="Only what this run found; latest: the last one.")
        ] = "",
        table: TableOptions,
    ) -> None:
        """Print the latest result of every cell, and why cells failed."""
        from kernel_matrix.api.results import newest_results

        shown = folder or newest_results()
        with opened([shown]) as found:
            terms = _terms(found.latest, filter_ or (), run)
            rows = found.latest(*terms).to_dicts()
            if not rows:
                raise nothing_matches(found, terms)
        if not (table.for_people and is_quiet()):
            write_table(rows, _columns(rows), table)
        if table.for_people:
            _print_notes(rows)
            write_line(_summary(rows))
            if folder is None:
                write_line(f"shown: {shown} (kernel-matrix results FOLDER shows another)")


def _terms(latest: Callable[..., Any], filters: Sequence[str], run: str) -> list[str]:
    """Return the filters, together with that of ``--run``."""
    if run == "latest":
        run = max(latest()["run_id"].drop_nulls(), default="")
    return [*filters, *([f"run={run}"] if run else [])]


# ---- Columns


def _columns(rows: Sequence[Row]) -> list[TableColumn]:
    """Return the columns for people, then what else a row has, on request."""
    shown = [*_identity(), *_times(), *_conditions()]
    return [*shown, *on_request(rows[0], shown)]


def _identity() -> list[TableColumn]:
    return [
        TableColumn(name="problem", text=_problem, shortest=10),
        TableColumn(name="workload", on_request=True, in_csv=True),  # in brackets behind the problem for people
        TableColumn(
            name="candidate", text=lambda row: str(row["candidate"]).removeprefix(f"{row['problem']}/"), shortest=10
        ),
        TableColumn(name="dtype", text=_known("dtype")),
        TableColumn(name="gpu", text=_known("gpu"), shortest=6),
        TableColumn(name="toolchain", text=_known("toolchain"), rank=6, shortest=6),
        TableColumn(name="status", text=_known("status"), shortest=9),
    ]


def _times() -> list[TableColumn]:
    return [
        _number("median_us", "median µs", "candidate_median_ns", "{:.1f}", 1e3),
        _number("baseline_us", "baseline µs", "baseline_median_ns", "{:.1f}", 1e3, rank=5),
        _number("speedup", "speed-up", "speedup", "{:.2f}×"),
        TableColumn(name="plus_minus", heading="±", value=_plus_minus, text=_plus_minus_text, is_number=True, rank=2),
        TableColumn(
            name="verdict", text=lambda row: describe_verdict(row["verdict"], row["grade"]), rank=1, shortest=8
        ),
        TableColumn(
            name="why",
            value=lambda row: row["verdict_reason"],
            text=lambda row: describe_reason(row["verdict_reason"], row["verdict_figure"]),
            rank=7,
            shortest=12,
        ),
        _number("gb_per_s", "GB/s", "bytes_per_s", "{:,.4g}", 1e9, rank=4),
        _number("percent_of_peak", "of peak", "share_of_peak", "{:.1f} %", 0.01, rank=3),
        _number("bus_gb_per_s", "bus GB/s", "bus_bytes_per_s", "{:,.4g}", 1e9, on_request=True),
        _number("percent_of_link", "of link", "link_share_of_peak", "{:.1f} %", 0.01, on_request=True),
    ]


def _conditions() -> list[TableColumn]:
    return [
        TableColumn(name="samples", heading="n", text=lambda row: str(row["samples"] or ""), is_number=True, rank=8),
        TableColumn(name="clocks", value=_clocks, text=_clocks, rank=9, shortest=8),
        TableColumn(name="memory", heading="extra MiB", value=_memory, text=_memory, rank=10),
        TableColumn(name="discarded", value=_discarded, text=_discarded, rank=11, shortest=10),
    ]


def _number(
    name: str, heading: str, key: str, form: str, divisor: float = 1.0, *, rank: int = 0, on_request: bool = False
) -> TableColumn:
    """Return a column of the value of ``key`` over ``divisor``; unknown values are left empty."""

    def value(row: Row) -> float | None:
        return None if row[key] is None else row[key] / divisor

    def text(row: Row) -> str:
        return "" if row[key] is None else form.format(row[key] / divisor)

    return TableColumn(
        name=name, heading=heading, value=value, text=text, is_number=True, rank=rank, on_request=on_request
    )


def _known(name: str) -> Callable[[Row], str]:
    return lambda row: row[name] or ""


def _problem(row: Row) -> str:
    return f"{row['problem']} {describe_shapes(row)}".rstrip()


def _plus_minus(row: Row) -> float | None:
    """Return how far the ends of the speed-up's interval are from it at most, as a share of it."""
    best, low, high = row["verdict_speedup"], row["verdict_low"], row["verdict_high"]
    return None if None in (best, low, high) else max(high / best - 1, 1 - low / best)


def _plus_minus_text(row: Row) -> str:
    share = _plus_minus(row)
    return "" if share is None else f"±{100 * share:.1f} %"


def _memory(row: Row) -> str:
    """Write the device memory that candidate and baseline took beyond inputs and outputs, in MiB."""
    peaks = (row["candidate_memory_bytes"], row["baseline_memory_bytes"])
    return "" if None in peaks else " / ".join(f"{peak / (1 << 20):,.0f}" for peak in peaks)


def _discarded(row: Row) -> str:
    return describe_discards(discards(row))


def _clocks(row: Row) -> str:
    return describe_clocks(row["clock_state"], row["clock_policy"])


# ---- Notes and summary


def _print_notes(rows: Sequence[Row]) -> None:
    for row in rows:
        if row["fault"] != Fault.NONE.value and (is_verbose() or not _is_expected(row)):
            where = f"{row['candidate']} {row['dtype']} {row['gpu']} {row['toolchain']}"
            why = f"{row['status']} at {row['stage']}, fault {row['fault']}: {row['message'] or 'no evidence'}"
            write_cut_line(f"{where}: {why}")
    for note in _notes(rows):
        console().print(printable(note), markup=False)


def _is_expected(row: Row) -> bool:
    return bool(row["expect"] == row["status"])


def _summary(rows: Sequence[Row]) -> str:
    """Write for example ``53 results: 41 passed, 11 failed as expected, 1 did not``."""
    failures = [row for row in rows if row["fault"] != Fault.NONE.value]
    expected = sum(map(_is_expected, failures))
    compiled = sum(row["status"] == Status.COMPILED.value for row in rows)
    parts = [
        f"{len(rows) - len(failures) - compiled:,} passed",
        *([f"{compiled:,} compiled"] if compiled else []),
        *([f"{expected:,} failed as expected"] if expected else []),
        f"{len(failures) - expected:,} did not",
    ]
    return f"{_results(len(rows))}: {', '.join(parts)}"


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield notes on the table: labels, kernels that cannot be launched, clocks and GPUs in a wrong state."""
    for label, number in labels_worth_printing(rows).items():
        yield f"{label}, {_results(number)}: {describe_label(label)}"
    too_large = sum(row["launchable"] is False for row in rows)
    if too_large:
        yield f"a kernel builds and cannot be launched, {_results(too_large)}: the records say why (build)"
    reasons = Counter((_clocks(row), row["clock_reason"]) for row in rows if _clocks_need_a_note(row)).most_common()
    most = None if is_verbose() else _NOTES
    for (said, reason), number in reasons[:most]:
        yield f"clocks {said}, {_results(number)}: {reason or 'no reason was recorded'}"
    if most is not None and len(reasons) > most:
        yield f"… and {len(reasons) - most} more reasons (-v)"
    not_reset = sum(row["clock_reset"] == "failed" for row in rows)
    if not_reset:
        yield f"clocks not given back after {_results(not_reset)}: run `kernel-matrix sweep` on that host"
    quarantined = sum(bool(row["quarantined"]) for row in rows)
    if quarantined:
        yield f"GPU quarantined for the rest of its run after {_results(quarantined)}: the records say why (health)"


def _results(number: int) -> str:
    return "1 result" if number == 1 else f"{number:,} results"


def _clocks_need_a_note(row: Mapping[str, Any]) -> bool:
    state: str = row["clock_state"]
    return state == ClockState.THROTTLED.value or not clocks_match_policy(state, row["clock_policy"])
