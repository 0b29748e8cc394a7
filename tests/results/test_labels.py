"""The registry of labels, and which label a row of a table gets and a reader sees."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest

from kernel_matrix.results.judged import times_of
from kernel_matrix.results.labels import (
    COMMON,
    LABELS,
    LabelClass,
    LabelScope,
    describe_label,
    labels_of_row,
    labels_worth_printing,
    warns,
)
from kernel_matrix.results.record import record_to_json
from kernel_matrix.results.rows import cell_rows, host_row
from tests.results.emitted_labels import emitted_labels, labels_in
from tests.results.factory import make_record, session, workload


def rows(*labelled: list[str], plain: int = 0, status: str = "passed") -> list[dict[str, Any]]:
    return [{"labels": labels, "status": status} for labels in (*labelled, *([] for _ in range(plain)))]


def old_workload(*, blocks: bool = True, low: bool | None = None, told: bool | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"blocks": [1] if blocks else []}
    if low is not None:
        found["two_clocks"] = {"low_resolution": low}
    if told is not None:
        found["traits"] = {"rejects_lower_precision": told}
    return found


def labels_of_cell(record: Any) -> list[list[str]]:
    document = record_to_json(record)
    return [row["labels"] for row in cell_rows(document, times_of(document), key=0, host=host_row(document), run=None)]


def test_registry_has_every_label_that_the_code_emits() -> None:
    emitted = dict(emitted_labels())
    assert {label: place for label, place in emitted.items() if label not in LABELS} == {}
    assert set(LABELS) - set(emitted) == set(), "no code emits these"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("NEW = 'new'\nself.timing.labels.append(NEW if slow else 'other')", {"new", "other"}),
        ("self.labels += (f'{NEW}:{client.name}', *more.labels)\nNEW = 'new'", {"new"}),
        ("def named(name):\n    return f'new:{name}'\nlabels.append(named(x))", {"new"}),
        ("columns, labels = read()\ndef read():\n    return {}, ('new',)", {"new"}),
        ("SessionReport(labels=tuple(dict.fromkeys(('new', *self._labels))))", {"new"}),
        ("label = f'new:{x}'\nself.labels.append(label)", {"new"}),
        ("log.label_last('new')", {"new"}),
        ("cell['labels'] += ('new',)", {"new"}),
    ],
)
def test_search_finds_a_label_in_each_form(source: str, found: set[str]) -> None:
    assert set(labels_in(ast.parse(source))) == found


def test_search_refuses_a_form_it_does_not_know() -> None:
    with pytest.raises(AssertionError, match="not known"):
        list(labels_in(ast.parse("labels.append(3 * word)")))


@pytest.mark.parametrize("name", LABELS)
def test_label_has_sentences_that_a_line_can_join(name: str) -> None:
    label = LABELS[name]
    assert label.meaning
    assert not label.meaning.endswith(".")
    assert label.advice.endswith(".")
    assert label.advice[0].isupper()
    assert describe_label(f"{name}:subject") == f"{label.kind.value}: {label.meaning}. {label.advice}"


def test_registry_is_sorted_and_uses_each_class_and_scope() -> None:
    assert list(LABELS) == sorted(LABELS)
    assert {label.kind for label in LABELS.values()} == set(LabelClass)
    assert {label.scope for label in LABELS.values()} == set(LabelScope)


def test_unknown_label_has_no_description() -> None:
    assert (describe_label("of a later version"), warns("of a later version")) == ("", False)


def test_information_is_printed_below_a_tenth_of_passed() -> None:
    one_in_ten, one_in_eleven = rows(["budget_reached"], plain=9), rows(["budget_reached"], plain=10)
    assert COMMON == 0.1
    assert labels_worth_printing(one_in_ten) == {}
    assert labels_worth_printing(one_in_eleven) == {"budget_reached": 1}


def test_information_share_counts_only_passed_rows() -> None:
    failed = rows(["budget_reached"], ["budget_reached"], status="timeout")
    assert labels_worth_printing([*failed, *rows(plain=1)]) == {"budget_reached": 2}
    assert labels_worth_printing([*failed, *rows(["budget_reached"], plain=5)]) == {}


def test_other_classes_are_printed_however_common() -> None:
    common = rows(*[["unsteady", "interpreted", "budget_reached", "not_a_label"]] * 5)
    assert labels_worth_printing(common) == {"interpreted": 5, "unsteady": 5}


def test_row_has_labels_of_its_workload_and_session() -> None:
    first, second = {"labels": ["unsteady"]}, {"labels": []}
    about = {"labels": ["no_trace"]}
    assert [list(labels_of_row(about, one)) for one in (first, second)] == [["unsteady", "no_trace"], ["no_trace"]]


@pytest.mark.parametrize(
    ("label", "workload_of_old", "fits"),
    [
        ("low_resolution", old_workload(low=True), True),
        ("low_resolution", old_workload(low=False), False),
        ("low_resolution", old_workload(), True),
        ("low_resolution", old_workload(blocks=False), False),
        ("budget_reached", old_workload(blocks=False), False),
        ("budget_reached", old_workload(), True),
        ("precision_blind", old_workload(told=False), True),
        ("precision_blind", old_workload(told=True), False),
        ("precision_blind", old_workload(), True),
        ("insensitive", old_workload(blocks=False), True),
        ("no_trace", old_workload(blocks=False), True),
        ("of_another_version", old_workload(blocks=False), True),
    ],
)
def test_old_session_label_stays_where_it_fits(label: str, workload_of_old: dict[str, Any], *, fits: bool) -> None:
    assert list(labels_of_row({"labels": [label]}, workload_of_old)) == ([label] if fits else [])


def test_cells_row_shows_labels_of_its_own_workload() -> None:
    parts = (replace(workload("small"), labels=("unsteady",)), workload("large"))
    whole = replace(session(workloads=parts), labels=("no_trace",))
    assert labels_of_cell(make_record(sessions=(whole,))) == [["unsteady", "no_trace"], ["no_trace"]]


def test_cells_row_of_an_old_record_shows_what_fits() -> None:
    document = record_to_json(make_record(sessions=(session(workloads=(workload("small"), workload("large"))),)))
    small, large = document["sessions"][0]["workloads"]
    for one in (small, large):
        del one["labels"]
    large["two_clocks"]["low_resolution"] = False
    found = [row["labels"] for row in cell_rows(document, times_of(document), key=0, host=host_row(document), run=None)]
    assert found == [["low_resolution"], []]
