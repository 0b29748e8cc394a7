"""``kernel-matrix platform prove``: the conformance suite on the CPU, and what is no platform, device or report."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from types import SimpleNamespace

import jsonschema
import pytest
from sim.nvml import H200, RTX_4090

from kernel_matrix.conformance import CheckState, ConformanceCheck, ConformanceReport
from kernel_matrix.json_schemas import load_schema
from tests.cli.terminal import judging

PARTS = ["controls", "cheats", "clocks", "memory", "timing", "health"]


def prove(folder, *arguments, **changes):
    return judging(folder, "platform", "prove", *arguments, XDG_STATE_HOME=str(folder / "state"), **changes)


@pytest.fixture(scope="module")
def proven(tmp_path_factory):
    """Return the output and the report of a run on the CPU."""
    folder = tmp_path_factory.mktemp("prove")
    ran = prove(folder, "cpu", "--quick", "-o", "cpu.json")
    assert ran.stderr == ""
    report, page = json.loads((folder / "cpu.json").read_text()), (folder / "cpu.md").read_text()
    return SimpleNamespace(ran=ran, folder=folder, report=report, page=page)


def states(report, part):
    (found,) = [one for one in report["parts"] if one["name"] == part]
    return {check["name"]: check["state"] for check in found["checks"]}


@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.alone
def test_prove_cpu_tells_cheats_from_honest_candidates(proven):
    assert proven.ran.returncode == 0, proven.ran.stdout
    cheats = states(proven.report, "cheats")
    assert set(cheats.values()) == {"passed"}
    assert sum(name.startswith("cheat_") for name in cheats) >= 10
    assert sum(name.startswith("honest_") for name in cheats) == 3
    assert set(states(proven.report, "controls").values()) == {"passed"}


@pytest.mark.torch
@pytest.mark.timeout(600)
def test_prove_cpu_report_matches_schema_and_page(proven):
    jsonschema.validate(proven.report, load_schema("conformance"))
    assert [part["name"] for part in proven.report["parts"]] == PARTS
    assert proven.report["passed"] is True
    assert proven.page.startswith("# Platform cpu: passed\n")
    named = [check["name"] for part in proven.report["parts"] for check in part["checks"]]
    assert re.findall(r"^\| (\w+) \| (?:passed|skipped) \|", proven.page, re.MULTILINE) == named
    assert str(proven.folder) not in proven.page


@pytest.mark.torch
@pytest.mark.timeout(600)
def test_prove_cpu_proves_arenas_and_skips_what_it_lacks(proven):
    memory = states(proven.report, "memory")
    assert [state for name, state in memory.items() if name.startswith("arena_")] == ["passed"] * 4
    assert memory["transport"] == "passed"
    assert set(states(proven.report, "clocks").values()) == {"skipped"}
    assert states(proven.report, "health")["known_answers"] == "passed"


@pytest.mark.torch
@pytest.mark.timeout(600)
def test_prove_cpu_prints_each_check_and_where_records_are(proven):
    lines = proven.ran.stdout.splitlines()
    assert lines[0].startswith("platform cpu on ")
    assert [line for line in lines if not line.startswith("  ")][1:-2] == PARTS
    assert re.fullmatch(r"\d+ passed, 0 failed, \d+ skipped", lines[-2])
    assert list((proven.folder / "state" / "kernel-matrix" / "prove" / "cpu").glob("*/results/prove/records/*.json"))


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("cqu",), 2, r"there is no platform 'cqu'; did you mean 'cpu'\?"),
        (("cpu", "--gpu", "7"), 2, r"--gpu 7 names none of 0 \(cpu\)"),
        (("cpu", "-o", "gone/report.json"), 2, "gone/report.json cannot be the report"),
        (("cpu", "-o", "report.txt"), 2, "report.txt cannot be the report"),
        (("cpu", "--toolchain", "cu1"), 2, "matrix.toml: cannot be read"),
        (("rocm",), 3, "this host has no AMD GPU: "),
    ],
)
def test_prove_bad_argument_is_one_clear_error(arguments, code, error, tmp_path):
    ran = prove(tmp_path, *arguments)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert re.match(rf"error: {error}", ran.stderr)
    assert "\n  → " in ran.stderr
    assert list(tmp_path.glob("state/kernel-matrix/prove/*/*")) == []


def test_prove_unknown_toolchain_names_those_of_the_matrix(tmp_path):
    text = 'name = "m"\ndtypes = ["fp32"]\ngpus = [{ name = "cpu", platform = "cpu" }]\n'
    text += 'toolchains = [{ name = "here", environment = "auto", platform = "cpu" }]\n'
    text += 'problems = [{ source = "folder" }]\n'
    (tmp_path / "matrix.toml").write_text(f'{text}candidates = [{{ select = ["*"] }}]\n')
    ran = prove(tmp_path, "cpu", "--toolchain", "her")
    assert ran.returncode == 2
    assert "matrix.toml has no toolchain 'her'; did you mean 'here'?" in ran.stderr


def test_schema_has_every_field_of_the_report():
    schema = load_schema("conformance")
    assert set(schema["properties"]) == {field.name for field in fields(ConformanceReport)} | {"passed"}
    check = schema["$defs"]["check"]["properties"]
    assert set(check) == {field.name for field in fields(ConformanceCheck)}
    assert check["state"]["enum"] == [state.value for state in CheckState]


@pytest.mark.torch
@pytest.mark.parametrize("arguments", [(), ("--gpu", "1")])
def test_prove_gpu_without_its_pytorch_says_why(arguments, driver, tmp_path):
    driver.set(H200, RTX_4090)
    environment = {name: value for name, value in driver.environment.items() if name != "PYTHONPATH"}
    ran = prove(tmp_path, "cuda", *arguments, **environment)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert re.match(r"error: \d+ cells selected, none of which can run here:\n  \d+ × ", ran.stderr)
    assert "PyTorch" in ran.stderr
