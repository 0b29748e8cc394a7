"""Metrics of a night, read back by Prometheus's own parser."""

from __future__ import annotations

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Status
from kernel_matrix.nightly.night_summary import NightEnd, NightProgress, NightSummary
from kernel_matrix.nightly.prometheus import check_metrics_file, metrics_text, write_metrics

parser = pytest.importorskip("prometheus_client.parser")

DOCUMENT = {
    "began_at": "2026-03-01T22:00:00+00:00",
    "ended_at": "2026-03-02T05:30:00.250+00:00",
    "end": "cut",
    "planned": 9,
    "measured": 7,
    "left": 2,
    "statuses": {"passed": 6, "gpu_busy": 1},
    "comparison": {"counts": {"regression": 2, "equivalent": 4}},
    "troubles": ["one"],
    "exit_code": 5,
}


def samples(text):
    """Name and own labels → value."""
    found = {}
    for family in parser.text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key != "matrix"}
            key = sample.name.removeprefix("kernel_matrix_night_"), *labels.values()
            assert key not in found
            found[key] = sample.value
    return found


def test_a_night_is_what_prometheus_reads():
    found = samples(metrics_text("made", DOCUMENT))
    assert found["start_time_seconds",] == 1772402400
    assert found["duration_seconds",] == 7.5 * 3600 + 0.25
    assert (found["exit_code",], found["gpu_busy",], found["troubles",]) == (5, 0, 1)
    assert (found["end", "cut"], found["end", "complete"]) == (1, 0)
    assert [found["progress_cells", name] for name in ("planned", "measured", "left")] == [9, 7, 2]
    assert {key[1] for key in found if key[0] == "cells"} == {status.value for status in Status}
    assert (found["cells", "passed"], found["cells", "gpu_busy"], found["cells", "timeout"]) == (6, 1, 0)
    assert (found["compared",], found["compared_rows", "regression"], found["compared_rows", "broke"]) == (1, 2, 0)


def test_a_night_without_comparison_claims_no_zero():
    found = samples(metrics_text("made", {**DOCUMENT, "comparison": None, "exit_code": 75}))
    assert (found["compared",], found["gpu_busy",]) == (0, 1)
    assert not [key for key in found if key[0] == "compared_rows"]


def test_a_summary_has_what_the_metrics_need(tmp_path):
    measured = NightProgress(end=NightEnd.COMPLETE, planned=2, left=0, statuses={Status.PASSED: 2})
    times = {"began_at": DOCUMENT["began_at"], "ended_at": DOCUMENT["ended_at"], "until": ""}
    summary = NightSummary(matrix="made", night="x", folder=tmp_path, measured=measured, **times)
    assert samples(metrics_text("made", summary.document()))["cells", "passed"] == 2


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a\\nb", '"} 1\nevil{a="', "größer"])
def test_names_of_matrices_are_escaped(name):
    families = list(parser.text_string_to_metric_families(metrics_text(name, DOCUMENT)))
    assert {sample.labels["matrix"] for family in families for sample in family.samples} == {name}
    assert {family.name.startswith("kernel_matrix_night_") for family in families} == {True}


def test_the_file_is_replaced_whole_and_nothing_is_left(tmp_path):
    file = tmp_path / "made.prom"
    file.write_text("old")
    assert write_metrics(file, "made", DOCUMENT) == ""
    assert file.read_text() == metrics_text("made", DOCUMENT)
    assert [path.name for path in tmp_path.iterdir()] == ["made.prom"]


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    said = write_metrics(tmp_path / "file" / "made.prom", "made", DOCUMENT)
    assert said.startswith("--prometheus: ")
    assert said.count("\n") == 0


def test_a_name_that_no_collector_reads_is_refused(tmp_path):
    check_metrics_file(tmp_path / "made.prom")
    with pytest.raises(UsageError, match=r"end in \.prom"):
        check_metrics_file(tmp_path / "made.txt")
