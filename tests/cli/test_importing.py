"""``kernel-matrix import``: what it says, and with which exit code it ends."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.terminal import ROOT, piped
from tests.results.importing.made import put, timing


def import_(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return piped(folder, "import", *arguments)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    entries = {"1_A.py": timing(), "2_B.py": timing(-1)}
    put(tmp_path / "times" / "L4" / "baseline_time_torch.json", {"level1": entries})
    return tmp_path


def test_every_file_is_told(lab: Path) -> None:
    done = import_(lab, "times", "--out", "tables")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "times/L4/baseline_time_torch.json: kernelbench-timing, 1 results, 1 not read"
    assert lines[1].startswith("1 results and 0 samples from 1 files (1 kernelbench-timing), 1 GPUs by name")
    assert "  tables/cells.parquet" in lines
    assert lines[-1] == (
        "not read: times/L4/baseline_time_torch.json:13: level1.2_B.py.mean: must not be negative; got -1"
    )


def test_json_is_one_document(lab: Path) -> None:
    done = import_(lab, "times", "--out", "tables", "--name", "theirs", "--format", "kernelbench-timing", "--json")
    document = json.loads(done.stdout)
    assert (document["rows"], document["gpus"], document["tables"]["hosts"]) == (1, 1, "tables/hosts.parquet")
    assert document["files"][0]["format"] == "kernelbench-timing"
    assert [(one["line"], one["path"]) for one in document["rejected"]] == [(13, "times/L4/baseline_time_torch.json")]
    shown = piped(lab, "results", "tables", "--json")
    assert [row["matrix"] for row in json.loads(shown.stdout)] == ["theirs"]


def test_refusals_are_shown_up_to_twenty(lab: Path) -> None:
    put(lab / "times" / "L4" / "more.json", {"level1": {f"{n}_A.py": {"mean": "\x1b[2J"} for n in range(25)}})
    done = import_(lab, "times", "--out", "tables")
    assert "… and 6 more, all in tables/rejected.jsonl" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("gone", "--out", "tables"), 2, "gone does not exist"),
        (("times", "--out", "tables", "--format", "csv"), 2, "Use one of auto, kernelbench-timing"),
        (("times", "--out", "tables", "--format", "trace"), 3, "none of 1 files in times holds a result"),
        (("times",), 2, "--out"),
    ],
)
def test_what_cannot_be_done_says_what_can(lab: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = import_(lab, *arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (lab / "tables").exists()


def test_example_of_the_documentation_gives_its_output(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "reference" / "import.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"^```(csv|toml|console|text)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    put(tmp_path / "times.csv", blocks["csv"])
    put(tmp_path / "mapping.toml", blocks["toml"])
    printed = ""
    for command in blocks["console"].splitlines():
        _prompt, program, *arguments = command.split()
        done = piped(tmp_path, *arguments)
        assert (program, done.returncode, done.stderr) == ("kernel-matrix", 0, "")
        printed = done.stdout
    shown = [line.split() for line in blocks["text"].splitlines()]
    assert len(shown) == 6
    assert [line.split() for line in printed.splitlines()[1:7]] == shown


def test_options_say_what_files_do_not(lab: Path) -> None:
    stated = ("--gpu", "l4", "--toolchain", "cu128", "--dtype", "float32")
    assert import_(lab, "times", "--out", "tables", *stated).returncode == 0
    (row,) = json.loads(piped(lab, "results", "tables", "--json").stdout)
    assert (row["gpu"], row["toolchain"], row["dtype"]) == ("l4", "cu128", "fp32")


def test_faulty_mapping_is_one_line_and_leaves_no_tables(lab: Path) -> None:
    put(lab / "mapping.toml", '[columns]\nproblm = "a"\n')
    done = import_(lab, "times", "--out", "tables", "--mapping", "mapping.toml")
    assert done.returncode == 2
    assert "mapping.toml:2: columns.problm: unknown key; allowed: problem," in done.stderr
    assert not (lab / "tables").exists()
