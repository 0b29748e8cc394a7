"""When a run over a fleet stops sending: to a kind of GPU from which nothing comes, and at a cell that kills."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from kernel_matrix.errors import InfrastructureError, StoreError
from kernel_matrix.executors.events import EventKind, RunEvent, RunMessage, RunStatus
from kernel_matrix.executors.fleet import site_run
from kernel_matrix.executors.fleet.fleet_run import FleetOrder, FleetRun, FleetSites
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.fleet import Fleet, Site
from kernel_matrix.fleet.chunks import SlotKind
from kernel_matrix.fleet.dispatcher import MOST_REFUSALS
from kernel_matrix.model.enums import Status
from kernel_matrix.results.store import RecordStore
from tests.executors.fleet.planned import cpu_cells
from tests.results.factory import make_record

HERE = SlotKind("here", "cpu")
ROOT = Path(__file__).parents[3]
PLAYER = Path(__file__).with_name("chunk_player.py")


class Played:
    """A run over this machine, whose chunks do what they are ordered."""

    def __init__(self, folder, cells, *orders, workspace=None, **policy):
        self.told = []
        self.cells, self.store = cells, RecordStore(folder / "home")
        self.orders, self.workspace = folder / "orders", workspace or folder / "workspace"
        self.orders.mkdir()
        for place, order in enumerate(orders):
            (self.orders / f"{place:03}.{order}").touch()
        start = ("env", f"PYTHONPATH={ROOT / 'runner'}:{ROOT}", sys.executable, str(PLAYER), str(self.orders))
        site = Site(name="here", engine="local", sandbox="process", workspace=self.workspace, command=start)
        order = FleetOrder(
            fleet=Fleet(path=folder / "fleet.toml", sites=(site,)),
            matrix=folder / "matrix.toml",
            lock=None,
            slots={cell.id: frozenset({HERE}) for cell in cells},
        )
        self.sites = FleetSites(order, self.store)
        self.run = FleetRun(self.sites, cells, None, self.store, RunPolicy(run_id="run-1", **policy))

    def play(self):
        """Run to the end; return the ids of the cells that ended."""
        with self.run.running() as events:
            for event in events:
                self.told.append(event)
        return self.ids(EventKind.CELL_ENDED)

    def ids(self, happening):
        """Ids of the cells with such an event."""
        return [event.cell.id for event in self.told if isinstance(event, RunEvent) and event.happening is happening]

    def messages(self):
        """Texts of the run's messages."""
        return [event.text for event in self.told if isinstance(event, RunMessage)]

    def leave_chunk(self):
        """Write the folder of a chunk that has recorded its first cell, and whose job is gone; return it."""
        prefix = json.loads((self.store.root / "fleet.json").read_bytes())["job_prefix"]
        folder = self.workspace / prefix / f"{prefix}-run-0-1"
        RecordStore(folder).save(make_record(self.cells[0].id))
        (folder / "chunk.json").write_text(json.dumps({"cell_ids": [cell.id for cell in self.cells]}))
        os.utime(folder / "chunk.json", (0, 0))
        return folder

    def left_orders(self):
        return len(list(self.orders.iterdir()))


def test_kind_of_gpu_is_closed_after_three_fruitless_chunks(tmp_path):
    played = Played(tmp_path, cpu_cells(2), *["fails"] * 5)
    with pytest.raises(
        InfrastructureError, match="2 cells could not be run at any site:\n  here/cpu: 3 chunks in a row"
    ):
        played.play()
    assert list(played.run.quarantined) == ["here/cpu"]
    assert played.run.quarantined["here/cpu"].endswith("order: fails\n")
    assert played.left_orders() == 2
    assert (played.run.planned, played.run.left) == (2, 2)


def test_chunk_with_a_record_starts_the_count_again(tmp_path):
    cells = cpu_cells(3)
    played = Played(tmp_path, cells, "fails", "fails", "records_one", "fails", "fails", "records_one", "fails")
    assert sorted(played.play()) == sorted(cell.id for cell in cells)
    assert played.run.quarantined == {}
    assert played.left_orders() == 0
    assert played.run.left == 0
    assert played.run.counts == {Status.PASSED: 3}


def test_cell_that_no_new_board_takes_is_left(tmp_path):
    (cell,) = cpu_cells(1)
    played = Played(tmp_path, [cell], *["refuses"] * 20, measured_on={cell.id: ["GPU-1"]})
    played.play()
    assert played.ids(EventKind.CELL_SKIPPED) == [cell.id]
    (skipped,) = (event for event in played.told if isinstance(event, RunEvent))
    assert skipped.text == "units = 1: no board was found besides the 1 that have measured it"
    assert (played.run.left, played.run.quarantined, played.left_orders()) == (1, {}, 20 - MOST_REFUSALS)


