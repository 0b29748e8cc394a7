"""What is made of a night's records, whatever became of the measuring."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, timezone

import pytest

from kernel_matrix.analysis.accepted import Acceptance
from kernel_matrix.analysis.tables import open_tables
from kernel_matrix.model.enums import Status
from kernel_matrix.nightly import finish
from kernel_matrix.nightly.baselines import set_baseline, verified_tables
from kernel_matrix.nightly.finish import BaselineChoice, Night, begin_night, end_night
from kernel_matrix.nightly.night_summary import NightEnd, NightProgress
from kernel_matrix.nightly.paths import NightPaths, tables_of
from kernel_matrix.nightly.start import new_night
from kernel_matrix.nightly.state import read_state
from kernel_matrix.results.store import RecordStore
from tests.results.factory import cell_id, failed_record, make_record, make_trace, put, traced

NOW = datetime(2026, 3, 2, 6, 30, tzinfo=timezone.utc)
COMPLETE = NightProgress(end=NightEnd.COMPLETE, planned=2, left=0, statuses={Status.PASSED: 2})


def made(number):
    """A record of a cell that passed, one of several."""
    return make_record(cell_id(number), cell=coordinates(number))


def broke(number):
    return failed_record(cell_id(number), status=Status.INCORRECT_VALUES, cell=coordinates(number))


def coordinates(number):
    return replace(make_record().cell, candidate=f"softmax/number_{number}")


@pytest.fixture
def base(tmp_path):
    """A baseline of two cells that passed."""
    for number in range(2):
        put(tmp_path / "before" / "records", made(number))
    set_baseline(tmp_path / "results", "usual", tmp_path / "before", made_at="2026-03-01T06:00:00+00:00")
    return tmp_path / "results"


def begun(results, *, accepted=(), report=None):
    """A night that is compared with the baseline ``usual``."""
    places = NightPaths(results, "made")
    baseline, tables = verified_tables(results, "usual")
    against = BaselineChoice(baseline=baseline, tables=tables, accepted=accepted)
    name = new_night(places, NOW.date())
    night = Night(
        places=places, name=name, began_at="2026-03-01T22:00:00+00:00", until="", against=against, report=report
    )
    begin_night(night, COMPLETE.planned)
    return night


def held(results, records, *, measured=COMPLETE, **wishes):
    night = begun(results, **wishes)
    for record in records:
        put(night.folder / "records", record)
    return night, end_night(night, measured, now=NOW)


def test_what_broke_is_exit_5_and_told_first(base):
    broken = broke(1)
    night, summary = held(base, [made(0), broken])
    assert summary.exit_code == 5
    assert summary.text.splitlines()[0] == "made 2026-03-02: 1 broke, of 2 rows compared"
    assert read_state(night.places.state).exit_code == 5
    document = json.loads(json.dumps(summary.document(), allow_nan=False))
    assert document["comparison"]["counts"]["broke"] == 1
    assert document["baseline"]["name"] == "usual"


def test_nothing_to_tell_is_exit_0(base):
    _, summary = held(base, [made(0), made(1)])
    assert (summary.exit_code, summary.troubles) == (0, ())
    assert summary.report is not None
    assert summary.report.is_file()


def test_night_of_other_cells_is_exit_6_and_says_so_first(base):
    _, summary = held(base, [made(2), made(3)])
    assert summary.exit_code == 6
    first = summary.text.splitlines()[0]
    assert first.startswith("made 2026-03-02: nothing could be compared: of 4 rows 4 could not be compared: 2 in ")
    assert summary.document()["comparison"]["answer"] == "not_compared"


def test_the_page_of_a_night_has_its_telemetry(base):
    record = traced(made(0))
    night = begun(base)
    RecordStore(night.folder).save(record, make_trace(7))
    end_night(night, COMPLETE, now=NOW)
    looks = open_tables([tables_of(night.folder)]).telemetry
    assert looks is not None
    assert looks.select("cell_id").collect()["cell_id"].to_list() == [record.cell_id] * 7


def test_a_failing_machine_counts_less_than_what_broke(base):
    infra = NightProgress(end=NightEnd.INCOMPLETE, planned=2, left=1, exit_code=4)
    assert held(base, [made(0)], measured=infra)[1].exit_code == 4
    broken = broke(1)
    assert held(base, [broken], measured=infra)[1].exit_code == 5
    busy = NightProgress(end=NightEnd.INCOMPLETE, planned=2, left=2, exit_code=75)
    assert held(base, [], measured=busy)[1].exit_code == 75


def test_a_night_without_records_says_so(base):
    night, summary = held(base, [], measured=NightProgress(end=NightEnd.CUT, planned=2, left=2))
    assert summary.exit_code == 6
    assert summary.text.startswith("made 2026-03-02: nothing could be compared with baseline usual\n")
    assert "Nothing was measured" in summary.text
    assert not tables_of(night.folder).exists()


def test_stopped_night_with_many_records_is_kept_unmerged(base, monkeypatch):
    monkeypatch.setattr(finish, "QUICK", 1)
    stopped = NightProgress(end=NightEnd.STOPPED, planned=2, left=0)
    night, summary = held(base, [made(0), made(1)], measured=stopped)
    assert "were neither merged nor compared" in summary.text
    assert not tables_of(night.folder).exists()
    assert read_state(night.places.state).end == "stopped"


def test_unwritable_report_is_reported_and_comparison_is_kept(base, tmp_path):
    (tmp_path / "file").write_text("")
    records = [made(0), made(1)]
    _, summary = held(base, records, report=tmp_path / "file" / "report.html")
    assert summary.report is None
    assert summary.comparison is not None
    assert (summary.exit_code, len(summary.troubles)) == (0, 1)
    assert summary.troubles[0].startswith("the report failed: ")


def test_what_cannot_be_merged_is_exit_4_and_told(base):
    night, _ = held(base, [], measured=NightProgress(end=NightEnd.CUT, planned=1, left=1))
    put(night.folder / "records", make_record())
    tables_of(night.folder).write_text("in the way")
    summary = end_night(night, COMPLETE, now=NOW)
    assert summary.exit_code == 4
    assert summary.troubles[0].startswith("merging failed: ")
    assert read_state(night.places.state).exit_code == 4


def test_hostile_names_reach_no_terminal(base):
    broken = broke(1)
    cell = broken.cell
    named = type(cell)(**{**{name: getattr(cell, name) for name in cell.__slots__}, "candidate": "x/\x1b[31m\n\0evil"})
    for_base = make_record(cell_id(1), cell=named)
    put(base.parent / "before" / "records", for_base)
    set_baseline(base, "usual", base.parent / "before", made_at="x", force=True)
    _, summary = held(base, [failed_record(cell_id(1), status=Status.INCORRECT_VALUES, cell=named)])
    assert "evil" in summary.text
    assert not {"\x1b", "\0"} & set(summary.text)


def test_accepted_changes_are_handed_to_the_comparison(base, monkeypatch):
    seen = []
    plain = finish.compare
    monkeypatch.setattr(finish, "compare", lambda *args, **more: seen.append(more) or plain(*args, **more))
    known = Acceptance(globs={"candidate": "*"}, until=date(2026, 12, 31), reason="known")
    held(base, [made(0)], accepted=(known,))
    assert (seen[0]["accepted"], seen[0]["today"]) == ((known,), date(2026, 3, 2))


def test_nights_of_one_day_get_numbers(tmp_path):
    places = NightPaths(tmp_path, "made")
    assert [new_night(places, date(2026, 3, 1)) for _ in range(3)] == ["2026-03-01", "2026-03-01.2", "2026-03-01.3"]
