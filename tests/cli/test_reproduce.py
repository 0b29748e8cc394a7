"""``kernel-matrix reproduce`` on processes of this machine."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.baddays.field import PRELOADED, new_field


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A field where one cell passed and one did not; tests work on copies."""
    with new_field(tmp_path_factory.mktemp("done"), program=PRELOADED) as field:
        field.write_matrix("tiny/honest", "tiny/wrong")
        ran = field.call("run", "--sandbox", "process")
        assert (ran.returncode, ran.stderr) == (0, "")
        yield field


@pytest.fixture
def again(done, tmp_path):
    """A field that may be changed, with those two records."""
    with new_field(tmp_path, program=PRELOADED) as field:
        shutil.copyfile(done.root / "matrix.toml", field.root / "matrix.toml")
        shutil.copytree(done.results, field.results)
        yield field


def record_of(field, candidate):
    """The file of a candidate's record, relative to the field."""
    for path in (field.store / "records").glob("*.json"):
        if json.loads(path.read_text())["cell"]["candidate"] == candidate:
            return path.relative_to(field.root)
    raise AssertionError(f"no record of {candidate}")


def rewritten(field, path, change):
    document = json.loads((field.root / path).read_text())
    change(document)
    folder = field.root / "elsewhere" / "records"
    folder.mkdir(parents=True)
    (folder / path.name).write_text(json.dumps(document))
    return folder / path.name


@pytest.mark.torch
def test_a_failure_that_fails_alike_is_reproduced(again):
    path = record_of(again, "tiny/wrong")
    ran = again.call("reproduce", str(path), "--json")
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert (said["reproduced"], said["differences"]) == (True, [])
    assert said["status"] == {"was": "incorrect_values", "is": "incorrect_values"}
    new = json.loads((again.root / said["again"]).read_text())
    old = json.loads((again.root / path).read_text())
    assert new["cell_id"] == old["cell_id"]
    assert new["run_id"] != old["run_id"]
    assert [one["name"] for one in said["environment"] if not one["same"]] == []
    assert {one["name"]: one["now"] for one in said["environment"]}["engine"] == "process"
    assert len(again.records()) == 2, "the results stay as they were"


@pytest.mark.torch
def test_reproduce_compares_time_of_passed_cell_with_expectation(again):
    ran = again.call("reproduce", str(record_of(again, "tiny/honest")), "--out", "once", "--json")
    said = json.loads(ran.stdout)
    (time,) = said["times"]
    assert ran.returncode == (0 if said["reproduced"] else 5)
    assert time["within"] is (time["low_ns"] <= time["is_ns"] <= time["high_ns"])
    assert time["rests_on"] == "usual noise of a single session, 0.5 % between runs"
    assert "The secret seed was drawn anew, so inputs differ." in said["notes"]
    assert (again.root / said["again"]).parent == again.root / "once" / "baddays" / "records"


@pytest.mark.torch
def test_a_record_against_itself_runs_nothing(again):
    path = str(record_of(again, "tiny/honest"))
    ran = again.call("reproduce", path, "--against", path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[-1] == "reproduced: passed, as before"
    assert "the same attempt" in ran.stdout
    assert not (again.root / "reproduced").exists()


@pytest.mark.torch
def test_reproduce_against_slower_record_exits_5_with_changes(again):
    def slower(document):
        document["host"]["hostname"] = "elsewhere\x1b[31m"
        for workload in document["sessions"][0]["workloads"]:
            for block in workload["blocks"]:
                block["device_ns"] = [3 * ns for ns in block["device_ns"]]

    path = record_of(again, "tiny/honest")
    ran = again.call("reproduce", str(path), "--against", str(rewritten(again, path, slower)))
    assert ran.returncode == 5
    assert "differs: smoke: " in ran.stdout
    assert "(+200.0 %)" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "not reproduced: passed, as before"
    assert "\x1b" not in ran.stdout
    assert "was not reproduced" in ran.stderr


@pytest.mark.torch
@pytest.mark.parametrize(
    ("file", "words"),
    [("candidates/wrong.py", "content of the candidate"), ("reference.py", "content of the problem")],
)
def test_content_that_changed_since_is_refused_by_name(file, words, again):
    path = record_of(again, "tiny/wrong")
    source = again.root / "problems" / "tiny" / file
    source.write_text(source.read_text() + "\n# another\n")
    ran = again.call("reproduce", str(path))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert words in ran.stderr
    assert ran.stderr.count("\n") == 2, "the error and what to do"
    assert not (again.root / "reproduced").exists()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "cpu"\nvendor', 'name = "other"\nvendor', "no GPU cpu"),
        ('dtypes = ["fp32"]', 'dtypes = ["fp64"]', "no dtype fp32"),
        ("min_samples = 4", "min_samples = 5", "the protocol"),
        ('"tiny/wrong"', '"tiny/sends_garbage"', "does not select candidate tiny/wrong"),
    ],
)
def test_a_matrix_that_changed_since_is_refused_by_what_it_lacks(old, new, words, again):
    path = record_of(again, "tiny/wrong")
    matrix = again.root / "matrix.toml"
    assert old in matrix.read_text()
    matrix.write_text(matrix.read_text().replace(old, new))
    ran = again.call("reproduce", str(path))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert words in ran.stderr


@pytest.mark.torch
def test_a_cell_that_cannot_run_here_is_exit_3(again):
    matrix = again.root / "matrix.toml"
    matrix.write_text(matrix.read_text() + '\n[[exclude]]\ncandidate = "tiny/wrong"\nreason = "not on Sundays"\n')
    ran = again.call("reproduce", str(record_of(again, "tiny/wrong")))
    assert ran.returncode == 3
    assert "not on Sundays" in ran.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no such file"),
        ("{", "is no record"),
        ("[]", "is no record"),
        ('{"schema_version": 99}', "version 99"),
    ],
)
def test_what_is_no_record_is_exit_2(text, words, field):
    if text is not None:
        (field.root / "x.1.json").write_text(text)
    ran = field.call("reproduce", "x.1.json")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert words in ran.stderr