def test_run_at_a_site_whose_nodes_are_gone_says_so(tmp_path):
    played = Played(tmp_path, cpu_cells(1))
    here = played.sites.runs["here"]
    here.site = replace(here.site, gpus=("h200",))
    with pytest.raises(
        InfrastructureError, match="1 cells could not be run at any site:\n  no site has what they need now"
    ):
        played.play()


def test_what_goes_on_of_a_lost_chunk_begins_no_cell(tmp_path):
    played = Played(tmp_path, cpu_cells(2), "is_killed")
    played.play()
    (withdrawn,) = played.workspace.rglob("withdrawn.json")
    assert set(json.loads(withdrawn.read_bytes())) == {cell.id for cell in played.cells}


class Forgetful:
    """The jobs of a site whose engine does not know any of them when it is first asked after one has ended."""

    def __init__(self, session):
        self._session = session
        self._forgot = False

    def __getattr__(self, name):
        return getattr(self._session, name)

    def statuses(self):
        known = self._session.statuses()
        if not self._forgot and any(status.state.is_over for status in known.values()):
            self._forgot = True
            return {}
        return known


def test_chunk_that_its_engine_forgot_is_told_and_sent_again(tmp_path, monkeypatch):
    monkeypatch.setattr(site_run, "_SETTLING_S", 0.0)
    played = Played(tmp_path, cpu_cells(2), "refuses")  # ends without records, so that the one GPU is free again
    site = played.sites.runs["here"]
    site._session = Forgetful(site._session)
    assert len(played.play()) == 2
    (told,) = [text for text in played.messages() if "was lost" in text]
    assert "a chunk was lost: the engine does not know its job any more; the rest of it is sent again" in told


def test_cell_whose_chunks_are_killed_is_given_up(tmp_path):
    cells = cpu_cells(3)
    played = Played(tmp_path, cells, "is_killed", "is_killed", "is_killed")
    with pytest.raises(
        InfrastructureError, match="1 cells could not be run at any site:\n  softmax/0 fp32 cpu: given up"
    ):
        played.play()
    assert len(played.ids(EventKind.CELL_ENDED)) == 2
    assert played.ids(EventKind.CELL_SKIPPED) == [cells[0].id]
    assert played.run.left == 1
    assert played.run.quarantined == {}
    assert sum("a chunk was lost: killed" in text for text in played.messages()) == 3


def test_place_where_every_chunk_is_killed_is_closed(tmp_path):
    played = Played(tmp_path, cpu_cells(9), *["is_killed"] * 20)
    with pytest.raises(InfrastructureError, match="9 cells could not be run"):
        played.play()
    assert list(played.run.quarantined) == ["here/cpu"]
    assert len(played.ids(EventKind.CELL_SKIPPED)) == 2


def test_refused_records_are_no_fruit(tmp_path):
    played = Played(tmp_path, cpu_cells(2), *["writes_garbage"] * 5)
    with pytest.raises(InfrastructureError):
        played.play()
    assert list(played.run.quarantined) == ["here/cpu"]
    assert sum("is refused" in text for text in played.messages()) == 3
    assert played.left_orders() == 2


def test_retried_cell_counts_once(tmp_path):
    played = Played(tmp_path, cpu_cells(1), "retries")
    assert played.play() == played.ids(EventKind.CELL_RETRIED) == [played.cells[0].id]
    assert played.run.counts == {Status.PASSED: 1}
    assert played.run.left == 0
    assert [summary.attempt for summary in played.store.attempts()[played.cells[0].id]] == [1, 2]


def test_cell_that_the_machine_failed_to_the_end_has_ended(tmp_path):
    played = Played(tmp_path, cpu_cells(1), "fails_the_cell")
    assert played.play() == [played.cells[0].id]
    assert played.run.counts == {Status.INFRA_ERROR: 1}


def test_cell_lost_between_two_attempts_is_sent_again(tmp_path):
    played = Played(tmp_path, cpu_cells(1), "fails_the_cell_and_is_killed")
    assert played.play() == played.ids(EventKind.CELL_RETRIED) == [played.cells[0].id]
    assert played.run.counts == {Status.PASSED: 1}


