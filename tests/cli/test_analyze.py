"""The verb that asks all results together."""

import json
import subprocess

import pytest
from typer.testing import CliRunner

from kernel_matrix.analysis.questions import QUESTIONS
from kernel_matrix.cli import build_app
from kernel_matrix.cli.analyze import ABOUT
from kernel_matrix.results.store import RecordStore
from tests.analysis.made import cell, write
from tests.cli.terminal import on_terminal, piped
from tests.results.factory import CELL_KEY, cell_id, failed_record, make_record, put

WRONG = {"status": "timeout", "fault": "candidate"}


@pytest.fixture
def lab(tmp_path):
    rows = [
        cell(gpu=gpu, candidate=f"softmax/{number}", baseline_median_ns=100.0 * (1 + number), candidate_median_ns=100.0)
        for gpu in ("h100", "h200") for number in range(3)
    ]  # fmt: skip
    write(tmp_path / "one", rows)
    write(tmp_path / "two", [cell(gpu="b200", **WRONG), cell(gpu="ядро\x1b[2J", **WRONG)])
    return tmp_path


def asked(folder, *arguments) -> subprocess.CompletedProcess[str]:
    return piped(folder, "analyze", *arguments)


def document(folder, *arguments):
    done = asked(folder, *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_every_question_has_a_line():
    assert tuple(ABOUT) == tuple(QUESTIONS.built_in)


@pytest.mark.parametrize("arguments", [(), ("speed",)])
def test_a_wrong_question_lists_those_there_are(lab, arguments):
    done = asked(lab, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert all(f"      {name:<12} {line}" in done.stderr for name, line in ABOUT.items())
    assert "Traceback" not in done.stderr


def test_an_answer_is_a_table_with_its_notes(lab):
    lines = asked(lab, "scores", "one", "--by", "gpu").stdout.splitlines()
    assert lines[0] == "Correctness and speed"
    assert lines[1].split()[:8] == [
        "gpu", "problems", "cells", "counted", "compile_rate", "correct_rate", "fast_0", "fast_1",
    ]  # fmt: skip
    assert lines[2].split()[:8] == ["h100", "1", "3", "3", "1", "1", "1", "0.6667"]
    assert lines[4].startswith("- Rates are over cells")
    assert "Cost of a correct kernel" in lines


def test_one_document_has_everything(lab):
    told = document(lab, "scores", "one", "two", "--by", "gpu", "--p", "0,1.5", "--k", "1,2")
    assert (told["question"], told["by"]) == ("scores", ["gpu"])
    answers = {answer["name"]: answer for answer in told["answers"]}
    assert {row["gpu"]: row["fast_1.5"] for row in answers["scores"]["rows"]} == {
        "b200": 0.0, "h100": 2 / 3, "h200": 2 / 3, "ядро\x1b[2J": 0.0,
    }  # fmt: skip
    assert {row["k"] for row in answers["draws"]["rows"]} == {1, 2}
    assert answers["scores"]["meanings"]["speedup"]
    assert answers["scores"]["notes"]


def test_attribution_is_asked_the_same_way(lab):
    told = document(lab, "attribution", "one", "two", "--by", "gpu,dtype")
    assert [answer["name"] for answer in told["answers"]] == ["correctness", "speedup"]
    assert [row["factor"] for row in told["answers"][0]["rows"]] == ["gpu", "dtype", "(all together)"]


def gpus(folder, *arguments):
    return CliRunner().invoke(build_app(), ["analyze", "gpus", str(folder), *arguments])


def test_gpus_are_told_in_words_before_the_table(lab):
    title, first, head, *_rest = gpus(lab / "one").stdout.splitlines()
    assert title == "Speed of GPUs against each other"
    assert first.startswith("h100 is 1.00× as fast as h200 over 1 problem;")
    assert head.split()[:3] == ["gpu", "than", "kind"]


def test_gpus_in_json_have_statements(lab):
    answers = json.loads(gpus(lab / "one", "--platforms", "h200,h100", "--json").stdout)["answers"]
    assert [answer["name"] for answer in answers] == ["gpus", "slices", "short"]
    assert answers[0]["statements"][0].startswith("h200 is 1.00× as fast as h100")
    assert answers[0]["rows"][0]["ratio"] == pytest.approx(1.0)


def test_gpus_weights_are_a_file_for_gpus_alone(lab):
    path = lab / "weights.toml"
    path.write_text("[problem]\nsoftmax = 2\n", encoding="utf-8")
    assert "over 1 problem (weighted);" in gpus(lab / "one", "--weights", str(path)).stdout
    done = CliRunner().invoke(build_app(), ["analyze", "scores", str(lab / "one"), "--weights", str(path)])
    assert "scores does not look at --weights" in str(done.exception)
    path.write_text("[problem]\nsoft = 2\n", encoding="utf-8")
    assert "no problem named 'soft'" in str(gpus(lab / "one", "--weights", str(path)).exception)


def test_an_option_given_twice_is_a_longer_list(lab):
    assert document(lab, "scores", "one", "--by", "gpu", "--by", "dtype")["by"] == ["gpu", "dtype"]


def test_names_cannot_speak_to_the_terminal(lab):
    shown = asked(lab, "scores", "two", "--by", "gpu").stdout
    assert "\x1b" not in shown
    assert r"ядро\x1b[2J" in shown


def test_what_has_no_room_is_said(lab):
    many = [cell(problem=f"p{number}", candidate=f"p{number}/a", **WRONG) for number in range(60)]
    write(lab / "many", many)
    shown = on_terminal(
        lab, "analyze", "scores", "many", "--by", "problem,candidate,category,dtype,gpu", "--k", "1", NO_COLOR="1"
    )
    assert "… and 10 more rows (--limit)" in shown
    assert "no room for " in shown
    assert max(len(line) for line in shown.splitlines() if line.lstrip().startswith("p1")) <= 200


def test_columns_and_order_are_those_asked_for(lab):
    lines = asked(
        lab, "scores", "one", "two", "--by", "gpu", "--columns", "gpu,cells", "--sort", "-gpu", "--limit", "2"
    )
    assert [line.split() for line in lines.stdout.splitlines()[1:4]][:2] == [["gpu", "cells"], [r"ядро\x1b[2J", "1"]]
    assert "… and 2 more rows (--limit)" in lines.stdout
    wrong = asked(lab, "scores", "one", "--columns", "cels")
    assert (wrong.returncode, "did you mean 'cells'?" in wrong.stderr) == (2, True)


def test_markdown_has_a_blank_line_before_each_table(lab):
    lines = asked(lab, "gpus", "one", "--format", "markdown").stdout.splitlines()
    titles = [number for number, line in enumerate(lines) if line.startswith("**")]
    assert len(titles) > 1
    assert not any(lines[number - 1] for number in titles[1:])


def test_columns_are_explained_where_that_is_asked(lab):
    assert "correct_rate: share of counted cells that passed" in asked(lab, "scores", "one", "--explain").stdout
    assert "correct_rate: " not in asked(lab, "scores", "one").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--p", "1,fast"), "--p '1,fast' is no list of numbers"),
        (("--k", "1.5"), "--k '1.5' is no list of numbers"),
        (("--k", "0"), "a whole number ≥ 1"),
        (("--p", "nan"), "a number ≥ 0"),
        (("--by", "colour"), "cannot slice by 'colour'"),
        (("--platforms", "h100"), "scores does not look at --platforms"),
        (("--margin", "0.02"), "scores does not look at --margin"),
        (("--best-known", "x.json"), "scores does not look at --best-known"),
        (("--freeze-best-known", "x.json"), "scores does not look at --best-known"),
    ],
)
def test_requests_that_cannot_be_read(lab, arguments, said):
    done = asked(lab, "scores", "one", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("margin", ["-1", "1", "nan", "inf"])
def test_a_margin_is_a_share(lab, margin):
    done = asked(lab, "ranks", "one", "--margin", margin)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--margin {margin} is no share" in done.stderr


def test_best_known_times_are_frozen_and_used(lab):
    first = asked(lab, "portability", "one", "--freeze-best-known", "best.json", "--json")
    assert first.returncode == 0
    assert first.stderr.startswith("best.json: 2 best-known times, content hash ")
    content = first.stderr.split()[-1]
    write(lab / "slow", [cell(gpu="h100", candidate="softmax/late", candidate_median_ns=400.0)])
    (answer, *_rest) = document(lab, "portability", "slow", "--best-known", "best.json")["answers"]
    assert f"Application efficiency is relative to best-known times with content hash {content}." in answer["notes"]
    assert [row["pp"] for row in answer["rows"]] == [pytest.approx(0.25)]
    both = asked(lab, "portability", "one", "--best-known", "best.json", "--freeze-best-known", "best.json")
    assert (both.returncode, "exclude each other" in both.stderr) == (2, True)


def test_empty_tables_hold_nothing(lab):
    write(lab / "empty", [])
    done = asked(lab, "scores", "empty")
    assert (done.returncode, "the tables hold no cell" in done.stderr, "Traceback" in done.stderr) == (3, True, False)


def test_result_folders_and_tables_are_read_together(lab):
    store = RecordStore(lab / "results" / "nightly")
    store.save(make_record())
    store.save(failed_record(cell_id(1)))
    put(lab / "results" / "nightly" / "records", make_record(cell_id(5)), schema_version=2)
    done = asked(lab, "scores", "results", "one", "--json")
    (row,) = json.loads(done.stdout)["answers"][0]["rows"]
    assert (row["cells"], row["counted"]) == (8, 8)
    assert "1 files are no valid records; `kernel-matrix merge results` says why" in done.stderr
    assert sorted(path.name for path in lab.iterdir()) == ["one", "results", "two"]
    assert CELL_KEY.gpu in asked(lab, "scores", "--by", "gpu").stdout
