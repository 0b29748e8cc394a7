"""A service whose candidates are judged by jobs at the sites of a fleet."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_matrix.client.http_clients import Client
from tests.baddays.field import LOCAL_FLEET, Field, new_field
from tests.baddays.living import until
from tests.pipes import Program, read_line

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
NAMES = ("honest", "wrong", "closes_the_socket")
STATUSES = ["passed", "incorrect_values", "crashed"]


@pytest.fixture
def at_home(tmp_path):
    """A folder whose fleet is this machine."""
    root = Path(__file__).parents[3] / "runner"
    with new_field(tmp_path, environment={"PYTHONPATH": str(root)}) as made:
        (made.root / "fleet.toml").write_text(LOCAL_FLEET)
        yield made


@contextmanager
def serving(field: Field, *options: str) -> Iterator[tuple[Program, Client]]:
    """A service over the fleet, and a client of it."""
    with field.start("serve", "--fleet", "fleet.toml", "--port", "0", *options) as process:
        line = read_line(process)
        assert line.startswith("serving "), process.communicate()
        with Client(line.split()[1].rstrip(";")) as client:
            yield process, client
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1].endswith("stopped by SIGINT\n")


def jobs(field: Field) -> list[int]:
    """Processes of the field's jobs, on this machine."""
    found = subprocess.run(("pgrep", "-f", f"cell serve {field.root}"), capture_output=True, text=True, check=False)
    return [*map(int, found.stdout.split())]


def requests_of(field, names=NAMES, **fields):
    texts = [(field.candidates / f"{name}.py").read_text() for name in names]
    return [{"problem": "tiny", "source": text, **fields} for text in texts]


def statuses(client, ids):
    found = {one.id: one.result.status for one in client.wait(ids, timeout_s=100)}
    return [found[id_] for id_ in ids]


def test_job_judges_candidates_and_their_records_come_home(at_home):
    with serving(at_home) as (_, client):
        ids = [one.id for one in client.submit_many(requests_of(at_home))]
        assert statuses(client, ids) == STATUSES
        again = [one.id for one in client.submit_many(requests_of(at_home, ["honest"], tier="values"))]
        assert statuses(client, again) == ["verified"]
        assert client.workers()[0]["running"] == 0
    records = at_home.records()
    assert Counter(record["outcome"]["status"] for record in records) == Counter([*STATUSES, "verified"])
    assert len({record["run_id"] for record in records}) == 1  # one job has judged all
    assert jobs(at_home) == []


def test_candidates_of_a_killed_job_are_judged_by_another(at_home):
    with serving(at_home) as (_, client):
        ids = [one.id for one in client.submit_many(requests_of(at_home))]
        until(lambda: jobs(at_home))
        for pid in jobs(at_home):
            os.kill(pid, signal.SIGKILL)
        assert statuses(client, ids) == STATUSES
    assert Counter(record["outcome"]["status"] for record in at_home.records()) == Counter(STATUSES)


def test_killed_service_goes_on_where_it_was(at_home):
    with at_home.start("serve", "--fleet", "fleet.toml", "--port", "0") as process:
        with Client(read_line(process).split()[1].rstrip(";")) as client:
            ids = [one.id for one in client.submit_many(requests_of(at_home))]
            until(at_home.records)
        process.send_signal(signal.SIGKILL)
    with serving(at_home) as (_, client):
        assert statuses(client, ids) == STATUSES
    assert jobs(at_home) == []


def test_job_without_work_gives_its_device_back(at_home):
    with serving(at_home, "--release-after", "0") as (_, client):
        (first,) = client.submit_many(requests_of(at_home, ["honest"]))
        assert statuses(client, [first.id]) == ["passed"]
        until(lambda: not jobs(at_home))
        (second,) = client.submit_many(requests_of(at_home, ["wrong"]))
        assert statuses(client, [second.id]) == ["incorrect_values"]


def test_jobs_of_a_slurm_judge_candidates(field):
    with serving(field) as (_, client):
        ids = [one.id for one in client.submit_many(requests_of(field))]
        assert statuses(client, ids) == STATUSES
    assert Counter(record["outcome"]["status"] for record in field.records()) == Counter(STATUSES)
