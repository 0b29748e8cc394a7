"""``kernel-matrix pack`` and ``unpack`` as a person or a script meets them."""

from __future__ import annotations

import json

import pytest

from kernel_matrix.results.store import RecordStore
from tests.cli.terminal import ROOT, piped
from tests.results.factory import cell_id, make_record, make_run, make_trace, put, traced


def call(folder, *arguments):
    return piped(folder, *arguments, PYTHONPATH=f"{ROOT / 'runner'}:{ROOT}")


@pytest.fixture
def lab(tmp_path):
    store = RecordStore(tmp_path / "results" / "nightly")
    store.save(traced(make_record()), make_trace())
    store.save_run(make_run())
    return tmp_path


def test_file_and_counts_are_printed(lab):
    put(lab / "results" / "nightly" / "records", make_record(cell_id(1)), schema_version=2)
    done = call(lab, "pack", "results/nightly")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "nightly.kmz (0.0 MB)",
        "  1 records, 1 runs, 0 traces",
        "  machines are salted hashes",
        "  left out: 1 records and runs that are not valid",
        "  left out: 1 traces, which were not asked for",
    ]


def test_set_is_unpacked_and_read_by_verbs(lab):
    packed = json.loads(call(lab, "pack", "results/nightly", "-o", "a set", "--traces", "--json").stdout)
    assert (packed["file"], packed["bytes"], packed["traces"]) == ("a set", (lab / "a set").stat().st_size, 1)
    unpacked = json.loads(call(lab, "unpack", "a set", "theirs", "--json").stdout)
    assert unpacked == {"folder": "theirs", **{key: packed[key] for key in unpacked if key != "folder"}}
    of_folder, of_set = (call(lab, "results", place) for place in ("theirs", "a set"))
    assert (of_set.returncode, of_set.stdout) == (0, of_folder.stdout)
    assert "1 records with 12 samples from 1 files" in call(lab, "merge", "a set").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("pack", "absent"), 2, "absent is not a folder"),
        (("pack", "results/nightly", "-o", "taken"), 2, "replace it with --force"),
        (("unpack", "taken", "there"), 4, "it is no packed set"),
        (("unpack", "results", "there"), 2, "there is no file results"),
        (("results", "taken"), 4, "it is no packed set"),
        (("compare", "taken", "results/nightly"), 4, "it is no packed set"),
    ],
)
def test_bad_input_has_one_clear_error(arguments, code, says, lab):
    (lab / "taken").write_text("something else\x1b[2J")
    done = call(lab, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (lab / "there").exists()
