"""``kernel-matrix results``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kernel_matrix.api.wording import (
    clocks_match_policy,
    describe_clocks,
    describe_discards,
    describe_label,
    describe_reason,
    describe_verdict,
    discards,
    labels_worth_printing,
    printable,
)
from kernel_matrix.cli.opened_tables import opened
from kernel_matrix.cli.options import Json
from kernel_matrix.cli.output import console, print_json
from kernel_matrix.errors import NothingSelectedError
from kernel_matrix.model.enums import ClockState, Fault, Status

if TYPE_CHECKING:
    from rich.table import Table

_NS_PER_US = 1000.0
_NOTES = 8
"""Reasons that are printed one by one."""


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def results(
        folder: Path = typer.Argument(Path("results"), help="Merged tables, or a result folder."),
        filters: list[str] = typer.Option(
            [], "--filter", metavar="KEY=GLOB[,GLOB]", help="Keep matching cells; != drops them. Repeat to narrow."
        ),
        as_json: Json = False,
    ) -> None:
        """Print the latest result of every cell, and why cells failed."""
        with opened([folder]) as found:
            rows = found.latest(*filters).to_dicts()
        if not rows:
            raise NothingSelectedError(f"no result in {folder} matches", next_step="Loosen --filter or name a folder.")
        if as_json:
            print_json(rows)
        else:
            _print(rows)


def _print(rows: list[dict[str, Any]]) -> None:
    out = console()
    out.print(_table(rows))
    failures = [row for row in rows if row["fault"] != Fault.NONE.value]
    for row in failures:
        where = f"{row['candidate']} {row['dtype']} {row['gpu']} {row['toolchain']}"
        why = f"{row['status']} at {row['stage']}, fault {row['fault']}: {row['message'] or 'no evidence'}"
        out.print(printable(f"{where}: {why}"), markup=False, overflow="ellipsis", no_wrap=True)
    for note in _notes(rows):
        out.print(printable(note), markup=False)
    compiled = sum(row["status"] == Status.COMPILED.value for row in rows)
    passed = f"{len(rows) - len(failures) - compiled} passed"
    built = f", {compiled} compiled" if compiled else ""
    out.print(f"{len(rows)} results: {passed}{built}, {len(failures)} did not")


def _notes(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield notes on the table: labels, kernels that cannot be launched, clocks and GPUs in a wrong state."""
    for label, number in labels_worth_printing(rows).items():
        yield f"{label}, {_results(number)}: {describe_label(label)}"
    too_large = sum(row["launchable"] is False for row in rows)
    if too_large:
        yield f"a kernel builds and cannot be launched, {_results(too_large)}: the records say why (build)"
    reasons = Counter((_clocks(row), row["clock_reason"]) for row in rows if _clocks_need_a_note(row)).most_common()
    for (said, reason), number in reasons[:_NOTES]:
        yield f"clocks {said}, {_results(number)}: {reason or 'no reason was recorded'}"
    if len(reasons) > _NOTES:
        yield f"… and {len(reasons) - _NOTES} more reasons, all in --json"
    not_reset = sum(row["clock_reset"] == "failed" for row in rows)
    if not_reset:
        yield f"clocks not given back after {_results(not_reset)}: run `kernel-matrix sweep` on that host"
    quarantined = sum(bool(row["quarantined"]) for row in rows)
    if quarantined:
        yield f"GPU quarantined for the rest of its run after {_results(quarantined)}: the records say why (health)"


def _results(number: int) -> str:
    return "1 result" if number == 1 else f"{number} results"


def _clocks(row: Mapping[str, Any]) -> str:
    return describe_clocks(row["clock_state"], row["clock_policy"])


def _clocks_need_a_note(row: Mapping[str, Any]) -> bool:
    state: str = row["clock_state"]
    return state == ClockState.THROTTLED.value or not clocks_match_policy(state, row["clock_policy"])


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("problem", "candidate", "dtype", "gpu", "toolchain", "status"):
        table.add_column(name, no_wrap=True)
    for name in ("median µs", "baseline µs", "speed-up"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("verdict", "why"):
        table.add_column(name, no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("clocks", no_wrap=True)
    further = {
        name: texts
        for name, texts in (
            ("memory MiB", [_memory(row) for row in rows]),
            ("discarded", [describe_discards(discards(row)) for row in rows]),
        )
        if any(texts)
    }
    for name in further:
        table.add_column(name, no_wrap=True)
    for index, row in enumerate(rows):
        texts = (*_texts(row), *(column[index] for column in further.values()))
        table.add_row(*(Text(printable(text)) for text in texts))
    return table


def _memory(row: Mapping[str, Any]) -> str:
    """Write the peaks of device memory of candidate and baseline, in MiB."""
    peaks = (row["candidate_memory_bytes"], row["baseline_memory_bytes"])
    return "" if None in peaks else " / ".join(f"{peak / (1 << 20):,.0f}" for peak in peaks)


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    workload = f" [{row['workload']}]" if row["workload"] else ""
    return (
        f"{row['problem']}{workload}",
        str(row["candidate"]).removeprefix(f"{row['problem']}/"),
        *(row[name] or "" for name in ("dtype", "gpu", "toolchain", "status")),
        _microseconds(row["candidate_median_ns"]),
        _microseconds(row["baseline_median_ns"]),
        "" if row["speedup"] is None else f"{row['speedup']:.2f}×",
        describe_verdict(row["verdict"], row["grade"]),
        describe_reason(row["verdict_reason"], row["verdict_figure"]),
        str(row["samples"] or ""),
        _clocks(row),
    )


def _microseconds(nanoseconds: float | None) -> str:
    return "" if nanoseconds is None else f"{nanoseconds / _NS_PER_US:.1f}"
