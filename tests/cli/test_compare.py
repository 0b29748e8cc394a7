"""``kernel-matrix compare`` as a person or a build server meets it."""

import json
from xml.etree import ElementTree as ET

import pytest

from tests.analysis.made import SLOWER, STEADY, cell, timed, write
from tests.baddays.field import PRELOADED, new_field
from tests.cli.terminal import piped


def call(folder, *arguments):
    return piped(folder, "compare", *arguments)


@pytest.fixture
def lab(tmp_path):
    names = [f"softmax/c{number}" for number in range(30)]
    write(tmp_path / "base", [row for name in names for row in timed(STEADY, candidate=name)])
    write(tmp_path / "same", [row for name in names for row in timed(STEADY, candidate=name, night=1)])
    worse = [row for name in names[1:] for row in timed(STEADY, candidate=name, night=1)]
    write(tmp_path / "worse", [*worse, *timed(SLOWER, candidate=names[0], night=1)])
    return tmp_path


def test_nothing_changed_is_exit_0(lab):
    done = call(lab, "base", "same")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == [
        "base → same: nothing broke and nothing is shown to be slower, of 30 rows compared",
        "30 rows: 30 equivalent",
    ]
    assert "margin 1 %, equivalence 2 %, false discoveries 1 %" in done.stdout


def test_a_regression_is_exit_5_with_counts_first(lab):
    done = call(lab, "base", "worse")
    assert (done.returncode, "error: base → worse: 1 regression" in done.stderr) == (5, True)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["base → worse: 1 regression, of 30 rows compared", "30 rows: 1 regression, 29 equivalent"]
    assert lines[2].startswith("overall: +0.16 % in the mean over 1 problem; 1 of 30 rows are shown to have changed")
    assert lines[4].split()[:7] == ["regression", "softmax", "[default]", "c0", "fp32", "h200", "cu130"]
    assert "+5.0 %" in lines[4]
    assert "c7" not in done.stdout
    assert "c7" in call(lab, "base", "worse", "--all").stdout


def test_files_and_json_say_the_same(lab):
    done = call(lab, "base", "worse", "--json", "--markdown", "out.md", "--junit", "out.xml")
    document = json.loads(done.stdout)
    assert (done.returncode, document["counts"]) == (5, {"regression": 1, "equivalent": 29})
    assert document["rows"][0]["candidate"] == "softmax/c0"
    assert "**1 regression, of 30 rows compared.**" in (lab / "out.md").read_text()
    assert ET.parse(lab / "out.xml").find("testsuite").get("failures") == "1"


def test_an_accepted_regression_is_exit_0(lab):
    (lab / "ok.toml").write_text('[[accept]]\ncandidate = "*/c0"\nuntil = 2999-01-01\nreason = "known to spill"')
    done = call(lab, "base", "worse", "--accepted", "ok.toml")
    assert (done.returncode, "known to spill" in done.stdout) == (0, True)


def test_nothing_comparable_is_exit_6_with_the_reason(lab):
    write(lab / "others", timed(STEADY, candidate="softmax/other"))
    done = call(lab, "base", "others", "--json")
    assert (done.returncode, json.loads(done.stdout)["answer"]) == (6, "not_compared")
    assert "nothing could be compared: of 31 rows 31 could not be compared: 30 in base only" in done.stderr


def test_two_toolchains_of_one_folder(lab):
    rows = [
        *timed(STEADY, toolchain="cu124"),
        *timed(SLOWER, toolchain="cu130"),
        *timed(STEADY, toolchain="cu124", dtype="fp16"),
    ]
    write(lab / "both", rows)
    done = call(lab, "both", "--between", "toolchain=cu124,cu130")
    assert done.stdout.splitlines()[:2] == [
        "cu124 → cu130: 1 regression, of 1 row compared; 1 could not be compared: 1 in base only",
        "2 rows: 1 regression, 1 missing",
    ]
    assert done.returncode == 5


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("base",), 2, "give either NEW or --between"),
        (("base", "same", "--between", "gpu=a,b"), 2, "give either NEW or --between"),
        (("base", "--between", "colour=a,b"), 2, "is not AXIS=A,B"),
        (("base", "--between", "gpu=h200,l4"), 3, "no cell has gpu 'l4'"),
        (("base", "same", "--of", "joy"), 2, "allowed are time, speedup, cycles"),
        (("base", "same", "--margin", "2"), 2, "--margin 2 is no share"),
        (("base", "same", "--confirm"), 2, "--confirm needs the matrix"),
        (("base", "nowhere"), 2, "there is no nowhere"),
        (("base", "same", "--accepted", "no.toml"), 2, "no.toml: No such file"),
        (("base", "same", "--junit", "no/out.xml"), 4, "no/out.xml cannot be written"),
    ],
)
def test_what_cannot_be_done_is_one_clear_error(lab, arguments, code, said):
    done = call(lab, *arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_empty_results_are_said(lab):
    write(lab / "none", [])
    done = call(lab, "none", "none")
    assert (done.returncode, "neither side has a cell" in done.stderr) == (3, True)


def digests(field):
    """Candidate → hash of its content, from what ran."""
    return {record["cell"]["candidate"]: record["cell"]["candidate_sha256"] for record in field.records()}


@pytest.mark.torch
def test_what_is_flagged_is_run_again_in_turns(tmp_path):
    """One cell still fails, one was said to fail and passes, and one is nowhere."""
    with new_field(tmp_path, program=PRELOADED) as field:
        field.write_matrix("tiny/honest", "tiny/wrong")
        assert field.run("--sandbox", "process").returncode == 0
        known = digests(field)
        here = {"gpu": "cpu", "toolchain": "cpu", "problem": "tiny", "workload": "smoke"}
        names = ("tiny/honest", "tiny/wrong", "tiny/elsewhere")
        content = {name: known.get(name, "of elsewhere") for name in names}
        write(
            tmp_path / "base",
            [
                row
                for name in names
                for row in timed([1e9, 1.01e9], candidate=name, candidate_sha256=content[name], **here)
            ],
        )
        bad = {"status": "crashed", "fault": "candidate", "message": "signal 11"}
        write(
            tmp_path / "new",
            [cell(candidate=name, candidate_sha256=content[name], night=1, **bad, **here) for name in names],
        )
        more = ("--confirm", "--matrix", "matrix.toml", "--sandbox", "process", "--json", "--results", "again")
        done = field.call("compare", "base", "new", *more)
        assert done.returncode == 5, done.stderr
        document = json.loads(done.stdout)
        said = {row["candidate"]: (row["change"], row["reason"]) for row in document["rows"]}
        assert said["tiny/wrong"][0] == "broke"
        assert "confirmed when run again: broke" in said["tiny/wrong"][1]
        assert said["tiny/elsewhere"][0] == "broke"
        assert "not run again: cpu cpu fp32 tiny tiny/elsewhere is not in the matrix" in said["tiny/elsewhere"][1]
        assert said["tiny/honest"][0] == "inconclusive"
        assert said["tiny/honest"][1].startswith("not confirmed: was broke, now improvement, -")
        assert document["notes"][0] == "2 of 3 flagged rows were run again, in turns; 2 of all stay flagged."
        assert "base was not run again" in document["notes"][-1]
        records = [json.loads(path.read_text()) for path in (tmp_path / "again/results").rglob("records/*.json")]
        ran = sorted((record["run_id"], record["cell"]["candidate"]) for record in records)
        assert len({run for run, _ in ran}) == 5
        assert len(ran) == 10
