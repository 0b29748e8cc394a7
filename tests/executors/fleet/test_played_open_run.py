"""When an open run over a fleet submits another job, whose jobs do what they are ordered."""

from __future__ import annotations

import logging

import pytest

from kernel_matrix.executors.events import EventKind
from kernel_matrix.executors.fleet import open_run
from kernel_matrix.executors.fleet.open_run import FleetOpenRun, SentCell
from kernel_matrix.executors.fleet.site_run import SiteRun
from tests.executors.fleet.planned import cpu_cells
from tests.executors.fleet.test_played_run import HERE, Played

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """Return a function that sends three cells to jobs that do what they are ordered; what became of each cell."""
    monkeypatch.setattr(open_run, "_LOOK_EVERY_S", 0.05)

    def run(*orders):
        cells = cpu_cells(3)
        sites = Played(tmp_path, cells, *orders).sites
        fleet = FleetOpenRun(sites, "run-1", release_after_s=100.0)
        fleet.add([SentCell(cell, {}, frozenset({HERE})) for cell in cells])
        fleet.end()
        with fleet.running() as events:
            return {event.cell.id: event.happening for event in events}, len(list((tmp_path / "orders").iterdir()))

    return run


def test_kind_of_gpu_rests_after_three_fruitless_jobs(ended, caplog, monkeypatch):
    monkeypatch.setattr(open_run, "_REST_S", 0.5)
    happened, left = ended("fails", "fails", "fails", "serves")
    # The cells of a lost job are judged one by one; each of the next two jobs loses one.
    assert sorted(happened.values()) == [EventKind.CELL_ENDED, EventKind.CELL_SKIPPED, EventKind.CELL_SKIPPED]
    assert left == 0
    (message,) = (record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    assert message.startswith("here/cpu: 3 jobs in a row without a record; it rests")


def test_job_that_never_began_is_no_fruitless_one(ended, caplog, monkeypatch):
    usual = SiteRun.look

    def look(site):
        news = usual(site)
        for chunk in (*site.active.values(), *(chunk for chunk, _ in news.ended)):
            chunk.has_begun &= chunk.number >= 4
        return news

    monkeypatch.setattr(SiteRun, "look", look)
    monkeypatch.setattr(open_run, "_REST_UNBEGUN_S", 0.1)
    happened, left = ended(*["fails"] * 4, "serves")
    assert [*happened.values()] == [EventKind.CELL_ENDED] * 3
    assert left == 0
    assert not [record for record in caplog.records if record.levelno == logging.ERROR]
