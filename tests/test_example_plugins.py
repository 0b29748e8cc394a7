"""The packages of ``docs/examples/plugins``, built, installed and used; and packages that are broken."""

from __future__ import annotations

import json
import re
import shutil
from importlib import import_module
from importlib.metadata import version

import pytest

from kernel_matrix.api.host import REGISTRIES
from tests.own_python import ROOT, pip, run_python

PLUGINS = ROOT / "docs" / "examples" / "plugins"

MATRIX = """\
name = "beads"
dtypes = ["fp32"]

[[gpus]]
name = "abacus"
platform = "abacus"

[[toolchains]]
name = "wood"
platform = "abacus"
torch = "{torch}"
triton = "{triton}"

[[problems]]
source = "expressions"
path = "problems.txt"

[[candidates]]
source = "expressions"
path = "{candidates}.txt"

[protocol]
trials = 1
warmup_calls = 1
min_samples = 4
max_samples = 8
budget_s = 0.2
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that both packages are installed into."""
    target = tmp_path_factory.mktemp("installed")
    packages = [str(folder) for folder in sorted(PLUGINS.iterdir())]
    pip("install", "--target", str(target), *packages, folder=target)
    return target


def python(program, *, packages, folder=ROOT):
    return run_python("-c", program, packages=f"{packages}:{ROOT / 'runner'}", folder=folder)


def kernel_matrix(folder, *arguments, packages):
    return run_python("-m", "kernel_matrix", *arguments, packages=f"{packages}:{ROOT / 'runner'}", folder=folder)


def write_matrix(folder, candidates="mine"):
    versions = {name: version(name).partition("+")[0] for name in ("torch", "triton")}
    (folder / "matrix.toml").write_text(MATRIX.format(candidates=candidates, **versions))
    (folder / "problems.txt").write_text("halved = x / 2\nclipped = (x - 0.5).clamp(min=0)\n")
    (folder / "mine.txt").write_text("halved = x * 0.5\nclipped = -(0.5 - x).clamp(max=0)\n")


@pytest.fixture(scope="module")
def field(installed, tmp_path_factory):
    """A folder in which both candidates ran."""
    folder = tmp_path_factory.mktemp("field")
    write_matrix(folder)
    program = (
        "import kernel_matrix as km, sys\n"
        "plan = km.make_plan('matrix.toml', sandbox='polite')\n"
        "result = km.run(plan, executor='alphabetical')\n"
        "assert (result.planned, result.left) == (2, 0), result\n"
    )
    python(program, packages=installed, folder=folder)
    return folder


@pytest.fixture(scope="module")
def records(field):
    found = [json.loads(path.read_text()) for path in (field / "results" / "beads" / "records").glob("*.json")]
    return {record["cell"]["candidate"]: record for record in found}


pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]


def test_platform_cell_passes_on_its_device(records):
    record = records["halved/mine"]
    assert record["outcome"]["status"] == "passed"
    device = record["host"]["device"]
    assert (device["vendor"], device["name"]) == ("acme", "Acme Abacus")
    assert record["host"]["exclusive"] == "proven"
    assert [session["transport"] for session in record["sessions"]] == ["abacus-file"] * len(record["sessions"])


def test_strategy_begins_every_other_sample_anew(installed):
    program = (
        "from kernel_matrix.generation import GenerationAttempt\n"
        "from kernel_matrix.generation.strategies import STRATEGIES\n"
        "first = GenerationAttempt(problem='halved', name='first', sample=0, round=0)\n"
        "parents = STRATEGIES.load('half_anew')([first], 3)\n"
        "print([parent and parent.name for parent in parents])"
    )
    assert python(program, packages=installed).strip() == "['first', None, 'first']"


def test_check_fails_a_candidate(records):
    outcome = records["clipped/mine"]["outcome"]
    assert outcome["status"] == "incorrect_values"
    assert re.fullmatch(r"output 0: \d+ zeros have the wrong sign", outcome["evidence"]["message"])


def test_check_changes_the_measurement_version(records, installed):
    program = "from kernel_matrix.hosts.code_versions import measurement_version as v; print(v('abacus'))"
    assert {record["host"]["measurement_version"] for record in records.values()} == {
        python(program, packages=installed).strip()
    }


def test_rule_finds_calls(installed):
    program = (
        "from kernel_matrix.model.enums import Dtype, Language\n"
        "from kernel_matrix.scan import scan_text\n"
        "source = 'class ModelNew:\\n  def forward(self, x):\\n    print(x)\\n    return x\\n'\n"
        "print(*(f.rule for f in scan_text(source, Language.TORCH, Dtype.FP32).findings))\n"
    )
    assert "prints" in python(program, packages=installed).split()


def test_sandbox_is_recorded(records):
    assert {record["host"]["engine"] for record in records.values()} == {"polite"}


