"""JUnit XML for a build server: every cell of a comparison is a test case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from xml.etree import ElementTree as ET

from kernel_matrix.analysis.comparison import FLAGGED, Change, Comparison
from kernel_matrix.model.enums import Fault
from kernel_matrix.report.evidence import evidence, named
from kernel_matrix.report.number_format import one_line
from kernel_matrix.results.descriptions import visible

_SKIPPED: Final = (Change.MISSING, Change.INCONCLUSIVE)


def comparison_junit(comparison: Comparison) -> str:
    """Write the document: one test case per workload of a cell, with the class ``gpu.toolchain``.

    ``failure``: broke, or a regression that is not accepted. ``error``: an infrastructure failure on either side.
    ``skipped``: missing or inconclusive. All others pass, with their evidence as output.
    """
    suite = ET.Element("testsuite", name=_text(f"compare {comparison.base} with {comparison.new}"))
    properties = ET.SubElement(suite, "properties")
    for name, value in (("rules", str(comparison.rules)), ("axis", comparison.axis.value)):
        ET.SubElement(properties, "property", name=name, value=_text(value))
    found = dict.fromkeys(("failure", "error", "skipped"), 0)
    for row in comparison.rows.iter_rows(named=True):
        outcome = _case(suite, row, comparison)
        if outcome is not None:
            found[outcome] += 1
    suite.attrib.update(
        tests=str(comparison.rows.height),
        failures=str(found["failure"]),
        errors=str(found["error"]),
        skipped=str(found["skipped"]),
    )
    notes = [*([str(comparison.event)] if comparison.event else []), *comparison.notes]
    if notes:
        ET.SubElement(suite, "system-out").text = _text("\n".join(notes))
    whole = ET.Element("testsuites")
    whole.append(suite)
    ET.indent(whole)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(whole, encoding="unicode") + "\n"


def _case(suite: ET.Element, row: Mapping[str, Any], comparison: Comparison) -> str | None:
    """Add a test case; returns its kind of outcome, None for one that passes."""
    case = ET.SubElement(suite, "testcase", classname=_text(f"{row['gpu']}.{row['toolchain']}"), name=_text(named(row)))
    change, proof = Change(row["change"]), _text(evidence(row, comparison.rules.of))
    kind = _kind(change, row)
    if kind is None:
        if proof:
            ET.SubElement(case, "system-out").text = f"{change.value}: {proof}"
        return None
    about = ET.SubElement(case, kind, message=f"{change.value}: {_text(one_line(row['reason'])) or proof}")
    if kind != "skipped":
        about.set("type", change.value)
        about.text = proof
    return kind


def _kind(change: Change, row: Mapping[str, Any]) -> str | None:
    if change in FLAGGED:
        return "failure"
    if change is Change.INCONCLUSIVE and Fault.INFRA.value in (row["base_fault"], row["new_fault"]):
        return "error"
    return "skipped" if change in _SKIPPED else None


def _text(text: str) -> str:
    """Return visible text; this leaves out all characters that XML 1.0 forbids even if they are escaped."""
    return visible(text)
