"""``kernel-matrix cell run``: one cell alone, from a file that names it."""

from __future__ import annotations

import json

import pytest

from kernel_matrix.api.run_cells import _read_withdrawn
from tests.baddays.field import events
from tests.pipes import lines_of


@pytest.fixture
def spec(field):
    """Writes the file for the field's one cell, with what a test changes of it."""

    def write(**changes):
        planned = json.loads(field.call("plan", "--json", "--sandbox", "process").stdout)
        document = {"matrix": "../matrix.toml", "cell_id": planned["cells"][0]["id"], "sandbox": "process"}
        (field.root / "specs").mkdir(exist_ok=True)
        path = field.root / "specs" / "cell.json"
        path.write_text(json.dumps({**document, **changes}))
        return "specs/cell.json"

    return write


@pytest.mark.torch
def test_one_cell_runs_once(field, spec):
    argv = ("cell", "run", spec(), "--out", "out", "--json")
    first = field.call(*argv)
    assert (first.returncode, first.stderr) == (0, "")
    assert [event["event"] for event in events(first.stdout)] == [
        "run_started",
        "cell_started",
        "cell_ended",
        "run_ended",
    ]
    (record,) = (field.root / "out" / "records").iterdir()
    assert json.loads(record.read_text())["outcome"]["status"] == "passed"
    before = record.read_bytes()
    second = field.call(*argv)
    assert second.returncode == 0
    assert [event["event"] for event in events(second.stdout)] == ["run_started", "run_ended"]
    assert [path.read_bytes() for path in (field.root / "out" / "records").iterdir()] == [before]


@pytest.mark.torch
def test_a_source_that_changed_since_is_exit_2(field, spec):
    path = spec()
    source = field.candidates / "honest.py"
    source.write_text(source.read_text() + "\n# another\n")
    ran = field.call("cell", "run", path, "--out", "out")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "is not in" in ran.stderr
    assert "its sources or protocol changed" in ran.stderr
    assert not (field.root / "out").exists()


@pytest.mark.torch
def test_a_cell_that_cannot_run_here_is_exit_3(field, spec):
    path = spec()
    reason = '\n[[exclude]]\ncandidate = "tiny/honest"\nreason = "not on Sundays"\n'
    field.write_matrix("tiny/honest", "tiny/wrong", more=reason)
    ran = field.call("cell", "run", path, "--out", "out")
    assert ran.returncode == 3
    assert "not on Sundays" in ran.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no such file"),
        ("{", "is not a specification of cells"),
        ("[]", "is not a specification of cells"),
        ('{"matrix": "m.toml"}', "cell_id"),
        ('{"matrix": "m.toml", "cell_id": "x", "colour": "red"}', "colour"),
        ('{"matrix": "m.toml", "cell_id": 7}', "every value must be text"),
        ('{"matrix": "m.toml", "cell_id": "x", "not_on": {"x": [7]}}', "every value must be text"),
        ('{"matrix": "m.toml", "cell_id": "x", "not_on": ["x"]}', "not a specification of cells"),
    ],
)
def test_what_is_no_specification_is_exit_2(text, words, field):
    if text is not None:
        (field.root / "cell.json").write_text(text)
    ran = field.call("cell", "run", "cell.json", "--out", "out")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert words in ran.stderr


NAMES = ("answers_twice", "honest", "wrong")


@pytest.fixture
def chunk(field):
    """The file of a chunk of three cells, and their ids."""
    field.write_matrix(*(f"tiny/{name}" for name in NAMES))
    planned = json.loads(field.call("plan", "--json", "--sandbox", "process").stdout)
    ids = [cell["id"] for cell in planned["cells"]]
    document = {"matrix": "matrix.toml", "cell_ids": ids, "sandbox": "process"}
    (field.root / "chunk.json").write_text(json.dumps(document))
    return "chunk.json", ids


def recorded(field):
    return {path.name.partition(".")[0] for path in (field.root / "out" / "records").glob("*.json")}


def run_and_withdraw(field, path, choose):
    """Run a chunk, and withdraw what ``choose`` returns for the id of the first cell, once that one has begun.

    Returns the id of the first cell and the events that followed.
    """
    with field.start("cell", "run", path, "--out", "out", "--json") as process:
        lines = lines_of(process)
        first = next(event["cell_id"] for event in map(json.loads, lines) if event["event"] == "cell_started")
        text = choose(first)
        (field.root / "out" / "withdrawn.json").write_text(text)
        rest = events(list(lines))
        _, said = process.communicate()
    assert (process.returncode, said) == (0, "")
    return first, rest


@pytest.mark.torch
def test_cells_withdrawn_meanwhile_are_skipped(field, chunk):
    path, ids = chunk
    withdrawn = []

    def choose(first):
        withdrawn.append(next(one for one in ids if one != first))
        return json.dumps([*withdrawn, first, "0" * 32])

    first, rest = run_and_withdraw(field, path, choose)
    assert recorded(field) == set(ids) - set(withdrawn)
    assert first in recorded(field), "one that has begun goes on"
    (skipped,) = [event for event in rest if event["event"] == "cell_skipped"]
    assert skipped["cell_id"] == withdrawn[0]
    assert skipped["text"] == "another chunk has it now"
    (field.root / "out" / "withdrawn.json").unlink()
    assert field.call("cell", "run", path, "--out", "out").returncode == 0
    assert recorded(field) == set(ids)


@pytest.mark.torch
def test_a_malformed_withdrawn_file_withdraws_nothing(field, chunk):
    path, ids = chunk
    run_and_withdraw(field, path, lambda _first: "null")
    assert recorded(field) == set(ids)


@pytest.mark.parametrize("text", ["", "{", "null", "7", "[[]]", "[{}]", "[" * 100_000, "[\xff]"])
def test_what_is_no_withdrawn_file_withdraws_nothing(tmp_path, text):
    path = tmp_path / "withdrawn.json"
    path.write_bytes(text.encode("latin-1"))
    assert _read_withdrawn(path) == frozenset()
    assert _read_withdrawn(tmp_path / "absent.json") == frozenset()
    path.write_text('["a", "b"]')
    assert _read_withdrawn(path) == {"a", "b"}