def test_audit_question_and_formats_read_results(field, installed):
    kernel_matrix(field, "merge", "results/beads", packages=installed)
    audited = json.loads(
        kernel_matrix(field, "audit", "results/beads", "--only", "much_slower", "--json", packages=installed)
    )
    assert [check["name"] for check in audited["checks"]] == ["much_slower"]
    answered = kernel_matrix(field, "analyze", "failures", "results/beads", packages=installed)
    assert "Failed cells by problem" in answered
    kernel_matrix(field, "report", "results/beads", "--out", "cells.csv", packages=installed)
    header, *lines = (field / "cells.csv").read_text().splitlines()
    assert header.startswith("candidate,workload,gpu")
    assert sorted(line.partition(",")[0] for line in lines) == ["clipped/mine", "halved/mine"]


def test_import_format_is_recognised(installed, tmp_path):
    taken = {"problem": "walk", "candidate": "mine", "gpu": "Acme Abacus", "seconds": 2.5}
    (tmp_path / "times.json").write_text(json.dumps({"stopwatch": [taken]}))
    shown = kernel_matrix(tmp_path, "import", "times.json", "--out", "tables", packages=installed)
    assert "1 stopwatch" in shown


def extension_faults(folder, packages):
    shown = json.loads(kernel_matrix(folder, "doctor", "--sandbox", "process", "--json", packages=packages))
    return [line["found"] for line in shown if line["subject"] == "extensions"]


def test_doctor_finds_no_fault(field, installed):
    assert extension_faults(field, installed) == []


BROKEN = """\
[kernel_matrix.platforms]
torn = absent_package
bare = bare_package
cpu = bare_package

[kernel_matrix.sandboxes]
torn = absent_package

[kernel_matrix.sources]
bare = bare_package

[kernel_matrix.checks]
bare = bare_package
"""

FAULTS = {
    "platform 'torn' (absent_package) cannot be loaded: ModuleNotFoundError: No module named 'absent_package'",
    "platform 'cpu' of bare_package is ignored: that name is taken by kernel-matrix itself",
    "sandbox 'torn' (absent_package) cannot be loaded: ModuleNotFoundError: No module named 'absent_package'",
    "source 'bare' (bare_package) lacks load",
    "check 'bare' (bare_package) cannot be loaded: it has no function check(call)",
}


def test_broken_package_is_a_line_each_and_all_else_works(tmp_path):
    packages = tmp_path / "packages"
    (packages / "broken-1.0.dist-info").mkdir(parents=True)
    (packages / "broken-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (packages / "broken-1.0.dist-info" / "entry_points.txt").write_text(BROKEN)
    (packages / "bare_package.py").write_text("")
    lines = extension_faults(tmp_path, packages)
    assert set(lines) > FAULTS
    assert len(lines) == len(FAULTS) + 1, "and the platform that lacks everything"
    planned = json.loads(kernel_matrix(ROOT, "plan", "--json", "--sandbox", "process", packages=packages))
    assert planned["cells"]
    kernel_matrix(tmp_path, "sweep", packages=packages)


def installed_with_inside(installed, folder, change):
    """A copy of the installed packages in which ``change`` was applied to the text of the abacus' inside half."""
    packages = folder / "packages"
    shutil.copytree(installed, packages)
    inside = packages / "kernel_matrix_abacus" / "inside" / "__init__.py"
    inside.write_text(change(inside.read_text()))
    return packages


def test_platform_whose_inside_lacks_a_member_is_one_line(installed, tmp_path):
    packages = installed_with_inside(installed, tmp_path, lambda text: text.replace("make_timer", "make_stopwatch"))
    line = "platform 'abacus' (kernel_matrix_abacus) cannot be loaded: its inside half lacks make_timer"
    assert extension_faults(tmp_path, packages) == [line]
    planned = json.loads(kernel_matrix(ROOT, "plan", "--json", "--sandbox", "process", packages=packages))
    assert planned["cells"]


def test_platform_member_absent_in_the_sandbox_is_infra(installed, tmp_path):
    packages = installed_with_inside(installed, tmp_path, lambda text: f"{text}\n\ndel make_timer\n")
    write_matrix(tmp_path)
    python("import kernel_matrix as km; km.run(km.make_plan('matrix.toml'))", packages=packages, folder=tmp_path)
    records = [json.loads(path.read_text()) for path in tmp_path.glob("results/beads/records/*.json")]
    assert {(record["outcome"]["status"], record["outcome"]["fault"]) for record in records} == {
        ("infra_error", "infra")
    }
    log = records[0]["outcome"]["evidence"]["log"]
    assert "ImportError: the inside half of the platform 'abacus' lacks make_timer" in log


def blocks():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.findall(r"^```(?:python|toml)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_contributing_shows_code_of_the_examples():
    files = [path.read_text(encoding="utf-8") for path in PLUGINS.rglob("*") if path.suffix in (".py", ".toml")]
    assert len(blocks()) >= 11
    assert [block for block in blocks() if not any(block.strip() in text for text in files)] == []


def test_contributing_names_every_group():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = [place.partition(":") for place in REGISTRIES]
    groups = [getattr(import_module(module), name).group for module, _, name in places]
    assert [group for group in groups if f'"{group}"' not in text] == []
