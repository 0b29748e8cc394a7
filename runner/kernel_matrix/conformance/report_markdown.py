"""The report as Markdown, to attach to a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.conformance import CheckState, ConformanceReport
from kernel_matrix.report.markdown_text import plain_text


def to_markdown(report: ConformanceReport) -> str:
    """Return the report as a page: what was proven on what, then a table of checks per part."""
    return "\n".join(_lines(report))


def _lines(report: ConformanceReport) -> Iterator[str]:
    yield f"# Platform {report.platform}: {'passed' if report.passed else 'FAILED'}"
    yield ""
    counts = ", ".join(f"{report.count(state)} {state.value}" for state in CheckState)
    yield f"{counts}; {report.seconds:.0f} s from {report.started_at}{', quick' if report.quick else ''}."
    yield ""
    yield from (f"- {name}: {plain_text(text)}" for name, text in _subject(report) if text)
    for part in report.parts:
        yield ""
        yield f"## {part.name}"
        yield ""
        yield "| check | result | evidence |"
        yield "| --- | --- | --- |"
        for check in part.checks:
            yield f"| {check.name} | {check.state.value} | {plain_text(check.evidence)} |"
    yield ""


def _subject(report: ConformanceReport) -> Iterator[tuple[str, str]]:
    device = report.device
    yield "device", f"{device['name']}, {device['compute_capability'] or 'no compute capability'}"
    yield "driver", device["driver"] or ""
    yield "toolchain", ", ".join(f"{name} {version}" for name, version in report.toolchain.items())
    yield "sandbox", report.sandbox
    yield "host", report.host
    yield "kernel-matrix", f"{report.kernel_matrix}, measurement version {report.measurement_version[:12]}"
