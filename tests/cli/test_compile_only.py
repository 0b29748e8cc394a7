"""``kernel-matrix run --compile-only``: a machine without any GPU tells what builds for which, and runs nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.terminal import piped

pytest.importorskip("triton")
pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]

MATRIX = """
name = "far"
dtypes = ["fp32"]

[[gpus]]
name = "t4"
compute_capability = "7.5"

[[gpus]]
name = "h200"
compute_capability = "9.0"

[[gpus]]
name = "mi300x"
vendor = "amd"
compute_capability = "gfx942"

[[toolchains]]
name = "local"
torch = "{torch}"
triton = "{triton}"

[[problems]]
source = "folder"
path = "problems"
select = "*"
workloads = "smoke"

[[candidates]]
select = ["vector_add/triton_blocked", "vector_add/triton_unknown_call", "vector_add/torch_partial"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from importlib.metadata import version  # noqa: PLC0415  # only where both are installed

    root = tmp_path_factory.mktemp("far")
    root.chmod(0o755)
    shutil.copytree(ROOT / "problems" / "vector_add", root / "problems" / "vector_add")
    versions = {name: version(name).split("+")[0] for name in ("torch", "triton")}
    (root / "matrix.toml").write_text(MATRIX.format(**versions))
    return root


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return piped(folder, *words, KERNEL_MATRIX_CACHE_DIR=str(folder / "cache"))


def test_what_builds_for_which_gpu(folder: Path) -> None:
    ran = call(folder, "run", "--compile-only", "--sandbox", "process")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "interpreter" not in ran.stdout
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("results/far/records/**/*.json"))]
    said = {(r["cell"]["gpu"], r["cell"]["candidate"]): r["outcome"]["status"] for r in records}
    assert said == {
        (gpu, f"vector_add/triton_{name}"): status
        for gpu in ("t4", "h200", "mi300x")
        for name, status in (("blocked", "compiled"), ("unknown_call", "compile_error"))
    }
    built = [r["host"]["build"] for r in records if r["outcome"]["status"] == "compiled"]
    assert {kernel["compute_capability"] for build in built for kernel in build["kernels"]} == {"7.5", "9.0", "gfx942"}
    assert "no toolchain fits" not in ran.stdout
    again = call(folder, "run", "--compile-only", "--sandbox", "process")
    assert "6 have a record already" in again.stdout


def test_builds_of_two_vendors_are_compared(folder: Path) -> None:
    call(folder, "run", "--compile-only", "--sandbox", "process")
    asked = call(folder, "analyze", "builds", "results/far", "--json")
    assert asked.returncode == 0, asked.stderr
    per_gpu, each = json.loads(asked.stdout)["answers"]
    assert {(row["gpu"], row["cells"], row["launchable"]) for row in per_gpu["rows"]} == {
        (gpu, 2, 1) for gpu in ("t4", "h200", "mi300x")
    }
    registers = {row["gpu"]: row["scalar_registers"] for row in each["rows"] if row["kernels"]}
    assert registers["mi300x"] > 0
    assert registers["h200"] is None


def test_an_architecture_that_no_compiler_knows_is_a_reason(folder: Path) -> None:
    text = (folder / "matrix.toml").read_text().replace("gfx942", "gfx803").replace('"far"', '"unknown"')
    (folder / "unknown.toml").write_text(text)
    call(folder, "run", "unknown.toml", "--compile-only", "--sandbox", "process", "--filter", "gpu=mi300x")
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("results/unknown/records/**/*.json"))]
    assert {r["outcome"]["status"] for r in records} == {"unsupported"}
    assert all("does not compile for hip gfx803" in r["outcome"]["evidence"]["message"] for r in records)


def test_what_would_be_built_is_planned_and_shown(folder: Path) -> None:
    planned = json.loads(call(folder, "plan", "--compile-only", "--sandbox", "process", "--json").stdout)
    assert [cell["compile_only"] for cell in planned["cells"]] == [True] * 6
    shown = json.loads(call(folder, "run", "--compile-only", "--sandbox", "process", "--dry-run").stdout)
    assert [set(cell["processes"]) for cell in shown] == [{"builder"}] * 6


def test_without_the_option_nothing_of_it_runs_here(folder: Path) -> None:
    assert call(folder, "run", "--sandbox", "process").returncode == 3