def test_deadline_keeps_cells_from_being_sent(tmp_path):
    played = Played(tmp_path, cpu_cells(2), deadline=time.monotonic() + 0.5)
    assert played.play() == []
    assert sorted(played.ids(EventKind.CELL_SKIPPED)) == sorted(cell.id for cell in played.cells)
    assert (played.run.left, played.run.quarantined) == (2, {})
    assert not played.workspace.exists()


def test_chunks_know_the_deadline(tmp_path):
    played = Played(tmp_path, cpu_cells(1), "keeps_its_order", deadline=time.monotonic() + 3600)
    played.play()
    order = json.loads((played.orders / "kept").read_text())
    left_s = (datetime.fromisoformat(order["deadline"]) - datetime.now(timezone.utc)).total_seconds()
    assert 3000 < left_s <= 3600


def test_chunks_of_a_site_share_builds(tmp_path):
    played = Played(tmp_path, cpu_cells(1), "keeps_its_order")
    played.play()
    assert (played.orders / "builds").read_text() == str(played.workspace / "builds")


def test_first_failure_ends_the_run(tmp_path):
    played = Played(tmp_path, cpu_cells(3), "fails_the_first", fail_fast=True)
    played.play()
    assert played.run.counts[Status.CRASHED] == 1
    assert played.left_orders() == 0


def test_workspace_that_cannot_be_written_is_tried_again(tmp_path):
    played = Played(tmp_path, cpu_cells(1))
    played.workspace.write_text("")
    with played.run.running() as events:
        for event in events:
            played.told.append(event)
            if played.workspace.is_file():
                played.workspace.unlink()
    told, over, *_ = played.messages()
    assert "cannot be written" in told
    assert (told.splitlines()[-1], over) == ("it is asked again until it takes chunks", "site here takes chunks again")
    assert played.run.left == 0


def test_full_site_is_told_once_while_its_engine_answers(tmp_path):
    played = Played(tmp_path, cpu_cells(1))
    for _ in range(3):
        played.sites.complain(played.sites.runs["here"], "no room", cure="takes chunks")
        played.sites.complain(played.sites.runs["here"], "")
    assert [event.text for event in played.sites.news()] == ["no room\nit is asked again until it takes chunks"]


def test_what_runs_where_is_told(tmp_path):
    played = Played(tmp_path, cpu_cells(2), *["fails"] * 3)
    with pytest.raises(InfrastructureError):
        played.play()
    told = [event.text for event in played.told if isinstance(event, RunStatus)]
    assert told[0].startswith("here/cpu 0/1")
    assert "here/cpu 1/1" in told or "here/cpu 0/1 (+1 waiting)" in told
    assert len(told) > 1


def test_clock_of_a_node_that_is_wrong_is_told_once(tmp_path):
    # The records that are played are of January; the chunk was submitted today.
    played = Played(tmp_path, cpu_cells(2), "records_one", "records_one")
    played.play()
    (told,) = (text for text in played.messages() if text.startswith("the clock of"))
    assert "s behind this machine's" in told
    (ahead_s,) = played.run.clocks_ahead_s.values()
    assert ahead_s < -1e6


def test_home_that_cannot_be_written_loses_no_record(tmp_path):
    played = Played(tmp_path, cpu_cells(1))
    played.store.root.mkdir(exist_ok=True)
    played.store.records.write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        played.play()
    assert len(list(played.workspace.rglob("records/*.json"))) == 1
    played.store.records.unlink()
    played.sites.recover()
    assert len(list(played.store.records.iterdir())) == 1
    assert list(played.workspace.rglob("records")) == []


def test_chunk_of_another_store_is_not_taken(tmp_path):
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    one, other = (Played(folder, cpu_cells(2), workspace=tmp_path / "workspace") for folder in folders)
    left = other.leave_chunk()
    one.sites.recover()
    assert not list(one.store.root.rglob("records/*"))
    assert left.is_dir()
    assert sorted(one.play()) == sorted(cell.id for cell in one.cells)
    one.sites.runs["here"].cancel()
    assert not other.store.records.is_dir()
    assert left.is_dir()
    other.sites.recover()
    assert [path.name for path in other.store.records.iterdir()] == [f"{other.cells[0].id}.1.json"]
    assert not left.exists()


def test_chunk_that_was_just_sent_is_not_removed(tmp_path):
    played = Played(tmp_path, cpu_cells(2))
    folder = played.leave_chunk()
    os.utime(folder / "chunk.json")
    played.sites.recover()
    assert folder.is_dir()
    assert len(list(played.store.records.iterdir())) == 1
